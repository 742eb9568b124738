use std::fmt;

use crate::codec::{DecodeError, Reader, put_numbers};
use crate::protocol::Message;

/// The messages of [`Maekawa`](super::Maekawa).
///
/// `number` is always that of a request, `grant` that of an arbiter's vote.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MaekawaMessage {
    /// The sender asks to enter.
    Request {
        /// The request's number.
        number: u64,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
    /// The arbiter votes for this request.
    Locked {
        /// The request's number.
        number: u64,
        /// The vote's number.
        grant: u64,
        /// The highest number the sender knows.
        highest: u64,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
    /// The request must wait: others come before it.
    Failed {
        /// The request's number.
        number: u64,
        /// The number of the arbiter's last vote.
        grant: u64,
    },
    /// An earlier request has come, and the arbiter asks for its vote back.
    Inquire {
        /// The request's number.
        number: u64,
        /// The vote's number.
        grant: u64,
    },
    /// The requester gives the vote back.
    Relinquish {
        /// The request's number.
        number: u64,
        /// The vote's number.
        grant: u64,
    },
    /// The request is over: its caller has left, or has given up.
    Release {
        /// The request's number.
        number: u64,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
}

impl Message for MaekawaMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Locked { .. } => "LOCKED",
            Self::Failed { .. } => "FAILED",
            Self::Inquire { .. } => "INQUIRE",
            Self::Relinquish { .. } => "RELINQUISH",
            Self::Release { .. } => "RELEASE",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, numbers) = match *self {
            Self::Request { number, fence } => (1, [number, fence]),
            Self::Locked { number, grant, .. } => (2, [number, grant]),
            Self::Failed { number, grant } => (3, [number, grant]),
            Self::Inquire { number, grant } => (4, [number, grant]),
            Self::Relinquish { number, grant } => (5, [number, grant]),
            Self::Release { number, fence } => (6, [number, fence]),
        };
        out.push(kind);
        put_numbers(out, numbers);
        if let Self::Locked { highest, fence, .. } = *self {
            put_numbers(out, [highest, fence]);
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = bytes.byte()?;
        if !(1..=6).contains(&kind) {
            return Err(DecodeError::Unknown);
        }
        let number = bytes.count()?;
        let second = if matches!(kind, 1 | 6) { bytes.fence()? } else { bytes.count()? };
        Ok(match kind {
            1 => Self::Request { number, fence: second },
            2 => Self::Locked { number, grant: second, highest: bytes.count()?, fence: bytes.fence()? },
            3 => Self::Failed { number, grant: second },
            4 => Self::Inquire { number, grant: second },
            5 => Self::Relinquish { number, grant: second },
            _ => Self::Release { number, fence: second },
        })
    }
}

impl fmt::Display for MaekawaMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { number, .. } | Self::Release { number, .. } | Self::Failed { number, .. } => {
                write!(f, "{}({number})", self.kind())
            }
            Self::Locked { number, grant, .. }
            | Self::Inquire { number, grant }
            | Self::Relinquish { number, grant } => {
                write!(f, "{}({number}, vote {grant})", self.kind())
            }
        }
    }
}
