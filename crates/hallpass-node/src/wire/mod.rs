//! How nodes talk: a [`Hello`] first, then [`Frame`]s, each with a length, a version, its number on the link and
//! the message of one lock's protocol.

mod frame;
mod hello;
#[cfg(test)]
mod tests;

use hallpass_core::codec::{DecodeError, Reader};

use crate::Incarnation;

pub use frame::{Attempt, Body, Frame, Header};
pub(crate) use frame::{Outgoing, write};
pub use hello::Hello;
pub(crate) use hello::LABEL_MAX;

/// The version this code speaks.
pub const VERSION: u8 = 1;
/// No frame is longer than this; a longer one is rejected before it is read.
pub const FRAME_MAX: usize = u16::MAX as usize;
/// No lock name is longer than this.
pub const NAME_MAX: usize = 255;

fn read_incarnation(bytes: &mut Reader<'_>) -> Result<Incarnation, DecodeError> {
    Incarnation::new(bytes.short()?).ok_or(DecodeError::Number)
}
