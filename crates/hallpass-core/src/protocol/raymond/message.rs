use std::fmt;

use crate::codec::{DecodeError, Reader, put_numbers};
use crate::protocol::Message;

/// The messages of [`Raymond`](super::Raymond), between neighbours.
///
/// All but INITIALIZE and RESTART name the incarnation of their receiver as the sender knows it: 0 until a RESTART carries
/// another one (T27).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RaymondMessage {
    /// The sender, or a node beyond it, asks for the privilege (3.3).
    Request {
        /// The receiver's incarnation.
        incarnation: u32,
    },
    /// The privilege (3.2).
    Privilege {
        /// The receiver's incarnation.
        incarnation: u32,
        /// The count of the last entry's fence.
        count: u64,
        /// A REQUEST is piggybacked: the sender asks for the privilege back (6.1).
        asks: bool,
    },
    /// The privilege is where this comes from (7).
    Initialize,
    /// The sender has restarted and asks what its neighbours know (8).
    Restart {
        /// The sender's new incarnation: the 'unique identifier' of 8.7.
        incarnation: u32,
    },
    /// The answer: the state of the edge as the sender sees it (8.1). Section 8.7 calls the same message ASSIST (T26).
    Advise {
        /// The receiver's incarnation, from its RESTART.
        incarnation: u32,
        /// The sender's own incarnation, which the receiver has forgotten.
        sender: u32,
        /// One of the four states.
        standing: Standing,
        /// How often the receiver has sent the privilege to the sender (8.4).
        served: u32,
        /// A count that no fence so far exceeds, as far as the sender can know.
        count: u64,
    },
}

/// The four states of 8.1, from the sender Y to the receiver X.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Standing {
    /// (1) `HOLDER_Y` = X, and Y has not asked for the privilege.
    Yours,
    /// (2) `HOLDER_Y` = X, and Y has asked: it belongs into X's queue.
    YoursAsked,
    /// (3) The privilege is at Y or beyond, and X is in Y's queue: X has asked.
    Queued,
    /// (4) The privilege is at Y or beyond, and X is not in Y's queue.
    NotQueued,
}

impl Standing {
    const ALL: [Self; 4] = [Self::Yours, Self::YoursAsked, Self::Queued, Self::NotQueued];
}

impl Message for RaymondMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Privilege { .. } => "PRIVILEGE",
            Self::Initialize => "INITIALIZE",
            Self::Restart { .. } => "RESTART",
            Self::Advise { .. } => "ADVISE",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { incarnation } => {
                out.push(1);
                put_numbers(out, [(*incarnation).into()]);
            }
            Self::Privilege { incarnation, count, asks } => {
                out.push(if *asks { 3 } else { 2 });
                put_numbers(out, [(*incarnation).into(), *count]);
            }
            Self::Initialize => out.push(4),
            Self::Restart { incarnation } => {
                out.push(5);
                put_numbers(out, [(*incarnation).into()]);
            }
            Self::Advise { incarnation, sender, standing, served, count } => {
                out.extend([6, *standing as u8]);
                put_numbers(out, [(*incarnation).into(), (*sender).into(), (*served).into(), *count]);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            1 => Self::Request { incarnation: bytes.short()? },
            kind @ 2..=3 => Self::Privilege { incarnation: bytes.short()?, count: bytes.fence()?, asks: kind == 3 },
            4 => Self::Initialize,
            5 => Self::Restart { incarnation: bytes.short()? },
            6 => {
                let standing = *Standing::ALL.get(usize::from(bytes.byte()?)).ok_or(DecodeError::Unknown)?;
                let (incarnation, sender, served) = (bytes.short()?, bytes.short()?, bytes.short()?);
                Self::Advise { incarnation, sender, standing, served, count: bytes.fence()? }
            }
            _ => return Err(DecodeError::Unknown),
        })
    }

    fn grant(&self) -> Option<Self> {
        let Self::Request { incarnation } = self else { return None };
        Some(Self::Privilege { incarnation: *incarnation, count: 0, asks: false })
    }
}

impl fmt::Display for RaymondMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Request { incarnation: 0 } | Self::Initialize => Ok(()),
            Self::Privilege { incarnation: 0, asks, .. } => f.write_str(if *asks { " with REQUEST" } else { "" }),
            Self::Request { incarnation } => write!(f, "(incarnation {incarnation})"),
            Self::Privilege { incarnation, asks, .. } => {
                write!(f, "(incarnation {incarnation}){}", if *asks { " with REQUEST" } else { "" })
            }
            Self::Restart { incarnation } => write!(f, "(incarnation {incarnation})"),
            Self::Advise { standing, .. } => f.write_str(match standing {
                Standing::Yours => "(you hold)",
                Standing::YoursAsked => "(you hold, I asked)",
                Standing::Queued => "(you do not hold, you asked)",
                Standing::NotQueued => "(you do not hold)",
            }),
        }
    }
}
