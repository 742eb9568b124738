//! Small handmade traces for the tests of the formats.

use hallpass_core::{Mode, NodeId};

use super::{Event, EventKind, Scale, Trace};

pub(super) fn event(at: u64, node: u32, kind: EventKind) -> Event {
    Event { at, node: NodeId(node), kind }
}

pub(super) fn send(to: u32, id: u64, kind: &'static str, text: &str) -> EventKind {
    EventKind::Send { to: NodeId(to), id, kind, text: text.into() }
}

pub(super) fn deliver(from: u32, id: u64, kind: &'static str, text: &str) -> EventKind {
    EventKind::Deliver { from: NodeId(from), id, kind, text: text.into() }
}

pub(super) fn lose(from: u32, id: u64, kind: &'static str, text: &str) -> EventKind {
    EventKind::Lose { from: NodeId(from), id, kind, text: text.into() }
}

fn steps(title: &str, nodes: u32, events: Vec<Event>) -> Trace {
    Trace { title: title.into(), nodes: (1..=nodes).map(NodeId).collect(), scale: Scale::Steps, events }
}

/// One entry of node 1, and a message that is lost and whose name needs escaping.
pub(super) fn two_nodes() -> Trace {
    let events = vec![
        event(0, 1, EventKind::Request(Mode::Exclusive)),
        event(0, 1, send(2, 1, "REQUEST", "REQUEST(1)")),
        event(1000, 2, deliver(1, 1, "REQUEST", "REQUEST(1)")),
        event(1000, 2, send(1, 2, "REPLY", "REPLY(1)")),
        event(2500, 1, deliver(2, 2, "REPLY", "REPLY(1)")),
        event(2500, 1, EventKind::Enter { mode: Mode::Exclusive, fence: 4 }),
        event(3500, 1, EventKind::Exit),
        event(4000, 2, send(1, 3, "PROBE", "PROBE<&\">")),
        event(4500, 1, lose(2, 3, "PROBE", "PROBE<&\">")),
    ];
    Trace { scale: Scale::Time { tick: 1000 }, ..steps("two nodes", 2, events) }
}

/// The second message arrives before the first.
pub(super) fn overtaking() -> Trace {
    let events = vec![
        event(0, 1, send(2, 1, "REPLY", "REPLY(1)")),
        event(1, 1, send(2, 2, "REQUEST", "REQUEST(2)")),
        event(2, 2, deliver(1, 2, "REQUEST", "REQUEST(2)")),
        event(3, 2, deliver(1, 1, "REPLY", "REPLY(1)")),
    ];
    steps("overtaking", 2, events)
}

/// Two copies of one message under the same id.
pub(super) fn broadcast() -> Trace {
    let events = vec![
        event(0, 1, send(2, 1, "REQUEST", "REQUEST(1)")),
        event(0, 1, send(3, 1, "REQUEST", "REQUEST(1)")),
        event(1, 2, deliver(1, 1, "REQUEST", "REQUEST(1)")),
        event(1, 3, deliver(1, 1, "REQUEST", "REQUEST(1)")),
    ];
    steps("broadcast", 3, events)
}

/// A short way to a violation: a writer enters beside a reader.
pub(super) fn violation() -> Trace {
    let text = "exclusion: node 2 entered exclusively while 1 reader was inside";
    let events = vec![
        event(1, 1, EventKind::Request(Mode::Shared)),
        event(1, 1, send(2, 1, "REQUEST", "REQUEST(1, shared)")),
        event(2, 2, deliver(1, 1, "REQUEST", "REQUEST(1, shared)")),
        event(2, 2, send(1, 2, "REPLY", "REPLY(1)")),
        event(3, 2, EventKind::Request(Mode::Exclusive)),
        event(3, 2, send(1, 3, "REQUEST", "REQUEST(0)")),
        event(4, 1, deliver(2, 3, "REQUEST", "REQUEST(0)")),
        event(4, 1, send(2, 4, "REPLY", "REPLY(0)")),
        event(5, 1, deliver(2, 2, "REPLY", "REPLY(1)")),
        event(5, 1, EventKind::Enter { mode: Mode::Shared, fence: 1 }),
        event(6, 2, deliver(1, 4, "REPLY", "REPLY(0)")),
        event(6, 2, EventKind::Enter { mode: Mode::Exclusive, fence: 1 }),
        event(6, 2, EventKind::Violation(text.into())),
    ];
    steps(text, 2, events)
}

/// Each kind of event at least once.
pub(super) fn everything() -> Trace {
    let events = vec![
        event(0, 1, EventKind::Request(Mode::Shared)),
        event(1, 1, EventKind::Cancel),
        event(2, 1, EventKind::Request(Mode::Exclusive)),
        event(3, 1, send(2, 1, "REQUEST", "REQUEST(1)")),
        event(4, 2, deliver(1, 1, "REQUEST", "REQUEST(1)")),
        event(5, 2, send(1, 2, "REPLY", "REPLY(1)")),
        event(6, 1, lose(2, 2, "REPLY", "REPLY(1)")),
        event(7, 1, EventKind::Enter { mode: Mode::Exclusive, fence: 1 }),
        event(8, 2, EventKind::Enter { mode: Mode::Shared, fence: 1 }),
        event(8, 2, EventKind::Violation("nodes 1 & 2 are inside".into())),
        event(9, 1, EventKind::Exit),
        event(10, 2, EventKind::Exit),
        event(11, 1, EventKind::Timer("retry".into())),
        event(12, 1, EventKind::Pause),
        event(13, 1, EventKind::Resume),
        event(14, 1, EventKind::Crash),
        event(15, 1, EventKind::Restart),
        event(16, 3, EventKind::Join),
        event(17, 3, EventKind::Joined),
        event(18, 1, EventKind::Network("cut 1 | 2, 3".into())),
        event(19, 3, EventKind::Leave),
        event(20, 3, EventKind::Left),
        event(21, 2, EventKind::Forget),
        event(22, 2, EventKind::Hold(Mode::Shared)),
    ];
    steps("everything", 3, events)
}
