use std::fmt;

use crate::codec::{DecodeError, Reader, put_numbers};
use crate::protocol::Message;

/// The messages of [`Lamport`](super::Lamport).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LamportMessage {
    /// The sender asks to enter.
    Request {
        /// The time by the sender's clock: with the sender's id, the place in every queue.
        time: u64,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
    /// The receiver knows every request of the sender that comes before its own.
    Reply {
        /// The time of the request it answers.
        answers: u64,
        /// The sender's clock.
        clock: u64,
    },
    /// The sender has left, or has given up.
    Release {
        /// The time of the request that is over.
        time: u64,
        /// The sender's clock.
        clock: u64,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
}

impl Message for LamportMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Reply { .. } => "REPLY",
            Self::Release { .. } => "RELEASE",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { time, fence } => {
                out.push(1);
                put_numbers(out, [*time, *fence]);
            }
            Self::Reply { answers, clock } => {
                out.push(2);
                put_numbers(out, [*answers, *clock]);
            }
            Self::Release { time, clock, fence } => {
                out.push(3);
                put_numbers(out, [*time, *clock, *fence]);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            1 => Self::Request { time: bytes.count()?, fence: bytes.fence()? },
            2 => Self::Reply { answers: bytes.count()?, clock: bytes.count()? },
            3 => Self::Release { time: bytes.count()?, clock: bytes.count()?, fence: bytes.fence()? },
            _ => return Err(DecodeError::Unknown),
        })
    }

    fn grant(&self) -> Option<Self> {
        match self {
            Self::Request { time, .. } => Some(Self::Reply { answers: *time, clock: *time }),
            _ => None,
        }
    }
}

impl fmt::Display for LamportMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { time, .. } => write!(f, "REQUEST({time})"),
            Self::Reply { answers, .. } => write!(f, "REPLY({answers})"),
            Self::Release { time, .. } => write!(f, "RELEASE({time})"),
        }
    }
}
