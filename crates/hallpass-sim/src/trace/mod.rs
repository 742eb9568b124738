//! What happened in a run, for people: as text, JSON, SVG, a page, or ShiViz's log.

mod axis;
mod diagram;
mod html;
mod json;
mod labels;
mod layout;
mod link;
#[cfg(test)]
mod sample;
mod shiviz;
mod svg;
mod text;

use hallpass_core::{Message, Mode, NodeId};

pub use html::render as to_html;
pub use json::render as to_json;
pub use link::link;
pub use shiviz::render as to_shiviz;
pub use svg::render as to_svg;
pub use text::render as to_text;

/// Everything that happened in a run, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What was run, in a line.
    pub title: String,
    /// All nodes that ever took part, in rising order.
    pub nodes: Vec<NodeId>,
    /// How `at` is to be read.
    pub scale: Scale,
    /// The events, in the order in which they happened; `at` never falls.
    pub events: Vec<Event>,
}

/// The unit of [`Event::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Virtual nanoseconds, of which so many make one T.
    Time {
        /// One T in nanoseconds, at least 1.
        tick: u64,
    },
    /// Steps: one number a step, without duration.
    Steps,
}

/// Something that happened at one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in the trace's scale.
    pub at: u64,
    /// The node.
    pub node: NodeId,
    /// What happened.
    pub kind: EventKind,
}

/// What happened at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The local caller asks.
    Request(Mode),
    /// The local caller gives up waiting.
    Cancel,
    /// The local caller is inside from here on.
    Enter {
        /// How.
        mode: Mode,
        /// The entry's fencing token.
        fence: u64,
    },
    /// The local caller has left.
    Exit,
    /// A message leaves. A broadcast is one of these for each receiver.
    Send {
        /// The receiver.
        to: NodeId,
        /// Ties the sending to its arrivals (two, if the network repeated the message; none, if it was lost).
        id: u64,
        /// The paper's name, such as `REQUEST`.
        kind: &'static str,
        /// The whole message, such as `REQUEST(3)`.
        text: String,
    },
    /// A message arrives.
    Deliver {
        /// The sender.
        from: NodeId,
        /// As in [`EventKind::Send`].
        id: u64,
        /// As in [`EventKind::Send`].
        kind: &'static str,
        /// As in [`EventKind::Send`].
        text: String,
    },
    /// A message to this node is gone: dropped by the network, or this node is down.
    Lose {
        /// The sender.
        from: NodeId,
        /// As in [`EventKind::Send`].
        id: u64,
        /// As in [`EventKind::Send`].
        kind: &'static str,
        /// As in [`EventKind::Send`].
        text: String,
    },
    /// A timer fires; its name.
    Timer(String),
    /// The node stops and forgets everything.
    Crash,
    /// The node starts anew.
    Restart,
    /// The node stands still.
    Pause,
    /// The node goes on.
    Resume,
    /// The node asks to join the group.
    Join,
    /// The node asks to leave the group.
    Leave,
    /// The node is a member now.
    Joined,
    /// The node has left.
    Left,
    /// The network is cut, or mended; in words.
    Network(String),
    /// Something that must not happen; in words.
    Violation(String),
}

impl EventKind {
    /// The arrival of a message, or its loss.
    pub(crate) fn arrival(from: NodeId, message: &impl Message, id: u64, lost: bool) -> Self {
        let (kind, text) = (message.kind(), message.to_string());
        if lost { Self::Lose { from, id, kind, text } } else { Self::Deliver { from, id, kind, text } }
    }
}
