//! A trace as one JSON document, for programs.
//!
//! ```json
//! {
//! "title": "..",
//! "nodes": [1,2],
//! "scale": {"unit":"T","tick":1000000},
//! "events": [
//! {"at":0,"node":1,"event":"send","to":2,"id":7,"kind":"REQUEST","message":"REQUEST(1)"},
//! ..
//! ]
//! }
//! ```
//!
//! `at` is in virtual nanoseconds, and `tick` of them are one T; with `{"unit":"step"}` it is a step's number. `event` is
//! one of `hold`, `request`, `cancel`, `enter`, `exit`, `send`, `deliver`, `lose`, `forget`, `timer`, `crash`, `restart`,
//! `pause`, `resume`, `join`, `leave`, `joined`, `left`, `network`, `violation`. Each event is on its own line, so that
//! two traces can be compared line by line.

use hallpass_core::Mode;
use serde::Serialize;

use super::{Event, EventKind, Scale, Trace};

/// The trace as a JSON document.
pub fn render(trace: &Trace) -> String {
    let nodes: Vec<u32> = trace.nodes.iter().map(|node| node.0).collect();
    let events: Vec<String> = trace.events.iter().map(|event| json(&EventRecord::from(event))).collect();
    format!(
        "{{\n\"title\": {},\n\"nodes\": {},\n\"scale\": {},\n\"events\": [\n{}\n]\n}}\n",
        json(&trace.title),
        json(&nodes),
        json(&ScaleRecord::from(trace.scale)),
        events.join(",\n")
    )
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("text and numbers are always JSON")
}

#[derive(Serialize)]
#[serde(tag = "unit")]
enum ScaleRecord {
    T {
        tick: u64,
    },
    #[serde(rename = "step")]
    Step,
}

impl From<Scale> for ScaleRecord {
    fn from(scale: Scale) -> Self {
        match scale {
            Scale::Time { tick } => ScaleRecord::T { tick },
            Scale::Steps => ScaleRecord::Step,
        }
    }
}

#[derive(Serialize)]
struct EventRecord<'a> {
    at: u64,
    node: u32,
    #[serde(flatten)]
    kind: KindRecord<'a>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum KindRecord<'a> {
    Hold {
        mode: &'static str,
    },
    Request {
        mode: &'static str,
    },
    Try {
        mode: &'static str,
    },
    Cancel,
    Refused,
    Downgrade,
    Upgrade,
    #[serde(rename = "give-back")]
    GiveBack,
    Enter {
        mode: &'static str,
        fence: u64,
    },
    Exit,
    Send {
        to: u32,
        id: u64,
        kind: &'a str,
        message: &'a str,
    },
    Deliver {
        from: u32,
        id: u64,
        kind: &'a str,
        message: &'a str,
    },
    Lose {
        from: u32,
        id: u64,
        kind: &'a str,
        message: &'a str,
    },
    Forget,
    Timer {
        text: &'a str,
    },
    Crash,
    Restart,
    Pause,
    Resume,
    Join,
    Leave,
    Joined,
    Left,
    Network {
        text: &'a str,
    },
    Violation {
        text: &'a str,
    },
}

impl<'a> From<&'a Event> for EventRecord<'a> {
    fn from(event: &'a Event) -> Self {
        EventRecord { at: event.at, node: event.node.0, kind: KindRecord::from(&event.kind) }
    }
}

impl<'a> From<&'a EventKind> for KindRecord<'a> {
    fn from(kind: &'a EventKind) -> Self {
        match kind {
            EventKind::Hold(mode) => KindRecord::Hold { mode: mode_name(*mode) },
            EventKind::Request(mode) => KindRecord::Request { mode: mode_name(*mode) },
            EventKind::Try(mode) => KindRecord::Try { mode: mode_name(*mode) },
            EventKind::Cancel => KindRecord::Cancel,
            EventKind::Refused => KindRecord::Refused,
            EventKind::Downgrade => KindRecord::Downgrade,
            EventKind::Upgrade => KindRecord::Upgrade,
            EventKind::GiveBack => KindRecord::GiveBack,
            EventKind::Enter { mode, fence } => KindRecord::Enter { mode: mode_name(*mode), fence: *fence },
            EventKind::Exit => KindRecord::Exit,
            EventKind::Send { to, id, kind, text } => KindRecord::Send { to: to.0, id: *id, kind, message: text },
            EventKind::Deliver { from, id, kind, text } => {
                KindRecord::Deliver { from: from.0, id: *id, kind, message: text }
            }
            EventKind::Lose { from, id, kind, text } => KindRecord::Lose { from: from.0, id: *id, kind, message: text },
            EventKind::Forget => KindRecord::Forget,
            EventKind::Timer(text) => KindRecord::Timer { text },
            EventKind::Crash => KindRecord::Crash,
            EventKind::Restart => KindRecord::Restart,
            EventKind::Pause => KindRecord::Pause,
            EventKind::Resume => KindRecord::Resume,
            EventKind::Join => KindRecord::Join,
            EventKind::Leave => KindRecord::Leave,
            EventKind::Joined => KindRecord::Joined,
            EventKind::Left => KindRecord::Left,
            EventKind::Network(text) => KindRecord::Network { text },
            EventKind::Violation(text) => KindRecord::Violation { text },
        }
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::trace::sample;

    fn parse(trace: &Trace) -> Value {
        serde_json::from_str(&render(trace)).expect("the document is JSON")
    }

    #[test]
    fn the_keys_are_as_documented() {
        let document = parse(&sample::two_nodes());
        assert_eq!(document["title"], "two nodes");
        assert_eq!(document["nodes"], json!([1, 2]));
        assert_eq!(document["scale"], json!({"unit": "T", "tick": 1000}));
        let events = document["events"].as_array().unwrap();
        assert_eq!(events.len(), sample::two_nodes().events.len());
        assert_eq!(events[0], json!({"at": 0, "node": 1, "event": "request", "mode": "exclusive"}));
        let send =
            json!({"at": 0, "node": 1, "event": "send", "to": 2, "id": 1, "kind": "REQUEST", "message": "REQUEST(1)"});
        assert_eq!(events[1], send);
        assert_eq!(events[5], json!({"at": 2500, "node": 1, "event": "enter", "mode": "exclusive", "fence": 4}));
        assert_eq!((&events[8]["event"], &events[8]["from"], &events[8]["id"]), (&json!("lose"), &json!(2), &json!(3)));
        assert_eq!((&events[8]["kind"], &events[8]["message"]), (&json!("PROBE"), &json!("PROBE<&\">")));
    }

    #[test]
    fn every_kind_of_event_has_its_own_name() {
        let document = parse(&sample::everything());
        let events = document["events"].as_array().unwrap();
        let names: std::collections::BTreeSet<_> =
            events.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(names.len(), 20);
        assert_eq!(document["scale"], json!({"unit": "step"}));
    }

    #[test]
    fn an_empty_trace_is_a_document_too() {
        let trace = Trace { title: "\"\n</script>".into(), nodes: vec![], scale: Scale::Steps, events: vec![] };
        let document = parse(&trace);
        assert_eq!(document["title"], "\"\n</script>");
        assert_eq!(document["events"], json!([]));
    }
}
