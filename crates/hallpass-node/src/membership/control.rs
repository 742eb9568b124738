//! What nodes say to each other about the group. Every message may be lost, repeated or overtaken: a node that needs an answer asks
//! again, and what is out of date is ignored.

use std::collections::BTreeSet;

use hallpass_core::codec::{DecodeError, Reader, put_number, put_numbers};
use hallpass_core::{Fence, Mode, NodeId, Ticks};

use super::group::{Group, MEMBERS_MAX, Member, TTL_MAX, decode_class, encode_class};
use crate::Incarnation;
use crate::locks::{Held, HeldLock};
use crate::output::Request;
use crate::wire::{LABEL_MAX, NAME_MAX, OLDEST, VERSION, put_text, read_incarnation, read_text};

/// A message, and for which group it is: 0 before there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    pub(crate) group_id: u64,
    pub(crate) message: Control,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Control {
    /// I am in no group, and these are the ones I know of that are in none either.
    Founding {
        expect: u32,
        known: Vec<Founder>,
    },
    /// Consensus, between voters.
    Engine(Vec<u8>),
    /// A member renews its session. It tells whom it cannot reach, and whether its fences run out.
    Renew {
        incarnation: Incarnation,
        sent: Ticks,
        unreachable: Vec<NodeId>,
        wants_epoch: bool,
    },
    /// The steward's answer.
    Renewed {
        incarnation: Incarnation,
        sent: Ticks,
    },
    /// This incarnation will not be acknowledged any more: it may as well end now.
    Expelled {
        incarnation: Incarnation,
    },
    /// A node wants to join, and is connected with these.
    Join {
        member: Member,
        reached: Vec<NodeId>,
    },
    /// Who is to be connected with whom, and who is steward.
    Contacts(Contacts),
    /// These want to join: in the view of this epoch, they are to be connected with all members.
    Candidates {
        epoch: u64,
        candidates: Vec<Member>,
    },
    /// Why a node is not admitted.
    Refused {
        why: String,
    },
    /// A member that holds nothing any more leaves the view.
    Withdraw {
        incarnation: Incarnation,
        keeps_vote: bool,
    },
    /// It is out.
    Withdrawn {
        incarnation: Incarnation,
    },
    /// Are you there, and which view have you started?
    Probe {
        epoch: u64,
    },
    Probed {
        epoch: u64,
        incarnation: Incarnation,
        started: u64,
    },
    /// End the view that you are in, and report what you hold.
    Prepare {
        group: Group,
        voters: Vec<NodeId>,
    },
    Report {
        epoch: u64,
        incarnation: Incarnation,
        part: u32,
        parts: u32,
        held: Vec<Held>,
    },
    /// All have reported: these locks are held when the new view begins.
    Start {
        epoch: u64,
        part: u32,
        parts: u32,
        locks: Vec<HeldLock>,
    },
    Started {
        epoch: u64,
        incarnation: Incarnation,
    },
    /// A member asks the steward for something.
    Ask {
        token: u64,
        request: Request,
    },
    Answer {
        token: u64,
        result: Result<(), String>,
    },
    /// The holders of this lock are to give it back. `token` tells one such order from the next.
    Break {
        token: u64,
        lock: String,
    },
    /// How many holders there were when the order came, and how many of them are left.
    Broken {
        token: u64,
        before: u64,
        left: u64,
    },
}

/// A node that is about to found a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Founder {
    pub address: String,
    pub id: NodeId,
    pub incarnation: Incarnation,
    pub name: String,
    pub durable: bool,
    /// The group's epochs are to be above this.
    pub floor: u64,
    /// A digest of the settings that the founders must have in common.
    pub settings: u64,
}

/// See [`Control::Contacts`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Contacts {
    pub(crate) epoch: u64,
    pub(crate) steward: Option<NodeId>,
    pub(crate) members: Vec<Member>,
    /// Voters that are away.
    pub(crate) absent: Vec<Member>,
    /// Nodes that want to join.
    pub(crate) candidates: Vec<Member>,
    pub(crate) voters: Vec<NodeId>,
    /// How long a session lasts, and how far clocks may drift; 0 from a node of an earlier version.
    pub(crate) ttl: Ticks,
    pub(crate) drift_ppm: u32,
    /// Who is banned; `None` from a node of an earlier version. A node that was away learns by this that a ban was lifted.
    pub(crate) banned: Option<BTreeSet<String>>,
}

const FOUNDING: u8 = 1;
const ENGINE: u8 = 2;
const RENEW: u8 = 3;
const RENEWED: u8 = 4;
const EXPELLED: u8 = 5;
const JOIN: u8 = 6;
const CONTACTS: u8 = 7;
const REFUSED: u8 = 8;
const WITHDRAW: u8 = 9;
const WITHDRAWN: u8 = 10;
const PROBE: u8 = 11;
const PROBED: u8 = 12;
const PREPARE: u8 = 13;
const REPORT: u8 = 14;
const START: u8 = 15;
const STARTED: u8 = 16;
const ASK: u8 = 17;
const ANSWER: u8 = 18;
const BREAK: u8 = 19;
const BROKEN: u8 = 20;
const CANDIDATES: u8 = 21;

impl Envelope {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.group_id);
        self.message.encode(&mut out);
        out
    }

    /// What follows a message that is known is of a later version, and ignored.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = Reader::new(bytes);
        let version = bytes.byte()?;
        if version < OLDEST {
            return Err(DecodeError::Version { peer: version, own: VERSION });
        }
        let group_id = bytes.number()?;
        Ok(Self { group_id, message: Control::decode(&mut bytes)? })
    }
}

impl Control {
    /// The first byte of the message, by which its reader knows which one it is.
    fn tag(&self) -> u8 {
        match self {
            Self::Founding { .. } => FOUNDING,
            Self::Engine(_) => ENGINE,
            Self::Renew { .. } => RENEW,
            Self::Renewed { .. } => RENEWED,
            Self::Expelled { .. } => EXPELLED,
            Self::Join { .. } => JOIN,
            Self::Contacts(_) => CONTACTS,
            Self::Candidates { .. } => CANDIDATES,
            Self::Refused { .. } => REFUSED,
            Self::Withdraw { .. } => WITHDRAW,
            Self::Withdrawn { .. } => WITHDRAWN,
            Self::Probe { .. } => PROBE,
            Self::Probed { .. } => PROBED,
            Self::Prepare { .. } => PREPARE,
            Self::Report { .. } => REPORT,
            Self::Start { .. } => START,
            Self::Started { .. } => STARTED,
            Self::Ask { .. } => ASK,
            Self::Answer { .. } => ANSWER,
            Self::Break { .. } => BREAK,
            Self::Broken { .. } => BROKEN,
        }
    }

    /// For people.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Founding { .. } => "Founding",
            Self::Engine(_) => "Engine",
            Self::Renew { .. } => "Renew",
            Self::Renewed { .. } => "Renewed",
            Self::Expelled { .. } => "Expelled",
            Self::Join { .. } => "Join",
            Self::Contacts(_) => "Contacts",
            Self::Candidates { .. } => "Candidates",
            Self::Refused { .. } => "Refused",
            Self::Withdraw { .. } => "Withdraw",
            Self::Withdrawn { .. } => "Withdrawn",
            Self::Probe { .. } => "Probe",
            Self::Probed { .. } => "Probed",
            Self::Prepare { .. } => "Prepare",
            Self::Report { .. } => "Report",
            Self::Start { .. } => "Start",
            Self::Started { .. } => "Started",
            Self::Ask { .. } => "Ask",
            Self::Answer { .. } => "Answer",
            Self::Break { .. } => "Break",
            Self::Broken { .. } => "Broken",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Self::Founding { expect, known } => {
                put_number(out, (*expect).into());
                Founder::encode_all(known, out);
            }
            Self::Engine(bytes) => out.extend_from_slice(bytes),
            Self::Renew { incarnation, sent, unreachable, wants_epoch } => {
                put_numbers(out, [incarnation.get().into(), *sent]);
                put_nodes(out, unreachable);
                put_number(out, (*wants_epoch).into());
            }
            Self::Renewed { incarnation, sent } => put_numbers(out, [incarnation.get().into(), *sent]),
            Self::Expelled { incarnation } | Self::Withdrawn { incarnation } => {
                put_number(out, incarnation.get().into());
            }
            Self::Join { member, reached } => {
                member.encode(out);
                put_nodes(out, reached);
            }
            Self::Contacts(contacts) => contacts.encode(out),
            Self::Candidates { epoch, candidates } => {
                put_number(out, *epoch);
                put_list(out, candidates, Member::encode);
            }
            Self::Refused { why } => put_text(out, why),
            Self::Withdraw { incarnation, keeps_vote } => {
                put_numbers(out, [incarnation.get().into(), (*keeps_vote).into()]);
            }
            Self::Probe { epoch } => put_number(out, *epoch),
            Self::Probed { epoch, incarnation, started } => {
                put_numbers(out, [*epoch, incarnation.get().into(), *started]);
            }
            Self::Prepare { group, voters } => {
                group.encode(out);
                put_nodes(out, voters);
            }
            Self::Report { epoch, incarnation, part, parts, held } => {
                put_numbers(out, [*epoch, incarnation.get().into(), (*part).into(), (*parts).into()]);
                put_list(out, held, |held, out| put_held(out, &held.name, held.mode, held.fence));
            }
            Self::Start { epoch, part, parts, locks } => {
                put_numbers(out, [*epoch, (*part).into(), (*parts).into()]);
                put_list(out, locks, |lock, out| {
                    put_held(out, &lock.name, lock.mode, lock.fence);
                    put_nodes(out, &lock.holders);
                });
            }
            Self::Started { epoch, incarnation } => put_numbers(out, [*epoch, incarnation.get().into()]),
            Self::Ask { token, request } => {
                put_number(out, *token);
                encode_request(request, out);
            }
            Self::Answer { token, result } => {
                put_numbers(out, [*token, result.is_err().into()]);
                put_text(out, result.as_ref().err().map_or("", |why| why));
            }
            Self::Break { token, lock } => {
                put_number(out, *token);
                put_text(out, lock);
            }
            Self::Broken { token, before, left } => put_numbers(out, [*token, *before, *left]),
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            FOUNDING => Self::Founding { expect: bytes.short()?, known: Founder::decode_all(bytes)? },
            ENGINE => Self::Engine(bytes.rest().to_vec()),
            RENEW => Self::Renew {
                incarnation: read_incarnation(bytes)?,
                sent: bytes.number()?,
                unreachable: nodes(bytes)?,
                wants_epoch: bytes.number()? != 0,
            },
            RENEWED => Self::Renewed { incarnation: read_incarnation(bytes)?, sent: bytes.number()? },
            EXPELLED => Self::Expelled { incarnation: read_incarnation(bytes)? },
            JOIN => Self::Join { member: Member::decode(bytes)?, reached: nodes(bytes)? },
            CONTACTS => Self::Contacts(Contacts::decode(bytes)?),
            CANDIDATES => Self::Candidates { epoch: bytes.number()?, candidates: list(bytes, Member::decode)? },
            REFUSED => Self::Refused { why: read_text(bytes, WHY_MAX)? },
            WITHDRAW => Self::Withdraw { incarnation: read_incarnation(bytes)?, keeps_vote: bytes.number()? != 0 },
            WITHDRAWN => Self::Withdrawn { incarnation: read_incarnation(bytes)? },
            PROBE => Self::Probe { epoch: bytes.number()? },
            PROBED => {
                Self::Probed { epoch: bytes.number()?, incarnation: read_incarnation(bytes)?, started: bytes.number()? }
            }
            PREPARE => Self::Prepare { group: Group::decode(bytes)?, voters: nodes(bytes)? },
            REPORT => Self::Report {
                epoch: bytes.number()?,
                incarnation: read_incarnation(bytes)?,
                part: bytes.short()?,
                parts: bytes.short()?,
                held: list(bytes, |bytes| {
                    let (name, mode, fence) = read_held(bytes)?;
                    Ok(Held { name, mode, fence })
                })?,
            },
            START => Self::Start {
                epoch: bytes.number()?,
                part: bytes.short()?,
                parts: bytes.short()?,
                locks: list(bytes, |bytes| {
                    let (name, mode, fence) = read_held(bytes)?;
                    Ok(HeldLock { name, mode, fence, holders: nodes(bytes)? })
                })?,
            },
            STARTED => Self::Started { epoch: bytes.number()?, incarnation: read_incarnation(bytes)? },
            ASK => Self::Ask { token: bytes.number()?, request: decode_request(bytes)? },
            ANSWER => {
                let (token, failed) = (bytes.number()?, bytes.number()? != 0);
                let why = read_text(bytes, WHY_MAX)?;
                Self::Answer { token, result: if failed { Err(why) } else { Ok(()) } }
            }
            BREAK => Self::Break { token: bytes.number()?, lock: read_text(bytes, NAME_MAX)? },
            BROKEN => Self::Broken { token: bytes.number()?, before: bytes.number()?, left: bytes.number()? },
            _ => return Err(DecodeError::Unknown),
        })
    }
}

impl Contacts {
    fn encode(&self, out: &mut Vec<u8>) {
        let Self { epoch, steward, members, absent, candidates, voters, ttl, drift_ppm, banned } = self;
        put_numbers(out, [*epoch, steward.map_or(0, |steward| steward.0.into())]);
        put_list(out, members, Member::encode);
        put_list(out, absent, Member::encode);
        put_list(out, candidates, Member::encode);
        put_nodes(out, voters);
        if *ttl > 0 {
            put_numbers(out, [*ttl, (*drift_ppm).into()]);
            if let Some(banned) = banned {
                put_number(out, banned.len() as u64);
                banned.iter().for_each(|name| put_text(out, name));
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (epoch, steward) = (bytes.number()?, bytes.node()?);
        let mut contacts = Self {
            epoch,
            steward: (steward != NodeId::SERVER).then_some(steward),
            members: list(bytes, Member::decode)?,
            absent: list(bytes, Member::decode)?,
            candidates: list(bytes, Member::decode)?,
            voters: nodes(bytes)?,
            ..Self::default()
        };
        if epoch > Fence::EPOCH_MAX {
            return Err(DecodeError::Number);
        }
        if !bytes.is_empty() {
            (contacts.ttl, contacts.drift_ppm) = (bytes.number()?, bytes.short()?);
            if !(1..=TTL_MAX).contains(&contacts.ttl) || contacts.drift_ppm > 1_000_000 {
                return Err(DecodeError::Number);
            }
        }
        if !bytes.is_empty() {
            contacts.banned = Some(bytes.list(|bytes| read_text(bytes, LABEL_MAX))?.into_iter().collect());
        }
        Ok(contacts)
    }
}

/// The longest reason that one node tells another.
const WHY_MAX: usize = 1024;

impl Founder {
    fn encode(&self, out: &mut Vec<u8>) {
        self.member().encode(out);
        put_numbers(out, [self.floor, self.settings]);
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let Member { id, incarnation, name, address, durable } = Member::decode(bytes)?;
        let (floor, settings) = (bytes.number()?, bytes.number()?);
        // The group's first epoch is above it.
        if floor >= Fence::EPOCH_MAX {
            return Err(DecodeError::Number);
        }
        Ok(Self { address, id, incarnation, name, durable, floor, settings })
    }

    pub(crate) fn encode_all(founders: &[Self], out: &mut Vec<u8>) {
        put_list(out, founders, Self::encode);
    }

    pub(crate) fn decode_all(bytes: &mut Reader<'_>) -> Result<Vec<Self>, DecodeError> {
        list(bytes, Self::decode)
    }

    pub(crate) fn member(&self) -> Member {
        let Self { address, id, incarnation, name, durable, .. } = self.clone();
        Member { id, incarnation, name, address, durable }
    }
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut item: impl FnMut(&T, &mut Vec<u8>)) {
    put_number(out, list.len() as u64);
    list.iter().for_each(|one| item(one, out));
}

fn put_nodes(out: &mut Vec<u8>, nodes: &[NodeId]) {
    put_list(out, nodes, |node, out| put_number(out, node.0.into()));
}

fn list<T>(
    bytes: &mut Reader<'_>,
    item: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    bytes.list(item).map(<[T]>::into_vec)
}

fn nodes(bytes: &mut Reader<'_>) -> Result<Vec<NodeId>, DecodeError> {
    let nodes = list(bytes, |bytes| bytes.node())?;
    if nodes.len() > MEMBERS_MAX { Err(DecodeError::TooLong) } else { Ok(nodes) }
}

fn put_held(out: &mut Vec<u8>, name: &str, mode: Mode, fence: Fence) {
    put_text(out, name);
    out.push((mode == Mode::Shared).into());
    put_number(out, fence.get());
}

fn read_held(bytes: &mut Reader<'_>) -> Result<(Box<str>, Mode, Fence), DecodeError> {
    let name = read_text(bytes, NAME_MAX)?;
    if name.is_empty() {
        return Err(DecodeError::Name);
    }
    let mode = match bytes.byte()? {
        0 => Mode::Exclusive,
        1 => Mode::Shared,
        _ => return Err(DecodeError::Unknown),
    };
    let fence = bytes.number()?;
    if fence >> 63 != 0 {
        return Err(DecodeError::Number);
    }
    Ok((name.into(), mode, Fence::new(fence)))
}

fn encode_request(request: &Request, out: &mut Vec<u8>) {
    match request {
        Request::Stop => out.push(1),
        Request::Leave => out.push(2),
        Request::Evict { node, ban } => {
            out.push(3);
            put_numbers(out, [node.0.into(), (*ban).into()]);
        }
        Request::Admit { name } => {
            out.push(4);
            put_text(out, name);
        }
        Request::Ban { name } => {
            out.push(7);
            put_text(out, name);
        }
        Request::SetClass(class) => {
            out.push(5);
            encode_class(class, out);
        }
        Request::Break { lock } => {
            out.push(6);
            put_text(out, lock);
        }
    }
}

fn decode_request(bytes: &mut Reader<'_>) -> Result<Request, DecodeError> {
    Ok(match bytes.byte()? {
        1 => Request::Stop,
        2 => Request::Leave,
        3 => Request::Evict { node: bytes.node()?, ban: bytes.number()? != 0 },
        4 => Request::Admit { name: read_text(bytes, LABEL_MAX)? },
        5 => Request::SetClass(decode_class(bytes)?),
        7 => Request::Ban { name: read_text(bytes, LABEL_MAX)? },
        6 => Request::Break { lock: read_text(bytes, NAME_MAX)? },
        _ => return Err(DecodeError::Unknown),
    })
}
