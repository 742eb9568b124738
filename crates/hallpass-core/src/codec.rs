//! The encoding of messages: numbers are varints, lists carry their length.
//!
//! Bytes from a peer are not trusted: every length is checked before anything is allocated, and no input makes the
//! decoder panic.

use std::fmt;

use crate::{Fence, NodeId};

/// The reason why bytes are not a valid message. They were dropped, and nothing else has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end in the middle of a message: more may follow, or the peer cut them off.
    Truncated,
    /// A length is above its limit.
    TooLong,
    /// Bytes are left after the message.
    Trailing,
    /// This version does not know the kind of message, or a value in it.
    Unknown,
    /// The peer uses another version of the protocol.
    Version {
        /// The peer's version.
        peer: u8,
        /// This node's version.
        own: u8,
    },
    /// A number does not fit its type, is larger than any group counts, or was written with more bytes than it needs.
    Number,
    /// The lock name is empty or not UTF-8.
    Name,
    /// A part of a frame is longer than the frame.
    Malformed,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the message is cut off"),
            Self::TooLong => f.write_str("the message is longer than the limit"),
            Self::Trailing => f.write_str("the message has bytes after its end"),
            Self::Unknown => f.write_str("the message is of an unknown kind"),
            Self::Version { peer, own } => write!(f, "the peer speaks version {peer}, this node {own}"),
            Self::Number => f.write_str("the message holds a number that is malformed or too large"),
            Self::Malformed => f.write_str("the message says that it is longer than its frame"),
            Self::Name => f.write_str("the lock name is empty or not UTF-8"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// No group counts as far as 2^62. A peer that claims it is broken, and believing it would break the receiver as well: its
/// own numbers would follow.
pub const COUNT_MAX: u64 = (1 << 62) - 1;

/// A cursor over received bytes, which reads them value by value.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.bytes.split_first().ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(*first)
    }

    /// Reads a varint: seven bits a byte, the lowest first. Every value has exactly one encoding.
    pub fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Number);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let padded = byte == 0 && shift > 0;
                return if padded { Err(DecodeError::Number) } else { Ok(value) };
            }
        }
        Err(DecodeError::Number)
    }

    /// Reads a request number, a clock or a count of hops: at most [`COUNT_MAX`].
    pub fn count(&mut self) -> Result<u64, DecodeError> {
        self.number_up_to(COUNT_MAX)
    }

    /// Reads the count of a fence.
    pub fn fence(&mut self) -> Result<u64, DecodeError> {
        self.number_up_to(Fence::COUNT_MAX)
    }

    fn number_up_to(&mut self, max: u64) -> Result<u64, DecodeError> {
        self.number().and_then(|number| if number <= max { Ok(number) } else { Err(DecodeError::Number) })
    }

    /// Reads a varint that fits 32 bits.
    pub fn short(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?).map_err(|_| DecodeError::Number)
    }

    /// Reads a node id.
    pub fn node(&mut self) -> Result<NodeId, DecodeError> {
        self.short().map(NodeId)
    }

    /// Reads a list: its length, then its items.
    pub fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Box<[T]>, DecodeError> {
        let length = self.number()?;
        // An item takes at least one byte, so no honest length exceeds the bytes left. That bounds what is allocated.
        if length > self.bytes.len() as u64 {
            return Err(DecodeError::Truncated);
        }
        (0..length).map(|_| item(self)).collect()
    }

    /// Reads this many bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Fails if bytes are left.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// Appends a varint.
pub fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends several varints.
pub fn put_numbers<const K: usize>(out: &mut Vec<u8>, numbers: [u64; K]) {
    for number in numbers {
        put_number(out, number);
    }
}
