use std::fmt;

use crate::NodeId;
use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::Message;

/// The messages of [`NaimiTrehel`](super::NaimiTrehel).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NaimiTrehelMessage {
    /// A node asks to enter; forwarded from guess to guess.
    Request {
        /// The node that asks.
        origin: NodeId,
    },
    /// The right to enter.
    Token {
        /// The epoch of the view in which it was made.
        epoch: u64,
        /// How often it has been sent, this time included.
        hop: u64,
        /// The count of the last entry's fence.
        fence: u64,
    },
}

impl Message for NaimiTrehelMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Token { .. } => "TOKEN",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { origin } => {
                out.push(1);
                put_number(out, origin.0.into());
            }
            Self::Token { epoch, hop, fence } => {
                out.push(2);
                put_numbers(out, [*epoch, *hop, *fence]);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            1 => Self::Request { origin: bytes.node()? },
            2 => Self::Token { epoch: bytes.number()?, hop: bytes.count()?, fence: bytes.fence()? },
            _ => return Err(DecodeError::Unknown),
        })
    }
}

impl fmt::Display for NaimiTrehelMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { origin } => write!(f, "REQUEST(of {origin})"),
            Self::Token { hop, .. } => write!(f, "TOKEN(hop {hop})"),
        }
    }
}
