//! The workload of a [`World`]: which nodes make requests, and when they enter and leave the critical section.

use hallpass_core::{Fence, Input, Mode, NodeId, Protocol, Ticks};

use super::{Event, Node, Phase, Request, World};
use crate::Load;
use crate::oracle::{Violation, check_bound};
use crate::trace::EventKind;

impl<P: Protocol> Node<P> {
    fn can_request(&self) -> bool {
        self.member && self.protocol.is_some() && !self.paused
    }
}

impl<P: Protocol> World<'_, P> {
    pub(super) fn start_load(&mut self) {
        match self.config.load {
            Load::Saturated => self.request_on_idle_nodes(),
            Load::Rate(_) => self.schedule_arrival(),
            Load::Light | Load::Hotspot(_) => self.request_next(),
        }
    }

    fn request_on_idle_nodes(&mut self) {
        for index in 0..self.nodes.len() {
            // All at once may be more messages than fit into memory; the run ends at its first event then.
            if self.is_runaway() {
                break;
            }
            self.request_if_idle(index);
        }
    }

    fn request_if_idle(&mut self, index: usize) {
        let node = &self.nodes[index];
        if node.can_request() && node.phase == Phase::Idle && self.issued < self.config.entries {
            let request = self.issue(index);
            self.begin(index, request);
        }
    }

    /// Makes the requests that follow an event rather than a clock.
    pub(super) fn request_next(&mut self) {
        match self.config.load {
            Load::Light | Load::Hotspot(_) if self.outstanding == 0 && self.network.in_flight == 0 => {
                if self.issued < self.config.entries
                    && let Some(index) = self.draw_node()
                {
                    let request = self.issue(index);
                    self.begin(index, request);
                }
            }
            // Founding members request again as they leave; nodes that joined or restarted later begin here.
            Load::Saturated if self.needs.membership || self.needs.recovery => self.request_on_idle_nodes(),
            _ => {}
        }
    }

    fn schedule_arrival(&mut self) {
        if let (Load::Rate(rate), true) = (self.config.load, self.issued < self.config.entries) {
            let wait = self.rng.exponential(self.config.tick() as f64 / rate) as Ticks;
            self.queue.push(self.now + wait, Event::Arrival);
        }
    }

    pub(super) fn on_arrival(&mut self) {
        if self.issued >= self.config.entries {
            return;
        }
        match self.draw_node() {
            Some(index) => {
                let request = self.issue(index);
                if self.nodes[index].phase == Phase::Idle {
                    self.begin(index, request);
                } else {
                    // 'It must have a method for serializing those requests': first come, first served.
                    self.nodes[index].backlog.push_back(request);
                }
            }
            // No node can request, and none ever will.
            None if self.faults.is_empty() && self.network.in_flight == 0 => return,
            None => {}
        }
        self.schedule_arrival();
    }

    fn draw_node(&mut self) -> Option<usize> {
        let last = self.last_entered.filter(|_| self.config.load == Load::Light);
        // The lowest node that makes requests: a server has the lowest id of all, and makes none.
        let hot = usize::from(self.needs.server);
        if let Load::Hotspot(share) = self.config.load
            && self.nodes[hot].can_request()
            && self.rng.chance(share)
        {
            return Some(hot);
        }
        let skip_hot = matches!(self.config.load, Load::Hotspot(_)) && self.config.nodes.len() > 1;
        let can_request = |index: &usize| self.nodes[*index].can_request();
        let eligible = |index: &usize| can_request(index) && Some(*index) != last && !(skip_hot && *index == hot);
        let mut all = 0..self.nodes.len();
        let count = all.clone().filter(eligible).count() as u64;
        if count == 0 {
            return all.find(can_request);
        }
        let pick = self.rng.below(count) as usize;
        all.filter(eligible).nth(pick)
    }

    fn draw_mode(&mut self) -> Mode {
        if self.rng.chance(self.config.readers) { Mode::Shared } else { Mode::Exclusive }
    }

    /// A new request of a node's caller.
    fn issue(&mut self, index: usize) -> Request {
        let mode = self.draw_mode();
        if self.outstanding == 0 {
            self.progress.on_progress(self.now); // Nobody has been waiting until now.
        }
        self.issued += 1;
        self.outstanding += 1;
        let own_entries = self.nodes[index].entries;
        Request { mode, since: self.now, entries: self.overtaking.on_request(), own_entries }
    }

    /// Passes a request on to the node's protocol.
    fn begin(&mut self, index: usize, request: Request) {
        let mode = request.mode;
        self.nodes[index].phase = Phase::Waiting(request);
        self.record(index, EventKind::Request(mode));
        // It is at home already.
        self.note_arrival(self.nodes[index].id, index);
        let draw = self.rng.next_u64() as u32;
        self.handle_input(index, Input::Acquire { mode, draw });
        if self.watch_numbers {
            let numbers = || self.nodes.iter().filter_map(|node| node.protocol.as_ref()?.request_number());
            let gap = numbers().max().unwrap_or(0) - numbers().min().unwrap_or(0);
            self.stats.spread.widest = self.stats.spread.widest.max(gap);
        }
    }

    /// A request has come to this node, which may be the lock's home.
    pub(super) fn note_arrival(&mut self, from: NodeId, at: usize) {
        let Node { id, protocol: Some(protocol), .. } = &self.nodes[at] else { return };
        let asker = self.index_of(from).filter(|_| protocol.home() == Some(*id));
        if let Some(Phase::Waiting(request)) = asker.map(|asker| self.nodes[asker].phase) {
            self.arrivals.on_arrival(from, request.mode);
        }
    }

    /// The home's part, as a node knows its home.
    fn home_of(&self, index: usize) -> Option<&P> {
        let home = self.nodes[index].protocol.as_ref()?.home()?;
        self.nodes[self.index_of(home)?].protocol.as_ref()
    }

    pub(super) fn on_enter(&mut self, index: usize, fence: Fence) {
        let id = self.nodes[index].id;
        let Phase::Waiting(Request { mode, since, entries, own_entries }) = self.nodes[index].phase else {
            let text = format!("node {id} entered without having asked");
            return self.report_violation(index, Violation { property: "protocol", text });
        };
        self.record(index, EventKind::Enter { mode, fence: fence.get() });
        let violations = [
            self.exclusion.on_enter(id, mode),
            if self.needs.fences { self.fences.on_enter(id, mode, fence) } else { None },
            self.overtaking.on_enter(id, entries, self.nodes[index].entries - own_entries),
            self.arrivals.on_enter(id, mode),
            self.home_of(index)
                .and_then(|home| home.fence_bound())
                .and_then(|bound| check_bound(mode, fence.count(), bound)),
        ];
        violations.into_iter().flatten().for_each(|violation| self.report_violation(index, violation));
        self.progress.on_progress(self.now);
        self.stats.response_times.push(self.now - since);
        if let Some(freed_at) = self.freed_at.take() {
            self.stats.add_sync_delay(self.now - freed_at);
        }
        self.last_entered = Some(index);
        let node = &mut self.nodes[index];
        node.entries += 1;
        let entry = node.entries;
        node.phase = Phase::Inside { mode, entry };
        self.queue.push(self.now + self.config.hold, Event::Exit { node: index as u32, entry });
    }

    pub(super) fn on_exit(&mut self, index: usize, entry: u64) {
        let Phase::Inside { mode, entry: current } = self.nodes[index].phase else { return };
        if current != entry {
            return;
        }
        if self.nodes[index].paused {
            return self.nodes[index].parked.push(Event::Exit { node: index as u32, entry });
        }
        self.nodes[index].phase = Phase::Idle;
        self.outstanding -= 1;
        self.exclusion.on_exit(self.nodes[index].id, mode);
        let somebody_waits = self.nodes.iter().any(|node| matches!(node.phase, Phase::Waiting(_)));
        self.freed_at = (self.exclusion.is_free() && somebody_waits).then_some(self.now);
        self.record(index, EventKind::Exit);
        self.handle_input(index, Input::Release);
        if let Some(request) = self.nodes[index].backlog.pop_front() {
            return self.begin(index, request);
        }
        if self.config.load == Load::Saturated {
            self.request_if_idle(index);
        }
    }
}
