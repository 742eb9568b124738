//! How consensus crosses wire and disk. The engine's own encoding is never used: its parser is not made for bytes from
//! strangers. Whatever is decoded here is well-formed; whether it is possible is for
//! [`Engine::receive`](super::Engine::receive) to say.

use hallpass_core::codec::{COUNT_MAX, DecodeError, Reader, put_number, put_numbers};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, HardState,
    Message, MessageType, Snapshot,
};
use raft::{CAMPAIGN_TRANSFER, INVALID_ID};

/// The version of what is sent and stored.
const VERSION: u8 = 1;
/// No message is longer: the control plane carries at most 1 MiB, with what is around it.
pub(super) const MESSAGE_MAX: usize = (1 << 20) - (1 << 16);
/// A heartbeat carries the number of a confirmation back and forth.
const CONTEXT_MAX: usize = 32;

const LEADER_KINDS: [(u8, MessageType); 4] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgHeartbeat),
    (3, MessageType::MsgSnapshot),
    (4, MessageType::MsgTimeoutNow),
];
const OTHER_KINDS: [(u8, MessageType); 6] = [
    (5, MessageType::MsgAppendResponse),
    (6, MessageType::MsgHeartbeatResponse),
    (7, MessageType::MsgRequestVote),
    (8, MessageType::MsgRequestVoteResponse),
    (9, MessageType::MsgRequestPreVote),
    (10, MessageType::MsgRequestPreVoteResponse),
];

/// Whether only a leader sends messages of this type.
pub(super) fn is_leaders(kind: MessageType) -> bool {
    LEADER_KINDS.iter().any(|(_, listed)| *listed == kind)
}

/// Whether these bytes answer another node's engine, and ask nothing of this one's.
pub(crate) fn is_answer(bytes: &[u8]) -> bool {
    use MessageType as T;
    let answers =
        [T::MsgAppendResponse, T::MsgHeartbeatResponse, T::MsgRequestVoteResponse, T::MsgRequestPreVoteResponse];
    let kind = bytes.get(1).and_then(|number| OTHER_KINDS.iter().find(|(listed, _)| listed == number));
    kind.is_some_and(|(_, kind)| answers.contains(kind))
}

/// The bytes of a message; none for the types that never leave a node. Sender and receiver are not among them: the
/// connection knows both.
pub(super) fn encode_message(message: &Message) -> Option<Vec<u8>> {
    use MessageType as T;
    let kind = message.get_msg_type();
    let (number, _) = LEADER_KINDS.iter().chain(&OTHER_KINDS).find(|(_, listed)| *listed == kind)?;
    let mut out = vec![VERSION, *number];
    put_number(&mut out, message.term);
    match kind {
        T::MsgAppend => {
            put_numbers(&mut out, [message.index, message.log_term, message.commit, message.entries.len() as u64]);
            message.entries.iter().for_each(|entry| put_entry(&mut out, entry));
        }
        T::MsgAppendResponse => {
            put_numbers(&mut out, [message.index, message.commit, message.reject.into()]);
            if message.reject {
                put_numbers(&mut out, [message.reject_hint, message.log_term]);
            }
        }
        T::MsgHeartbeat | T::MsgHeartbeatResponse => {
            put_number(&mut out, message.commit);
            put_bytes(&mut out, &message.context);
        }
        T::MsgRequestVote | T::MsgRequestPreVote => {
            let transfer = message.context == CAMPAIGN_TRANSFER;
            put_numbers(&mut out, [message.index, message.log_term, message.commit, message.commit_term]);
            put_number(&mut out, transfer.into());
        }
        T::MsgRequestVoteResponse | T::MsgRequestPreVoteResponse => {
            put_numbers(&mut out, [message.reject.into(), message.commit, message.commit_term]);
        }
        T::MsgSnapshot => put_snapshot(&mut out, message.get_snapshot()),
        _ => {}
    }
    Some(out)
}

/// Reads a message. It has no sender and no receiver yet.
pub(super) fn decode_message(bytes: &[u8]) -> Result<Message, DecodeError> {
    use MessageType as T;
    if bytes.len() > MESSAGE_MAX {
        return Err(DecodeError::TooLong);
    }
    let reader = &mut versioned(bytes)?;
    let number = reader.byte()?;
    let known = LEADER_KINDS.iter().chain(&OTHER_KINDS).find(|(listed, _)| *listed == number);
    let (_, kind) = known.ok_or(DecodeError::Unknown)?;
    let mut message = Message::default();
    message.set_msg_type(*kind);
    message.term = positive(reader)?;
    match kind {
        T::MsgAppend => {
            // Every log begins with a snapshot. The engine takes an entry without a term for one that it agrees with.
            (message.index, message.log_term) = (positive(reader)?, positive(reader)?);
            message.commit = reader.count()?;
            let (mut index, mut term) = (message.index, message.log_term);
            let entries = reader.list(|reader| read_entry(reader, &mut index, &mut term))?;
            if term > message.term {
                return Err(DecodeError::Number);
            }
            message.set_entries(entries.into_vec().into());
        }
        T::MsgAppendResponse => {
            [message.index, message.commit] = counts(reader)?;
            message.reject = boolean(reader)?;
            if message.reject {
                [message.reject_hint, message.log_term] = counts(reader)?;
            }
        }
        T::MsgHeartbeat | T::MsgHeartbeatResponse => {
            message.commit = reader.count()?;
            message.context = read_bytes(reader, CONTEXT_MAX)?.to_vec().into();
        }
        T::MsgRequestVote | T::MsgRequestPreVote => {
            [message.index, message.log_term, message.commit, message.commit_term] = counts(reader)?;
            if message.log_term > message.term || message.commit_term > message.term {
                return Err(DecodeError::Number);
            }
            if boolean(reader)? {
                message.context = CAMPAIGN_TRANSFER.to_vec().into();
            }
        }
        T::MsgRequestVoteResponse | T::MsgRequestPreVoteResponse => {
            message.reject = boolean(reader)?;
            [message.commit, message.commit_term] = counts(reader)?;
        }
        T::MsgSnapshot => {
            let snapshot = read_snapshot(reader)?;
            if snapshot.get_metadata().term > message.term {
                return Err(DecodeError::Number);
            }
            message.set_snapshot(snapshot);
        }
        _ => {}
    }
    reader.clone().finish()?;
    Ok(message)
}

/// What a node must not forget: its term, its vote in it, and how far it knows the log to be committed.
pub(super) fn encode_hard_state(state: &HardState) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_numbers(&mut out, [state.term, state.vote, state.commit]);
    out
}

pub(super) fn decode_hard_state(bytes: &[u8]) -> Result<HardState, DecodeError> {
    let mut reader = versioned(bytes)?;
    let mut state = HardState { term: reader.count()?, ..HardState::default() };
    state.vote = reader.short()?.into();
    state.commit = reader.count()?;
    reader.finish()?;
    Ok(state)
}

pub(super) fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_entry(&mut out, entry);
    out
}

/// Reads the entry that follows one with this index and term.
pub(super) fn decode_entry(bytes: &[u8], mut index: u64, mut term: u64) -> Result<Entry, DecodeError> {
    let mut reader = versioned(bytes)?;
    let entry = read_entry(&mut reader, &mut index, &mut term)?;
    reader.finish()?;
    Ok(entry)
}

pub(super) fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_snapshot(&mut out, snapshot);
    out
}

pub(super) fn decode_snapshot(bytes: &[u8]) -> Result<Snapshot, DecodeError> {
    let mut reader = versioned(bytes)?;
    let snapshot = read_snapshot(&mut reader)?;
    reader.finish()?;
    Ok(snapshot)
}

/// A change of the voters, as it stands in the log: none, to leave a joint configuration; one, to make it at once; or some
/// that are made by way of a joint configuration.
pub(super) fn encode_changes(change: &ConfChangeV2) -> Vec<u8> {
    let mut out = Vec::new();
    let joint = change.get_transition() == ConfChangeTransition::Explicit;
    put_numbers(&mut out, [joint.into(), change.changes.len() as u64]);
    for single in change.get_changes() {
        let kind = match single.get_change_type() {
            ConfChangeType::AddNode => 0,
            ConfChangeType::AddLearnerNode => 1,
            ConfChangeType::RemoveNode => 2,
        };
        put_numbers(&mut out, [kind, single.node_id]);
    }
    out
}

pub(super) fn decode_changes(bytes: &[u8]) -> Result<ConfChangeV2, DecodeError> {
    let mut reader = Reader::new(bytes);
    let joint = boolean(&mut reader)?;
    let changes = reader.list(|reader| {
        let kind = match reader.byte()? {
            0 => ConfChangeType::AddNode,
            1 => ConfChangeType::AddLearnerNode,
            2 => ConfChangeType::RemoveNode,
            _ => return Err(DecodeError::Unknown),
        };
        let mut single = ConfChangeSingle { node_id: node(reader)?, ..ConfChangeSingle::default() };
        single.set_change_type(kind);
        Ok(single)
    })?;
    // Several changes go by way of a joint configuration, and none is the way out of it.
    let possible = if joint { !changes.is_empty() } else { changes.len() <= 1 };
    if !possible {
        return Err(DecodeError::Unknown);
    }
    reader.finish()?;
    let mut change = ConfChangeV2::default();
    change.set_changes(changes.into_vec().into());
    if joint {
        change.set_transition(ConfChangeTransition::Explicit);
    }
    Ok(change)
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    let is_change = entry.get_entry_type() != EntryType::EntryNormal;
    put_numbers(out, [is_change.into(), entry.index, entry.term]);
    // A change stands in the context in our encoding: only its proposer has the engine's, and no one else needs that.
    put_bytes(out, if is_change { &entry.context } else { &entry.data });
}

/// Reads the entry after one with this index and term, and moves both on.
fn read_entry(reader: &mut Reader<'_>, index: &mut u64, term: &mut u64) -> Result<Entry, DecodeError> {
    let is_change = boolean(reader)?;
    let (own_index, own_term) = (positive(reader)?, positive(reader)?);
    if own_index != *index + 1 || own_term < *term {
        return Err(DecodeError::Number);
    }
    (*index, *term) = (own_index, own_term);
    let mut entry = Entry { index: own_index, term: own_term, ..Entry::default() };
    let bytes = read_bytes(reader, MESSAGE_MAX)?;
    if is_change {
        decode_changes(bytes)?;
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.context = bytes.to_vec().into();
    } else {
        entry.data = bytes.to_vec().into();
    }
    Ok(entry)
}

fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot) {
    let metadata = snapshot.get_metadata();
    let voters = metadata.get_conf_state();
    put_numbers(out, [metadata.index, metadata.term]);
    for nodes in [&voters.voters, &voters.voters_outgoing, &voters.learners, &voters.learners_next] {
        put_number(out, nodes.len() as u64);
        nodes.iter().for_each(|node| put_number(out, *node));
    }
    put_bytes(out, &snapshot.data);
}

fn read_snapshot(reader: &mut Reader<'_>) -> Result<Snapshot, DecodeError> {
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    metadata.index = positive(reader)?;
    metadata.term = positive(reader)?;
    let voters = metadata.mut_conf_state();
    voters.voters = read_nodes(reader)?;
    voters.voters_outgoing = read_nodes(reader)?;
    voters.learners = read_nodes(reader)?;
    voters.learners_next = read_nodes(reader)?;
    if !is_possible(voters) {
        return Err(DecodeError::Unknown);
    }
    snapshot.data = read_bytes(reader, MESSAGE_MAX)?.to_vec().into();
    Ok(snapshot)
}

/// Whether these can be the voters of a group. The engine stops at any other configuration.
fn is_possible(conf: &ConfState) -> bool {
    let votes = |node: &u64| conf.voters.contains(node);
    let voted = |node: &u64| conf.voters_outgoing.contains(node);
    !conf.voters.is_empty()
        && !conf.learners.iter().any(|node| votes(node) || voted(node))
        && conf.learners_next.iter().all(|node| voted(node) && !votes(node))
}

/// Reads a list of nodes in rising order.
fn read_nodes(reader: &mut Reader<'_>) -> Result<Vec<u64>, DecodeError> {
    let nodes = reader.list(node)?.into_vec();
    if nodes.is_sorted_by(|one, next| one < next) { Ok(nodes) } else { Err(DecodeError::Number) }
}

fn node(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let node = u64::from(reader.short()?);
    if node == INVALID_ID { Err(DecodeError::Number) } else { Ok(node) }
}

fn positive(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let number = reader.count()?;
    if number == 0 { Err(DecodeError::Number) } else { Ok(number) }
}

fn counts<const K: usize>(reader: &mut Reader<'_>) -> Result<[u64; K], DecodeError> {
    let mut numbers = [0; K];
    for number in &mut numbers {
        *number = reader.count()?;
    }
    Ok(numbers)
}

fn boolean(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::Unknown),
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn read_bytes<'a>(reader: &mut Reader<'a>, max: usize) -> Result<&'a [u8], DecodeError> {
    let length = usize::try_from(reader.number()?).map_err(|_| DecodeError::TooLong)?;
    if length > max { Err(DecodeError::TooLong) } else { reader.take(length) }
}

fn versioned(bytes: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        VERSION => Ok(reader),
        peer => Err(DecodeError::Version { peer, own: VERSION }),
    }
}

// Numbers that are read are at most this, so that the next one still fits.
const _: () = assert!(COUNT_MAX < u64::MAX - 1);
