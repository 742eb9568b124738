use std::num::NonZeroU64;

use hallpass_core::NodeId;
use hallpass_core::codec::{DecodeError, Reader, put_number};

use super::{FRAME_MAX, NAME_MAX, VERSION, read_incarnation};
use crate::Incarnation;

/// What every frame carries: its number on the link, and the view and the incarnations it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its number on this link and direction, from 1.
    pub sequence: u64,
    /// All frames of the other direction up to this one have arrived.
    pub acknowledges: u64,
    /// The view's number.
    pub epoch: u64,
    /// The sender.
    pub from: NodeId,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The receiver's incarnation as the sender knows it.
    pub to_incarnation: Incarnation,
}

/// Marks the messages of a request that only tries, so that a node that would defer it answers [`Body::Busy`] instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt(pub NonZeroU64);

/// The content of a frame.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// A message of the lock's protocol.
    Message {
        /// The lock's name: 1 to 255 bytes of UTF-8.
        lock: &'a str,
        /// If there is one: answer [`Busy`](Body::Busy) with it, should the message be deferred.
        attempt: Option<Attempt>,
        /// The message's own bytes, to be read by the protocol.
        bytes: Reader<'a>,
    },
    /// A message that carried this attempt would have had to wait, and is forgotten.
    Busy {
        /// The lock's name.
        lock: &'a str,
        /// The attempt.
        attempt: Attempt,
    },
    /// Nothing but the header.
    Acknowledgement,
}

/// One frame: length, version, header, body. The length comes first, in two bytes; everything else is varints and bytes.
///
/// ```text
/// length: u16 big endian | version: u8 | kind: u8 | sequence | acknowledges | epoch | from | incarnation of from
///   | incarnation of to | [lock name | [attempt] | [message]]
/// ```
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// Where it belongs.
    pub header: Header,
    /// Its content.
    pub body: Body<'a>,
}

const MESSAGE: u8 = 1;
const ATTEMPT: u8 = 2;
const BUSY: u8 = 3;
const ACKNOWLEDGEMENT: u8 = 4;

impl<'a> Frame<'a> {
    /// Reads one frame from the front of a buffer and returns its length. `Truncated`: more must come first.
    pub fn decode(buffer: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        let length = buffer.first_chunk::<2>().ok_or(DecodeError::Truncated)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let mut bytes = Reader::new(buffer.get(2..2 + length).ok_or(DecodeError::Truncated)?);
        // Inside a frame nothing more will come: what is cut off there is malformed.
        let frame = Self::read(&mut bytes).map_err(|error| match error {
            DecodeError::Truncated => DecodeError::Malformed,
            other => other,
        })?;
        Ok((frame, 2 + length))
    }

    fn read(bytes: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let version = bytes.byte()?;
        if version != VERSION {
            return Err(DecodeError::Version { peer: version, own: VERSION });
        }
        let kind = bytes.byte()?;
        let (sequence, acknowledges, epoch) = (bytes.number()?, bytes.number()?, bytes.number()?);
        let (from, incarnation, to_incarnation) = (bytes.node()?, read_incarnation(bytes)?, read_incarnation(bytes)?);
        let header = Header { sequence, acknowledges, epoch, from, incarnation, to_incarnation };
        if kind == ACKNOWLEDGEMENT {
            bytes.clone().finish()?;
            return Ok(Self { header, body: Body::Acknowledgement });
        }
        let lock = read_name(bytes)?;
        let body = match kind {
            MESSAGE => Body::Message { lock, attempt: None, bytes: bytes.clone() },
            ATTEMPT => Body::Message { lock, attempt: Some(read_attempt(bytes)?), bytes: bytes.clone() },
            BUSY => {
                let attempt = read_attempt(bytes)?;
                bytes.clone().finish()?;
                Body::Busy { lock, attempt }
            }
            _ => return Err(DecodeError::Unknown),
        };
        Ok(Self { header, body })
    }
}

/// One frame has one encoding: without an attempt it is a plain message, so 0 is none.
fn read_attempt(bytes: &mut Reader<'_>) -> Result<Attempt, DecodeError> {
    NonZeroU64::new(bytes.number()?).map(Attempt).ok_or(DecodeError::Unknown)
}

/// A lock name as it travels: its length, then its bytes.
pub(crate) fn read_name<'a>(bytes: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let length = bytes.number()?;
    if length > NAME_MAX as u64 {
        return Err(DecodeError::TooLong);
    }
    let name = std::str::from_utf8(bytes.take(length as usize)?).map_err(|_| DecodeError::Name)?;
    if name.is_empty() { Err(DecodeError::Name) } else { Ok(name) }
}

/// What to put into a frame.
pub(crate) enum Outgoing<'a> {
    /// A message; its bytes are appended by the function that [`write`] is given.
    Message {
        lock: &'a str,
        attempt: Option<Attempt>,
    },
    Busy {
        lock: &'a str,
        attempt: Attempt,
    },
    Acknowledgement,
}

/// Appends a frame and returns its length. Nothing is appended if the receiver would reject it.
pub(crate) fn write(
    out: &mut Vec<u8>,
    header: &Header,
    body: &Outgoing<'_>,
    message: impl FnOnce(&mut Vec<u8>),
) -> Result<usize, DecodeError> {
    let (kind, lock, attempt) = match *body {
        Outgoing::Message { lock, attempt: None } => (MESSAGE, Some(lock), None),
        Outgoing::Message { lock, attempt } => (ATTEMPT, Some(lock), attempt),
        Outgoing::Busy { lock, attempt } => (BUSY, Some(lock), Some(attempt)),
        Outgoing::Acknowledgement => (ACKNOWLEDGEMENT, None, None),
    };
    match lock.map(str::len) {
        Some(0) => return Err(DecodeError::Name),
        Some(length) if length > NAME_MAX => return Err(DecodeError::TooLong),
        _ => {}
    }
    let start = out.len();
    out.extend_from_slice(&[0, 0, VERSION, kind]);
    let Header { sequence, acknowledges, epoch, from, incarnation, to_incarnation } = *header;
    let (incarnation, to_incarnation) = (incarnation.get().into(), to_incarnation.get().into());
    for number in [sequence, acknowledges, epoch, from.0.into(), incarnation, to_incarnation] {
        put_number(out, number);
    }
    if let Some(lock) = lock {
        put_number(out, lock.len() as u64);
        out.extend_from_slice(lock.as_bytes());
    }
    if let Some(Attempt(number)) = attempt {
        put_number(out, number.get());
    }
    message(out);
    let length = out.len() - start - 2;
    if length > FRAME_MAX {
        out.truncate(start);
        return Err(DecodeError::TooLong);
    }
    out[start..start + 2].copy_from_slice(&(length as u16).to_be_bytes());
    Ok(length + 2)
}
