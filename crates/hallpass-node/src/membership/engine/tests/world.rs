//! Nodes with disks that take their time, a network that loses, repeats and reorders, and checks of everything that
//! happens. One seed decides all.

use std::collections::{BTreeMap, BTreeSet};

use super::super::codec;
use super::super::*;

/// Chance from a seed.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d | 1);
        chance.next();
        chance
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A mistake that the checks must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mistake {
    None,
    /// A restarted node does not know for whom it voted.
    ForgetVote,
    /// A node takes what it writes for stored.
    SendEarly,
    /// Nodes are told what nobody said.
    Forgery,
}

/// What an application would keep: a digest of all commands so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct State {
    pub(super) index: u64,
    digest: u64,
}

impl State {
    pub(super) fn encode(self) -> Vec<u8> {
        [self.index.to_be_bytes(), self.digest.to_be_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Self {
        let (index, digest) = bytes.split_at(8.min(bytes.len()));
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
        Self { index: number(index), digest: number(digest) }
    }

    fn apply(&mut self, index: u64, data: &[u8]) {
        self.index = index;
        for byte in index.to_be_bytes().iter().chain(data) {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

pub(super) struct Machine {
    /// None while it is down.
    pub(super) engine: Option<Engine>,
    pub(super) disk: BTreeMap<u64, Vec<u8>>,
    /// What is being written, and when it is done.
    writing: Option<(u64, Write)>,
    pub(super) write_ticks: u64,
    pub(super) state: State,
    /// Who founds the group, if this node does.
    founders: Vec<NodeId>,
    seed: u64,
}

struct Packet {
    due: u64,
    from: NodeId,
    to: NodeId,
    bytes: Vec<u8>,
}

pub(super) struct World {
    pub(super) chance: Chance,
    pub(super) now: u64,
    pub(super) machines: BTreeMap<NodeId, Machine>,
    packets: Vec<Packet>,
    /// From, to: nothing gets through.
    pub(super) cuts: BTreeSet<(NodeId, NodeId)>,
    /// Of a hundred messages.
    pub(super) lost: u64,
    pub(super) delay_ticks: u64,
    pub(super) mistake: Mistake,
    checks: Checks,
    /// A digest of all events.
    pub(super) trace: u64,
    pub(super) sent: u64,
}

/// What has been seen anywhere, and what must not be seen beside it.
#[derive(Default)]
struct Checks {
    states: BTreeMap<u64, u64>,
    leaders: BTreeMap<u64, NodeId>,
    /// The highest term in which something was committed.
    term: u64,
    /// What that was when a confirmation was asked for.
    asked: BTreeMap<(NodeId, u64), (u64, u64)>,
    batches: u64,
    confirmed: u64,
}

type Checked = Result<(), String>;

impl World {
    /// Some nodes found a group, the others wait.
    pub(super) fn new(seed: u64, nodes: u32, founders: u32) -> Self {
        let mut world = Self {
            chance: Chance::new(seed),
            now: 0,
            machines: BTreeMap::new(),
            packets: Vec::new(),
            cuts: BTreeSet::new(),
            lost: 0,
            delay_ticks: 0,
            mistake: Mistake::None,
            checks: Checks::default(),
            trace: 0,
            sent: 0,
        };
        let voters: Vec<NodeId> = (1..=founders).map(NodeId).collect();
        world.checks.states.insert(1, 0);
        for id in (1..=nodes).map(NodeId) {
            let node_seed = world.chance.next();
            let founders = if voters.contains(&id) { voters.clone() } else { Vec::new() };
            let disk = BTreeMap::new();
            let mut machine = Machine {
                engine: None,
                disk,
                writing: None,
                write_ticks: 0,
                state: State::default(),
                founders,
                seed: node_seed,
            };
            machine.begin(id);
            world.machines.insert(id, machine);
        }
        world
    }

    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.machines.keys().copied().collect()
    }

    pub(super) fn engine(&mut self, id: NodeId) -> &mut Engine {
        self.machines.get_mut(&id).and_then(|machine| machine.engine.as_mut()).expect("it runs")
    }

    pub(super) fn is_up(&self, id: NodeId) -> bool {
        self.machines[&id].engine.is_some()
    }

    /// The leader with the highest term among those that are up.
    pub(super) fn leader(&self) -> Option<NodeId> {
        let engines = self.machines.iter().filter_map(|(id, machine)| Some((id, machine.engine.as_ref()?)));
        engines.filter(|(_, engine)| engine.is_leader()).max_by_key(|(_, engine)| engine.term()).map(|(id, _)| *id)
    }

    /// What is not on disk is lost.
    pub(super) fn crash(&mut self, id: NodeId) {
        let machine = self.machines.get_mut(&id).expect("it exists");
        machine.engine = None;
        machine.writing = None;
    }

    pub(super) fn restart(&mut self, id: NodeId) -> Checked {
        let machine = self.machines.get_mut(&id).expect("it exists");
        if self.mistake == Mistake::ForgetVote
            && let Some(bytes) = machine.disk.get_mut(&HARD_STATE_KEY)
        {
            let mut hard_state = codec::decode_hard_state(bytes).expect("it was written so");
            hard_state.vote = 0;
            *bytes = codec::encode_hard_state(&hard_state);
        }
        let restored = Engine::restore(id, &machine.disk, machine.seed).map_err(|error| error.to_string())?;
        machine.state = State::default();
        match restored {
            Some(engine) => machine.engine = Some(engine),
            None => machine.begin(id),
        }
        self.drain(id)
    }

    /// One tick for everybody, in the order of chance.
    pub(super) fn step(&mut self) -> Checked {
        self.now += 1;
        for id in self.ids() {
            if self.is_up(id) {
                self.engine(id).tick();
                self.drain(id)?;
            }
        }
        // A message and its answer may take less than a tick.
        for _ in 0..3 {
            self.deliver()?;
            self.finish_writes()?;
        }
        Ok(())
    }

    /// Goes on until something holds: false, if it does not within as many ticks.
    pub(super) fn until(&mut self, ticks: u64, mut holds: impl FnMut(&mut Self) -> bool) -> Result<bool, String> {
        for _ in 0..ticks {
            if holds(self) {
                return Ok(true);
            }
            self.step()?;
        }
        Ok(holds(self))
    }

    fn deliver(&mut self) -> Checked {
        let now = self.now;
        let mut due: Vec<Packet> = self.packets.extract_if(.., |packet| packet.due <= now).collect();
        while !due.is_empty() {
            let index = if self.lost > 0 { self.chance.below(due.len() as u64) as usize } else { 0 };
            let packet = due.remove(index);
            if self.cuts.contains(&(packet.from, packet.to)) || !self.is_up(packet.to) {
                continue;
            }
            let taken = self.engine(packet.to).receive(packet.from, &packet.bytes);
            if self.mistake == Mistake::None {
                taken.map_err(|error| format!("{} refuses what {} says: {error}", packet.to, packet.from))?;
            }
            self.drain(packet.to)?;
        }
        Ok(())
    }

    fn finish_writes(&mut self) -> Checked {
        for id in self.ids() {
            let now = self.now;
            let machine = self.machines.get_mut(&id).expect("it exists");
            let Some((_, write)) = machine.writing.take_if(|(due, _)| *due <= now) else { continue };
            machine.carry_out(&write);
            self.engine(id).persisted(write.number);
            self.drain(id)?;
        }
        Ok(())
    }

    /// Carries out what a node asks for.
    pub(super) fn drain(&mut self, id: NodeId) -> Checked {
        while let Some(event) = self.engine(id).poll() {
            let digest = format!("{id} {event:?}");
            self.trace =
                digest.bytes().fold(self.trace, |trace, byte| (trace ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
            self.carry_out(id, event)?;
        }
        if self.engine(id).wants_snapshot() {
            let state = self.machines[&id].state.encode();
            self.engine(id).snapshot(state);
            return self.drain(id);
        }
        Ok(())
    }

    fn carry_out(&mut self, id: NodeId, event: Event) -> Checked {
        match event {
            Event::Send { to, bytes } => self.send(id, to, bytes),
            Event::Persist(write) => return self.persist(id, write),
            Event::Apply { index, term, data } => {
                let machine = self.machines.get_mut(&id).expect("it exists");
                machine.state.apply(index, &data);
                let state = machine.state;
                return self.checks.on_state(id, state, term);
            }
            Event::Restore { index, term, data } => {
                let state = State::decode(&data);
                if state.index > index {
                    return Err(format!("{id} restores {index} from {}", state.index));
                }
                self.machines.get_mut(&id).expect("it exists").state = state;
                return self.checks.on_state(id, state, term);
            }
            Event::Leader(Some(leader)) if leader == id => {
                let term = self.engine(id).term();
                return self.checks.on_leader(id, term);
            }
            Event::OwnTerm => self.checks.term = self.checks.term.max(self.engine(id).term()),
            Event::Confirmed { batch } => {
                let term = self.engine(id).term();
                return self.checks.on_confirmed(id, batch, term);
            }
            Event::Leader(_) | Event::Voters(_) => {}
        }
        Ok(())
    }

    fn send(&mut self, from: NodeId, to: NodeId, bytes: Vec<u8>) {
        self.sent += 1;
        if self.lost > 0 && self.chance.below(100) < self.lost || !self.machines.contains_key(&to) {
            return;
        }
        if self.lost > 0 && self.chance.one_in(20) {
            let due = self.now + self.chance.below(30);
            self.packets.push(Packet { due, from, to, bytes: bytes.clone() });
        }
        let due = self.now + if self.delay_ticks > 0 { self.chance.below(self.delay_ticks) } else { 0 };
        self.packets.push(Packet { due, from, to, bytes });
    }

    fn persist(&mut self, id: NodeId, write: Write) -> Checked {
        let machine = self.machines.get_mut(&id).expect("it exists");
        if machine.writing.is_some() && self.mistake != Mistake::SendEarly {
            return Err(format!("{id} writes twice at once"));
        }
        let ticks = machine.write_ticks;
        let due = self.now + if ticks > 1 { self.chance.below(ticks) } else { ticks };
        if self.mistake == Mistake::SendEarly {
            // Those before it are done by now, this one is lost if the node stops.
            if let Some((_, earlier)) = machine.writing.replace((due, write.clone())) {
                machine.carry_out(&earlier);
            }
            self.engine(id).persisted(write.number);
        } else {
            machine.writing = Some((due, write));
        }
        Ok(())
    }

    /// Asks a node whether it leads.
    pub(super) fn confirm(&mut self, id: NodeId) -> Checked {
        if self.engine(id).is_leader() {
            self.checks.batches += 1;
            let (batch, term) = (self.checks.batches, self.engine(id).term());
            self.checks.asked.insert((id, batch), (term, self.checks.term));
            self.engine(id).confirm(batch);
            self.drain(id)?;
        }
        Ok(())
    }

    pub(super) fn propose(&mut self, id: NodeId) -> Result<bool, String> {
        let data = self.chance.next().to_be_bytes().to_vec();
        let taken = self.engine(id).propose(data);
        self.drain(id)?;
        Ok(taken)
    }

    pub(super) fn set_voters(&mut self, id: NodeId, target: &[NodeId]) -> Result<bool, String> {
        let more = self.engine(id).set_voters(target);
        self.drain(id)?;
        Ok(more)
    }

    /// Lets the leader set these voters, until it is done.
    pub(super) fn reach_voters(&mut self, target: &[u32], ticks: u64) -> Checked {
        let target: Vec<NodeId> = target.iter().copied().map(NodeId).collect();
        let mut failed = Ok(());
        let done = self.until(ticks, |world| {
            let Some(leader) = world.leader() else { return false };
            match world.set_voters(leader, &target) {
                Ok(more) => !more && world.engine(leader).voters() == target,
                Err(error) => {
                    failed = Err(error);
                    true
                }
            }
        })?;
        failed?;
        if done { Ok(()) } else { Err(format!("the voters do not become {target:?}:\n{}", self.describe())) }
    }

    /// From now on these take as many ticks for each write.
    pub(super) fn slow_disks(&mut self, ids: &[u32], ticks: u64) {
        for id in ids {
            self.machines.get_mut(&NodeId(*id)).expect("it exists").write_ticks = ticks;
        }
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) -> Checked {
        self.cuts.clear();
        (self.lost, self.delay_ticks) = (0, 0);
        for id in self.ids() {
            self.machines.get_mut(&id).expect("it exists").write_ticks = 1;
            if !self.is_up(id) {
                self.restart(id)?;
            }
        }
        Ok(())
    }

    /// A command is committed, applied by all voters, and a confirmation given.
    pub(super) fn progresses(&mut self, ticks: u64) -> Checked {
        let before = self.checks.states.keys().next_back().copied().unwrap_or_default();
        let confirmed = self.checks.confirmed;
        let mut failed = Ok(());
        let done = self.until(ticks, |world| {
            let Some(leader) = world.leader() else { return false };
            // Leaders that lose their place forget both.
            if world.checks.states.keys().next_back().is_none_or(|index| *index <= before) {
                failed = world.propose(leader).map(drop);
            }
            if failed.is_ok() && world.checks.confirmed == confirmed {
                failed = world.confirm(leader);
            }
            let voters = world.engine(leader).voters();
            let newest = world.machines[&leader].state;
            let applied = voters.iter().all(|voter| world.machines[voter].state == newest);
            failed.is_err() || newest.index > before && applied && world.checks.confirmed > confirmed
        })?;
        failed?;
        if done { Ok(()) } else { Err(format!("nothing is committed by all:\n{}", self.describe())) }
    }

    fn describe(&self) -> String {
        let describe = |(id, machine): (&NodeId, &Machine)| match &machine.engine {
            None => format!("{id} is down"),
            Some(engine) => {
                let raft = &engine.node.raft;
                format!(
                    "{id} {:?} term {} leader {} applied {} log {} conf {:?} stored {} elapsed {} pause {}",
                    raft.state,
                    raft.term,
                    raft.leader_id,
                    machine.state.index,
                    raft.raft_log.to_string(),
                    engine.conf(),
                    engine.is_stored(),
                    raft.election_elapsed,
                    engine.elections.pause,
                )
            }
        };
        self.machines.iter().map(describe).collect::<Vec<_>>().join("\n")
    }
}

impl Machine {
    /// The first start.
    fn begin(&mut self, id: NodeId) {
        if self.founders.is_empty() {
            self.engine = Some(Engine::join(id, self.seed));
        } else {
            self.state = State { index: 1, digest: 0 };
            self.engine = Some(Engine::found(id, &self.founders, self.state.encode(), self.seed));
        }
    }

    fn carry_out(&mut self, write: &Write) {
        for key in self.disk.range(write.remove.clone()).map(|(key, _)| *key).collect::<Vec<_>>() {
            self.disk.remove(&key);
        }
        self.disk.extend(write.put.iter().cloned());
    }
}

impl Checks {
    /// All who have applied the same index have applied the same commands, all of them.
    fn on_state(&mut self, id: NodeId, state: State, term: u64) -> Checked {
        self.term = self.term.max(term);
        let known = *self.states.entry(state.index).or_insert(state.digest);
        if known == state.digest { Ok(()) } else { Err(format!("{id} differs from others at index {}", state.index)) }
    }

    /// A term has one leader.
    fn on_leader(&mut self, id: NodeId, term: u64) -> Checked {
        let known = *self.leaders.entry(term).or_insert(id);
        if known == id { Ok(()) } else { Err(format!("{known} and {id} lead in term {term}")) }
    }

    /// Nobody is confirmed who was replaced before it asked.
    fn on_confirmed(&mut self, id: NodeId, batch: u64, term: u64) -> Checked {
        let asked = self.asked.remove(&(id, batch)).ok_or(format!("{id} is confirmed twice, or never asked"))?;
        self.confirmed += 1;
        let (own_term, committed) = asked;
        if own_term != term || committed > term {
            return Err(format!(
                "{id} is confirmed in term {term}, asked in {own_term} when {committed} had committed"
            ));
        }
        Ok(())
    }
}
