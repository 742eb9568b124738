//! How nodes talk: a [`Hello`] first, then [`Frame`]s, each with a length, a version, its place on the link and the message
//! of one lock's protocol.

mod frame;
mod hello;
#[cfg(test)]
mod tests;

pub use frame::{Body, Frame, Header};
pub(crate) use frame::{Outgoing, write};
pub use hello::Hello;
pub(crate) use hello::LABEL_MAX;

/// The version this code speaks.
pub const VERSION: u8 = 1;
/// No frame is longer than this; a longer one is refused before it is read.
pub const FRAME_MAX: usize = u16::MAX as usize;
/// No lock name is longer than this.
pub const NAME_MAX: usize = 255;
