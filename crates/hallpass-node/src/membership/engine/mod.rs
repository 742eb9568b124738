//! Consensus among the voters: TiKV's raft, behind a small interface. None of its types is seen outside of this module, and
//! none of its encodings on wire or disk.

mod codec;
mod ready;
mod restore;
mod storage;
#[cfg(test)]
mod tests;
mod voting;

pub(super) use codec::is_answer;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use hallpass_core::NodeId;
use hallpass_core::codec::DecodeError;
use raft::eraftpb::{ConfChangeTransition, ConfState, Entry, EntryType, Message, MessageType, Snapshot};
use raft::{INVALID_ID, RawNode, Storage as _};

use crate::faults::{Conduct, Sabotage};
use crate::output::Write;
#[cfg(test)]
pub(crate) use storage::{HARD_STATE_KEY, SNAPSHOT_KEY};
use storage::{Log, names};

/// A follower that has heard nothing for as many ticks, and some that are its own, stands for election. A leader that has
/// heard of no quorum for as many steps down.
const ELECTION_TICKS: usize = 10;
/// A command is no longer than this, and neither is what one message appends, unless it is a single command.
pub(crate) const COMMAND_MAX: usize = 256 << 10;
/// A snapshot is sent in one message.
pub(crate) const SNAPSHOT_MAX: usize = 768 << 10;
/// A longer log is worth a snapshot.
const LOG_MAX: usize = 64;
/// A newcomer with fewer entries to go has caught up.
const CAUGHT_UP: u64 = 16;
/// Messages to a follower that has not answered. The next ones wait for a heartbeat.
const IN_FLIGHT_MAX: usize = 32;
/// What a leader has proposed and not committed. More is refused.
const UNCOMMITTED_MAX: u64 = 4 << 20;

/// One node's part in consensus.
///
/// Inputs: [`tick`](Self::tick), [`campaign`](Self::campaign), [`receive`](Self::receive), [`propose`](Self::propose),
/// [`confirm`](Self::confirm), [`set_voters`](Self::set_voters), [`transfer`](Self::transfer),
/// [`snapshot`](Self::snapshot), [`persisted`](Self::persisted).
///
/// Outputs: [`poll`](Self::poll). **After every input, take events until there is none.**
///
/// Time is counted in ticks, and chance comes from a seed: the same inputs give the same events.
pub(crate) struct Engine {
    me: NodeId,
    node: RawNode<Log>,
    events: VecDeque<Event>,
    /// Committed and not applied: empty when all events have been taken.
    committed: VecDeque<Entry>,
    disk: Disk,
    /// Messages that promise what is not on disk yet, each with the number of the change that it waits for. At most a few
    /// for each message that came in while one write was under way.
    held: VecDeque<(u64, Event)>,
    confirmations: Confirmations,
    announced: Announced,
    seal: Seal,
    inquiry: Option<Inquiry>,
    elections: Elections,
    ticks: u64,
    /// When something was last heard of the other voters and learners.
    heard: BTreeMap<NodeId, u64>,
    /// For how many ticks a snapshot has been on its way to these.
    snapshots_sent: BTreeMap<u64, usize>,
}

/// What the engine asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Send this to another node's engine. It may be lost, repeated and overtaken.
    Send { to: NodeId, bytes: Vec<u8> },
    /// Store this, then call [`Engine::persisted`]. What depends on it comes out only then. The next one comes after it.
    Persist(Write),
    /// This command is committed, and applied now. Commands are never empty.
    Apply { index: u64, term: u64, data: Vec<u8> },
    /// This state replaces everything that was applied before.
    Restore { index: u64, term: u64, data: Vec<u8> },
    /// This node leads, and has applied everything that earlier leaders committed.
    OwnTerm,
    /// A quorum has confirmed, since [`Engine::confirm`] was called with this number, that this node leads.
    Confirmed { batch: u64 },
    /// This node knows of another leader now, or of none.
    Leader(Option<NodeId>),
    /// These vote now. While they are being replaced nothing is said.
    Voters(Vec<NodeId>),
}

/// What is being written.
#[derive(Default)]
struct Disk {
    /// The number of the last write.
    writes: u64,
    /// At most one write is under way; what changes meanwhile goes into the next.
    writing: Option<Writing>,
    /// How many changes there have been that must be on disk before something else happens.
    changes: u64,
    /// How many of them are.
    changes_done: u64,
    /// The number of the last change that the engine told of, whether it must be on disk or not.
    ready: u64,
    /// The term on disk.
    term: u64,
    /// A snapshot was received and is not on disk.
    restoring: bool,
}

struct Writing {
    number: u64,
    changes: u64,
    ready: u64,
    term: u64,
    restoring: bool,
}

/// Who asked for confirmation that this node leads. One round is under way at a time, those who ask meanwhile share the next.
#[derive(Default)]
struct Confirmations {
    rounds: u64,
    waiting: Vec<u64>,
    asked: Option<(Vec<u8>, Vec<u64>)>,
}

/// What was said last, to say only what is new.
#[derive(Default)]
struct Announced {
    leader: Option<NodeId>,
    term: u64,
    own_term: u64,
    voters: Vec<NodeId>,
}

/// An empty entry after the last change of the voters. A node that has it on disk has it there, too, that the change is committed:
/// the leader says so with every entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seal {
    Needed,
    /// At this index of the log.
    Proposed(u64),
    Committed,
}

/// An empty entry before voters are replaced. A voter that has it is there, and has been since this was decided: a change that begins towards
/// a silent majority can neither be finished nor taken back.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Inquiry {
    target: Vec<u64>,
    /// In the log.
    index: u64,
    tick: u64,
    /// For how many ticks an answer counts.
    patience: u64,
}

/// No answer counts for longer: a minute, with the longest ticks.
const PATIENCE_MAX: u64 = 640;

/// When to stand for election.
struct Elections {
    wanted: bool,
    /// Ticks to let pass after an election that nobody won, so that the next one does not end in the same way.
    pause: u64,
    chance: u64,
}

impl Elections {
    fn new(seed: u64) -> Self {
        Self { wanted: false, pause: 0, chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    fn draw_pause(&mut self) {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.pause = self.chance % ELECTION_TICKS as u64;
    }
}

/// What an operator finds on the disk of a node whose group has lost its majority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Recovered {
    /// The application's state at some point.
    pub(crate) state: Vec<u8>,
    /// The index and term of that point.
    pub(crate) index: u64,
    pub(crate) term: u64,
    /// The commands after it, with their terms. The last ones may not have been committed.
    pub(crate) commands: Vec<(u64, Vec<u8>)>,
    /// Who voted at that point.
    pub(crate) voters: Vec<NodeId>,
}

/// Why a message was dropped. Nothing else has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageError {
    /// It cannot be read.
    Malformed(DecodeError),
    /// No node that keeps to the protocol sends it to this one.
    Impossible,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::Impossible => f.write_str("the message contradicts what its sender promised before"),
        }
    }
}

impl std::error::Error for MessageError {}

/// Inputs.
impl Engine {
    /// Time goes on.
    pub(crate) fn tick(&mut self) {
        self.ticks += 1;
        if self.is_elected() {
            self.repeat_lost_snapshots();
        } else {
            let raft = &self.node.raft;
            if raft.leader_id == INVALID_ID && self.elections.pause > 0 {
                self.elections.pause -= 1;
                return;
            }
            if raft.promotable() && raft.election_elapsed + 1 >= raft.randomized_election_timeout() {
                if !self.is_settled() {
                    return;
                }
                self.elections.draw_pause();
            }
        }
        self.node.tick();
    }

    /// Stands for election, if this node votes. A single voter leads at once.
    pub(crate) fn campaign(&mut self) {
        self.elections.wanted = true;
    }

    /// Takes a message from another node's engine, whatever it holds.
    pub(crate) fn receive(&mut self, from: NodeId, bytes: &[u8]) -> Result<(), MessageError> {
        let mut message = codec::decode_message(bytes).map_err(MessageError::Malformed)?;
        if from == self.me || u64::from(from.0) == INVALID_ID || !self.is_possible(&message) {
            return Err(MessageError::Impossible);
        }
        message.from = from.0.into();
        message.to = self.me.0.into();
        if self.node.raft.prs().get(message.from).is_some() {
            self.heard.insert(from, self.ticks);
        }
        if self.is_welcome(&message) {
            // It fails for answers to questions that are no longer asked.
            let _ = self.node.step(message);
        }
        Ok(())
    }

    /// Proposes a command, which may be lost. False: this node does not lead, or takes no commands at the moment.
    pub(crate) fn propose(&mut self, data: Vec<u8>) -> bool {
        let possible = self.is_leader() && !data.is_empty() && data.len() <= COMMAND_MAX;
        possible && self.node.propose(Vec::new(), data).is_ok()
    }

    /// Asks a quorum whether this node still leads: the answer is [`Event::Confirmed`], unless it does not.
    pub(crate) fn confirm(&mut self, batch: u64) {
        if self.is_leader() {
            self.confirmations.waiting.push(batch);
        }
    }

    /// Takes the next step towards these voters: newcomers learn the log first, then one change replaces all. To be called
    /// again until it returns false: there is nothing to do, or this node does not lead.
    pub(crate) fn set_voters(&mut self, target: &[NodeId], conduct: impl Conduct) -> bool {
        let target = sorted(target.iter().map(|node| node.0.into()));
        let conf = self.conf();
        let done = conf.voters == target && conf.voters_outgoing.is_empty() && conf.learners.is_empty();
        if !self.is_leader() || target.is_empty() || done {
            return false;
        }
        let raft = &self.node.raft;
        let busy = !conf.voters_outgoing.is_empty() || raft.has_pending_conf() || raft.lead_transferee.is_some();
        if let Some((kind, changes)) = if busy { None } else { self.next_change(&conf, &target) }
            && (kind != ConfChangeTransition::Explicit || self.have_answered(&target, conduct))
        {
            self.change_voters(kind, changes);
        }
        true
    }

    /// Whether all newcomers and a majority of these voters have just acknowledged something. They are asked, if they were not.
    fn have_answered(&mut self, target: &[u64], conduct: impl Conduct) -> bool {
        let is_recent = |inquiry: &&Inquiry| self.ticks <= inquiry.tick + inquiry.patience;
        let before = self.inquiry.as_ref().filter(|inquiry| inquiry.target == target);
        let Some(inquiry) = before.filter(is_recent) else {
            // A voter that takes longer to answer, on a long way or with a slow disk, is given longer each time.
            let patience = before.map_or(ELECTION_TICKS as u64, |inquiry| (2 * inquiry.patience).min(PATIENCE_MAX));
            let is_asked = self.node.propose(Vec::new(), Vec::new()).is_ok();
            let index = self.node.raft.raft_log.last_index();
            self.inquiry = is_asked.then(|| Inquiry { target: target.to_vec(), index, tick: self.ticks, patience });
            return conduct.breaks(Sabotage::HandVotesToSilence);
        };
        let raft = &self.node.raft;
        let answered = |id: &&u64| raft.prs().get(**id).is_some_and(|progress| progress.matched >= inquiry.index);
        let voters = self.conf().voters;
        let newcomers = target.iter().filter(|id| !voters.contains(id)).all(|id| answered(&id));
        newcomers && target.iter().filter(answered).count() > target.len() / 2
    }

    /// Hands the leadership over, if this node leads and the other one can take it.
    pub(crate) fn transfer(&mut self, to: NodeId) {
        let is_free = self.node.raft.lead_transferee.is_none();
        if is_free && self.is_leader() && self.conf().voters.contains(&to.0.into()) {
            self.node.transfer_leader(to.0.into());
        }
    }

    /// The application's state after the last command that it was given; earlier commands are forgotten. To be called when
    /// [`wants_snapshot`](Self::wants_snapshot) says so. False: it is too large, or nothing has happened since the last.
    pub(crate) fn snapshot(&mut self, state: Vec<u8>) -> bool {
        let index = self.node.raft.raft_log.applied;
        let log = self.node.store();
        if state.len() > SNAPSHOT_MAX || index <= log.snapshot_index() {
            return false;
        }
        let Ok(term) = log.term(index) else { return false };
        let mut snapshot = Snapshot { data: state.into(), ..Snapshot::default() };
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (index, term);
        metadata.set_conf_state(self.conf());
        self.node.mut_store().compact(snapshot);
        true
    }

    /// The write with this number is on disk.
    pub(crate) fn persisted(&mut self, number: u64) {
        let Some(writing) = self.disk.writing.take_if(|writing| writing.number == number) else { return };
        self.disk.changes_done = writing.changes;
        self.disk.term = writing.term;
        self.node.on_persist_ready(writing.ready);
        self.announce_leader();
        if writing.restoring {
            self.apply_restored();
        }
        while self.held.front().is_some_and(|(change, _)| *change <= writing.changes) {
            self.events.extend(self.held.pop_front().map(|(_, event)| event));
        }
        self.forget_settled();
    }
}

/// Outputs and getters.
impl Engine {
    /// The next event.
    pub(crate) fn poll(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if let Some(entry) = self.committed.pop_front() {
                self.apply(&entry);
                continue;
            }
            self.do_what_is_due();
            if self.node.has_ready() {
                self.take_ready();
                continue;
            }
            return self.next_write().map(Event::Persist);
        }
    }

    /// Whether this node leads, as far as it knows. A single voter could forget a term that is not on disk and lead in it
    /// again, so it does not lead before.
    pub(crate) fn is_leader(&self) -> bool {
        self.is_elected() && self.disk.term == self.term()
    }

    /// The leader, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        node(self.node.raft.leader_id).filter(|leader| *leader != self.me || self.is_leader())
    }

    /// The term.
    pub(crate) fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// Who votes. While voters are being replaced: the old ones and the new ones, since a majority of both is needed.
    pub(crate) fn voters(&self) -> Vec<NodeId> {
        let ConfState { mut voters, voters_outgoing, .. } = self.conf();
        voters.extend(voters_outgoing);
        voters.sort_unstable();
        voters.dedup();
        nodes(&voters)
    }

    /// Who votes; while voters are being replaced, who will.
    pub(crate) fn incoming(&self) -> Vec<NodeId> {
        nodes(&self.conf().voters)
    }

    /// While voters are being replaced: who did before.
    pub(crate) fn outgoing(&self) -> Vec<NodeId> {
        nodes(&self.conf().voters_outgoing)
    }

    /// Whether a majority of the voters would know after a restart, without asking anybody else, that they are the voters: only
    /// then may those go who no longer vote. Known by the leader.
    pub(crate) fn voters_are_stored(&self) -> bool {
        self.is_leader() && self.conf().voters_outgoing.is_empty() && self.seal == Seal::Committed
    }

    /// Whether voters are being replaced, as far as this node's log says, whether that is committed or not.
    pub(crate) fn is_replacing_voters(&self) -> bool {
        let applied = self.node.raft.raft_log.applied;
        let is_change = |entry: &Entry| entry.index > applied && entry.get_entry_type() != EntryType::EntryNormal;
        !self.conf().voters_outgoing.is_empty() || self.node.store().entries().iter().any(is_change)
    }

    /// Leads no longer, as it may at any time: others do.
    pub(crate) fn step_down(&mut self) {
        if self.is_elected() {
            self.node.raft.become_follower(self.term(), INVALID_ID);
        }
    }

    /// Who learns the log to vote later.
    pub(crate) fn learners(&self) -> Vec<NodeId> {
        nodes(&self.conf().learners)
    }

    /// How many entries the log has.
    pub(crate) fn log_len(&self) -> usize {
        self.node.store().entries().len()
    }

    /// Whether the application should call [`snapshot`](Self::snapshot): the log is long, or a newcomer waits for it.
    pub(crate) fn wants_snapshot(&self) -> bool {
        let log = self.node.store();
        if self.node.raft.raft_log.applied <= log.snapshot_index() {
            return false;
        }
        let known = log.snapshot.get_metadata().get_conf_state();
        let mut followers = self.node.raft.prs().iter();
        self.log_len() > LOG_MAX || self.is_leader() && followers.any(|(id, _)| !names(known, *id))
    }

    /// How many ticks ago a voter or learner was last heard of.
    pub(crate) fn ticks_since(&self, node: NodeId) -> Option<u64> {
        self.heard.get(&node).map(|heard| self.ticks - heard)
    }
}

/// What the engine cannot be given: it stops the process at some messages that no honest node sends.
impl Engine {
    fn is_possible(&self, message: &Message) -> bool {
        let raft = &self.node.raft;
        let log = &raft.raft_log;
        match message.get_msg_type() {
            _ if message.term < raft.term => true,
            // The leader knows how far this node's log agrees with its own.
            MessageType::MsgHeartbeat => message.commit <= log.last_index(),
            MessageType::MsgAppendResponse if self.is_elected() && message.term == raft.term => {
                message.reject || message.index <= log.last_index()
            }
            MessageType::MsgSnapshot => {
                let metadata = message.get_snapshot().get_metadata();
                metadata.index != log.committed || log.match_term(metadata.index, metadata.term)
            }
            _ => true,
        }
    }

    /// Whether a possible message is of use now.
    fn is_welcome(&self, message: &Message) -> bool {
        match message.get_msg_type() {
            // Votes are asked for only when the log is on disk, and it stays so until they are counted.
            MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
                message.reject || self.is_settled()
            }
            MessageType::MsgTimeoutNow => self.is_settled() && message.from == self.node.raft.leader_id,
            _ => true,
        }
    }
}

fn restored(snapshot: &Snapshot) -> Event {
    let metadata = snapshot.get_metadata();
    Event::Restore { index: metadata.index, term: metadata.term, data: snapshot.data.to_vec() }
}

fn is_command(entry: &Entry) -> bool {
    entry.get_entry_type() == EntryType::EntryNormal && !entry.data.is_empty()
}

fn node(id: u64) -> Option<NodeId> {
    u32::try_from(id).ok().filter(|id| *id != 0).map(NodeId)
}

fn nodes(ids: &[u64]) -> Vec<NodeId> {
    ids.iter().filter_map(|id| node(*id)).collect()
}

fn sorted(ids: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut ids: Vec<u64> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
