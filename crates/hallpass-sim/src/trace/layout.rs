//! The geometry of the space-time diagram.
//!
//! Each node has a lane, from top to bottom, the first at y = 0; time runs to the right. Simultaneous events of a node are
//! drawn at the same point.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_core::{Mode, NodeId};

use super::axis::Axis;
use super::labels::text_width;
use super::{EventKind, Trace};

/// The diagram's geometry, in pixels.
pub(super) struct Layout {
    /// The nodes, in the order of their lanes.
    pub(super) rows: Vec<NodeId>,
    /// The kinds of messages, in the order in which they are first sent.
    pub(super) kinds: Vec<&'static str>,
    /// The distance between two lanes.
    pub(super) lane: f64,
    /// Where the lifelines begin.
    pub(super) left: f64,
    /// Where the lifelines end.
    pub(super) right: f64,
    /// The position of each event; for a lost message, of its cross.
    pub(super) positions: Vec<(f64, f64)>,
    pub(super) arrows: Vec<Arrow>,
    pub(super) spans: Vec<Span>,
    /// The marks of the axis.
    pub(super) marks: Vec<(f64, String)>,
}

/// A message.
pub(super) struct Arrow {
    /// The index of the event that sent it.
    pub(super) send: usize,
    /// The index of the event that delivered or lost it.
    pub(super) end: Option<usize>,
    pub(super) outcome: Outcome,
    pub(super) from: (f64, f64),
    pub(super) to: (f64, f64),
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Delivered,
    Lost,
    /// Neither delivered nor lost by the end of the trace.
    InFlight,
}

/// A state of a node, from its begin to its end.
pub(super) struct Span {
    pub(super) row: usize,
    pub(super) state: State,
    pub(super) x0: f64,
    pub(super) x1: f64,
    /// The index of the event that began it; `None` if it lasts from the start.
    pub(super) first: Option<usize>,
    /// The index of the event that ended it; `None` if it lasts to the end.
    pub(super) last: Option<usize>,
}

/// The states that are drawn along a lifeline. A node can be in several at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Paused,
    Waiting,
    Inside(Mode),
    Down,
    /// Not a member of the group.
    Away,
}

/// The x coordinate of each event, so that other drawings of the same trace show one picture.
pub(super) fn columns(trace: &Trace) -> Vec<f64> {
    let axis = Axis::new(trace, 0.0);
    trace.events.iter().map(|event| axis.x(event.at)).collect()
}

/// The x coordinate of each event as a JSON list, to a tenth of a pixel.
pub fn columns_json(trace: &Trace) -> String {
    let columns: Vec<String> = columns(trace).into_iter().map(|x| ((x * 10.0).round() / 10.0).to_string()).collect();
    format!("[{}]", columns.join(","))
}

impl Layout {
    pub(super) fn new(trace: &Trace) -> Self {
        let rows = rows(trace);
        let lane = match rows.len() {
            0..=6 => 84.0,
            7..=12 => 64.0,
            _ => 48.0,
        };
        let names = rows.iter().map(|node| text_width(&node.to_string(), 13.0)).fold(0.0, f64::max);
        let left = (names + 48.0).round();
        let axis = Axis::new(trace, left);
        let right = axis.right + 24.0;
        let (kinds, marks) = (kinds(trace), axis.marks(trace));
        let mut layout =
            Layout { rows, kinds, lane, left, right, positions: vec![], arrows: vec![], spans: vec![], marks };
        layout.positions =
            trace.events.iter().map(|event| (axis.x(event.at), layout.y(layout.row(event.node)))).collect();
        layout.spans = layout.find_spans(trace);
        layout.arrows = layout.find_arrows(trace);
        for arrow in &layout.arrows {
            if let (Outcome::Lost, Some(end)) = (arrow.outcome, arrow.end) {
                layout.positions[end] = arrow.to;
            }
        }
        layout
    }

    /// The y coordinate of a lane.
    pub(super) fn y(&self, row: usize) -> f64 {
        row as f64 * self.lane
    }

    /// A node's lane.
    pub(super) fn row(&self, node: NodeId) -> usize {
        self.rows.binary_search(&node).expect("every node of the trace has a row")
    }

    /// The y coordinate of the lowest lane.
    pub(super) fn bottom(&self) -> f64 {
        self.y(self.rows.len().saturating_sub(1))
    }

    /// The parts of a lifeline in which the node is up and a member, from left to right.
    pub(super) fn alive(&self, row: usize) -> Vec<(f64, f64)> {
        let mut gaps: Vec<&Span> = self.spans.iter().filter(|span| span.row == row).collect();
        gaps.retain(|span| matches!(span.state, State::Down | State::Away));
        gaps.sort_by(|a, b| a.x0.total_cmp(&b.x0));
        let mut pieces = vec![];
        let mut x = self.left;
        for gap in gaps {
            if gap.x0 > x {
                pieces.push((x, gap.x0));
            }
            x = x.max(gap.x1);
        }
        if x < self.right {
            pieces.push((x, self.right));
        }
        pieces
    }

    fn find_arrows(&self, trace: &Trace) -> Vec<Arrow> {
        // By receiver as well as id, because the copies of a broadcast may share one id.
        let mut sends: BTreeMap<(u64, NodeId), usize> = BTreeMap::new();
        let mut ended: BTreeSet<usize> = BTreeSet::new();
        let mut arrows = vec![];
        for (index, event) in trace.events.iter().enumerate() {
            let (id, outcome) = match &event.kind {
                EventKind::Send { to, id, .. } => {
                    sends.insert((*id, *to), index);
                    continue;
                }
                EventKind::Deliver { id, .. } => (*id, Outcome::Delivered),
                EventKind::Lose { id, .. } => (*id, Outcome::Lost),
                _ => continue,
            };
            let Some(&send) = sends.get(&(id, event.node)) else { continue };
            ended.insert(send);
            let (from, mut to) = (self.positions[send], self.positions[index]);
            if outcome == Outcome::Lost && !self.is_gone(event.node, index) {
                // The network lost it, so the cross lies between the lifelines; if the receiver is down, on its lifeline.
                // The arrow slants even if the message was lost at once, to tell it from the sender's other events.
                let dx = (to.0 - from.0).max(30.0);
                to = (from.0 + dx * 0.6, from.1 + (to.1 - from.1) * 0.6);
            }
            arrows.push(Arrow { send, end: Some(index), outcome, from, to });
        }
        for (send, event) in trace.events.iter().enumerate() {
            if let EventKind::Send { to, .. } = &event.kind
                && !ended.contains(&send)
            {
                let from = self.positions[send];
                let down = (self.y(self.row(*to)) - from.1).signum();
                let to = (from.0 + 18.0, from.1 + down * self.lane * 0.3);
                arrows.push(Arrow { send, end: None, outcome: Outcome::InFlight, from, to });
            }
        }
        arrows
    }

    /// True if the node is down or not a member when this event happens.
    fn is_gone(&self, node: NodeId, index: usize) -> bool {
        let row = self.row(node);
        self.spans.iter().any(|span| {
            span.row == row
                && matches!(span.state, State::Down | State::Away)
                && span.first.is_none_or(|first| first < index)
                && span.last.is_none_or(|last| index < last)
        })
    }

    fn find_spans(&self, trace: &Trace) -> Vec<Span> {
        let mut spans = SpanFinder { layout: self, open: BTreeMap::new(), spans: vec![] };
        for row in 0..self.rows.len() {
            if joins_later(trace, self.rows[row]) {
                spans.open.insert((row, State::Away), None);
            }
        }
        for (index, event) in trace.events.iter().enumerate() {
            let row = self.row(event.node);
            for state in ended_by(&event.kind) {
                spans.close(row, *state, Some(index));
            }
            if let Some(state) = begun_by(&event.kind) {
                spans.open.entry((row, state)).or_insert(Some(index));
            }
        }
        for (row, state) in spans.open.keys().copied().collect::<Vec<_>>() {
            spans.close(row, state, None);
        }
        // In the order in which they are drawn, so that no thin bar is hidden by a thick one.
        spans.spans.sort_by_key(|span| (span.state, span.first));
        spans.spans
    }
}

struct SpanFinder<'a> {
    layout: &'a Layout,
    open: BTreeMap<(usize, State), Option<usize>>,
    spans: Vec<Span>,
}

impl SpanFinder<'_> {
    fn close(&mut self, row: usize, state: State, last: Option<usize>) {
        if let Some(first) = self.open.remove(&(row, state)) {
            let x0 = first.map_or(self.layout.left, |index| self.layout.positions[index].0);
            let x1 = last.map_or(self.layout.right, |index| self.layout.positions[index].0);
            self.spans.push(Span { row, state, x0, x1, first, last });
        }
    }
}

const INSIDE: [State; 2] = [State::Inside(Mode::Exclusive), State::Inside(Mode::Shared)];
const ENTER: [State; 3] = [State::Waiting, INSIDE[0], INSIDE[1]];
const CRASH: [State; 4] = [State::Waiting, INSIDE[0], INSIDE[1], State::Paused];

fn ended_by(kind: &EventKind) -> &'static [State] {
    match kind {
        EventKind::Cancel | EventKind::Refused => &[State::Waiting],
        EventKind::Enter { .. } => &ENTER,
        EventKind::Exit => &INSIDE,
        EventKind::Crash => &CRASH,
        EventKind::Restart => &[State::Down],
        EventKind::Resume => &[State::Paused],
        EventKind::Joined => &[State::Away],
        _ => &[],
    }
}

fn begun_by(kind: &EventKind) -> Option<State> {
    match kind {
        EventKind::Request(_) | EventKind::Try(_) | EventKind::Upgrade => Some(State::Waiting),
        EventKind::Hold(mode) | EventKind::Enter { mode, .. } => Some(State::Inside(*mode)),
        EventKind::Crash => Some(State::Down),
        EventKind::Pause => Some(State::Paused),
        EventKind::Left => Some(State::Away),
        _ => None,
    }
}

/// True if the node is not a founding member: the first event about its membership is that it joins.
fn joins_later(trace: &Trace, node: NodeId) -> bool {
    let mut events = trace.events.iter().filter(|event| event.node == node).map(|event| &event.kind);
    // A node that crashes or restarts was a member before.
    let first = events.find(|kind| {
        matches!(
            kind,
            EventKind::Join
                | EventKind::Joined
                | EventKind::Leave
                | EventKind::Left
                | EventKind::Crash
                | EventKind::Restart
        )
    });
    matches!(first, Some(EventKind::Join | EventKind::Joined))
}

/// All nodes that are listed or mentioned, in rising order.
fn rows(trace: &Trace) -> Vec<NodeId> {
    let mut rows: BTreeSet<NodeId> = trace.nodes.iter().copied().collect();
    for event in &trace.events {
        rows.insert(event.node);
        if let EventKind::Send { to, .. } = &event.kind {
            rows.insert(*to);
        }
    }
    rows.into_iter().collect()
}

fn kinds(trace: &Trace) -> Vec<&'static str> {
    let mut kinds = vec![];
    for event in &trace.events {
        if let EventKind::Send { kind, .. } = event.kind
            && !kinds.contains(&kind)
        {
            kinds.push(kind);
        }
    }
    kinds
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
