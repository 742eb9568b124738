use std::fmt;

use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::{Message, Mode};
use crate::{Fence, NodeId};

/// A request, named by its member and that member's number for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Asker {
    /// Who asks.
    pub member: NodeId,
    /// The member's number for it: later requests of a member have larger ones.
    pub number: u64,
}

/// How a request asks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Asking {
    /// It waits.
    Plain,
    /// It does not wait for a holder.
    Try,
    /// Its member is inside with the request of this number, which is shared, and becomes exclusive.
    Upgrade {
        /// The number of the shared request.
        of: u64,
    },
}

/// What a GRANT says: the counts of the fences that the receiver may use, and how many GRANTs there are to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Share {
    /// The first count.
    pub count: u64,
    /// The last count. Of a shared request it is the first one, too.
    pub upto: u64,
    /// All GRANTs that the receiver needs. Each of them says the same.
    pub need: u32,
}

/// The request that comes after another one, and what its GRANT will say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Successor {
    /// Whose request it is.
    pub asker: Asker,
    /// Exclusive or shared.
    pub mode: Mode,
    /// What its GRANT says.
    pub share: Share,
}

/// A BACK inside a REQ: the sender's earlier request is over, and nobody was granted in its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GivenBack {
    /// The number of the earlier request.
    pub number: u64,
    /// The last count that it has used.
    pub used: u64,
}

/// The messages of [`Directory`](super::Directory).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DirectoryMessage {
    /// REQ, from a member to the home: it asks.
    Request {
        /// The sender's number.
        number: u64,
        /// Exclusive or shared.
        mode: Mode,
        /// How it asks.
        asking: Asking,
        /// What it gives back in the same message.
        back: Option<GivenBack>,
    },
    /// GRANT, from the home or from one who leaves: one of the grants that the receiver needs.
    Grant {
        /// The receiver's request.
        number: u64,
        /// What it is granted.
        share: Share,
    },
    /// FWD, from the home: when the receiver leaves its request, it grants this one.
    Forward {
        /// The receiver's request.
        number: u64,
        /// Who comes after it.
        next: Successor,
    },
    /// BACK, from a member to the home: its request is over.
    Back {
        /// The sender's request.
        number: u64,
        /// The last count that it has used.
        used: u64,
        /// How many requests were granted that a FWD had named.
        served: u32,
        /// The sender keeps the lock in shared mode.
        keep: bool,
    },
    /// PROBE, from the home: an attempt asks for the lock, so the receiver gives it back if it is idle.
    Probe {
        /// The receiver's request.
        number: u64,
        /// Who attempts.
        attempt: Asker,
    },
    /// HELD, from a member to the home: no, it is in use or somebody waits for it.
    Held {
        /// Who attempts.
        attempt: Asker,
    },
    /// BUSY, from the home: the receiver's request is refused.
    Busy {
        /// The receiver's request.
        number: u64,
    },
    /// WHO, from a member that waits to the home: who has the lock? For people; nothing else depends on it.
    Who {
        /// The sender's request.
        number: u64,
    },
    /// HAS, from the home: these members are before the receiver's request and may be inside.
    Has {
        /// The receiver's request.
        number: u64,
        /// A few of them.
        members: Box<[NodeId]>,
    },
}

// The first byte is the kind, and bits above it that are set where more follows or where the mode is shared.
const REQUEST: u8 = 1;
const GRANT: u8 = 2;
const FORWARD: u8 = 3;
const BACK: u8 = 4;
const PROBE: u8 = 5;
const HELD: u8 = 6;
const BUSY: u8 = 7;
const WHO: u8 = 8;
const HAS: u8 = 9;
const KIND: u8 = 15;
const SHARED: u8 = 1 << 4;
const TRY: u8 = 1 << 5;
const UPGRADE: u8 = 1 << 6;
const WITH_BACK: u8 = 1 << 7;
const KEEP: u8 = 1 << 5;

/// The most members that a HAS names.
pub(super) const NAMED_MAX: usize = 8;

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

impl Message for DirectoryMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQ",
            Self::Grant { .. } => "GRANT",
            Self::Forward { .. } => "FWD",
            Self::Back { .. } => "BACK",
            Self::Probe { .. } => "PROBE",
            Self::Held { .. } => "HELD",
            Self::Busy { .. } => "BUSY",
            Self::Who { .. } => "WHO",
            Self::Has { .. } => "HAS",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Who { number } => {
                out.push(WHO);
                put_number(out, number);
            }
            Self::Has { number, ref members } => {
                out.push(HAS);
                put_numbers(out, [number, members.len() as u64]);
                members.iter().for_each(|member| put_number(out, member.0.into()));
            }
            Self::Request { number, mode, asking, back } => {
                let how = match asking {
                    Asking::Plain => 0,
                    Asking::Try => TRY,
                    Asking::Upgrade { .. } => UPGRADE,
                };
                out.push(REQUEST | flag(mode == Mode::Shared, SHARED) | how | flag(back.is_some(), WITH_BACK));
                put_number(out, number);
                if let Asking::Upgrade { of } = asking {
                    put_number(out, of);
                }
                if let Some(GivenBack { number, used }) = back {
                    put_numbers(out, [number, used]);
                }
            }
            Self::Grant { number, share } => {
                out.push(GRANT);
                put_number(out, number);
                put_share(out, share);
            }
            Self::Forward { number, next: Successor { asker, mode, share } } => {
                out.push(FORWARD | flag(mode == Mode::Shared, SHARED));
                put_number(out, number);
                put_asker(out, asker);
                put_share(out, share);
            }
            Self::Back { number, used, served, keep } => {
                out.push(BACK | flag(keep, KEEP));
                put_numbers(out, [number, used, served.into()]);
            }
            Self::Probe { number, attempt } => {
                out.push(PROBE);
                put_number(out, number);
                put_asker(out, attempt);
            }
            Self::Held { attempt } => {
                out.push(HELD);
                put_asker(out, attempt);
            }
            Self::Busy { number } => {
                out.push(BUSY);
                put_number(out, number);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let first = bytes.byte()?;
        let flags = first & !KIND;
        let allow = |known: u8| if flags & !known == 0 { Ok(()) } else { Err(DecodeError::Unknown) };
        let mode = if flags & SHARED == 0 { Mode::Exclusive } else { Mode::Shared };
        Ok(match first & KIND {
            REQUEST => {
                allow(SHARED | TRY | UPGRADE | WITH_BACK)?;
                let number = bytes.count()?;
                let asking = match (flags & TRY != 0, flags & UPGRADE != 0) {
                    (false, false) => Asking::Plain,
                    (true, false) => Asking::Try,
                    (false, true) if mode == Mode::Exclusive => Asking::Upgrade { of: bytes.count()? },
                    _ => return Err(DecodeError::Unknown),
                };
                let back = match flags & WITH_BACK != 0 {
                    false => None,
                    true => Some(GivenBack { number: bytes.count()?, used: bytes.fence()? }),
                };
                Self::Request { number, mode, asking, back }
            }
            GRANT => {
                allow(0)?;
                Self::Grant { number: bytes.count()?, share: share(bytes)? }
            }
            FORWARD => {
                allow(SHARED)?;
                let (number, asker) = (bytes.count()?, asker(bytes)?);
                Self::Forward { number, next: Successor { asker, mode, share: share(bytes)? } }
            }
            BACK => {
                allow(KEEP)?;
                let (number, used, served) = (bytes.count()?, bytes.fence()?, bytes.short()?);
                Self::Back { number, used, served, keep: flags & KEEP != 0 }
            }
            PROBE => {
                allow(0)?;
                Self::Probe { number: bytes.count()?, attempt: asker(bytes)? }
            }
            HELD => {
                allow(0)?;
                Self::Held { attempt: asker(bytes)? }
            }
            BUSY => {
                allow(0)?;
                Self::Busy { number: bytes.count()? }
            }
            WHO => {
                allow(0)?;
                Self::Who { number: bytes.count()? }
            }
            HAS => {
                allow(0)?;
                let (number, members) = (bytes.count()?, bytes.list(Reader::node)?);
                if members.len() > NAMED_MAX {
                    return Err(DecodeError::TooLong);
                }
                Self::Has { number, members }
            }
            _ => return Err(DecodeError::Unknown),
        })
    }
}

fn put_asker(out: &mut Vec<u8>, Asker { member, number }: Asker) {
    put_numbers(out, [member.0.into(), number]);
}

fn asker(bytes: &mut Reader<'_>) -> Result<Asker, DecodeError> {
    Ok(Asker { member: bytes.node()?, number: bytes.count()? })
}

/// The last count is written as its distance from the first, which is small.
fn put_share(out: &mut Vec<u8>, Share { count, upto, need }: Share) {
    put_numbers(out, [count, upto.saturating_sub(count), need.into()]);
}

/// A share grants at least one count, and needs at least one GRANT.
fn share(bytes: &mut Reader<'_>) -> Result<Share, DecodeError> {
    let (count, more, need) = (bytes.fence()?, bytes.fence()?, bytes.short()?);
    let upto = count + more;
    if upto > Fence::COUNT_MAX || need == 0 { Err(DecodeError::Number) } else { Ok(Share { count, upto, need }) }
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'s {}", self.member, self.number)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count {}", self.count)?;
        if self.upto > self.count {
            write!(f, "..{}", self.upto)?;
        }
        if self.need > 1 { write!(f, ", one of {}", self.need) } else { Ok(()) }
    }
}

impl fmt::Display for DirectoryMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = |mode: Mode| if mode == Mode::Shared { ", shared" } else { "" };
        match self {
            Self::Request { number, mode, asking, back } => {
                write!(f, "REQ({number}{}", shared(*mode))?;
                match asking {
                    Asking::Plain => {}
                    Asking::Try => f.write_str(", try")?,
                    Asking::Upgrade { of } => write!(f, ", upgrade of {of}")?,
                }
                if let Some(GivenBack { number, used }) = back {
                    write!(f, ", back {number} used {used}")?;
                }
                f.write_str(")")
            }
            Self::Grant { number, share } => write!(f, "GRANT({number}, {share})"),
            Self::Forward { number, next: Successor { asker, mode, share } } => {
                write!(f, "FWD({number}: {asker}{}, {share})", shared(*mode))
            }
            Self::Back { number, used, served, keep } => {
                let keep = if *keep { ", keep" } else { "" };
                write!(f, "BACK({number}, used {used}, served {served}{keep})")
            }
            Self::Probe { number, attempt } => write!(f, "PROBE({number} for {attempt})"),
            Self::Held { attempt } => write!(f, "HELD({attempt})"),
            Self::Busy { number } => write!(f, "BUSY({number})"),
            Self::Who { number } => write!(f, "WHO({number})"),
            Self::Has { number, members } => {
                let members: Vec<String> = members.iter().map(NodeId::to_string).collect();
                write!(f, "HAS({number}: {})", members.join(" "))
            }
        }
    }
}
