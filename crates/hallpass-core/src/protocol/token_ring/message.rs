use std::fmt;

use crate::NodeId;
use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::Message;

/// The messages of [`TokenRing`](super::TokenRing).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TokenRingMessage {
    /// The token.
    Ok {
        /// How often it has been sent, this time included, as if it had gone around once before the start.
        hop: u64,
        /// How many steps at least it has to go on from the receiver.
        left: u64,
        /// The count of the last entry's fence.
        fence: u64,
    },
    /// A node asks for the token.
    Request {
        /// The node that asks.
        origin: NodeId,
        /// The hop on which the token was last there.
        hop: u64,
    },
}

impl Message for TokenRingMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Ok { .. } => "OK",
            Self::Request { .. } => "REQUEST",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ok { hop, left, fence } => {
                out.push(1);
                put_numbers(out, [*hop, *left, *fence]);
            }
            Self::Request { origin, hop } => {
                out.push(2);
                put_number(out, origin.0.into());
                put_number(out, *hop);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            1 => Self::Ok { hop: bytes.count()?, left: bytes.count()?, fence: bytes.fence()? },
            2 => Self::Request { origin: bytes.node()?, hop: bytes.count()? },
            _ => return Err(DecodeError::Unknown),
        })
    }
}

impl fmt::Display for TokenRingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok { left: 0, .. } => f.write_str("OK"),
            Self::Ok { left, .. } => write!(f, "OK({left} to go)"),
            Self::Request { origin, .. } => write!(f, "REQUEST({origin})"),
        }
    }
}
