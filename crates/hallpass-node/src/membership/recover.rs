//! A group that has lost its majority for good is founded again, by an operator, from what one survivor has stored.

use std::collections::BTreeMap;
use std::fmt;

use hallpass_core::codec::Reader;
use hallpass_core::{Fence, NodeId};

use super::engine::{Engine, Event};
use super::group::{Command, Group};
use super::keys;
use crate::config::Digest;

/// Why a group cannot be founded again from what is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RecoverError {
    /// The node has never been in a group.
    NoGroup,
    /// What is stored cannot be read.
    Damaged(String),
    /// Epochs are used up.
    Epochs,
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGroup => f.write_str("this node has never been in a group: there is nothing to recover"),
            Self::Damaged(why) => write!(f, "what this node has stored is damaged: {why}; recover on another survivor"),
            Self::Epochs => f.write_str("the group has used up its epochs: found a new one under another name"),
        }
    }
}

impl std::error::Error for RecoverError {}

/// The new group's epochs begin so far above all that this node has stored: those that are lost may have been ahead.
const MARGIN: u64 = 1 << 16;

/// How many nodes belonged to the group when this node stored it last, those that were away among them; none if it was in no group.
pub fn last_members(stored: &BTreeMap<u64, Vec<u8>>) -> Option<usize> {
    let group = Group::decode(&mut Reader::new(stored.get(&keys::GROUP)?)).ok()?;
    Some(group.members.len() + group.absent.len())
}

/// What this node is to store instead, so that it is a group of one: the others have to join it, with empty directories. All
/// records but the driver's own are replaced. Returns the new epoch with it.
pub fn recover(stored: &BTreeMap<u64, Vec<u8>>, me: NodeId) -> Result<(u64, BTreeMap<u64, Vec<u8>>), RecoverError> {
    let damaged = |error: &dyn fmt::Display| RecoverError::Damaged(error.to_string());
    let decode = |bytes: &[u8]| Group::decode(&mut Reader::new(bytes)).map_err(|error| damaged(&error));
    // What a node has heard of a group before it was in one of its views is not all there is to it.
    let seen = stored.get(&keys::GROUP).map(|bytes| decode(bytes)).transpose()?.filter(|group| group.term > 0);
    let replicated = match Engine::recover(stored).map_err(|error| damaged(&error))? {
        None => None,
        Some(recovered) => {
            let mut group = decode(&recovered.state)?;
            // Also what was never known to be committed: an epoch that some other member may have used is not used again.
            for (term, command) in &recovered.commands {
                if let Ok(command) = Command::decode(command) {
                    group.apply(*term, &command);
                }
            }
            Some(group)
        }
    };
    let newest = [seen, replicated].into_iter().flatten().max_by_key(|group| group.epoch);
    let mut group = newest.ok_or(RecoverError::NoGroup)?;
    group.epoch += MARGIN;
    if group.epoch >= Fence::EPOCH_MAX {
        return Err(RecoverError::Epochs);
    }
    let mut digest = Digest::default();
    digest.add(&group.id.to_be_bytes());
    digest.add(&group.epoch.to_be_bytes());
    digest.add(&me.0.to_be_bytes());
    (group.id, group.term) = (digest.0.max(1), 1);
    group.absent.append(&mut group.members);
    group.absent.retain(|id, _| *id == me);
    let mut bytes = Vec::new();
    group.encode(&mut bytes);
    let mut engine = Engine::found(me, &[me], bytes.clone(), 0);
    let mut records: BTreeMap<u64, Vec<u8>> =
        stored.iter().filter(|(key, _)| **key < keys::GROUP).map(|(key, value)| (*key, value.clone())).collect();
    records.insert(keys::GROUP, bytes);
    records.insert(keys::RECOVERED, Vec::new());
    // It is to go on alone: an operator says so.
    records.insert(keys::SHARED, Vec::new());
    while let Some(event) = engine.poll() {
        if let Event::Persist(write) = event {
            records.extend(write.put);
            engine.persisted(write.number);
        }
    }
    Ok((group.epoch, records))
}
