//! What is read was written, and nothing that is read stops a node.

use proptest::prelude::*;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2};

use super::super::codec;
use super::super::*;
use super::world::{Chance, World};

/// A message with fields that could be right: close to what the nodes of a world say.
fn forged(chance: &mut Chance, near_term: u64, near_index: u64) -> Message {
    use MessageType as T;
    let near = |chance: &mut Chance, center: u64| match chance.below(12) {
        0 => 0,
        1 => hallpass_core::codec::COUNT_MAX,
        2 => chance.next(),
        _ => (center + chance.below(5)).saturating_sub(2),
    };
    let kinds = [
        T::MsgAppend,
        T::MsgAppend,
        T::MsgHeartbeat,
        T::MsgSnapshot,
        T::MsgTimeoutNow,
        T::MsgAppendResponse,
        T::MsgAppendResponse,
        T::MsgHeartbeatResponse,
        T::MsgRequestVote,
        T::MsgRequestVoteResponse,
        T::MsgRequestPreVote,
        T::MsgRequestPreVoteResponse,
    ];
    let mut message = Message::default();
    message.set_msg_type(chance.pick(&kinds));
    // Terms near the end of all numbers would end every world at once.
    message.term = if chance.one_in(50) { near(chance, near_term) } else { near_term + chance.below(3) };
    message.index = near(chance, near_index);
    message.log_term = near(chance, near_term);
    message.commit = near(chance, near_index);
    message.commit_term = near(chance, near_term);
    message.reject = chance.one_in(2);
    message.reject_hint = near(chance, near_index);
    if chance.one_in(3) {
        message.context = raft::CAMPAIGN_TRANSFER.to_vec().into();
    }
    match message.get_msg_type() {
        T::MsgAppend => message.set_entries(forged_entries(chance, message.index, message.log_term).into()),
        T::MsgSnapshot => message.set_snapshot(forged_snapshot(chance, near_term, near_index)),
        T::MsgHeartbeat | T::MsgHeartbeatResponse => message.context = vec![chance.below(3) as u8; 16].into(),
        _ => {}
    }
    message
}

fn forged_entries(chance: &mut Chance, after: u64, mut term: u64) -> Vec<Entry> {
    let count = chance.below(4);
    let entry = |offset| {
        term = term.saturating_add(chance.below(2)).max(1);
        let mut entry = Entry { term, index: after.saturating_add(offset), ..Entry::default() };
        if chance.one_in(3) {
            let change = forged_change(chance);
            entry.set_entry_type(EntryType::EntryConfChangeV2);
            entry.context = codec::encode_changes(&change).into();
        } else {
            entry.data = vec![1; chance.below(3) as usize].into();
        }
        entry
    };
    (1..=count).map(entry).collect()
}

fn forged_change(chance: &mut Chance) -> ConfChangeV2 {
    let mut change = ConfChangeV2::default();
    let count = chance.below(4);
    let single = |_| {
        let mut single = ConfChangeSingle { node_id: 1 + chance.below(6), ..ConfChangeSingle::default() };
        let kinds = [ConfChangeType::AddNode, ConfChangeType::AddLearnerNode, ConfChangeType::RemoveNode];
        single.set_change_type(chance.pick(&kinds));
        single
    };
    change.set_changes((0..count).map(single).collect::<Vec<_>>().into());
    if count > 1 || count == 1 && chance.one_in(2) {
        change.set_transition(ConfChangeTransition::Explicit);
    }
    change
}

fn forged_snapshot(chance: &mut Chance, near_term: u64, near_index: u64) -> Snapshot {
    let mut snapshot = Snapshot { data: vec![0; 16].into(), ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    metadata.index = (near_index + chance.below(9)).saturating_sub(4).max(1);
    metadata.term = near_term.saturating_sub(chance.below(2)).max(1);
    let conf = metadata.mut_conf_state();
    for id in 1..=6 {
        match chance.below(5) {
            0 => conf.voters.push(id),
            1 => conf.voters_outgoing.push(id),
            2 => conf.learners.push(id),
            3 => {
                conf.voters.push(id);
                conf.voters_outgoing.push(id);
            }
            _ => {}
        }
        if chance.one_in(8) {
            conf.learners_next.push(id);
        }
    }
    snapshot
}

/// What is said after that is of no consequence, but nobody stops.
#[test]
fn no_message_stops_a_node() {
    let mut refused = [0u32; 2];
    let mut taken = 0u32;
    for seed in 0..1500 {
        let founders = [1, 3, 5][(seed % 3) as usize];
        let mut world = World::new(seed, 6, founders);
        world.mistake = super::world::Mistake::Forgery;
        for machine in world.machines.values_mut() {
            machine.write_ticks = [0, 3, 30][(seed / 3 % 3) as usize];
        }
        for round in 0..120 {
            let _ = world.step();
            let ids = world.ids();
            let (from, to) = (world.chance.pick(&ids), world.chance.pick(&ids));
            if round < 20 + seed % 20 || from == to {
                continue;
            }
            if let Some(leader) = world.leader() {
                let _ = world.propose(leader);
                let _ = world.confirm(leader);
                let _ = world.set_voters(leader, [[from, to, leader].as_slice(), &[leader]][(round % 2) as usize]);
            }
            let raft = &world.engine(to).node.raft;
            let (term, index) = (raft.term, raft.raft_log.last_index());
            let message = forged(&mut world.chance, term, index);
            let bytes = codec::encode_message(&message).expect("it is of a kind that is sent");
            match world.engine(to).receive(from, &bytes) {
                Ok(()) => taken += 1,
                Err(MessageError::Malformed(_)) => refused[0] += 1,
                Err(MessageError::Impossible) => refused[1] += 1,
            }
            let _ = world.drain(to);
        }
    }
    assert!(taken > 10_000 && refused[0] > 1000 && refused[1] > 1000, "{taken} taken, {refused:?} refused");
}

#[test]
fn what_a_node_cannot_have_been_sent_is_refused() {
    let mut engine = Engine::found(NodeId(1), &[1, 2, 3].map(NodeId), Vec::new(), 1);
    while engine.poll().is_some() {}
    engine.persisted(1);
    let mut heartbeat = Message { term: 5, commit: 2, ..Message::default() };
    heartbeat.set_msg_type(MessageType::MsgHeartbeat);
    let mut receive = |from, message: &Message| {
        let bytes = codec::encode_message(message).expect("it is of a kind that is sent");
        engine.receive(NodeId(from), &bytes)
    };
    assert_eq!(receive(2, &heartbeat), Err(MessageError::Impossible));
    heartbeat.commit = 1;
    assert_eq!(receive(1, &heartbeat), Err(MessageError::Impossible));
    assert_eq!(receive(0, &heartbeat), Err(MessageError::Impossible));
    assert_eq!(receive(2, &heartbeat), Ok(()));
    heartbeat.term = 0;
    assert_eq!(receive(2, &heartbeat), Err(MessageError::Malformed(DecodeError::Number)));
}

#[test]
fn messages_that_stay_at_home_are_not_encoded() {
    for kind in
        [MessageType::MsgHup, MessageType::MsgPropose, MessageType::MsgReadIndex, MessageType::MsgTransferLeader]
    {
        let mut message = Message::default();
        message.set_msg_type(kind);
        assert_eq!(codec::encode_message(&message), None);
    }
}

#[test]
fn the_longest_messages_fit() {
    let mut snapshot = Snapshot { data: vec![1; SNAPSHOT_MAX].into(), ..Snapshot::default() };
    (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (u64::MAX >> 2, u64::MAX >> 2);
    snapshot.mut_metadata().mut_conf_state().voters = (1..100).collect();
    let mut message = Message { term: u64::MAX >> 2, ..Message::default() };
    message.set_msg_type(MessageType::MsgSnapshot);
    message.set_snapshot(snapshot);
    let bytes = codec::encode_message(&message).expect("it is sent");
    assert_eq!(codec::decode_message(&bytes), Ok(message));
    assert_eq!(codec::decode_message(&vec![1; 1 << 20]), Err(DecodeError::TooLong));
}

proptest! {
    #[test]
    fn what_is_decoded_is_encoded_to_the_same_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0u8..12) {
        let mut bytes = bytes;
        for (place, value) in [1, kind].into_iter().enumerate() {
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
        }
        if let Ok(message) = codec::decode_message(&bytes) {
            prop_assert_eq!(codec::encode_message(&message), Some(bytes.clone()));
        }
        if let Ok(entry) = codec::decode_entry(&bytes, 0, 0) {
            prop_assert_eq!(codec::encode_entry(&entry), bytes.clone());
        }
        if let Ok(state) = codec::decode_hard_state(&bytes) {
            prop_assert_eq!(codec::encode_hard_state(&state), bytes.clone());
        }
        if let Ok(snapshot) = codec::decode_snapshot(&bytes) {
            prop_assert_eq!(codec::encode_snapshot(&snapshot), bytes.clone());
        }
        if let Ok(change) = codec::decode_changes(&bytes) {
            prop_assert_eq!(codec::encode_changes(&change), bytes);
        }
    }

    #[test]
    fn what_is_possible_survives_the_way(seed in any::<u64>(), term in 1u64..1 << 61, index in 0u64..1 << 61) {
        let mut chance = Chance::new(seed);
        let message = forged(&mut chance, term, index);
        let bytes = codec::encode_message(&message).expect("it is of a kind that is sent");
        if let Ok(decoded) = codec::decode_message(&bytes) {
            prop_assert_eq!(codec::encode_message(&decoded), Some(bytes.clone()));
            prop_assert_eq!(decoded.term, message.term);
            prop_assert_eq!(decoded.get_entries(), message.get_entries());
            prop_assert_eq!(decoded.get_snapshot(), message.get_snapshot());
        }
        for cut in 0..bytes.len() {
            prop_assert!(codec::decode_message(&bytes[..cut]).is_err());
        }
    }
}
