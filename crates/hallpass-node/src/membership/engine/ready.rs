//! What raft has ready: messages, entries and snapshots to store, and entries to apply.

use raft::INVALID_ID;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};

use super::storage::names;
use super::{Engine, Event, Seal, Writing, codec, is_command, node, nodes, restored};
use crate::output::Write;

/// Between the engine and the disk.
impl Engine {
    /// Takes what the engine has to say. What it wants stored is in memory at once, and goes to disk with the next write.
    pub(super) fn take_ready(&mut self) {
        let mut ready = self.node.ready();
        self.disk.ready = ready.number();
        self.disk.changes += u64::from(ready.must_sync());
        let log = self.node.mut_store();
        if !ready.snapshot().is_empty() {
            log.restore(ready.snapshot().clone());
            self.disk.restoring = true;
            self.committed.clear();
        }
        log.append(ready.take_entries());
        if let Some(hard_state) = ready.hs() {
            log.hard_state = hard_state.clone();
        }
        let confirmed = ready.take_read_states();
        let committed = ready.take_committed_entries();
        let messages = [ready.take_messages(), ready.take_persisted_messages()].concat();
        self.node.advance_append_async(ready);
        self.announce_leader();
        self.committed.extend(committed);
        confirmed.iter().for_each(|state| self.on_confirmed(&state.request_ctx));
        messages.iter().for_each(|message| self.send(message));
        self.forget_settled();
    }

    /// Sends a message, once everything that it promises is on disk.
    pub(super) fn send(&mut self, message: &Message) {
        let (Some(to), Some(bytes)) = (node(message.to), codec::encode_message(message)) else { return };
        let event = Event::Send { to, bytes };
        let kind = message.get_msg_type();
        // A leader promises nothing but its term, since it counts its own log only once that is on disk. A single voter
        // leads before its term is. Nobody who answers a heartbeat promises more: a slow disk must not look like a death.
        let only_term = codec::is_leaders(kind) || kind == MessageType::MsgHeartbeatResponse;
        let promises_nothing = kind == MessageType::MsgRequestPreVoteResponse;
        if promises_nothing || only_term && message.term == self.disk.term || self.is_stored() {
            self.events.push_back(event);
        } else {
            self.held.push_back((self.disk.changes, event));
        }
    }

    /// Whether everything that must be on disk is there.
    pub(super) fn is_stored(&self) -> bool {
        self.disk.changes == self.disk.changes_done
    }

    /// Whether this node may become a candidate or leader: the engine insists that the log is on disk then.
    pub(super) fn is_settled(&self) -> bool {
        let log = &self.node.raft.raft_log;
        self.is_stored() && log.persisted == log.last_index() && self.committed.is_empty()
    }

    /// The engine remembers everything that it told of until it hears that it is on disk, even if it need not be.
    pub(super) fn forget_settled(&mut self) {
        if self.is_stored() {
            self.node.on_persist_ready(self.disk.ready);
        }
    }

    /// Starts the next write, if something must be written and nothing is being written.
    pub(super) fn next_write(&mut self) -> Option<Write> {
        let needed = !self.is_stored() || self.node.store().snapshot_changed();
        if self.disk.writing.is_some() || !needed {
            return None;
        }
        self.disk.writes += 1;
        let log = self.node.mut_store();
        let write = log.write(self.disk.writes);
        self.disk.writing = Some(Writing {
            number: self.disk.writes,
            changes: self.disk.changes,
            ready: self.disk.ready,
            term: log.hard_state.term,
            restoring: std::mem::take(&mut self.disk.restoring),
        });
        Some(write)
    }
}

/// Applying what is committed.
impl Engine {
    pub(super) fn apply(&mut self, entry: &Entry) {
        let (index, term) = (entry.index, entry.term);
        if is_command(entry) {
            self.events.push_back(Event::Apply { index, term, data: entry.data.to_vec() });
        }
        if entry.get_entry_type() != EntryType::EntryNormal
            && let Ok(change) = codec::decode_changes(&entry.context)
        {
            // A change that is impossible now is refused by all, since all have the same voters.
            let _ = self.node.apply_conf_change(&change);
            self.seal = Seal::Needed;
        }
        if matches!(self.seal, Seal::Proposed(at) if at <= index) {
            self.seal = Seal::Committed;
        }
        self.node.advance_apply_to(index);
        self.announce_voters();
        if self.is_elected() && !self.node.raft.promotable() {
            // It no longer votes, and the engine does not expect it to count on.
            self.node.raft.become_follower(self.term(), INVALID_ID);
        }
        if self.is_leader() && term == self.term() && self.announced.own_term != term {
            self.announced.own_term = term;
            self.events.push_back(Event::OwnTerm);
        }
    }

    /// The snapshot in the log is on disk, and becomes the application's state.
    pub(super) fn apply_restored(&mut self) {
        let snapshot = self.node.store().snapshot.clone();
        let index = snapshot.get_metadata().index;
        let log = &self.node.raft.raft_log;
        // A newer one may have come since; then that one is applied, when it is on disk.
        if log.applied < index && index <= log.persisted {
            self.node.advance_apply_to(index);
            self.events.push_back(restored(&snapshot));
            self.announce_voters();
        }
    }

    pub(super) fn announce_voters(&mut self) {
        let conf = self.conf();
        let voters = nodes(&conf.voters);
        self.heard.retain(|node, _| names(&conf, node.0.into()));
        if conf.voters_outgoing.is_empty() && voters != self.announced.voters {
            self.announced.voters.clone_from(&voters);
            self.events.push_back(Event::Voters(voters));
        }
    }

    pub(super) fn announce_leader(&mut self) {
        let (leader, term) = (self.leader(), self.term());
        let before = std::mem::replace(&mut self.announced.leader, leader);
        let before_term = std::mem::replace(&mut self.announced.term, term);
        if leader.is_some() {
            self.elections.pause = 0;
        }
        if leader.is_some() && leader == before && term != before_term {
            // It was lost and found again.
            self.events.push_back(Event::Leader(None));
        } else if leader == before {
            return;
        }
        self.events.push_back(Event::Leader(leader));
    }
}
