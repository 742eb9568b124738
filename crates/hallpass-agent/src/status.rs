//! What a node knows, as lines for clients.

use std::sync::atomic::Ordering;

use hallpass::Node;

use crate::agent::State;
use crate::api::{LockLine, MemberLine, StatusLine};

impl From<hallpass::LockInfo> for LockLine {
    fn from(lock: hallpass::LockInfo) -> Self {
        Self {
            name: lock.name,
            protocol: lock.protocol,
            held: lock.held.map(|mode| mode.to_string()),
            holders: lock.holders,
            waiters: lock.waiters,
            fence: lock.fence.to_string(),
        }
    }
}

impl From<hallpass::Member> for MemberLine {
    fn from(member: hallpass::Member) -> Self {
        Self {
            id: member.id,
            name: member.name,
            address: member.address,
            incarnation: member.incarnation.unwrap_or(0),
            connected: member.connected,
            this: member.is_this,
            trouble: member.trouble,
        }
    }
}

/// The status of an agent and its node.
pub(crate) fn of(agent: &State) -> StatusLine {
    let status = agent.node.status();
    StatusLine {
        connected: status.members.iter().filter(|member| member.connected && !member.is_this).count(),
        members: status.members.len(),
        group: status.group,
        node: status.name,
        complete: status.complete,
        epoch: status.epoch,
        encrypted: status.encrypted,
        clients: agent.clients.load(Ordering::Acquire),
        locks: status.locks,
        messages: status.messages,
        grants: status.grants,
    }
}

/// A member whose absence may be why a lock is not granted though nobody holds it.
pub(crate) fn missing_member(node: &Node) -> Option<String> {
    let status = node.status();
    let missing = status.members.iter().find(|member| !member.connected)?;
    let name = missing.name.as_ref().unwrap_or(&missing.address).escape_debug();
    let state = if missing.incarnation.is_none() { "has not connected yet" } else { "is not connected" };
    Some(format!("member '{name}' {state}; 'hallpass members' shows more"))
}
