use std::fmt;

use crate::NodeId;
use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::{Message, Mode};

/// The messages of [`RicartAgrawala`](super::RicartAgrawala).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RaMessage {
    /// The sender asks to enter.
    Request {
        /// The request's sequence number.
        number: u64,
        /// Exclusive or shared.
        mode: Mode,
    },
    /// The receiver may enter, as far as the sender is concerned.
    Reply {
        /// The number of the request it answers; it grants no other.
        answers: u64,
        /// The highest number the sender knows, or 0 if REPLYs carry none (T13).
        highest: u64,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
    /// Implicit reply: the receiver must wait, and a REPLY will follow.
    Deferred {
        /// The number of the request that must wait.
        answers: u64,
        /// As in REPLY.
        highest: u64,
    },
    /// REPLYs to several nodes at once.
    ReplyAll {
        /// The recipients, each with the number of the request that is answered.
        list: Box<[(NodeId, u64)]>,
        /// As in REPLY.
        highest: u64,
        /// As in REPLY.
        fence: u64,
    },
}

impl Message for RaMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Reply { .. } | Self::ReplyAll { .. } => "REPLY",
            Self::Deferred { .. } => "DEFERRED",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { number, mode } => {
                out.push(1);
                put_number(out, *number);
                put_mode(out, *mode);
            }
            Self::Reply { answers, highest, fence } => {
                out.push(2);
                put_numbers(out, [*answers, *highest, *fence]);
            }
            Self::Deferred { answers, highest } => {
                out.push(3);
                put_numbers(out, [*answers, *highest]);
            }
            Self::ReplyAll { list, highest, fence } => {
                out.push(4);
                put_number(out, list.len() as u64);
                for (node, number) in list {
                    put_number(out, node.0.into());
                    put_number(out, *number);
                }
                put_numbers(out, [*highest, *fence]);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            1 => Self::Request { number: bytes.count()?, mode: read_mode(bytes)? },
            2 => Self::Reply { answers: bytes.count()?, highest: bytes.count()?, fence: bytes.fence()? },
            3 => Self::Deferred { answers: bytes.count()?, highest: bytes.count()? },
            4 => Self::ReplyAll {
                list: bytes.list(|bytes| Ok((bytes.node()?, bytes.count()?)))?,
                highest: bytes.count()?,
                fence: bytes.fence()?,
            },
            _ => return Err(DecodeError::Unknown),
        })
    }

    fn grant(&self) -> Option<Self> {
        match self {
            Self::Request { number, .. } => Some(Self::Reply { answers: *number, highest: 0, fence: 0 }),
            _ => None,
        }
    }
}

impl fmt::Display for RaMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { number, mode: Mode::Exclusive } => write!(f, "REQUEST({number})"),
            Self::Request { number, mode: Mode::Shared } => write!(f, "REQUEST({number}, shared)"),
            Self::Reply { answers, .. } => write!(f, "REPLY({answers})"),
            Self::Deferred { answers, .. } => write!(f, "DEFERRED({answers})"),
            Self::ReplyAll { list, .. } if list.is_empty() => f.write_str("REPLY(to whom it may concern)"),
            Self::ReplyAll { list, .. } => {
                let names: Vec<String> = list.iter().map(|(node, number)| format!("{number} of {node}")).collect();
                write!(f, "REPLY({})", names.join(", "))
            }
        }
    }
}

pub(super) fn put_mode(out: &mut Vec<u8>, mode: Mode) {
    out.push(u8::from(mode == Mode::Shared));
}

pub(super) fn read_mode(bytes: &mut Reader<'_>) -> Result<Mode, DecodeError> {
    match bytes.byte()? {
        0 => Ok(Mode::Exclusive),
        1 => Ok(Mode::Shared),
        _ => Err(DecodeError::Unknown),
    }
}
