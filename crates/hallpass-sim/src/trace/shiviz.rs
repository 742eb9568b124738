//! A trace as a log for [ShiViz](https://bestchai.bitbucket.io/shiviz/), which draws and compares such logs.
//!
//! Each event takes two lines, the host with its vector clock and then the text:
//!
//! ```text
//! node1 {"node1":1}
//! 0.000 T asks
//! ```
//!
//! The regular expression that reads this is
//!
//! ```text
//! (?<host>\S*) (?<clock>{.*})\n(?<event>.*)
//! ```
//!
//! ShiViz's own default expects the text first, so the expression has to be given. The log opens with the two lines
//! that ShiViz expects at the head of an uploaded file: this expression and the (empty) delimiter between executions. If
//! the log is pasted into the page, the expression goes into its own field; the two lines do no harm there, since ShiViz
//! skips what does not match.

use std::collections::BTreeMap;
use std::fmt::Write;

use hallpass_core::NodeId;

use super::text::{describe, timestamp};
use super::{EventKind, Trace};

/// The expression with which ShiViz parses an event.
const EXPRESSION: &str = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)";

/// A vector clock: how many events of each node are known. A missing node counts 0.
type Clock = BTreeMap<NodeId, u64>;

/// The trace as a log for ShiViz, with vector clocks computed from sends and deliveries.
///
/// The loss of a message is an event of its receiver, without a connection to the sender.
pub fn render(trace: &Trace) -> String {
    let mut out = format!("{EXPRESSION}\n\n");
    for (event, clock) in trace.events.iter().zip(clocks(trace)) {
        let entries: Vec<String> = clock.iter().map(|(node, count)| format!("\"node{node}\":{count}")).collect();
        writeln!(out, "node{} {{{}}}", event.node, entries.join(",")).expect("writing to a String cannot fail");
        writeln!(out, "{} {}", timestamp(trace.scale, event.at), describe(&event.kind))
            .expect("writing to a String cannot fail");
    }
    out
}

/// Each event's vector clock.
///
/// A crash does not reset a node's clock: ShiViz requires that a host's own count grows by one with each event.
fn clocks(trace: &Trace) -> Vec<Clock> {
    let mut now: BTreeMap<NodeId, Clock> = BTreeMap::new();
    // By receiver as well as id, because the copies of a broadcast may share one id.
    let mut sent: BTreeMap<(u64, NodeId), Clock> = BTreeMap::new();
    let mut clocks = Vec::with_capacity(trace.events.len());
    for event in &trace.events {
        let clock = now.entry(event.node).or_default();
        *clock.entry(event.node).or_default() += 1;
        match &event.kind {
            EventKind::Send { to, id, .. } => {
                sent.insert((*id, *to), clock.clone());
            }
            EventKind::Deliver { id, .. } => {
                for (node, count) in sent.get(&(*id, event.node)).into_iter().flatten() {
                    let known = clock.entry(*node).or_default();
                    *known = (*known).max(*count);
                }
            }
            _ => {}
        }
        clocks.push(clock.clone());
    }
    clocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::sample;

    #[test]
    fn clocks_follow_sends_and_deliveries() {
        let log = render(&sample::two_nodes());
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines[0], r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)");
        assert_eq!(lines[1], "");
        let expected = [
            r#"node1 {"node1":1}"#,
            r#"node1 {"node1":2}"#,
            r#"node2 {"node1":2,"node2":1}"#,
            r#"node2 {"node1":2,"node2":2}"#,
            r#"node1 {"node1":3,"node2":2}"#,
            r#"node1 {"node1":4,"node2":2}"#,
            r#"node1 {"node1":5,"node2":2}"#,
            r#"node2 {"node1":2,"node2":3}"#,
            // A lost message does not advance its receiver's clock.
            r#"node1 {"node1":6,"node2":2}"#,
        ];
        let clocks: Vec<&str> = lines[2..].iter().step_by(2).copied().collect();
        assert_eq!(clocks, expected);
        assert_eq!(lines[5], "0.000 T sends REQUEST(1) to 2");
    }

    #[test]
    fn a_later_clock_is_not_pulled_back_by_an_older_message() {
        let trace = sample::overtaking();
        let last = clocks(&trace).pop().unwrap();
        assert_eq!(last, Clock::from([(NodeId(1), 2), (NodeId(2), 2)]));
    }

    #[test]
    fn a_broadcast_under_one_id_ties_each_receiver_to_its_own_copy() {
        let clocks = clocks(&sample::broadcast());
        assert_eq!(clocks[2], Clock::from([(NodeId(1), 1), (NodeId(2), 1)]));
        assert_eq!(clocks[3], Clock::from([(NodeId(1), 2), (NodeId(3), 1)]));
    }

    #[test]
    fn hosts_count_their_own_events_from_one_without_gaps() {
        let trace = sample::everything();
        let mut counts: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (event, clock) in trace.events.iter().zip(clocks(&trace)) {
            let count = counts.entry(event.node).or_default();
            *count += 1;
            assert_eq!(clock[&event.node], *count);
        }
    }
}
