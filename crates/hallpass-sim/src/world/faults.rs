//! What happens to the nodes of a [`World`] from outside: they crash, restart, pause, join and leave.

use hallpass_core::{Input, NodeId, Protocol};

use super::{Phase, Request, World};
use crate::FaultEvent;
use crate::trace::EventKind;

impl<P: Protocol> World<'_, P> {
    pub(super) fn on_fault(&mut self, event: FaultEvent) {
        match event {
            FaultEvent::Crash(id) => {
                if let Some(index) = self.index_of_running(id) {
                    self.record(index, EventKind::Crash);
                    self.stop(index);
                }
            }
            FaultEvent::Restart(id) => {
                if let Some(index) = self.index_of_stopped(id) {
                    self.restart(index, false);
                }
            }
            FaultEvent::Pause(id) => {
                if let Some(index) = self.index_of(id) {
                    self.nodes[index].paused = true;
                    self.record(index, EventKind::Pause);
                }
            }
            FaultEvent::Resume(id) => {
                if let Some(index) = self.index_of(id) {
                    self.resume(index);
                }
            }
            FaultEvent::Partition(side) => {
                let names: Vec<String> = side.iter().map(NodeId::to_string).collect();
                self.record(0, EventKind::Network(format!("cut: {} on one side", names.join(", "))));
                self.network.partition = Some(side);
            }
            FaultEvent::Heal => {
                self.record(0, EventKind::Network("mended".to_owned()));
                self.network.partition = None;
            }
            FaultEvent::Join(id) => {
                if let Some(index) = self.index_of_stopped(id) {
                    self.nodes[index].protocol = Some(self.new_protocol(id, self.nodes[index].incarnation));
                    self.record(index, EventKind::Join);
                    self.join(index);
                }
            }
            FaultEvent::Leave(id) => {
                if let Some(index) = self.index_of_running(id) {
                    self.record(index, EventKind::Leave);
                    self.nodes[index].member = false;
                    self.handle_input(index, Input::Leave);
                }
            }
        }
    }

    fn index_of_running(&self, id: NodeId) -> Option<usize> {
        self.index_of(id).filter(|index| self.nodes[*index].protocol.is_some())
    }

    fn index_of_stopped(&self, id: NodeId) -> Option<usize> {
        self.index_of(id).filter(|index| self.nodes[*index].protocol.is_none())
    }

    fn resume(&mut self, index: usize) {
        self.nodes[index].paused = false;
        self.record(index, EventKind::Resume);
        for event in std::mem::take(&mut self.nodes[index].parked) {
            self.handle_event(event);
        }
    }

    fn join(&mut self, index: usize) {
        let sponsors: Vec<NodeId> =
            self.nodes.iter().filter(|node| node.member && node.protocol.is_some()).map(|node| node.id).collect();
        if !sponsors.is_empty() {
            let sponsor = sponsors[self.rng.below(sponsors.len() as u64) as usize];
            self.handle_input(index, Input::Join { sponsor });
        } else if self.needs.recovery {
            // A node that returns to its old place needs no sponsor.
            self.handle_input(index, Input::Join { sponsor: self.nodes[index].id });
        }
    }

    /// Stops a node. Its waiting and holding callers are gone too.
    pub(super) fn stop(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.protocol = None;
        node.member = false;
        node.timers.clear();
        let abandoned = node.backlog.len() as u64 + u64::from(matches!(node.phase, Phase::Waiting(_)));
        node.backlog.clear();
        self.outstanding -= abandoned;
        self.stats.abandoned += abandoned;
        if let Phase::Inside { mode, .. } = std::mem::replace(&mut node.phase, Phase::Idle) {
            self.exclusion.on_exit(node.id, mode);
            self.outstanding -= 1;
        }
        self.note_state(index, self.trace.as_ref().map_or(0, Vec::len));
    }

    /// Starts a node with a new incarnation and no memory. `keep_callers`: a caller that was waiting asks again.
    pub(super) fn restart(&mut self, index: usize, keep_callers: bool) {
        self.nodes[index].timers.clear();
        self.nodes[index].incarnation += 1;
        let (id, incarnation) = (self.nodes[index].id, self.nodes[index].incarnation);
        self.nodes[index].protocol = Some(self.new_protocol(id, incarnation));
        self.record(index, EventKind::Restart);
        if !self.needs.membership && !self.needs.recovery {
            self.nodes[index].member = true;
            return;
        }
        self.nodes[index].member = false;
        self.join(index);
        if let (true, Phase::Waiting(Request { mode, .. })) = (keep_callers, self.nodes[index].phase) {
            let draw = self.rng.next_u64() as u32;
            self.handle_input(index, Input::Acquire { mode, draw });
        }
    }
}
