use std::num::NonZeroU64;

use hallpass_core::NodeId;
use hallpass_core::codec::{DecodeError, Reader, put_number, put_numbers};

use super::{OLDEST, VERSION, read_incarnation};
use crate::Incarnation;

/// The greeting: the first thing on a new connection, in both directions. It identifies the sender, and says where the link was left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The group's name. Nodes of different groups reject each other.
    pub group: String,
    /// The sender's name, for people.
    pub name: String,
    /// The sender.
    pub from: NodeId,
    /// The member that the sender takes the receiver for; 0 if it knows only an address.
    pub to: NodeId,
    /// What the connection carries.
    pub plane: Plane,
    /// The address by which others reach the sender.
    pub address: String,
    /// The group that the sender is in; 0 if it is in none yet.
    pub group_id: u64,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// Drawn at random when the sender was started.
    pub boot_id: u64,
    /// The receiver's incarnation as the sender knows it, if they have been connected before.
    pub to_incarnation: Option<Incarnation>,
    /// The last frame that the sender has received on this link.
    pub received: u64,
    /// 1 if the sender's group has had more than one member, else 0.
    pub config_digest: u64,
    /// Not used any more: absent.
    pub incarnations_digest: Option<NonZeroU64>,
}

/// What a connection carries. Each pair of nodes has one of each, so that neither waits behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Plane {
    /// The messages of locks, numbered and sent again.
    #[default]
    Locks,
    /// Consensus, sessions and views: messages that may be lost.
    Control,
}

/// Opens every connection between nodes, so that a stray client is recognized by its first bytes.
const MAGIC: [u8; 4] = *b"hall";
/// The longest name of a group or node.
pub(crate) const LABEL_MAX: usize = 64;
/// No greeting is longer.
pub(crate) const HELLO_MAX: usize = 640;
/// The longest address.
pub(crate) const ADDRESS_MAX: usize = 300;

impl Hello {
    /// Appends the greeting, its length in front.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0, 0, VERSION, OLDEST]);
        for (text, limit) in [(&self.group, LABEL_MAX), (&self.name, LABEL_MAX), (&self.address, ADDRESS_MAX)] {
            let text = &text.as_bytes()[..text.len().min(limit)];
            put_number(out, text.len() as u64);
            out.extend_from_slice(text);
        }
        out.push(self.plane as u8);
        let to_incarnation = self.to_incarnation.map_or(0, Incarnation::get);
        for number in [self.from.0, self.to.0, self.incarnation.get(), to_incarnation] {
            put_number(out, number.into());
        }
        let incarnations_digest = self.incarnations_digest.map_or(0, NonZeroU64::get);
        put_numbers(out, [self.boot_id, self.received, self.config_digest, incarnations_digest, self.group_id]);
        let length = (out.len() - start - 6) as u16;
        out[start + 4..start + 6].copy_from_slice(&length.to_be_bytes());
    }

    /// Reads a greeting from the front of a buffer and returns its length. `Truncated`: more must come first.
    pub fn decode(buffer: &[u8]) -> Result<(Self, usize), DecodeError> {
        let magic = &buffer[..buffer.len().min(4)];
        if !MAGIC.starts_with(magic) {
            return Err(DecodeError::Unknown);
        }
        let length = buffer.get(4..6).ok_or(DecodeError::Truncated)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length > HELLO_MAX {
            return Err(DecodeError::TooLong);
        }
        let mut bytes = Reader::new(buffer.get(6..6 + length).ok_or(DecodeError::Truncated)?);
        let hello = Self::read(&mut bytes).map_err(|error| match error {
            DecodeError::Truncated => DecodeError::Malformed,
            other => other,
        })?;
        // A later version may have more to say.
        if buffer[6] <= VERSION {
            bytes.finish()?;
        }
        Ok((hello, 6 + length))
    }

    fn read(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (version, oldest) = (bytes.byte()?, bytes.byte()?);
        if version < OLDEST || oldest > VERSION {
            return Err(DecodeError::Version { peer: version, own: VERSION });
        }
        let mut text = |limit: usize| {
            let length = bytes.number()?;
            let taken = bytes.take(usize::try_from(length).unwrap_or(usize::MAX).min(limit + 1))?;
            if taken.len() > limit {
                return Err(DecodeError::TooLong);
            }
            Ok(std::str::from_utf8(taken).map_err(|_| DecodeError::Name)?.to_owned())
        };
        let (group, name, address) = (text(LABEL_MAX)?, text(LABEL_MAX)?, text(ADDRESS_MAX)?);
        let plane = match bytes.byte()? {
            0 => Plane::Locks,
            1 => Plane::Control,
            _ => return Err(DecodeError::Unknown),
        };
        Ok(Self {
            group,
            name,
            address,
            plane,
            from: bytes.node()?,
            to: bytes.node()?,
            incarnation: read_incarnation(bytes)?,
            to_incarnation: match bytes.short()? {
                0 => None,
                number => Some(Incarnation::new(number).ok_or(DecodeError::Number)?),
            },
            boot_id: bytes.number()?,
            received: bytes.number()?,
            config_digest: bytes.number()?,
            incarnations_digest: NonZeroU64::new(bytes.number()?),
            group_id: bytes.number()?,
        })
    }
}
