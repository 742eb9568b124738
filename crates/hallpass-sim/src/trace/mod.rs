//! What happened in a run, as text, JSON, SVG, an HTML page, or a log for ShiViz.

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
mod states;
mod svg;
mod text;

use hallpass_core::{Message, Mode, NodeId};

pub use html::render as to_html;
pub use json::render as to_json;
pub use layout::columns_json;
pub use link::link;
pub use shiviz::render as to_shiviz;
pub use states::{StateChange, States};
pub use svg::render as to_svg;
pub use text::render as to_text;

/// Everything that happened in a run, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What was run, in one line.
    pub title: String,
    /// All nodes that ever took part, in ascending order.
    pub nodes: Vec<NodeId>,
    /// The unit of [`Event::at`].
    pub scale: Scale,
    /// The events, in the order in which they happened; `at` never decreases.
    pub events: Vec<Event>,
}

/// The unit of [`Event::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Virtual nanoseconds.
    Time {
        /// One T in nanoseconds, at least 1.
        tick: u64,
    },
    /// The number of the step; steps have no duration.
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
    /// The local caller holds the lock already when the run begins.
    Hold(Mode),
    /// The local caller asks to enter.
    Request(Mode),
    /// The local caller asks to enter, but does not wait for a holder.
    Try(Mode),
    /// The local caller gives up waiting.
    Cancel,
    /// The local caller's attempt or upgrade is refused.
    Refused,
    /// The local caller, inside alone, goes on in shared mode.
    Downgrade,
    /// The local caller, inside in shared mode, asks to be alone.
    Upgrade,
    /// The node gives up what it keeps and does not use.
    GiveBack,
    /// The local caller enters.
    Enter {
        /// Whether it shares the critical section.
        mode: Mode,
        /// The entry's fencing token.
        fence: u64,
    },
    /// The local caller leaves.
    Exit,
    /// A message is sent. A broadcast is one of these for each receiver.
    Send {
        /// The receiver.
        to: NodeId,
        /// Connects the message to its arrivals: two if the network duplicated it, none if it is still in flight at the end.
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
    /// A message to this node is lost: the network dropped it, or this node is down.
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
    /// The node forgets a lock that is idle.
    Forget,
    /// The timer of this name fires.
    Timer(String),
    /// The node stops and forgets everything.
    Crash,
    /// The node starts again.
    Restart,
    /// The node stops handling and sending anything.
    Pause,
    /// The node continues.
    Resume,
    /// The node asks to join the group.
    Join,
    /// The node asks to leave the group.
    Leave,
    /// The node is a member now.
    Joined,
    /// The node has left.
    Left,
    /// A partition begins or ends; in words.
    Network(String),
    /// A property is violated; in words.
    Violation(String),
}

impl EventKind {
    /// The arrival of a message, or its loss.
    pub(crate) fn arrival(from: NodeId, message: &impl Message, id: u64, lost: bool) -> Self {
        let (kind, text) = (message.kind(), message.to_string());
        if lost { Self::Lose { from, id, kind, text } } else { Self::Deliver { from, id, kind, text } }
    }
}
