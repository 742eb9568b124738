//! How nodes talk: a [`Hello`] first, then [`Frame`]s, each with a length, a version, its number on the link and
//! the message of one lock's protocol.

mod frame;
mod hello;
#[cfg(test)]
mod tests;

use hallpass_core::codec::{DecodeError, Reader, put_number};

use crate::Incarnation;

pub use frame::{Attempt, Body, Frame, Header};
pub(crate) use frame::{Outgoing, write};
pub(crate) use hello::{ADDRESS_MAX, LABEL_MAX};
pub use hello::{Hello, Plane};

/// The version this code speaks.
pub const VERSION: u8 = 2;
/// The oldest version that it understands. Nodes of versions that understand each other form a group, so that its members can
/// be upgraded one after the other: what is appended to a greeting or a control message is ignored by older versions.
pub const OLDEST: u8 = 2;
/// No frame is longer than this; a longer one is rejected before it is read.
pub const FRAME_MAX: usize = u16::MAX as usize;
/// No message on a control connection is longer than this.
pub const CONTROL_MAX: usize = 4 * 1024 * 1024;
/// No lock name is longer than this.
pub const NAME_MAX: usize = 255;

pub(crate) fn read_incarnation(bytes: &mut Reader<'_>) -> Result<Incarnation, DecodeError> {
    Incarnation::new(bytes.short()?).ok_or(DecodeError::Number)
}

/// Appends a text: its length, then its bytes.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Reads a text of at most this number of bytes.
pub(crate) fn read_text(bytes: &mut Reader<'_>, limit: usize) -> Result<String, DecodeError> {
    let length = bytes.number()?;
    if length > limit as u64 {
        return Err(DecodeError::TooLong);
    }
    let text = std::str::from_utf8(bytes.take(length as usize)?).map_err(|_| DecodeError::Name)?;
    Ok(text.to_owned())
}
