//! A lock with a home: one member keeps the order of the requests, and the others hand the lock to each other.
//!
//! Specified in `docs/protocols/directory.md`, whose words this code uses. It is no paper's algorithm, but its parts are
//! known: a directory that names the last one who asked, and a queue that is spread over those who wait.
//!
//! - **The home** keeps the chain: the requests in the order of their arrival, as segments. A segment is one writer, or a
//!   batch of readers. The home queues nothing. It grants a request at once, or it tells the segment before it who comes
//!   next (FWD).
//! - **Everybody in a segment gives one GRANT to the next one.** A writer needs one GRANT after a writer, and `k` after `k`
//!   readers. The home says how many.
//! - **A member ends a record in one of two ways.** If it has seen FWD, it sends GRANT to the successor. If it has not, it
//!   sends BACK to the home and forgets the lock. If BACK crosses FWD, the home grants in its place, and the member ignores
//!   the FWD. So there is no acknowledgement, and nobody waits to forget.
//! - **The home counts the fences**, in the order of arrival. So it knows an upper bound of every fence at any time.
//! - A caller that gives up leaves its request in the chain, without a caller (a 'zombie'), until its grants are here.
//! - An attempt is never in the chain before it is granted.
//!
//! A free lock costs REQ, GRANT and later BACK, and nothing at its home. A handover costs one GRANT. Neither depends on the
//! number of members.
//!
//! **It needs links that keep order**, to go on and not to be safe: to the home, REQ must not overtake BACK, and from the
//! home a writer's FWD must not overtake a reader's.
//!
//! `member.rs` has what every member does for its own caller, `home.rs` what the home does, and `rules.rs` the options. The
//! two sides speak by messages, also where the home is the member itself: then a message is handled in the same step.

mod home;
mod member;
mod message;
mod rules;
#[cfg(test)]
mod tests;

use super::constant::Constant;
use super::{
    Attempts, Capabilities, Comer, Effect, Effects, Floor, Input, Needs, NoTimer, OptionError, Options, Protocol,
    Variables,
};
use crate::{Fence, InitialHolders, Mode, NodeId, Setup};

use home::{AtHome, Home};
use member::{Caller, Record};
pub use message::{Asker, Asking, DirectoryMessage, GivenBack, Share, Successor};
use rules::DirectoryRules;
pub use rules::{Complete, Discipline, Lacking, Rule};

/// The protocol that ships.
pub type Directory = Machine<Complete>;

/// The protocol in the laboratory, where one of its rules may be left out.
pub type IncompleteDirectory = Machine<Lacking>;

/// One member's part, and the home's part where the member is the home.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Machine<D> {
    me: NodeId,
    home: NodeId,
    rules: Constant<DirectoryRules>,
    discipline: D,
    epoch: u64,
    /// The last number that was used. It outlives the instance.
    highest: u64,
    caller: Caller,
    /// What is granted.
    held: Option<Record>,
    /// What is asked for, and not fully granted.
    pending: Option<Record>,
    /// The home's part, at the home.
    desk: Option<Box<Home>>,
}

/// The options of a [`Machine`], shared by all locks of a class.
#[derive(Clone, Debug)]
pub struct DirectoryOptions<D> {
    rules: Constant<DirectoryRules>,
    discipline: D,
}

type Out = Effects<DirectoryMessage, NoTimer>;

/// No number is higher, so that adding to one never overflows.
const NUMBER_MAX: u64 = 1 << 62;

impl<D: Discipline> Protocol for Machine<D> {
    type Message = DirectoryMessage;
    type Timer = NoTimer;
    type Options = DirectoryOptions<D>;

    fn parse(options: &Options) -> Result<Self::Options, OptionError> {
        let (rules, left_out) = DirectoryRules::parse(options, D::OFFERS_RULES)?;
        Ok(DirectoryOptions { rules: Constant::new(rules), discipline: D::new(left_out) })
    }

    fn needs(_: &Self::Options) -> Needs {
        Needs {
            fifo: Some("directory"),
            no_loss: Some("directory counts on every message: a lost GRANT is never sent again"),
            lab_only: D::OFFERS_RULES.then_some("lacks a rule that it needs"),
            home: true,
            ..Needs::default()
        }
    }

    fn new(setup: &Setup<'_, Self::Options>) -> Self {
        let DirectoryOptions { rules, discipline } = setup.options;
        let home = rules.home.unwrap_or(setup.home);
        let known = if discipline.keeps(Rule::KnowHolders) { setup.initial } else { InitialHolders::NOBODY };
        let mode = setup.initial.held_by(setup.me);
        let count = setup.initial.fence.count();
        Self {
            me: setup.me,
            home,
            rules: rules.clone(),
            discipline: discipline.clone(),
            epoch: setup.view.epoch(),
            highest: 0,
            caller: mode.map_or(Caller::Nobody, Caller::Inside),
            held: mode.map(|mode| Record::initial(mode, count)),
            pending: None,
            desk: (home == setup.me).then(|| Box::new(Home::new(known))),
        }
    }

    fn handle(&mut self, input: Input<DirectoryMessage, NoTimer>, out: &mut Out) {
        let start = out.len();
        match input {
            Input::Acquire { mode, .. } => self.on_acquire(mode, false, out),
            Input::Try { mode } => self.on_acquire(mode, true, out),
            Input::Cancel => self.on_cancel(out),
            Input::Release => self.on_release(out),
            Input::GiveBack => self.on_give_back(out),
            Input::Inquire => self.on_inquire(out),
            Input::Downgrade => self.on_downgrade(out),
            Input::Upgrade => self.on_upgrade(out),
            Input::Deliver { from, message } => self.on_message(from, message, out),
            _ => {}
        }
        self.handle_own(start, out);
    }

    /// What is held must be remembered: [`Input::GiveBack`] first.
    fn is_idle(&self) -> bool {
        let is_unused = self.caller == Caller::Nobody && self.held.is_none() && self.pending.is_none();
        is_unused && self.desk.as_ref().is_none_or(|desk| desk.is_idle())
    }

    /// What names a request of this member that is over, or an attempt that is.
    fn is_moot(&self, _: NodeId, message: &DirectoryMessage) -> bool {
        match message {
            DirectoryMessage::Grant { number, .. }
            | DirectoryMessage::Forward { number, .. }
            | DirectoryMessage::Probe { number, .. }
            | DirectoryMessage::Has { number, .. }
            | DirectoryMessage::Busy { number } => *number <= self.highest && !self.has_record(*number),
            _ => false,
        }
    }

    fn request_number(&self) -> Option<u64> {
        let record = if self.caller == Caller::Nobody { None } else { self.pending.as_ref().or(self.held.as_ref()) };
        record.map(|record| record.number)
    }

    fn highest_number(&self) -> u64 {
        self.highest
    }

    /// At the home.
    fn fence_bound(&self) -> Option<u64> {
        self.desk.as_ref().map(|desk| desk.top)
    }

    /// The chain, at the home.
    fn remembered(&self) -> usize {
        self.desk.as_ref().map_or(0, |desk| desk.chain.iter().map(|segment| segment.askers().count()).sum())
    }

    fn variables(&self, out: &mut Variables) {
        out.set("home", self.home);
        out.set("caller", self.caller);
        out.optional("held", self.held.as_ref());
        out.optional("pend", self.pending.as_ref());
        let records = [&self.held, &self.pending].into_iter().flatten();
        out.list("after me", records.flat_map(Record::successors).map(|next| next.asker.member));
        out.set("highest", self.highest);
        if let Some(desk) = &self.desk {
            out.list("chain", desk.chain.iter().map(show_segment));
            out.optional("attempt", desk.attempt.map(|(asker, _)| asker));
            out.set("top", desk.top);
        }
    }
}

fn show_segment(segment: &home::Segment) -> String {
    let askers: Vec<String> = segment.askers().map(|asker| asker.member.to_string()).collect();
    match segment {
        home::Segment::Writer { .. } => askers.concat(),
        home::Segment::Readers { .. } => format!("({})", askers.join(",")),
    }
}

impl<D: Discipline> Machine<D> {
    /// A message from another member, or from this one to itself.
    fn on_message(&mut self, from: NodeId, message: DirectoryMessage, out: &mut Out) {
        match message {
            DirectoryMessage::Grant { number, share } => self.on_grant(number, share, out),
            // Only the home says these.
            DirectoryMessage::Forward { number, next } if from == self.home => self.on_forward(number, next, out),
            DirectoryMessage::Probe { number, attempt } if from == self.home => self.on_probe(number, attempt, out),
            DirectoryMessage::Busy { number } if from == self.home => self.on_busy(number, out),
            DirectoryMessage::Has { number, members } if from == self.home => self.on_has(number, members),
            DirectoryMessage::Forward { .. } | DirectoryMessage::Probe { .. } => {}
            DirectoryMessage::Busy { .. } | DirectoryMessage::Has { .. } => {}
            DirectoryMessage::Who { number } => {
                if let Some(mut home) = self.at_home(out) {
                    home.on_who(Asker { member: from, number });
                }
            }
            DirectoryMessage::Request { number, mode, asking, back } => {
                if let Some(mut home) = self.at_home(out) {
                    home.on_request(Asker { member: from, number }, mode, asking, back);
                }
            }
            DirectoryMessage::Back { number, used, served, keep } => {
                if let Some(mut home) = self.at_home(out) {
                    home.on_back(Asker { member: from, number }, used, served, keep);
                }
            }
            DirectoryMessage::Held { attempt } => {
                if let Some(mut home) = self.at_home(out) {
                    home.on_held(attempt);
                }
            }
        }
    }

    fn at_home<'a>(&'a mut self, out: &'a mut Out) -> Option<AtHome<'a, D>> {
        let home = self.desk.as_deref_mut()?;
        Some(AtHome { home, rules: &self.rules, discipline: &self.discipline, out })
    }

    /// Handles what this member has sent to itself since `start`: no socket, the same step, in order.
    fn handle_own(&mut self, start: usize, out: &mut Out) {
        let mut next = start;
        while next < out.len() {
            match &out[next] {
                Effect::Send { to, .. } if *to == self.me => {
                    if let Effect::Send { message, .. } = out.remove(next) {
                        self.on_message(self.me, message, out);
                    }
                }
                _ => next += 1,
            }
        }
    }

    fn has_record(&self, number: u64) -> bool {
        [&self.held, &self.pending].into_iter().flatten().any(|record| record.number == number)
    }
}

/// The fast path crosses three crates, and must be inlined where there is no link-time optimisation.
impl<D: Discipline> Capabilities for Machine<D> {
    fn floor(&self) -> Option<Floor> {
        let number = if self.discipline.keeps(Rule::NumbersOutlive) { self.highest } else { 0 };
        Some(Floor { number, fence: self.desk.as_ref().map_or(0, |desk| desk.top) })
    }

    fn raise_floor(&mut self, floor: Floor) {
        self.highest = self.highest.max(floor.number);
        if let Some(desk) = &mut self.desk {
            desk.top = desk.top.max(floor.fence.min(Fence::COUNT_MAX));
        }
    }

    fn last_comer(&self) -> Option<Comer> {
        self.desk.as_ref()?.comer
    }

    fn remember_comer(&mut self, comer: Comer) {
        if let Some(desk) = &mut self.desk {
            desk.comer = Some(comer);
        }
    }

    fn number_floor(&self) -> Option<u64> {
        let waits = matches!(self.caller, Caller::Waiting { .. });
        self.pending.as_ref().filter(|_| waits).map(|record| record.number - 1)
    }

    #[inline]
    fn has_waiters(&self) -> bool {
        self.held.as_ref().is_some_and(Record::has_successors)
    }

    #[inline]
    fn reenter(&mut self) -> Option<Fence> {
        let Caller::Inside(mode) = self.caller else { return None };
        self.held.as_mut()?.enter(mode, self.epoch)
    }

    #[inline]
    fn enter_fast(&mut self, mode: Mode) -> Option<Fence> {
        if self.caller != Caller::Nobody {
            return None;
        }
        let fence = self.held.as_mut()?.enter(mode, self.epoch)?;
        self.caller = Caller::Inside(mode);
        Some(fence)
    }

    #[inline]
    fn must_ask(&self, mode: Mode) -> bool {
        !self.allows(mode)
    }

    #[inline]
    fn leave_fast(&mut self) -> bool {
        let inside = matches!(self.caller, Caller::Inside(_));
        let stays = inside && self.held.as_ref().is_some_and(|held| !held.has_successors() && self.keeps(held));
        if stays {
            self.caller = Caller::Nobody;
        }
        stays
    }

    fn attempts(&self) -> Attempts {
        Attempts::Asked
    }

    fn home(&self) -> Option<NodeId> {
        Some(self.home)
    }

    fn order(&self) -> Option<Vec<NodeId>> {
        let desk = self.desk.as_ref()?;
        Some(desk.chain.iter().flat_map(home::Segment::askers).map(|asker| asker.member).collect())
    }

    fn gives_back(&self) -> bool {
        self.can_give_back() && self.held.as_ref().is_some_and(|held| !self.keeps(held))
    }

    fn is_cached(&self) -> bool {
        self.can_give_back()
    }

    /// Those who may be inside, where this is known: at the home, and where the home was asked.
    fn missing_permissions(&self) -> Option<Vec<NodeId>> {
        let Some(pending) = &self.pending else { return Some(Vec::new()) };
        let mut before: Vec<NodeId> = match &self.desk {
            Some(desk) => desk.before(Asker { member: self.me, number: pending.number }).collect(),
            None => pending.before.to_vec(),
        };
        before.retain(|member| *member != self.me);
        before.sort_unstable();
        before.dedup();
        Some(before)
    }
}
