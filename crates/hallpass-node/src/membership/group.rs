//! What the members agree on by consensus: who they are, and how locks are served. Nothing else is replicated.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_core::codec::{DecodeError, Reader, put_number};
use hallpass_core::{Fence, NodeId, Ticks};

use crate::Incarnation;
use crate::config::Class;
use crate::wire::{ADDRESS_MAX, LABEL_MAX, put_text, read_incarnation, read_text};

/// The group, as every voter has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    /// Drawn when the group was founded.
    pub id: u64,
    /// The number of the view.
    pub epoch: u64,
    /// The term of the command that made this view: only the steward of that term installs it.
    pub term: u64,
    /// Who takes part in the view.
    pub members: BTreeMap<NodeId, Member>,
    /// Who may vote and does not take part: it was stopped, or its session has run out.
    pub absent: BTreeMap<NodeId, Member>,
    /// Names that are not admitted. A key is banned by the name that its digest makes: so earlier versions keep these bans, too.
    pub banned: BTreeSet<String>,
    pub classes: Vec<Class>,
    pub ttl: Ticks,
    pub drift_ppm: u32,
    /// A member without a directory has no vote.
    pub durable: bool,
}

/// One start of a node, as the group knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    pub id: NodeId,
    pub incarnation: Incarnation,
    pub name: String,
    pub address: String,
    /// What it stores outlives its process.
    pub durable: bool,
}

/// A change of the group, as the steward proposes it. It does nothing in any other term or epoch than those it was made for,
/// since proposals are inherited and delayed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Command {
    pub term: u64,
    pub base: u64,
    pub changes: Vec<Change>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// A member joins, or an earlier incarnation of it is replaced.
    Add(Member),
    /// A member is out of the view. It may keep its vote.
    Remove {
        id: NodeId,
        incarnation: Incarnation,
        keeps_vote: bool,
    },
    Ban(String),
    Admit(String),
    SetClass(Class),
}

/// No group has more members.
pub(crate) const MEMBERS_MAX: usize = 4096;
const CLASSES_MAX: usize = 1024;

impl Group {
    /// Applies a command that was committed in a term; false if it does nothing. Every command that does something begins a
    /// new epoch, also one without a change.
    pub fn apply(&mut self, entry_term: u64, command: &Command) -> bool {
        if command.term != entry_term || command.base != self.epoch || self.epoch >= Fence::EPOCH_MAX {
            return false;
        }
        for change in &command.changes {
            self.change(change);
        }
        self.epoch += 1;
        self.term = entry_term;
        true
    }

    /// Whether these changes have an effect.
    pub fn is_changed_by(&self, changes: &[Change]) -> bool {
        let mut changed = self.clone();
        changes.iter().for_each(|change| changed.change(change));
        changed != *self
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Add(member) => {
                let older = |known: Option<&Member>| known.is_none_or(|known| known.incarnation < member.incarnation);
                let is_new = older(self.members.get(&member.id)) && older(self.absent.get(&member.id));
                if is_new && self.members.len() < MEMBERS_MAX && !self.banned.contains(&member.name) {
                    self.absent.remove(&member.id);
                    self.members.insert(member.id, member.clone());
                }
            }
            Change::Remove { id, incarnation, keeps_vote } => {
                if self.incarnation_of(*id) == Some(*incarnation)
                    && let Some(member) = self.members.remove(id)
                    && *keeps_vote
                {
                    self.absent.insert(*id, member);
                }
                if !keeps_vote {
                    self.absent.remove(id);
                }
            }
            Change::Ban(name) => drop(self.banned.insert(name.clone())),
            Change::Admit(name) => drop(self.banned.remove(name)),
            Change::SetClass(class) => {
                self.classes.retain(|known| known.prefix != class.prefix);
                if self.classes.len() < CLASSES_MAX {
                    self.classes.push(class.clone());
                }
            }
        }
    }

    /// The incarnation of a member that takes part in the view.
    pub fn incarnation_of(&self, id: NodeId) -> Option<Incarnation> {
        self.members.get(&id).map(|member| member.incarnation)
    }

    /// A node that is known by its id, in the view or not.
    pub fn find(&self, id: NodeId) -> Option<&Member> {
        self.members.get(&id).or_else(|| self.absent.get(&id))
    }

    /// How long the steward waits after the last renewal that it accepted: by then the member's own clock, however slow, has
    /// ended its session.
    pub fn expiry(&self) -> Ticks {
        self.ttl + self.ttl.saturating_mul(self.drift_ppm.into()) / 1_000_000 + 1
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.id, self.epoch, self.term, self.ttl, self.drift_ppm.into(), self.durable.into()] {
            put_number(out, number);
        }
        for members in [&self.members, &self.absent] {
            put_number(out, members.len() as u64);
            members.values().for_each(|member| member.encode(out));
        }
        put_number(out, self.banned.len() as u64);
        self.banned.iter().for_each(|name| put_text(out, name));
        put_number(out, self.classes.len() as u64);
        self.classes.iter().for_each(|class| encode_class(class, out));
    }

    pub(crate) fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, epoch, term, ttl) = (bytes.number()?, bytes.number()?, bytes.number()?, bytes.number()?);
        let (drift_ppm, durable) = (bytes.short()?, bytes.number()? != 0);
        let (members, absent) = (bytes.list(Member::decode)?, bytes.list(Member::decode)?);
        let banned = bytes.list(|bytes| read_text(bytes, LABEL_MAX))?;
        let classes = bytes.list(decode_class)?;
        let limits = epoch <= Fence::EPOCH_MAX && (1..=TTL_MAX).contains(&ttl) && drift_ppm <= 1_000_000;
        if !limits || members.len() > MEMBERS_MAX || absent.len() > MEMBERS_MAX || classes.len() > CLASSES_MAX {
            return Err(DecodeError::Number);
        }
        let by_id = |members: Box<[Member]>| members.into_iter().map(|member| (member.id, member)).collect();
        Ok(Self {
            id,
            epoch,
            term,
            members: by_id(members),
            absent: by_id(absent),
            banned: banned.into_iter().collect(),
            classes: classes.into_vec(),
            ttl,
            drift_ppm,
            durable,
        })
    }
}

/// No session is longer than a day.
pub(crate) const TTL_MAX: Ticks = 24 * 3600 * 1_000_000_000;

impl Member {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.id.0.into());
        put_number(out, self.incarnation.get().into());
        put_number(out, self.durable.into());
        put_text(out, &self.name);
        put_text(out, &self.address);
    }

    pub(crate) fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, incarnation, durable) = (bytes.node()?, read_incarnation(bytes)?, bytes.number()? != 0);
        if id == NodeId::SERVER {
            return Err(DecodeError::Unknown);
        }
        let (name, address) = (read_text(bytes, LABEL_MAX)?, read_text(bytes, ADDRESS_MAX)?);
        Ok(Self { id, incarnation, name, address, durable })
    }
}

pub(crate) fn encode_class(class: &Class, out: &mut Vec<u8>) {
    put_text(out, &class.prefix);
    put_text(out, &class.protocol);
    put_number(out, class.options.len() as u64);
    class.options.iter().for_each(|option| put_text(out, option));
}

pub(crate) fn decode_class(bytes: &mut Reader<'_>) -> Result<Class, DecodeError> {
    let (prefix, protocol) = (read_text(bytes, 255)?, read_text(bytes, LABEL_MAX)?);
    let options = bytes.list(|bytes| read_text(bytes, 1024))?.into_vec();
    Ok(Class { prefix, protocol, options })
}

impl Command {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.term);
        put_number(&mut out, self.base);
        put_number(&mut out, self.changes.len() as u64);
        for change in &self.changes {
            match change {
                Change::Add(member) => {
                    out.push(1);
                    member.encode(&mut out);
                }
                Change::Remove { id, incarnation, keeps_vote } => {
                    out.push(2);
                    put_number(&mut out, id.0.into());
                    put_number(&mut out, incarnation.get().into());
                    put_number(&mut out, (*keeps_vote).into());
                }
                Change::Ban(name) => {
                    out.push(3);
                    put_text(&mut out, name);
                }
                Change::Admit(name) => {
                    out.push(4);
                    put_text(&mut out, name);
                }
                Change::SetClass(class) => {
                    out.push(5);
                    encode_class(class, &mut out);
                }
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut bytes = Reader::new(bytes);
        let (term, base) = (bytes.number()?, bytes.number()?);
        let changes = bytes.list(|bytes| {
            Ok(match bytes.byte()? {
                1 => Change::Add(Member::decode(bytes)?),
                2 => Change::Remove {
                    id: bytes.node()?,
                    incarnation: read_incarnation(bytes)?,
                    keeps_vote: bytes.number()? != 0,
                },
                3 => Change::Ban(read_text(bytes, LABEL_MAX)?),
                4 => Change::Admit(read_text(bytes, LABEL_MAX)?),
                5 => Change::SetClass(decode_class(bytes)?),
                _ => return Err(DecodeError::Unknown),
            })
        })?;
        bytes.finish()?;
        Ok(Self { term, base, changes: changes.into_vec() })
    }
}
