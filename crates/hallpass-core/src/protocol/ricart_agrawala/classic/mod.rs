//! Section 7: nodes that join, leave, fail and come back, without a quorum.
//!
//! Faithful to the paper where the paper holds, and **safe only while messages arrive within the stated bound** (T7): a
//! node that is merely slow is taken for dead. Messages name the incarnations of their sender and receiver, and changes
//! of the list commute, so that nodes that learn of them in different orders end up with the same list.
//!
//! | here | section |
//! |---|---|
//! | this file: requests, made by the caller or for a change of the group | 7 |
//! | `names`: the list of participants | 7.1 |
//! | `join` | 7.2 |
//! | `leave` | 7.3 |
//! | `failure` | 7.4 |
//! | `task`: a question that everybody must answer, for joining and leaving | 7.2, 7.3 |

mod failure;
mod join;
mod leave;
mod message;
mod names;
mod rules;
mod task;

use std::sync::Arc;

use super::{RaMessage, RaTimer, RicartAgrawala};
use crate::protocol::constant::Constant;
use crate::protocol::{
    Bounds, Capabilities, Effect, Effects, Input, Mode, Needs, OptionError, Options, Protocol, Span, Ticks, Trap,
    Variables,
};
use crate::{NodeId, Setup, View};

pub use message::{Body, ClassicMessage};
pub use rules::ClassicRules;

use failure::Probing;
use message::ANY_INCARNATION;
use names::Name;
use task::{Goal, Task};

/// One node of a group whose list of participants changes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Classic {
    me: NodeId,
    rules: Constant<(ClassicRules, Bounds)>,
    /// The algorithm of section 2, on the nodes of the list.
    base: RicartAgrawala,
    incarnation: u32,
    /// The nodes that one that joins or returns can ask; its own list is empty until it is welcomed.
    contacts: Arc<[NodeId]>,
    /// `NAMES` without this node, in rising order, with those that are gone.
    names: Vec<Name>,
    membership: Membership,
    /// The local caller, while its request cannot be made yet.
    wanted: Option<(Mode, u32)>,
    /// For whom the request of `base` is made.
    user: Option<User>,
    /// Changes of the group that wait for mutual exclusion.
    pending: Vec<Change>,
    /// What every node must answer at present.
    task: Option<Task>,
    /// The present round of probes.
    probing: Option<Probing>,
    /// The group removed this node while its caller was inside: it restarts after the release.
    must_restart: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Membership {
    /// Not in the group, and not asked to be.
    Outside,
    /// 7.2.1: waits until its former incarnation is forgotten everywhere.
    Returning { sponsor: NodeId },
    /// Has asked a sponsor.
    Joining { sponsor: NodeId },
    /// 7.2.3: on every list, but not yet sure of its highest number.
    Learning {
        /// The number of the first REQUEST that arrived.
        first: Option<u64>,
        /// How many REQUESTs have come from each node, up to four.
        requests: Vec<(NodeId, u8)>,
        /// The highest number in what others have sent.
        known: u64,
    },
    /// In the group.
    Member,
    /// Gone, or going: makes no request any more.
    Leaving,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum User {
    Caller,
    Change,
}

/// A change of the group that is made under mutual exclusion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Change {
    Sponsor { node: NodeId, incarnation: u32 },
    Leave,
}

/// The timers of [`Classic`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ClassicTimer {
    /// A REPLY is overdue (footnote 4).
    Overdue,
    /// An answer to ARE_YOU_THERE is overdue (footnote 5).
    Unanswered,
    /// Answers to a question to all are overdue.
    Task,
    /// 7.2.1: the former incarnation of this node is forgotten everywhere.
    RestartInterval,
    /// The sponsor has not answered.
    NoWelcome,
    /// Everybody could have entered and left.
    Quiet,
}

type Out = Effects<ClassicMessage, ClassicTimer>;

impl Protocol for Classic {
    type Message = ClassicMessage;
    type Timer = ClassicTimer;
    type Options = ClassicRules;

    fn parse(options: &Options) -> Result<ClassicRules, OptionError> {
        ClassicRules::parse(options)
    }

    fn needs(rules: &ClassicRules) -> Needs {
        rules.needs()
    }

    fn draws(rules: &ClassicRules) -> u32 {
        RicartAgrawala::draws(&rules.base)
    }

    fn new(setup: &Setup<'_, ClassicRules>) -> Self {
        let Setup { me, view, initial, incarnation, options, .. } = *setup;
        let bounds = Bounds {
            transit_max: options.transit_max.unwrap_or(setup.bounds.transit_max),
            section_max: options.section_max.unwrap_or(setup.bounds.section_max),
        };
        let founder = incarnation == 0 && view.members().contains(&me);
        let alone = View::new([me]);
        let view_of_base = if founder { view } else { &alone };
        let setup_of_base = Setup { view: view_of_base, bounds, ..setup.with_options(&options.base) };
        let contacts = view.others(me);
        let founders = contacts.iter().map(|node| Name { node: *node, incarnation: 0, gone: false });
        Self {
            me,
            rules: Constant::new((options.clone(), bounds)),
            base: RicartAgrawala::new(&setup_of_base),
            incarnation,
            names: if founder { founders.collect() } else { Vec::new() },
            contacts,
            membership: if founder { Membership::Member } else { Membership::Outside },
            wanted: None,
            user: initial.held_by(me).map(|_| User::Caller),
            pending: Vec::new(),
            task: None,
            probing: None,
            must_restart: false,
        }
    }

    fn handle(&mut self, input: Input<ClassicMessage, ClassicTimer>, out: &mut Out) {
        match input {
            Input::Acquire { mode, draw } => {
                self.wanted = Some((mode, draw));
                self.make_next_request(out);
            }
            Input::Cancel if self.user != Some(User::Caller) => self.wanted = None,
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { from, message } => self.on_message(from, message, out),
            Input::Timeout(ClassicTimer::Overdue) => self.on_overdue_timeout(out),
            Input::Timeout(ClassicTimer::Unanswered) => self.on_unanswered_timeout(out),
            Input::Timeout(ClassicTimer::Task) => self.on_task_timeout(out),
            Input::Timeout(ClassicTimer::RestartInterval | ClassicTimer::NoWelcome) => self.ask_to_join(out),
            Input::Timeout(ClassicTimer::Quiet) => self.on_quiet_timeout(out),
            Input::Join { sponsor } => self.on_join(sponsor, out),
            Input::Leave => self.on_leave(out),
            Input::Try { .. } | Input::GiveBack | Input::Inquire | Input::Downgrade | Input::Upgrade => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        let membership = match self.membership {
            Membership::Outside => "outside",
            Membership::Returning { .. } => "returning",
            Membership::Joining { .. } => "joining",
            Membership::Learning { .. } => "learning",
            Membership::Member => "member",
            Membership::Leaving => "leaving",
        };
        out.set("membership", membership);
        out.list("NAMES", self.names.iter().filter(|name| !name.gone).map(|name| name.node));
        self.base.variables(out);
    }

    fn is_idle(&self) -> bool {
        self.base.is_idle()
            && self.user.is_none()
            && self.wanted.is_none()
            && self.pending.is_empty()
            && self.task.is_none()
    }

    fn request_number(&self) -> Option<u64> {
        self.base.request_number()
    }

    fn highest_number(&self) -> u64 {
        self.base.highest
    }
}

impl Capabilities for Classic {}

/// Requests: one at a time, those for changes of the group first, since they are few.
impl Classic {
    fn make_next_request(&mut self, out: &mut Out) {
        if self.membership != Membership::Member || self.user.is_some() || self.task.is_some() {
            return;
        }
        if self.must_restart {
            return out.push(Effect::Restart);
        }
        if self.leaves_as_printed() {
            self.pending.remove(0);
            return self.begin(Goal::Leave, out);
        }
        let (user, mode, draw) = if !self.pending.is_empty() {
            (User::Change, Mode::Exclusive, 0)
        } else if let Some((mode, draw)) = self.wanted.take() {
            (User::Caller, mode, draw)
        } else {
            return;
        };
        self.user = Some(user);
        self.run_base(Input::Acquire { mode, draw }, out);
        if self.base.waiting().is_some() {
            self.set(ClassicTimer::Overdue, self.overdue(), out);
        }
    }

    /// Lets the algorithm of section 2 handle an input, and carries out its effects on this node's list.
    fn run_base(&mut self, input: Input<RaMessage, RaTimer>, out: &mut Out) {
        let mut effects = Effects::new();
        self.base.handle(input, &mut effects);
        self.carry_out(effects, out);
    }

    fn carry_out(&mut self, effects: Effects<RaMessage, RaTimer>, out: &mut Out) {
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.send(to, Body::Base(message), out),
                Effect::Broadcast { message } => self.send_all(&Body::Base(message), out),
                Effect::Enter { fence } => {
                    self.stop_probing(out);
                    match self.user {
                        Some(User::Change) => self.make_change(out),
                        _ => out.push(Effect::Enter { fence }),
                    }
                }
                // The plain algorithm with explicit replies sets no timers but hold-back, which classic does not use.
                _ => {}
            }
        }
    }

    /// This node is inside on the group's behalf.
    fn make_change(&mut self, out: &mut Out) {
        match self.pending.remove(0) {
            Change::Sponsor { node, incarnation } => self.sponsor(node, incarnation, out),
            Change::Leave => self.begin(Goal::Leave, out),
        }
    }

    fn on_release(&mut self, out: &mut Out) {
        self.user = None;
        self.stop_probing(out);
        self.run_base(Input::Release, out);
        self.make_next_request(out);
    }

    fn stop_probing(&mut self, out: &mut Out) {
        self.probing = None;
        out.push(Effect::CancelTimer(ClassicTimer::Overdue));
        out.push(Effect::CancelTimer(ClassicTimer::Unanswered));
    }

    fn on_message(&mut self, from: NodeId, message: ClassicMessage, out: &mut Out) {
        if message.to != ANY_INCARNATION && message.to != self.incarnation {
            return; // Meant for a former incarnation of this node.
        }
        let name = self.name(from).filter(|name| !name.gone);
        if name.is_some_and(|name| message.from < name.incarnation) {
            return; // From a former incarnation of the sender.
        }
        let listed = name.is_some_and(|name| message.from == name.incarnation);
        match message.body {
            Body::Base(RaMessage::Request { .. }) | Body::AreYouThere { .. }
                if !listed && self.membership == Membership::Member =>
            {
                // 'A special message notifying the node that it should restart itself and use the insertion protocol.'
                self.send_to(from, message.from, Body::RestartYourself, out);
            }
            Body::Base(RaMessage::Request { number, mode }) => {
                if listed {
                    self.run_base(Input::Deliver { from, message: RaMessage::Request { number, mode } }, out);
                } else {
                    self.reply_to_stranger(from, message.from, number, out);
                }
                self.learn_from(from, number, out);
            }
            Body::Base(reply) if listed => self.on_reply(from, reply, out),
            Body::Base(_) => {}
            Body::AreYouThere { number, mode } => self.on_are_you_there(from, number, mode, out),
            Body::YesIAmHere { answers } => {
                if self.base.request_number() == Some(answers) {
                    self.mark_alive(from);
                }
            }
            body => self.on_membership_message(from, message.from, body, out),
        }
    }

    fn on_membership_message(&mut self, from: NodeId, from_incarnation: u32, body: Body, out: &mut Out) {
        match body {
            Body::RestartYourself => self.on_restart_yourself(out),
            Body::Failed { node, incarnation } if node == self.me => {
                if incarnation == self.incarnation {
                    self.on_restart_yourself(out);
                }
            }
            Body::Failed { node, incarnation } => self.remove(node, incarnation, out),
            Body::Join => self.on_join_request(from, from_incarnation, out),
            Body::Add { node, incarnation } => self.on_add(from, node, incarnation, out),
            Body::Added { node, incarnation, highest } => {
                self.on_answer(from, Goal::Sponsor { node, incarnation }, highest, out);
            }
            Body::Welcome { names, highest } => self.on_welcome(from, from_incarnation, &names, highest, out),
            Body::IncludeMe => self.on_include_me(from, from_incarnation, out),
            Body::Included { highest } => {
                self.add(from, from_incarnation, out);
                self.on_answer(from, Goal::Include, highest, out);
            }
            Body::AskHighest => {
                let tell = Body::TellHighest { highest: self.base.highest };
                self.send_to(from, from_incarnation, tell, out);
            }
            Body::TellHighest { highest } => self.on_answer(from, Goal::Ask, highest, out),
            Body::Leave => {
                self.remove(from, from_incarnation, out);
                self.send_to(from, from_incarnation, Body::LeaveNoted, out);
            }
            Body::LeaveNoted => self.on_answer(from, Goal::Leave, 0, out),
            Body::Base(_) | Body::AreYouThere { .. } | Body::YesIAmHere { .. } => {}
        }
    }

    /// A node that is not a member replies to everybody: its own list may still be in flight.
    fn reply_to_stranger(&mut self, to: NodeId, incarnation: u32, number: u64, out: &mut Out) {
        let reply = RaMessage::Reply { answers: number, highest: self.base.highest, fence: 0 };
        self.base.highest = self.base.highest.max(number);
        self.send_to(to, incarnation, Body::Base(reply), out);
    }

    fn on_reply(&mut self, from: NodeId, reply: RaMessage, out: &mut Out) {
        self.run_base(Input::Deliver { from, message: reply }, out);
        self.mark_alive(from);
        if self.base.waiting().is_some() && self.probing.is_none() {
            self.set(ClassicTimer::Overdue, self.overdue(), out); // 'The timer should be restarted when a REPLY is received.'
        }
    }
}

impl Classic {
    fn set(&self, timer: ClassicTimer, after: Ticks, out: &mut Out) {
        out.push(Effect::SetTimer { timer, after: Span::exactly(after) });
    }

    fn printed(&self, trap: Trap) -> bool {
        self.rules.0.printed.contains(trap)
    }

    fn bounds(&self) -> Bounds {
        self.rules.1
    }

    fn round_trip(&self) -> Ticks {
        self.bounds().round_trip()
    }

    /// Footnote 4: the longest round trip plus a reasonable estimate of the longest section.
    fn overdue(&self) -> Ticks {
        self.round_trip() + self.bounds().section_max
    }
}
