use std::fmt;

use crate::codec::{DecodeError, Reader, put_number};
use crate::protocol::{Message, Mode};

/// A request, as its REQUEST carries it and its REPLY names it. Later requests of a node are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Asked {
    /// The sequence number, which orders requests together with the node's id.
    pub number: u64,
    /// Exclusive or shared.
    pub mode: Mode,
}

/// The messages of [`CarvalhoRoucairol`](super::CarvalhoRoucairol).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CrMessage {
    /// The sender needs the receiver's permission.
    Request(Asked),
    /// The receiver has the sender's permission, until the sender asks for its.
    Reply {
        /// The request it answers, and so the mode it is given for.
        answers: Asked,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
}

impl Message for CrMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request(_) => "REQUEST",
            Self::Reply { .. } => "REPLY",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request(asked) => put_asked(out, 1, asked),
            Self::Reply { answers, fence } => {
                put_asked(out, 3, answers);
                put_number(out, *fence);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = bytes.byte()?;
        let mode = match kind {
            1 | 3 => Mode::Exclusive,
            2 | 4 => Mode::Shared,
            _ => return Err(DecodeError::Unknown),
        };
        let asked = Asked { number: bytes.count()?, mode };
        Ok(if kind <= 2 { Self::Request(asked) } else { Self::Reply { answers: asked, fence: bytes.fence()? } })
    }

    fn grant(&self) -> Option<Self> {
        match self {
            Self::Request(asked) => Some(Self::Reply { answers: *asked, fence: 0 }),
            Self::Reply { .. } => None,
        }
    }
}

/// The mode is part of the first byte, to keep messages small.
fn put_asked(out: &mut Vec<u8>, kind: u8, asked: &Asked) {
    out.push(kind + u8::from(asked.mode == Mode::Shared));
    put_number(out, asked.number);
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Mode::Exclusive => write!(f, "{}", self.number),
            Mode::Shared => write!(f, "{}, shared", self.number),
        }
    }
}

impl fmt::Display for CrMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(asked) => write!(f, "REQUEST({asked})"),
            Self::Reply { answers, .. } => write!(f, "REPLY({answers})"),
        }
    }
}
