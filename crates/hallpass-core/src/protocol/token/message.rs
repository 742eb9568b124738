use std::fmt;

use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::Message;

/// The messages of [`TokenAlgorithm`](super::TokenAlgorithm).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TokenMessage {
    /// The sender asks to enter.
    Request {
        /// The request's number; every node counts its own.
        number: u64,
        /// The sender knows that there is a token, so it needs no REPLY.
        made: bool,
    },
    /// `start=ricart-agrawala`: the sender agrees that the receiver makes the token.
    Reply {
        /// The number of the request it answers.
        answers: u64,
    },
    /// The right to enter.
    Token {
        /// The epoch of the view in which it was made.
        epoch: u64,
        /// How often it has been sent, this time included.
        hop: u64,
        /// The count of the last entry's fence.
        fence: u64,
        /// `token_data`.
        data: Box<[u64]>,
    },
}

impl Message for TokenMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Reply { .. } => "REPLY",
            Self::Token { .. } => "TOKEN",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request { number, made } => {
                out.push(if *made { 1 } else { 2 });
                put_number(out, *number);
            }
            Self::Reply { answers } => {
                out.push(3);
                put_number(out, *answers);
            }
            Self::Token { epoch, hop, fence, data } => {
                out.push(4);
                put_numbers(out, [*epoch, *hop, *fence, data.len() as u64]);
                data.iter().for_each(|number| put_number(out, *number));
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            kind @ (1 | 2) => Self::Request { number: bytes.count()?, made: kind == 1 },
            3 => Self::Reply { answers: bytes.count()? },
            4 => Self::Token {
                epoch: bytes.number()?,
                hop: bytes.count()?,
                fence: bytes.fence()?,
                data: bytes.list(Reader::count)?,
            },
            _ => return Err(DecodeError::Unknown),
        })
    }
}

impl fmt::Display for TokenMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { number, .. } => write!(f, "REQUEST({number})"),
            Self::Reply { answers } => write!(f, "REPLY({answers})"),
            Self::Token { hop, data, .. } => {
                write!(f, "TOKEN(hop {hop}, served")?;
                data.iter().try_for_each(|number| write!(f, " {number}"))?;
                f.write_str(")")
            }
        }
    }
}
