use std::fmt;

use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::Message;

/// The messages of [`Central`](super::Central).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CentralMessage {
    /// To the server: the sender asks to enter.
    Request {
        /// The request's number; every member counts its own.
        number: u64,
    },
    /// From the server: the receiver may enter.
    Grant {
        /// The request that is granted, and no other.
        number: u64,
        /// The count of the entry's fence.
        fence: u64,
    },
    /// To the server: the sender has left, or has given up.
    Release {
        /// The request that is over.
        number: u64,
    },
}

impl Message for CentralMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Grant { .. } => "GRANT",
            Self::Release { .. } => "RELEASE",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { number } => {
                out.push(1);
                put_number(out, *number);
            }
            Self::Grant { number, fence } => {
                out.push(2);
                put_numbers(out, [*number, *fence]);
            }
            Self::Release { number } => {
                out.push(3);
                put_number(out, *number);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            1 => Self::Request { number: bytes.count()? },
            2 => Self::Grant { number: bytes.count()?, fence: bytes.fence()? },
            3 => Self::Release { number: bytes.count()? },
            _ => return Err(DecodeError::Unknown),
        })
    }

    fn grant(&self) -> Option<Self> {
        match self {
            Self::Request { number } => Some(Self::Grant { number: *number, fence: 0 }),
            _ => None,
        }
    }
}

impl fmt::Display for CentralMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { number } => write!(f, "REQUEST({number})"),
            Self::Grant { number, .. } => write!(f, "GRANT({number})"),
            Self::Release { number } => write!(f, "RELEASE({number})"),
        }
    }
}
