//! Section 7: nodes that join, leave, fail and come back, without a quorum.
//!
//! Faithful to the paper where the paper holds, and **safe only while messages arrive within the stated bound** (T7): a
//! node that is merely slow is taken for dead. What a node may not know by itself is always tagged with incarnations,
//! and every change of the list commutes with every other, so that nodes that hear of changes in different orders end up
//! with the same list.
//!
//! - Joining (7.2): under mutual exclusion the sponsor sends ADD to all, each adds the newcomer and *then* acknowledges
//!   with its highest number, its own outstanding request included; the sponsor hands the maximum over and releases (T8).
//! - Leaving (7.3) is serialised with joining in the same way (T9).
//! - Failing (7.4): ARE_YOU_THERE repeats the REQUEST and is handled as that (T5).

use std::sync::Arc;

use super::rules::{FenceRule, refuse};
use super::{RaMessage, RicartAgrawala, Rules};
use crate::protocol::constant::Constant;
use crate::protocol::{
    Bounds, Capabilities, Effect, Effects, Input, Mode, Needs, OptionError, Options, Protocol, Span, Ticks, Trap,
    TrapSet,
};
use crate::{NodeId, Setup, View};

use super::classic_message::{ANY, Body, ClassicMessage};

/// One node of a group whose list of participants changes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Classic {
    me: NodeId,
    rules: Constant<(ClassicRules, Bounds)>,
    base: RicartAgrawala,
    incarnation: u32,
    /// Whom a node that returns knows from before: nobody is on its list until it is welcomed, but these it can ask.
    acquaintances: Arc<[NodeId]>,
    /// `NAMES` without this node, in rising order, with those that are gone.
    names: Vec<Name>,
    standing: Standing,
    /// The local caller, while its request cannot be made yet.
    wanted: Option<(Mode, u32)>,
    /// Whose request the algorithm below is working on.
    user: Option<User>,
    /// What waits for mutual exclusion on the group's behalf.
    errands: Vec<Errand>,
    /// Something that every node must answer, and who has not yet.
    task: Option<Task>,
    /// The round of probes that is under way.
    probing: Option<Probing>,
    /// Told to restart while the caller was inside: it comes after the release.
    must_restart: bool,
}

/// The options of [`Classic`].
#[derive(Clone, Debug)]
pub struct ClassicRules {
    base: Rules,
    way: Way,
    by_broadcast: bool,
    /// How often a silent node is asked before it counts as failed.
    probes: u8,
    transit_max: Option<Ticks>,
    section_max: Option<Ticks>,
    printed: TrapSet,
}

/// How a newcomer learns that its highest number is high enough (7.2.3); 'until then REQUESTs are answered and none is made'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The sponsor hands over what the acknowledgements told it (T8).
    Sponsor,
    /// (1) Ask all.
    Ask,
    /// (2) One REQUEST from each.
    Each,
    /// (3) Numbers risen by N-1.
    Risen,
    /// (4) A wait in which everybody could have entered and left.
    Quiet,
    /// (5) The fourth REQUEST from one node, on links that keep order.
    Fourth,
}

/// A participant, by its newest known life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Name {
    node: NodeId,
    incarnation: u32,
    gone: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Standing {
    /// Not in the group, and not asked to be.
    Outside,
    /// 7.2.1: waits until its former life is forgotten everywhere.
    Returning { sponsor: NodeId },
    /// Has asked a sponsor.
    Joining { sponsor: NodeId },
    /// On every list, but not yet sure of its highest number.
    Learning { first: Option<u64>, heard: Vec<(NodeId, u8)>, nearby: u64 },
    /// In the group.
    Member,
    /// Gone, or going: never asks again.
    Leaving,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum User {
    Caller,
    Errand,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Errand {
    Sponsor { node: NodeId, incarnation: u32 },
    Leave,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Probing {
    /// How many times silence may still be answered by another probe.
    again: u8,
    /// Who has shown that it lives.
    alive: Vec<NodeId>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Task {
    goal: Goal,
    missing: Vec<NodeId>,
    /// The highest number that an answer carried.
    highest: u64,
    asked_again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Goal {
    Sponsor { node: NodeId, incarnation: u32 },
    Leave,
    Ask,
    Include,
}

/// The timers of [`Classic`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ClassicTimer {
    /// A REPLY is overdue (footnote 4).
    Overdue,
    /// An answer to ARE_YOU_THERE is overdue (footnote 5).
    Unanswered,
    /// Answers to something sent to all are overdue.
    Task,
    /// The former life of this node is forgotten.
    Forgotten,
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
        let mut parsed = options.read("ricart-agrawala membership=classic");
        for (key, default, why) in [
            ("reply", "explicit", "a dead node's silence would be its permission (T10)"),
            ("numbers", "unbounded", "residues need fixed membership (T4)"),
            ("request", "unicast", "REQUESTs go to the nodes on the list, which a broadcast does not know"),
            ("release", "unicast", "REPLYs go to the nodes on the list, which a broadcast does not know"),
            ("clock", "sequence", "its numbers are the paper's"),
            ("medium", "unordered", "its numbers are the paper's"),
            ("hold-back", "", "a REQUEST that is put off looks like a node that is dead (T14)"),
        ] {
            if parsed.text(key).is_some_and(|value| value != default) {
                return refuse(format!("membership=classic cannot be combined with {key}: {why}"));
            }
        }
        let way = parsed.choice(
            "hsn",
            &[
                ("sponsor", Way::Sponsor),
                ("ask", Way::Ask),
                ("each", Way::Each),
                ("risen", Way::Risen),
                ("quiet", Way::Quiet),
                ("fourth", Way::Fourth),
            ],
        )?;
        let by_broadcast = parsed.choice("insert", &[("sponsor", false), ("broadcast", true)])?;
        let probes = match parsed.number("probes")? {
            None => 2,
            Some(count @ 1..=9) => count as u8,
            Some(count) => {
                return refuse(format!("probes={count}: a silent node is asked 1 to 9 times; the paper asks once"));
            }
        };
        let transit_max = parsed.duration("transit-max")?;
        let section_max = parsed.duration("section-max")?;
        let printed = parsed.as_printed(&[Trap::AreYouThere, Trap::UnacknowledgedJoin, Trap::UnorderedLeave])?;
        let mut below = options.emptied();
        for key in ["increment", "priorities", "reply-number"] {
            if let Some(value) = parsed.text(key) {
                below.set(key, value)?;
            }
        }
        if way == Way::Risen && options.get("increment").is_some_and(|increment| increment != "unit") {
            return refuse("hsn=risen counts on numbers that rise by one a request (T14): drop increment");
        }
        parsed.finish()?;
        let base = Rules { fence: FenceRule::Name, ..Rules::parse(&below)? };
        Ok(ClassicRules { base, way, by_broadcast, probes, transit_max, section_max, printed })
    }

    fn needs(rules: &ClassicRules) -> Needs {
        Needs {
            delay_bound: Some("membership=classic"),
            fifo: (rules.way == Way::Fourth).then_some("hsn=fourth"),
            membership: true,
            unexplorable: match rules.way {
                Way::Quiet => Some(
                    "hsn=quiet needs a bound on sections, and in an exploration they may last for ever; use lab run",
                ),
                Way::Each | Way::Risen | Way::Fourth => {
                    Some("this hsn waits for REQUESTs that nobody owes a newcomer in an exploration; use lab run")
                }
                Way::Sponsor | Way::Ask => None,
            },
            ..Needs::default()
        }
    }

    fn draws(rules: &ClassicRules) -> u32 {
        RicartAgrawala::draws(&rules.base)
    }

    fn new(setup: &Setup<'_, ClassicRules>) -> Self {
        let Setup { me, view, incarnation, options, .. } = *setup;
        let bounds = Bounds {
            transit_max: options.transit_max.unwrap_or(setup.bounds.transit_max),
            section_max: options.section_max.unwrap_or(setup.bounds.section_max),
        };
        let founder = incarnation == 0 && view.members().contains(&me);
        let alone = View::new([me]);
        let base = RicartAgrawala::new(&Setup {
            me,
            view: if founder { view } else { &alone },
            initial: setup.initial,
            incarnation,
            bounds,
            options: &options.base,
        });
        let acquaintances = view.others(me);
        let founding = acquaintances.iter().map(|node| Name { node: *node, incarnation: 0, gone: false });
        let names = if founder { founding.collect() } else { Vec::new() };
        let user = setup.initial.held_by(me).map(|_| User::Caller);
        Self {
            me,
            rules: Constant::new((options.clone(), bounds)),
            base,
            incarnation,
            acquaintances,
            names,
            standing: if founder { Standing::Member } else { Standing::Outside },
            wanted: None,
            user,
            errands: Vec::new(),
            task: None,
            probing: None,
            must_restart: false,
        }
    }

    fn handle(&mut self, input: Input<ClassicMessage, ClassicTimer>, out: &mut Out) {
        match input {
            Input::Acquire { mode, draw } => {
                self.wanted = Some((mode, draw));
                self.go_on(out);
            }
            Input::Cancel if self.user != Some(User::Caller) => self.wanted = None,
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { from, message } => self.on_message(from, message, out),
            Input::Timeout(ClassicTimer::Overdue) => self.on_overdue_timeout(out),
            Input::Timeout(ClassicTimer::Unanswered) => self.on_unanswered_timeout(out),
            Input::Timeout(ClassicTimer::Task) => self.on_task_timeout(out),
            Input::Timeout(ClassicTimer::Forgotten | ClassicTimer::NoWelcome) => self.ask_to_join(out),
            Input::Timeout(ClassicTimer::Quiet) => self.on_quiet_timeout(out),
            Input::Join { sponsor } => self.on_join(sponsor, out),
            Input::Leave => self.on_leave(out),
        }
    }

    fn is_idle(&self) -> bool {
        self.base.is_idle()
            && self.user.is_none()
            && self.wanted.is_none()
            && self.errands.is_empty()
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

/// Who uses the algorithm below, one after the other: the group's errands first, they are few.
impl Classic {
    fn go_on(&mut self, out: &mut Out) {
        if self.standing != Standing::Member || self.user.is_some() || self.task.is_some() {
            return;
        }
        if self.must_restart {
            return out.push(Effect::Restart);
        }
        if self.printed(Trap::UnorderedLeave) && self.errands.first() == Some(&Errand::Leave) {
            self.errands.remove(0); // As printed: leave without mutual exclusion, at the same time as somebody joins.
            return self.begin(Goal::Leave, Body::Leave, out);
        }
        let input = if !self.errands.is_empty() {
            self.user = Some(User::Errand);
            Input::Acquire { mode: Mode::Exclusive, draw: 0 }
        } else if let Some((mode, draw)) = self.wanted.take() {
            self.user = Some(User::Caller);
            Input::Acquire { mode, draw }
        } else {
            return;
        };
        self.below(input, out);
        if self.base.waiting().is_some() {
            self.set(ClassicTimer::Overdue, self.overdue(), out);
        }
    }

    /// Lets the algorithm below handle an input, and carries its effects out under this node's list of names.
    fn below(&mut self, input: Input<RaMessage, super::RaTimer>, out: &mut Out) {
        let mut effects = Effects::new();
        self.base.handle(input, &mut effects);
        self.carry_out(effects, out);
    }

    fn carry_out(&mut self, effects: Effects<RaMessage, super::RaTimer>, out: &mut Out) {
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.send(to, Body::Base(message), out),
                Effect::Broadcast { message } => self.send_all(&Body::Base(message), out),
                Effect::Enter { fence } => {
                    out.push(Effect::CancelTimer(ClassicTimer::Overdue));
                    out.push(Effect::CancelTimer(ClassicTimer::Unanswered));
                    self.probing = None;
                    match self.user {
                        Some(User::Errand) => self.run_errand(out),
                        _ => out.push(Effect::Enter { fence }),
                    }
                }
                // The plain algorithm with explicit replies sets no timers but hold-back, which classic does not use.
                _ => {}
            }
        }
    }

    fn on_release(&mut self, out: &mut Out) {
        self.user = None;
        self.probing = None;
        out.push(Effect::CancelTimer(ClassicTimer::Overdue));
        out.push(Effect::CancelTimer(ClassicTimer::Unanswered));
        self.below(Input::Release, out);
        self.go_on(out);
    }

    fn on_message(&mut self, from: NodeId, message: ClassicMessage, out: &mut Out) {
        if message.to != ANY && message.to != self.incarnation {
            return; // Meant for a former life of this node.
        }
        let name = self.name(from);
        if name.is_some_and(|name| !name.gone && message.from < name.incarnation) {
            return; // From a former life of the sender.
        }
        let listed = name.is_some_and(|name| !name.gone && message.from == name.incarnation);
        let answers_anybody = self.standing != Standing::Member;
        match message.body {
            Body::Base(RaMessage::Request { .. }) | Body::AreYouThere { .. } if !listed && !answers_anybody => {
                // 'A special message notifying the node that it should restart itself and use the insertion protocol.'
                out.push(Effect::Send { to: from, message: self.message(message.from, Body::RestartYourself) });
            }
            Body::Base(RaMessage::Request { number, mode }) => {
                if !listed {
                    // A newcomer answers everybody: its own list may still be on its way.
                    let reply = RaMessage::Reply { answers: number, highest: self.base.highest, fence: 0 };
                    self.base.highest = self.base.highest.max(number);
                    out.push(Effect::Send { to: from, message: self.message(message.from, Body::Base(reply)) });
                } else {
                    self.below(Input::Deliver { from, message: RaMessage::Request { number, mode } }, out);
                }
                self.learn_from(from, number, out);
            }
            Body::Base(reply) if listed => self.on_reply(from, reply, out),
            Body::AreYouThere { number, mode } => self.on_are_you_there(from, number, mode, out),
            Body::YesIAmHere { answers } if self.base.request_number() == Some(answers) => self.confirm(from),
            Body::RestartYourself => self.on_restart_yourself(out),
            Body::Failed { node, incarnation } if node == self.me => {
                if incarnation == self.incarnation {
                    self.on_restart_yourself(out);
                }
            }
            Body::Failed { node, incarnation } => self.remove(node, incarnation, out),
            Body::Join => self.on_join_request(from, message.from, out),
            Body::Add { node, incarnation } => {
                self.add(node, incarnation, out);
                let added = Body::Added { node, incarnation, highest: self.base.highest };
                if !self.printed(Trap::UnacknowledgedJoin) {
                    self.send(from, added, out);
                }
            }
            Body::Added { node, incarnation, highest } => {
                self.on_answer(from, Goal::Sponsor { node, incarnation }, highest, out)
            }
            Body::TellHighest { highest } => self.on_answer(from, Goal::Ask, highest, out),
            Body::Welcome { names, highest } => self.on_welcome(from, message.from, &names, highest, out),
            Body::IncludeMe => {
                self.add(from, message.from, out);
                let included = Body::Included { highest: self.base.highest };
                self.send(from, included, out);
                self.say_goodbye_to(from, out);
            }
            Body::Included { highest } => {
                self.add(from, message.from, out);
                self.on_answer(from, Goal::Include, highest, out);
            }
            Body::AskHighest => {
                let tell = Body::TellHighest { highest: self.base.highest };
                out.push(Effect::Send { to: from, message: self.message(message.from, tell) });
            }
            Body::Leave => {
                self.remove(from, message.from, out);
                out.push(Effect::Send { to: from, message: self.message(message.from, Body::LeaveNoted) });
            }
            Body::LeaveNoted => self.on_answer(from, Goal::Leave, 0, out),
            Body::Base(_) | Body::YesIAmHere { .. } => {}
        }
    }

    fn on_reply(&mut self, from: NodeId, reply: RaMessage, out: &mut Out) {
        self.below(Input::Deliver { from, message: reply }, out);
        self.confirm(from);
        if self.base.waiting().is_some() && self.probing.is_none() {
            self.set(ClassicTimer::Overdue, self.overdue(), out); // 'The timer should be restarted when a REPLY is received.'
        }
    }
}

/// 7.4: finding out who has failed.
impl Classic {
    fn on_overdue_timeout(&mut self, out: &mut Out) {
        self.probing = Some(Probing { again: self.rules.0.probes - 1, alive: Vec::new() });
        self.probe(self.base.awaited(), out);
    }

    fn probe(&mut self, suspects: Vec<NodeId>, out: &mut Out) {
        let Some((number, mode)) = self.base.waiting() else { return };
        for node in suspects {
            self.send(node, Body::AreYouThere { number, mode }, out);
        }
        self.set(ClassicTimer::Unanswered, self.round_trip(), out);
    }

    /// The probe is the same REQUEST again, and is decided like it (T5).
    fn on_are_you_there(&mut self, from: NodeId, number: u64, mode: Mode, out: &mut Out) {
        if self.printed(Trap::AreYouThere) {
            return self.on_are_you_there_as_printed(from, number, out);
        }
        if self.base.defers(from, number, mode) {
            return self.confirm_deferral(from, number, out);
        }
        self.below(Input::Deliver { from, message: RaMessage::Request { number, mode } }, out);
    }

    /// As printed (T5): a REQUEST that was lost is answered by a REPLY, even by a node that is inside.
    fn on_are_you_there_as_printed(&mut self, from: NodeId, number: u64, out: &mut Out) {
        if self.base.deferred.iter().any(|(node, _)| *node == from) {
            return self.confirm_deferral(from, number, out);
        }
        let reply = RaMessage::Reply { answers: number, highest: self.base.highest, fence: 0 };
        self.send(from, Body::Base(reply), out);
    }

    fn confirm_deferral(&mut self, from: NodeId, number: u64, out: &mut Out) {
        self.base.hear_request(number);
        self.base.note_deferral(from, number);
        self.send(from, Body::YesIAmHere { answers: number }, out);
    }

    /// 'If no answer is received during a second timeout period, the suspect node has failed.' One lost probe is not yet
    /// a failure: it is sent `probes` times.
    fn on_unanswered_timeout(&mut self, out: &mut Out) {
        let Some(probing) = &mut self.probing else { return };
        let mut silent = self.base.awaited();
        silent.retain(|node| !probing.alive.contains(node));
        if probing.again > 0 && !silent.is_empty() {
            probing.again -= 1;
            return self.probe(silent, out);
        }
        self.probing = None;
        for node in silent {
            self.declare_failed(node, out);
        }
        if self.base.waiting().is_some() {
            // 'All nodes will respond with YES_I_AM_HERE messages and a new timeout period may begin.'
            self.set(ClassicTimer::Overdue, self.overdue(), out);
        }
    }

    fn declare_failed(&mut self, node: NodeId, out: &mut Out) {
        let Some(Name { incarnation, .. }) = self.name(node) else { return };
        self.send_all(&Body::Failed { node, incarnation }, out);
        self.remove(node, incarnation, out);
    }

    fn confirm(&mut self, node: NodeId) {
        if let Some(Probing { alive, .. }) = &mut self.probing
            && let Err(at) = alive.binary_search(&node)
        {
            alive.insert(at, node);
        }
    }

    fn on_restart_yourself(&mut self, out: &mut Out) {
        if matches!(self.standing, Standing::Learning { .. }) {
            return out.push(Effect::Restart);
        }
        if self.standing != Standing::Member {
            return;
        }
        self.must_restart = true;
        let inside = self.base.waiting().is_none() && self.base.request_number().is_some();
        if !(inside && self.user == Some(User::Caller)) {
            self.task = None;
            self.on_release(out);
        }
    }
}

/// 7.2 and 7.3: joining and leaving.
impl Classic {
    fn on_join(&mut self, sponsor: NodeId, out: &mut Out) {
        if self.standing != Standing::Outside {
            return;
        }
        if self.incarnation == 0 {
            self.standing = Standing::Joining { sponsor };
            return self.ask_to_join(out);
        }
        // 7.2.1: 'it should first notify other nodes that it failed', then wait its old messages and its removal out.
        self.standing = Standing::Returning { sponsor };
        let failed = Body::Failed { node: self.me, incarnation: self.incarnation - 1 };
        for node in self.acquaintances.iter() {
            out.push(Effect::Send { to: *node, message: self.message(ANY, failed.clone()) });
        }
        self.set(ClassicTimer::Forgotten, self.round_trip(), out);
    }

    /// Asks the sponsor, and the next time another one, in case it is dead.
    fn ask_to_join(&mut self, out: &mut Out) {
        let sponsor = match self.standing {
            Standing::Returning { sponsor } | Standing::Joining { sponsor } => sponsor,
            _ => return,
        };
        out.push(Effect::Send { to: sponsor, message: self.message(ANY, Body::Join) });
        let others = &self.acquaintances;
        let next = others.iter().find(|node| **node > sponsor).or(others.first()).copied().unwrap_or(sponsor);
        self.standing = Standing::Joining { sponsor: next };
        self.set(ClassicTimer::NoWelcome, 2 * self.round_trip() + self.bounds().section_max, out);
    }

    fn on_join_request(&mut self, node: NodeId, incarnation: u32, out: &mut Out) {
        let newest = self.name(node).is_none_or(|name| name.incarnation <= incarnation);
        if self.standing != Standing::Member || !newest {
            return; // It will ask somebody else.
        }
        if self.rules.0.by_broadcast {
            let welcome = Body::Welcome { names: self.list(), highest: 0 };
            return out.push(Effect::Send { to: node, message: self.message(incarnation, welcome) });
        }
        let errand = Errand::Sponsor { node, incarnation };
        let at_it = self.task.as_ref().is_some_and(|task| task.goal == Goal::Sponsor { node, incarnation });
        if !self.errands.contains(&errand) && !at_it {
            self.errands.push(errand);
            self.go_on(out);
        }
    }

    fn on_leave(&mut self, out: &mut Out) {
        match self.standing {
            Standing::Member => {
                self.errands.push(Errand::Leave);
                self.go_on(out);
            }
            Standing::Leaving => {}
            Standing::Outside => {
                self.standing = Standing::Leaving;
                out.push(Effect::Left);
            }
            // It may be on lists already: it leaves them once it is a member.
            Standing::Returning { .. } | Standing::Joining { .. } | Standing::Learning { .. } => {
                self.errands.push(Errand::Leave)
            }
        }
    }

    /// This node is inside on the group's behalf.
    fn run_errand(&mut self, out: &mut Out) {
        match self.errands.remove(0) {
            Errand::Sponsor { node, incarnation } if self.printed(Trap::UnacknowledgedJoin) => {
                // As printed: tell the newcomer, tell the others, wait for nobody.
                let welcome = Body::Welcome { names: self.list(), highest: self.base.highest };
                out.push(Effect::Send { to: node, message: self.message(incarnation, welcome) });
                self.send_all(&Body::Add { node, incarnation }, out);
                self.add(node, incarnation, out);
                self.on_release(out);
            }
            Errand::Sponsor { node, incarnation } => {
                self.add(node, incarnation, out);
                self.begin(Goal::Sponsor { node, incarnation }, Body::Add { node, incarnation }, out);
            }
            Errand::Leave => self.begin(Goal::Leave, Body::Leave, out),
        }
    }

    /// Sends something to all that all must answer.
    fn begin(&mut self, goal: Goal, body: Body, out: &mut Out) {
        if goal == Goal::Leave {
            self.standing = Standing::Leaving;
        }
        let newcomer = if let Goal::Sponsor { node, .. } = goal { Some(node) } else { None };
        let missing: Vec<NodeId> = self.listed().filter(|node| Some(*node) != newcomer).collect();
        if goal == Goal::Include {
            out.push(Effect::Broadcast { message: self.message(ANY, body) });
        } else {
            missing.iter().for_each(|node| self.send(*node, body.clone(), out));
        }
        self.task = Some(Task { goal, missing, highest: self.base.highest, asked_again: false });
        self.set(ClassicTimer::Task, self.round_trip(), out);
        self.finish_if_answered(out);
    }

    /// An answer counts for the task it names only: one to an earlier task may come late, or twice.
    fn on_answer(&mut self, from: NodeId, goal: Goal, highest: u64, out: &mut Out) {
        if let Some(task) = self.task.as_mut().filter(|task| task.goal == goal) {
            task.missing.retain(|node| *node != from);
            task.highest = task.highest.max(highest);
            self.finish_if_answered(out);
        }
    }

    fn on_task_timeout(&mut self, out: &mut Out) {
        let Some(task) = &mut self.task else { return };
        let missing = task.missing.clone();
        if task.asked_again {
            return missing.iter().for_each(|node| self.declare_failed(*node, out));
        }
        task.asked_again = true;
        let body = match task.goal {
            Goal::Sponsor { node, incarnation } => Body::Add { node, incarnation },
            Goal::Leave => Body::Leave,
            Goal::Ask => Body::AskHighest,
            Goal::Include => Body::IncludeMe,
        };
        missing.iter().for_each(|node| self.send(*node, body.clone(), out));
        self.set(ClassicTimer::Task, self.round_trip(), out);
    }

    fn finish_if_answered(&mut self, out: &mut Out) {
        let Some(task) = self.task.take_if(|task| task.missing.is_empty()) else { return };
        out.push(Effect::CancelTimer(ClassicTimer::Task));
        match task.goal {
            Goal::Sponsor { node, incarnation } => {
                let highest = match self.rules.0.way {
                    Way::Sponsor => task.highest,
                    Way::Quiet => self.base.highest,
                    _ => 0,
                };
                let welcome = Body::Welcome { names: self.list(), highest };
                out.push(Effect::Send { to: node, message: self.message(incarnation, welcome) });
                self.on_release(out);
            }
            Goal::Leave => {
                self.on_release(out);
                out.push(Effect::Left);
            }
            Goal::Ask => {
                self.base.highest = self.base.highest.max(task.highest);
                self.become_member(out);
            }
            Goal::Include if self.rules.0.way == Way::Sponsor => {
                self.base.highest = self.base.highest.max(task.highest);
                self.become_member(out);
            }
            Goal::Include => self.start_learning(task.highest, out),
        }
    }

    fn on_welcome(&mut self, from: NodeId, incarnation: u32, names: &[(NodeId, u32)], highest: u64, out: &mut Out) {
        if !matches!(self.standing, Standing::Joining { .. }) || self.task.is_some() {
            return;
        }
        out.push(Effect::CancelTimer(ClassicTimer::NoWelcome));
        self.add(from, incarnation, out);
        for (node, incarnation) in names {
            self.add(*node, *incarnation, out);
        }
        if self.rules.0.by_broadcast {
            return self.begin(Goal::Include, Body::IncludeMe, out);
        }
        if self.rules.0.way == Way::Sponsor {
            self.base.highest = self.base.highest.max(highest);
            return self.become_member(out);
        }
        self.start_learning(highest, out);
    }

    fn start_learning(&mut self, nearby: u64, out: &mut Out) {
        self.standing = Standing::Learning { first: None, heard: Vec::new(), nearby };
        match self.rules.0.way {
            Way::Ask => self.begin(Goal::Ask, Body::AskHighest, out),
            Way::Quiet => {
                let others = self.listed().count() as Ticks;
                let each = self.bounds().section_max + self.round_trip();
                self.set(ClassicTimer::Quiet, self.round_trip().saturating_add(each.saturating_mul(others)), out);
            }
            _ => {}
        }
    }

    fn on_quiet_timeout(&mut self, out: &mut Out) {
        if let Standing::Learning { nearby, .. } = self.standing {
            self.base.highest = self.base.highest.max(nearby);
            self.become_member(out);
        }
    }

    /// Ways 2, 3 and 5: REQUESTs that pass tell a newcomer how high the numbers are.
    fn learn_from(&mut self, from: NodeId, number: u64, out: &mut Out) {
        let group: Vec<NodeId> = self.listed().collect();
        let Standing::Learning { first, heard, .. } = &mut self.standing else { return };
        match heard.binary_search_by_key(&from, |(node, _)| *node) {
            Ok(at) => heard[at].1 = heard[at].1.saturating_add(1).min(4),
            Err(at) => heard.insert(at, (from, 1)),
        }
        let first = *first.get_or_insert(number);
        let sure = match self.rules.0.way {
            Way::Each => group.iter().all(|node| heard.iter().any(|(other, _)| other == node)),
            Way::Risen => self.base.highest >= first + group.len() as u64,
            Way::Fourth => heard.iter().any(|(_, times)| *times >= 4),
            Way::Sponsor | Way::Ask | Way::Quiet => false,
        };
        if sure {
            self.become_member(out);
        }
    }

    fn become_member(&mut self, out: &mut Out) {
        self.standing = Standing::Member;
        out.push(Effect::Joined);
        self.go_on(out);
    }

    /// Somebody who joins while this node leaves must hear of it too.
    fn say_goodbye_to(&mut self, node: NodeId, out: &mut Out) {
        if let Some(task) = self.task.as_mut().filter(|task| task.goal == Goal::Leave && !task.missing.contains(&node))
        {
            task.missing.push(node);
            task.missing.sort_unstable();
            self.send(node, Body::Leave, out);
        }
    }
}

/// The list of names. Adding and removing commute: of one node the newest life counts, and death is final for a life.
impl Classic {
    fn add(&mut self, node: NodeId, incarnation: u32, out: &mut Out) {
        if node == self.me {
            return;
        }
        let name = Name { node, incarnation, gone: false };
        match self.names.binary_search_by_key(&node, |name| name.node) {
            Ok(at) if self.names[at].incarnation >= incarnation => return,
            Ok(at) => {
                self.names[at] = name;
                self.forget(node, out); // The former life is over: its REPLY will not come.
            }
            Err(at) => self.names.insert(at, name),
        }
        self.base.add_peer(node);
    }

    fn remove(&mut self, node: NodeId, incarnation: u32, out: &mut Out) {
        let name = Name { node, incarnation, gone: true };
        match self.names.binary_search_by_key(&node, |name| name.node) {
            Ok(at) if self.names[at].incarnation > incarnation => return,
            Ok(at) => self.names[at] = name,
            Err(at) => self.names.insert(at, name),
        }
        self.forget(node, out);
    }

    /// Nobody waits for a node that is gone.
    fn forget(&mut self, node: NodeId, out: &mut Out) {
        let mut effects = Effects::new();
        self.base.remove_peer(node, &mut effects);
        self.carry_out(effects, out);
        if let Some(task) = &mut self.task {
            task.missing.retain(|missing| *missing != node);
            self.finish_if_answered(out);
        }
    }

    fn name(&self, node: NodeId) -> Option<Name> {
        self.names.binary_search_by_key(&node, |name| name.node).ok().map(|at| self.names[at])
    }

    fn listed(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.names.iter().filter(|name| !name.gone).map(|name| name.node)
    }

    fn list(&self) -> Box<[(NodeId, u32)]> {
        self.names.iter().filter(|name| !name.gone).map(|name| (name.node, name.incarnation)).collect()
    }

    fn send(&self, to: NodeId, body: Body, out: &mut Out) {
        let life = self.name(to).filter(|name| !name.gone).map_or(ANY, |name| name.incarnation);
        out.push(Effect::Send { to, message: self.message(life, body) });
    }

    fn send_all(&self, body: &Body, out: &mut Out) {
        self.listed().for_each(|node| self.send(node, body.clone(), out));
    }

    fn message(&self, to: u32, body: Body) -> ClassicMessage {
        ClassicMessage { from: self.incarnation, to, body }
    }

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
