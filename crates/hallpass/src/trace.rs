use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hallpass_node::TapId;

use crate::driver::Driver;
use crate::os::now;

/// Watches the messages of one lock, as this node sends and receives them, until it is dropped: for people who want to see how
/// the members agree.
///
/// A lock that is used by one node alone causes no messages.
pub struct Trace {
    driver: Arc<Driver>,
    tap: TapId,
}

/// A message of a lock's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedMessage {
    /// How long ago it was.
    pub ago: Duration,
    /// The other member's number.
    pub peer: u32,
    /// It was sent to that member; else it came from there.
    pub is_sent: bool,
    /// The paper's name for it, such as `REQUEST`.
    pub kind: &'static str,
    /// All of it.
    pub text: String,
}

impl Trace {
    /// None if too many watch already.
    pub(crate) fn new(driver: &Arc<Driver>, lock: &str) -> Option<Self> {
        let tap = driver.state().node.open_tap(lock)?;
        Some(Self { driver: Arc::clone(driver), tap })
    }

    /// The messages since the last call, and how many older ones were not kept: a thousand are.
    pub fn take(&self) -> (Vec<TracedMessage>, u64) {
        let (messages, missed) = self.driver.state().node.take_traced(self.tap);
        let now = now();
        let message = |message: hallpass_node::TracedMessage| TracedMessage {
            ago: Duration::from_nanos(now.saturating_sub(message.at)),
            peer: message.peer.0,
            is_sent: message.is_sent,
            kind: message.kind,
            text: message.text,
        };
        (messages.into_iter().map(message).collect(), missed)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.driver.state().node.close_tap(self.tap);
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}
