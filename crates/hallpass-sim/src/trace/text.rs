//! A trace as lines of text: the time, the node, and what happened.

use std::fmt::{self, Write};

use hallpass_core::Mode;

use super::{Event, EventKind, Scale, Trace};

/// The trace as text: the title, then one line per event.
///
/// ```text
/// Ricart-Agrawala, Figure 1
///    0.000 T  1  asks
///    0.000 T  1  sends REQUEST(1) to 2
///    1.000 T  2  receives REQUEST(1) from 1
/// ```
pub fn render(trace: &Trace) -> String {
    let times: Vec<String> = trace.events.iter().map(|event| timestamp(trace.scale, event.at)).collect();
    // At least as wide as `  12.500 T`, so that short traces line up with each other.
    let width_min = if trace.scale == Scale::Steps { 4 } else { 10 };
    let width_time = times.iter().map(String::len).max().unwrap_or(0).max(width_min);
    let width_node = trace.events.iter().map(|event| event.node.to_string().len()).max().unwrap_or(0);

    let mut out = one_line(&trace.title);
    out.push('\n');
    for (event, time) in trace.events.iter().zip(&times) {
        let node = event.node.to_string();
        writeln!(out, "{time:>width_time$}  {node:>width_node$}  {}", describe(&event.kind))
            .expect("writing to a String cannot fail");
    }
    out
}

/// A time for people: `12.500 T`, or the step's number.
pub(super) fn timestamp(scale: Scale, at: u64) -> String {
    match scale {
        Scale::Steps => at.to_string(),
        Scale::Time { tick } => {
            // In integers, so that a trace gives the same text on every machine.
            let tick = u128::from(tick.max(1));
            let thousandths = (u128::from(at) * 1000 + tick / 2) / tick;
            format!("{}.{:03} T", thousandths / 1000, thousandths % 1000)
        }
    }
}

impl fmt::Display for Event {
    /// The event without its time, such as `1 sends REQUEST(1) to 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.node, describe(&self.kind))
    }
}

/// What happened, in one line that follows the node's name.
pub(super) fn describe(kind: &EventKind) -> String {
    let words = match kind {
        EventKind::Hold(Mode::Exclusive) => "is inside from the start".into(),
        EventKind::Hold(Mode::Shared) => "is inside from the start, shared".into(),
        EventKind::Request(Mode::Exclusive) => "asks".into(),
        EventKind::Request(Mode::Shared) => "asks, shared".into(),
        EventKind::Try(Mode::Exclusive) => "tries".into(),
        EventKind::Try(Mode::Shared) => "tries, shared".into(),
        EventKind::Cancel => "gives up".into(),
        EventKind::Refused => "is refused".into(),
        EventKind::Downgrade => "goes on, shared".into(),
        EventKind::Upgrade => "asks to be alone".into(),
        EventKind::GiveBack => "gives the unused lock back".into(),
        EventKind::Enter { mode: Mode::Exclusive, fence } => format!("enters, fence {fence}"),
        EventKind::Enter { mode: Mode::Shared, fence } => format!("enters, shared, fence {fence}"),
        EventKind::Exit => "leaves".into(),
        EventKind::Send { to, text, .. } => format!("sends {text} to {to}"),
        EventKind::Deliver { from, text, .. } => format!("receives {text} from {from}"),
        EventKind::Lose { from, text, .. } => format!("loses {text} from {from}"),
        EventKind::Forget => "forgets the idle lock".into(),
        EventKind::Timer(name) => format!("timer {name} fires"),
        EventKind::Crash => "crashes".into(),
        EventKind::Restart => "restarts".into(),
        EventKind::Pause => "pauses".into(),
        EventKind::Resume => "resumes".into(),
        EventKind::Join => "asks to join the group".into(),
        EventKind::Leave => "asks to leave the group".into(),
        EventKind::Joined => "is a member".into(),
        EventKind::Left => "has left the group".into(),
        EventKind::Network(text) => format!("network: {text}"),
        EventKind::Violation(text) => format!("VIOLATION: {text}"),
    };
    one_line(&words)
}

/// Replaces line breaks and other control characters, for formats with one record per line.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use hallpass_core::NodeId;

    use super::*;
    use crate::trace::{Event, sample};

    #[test]
    fn one_aligned_line_an_event_after_the_title() {
        let text = render(&sample::two_nodes());
        let expected = "\
two nodes
   0.000 T  1  asks
   0.000 T  1  sends REQUEST(1) to 2
   1.000 T  2  receives REQUEST(1) from 1
   1.000 T  2  sends REPLY(1) to 1
   2.500 T  1  receives REPLY(1) from 2
   2.500 T  1  enters, fence 4
   3.500 T  1  leaves
   4.000 T  2  sends PROBE<&\"> to 1
   4.500 T  1  loses PROBE<&\"> from 2
";
        assert_eq!(text, expected);
    }

    #[test]
    fn columns_grow_with_their_contents() {
        let event = |at, node| Event { at, node: NodeId(node), kind: EventKind::Exit };
        let trace = Trace {
            title: "t".into(),
            nodes: vec![NodeId(7), NodeId(10)],
            scale: Scale::Steps,
            events: vec![event(1, 7), event(123_456, 10)],
        };
        assert_eq!(render(&trace), "t\n     1   7  leaves\n123456  10  leaves\n");
    }

    #[test]
    fn times_are_rounded_to_thousandths() {
        let scale = Scale::Time { tick: 3 };
        assert_eq!(timestamp(scale, 1), "0.333 T");
        assert_eq!(timestamp(scale, 2), "0.667 T");
        assert_eq!(timestamp(Scale::Time { tick: 1 }, u64::MAX), format!("{}.000 T", u64::MAX));
        assert_eq!(timestamp(Scale::Steps, 17), "17");
    }

    #[test]
    fn a_line_break_in_a_text_breaks_no_line() {
        assert_eq!(describe(&EventKind::Network("cut\n1 | 2".into())), "network: cut 1 | 2");
    }
}
