use std::fmt;

use super::super::RaMessage;
use super::super::message::{put_mode, read_mode};
use crate::NodeId;
use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::{Message, Mode};

/// In place of a receiver's incarnation that the sender does not know.
pub(super) const ANY_INCARNATION: u32 = u32::MAX;

/// A message of [`Classic`](super::Classic), with the incarnations of its sender and receiver.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClassicMessage {
    /// The sender's incarnation.
    pub from: u32,
    /// The receiver's incarnation as the sender knows it, or all ones if it does not know it.
    pub to: u32,
    /// The content.
    pub body: Body,
}

/// The content of a [`ClassicMessage`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Body {
    /// A message of the algorithm itself: REQUEST or REPLY.
    Base(RaMessage),
    /// Asks whether the receiver has failed or has lost the REQUEST, which it repeats (T5).
    AreYouThere {
        /// The request's number.
        number: u64,
        /// The request's mode.
        mode: Mode,
    },
    /// The sender has not failed, and the receiver must wait.
    YesIAmHere {
        /// The number of the request that waits.
        answers: u64,
    },
    /// An incarnation of a node is over.
    Failed {
        /// The node.
        node: NodeId,
        /// The incarnation.
        incarnation: u32,
    },
    /// The receiver is on nobody's list: it must restart and join again.
    RestartYourself,
    /// The sender asks the receiver to sponsor it.
    Join,
    /// The receiver must add a node to its list.
    Add {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u32,
    },
    /// The sender has added a node to its list.
    Added {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: u32,
        /// The highest number the sender knows, its own included.
        highest: u64,
    },
    /// The receiver is on every list, and gets one of its own.
    Welcome {
        /// The sender's list, without itself.
        names: Box<[(NodeId, u32)]>,
        /// A number to start from.
        highest: u64,
    },
    /// Everybody who receives this must add the sender to its list.
    IncludeMe,
    /// The sender has added the receiver to its list.
    Included {
        /// The highest number the sender knows.
        highest: u64,
    },
    /// Asks for the highest number the receiver knows.
    AskHighest,
    /// Answers that question.
    TellHighest {
        /// The highest number the sender knows.
        highest: u64,
    },
    /// The sender leaves: the receiver must remove it from its list.
    Leave,
    /// The sender has removed the receiver from its list.
    LeaveNoted,
}

impl Message for ClassicMessage {
    fn kind(&self) -> &'static str {
        match &self.body {
            Body::Base(message) => message.kind(),
            Body::AreYouThere { .. } => "ARE_YOU_THERE",
            Body::YesIAmHere { .. } => "YES_I_AM_HERE",
            Body::Failed { .. } => "FAILED",
            Body::RestartYourself => "RESTART",
            Body::Join => "JOIN",
            Body::Add { .. } => "ADD",
            Body::Added { .. } => "ADDED",
            Body::Welcome { .. } => "WELCOME",
            Body::IncludeMe => "INCLUDE_ME",
            Body::Included { .. } => "INCLUDED",
            Body::AskHighest => "ASK_HSN",
            Body::TellHighest { .. } => "TELL_HSN",
            Body::Leave => "LEAVE",
            Body::LeaveNoted => "LEAVE_ACK",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.from.into());
        put_number(out, self.to.into());
        match &self.body {
            Body::Base(message) => {
                out.push(1);
                message.encode(out);
            }
            Body::AreYouThere { number, mode } => {
                out.push(2);
                put_number(out, *number);
                put_mode(out, *mode);
            }
            Body::YesIAmHere { answers } => put_tagged(out, 3, [*answers]),
            Body::Failed { node, incarnation } => put_tagged(out, 4, [node.0.into(), (*incarnation).into()]),
            Body::RestartYourself => out.push(5),
            Body::Join => out.push(6),
            Body::Add { node, incarnation } => put_tagged(out, 7, [node.0.into(), (*incarnation).into()]),
            Body::Added { node, incarnation, highest } => {
                put_tagged(out, 8, [node.0.into(), (*incarnation).into(), *highest])
            }
            Body::Welcome { names, highest } => {
                put_tagged(out, 9, [names.len() as u64]);
                for (node, incarnation) in names {
                    put_number(out, node.0.into());
                    put_number(out, (*incarnation).into());
                }
                put_number(out, *highest);
            }
            Body::IncludeMe => out.push(10),
            Body::Included { highest } => put_tagged(out, 11, [*highest]),
            Body::AskHighest => out.push(12),
            Body::TellHighest { highest } => put_tagged(out, 13, [*highest]),
            Body::Leave => out.push(14),
            Body::LeaveNoted => out.push(15),
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (from, to) = (bytes.short()?, bytes.short()?);
        let body = match bytes.byte()? {
            1 => Body::Base(RaMessage::decode(bytes)?),
            2 => Body::AreYouThere { number: bytes.number()?, mode: read_mode(bytes)? },
            3 => Body::YesIAmHere { answers: bytes.number()? },
            4 => Body::Failed { node: bytes.node()?, incarnation: bytes.short()? },
            5 => Body::RestartYourself,
            6 => Body::Join,
            7 => Body::Add { node: bytes.node()?, incarnation: bytes.short()? },
            8 => Body::Added { node: bytes.node()?, incarnation: bytes.short()?, highest: bytes.number()? },
            9 => Body::Welcome {
                names: bytes.list(|bytes| Ok((bytes.node()?, bytes.short()?)))?,
                highest: bytes.number()?,
            },
            10 => Body::IncludeMe,
            11 => Body::Included { highest: bytes.number()? },
            12 => Body::AskHighest,
            13 => Body::TellHighest { highest: bytes.number()? },
            14 => Body::Leave,
            15 => Body::LeaveNoted,
            _ => return Err(DecodeError::Unknown),
        };
        Ok(Self { from, to, body })
    }

    fn grant(&self) -> Option<Self> {
        let Body::Base(request) = &self.body else { return None };
        Some(Self { from: 0, to: self.from, body: Body::Base(request.grant()?) })
    }
}

fn put_tagged<const K: usize>(out: &mut Vec<u8>, tag: u8, numbers: [u64; K]) {
    out.push(tag);
    put_numbers(out, numbers);
}

impl fmt::Display for ClassicMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            Body::Base(message) => message.fmt(f),
            Body::AreYouThere { number, .. } => write!(f, "ARE_YOU_THERE({number})"),
            Body::YesIAmHere { answers } => write!(f, "YES_I_AM_HERE({answers})"),
            Body::Failed { node, .. } => write!(f, "FAILED({node})"),
            Body::Add { node, .. } => write!(f, "ADD({node})"),
            Body::Added { highest, .. } => write!(f, "ADDED(highest {highest})"),
            Body::Welcome { highest, .. } => write!(f, "WELCOME(highest {highest})"),
            Body::Included { highest } => write!(f, "INCLUDED(highest {highest})"),
            Body::TellHighest { highest } => write!(f, "TELL_HSN({highest})"),
            _ => f.write_str(self.kind()),
        }
    }
}
