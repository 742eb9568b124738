//! What the view layer asks of the node around it.

use hallpass_core::{NodeId, Ticks, View};

use crate::config::Class;
use crate::links::Sender;
use crate::locks::HeldLock;
use crate::output::{Ordered, RequestError, Ticket, Write};

/// What the node is to do, in order.
pub(crate) enum Action {
    Persist(Write),
    Send {
        to: NodeId,
        bytes: Vec<u8>,
    },
    /// Connections and links are to be made or given up.
    Peers,
    /// The view is over: close the locks, and say what is held by [`Views::on_closed`](super::Views::on_closed).
    Close,
    Open(Box<Opening>),
    /// The session is over: nothing is held any more.
    Lapse,
    /// This node is another incarnation from now on: all its links begin again.
    BeginLinks,
    /// The holders of this lock lose it at that time.
    Break {
        from: NodeId,
        token: u64,
        lock: String,
        at: Ticks,
    },
    Revoke(Ticket),
    /// Its connections are to be closed, on both planes.
    Refuse(NodeId),
    /// A message was dropped that this node may not send.
    Denied {
        from: NodeId,
        name: String,
        message: &'static str,
    },
    Ordered(Ordered),
    Done {
        token: u64,
        result: Result<(), RequestError>,
    },
    View,
}

/// A view begins.
pub(crate) struct Opening {
    pub(crate) sender: Sender,
    pub(crate) view: View,
    pub(crate) classes: Vec<Class>,
    pub(crate) holders: Vec<HeldLock>,
}
