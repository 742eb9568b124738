//! How a node's part in consensus begins: with a group, without one, and from what is stored.

use std::collections::{BTreeMap, VecDeque};

use hallpass_core::NodeId;
use raft::eraftpb::Snapshot;
use raft::{Config, RawNode, ReadOnlyOption};

use super::storage::{Log, StoredError};
use super::{
    Announced, COMMAND_MAX, Confirmations, Disk, ELECTION_TICKS, Elections, Engine, IN_FLIGHT_MAX, Recovered, Seal,
    UNCOMMITTED_MAX, is_command, nodes, restored, sorted,
};

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
            elections: Elections::new(seed),
            ticks: 0,
            heard: BTreeMap::new(),
            snapshots_sent: BTreeMap::new(),
        };
        engine.announced.voters = engine.voters();
        engine
    }
}
