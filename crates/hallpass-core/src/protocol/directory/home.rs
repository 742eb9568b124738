//! The home's part: the chain of requests, in the order in which they arrived.

use super::message::{Asker, Asking, DirectoryMessage, GivenBack, NAMED_MAX, Share, Successor};
use super::rules::{DirectoryRules, Discipline, Rule};
use super::{NUMBER_MAX, Out};
use crate::protocol::{Comer, Effect, Mode};
use crate::{Fence, InitialHolders, NodeId};

/// What the home of a lock keeps: who comes after whom.
///
/// It queues nothing. Every request is granted or forwarded in the step in which it arrives, or it is an attempt and will
/// be granted or refused.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Home {
    /// The segments, the earliest first. No two segments of readers are next to each other.
    pub(super) chain: Vec<Segment>,
    /// An attempt for which idle members are asked. One at a time.
    pub(super) attempt: Option<(Asker, Mode)>,
    /// The largest count given to a writer. Every exclusive fence given out is at most this, every shared one at most one
    /// more. It outlives the instance.
    pub(super) top: u64,
    /// The last writer if no reader has come since: one that comes back gets a larger block. May be lost at any time.
    pub(super) comer: Option<Comer>,
}

/// A part of the chain.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Segment {
    Writer {
        asker: Asker,
        share: Share,
        /// The readers whose FWDs were sent to it so far.
        forwarded: u32,
    },
    /// A batch: they read together. It is empty only while the writer before it has not given back.
    Readers { count: u64, readers: Vec<Reader> },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Reader {
    pub(super) asker: Asker,
    /// Which one it was among those forwarded to the writer before; 0 if the home granted it, or if it was kept.
    order: u32,
}

impl Segment {
    fn is_shared(&self) -> bool {
        matches!(self, Self::Readers { .. })
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Readers { readers, .. } if readers.is_empty())
    }

    /// Whose requests it has.
    pub(super) fn askers(&self) -> impl DoubleEndedIterator<Item = Asker> + '_ {
        let (writer, readers) = match self {
            Self::Writer { asker, .. } => (Some(*asker), [].as_slice()),
            Self::Readers { readers, .. } => (None, readers.as_slice()),
        };
        writer.into_iter().chain(readers.iter().map(|reader| reader.asker))
    }

    fn has(&self, asker: Asker) -> bool {
        self.askers().any(|other| other == asker)
    }

    fn remove_reader(&mut self, asker: Asker) {
        if let Self::Readers { readers, .. } = self {
            readers.retain(|reader| reader.asker != asker);
        }
    }
}

/// The home, while it handles one message: what it needs besides its own state.
pub(super) struct AtHome<'a, D> {
    pub(super) home: &'a mut Home,
    pub(super) rules: &'a DirectoryRules,
    pub(super) discipline: &'a D,
    pub(super) out: &'a mut Out,
}

impl Home {
    /// A chain of those who hold the lock at the start. Their counts are used up, so they give back at once.
    pub(super) fn new(initial: InitialHolders<'_>) -> Self {
        let top = initial.fence.count();
        let askers = initial.holders.iter().map(|member| Asker { member: *member, number: 0 });
        let chain = match initial.mode {
            _ if initial.holders.is_empty() => Vec::new(),
            Mode::Exclusive => {
                let share = Share { count: top, upto: top, need: 1 };
                askers.map(|asker| Segment::Writer { asker, share, forwarded: 0 }).collect()
            }
            Mode::Shared => {
                let readers = askers.map(|asker| Reader { asker, order: 0 }).collect();
                vec![Segment::Readers { count: top + 1, readers }]
            }
        };
        Self { chain, attempt: None, top, comer: None }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.chain.is_empty() && self.attempt.is_none()
    }

    fn position(&self, asker: Asker) -> Option<usize> {
        self.chain.iter().position(|segment| segment.has(asker))
    }

    /// A request in this mode would be granted at once.
    fn is_open(&self, mode: Mode) -> bool {
        match self.chain.as_slice() {
            [] => true,
            [only] => mode == Mode::Shared && only.is_shared(),
            _ => false,
        }
    }

    /// The members of the first segment, if the request is not in it itself: who may be inside.
    pub(super) fn before(&self, asker: Asker) -> impl Iterator<Item = NodeId> + '_ {
        let first = self.chain.iter().find(|segment| !segment.is_empty()).filter(|segment| !segment.has(asker));
        first.into_iter().flat_map(Segment::askers).map(|asker| asker.member)
    }

    /// The largest number that this member has in the chain.
    fn newest_of(&self, member: NodeId) -> Option<u64> {
        let askers = self.chain.iter().flat_map(Segment::askers);
        askers.filter(|asker| asker.member == member).map(|asker| asker.number).max()
    }

    /// Most chains have one segment: the usual room for four in each of a million locks is wasted.
    fn push(&mut self, segment: Segment) {
        if self.chain.capacity() == 0 {
            self.chain.reserve_exact(1);
        }
        self.chain.push(segment);
    }

    fn drop_first(&mut self, count: usize) {
        self.chain.drain(..count.min(self.chain.len()));
    }

    /// A batch that has ended, and has nothing before it.
    fn trim(&mut self) {
        if self.chain.first().is_some_and(Segment::is_empty) {
            self.drop_first(1);
        }
    }
}

impl<D: Discipline> AtHome<'_, D> {
    /// REQ.
    pub(super) fn on_request(&mut self, asker: Asker, mode: Mode, asking: Asking, back: Option<GivenBack>) {
        let attempts = self.home.attempt.is_some_and(|(other, _)| other.member == asker.member);
        let newest = self.home.newest_of(asker.member);
        // Only a member that breaks the protocol asks under an old number, or twice.
        if asker.number > NUMBER_MAX || attempts || newest.is_some_and(|newest| asker.number <= newest) {
            return;
        }
        match back {
            Some(GivenBack { number, used }) if self.discipline.keeps(Rule::BackInRequest) => {
                self.ended(Asker { number, ..asker }, used, 0, false);
            }
            Some(_) => {}
            None if matches!(asking, Asking::Upgrade { .. }) => {}
            None => self.left(asker.member),
        }
        if self.discipline.keeps(Rule::RetryAttempt) {
            self.retry_attempt();
        }
        // The counts of this epoch are used up.
        if self.home.top >= Fence::COUNT_MAX - 1 - self.block_max() {
            return self.refuse(asker);
        }
        if asking == Asking::Try {
            return self.on_attempt(asker, mode);
        }
        if self.discipline.keeps(Rule::RefuseAttempt) {
            self.refuse_attempt();
        }
        if let Asking::Upgrade { of } = asking
            && !self.can_upgrade(Asker { number: of, ..asker })
        {
            return self.refuse(asker);
        }
        self.append(asker, mode, asking);
    }

    /// BACK.
    pub(super) fn on_back(&mut self, asker: Asker, used: u64, served: u32, keep: bool) {
        self.ended(asker, used, served, keep);
        self.retry_attempt();
    }

    /// WHO: people want to know whom this request waits for.
    pub(super) fn on_who(&mut self, asker: Asker) {
        let members: Box<[NodeId]> = self.home.before(asker).take(NAMED_MAX).collect();
        let message = DirectoryMessage::Has { number: asker.number, members };
        self.out.push(Effect::Send { to: asker.member, message });
    }

    /// HELD: somebody uses what the attempt needs.
    pub(super) fn on_held(&mut self, attempt: Asker) {
        if self.home.attempt.is_some_and(|(asker, _)| asker == attempt) {
            self.refuse_attempt();
        }
    }

    /// An attempt does not wait for a holder: it asks idle ones to give back.
    fn on_attempt(&mut self, asker: Asker, mode: Mode) {
        if self.home.attempt.is_some() {
            return self.refuse(asker);
        }
        if self.home.is_open(mode) {
            return self.append(asker, mode, Asking::Try);
        }
        self.home.attempt = Some((asker, mode));
        let chain = &self.home.chain;
        let Some(last) = chain.last() else { return };
        let before = chain.len().checked_sub(2).map(|before| &chain[before]).filter(|_| last.is_shared());
        let among = Some(last).filter(|_| !(mode == Mode::Shared && last.is_shared()));
        for holder in before.into_iter().chain(among).flat_map(Segment::askers) {
            let message = DirectoryMessage::Probe { number: holder.number, attempt: asker };
            self.out.push(Effect::Send { to: holder.member, message });
        }
    }

    fn retry_attempt(&mut self) {
        if let Some((asker, mode)) = self.home.attempt
            && self.home.is_open(mode)
        {
            self.home.attempt = None;
            self.append(asker, mode, Asking::Try);
        }
    }

    fn refuse_attempt(&mut self) {
        if let Some((asker, _)) = self.home.attempt.take() {
            self.refuse(asker);
        }
    }

    /// The member is inside, so what is before it in the chain is over. No: a writer waits, or another upgrade.
    fn can_upgrade(&mut self, inside: Asker) -> bool {
        if let Some(position) = self.home.position(inside)
            && self.discipline.keeps(Rule::UpgradeEndsEarlier)
        {
            // The writer before a batch may still have to give back.
            let before = usize::from(self.home.chain[position].is_shared());
            self.home.drop_first(position.saturating_sub(before));
        }
        let is_last = self.home.chain.last().is_some_and(|last| last.has(inside));
        is_last || (!self.discipline.keeps(Rule::RefuseLateUpgrade) && !self.home.chain.is_empty())
    }

    fn append(&mut self, asker: Asker, mode: Mode, asking: Asking) {
        match mode {
            Mode::Exclusive => self.append_writer(asker, asking),
            Mode::Shared => self.append_reader(asker),
        }
    }

    fn append_reader(&mut self, asker: Asker) {
        self.home.comer = None;
        let above = self.home.top + u64::from(self.discipline.keeps(Rule::SharedAbove));
        if !self.discipline.keeps(Rule::JoinLast)
            && let [Segment::Readers { count, readers }, _, ..] = self.home.chain.as_mut_slice()
        {
            readers.push(Reader { asker, order: 0 });
            let share = reading(*count);
            return self.grant(asker, share);
        }
        if !self.home.chain.last().is_some_and(Segment::is_shared) {
            self.home.push(Segment::Readers { count: above, readers: Vec::with_capacity(1) });
        }
        let mut before = None;
        if let [.., Segment::Writer { asker, forwarded, .. }, _] = self.home.chain.as_mut_slice()
            && self.discipline.keeps(Rule::ForwardReader)
        {
            *forwarded = forwarded.saturating_add(1);
            before = Some((*asker, *forwarded));
        }
        let Some(Segment::Readers { count, readers }) = self.home.chain.last_mut() else { return };
        let share = reading(*count);
        readers.push(Reader { asker, order: before.map_or(0, |(_, order)| order) });
        match before {
            Some((writer, _)) => self.forward(writer, Successor { asker, mode: Mode::Shared, share }),
            None => self.grant(asker, share),
        }
    }

    fn append_writer(&mut self, asker: Asker, asking: Asking) {
        let block = self.block(asker.member);
        let count = self.home.top + 1;
        self.home.top += block;
        let mut share = Share { count, upto: self.home.top, need: 1 };
        let upgrades = matches!(asking, Asking::Upgrade { .. });
        let asked: Vec<Asker> = match self.home.chain.as_slice() {
            [] => Vec::new(),
            // It is there itself, and needs only a new block.
            [.., Segment::Writer { asker: last, .. }] if upgrades && last.member == asker.member => Vec::new(),
            [.., Segment::Writer { asker: last, .. }] => vec![*last],
            [earlier @ .., Segment::Readers { readers, .. }] => {
                let leaves_itself_out = upgrades && self.discipline.keeps(Rule::UpgradeAsksOthers);
                let others = readers.iter().map(|reader| reader.asker);
                let others = others.filter(|other| !(leaves_itself_out && other.member == asker.member));
                // The writer before a batch may stay as one of its readers.
                let writer = earlier.last().filter(|_| self.discipline.keeps(Rule::AskWriterBefore));
                others.chain(writer.into_iter().flat_map(Segment::askers)).collect()
            }
        };
        share.need = (asked.len() as u32).max(1);
        self.home.push(Segment::Writer { asker, share, forwarded: 0 });
        if asked.is_empty() {
            self.grant(asker, share);
        }
        for before in asked {
            self.forward(before, Successor { asker, mode: Mode::Exclusive, share });
        }
    }

    /// How many counts a writer gets: more if it comes back to a lock that nobody else has wanted.
    fn block(&mut self, member: NodeId) -> u64 {
        if !self.home.chain.is_empty() {
            self.note_comer(member);
            return self.rules.block_chained;
        }
        if let Some(block) = self.rules.block {
            return block;
        }
        let block = match self.home.comer {
            Some(Comer { member: last, used }) if last == member => (2 * used).clamp(BLOCK_MIN, BLOCK_MAX),
            _ => 1,
        };
        self.note_comer(member);
        block
    }

    fn note_comer(&mut self, member: NodeId) {
        self.home.comer = self.rules.block.is_none().then_some(Comer { member, used: 1 });
    }

    fn block_max(&self) -> u64 {
        self.rules.block.unwrap_or(BLOCK_MAX).max(self.rules.block_chained)
    }

    /// A request is over: given back, or left to others of whom the home may have to grant some in its place.
    fn ended(&mut self, asker: Asker, used: u64, served: u32, keep: bool) {
        // It was over before: another message has said so.
        let Some(position) = self.home.position(asker) else { return };
        match self.home.chain[position] {
            Segment::Writer { share, forwarded, .. } => {
                self.home.drop_first(position);
                self.writer_ended(asker, Ended { share, used, served, forwarded, keep });
            }
            Segment::Readers { .. } => {
                if self.discipline.keeps(Rule::GrantInPlace) {
                    self.grant_writer_at(position + 1);
                }
                self.home.chain[position].remove_reader(asker);
                self.home.drop_first(position.saturating_sub(1));
                self.home.trim();
            }
        }
    }

    /// The first of the chain is a writer that is over.
    fn writer_ended(&mut self, asker: Asker, Ended { share, used, served, forwarded, keep }: Ended) {
        let is_alone = self.home.chain.len() == 1;
        // Counts that were not used come back, if none was given after them.
        let lowers = is_alone || !self.discipline.keeps(Rule::LowerTopIfAlone);
        if lowers && self.discipline.keeps(Rule::LowerTop) && (self.home.top == share.upto || !is_alone) {
            self.home.top = used.clamp(share.count.saturating_sub(1), share.upto);
        }
        if is_alone {
            if let Some(comer) = self.home.comer.as_mut().filter(|comer| comer.member == asker.member) {
                comer.used = used.clamp(share.count.saturating_sub(1), share.upto) + 1 - share.count.max(1);
            }
            self.home.drop_first(1);
            if !self.discipline.keeps(Rule::TopOutlives) {
                self.home.top = 0;
            }
            return;
        }
        if let Segment::Writer { .. } = self.home.chain[1] {
            if !self.discipline.keeps(Rule::BackFreesIfAlone) {
                self.home.chain.clear();
                return;
            }
            if self.discipline.keeps(Rule::GrantInPlace) {
                self.grant_writer_at(1);
            }
            return self.home.drop_first(1);
        }
        self.grant_crossed(served);
        if !keep && served <= forwarded && self.discipline.keeps(Rule::GrantWriterAfterBatch) {
            self.grant_writer_at(2);
        }
        if keep
            && self.discipline.keeps(Rule::KeepReader)
            && let Segment::Readers { readers, .. } = &mut self.home.chain[1]
        {
            readers.push(Reader { asker, order: 0 });
        }
        self.home.drop_first(1);
        self.home.trim();
    }

    /// Grants the readers behind the first writer whose FWDs have crossed its BACK.
    fn grant_crossed(&mut self, served: u32) {
        let Some(Segment::Readers { count, readers }) = self.home.chain.get_mut(1) else { return };
        let share = reading(*count);
        for reader in readers {
            if reader.order > served && self.discipline.keeps(Rule::GrantCrossedReaders) {
                let message = DirectoryMessage::Grant { number: reader.asker.number, share };
                self.out.push(Effect::Send { to: reader.asker.member, message });
            }
            reader.order = 0;
        }
    }

    /// One of the grants that a writer needs, in the place of one who has given back before the FWD came.
    fn grant_writer_at(&mut self, position: usize) {
        if let Some(Segment::Writer { asker, share, .. }) = self.home.chain.get(position) {
            let (asker, share) = (*asker, *share);
            self.grant(asker, share);
        }
    }

    /// The member asks again and has not given back: it has passed its last request on. It was inside then, so all before it
    /// is over. The writer before its batch may still have to give back.
    fn left(&mut self, member: NodeId) {
        let newest = self.home.newest_of(member).map(|number| Asker { member, number });
        let Some((asker, position)) = newest.and_then(|asker| Some((asker, self.home.position(asker)?))) else {
            return;
        };
        if !self.home.chain[position].is_shared() {
            return self.home.drop_first(position + 1);
        }
        self.home.chain[position].remove_reader(asker);
        let before = usize::from(self.discipline.keeps(Rule::KeepWriterBefore));
        self.home.drop_first(position.saturating_sub(before));
        self.home.trim();
    }

    fn refuse(&mut self, asker: Asker) {
        let message = DirectoryMessage::Busy { number: asker.number };
        self.out.push(Effect::Send { to: asker.member, message });
    }

    fn grant(&mut self, asker: Asker, share: Share) {
        let message = DirectoryMessage::Grant { number: asker.number, share };
        self.out.push(Effect::Send { to: asker.member, message });
    }

    fn forward(&mut self, before: Asker, next: Successor) {
        let message = DirectoryMessage::Forward { number: before.number, next };
        self.out.push(Effect::Send { to: before.member, message });
    }
}

/// How a writer's request ended.
struct Ended {
    share: Share,
    used: u64,
    served: u32,
    forwarded: u32,
    keep: bool,
}

/// What a reader is granted.
fn reading(count: u64) -> Share {
    Share { count, upto: count, need: 1 }
}

/// The first block of a member that comes back, and the largest one. A larger block than the first is at most twice what the
/// member has just used, so that few counts are lost where another member asks meanwhile.
const BLOCK_MIN: u64 = 16;
pub(super) const BLOCK_MAX: u64 = 1 << 20;
