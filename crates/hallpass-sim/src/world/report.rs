//! What a [`World`] measures, and the report it makes of it.

use hallpass_core::{NodeId, Protocol, Ticks};

use super::{Node, Phase, World};
use crate::oracle::Violation;
use crate::trace::{Scale, States, Trace};
use crate::{Delays, Report, Response, Spread};

pub(super) struct Stats {
    pub(super) response_times: Vec<u64>,
    sync_sum: f64,
    sync_count: u64,
    sync_max: Ticks,
    pub(super) spread: Spread,
    pub(super) abandoned: u64,
}

impl Stats {
    pub(super) fn new(entries: u64) -> Self {
        Self {
            response_times: Vec::with_capacity(entries.min(1 << 24) as usize),
            sync_sum: 0.0,
            sync_count: 0,
            sync_max: 0,
            spread: Spread::default(),
            abandoned: 0,
        }
    }

    pub(super) fn add_sync_delay(&mut self, delay: Ticks) {
        self.sync_sum += delay as f64;
        self.sync_count += 1;
        self.sync_max = self.sync_max.max(delay);
    }

    fn sync_delay(&self, tick: f64) -> Delays {
        Delays { mean: self.sync_sum / self.sync_count.max(1) as f64 / tick, max: self.sync_max as f64 / tick }
    }
}

impl<P: Protocol> World<'_, P> {
    pub(super) fn into_report(mut self) -> Report {
        self.check_end();
        let tick = self.config.tick() as f64;
        let entries: u64 = self.nodes.iter().map(|node| node.entries).sum();
        Report {
            protocol: String::new(),
            nodes: self.config.nodes.len(),
            seed: self.config.seed,
            entries,
            messages: self.messages.total(),
            messages_per_entry: self.messages.total() as f64 / entries.max(1) as f64,
            messages_by_kind: self.messages.by_kind().to_vec(),
            sync_delay: self.stats.sync_delay(tick),
            response_time: Response::of(&mut self.stats.response_times, tick),
            entries_by_node: self
                .nodes
                .iter()
                .filter(|node| node.id != NodeId::SERVER || !self.needs.server)
                .map(|node| (node.id.0, node.entries))
                .collect(),
            max_overtakes: self.overtaking.worst(),
            events: self.events,
            violations: self.violations,
            spread: self.stats.spread,
            trace: self.trace.map(|events| Trace {
                title: String::new(),
                nodes: self.nodes.iter().map(|node| node.id).collect(),
                scale: Scale::Time { tick: self.config.tick() },
                events,
            }),
            states: self.states.map(States::into_changes).unwrap_or_default(),
            abandoned: self.stats.abandoned,
            duration: self.now as f64 / tick,
        }
    }

    /// Every request must have been served, and the run must have ended without being stopped.
    fn check_end(&mut self) {
        let waits = |node: &&Node<P>| matches!(node.phase, Phase::Waiting(_));
        let waiting: Vec<NodeId> = self.nodes.iter().filter(waits).map(|node| node.id).collect();
        if let Some(violation) = self.progress.on_end(&waiting) {
            self.report_violation(self.index_of(waiting[0]).unwrap_or(0), violation);
        }
        if self.is_runaway() {
            let (events, in_flight) = (self.events, self.network.in_flight);
            let text = format!("the run does not end: {events} events, {in_flight} messages under way");
            self.report_violation(0, Violation { property: "progress", text });
        }
        if self.issued < self.config.entries && waiting.is_empty() {
            let text =
                format!("nobody was left to ask: {} of {} requests were issued", self.issued, self.config.entries);
            self.report_violation(0, Violation { property: "progress", text });
        }
    }
}
