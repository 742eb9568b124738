use std::fmt;

use crate::NodeId;
use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::Message;

/// The messages of [`SuzukiKasami`](super::SuzukiKasami).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SuzukiKasamiMessage {
    /// The sender asks to enter.
    Request {
        /// The request's number; every node counts its own.
        number: u64,
    },
    /// The right to enter.
    Token {
        /// The epoch of the view in which it was made.
        epoch: u64,
        /// How often it has been sent, this time included.
        hop: u64,
        /// `LN`: the number of each node's last request that was served.
        served: Box<[u64]>,
        /// `Q`: the nodes that get it next.
        queue: Vec<NodeId>,
        /// The count of the last entry's fence.
        fence: u64,
    },
}

impl Message for SuzukiKasamiMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Token { .. } => "TOKEN",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { number } => {
                out.push(1);
                put_number(out, *number);
            }
            Self::Token { epoch, hop, served, queue, fence } => {
                out.push(2);
                put_numbers(out, [*epoch, *hop, *fence, served.len() as u64]);
                served.iter().for_each(|number| put_number(out, *number));
                put_number(out, queue.len() as u64);
                queue.iter().for_each(|node| put_number(out, node.0.into()));
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            1 => Self::Request { number: bytes.count()? },
            2 => {
                let (epoch, hop, fence) = (bytes.number()?, bytes.count()?, bytes.fence()?);
                let (served, queue) = (bytes.list(Reader::count)?, bytes.list(Reader::node)?.into_vec());
                Self::Token { epoch, hop, served, queue, fence }
            }
            _ => return Err(DecodeError::Unknown),
        })
    }
}

impl fmt::Display for SuzukiKasamiMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { number } => write!(f, "REQUEST({number})"),
            Self::Token { hop, served, queue, .. } => {
                write!(f, "TOKEN(hop {hop}, served")?;
                served.iter().try_for_each(|number| write!(f, " {number}"))?;
                f.write_str(", queue")?;
                if queue.is_empty() {
                    f.write_str(" empty")?;
                }
                queue.iter().try_for_each(|node| write!(f, " {node}"))?;
                f.write_str(")")
            }
        }
    }
}
