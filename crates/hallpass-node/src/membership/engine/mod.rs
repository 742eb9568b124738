//! Consensus among the voters: TiKV's raft, behind a small interface. None of its types is seen outside of this module, and
//! none of its encodings on wire or disk.

mod codec;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use hallpass_core::NodeId;
use hallpass_core::codec::DecodeError;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, Message,
    MessageType, Snapshot,
};
use raft::{Config, INVALID_ID, ProgressState, RawNode, ReadOnlyOption, SnapshotStatus, StateRole, Storage as _};

use crate::output::Write;
pub(crate) use storage::StoredError;
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
    /// A planted bug: nobody is asked whether it is there before it votes alone.
    trusts_silence: bool,
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

/// An empty entry after the last change of the voters. Whoever has it on disk has it there, too, that the change is committed:
/// the leader says so with every entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seal {
    Needed,
    /// At this index of the log.
    Proposed(u64),
    Committed,
}

/// An empty entry before voters are replaced. Whoever of them has it is there, and has been since this was decided: a change that begins towards
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

/// Making an engine.
impl Engine {
    /// Founds a group. All founders call it with the same voters and state; the first event is to store them.
    pub(crate) fn found(me: NodeId, voters: &[NodeId], state: Vec<u8>, seed: u64) -> Self {
        let mut snapshot = Snapshot { data: state.into(), ..Snapshot::default() };
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (1, 1);
        metadata.mut_conf_state().voters = sorted(voters.iter().map(|node| node.0.into()));
        let mut engine = Self::new(me, Log::founded(snapshot), seed);
        engine.disk.changes = 1;
        engine.disk.term = 0;
        engine
    }

    /// A node that waits until a leader sends it a snapshot. It does not vote.
    pub(crate) fn join(me: NodeId, seed: u64) -> Self {
        Self::new(me, Log::empty(), seed)
    }

    /// Goes on from what is stored, if there is something. The first events give the application its state back.
    pub(crate) fn restore(
        me: NodeId,
        records: &BTreeMap<u64, Vec<u8>>,
        seed: u64,
    ) -> Result<Option<Self>, StoredError> {
        let Some(log) = Log::stored(records)? else { return Ok(None) };
        let snapshot = log.snapshot.clone();
        let mut engine = Self::new(me, log, seed);
        if !snapshot.is_empty() {
            engine.events.push_back(restored(&snapshot));
        }
        Ok(Some(engine))
    }

    /// The newest state that is stored, for founding the group again without its majority. None: nothing is stored.
    pub(crate) fn recover(records: &BTreeMap<u64, Vec<u8>>) -> Result<Option<Recovered>, StoredError> {
        let Some(log) = Log::stored(records)? else { return Ok(None) };
        if log.snapshot.is_empty() {
            return Ok(None);
        }
        let commands = log.entries().iter().filter(|entry| is_command(entry));
        let metadata = log.snapshot.get_metadata();
        Ok(Some(Recovered {
            state: log.snapshot.data.to_vec(),
            index: metadata.index,
            term: metadata.term,
            commands: commands.map(|entry| (entry.term, entry.data.to_vec())).collect(),
            voters: nodes(&metadata.get_conf_state().voters),
        }))
    }

    fn new(me: NodeId, log: Log, seed: u64) -> Self {
        // Every node has a timeout of its own that never changes: then the engine's source of chance has no choice.
        let election_tick = ELECTION_TICKS + (seed % ELECTION_TICKS as u64) as usize;
        let config = Config {
            id: me.0.into(),
            election_tick: ELECTION_TICKS,
            min_election_tick: election_tick,
            max_election_tick: election_tick + 1,
            heartbeat_tick: 1,
            applied: log.snapshot_index(),
            max_size_per_msg: COMMAND_MAX as u64,
            max_inflight_msgs: IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            max_uncommitted_size: UNCOMMITTED_MAX,
            ..Config::default()
        };
        let term = log.hard_state.term;
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &logger).expect("the settings are valid, and so is the log");
        let mut engine = Self {
            me,
            node,
            events: VecDeque::new(),
            committed: VecDeque::new(),
            disk: Disk { term, ..Disk::default() },
            held: VecDeque::new(),
            confirmations: Confirmations::default(),
            announced: Announced::default(),
            seal: Seal::Needed,
            inquiry: None,
            trusts_silence: false,
            elections: Elections::new(seed),
            ticks: 0,
            heard: BTreeMap::new(),
            snapshots_sent: BTreeMap::new(),
        };
        engine.announced.voters = engine.voters();
        engine
    }
}

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
    pub(crate) fn set_voters(&mut self, target: &[NodeId]) -> bool {
        let target = sorted(target.iter().map(|node| node.0.into()));
        let conf = self.conf();
        let done = conf.voters == target && conf.voters_outgoing.is_empty() && conf.learners.is_empty();
        if !self.is_leader() || target.is_empty() || done {
            return false;
        }
        let raft = &self.node.raft;
        let busy = !conf.voters_outgoing.is_empty() || raft.has_pending_conf() || raft.lead_transferee.is_some();
        if let Some((kind, changes)) = if busy { None } else { self.next_change(&conf, &target) }
            && (kind != ConfChangeTransition::Explicit || self.have_answered(&target))
        {
            self.change_voters(kind, changes);
        }
        true
    }

    /// Whether all newcomers and a majority of these voters have just acknowledged something. They are asked, if they were not.
    fn have_answered(&mut self, target: &[u64]) -> bool {
        let is_recent = |inquiry: &&Inquiry| self.ticks <= inquiry.tick + inquiry.patience;
        let before = self.inquiry.as_ref().filter(|inquiry| inquiry.target == target);
        let Some(inquiry) = before.filter(is_recent) else {
            // Whoever takes longer to answer, on a long way or with a slow disk, is given longer each time.
            let patience = before.map_or(ELECTION_TICKS as u64, |inquiry| (2 * inquiry.patience).min(PATIENCE_MAX));
            let is_asked = self.node.propose(Vec::new(), Vec::new()).is_ok();
            let index = self.node.raft.raft_log.last_index();
            self.inquiry = is_asked.then(|| Inquiry { target: target.to_vec(), index, tick: self.ticks, patience });
            return self.trusts_silence;
        };
        let raft = &self.node.raft;
        let answered = |id: &&u64| raft.prs().get(**id).is_some_and(|progress| progress.matched >= inquiry.index);
        let voters = self.conf().voters;
        let newcomers = target.iter().filter(|id| !voters.contains(id)).all(|id| answered(&id));
        newcomers && target.iter().filter(answered).count() > target.len() / 2
    }

    /// A planted bug: see [`Sabotage::HandVotesToSilence`](crate::Sabotage).
    pub(crate) fn trust_silence(&mut self) {
        self.trusts_silence = true;
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
            self.act();
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

    /// Whether a majority of the voters would know after a restart, without asking anybody else, that they are the voters: only
    /// then may those go who no longer vote. Known by the leader.
    pub(crate) fn voters_are_stored(&self) -> bool {
        self.is_leader() && self.conf().voters_outgoing.is_empty() && self.seal == Seal::Committed
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

/// Between the engine and the disk.
impl Engine {
    /// Takes what the engine has to say. What it wants stored is in memory at once, and goes to disk with the next write.
    fn take_ready(&mut self) {
        let mut ready = self.node.ready();
        self.disk.ready = ready.number();
        self.disk.changes += u64::from(ready.must_sync());
        let log = self.node.mut_store();
        if !ready.snapshot().is_empty() {
            log.restore(ready.snapshot().clone());
            self.disk.restoring = true;
            self.committed.clear();
        }
        log.append(ready.take_entries());
        if let Some(hard_state) = ready.hs() {
            log.hard_state = hard_state.clone();
        }
        let confirmed = ready.take_read_states();
        let committed = ready.take_committed_entries();
        let messages = [ready.take_messages(), ready.take_persisted_messages()].concat();
        self.node.advance_append_async(ready);
        self.announce_leader();
        self.committed.extend(committed);
        confirmed.iter().for_each(|state| self.on_confirmed(&state.request_ctx));
        messages.iter().for_each(|message| self.send(message));
        self.forget_settled();
    }

    /// Sends a message, once everything that it promises is on disk.
    fn send(&mut self, message: &Message) {
        let (Some(to), Some(bytes)) = (node(message.to), codec::encode_message(message)) else { return };
        let event = Event::Send { to, bytes };
        let kind = message.get_msg_type();
        // A leader promises nothing but its term, since it counts its own log only once that is on disk. A single voter
        // leads before its term is. Nobody who answers a heartbeat promises more: a slow disk must not look like a death.
        let only_term = codec::is_leaders(kind) || kind == MessageType::MsgHeartbeatResponse;
        let promises_nothing = kind == MessageType::MsgRequestPreVoteResponse;
        if promises_nothing || only_term && message.term == self.disk.term || self.is_stored() {
            self.events.push_back(event);
        } else {
            self.held.push_back((self.disk.changes, event));
        }
    }

    /// Whether everything that must be on disk is there.
    fn is_stored(&self) -> bool {
        self.disk.changes == self.disk.changes_done
    }

    /// Whether this node may become a candidate or leader: the engine insists that the log is on disk then.
    fn is_settled(&self) -> bool {
        let log = &self.node.raft.raft_log;
        self.is_stored() && log.persisted == log.last_index() && self.committed.is_empty()
    }

    /// The engine remembers everything that it told of until it hears that it is on disk, even if it need not be.
    fn forget_settled(&mut self) {
        if self.is_stored() {
            self.node.on_persist_ready(self.disk.ready);
        }
    }

    /// Starts the next write, if something must be written and nothing is being written.
    fn next_write(&mut self) -> Option<Write> {
        let needed = !self.is_stored() || self.node.store().snapshot_changed();
        if self.disk.writing.is_some() || !needed {
            return None;
        }
        self.disk.writes += 1;
        let log = self.node.mut_store();
        let write = log.write(self.disk.writes);
        self.disk.writing = Some(Writing {
            number: self.disk.writes,
            changes: self.disk.changes,
            ready: self.disk.ready,
            term: log.hard_state.term,
            restoring: std::mem::take(&mut self.disk.restoring),
        });
        Some(write)
    }
}

/// Applying what is committed.
impl Engine {
    fn apply(&mut self, entry: &Entry) {
        let (index, term) = (entry.index, entry.term);
        if is_command(entry) {
            self.events.push_back(Event::Apply { index, term, data: entry.data.to_vec() });
        }
        if entry.get_entry_type() != EntryType::EntryNormal
            && let Ok(change) = codec::decode_changes(&entry.context)
        {
            // A change that is impossible now is refused by all, since all have the same voters.
            let _ = self.node.apply_conf_change(&change);
            self.seal = Seal::Needed;
        }
        if matches!(self.seal, Seal::Proposed(at) if at <= index) {
            self.seal = Seal::Committed;
        }
        self.node.advance_apply_to(index);
        self.announce_voters();
        if self.is_elected() && !self.node.raft.promotable() {
            // It no longer votes, and the engine does not expect it to count on.
            self.node.raft.become_follower(self.term(), INVALID_ID);
        }
        if self.is_leader() && term == self.term() && self.announced.own_term != term {
            self.announced.own_term = term;
            self.events.push_back(Event::OwnTerm);
        }
    }

    /// The snapshot in the log is on disk, and becomes the application's state.
    fn apply_restored(&mut self) {
        let snapshot = self.node.store().snapshot.clone();
        let index = snapshot.get_metadata().index;
        let log = &self.node.raft.raft_log;
        // A newer one may have come since; then that one is applied, when it is on disk.
        if log.applied < index && index <= log.persisted {
            self.node.advance_apply_to(index);
            self.events.push_back(restored(&snapshot));
            self.announce_voters();
        }
    }

    fn announce_voters(&mut self) {
        let conf = self.conf();
        let voters = nodes(&conf.voters);
        self.heard.retain(|node, _| names(&conf, node.0.into()));
        if conf.voters_outgoing.is_empty() && voters != self.announced.voters {
            self.announced.voters.clone_from(&voters);
            self.events.push_back(Event::Voters(voters));
        }
    }

    fn announce_leader(&mut self) {
        let (leader, term) = (self.leader(), self.term());
        let before = std::mem::replace(&mut self.announced.leader, leader);
        let before_term = std::mem::replace(&mut self.announced.term, term);
        if leader.is_some() {
            self.elections.pause = 0;
        }
        if leader.is_some() && leader == before && term != before_term {
            // It was lost and found again.
            self.events.push_back(Event::Leader(None));
        } else if leader == before {
            return;
        }
        self.events.push_back(Event::Leader(leader));
    }
}

/// What a node does of its own accord.
impl Engine {
    fn is_elected(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    fn act(&mut self) {
        if std::mem::take(&mut self.elections.wanted) && !self.is_elected() && self.node.raft.promotable() {
            if self.is_settled() {
                let _ = self.node.campaign();
            } else {
                self.elections.wanted = true;
            }
        }
        if self.is_leader() {
            self.leave_joint();
            self.seal_voters();
            self.ask();
        } else {
            (self.seal, self.inquiry) = (Seal::Needed, None);
            self.confirmations.waiting.clear();
            self.confirmations.asked = None;
        }
    }

    /// Starts a round of confirmation, if somebody waits for one. Before something of its own term is committed the engine
    /// would forget the question.
    fn ask(&mut self) {
        let confirmations = &mut self.confirmations;
        let needed = !confirmations.waiting.is_empty() && confirmations.asked.is_none();
        if !needed || !self.node.raft.commit_to_current_term() {
            return;
        }
        confirmations.rounds += 1;
        let context = [self.node.raft.term.to_be_bytes(), confirmations.rounds.to_be_bytes()].concat();
        confirmations.asked = Some((context.clone(), std::mem::take(&mut confirmations.waiting)));
        self.node.read_index(context);
    }

    fn on_confirmed(&mut self, context: &[u8]) {
        if let Some((_, batches)) = self.confirmations.asked.take_if(|(asked, _)| asked == context) {
            self.events.extend(batches.into_iter().map(|batch| Event::Confirmed { batch }));
        }
    }

    /// While voters are being replaced the old and the new ones both decide. The leader ends that, or gives way to one that
    /// votes on.
    fn leave_joint(&mut self) {
        let conf = self.conf();
        let raft = &self.node.raft;
        if conf.voters_outgoing.is_empty() || raft.has_pending_conf() || raft.lead_transferee.is_some() {
            return;
        }
        if conf.voters.contains(&raft.id) {
            self.change_voters(ConfChangeTransition::Auto, Vec::new());
            return;
        }
        let candidates = conf.voters.iter().filter(|id| self.is_active(**id));
        let best = candidates.max_by_key(|id| raft.prs().get(**id).map(|progress| progress.matched));
        if let Some(best) = best.copied() {
            self.node.transfer_leader(best);
        }
    }

    fn seal_voters(&mut self) {
        let raft = &self.node.raft;
        let is_due = self.seal == Seal::Needed && raft.commit_to_current_term() && !raft.has_pending_conf();
        if is_due && self.conf().voters_outgoing.is_empty() && self.node.propose(Vec::new(), Vec::new()).is_ok() {
            self.seal = Seal::Proposed(self.node.raft.raft_log.last_index());
        }
    }

    /// The next change on the way from these voters to those.
    fn next_change(
        &self,
        conf: &ConfState,
        target: &[u64],
    ) -> Option<(ConfChangeTransition, Vec<(ConfChangeType, u64)>)> {
        let wanted = |id: &&u64| target.contains(id) && !conf.voters.contains(id);
        let leaving = |id: &&u64| !target.contains(id);
        if let Some(learner) = conf.learners.iter().find(|id| !wanted(id)) {
            return Some((ConfChangeTransition::Auto, vec![(ConfChangeType::RemoveNode, *learner)]));
        }
        let newcomers: Vec<u64> = target.iter().filter(wanted).copied().collect();
        if let Some(newcomer) = newcomers.iter().find(|id| !conf.learners.contains(id)) {
            return Some((ConfChangeTransition::Auto, vec![(ConfChangeType::AddLearnerNode, *newcomer)]));
        }
        // Once the change has begun it needs a majority of the new voters: one that is not there would stop everything.
        let active = target.iter().filter(|id| self.is_active(**id)).count();
        if !newcomers.iter().all(|id| self.is_active(*id)) || active <= target.len() / 2 {
            return None;
        }
        let adds = newcomers.iter().map(|id| (ConfChangeType::AddNode, *id));
        let removes = conf.voters.iter().filter(leaving).map(|id| (ConfChangeType::RemoveNode, *id));
        Some((ConfChangeTransition::Explicit, adds.chain(removes).collect()))
    }

    fn change_voters(&mut self, transition: ConfChangeTransition, changes: Vec<(ConfChangeType, u64)>) {
        let single = |(kind, node_id)| {
            let mut single = ConfChangeSingle { node_id, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            single
        };
        let mut change = ConfChangeV2::default();
        change.set_transition(transition);
        change.set_changes(changes.into_iter().map(single).collect::<Vec<_>>().into());
        // If it is not taken, the next call of `set_voters` tries again.
        let _ = self.node.propose_conf_change(codec::encode_changes(&change), change);
    }

    /// Whether a follower has nearly all of the log and was heard of lately.
    fn is_active(&self, id: u64) -> bool {
        let raft = &self.node.raft;
        if id == raft.id {
            return true;
        }
        let ticks = node(id).and_then(|node| self.ticks_since(node));
        let matched = raft.prs().get(id).map_or(0, |progress| progress.matched);
        let lately = ticks.is_some_and(|ticks| ticks <= ELECTION_TICKS as u64);
        lately && matched > 0 && matched + CAUGHT_UP >= raft.raft_log.last_index()
    }

    /// The engine waits for a snapshot's arrival, however long it takes: one that was lost is given up here.
    fn repeat_lost_snapshots(&mut self) {
        let followers = self.node.raft.prs().iter();
        let waiting = followers.filter(|(_, progress)| progress.state == ProgressState::Snapshot);
        let waiting: BTreeMap<u64, usize> =
            waiting.map(|(id, _)| (*id, self.snapshots_sent.get(id).map_or(1, |ticks| ticks + 1))).collect();
        for (id, _) in waiting.iter().filter(|(_, ticks)| **ticks >= ELECTION_TICKS) {
            self.node.report_snapshot(*id, SnapshotStatus::Failure);
        }
        self.snapshots_sent = waiting;
        self.snapshots_sent.retain(|_, ticks| *ticks < ELECTION_TICKS);
    }

    fn conf(&self) -> ConfState {
        let mut conf = self.node.raft.prs().conf().to_conf_state();
        conf.voters.sort_unstable();
        conf.voters_outgoing.sort_unstable();
        conf.learners.sort_unstable();
        conf.learners_next.sort_unstable();
        conf
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
