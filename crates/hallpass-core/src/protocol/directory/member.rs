//! What a member does for its own caller, and for those who come after it.

use std::fmt;

use super::message::{Asker, Asking, DirectoryMessage, GivenBack, Share, Successor};
use super::rules::{Discipline, Rule};
use super::{Machine, NUMBER_MAX, Out};
use crate::protocol::{Effect, Mode};
use crate::{Fence, NodeId};

/// The member's own caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Caller {
    Nobody,
    Waiting {
        mode: Mode,
        tries: bool,
    },
    Inside(Mode),
    /// Inside in shared mode, and it has asked to be exclusive.
    Upgrading,
}

/// A request that is granted, or that waits for its grants.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Record {
    pub(super) number: u64,
    /// Exclusive or shared. A record that was granted to a writer and is kept for reading becomes shared.
    mode: Mode,
    asking: RecordKind,
    /// How many grants are here.
    got: u32,
    /// Of a writer that waits the first count, of one that holds the last count used. Of readers the count that they share.
    count: u64,
    /// The last count that may be used.
    upto: u64,
    /// How many grants are needed.
    need: u32,
    /// The member has come back to this lock, and keeps it while nobody asks.
    is_block: bool,
    readers: Vec<Successor>,
    /// The writer after this record.
    next: Option<Box<Successor>>,
    /// Whom the home has named as those before this request, when it was last asked.
    pub(super) before: Box<[NodeId]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RecordKind {
    Plain,
    Try,
    Upgrade,
}

impl Record {
    /// What is held from the start. Its counts are used up.
    pub(super) fn initial(mode: Mode, count: u64) -> Self {
        let count = count + u64::from(mode == Mode::Shared);
        Self { count, upto: count, ..Self::asked(0, mode, RecordKind::Plain) }
    }

    fn asked(number: u64, mode: Mode, asking: RecordKind) -> Self {
        let (readers, before) = (Vec::new(), Box::default());
        Self { number, mode, asking, got: 0, count: 0, upto: 0, need: 0, is_block: false, readers, next: None, before }
    }

    /// The caller may enter in this mode without asking.
    #[inline]
    fn allows(&self, mode: Mode) -> bool {
        mode == Mode::Shared || (self.mode == Mode::Exclusive && self.count < self.upto)
    }

    /// The fence of an entry; `None` if this record does not allow it. A shared entry uses no count up.
    #[inline]
    pub(super) fn enter(&mut self, mode: Mode, epoch: u64) -> Option<Fence> {
        if !self.allows(mode) {
            return None;
        }
        self.count += u64::from(mode == Mode::Exclusive);
        let above = mode == Mode::Shared && self.mode == Mode::Exclusive;
        Fence::compose(epoch, self.count + u64::from(above))
    }

    #[inline]
    pub(super) fn has_successors(&self) -> bool {
        self.next.is_some() || !self.readers.is_empty()
    }

    pub(super) fn successors(&self) -> impl Iterator<Item = &Successor> {
        self.readers.iter().chain(self.next.as_deref())
    }

    fn is_granted(&self) -> bool {
        self.got > 0 && self.got == self.need
    }
}

impl<D: Discipline> Machine<D> {
    pub(super) fn on_acquire(&mut self, mode: Mode, tries: bool, out: &mut Out) {
        debug_assert!(self.caller == Caller::Nobody, "the driver serialises local callers");
        // Somebody of this member is before it, unless the lock is here already.
        if tries && self.pending.is_some() && !self.allows(mode) {
            return out.push(Effect::Busy);
        }
        self.caller = Caller::Waiting { mode, tries };
        self.settle(out);
    }

    /// What was asked for stays in the chain until it is granted, and serves those after it.
    pub(super) fn on_cancel(&mut self, out: &mut Out) {
        self.caller = match self.caller {
            Caller::Upgrading => Caller::Inside(Mode::Shared),
            _ => Caller::Nobody,
        };
        if !self.discipline.keeps(Rule::Zombie) && self.caller == Caller::Nobody {
            self.pending = None;
        }
        self.settle(out);
    }

    pub(super) fn on_release(&mut self, out: &mut Out) {
        self.caller = Caller::Nobody;
        self.settle(out);
    }

    /// Nobody here wants the lock: the home gets it back.
    pub(super) fn on_give_back(&mut self, out: &mut Out) {
        if self.can_give_back() {
            self.give_back(out);
        }
    }

    fn give_back(&mut self, out: &mut Out) {
        if let Some(held) = self.held.take() {
            self.send_back(&held, 0, false, out);
        }
        self.settle(out);
    }

    pub(super) fn on_inquire(&mut self, out: &mut Out) {
        if let Some(pending) = self.pending.as_ref().filter(|_| self.desk.is_none()) {
            out.push(Effect::Send { to: self.home, message: DirectoryMessage::Who { number: pending.number } });
        }
    }

    pub(super) fn on_has(&mut self, number: u64, members: Box<[NodeId]>) {
        if let Some(pending) = self.pending.as_mut().filter(|pending| pending.number == number) {
            pending.before = members;
        }
    }

    /// The caller inside goes on in shared mode, with a shared entry's fence.
    pub(super) fn on_downgrade(&mut self, out: &mut Out) {
        let Some(held) = self.held.as_mut().filter(|_| self.caller == Caller::Inside(Mode::Exclusive)) else { return };
        let Some(fence) = held.enter(Mode::Shared, self.epoch) else { return };
        self.caller = Caller::Inside(Mode::Shared);
        out.push(Effect::Enter { fence });
        self.settle(out);
    }

    /// The caller inside in shared mode asks to be exclusive, with nobody in between. Only one can: it is refused at once
    /// if a writer waits already, or another upgrade.
    pub(super) fn on_upgrade(&mut self, out: &mut Out) {
        if self.caller != Caller::Inside(Mode::Shared) {
            return;
        }
        let Some(held) = self.held.as_mut() else { return };
        if let Some(fence) = held.enter(Mode::Exclusive, self.epoch) {
            self.caller = Caller::Inside(Mode::Exclusive);
            return out.push(Effect::Enter { fence });
        }
        if held.next.is_some() || self.pending.is_some() {
            return out.push(Effect::Refused);
        }
        let of = held.number;
        self.caller = Caller::Upgrading;
        self.ask(Mode::Exclusive, RecordKind::Upgrade, Asking::Upgrade { of }, None, out);
    }

    pub(super) fn on_grant(&mut self, number: u64, share: Share, out: &mut Out) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.number == number) else { return };
        let Share { count, upto, need } = share;
        let is_range = if pending.mode == Mode::Exclusive { count > 0 } else { upto == count };
        let agrees = pending.got == 0 || (pending.count, pending.upto, pending.need) == (count, upto, need);
        // Only a member that breaks the protocol says something else than its siblings.
        if !is_range || !agrees {
            return;
        }
        (pending.count, pending.upto, pending.need) = (count, upto, need);
        pending.got = pending.got.saturating_add(1);
        self.settle(out);
    }

    pub(super) fn on_forward(&mut self, number: u64, next: Successor, out: &mut Out) {
        let waits_too = self.discipline.keeps(Rule::KeepForward);
        let pending = self.pending.as_mut().filter(|pending| waits_too && pending.number == number);
        let held = self.held.as_mut().filter(|held| held.number == number);
        // It was given back, and the home serves the successor when it reads BACK.
        let Some(record) = held.or(pending) else { return };
        match next.mode {
            Mode::Exclusive if record.next.is_none() => record.next = Some(Box::new(next)),
            Mode::Exclusive => {}
            // It was kept in shared mode: the home grants the reader when it reads BACK.
            Mode::Shared if record.mode == Mode::Shared => {
                if !self.discipline.keeps(Rule::IgnoreLateReader) {
                    pass(next, out);
                }
                return;
            }
            Mode::Shared => record.readers.push(next),
        }
        self.settle(out);
    }

    /// An attempt asks for what this member does not use.
    pub(super) fn on_probe(&mut self, number: u64, attempt: Asker, out: &mut Out) {
        if !self.has_record(number) {
            return;
        }
        let is_held = self.held.as_ref().is_some_and(|held| held.number == number);
        if is_held && self.can_give_back() {
            return self.give_back(out);
        }
        out.push(Effect::Send { to: self.home, message: DirectoryMessage::Held { attempt } });
    }

    /// The home refuses a request: an attempt, an upgrade, or any one where the counts of the epoch are used up.
    pub(super) fn on_busy(&mut self, number: u64, out: &mut Out) {
        let is_refused =
            |pending: &mut Record| pending.number == number && pending.got == 0 && !pending.has_successors();
        let Some(pending) = self.pending.take_if(is_refused) else { return };
        match (pending.asking, self.caller) {
            (RecordKind::Try, Caller::Waiting { tries: true, .. }) => {
                self.caller = Caller::Nobody;
                out.push(Effect::Busy);
            }
            (RecordKind::Upgrade, Caller::Upgrading) => {
                self.caller = Caller::Inside(Mode::Shared);
                out.push(Effect::Refused);
            }
            (RecordKind::Plain, Caller::Waiting { .. }) => {
                self.caller = Caller::Nobody;
                out.push(Effect::Refused);
            }
            // The caller has gone. Another one that came meanwhile asks again.
            _ => {}
        }
        self.settle(out);
    }

    /// What a member does of its own accord, after each of its inputs.
    fn settle(&mut self, out: &mut Out) {
        self.take_grants(out);
        self.serve_caller(out);
        self.serve_successors(out);
    }

    /// The last grant is here. What an upgrade held before it is dropped silently: the home knows.
    fn take_grants(&mut self, out: &mut Out) {
        let enough =
            |pending: &mut Record| pending.is_granted() || (pending.got > 0 && !self.discipline.keeps(Rule::NeedAll));
        let Some(mut granted) = self.pending.take_if(enough) else { return };
        granted.is_block = granted.upto > granted.count;
        granted.before = Box::default();
        if granted.mode == Mode::Exclusive {
            granted.count -= 1;
        }
        let held = self.held.insert(granted);
        if self.caller == Caller::Upgrading
            && let Some(fence) = held.enter(Mode::Exclusive, self.epoch)
        {
            self.caller = Caller::Inside(Mode::Exclusive);
            out.push(Effect::Enter { fence });
        }
    }

    /// The caller who waits enters, or asks if nothing is asked for yet. A request whose caller has gone is not asked for
    /// again: if it allows the entry when it is granted, it is used.
    fn serve_caller(&mut self, out: &mut Out) {
        let Caller::Waiting { mode, tries } = self.caller else { return };
        if self.allows(mode) || (!self.discipline.keeps(Rule::WithinBlock) && self.reaches_beyond(mode)) {
            if let Some(fence) = self.held.as_mut().and_then(|held| held.enter(mode, self.epoch)) {
                self.caller = Caller::Inside(mode);
                out.push(Effect::Enter { fence });
            }
            return;
        }
        if self.pending.is_some() {
            return;
        }
        // Shared and idle where a writer comes, or a block that is used up.
        let mut back = None;
        if let Some(held) = self.held.take() {
            match held.next {
                Some(next) => pass(*next, out),
                None => back = Some(GivenBack { number: held.number, used: held.count }),
            }
        }
        let (kind, asking) = if tries { (RecordKind::Try, Asking::Try) } else { (RecordKind::Plain, Asking::Plain) };
        self.ask(mode, kind, asking, back, out);
    }

    /// Without [`Rule::WithinBlock`]: the block is used up, and the member goes on counting.
    fn reaches_beyond(&mut self, mode: Mode) -> bool {
        let held = self.held.as_mut().filter(|held| held.mode == Mode::Exclusive && mode == Mode::Exclusive);
        held.map(|held| held.upto = held.count + 1).is_some()
    }

    /// Those after this member are granted once its caller is out of the way.
    fn serve_successors(&mut self, out: &mut Out) {
        let Some(held) = &mut self.held else { return };
        let reads = matches!(self.caller, Caller::Inside(Mode::Shared) | Caller::Upgrading);
        let writes = self.caller == Caller::Inside(Mode::Exclusive);
        match held.mode {
            // Reading under a writer's record: the other readers are let in, and the record becomes a reader's.
            Mode::Exclusive if reads && !held.readers.is_empty() => {
                let served = held.readers.len() as u32;
                held.readers.drain(..).for_each(|reader| pass(reader, out));
                held.readers.shrink_to_fit();
                held.mode = Mode::Shared;
                held.count += 1;
                let (number, used) = (held.number, held.count - 1);
                let message = DirectoryMessage::Back { number, used, served, keep: true };
                out.push(Effect::Send { to: self.home, message });
            }
            Mode::Exclusive if !reads && !writes && !held.readers.is_empty() => {
                let Some(held) = self.held.take() else { return };
                let served = held.successors().count() as u32;
                held.successors().for_each(|next| pass(*next, out));
                self.send_back(&held, served, false, out);
            }
            _ if !reads && !writes && held.next.is_some() => {
                if let Some(next) = self.held.take().and_then(|held| held.next) {
                    pass(*next, out);
                }
            }
            _ => {}
        }
    }

    fn ask(&mut self, mode: Mode, kind: RecordKind, asking: Asking, back: Option<GivenBack>, out: &mut Out) {
        debug_assert!(self.highest < NUMBER_MAX);
        self.highest += 1;
        let number = self.highest;
        self.pending = Some(Record::asked(number, mode, kind));
        let message = DirectoryMessage::Request { number, mode, asking, back };
        out.push(Effect::Send { to: self.home, message });
    }

    fn send_back(&self, held: &Record, served: u32, keep: bool, out: &mut Out) {
        let message = DirectoryMessage::Back { number: held.number, used: held.count, served, keep };
        out.push(Effect::Send { to: self.home, message });
    }

    /// The caller may enter in this mode without asking.
    #[inline]
    pub(super) fn allows(&self, mode: Mode) -> bool {
        self.held.as_ref().is_some_and(|held| held.allows(mode))
    }

    /// What is held is kept while nobody asks for it: policy, on which no safety hangs.
    #[inline]
    pub(super) fn keeps(&self, held: &Record) -> bool {
        self.rules.caches || held.mode == Mode::Shared || held.is_block
    }

    /// Something is held that nobody here uses or waits for.
    pub(super) fn can_give_back(&self) -> bool {
        self.caller == Caller::Nobody && self.held.is_some() && self.pending.is_none()
    }
}

/// One of the grants that the successor needs.
fn pass(next: Successor, out: &mut Out) {
    let message = DirectoryMessage::Grant { number: next.asker.number, share: next.share };
    out.push(Effect::Send { to: next.asker.member, message });
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("-"),
            Self::Waiting { mode, tries: false } => write!(f, "waits, {mode}"),
            Self::Waiting { mode, tries: true } => write!(f, "tries, {mode}"),
            Self::Inside(mode) => write!(f, "inside, {mode}"),
            Self::Upgrading => f.write_str("inside, upgrades"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.mode)?;
        if self.need > self.got { write!(f, ", {} of {}", self.got, self.need) } else { Ok(()) }
    }
}

/// For checks that look at more than callers can see.
impl<D: Discipline> Machine<D> {
    /// The numbers of the requests that are held and that wait.
    pub fn records(&self) -> (Option<u64>, Option<u64>) {
        (self.held.as_ref().map(|held| held.number), self.pending.as_ref().map(|pending| pending.number))
    }

    /// True if the home's chain has this request.
    pub fn has_in_chain(&self, member: NodeId, number: u64) -> bool {
        let asker = Asker { member, number };
        self.desk
            .as_ref()
            .is_some_and(|desk| desk.chain.iter().any(|segment| segment.askers().any(|other| other == asker)))
    }
}
