use hallpass_core::NodeId;
use hallpass_core::codec::{DecodeError, Reader, put_number};

use super::VERSION;

/// The first words on a new connection, both ways: who is there, and where the link was left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The group's name. Nodes of different groups have nothing to say to each other.
    pub group: String,
    /// The sender's name, for people.
    pub name: String,
    /// The sender.
    pub from: NodeId,
    /// Whom the sender means to talk to.
    pub to: NodeId,
    /// The sender's incarnation.
    pub incarnation: u32,
    /// Drawn when the sender was started.
    pub life: u64,
    /// The receiver's incarnation as the sender knows it; 0 if they have not met.
    pub to_incarnation: u32,
    /// The last frame that the sender has received on this link.
    pub received: u64,
    /// A digest of what all members must agree on: the list of members and the lock classes.
    pub digest: u64,
    /// A digest of the lives in which the sender has met all members; 0 until it has.
    pub lives: u64,
}

/// What opens a connection between nodes, so that a stray client is told apart at once.
const MAGIC: [u8; 4] = *b"hall";
/// The longest name of a group or node.
pub(crate) const LABEL_MAX: usize = 64;
/// No greeting is longer.
pub(crate) const HELLO_MAX: usize = 256;

impl Hello {
    /// Appends the greeting, length first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0, 0, VERSION]);
        for text in [&self.group, &self.name] {
            let text = &text.as_bytes()[..text.len().min(LABEL_MAX)];
            put_number(out, text.len() as u64);
            out.extend_from_slice(text);
        }
        for number in [self.from.0, self.to.0, self.incarnation, self.to_incarnation] {
            put_number(out, number.into());
        }
        put_number(out, self.life);
        put_number(out, self.received);
        put_number(out, self.digest);
        put_number(out, self.lives);
        let length = (out.len() - start - 6) as u16;
        out[start + 4..start + 6].copy_from_slice(&length.to_be_bytes());
    }

    /// Reads a greeting from the front of a buffer and tells how many bytes it took. `Truncated`: more must come first.
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
        bytes.finish()?;
        Ok((hello, 6 + length))
    }

    fn read(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = bytes.byte()?;
        if version != VERSION {
            return Err(DecodeError::Version { peer: version, own: VERSION });
        }
        let mut label = || {
            let length = bytes.number()?;
            let taken = bytes.take(usize::try_from(length).unwrap_or(usize::MAX).min(LABEL_MAX + 1))?;
            if taken.len() > LABEL_MAX {
                return Err(DecodeError::TooLong);
            }
            Ok(std::str::from_utf8(taken).map_err(|_| DecodeError::Name)?.to_owned())
        };
        let (group, name) = (label()?, label()?);
        Ok(Self {
            group,
            name,
            from: bytes.node()?,
            to: bytes.node()?,
            incarnation: bytes.short()?,
            to_incarnation: bytes.short()?,
            life: bytes.number()?,
            received: bytes.number()?,
            digest: bytes.number()?,
            lives: bytes.number()?,
        })
    }
}
