use std::fmt;

use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::Message;

/// The messages of [`LamportFifo`](super::LamportFifo).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LamportFifoMessage {
    /// The sender asks to enter.
    Request {
        /// The request's time, which is also the message's timestamp.
        time: u64,
    },
    /// The sender acknowledges a request.
    Reply {
        /// The time of the request it acknowledges.
        answers: u64,
        /// The message's timestamp, which is later than that.
        clock: u64,
    },
    /// The sender has left, or has given up.
    Release {
        /// The time of the request that is over.
        time: u64,
        /// The message's timestamp.
        clock: u64,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
}

impl LamportFifoMessage {
    /// When it was sent, by the sender's clock.
    pub(super) fn timestamp(&self) -> u64 {
        match self {
            Self::Request { time } => *time,
            Self::Reply { clock, .. } | Self::Release { clock, .. } => *clock,
        }
    }
}

impl Message for LamportFifoMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Reply { .. } => "REPLY",
            Self::Release { .. } => "RELEASE",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { time } => {
                out.push(1);
                put_number(out, *time);
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
            1 => Self::Request { time: bytes.count()? },
            2 => Self::Reply { answers: bytes.count()?, clock: bytes.count()? },
            3 => Self::Release { time: bytes.count()?, clock: bytes.count()?, fence: bytes.fence()? },
            _ => return Err(DecodeError::Unknown),
        })
    }

    fn grant(&self) -> Option<Self> {
        match self {
            Self::Request { time } => Some(Self::Reply { answers: *time, clock: time.saturating_add(1) }),
            _ => None,
        }
    }
}

impl fmt::Display for LamportFifoMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { time } => write!(f, "REQUEST({time})"),
            Self::Reply { answers, clock } => write!(f, "REPLY({answers}, at {clock})"),
            Self::Release { time, .. } => write!(f, "RELEASE({time})"),
        }
    }
}
