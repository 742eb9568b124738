//! One thing at a time.

use std::collections::BTreeMap;

use super::super::*;
use super::world::World;
use crate::faults::Honest;

type Tested = Result<(), String>;

fn started(nodes: u32, founders: u32) -> Result<World, String> {
    let mut world = World::new(u64::from(nodes * 10 + founders), nodes, founders);
    for id in world.ids() {
        world.drain(id)?;
    }
    world.engine(NodeId(1)).campaign();
    world.drain(NodeId(1))?;
    assert!(world.until(50, |world| world.leader().is_some())?, "nobody leads");
    world.progresses(50)?;
    Ok(world)
}

/// Events until there is none; writes are stored at once.
fn settle(engine: &mut Engine, disk: &mut BTreeMap<u64, Vec<u8>>) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = engine.poll() {
        if let Event::Persist(write) = &event {
            store(disk, write);
            engine.persisted(write.number);
        }
        events.push(event);
    }
    events
}

fn store(disk: &mut BTreeMap<u64, Vec<u8>>, write: &Write) {
    disk.retain(|key, _| !write.remove.contains(key));
    disk.extend(write.put.iter().cloned());
}

fn founded(voters: &[u32]) -> (Engine, BTreeMap<u64, Vec<u8>>) {
    let voters: Vec<NodeId> = voters.iter().copied().map(NodeId).collect();
    let mut engine = Engine::found(NodeId(1), &voters, b"founding".to_vec(), 3);
    let mut disk = BTreeMap::new();
    settle(&mut engine, &mut disk);
    (engine, disk)
}

fn led() -> (Engine, BTreeMap<u64, Vec<u8>>) {
    let (mut engine, mut disk) = founded(&[1]);
    engine.campaign();
    settle(&mut engine, &mut disk);
    assert!(engine.is_leader());
    (engine, disk)
}

fn applied(events: &[Event]) -> Vec<&[u8]> {
    let data = events.iter().filter_map(|event| match event {
        Event::Apply { data, .. } | Event::Restore { data, .. } => Some(&data[..]),
        _ => None,
    });
    data.collect()
}

#[test]
fn the_first_event_stores_the_founding() {
    let mut engine = Engine::found(NodeId(1), &[NodeId(2), NodeId(1)], b"founding".to_vec(), 3);
    let Some(Event::Persist(write)) = engine.poll() else { panic!("nothing is stored") };
    let keys: Vec<u64> = write.put.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [HARD_STATE_KEY, SNAPSHOT_KEY]);
    assert_eq!(engine.poll(), None);
    assert_eq!(engine.voters(), [NodeId(1), NodeId(2)]);
}

#[test]
fn a_single_voter_leads_at_once_and_sends_nothing() {
    let (mut engine, mut disk) = founded(&[1]);
    engine.campaign();
    let mut events = settle(&mut engine, &mut disk);
    assert!(engine.propose(b"one".to_vec()));
    engine.confirm(7);
    events.extend(settle(&mut engine, &mut disk));
    for _ in 0..100 {
        engine.tick();
        events.extend(settle(&mut engine, &mut disk));
    }
    assert_eq!(applied(&events), [b"one"]);
    let told: Vec<&Event> = events.iter().filter(|event| !matches!(event, Event::Persist(_))).collect();
    assert_eq!(told[..2], [&Event::Leader(Some(NodeId(1))), &Event::OwnTerm]);
    assert!(told.contains(&&Event::Confirmed { batch: 7 }));
    assert!(!events.iter().any(|event| matches!(event, Event::Send { .. } | Event::Leader(None))), "{events:?}");
}

#[test]
fn a_campaign_waits_for_the_disk() {
    let mut engine = Engine::found(NodeId(1), &[NodeId(1)], b"founding".to_vec(), 3);
    engine.campaign();
    assert!(matches!(engine.poll(), Some(Event::Persist(_))));
    assert_eq!(engine.poll(), None);
    assert!(!engine.is_leader());
    engine.persisted(1);
    assert!(matches!(engine.poll(), Some(Event::Persist(_))));
    assert_eq!(engine.poll(), None);
    assert!(!engine.is_leader(), "its term is not stored");
    engine.persisted(2);
    assert_eq!(engine.poll(), Some(Event::Leader(Some(NodeId(1)))));
    assert!(engine.is_leader());
}

#[test]
fn a_command_is_applied_only_when_it_is_stored() {
    let (mut engine, _) = led();
    assert!(engine.propose(b"one".to_vec()));
    let Some(Event::Persist(write)) = engine.poll() else { panic!("nothing is stored") };
    for _ in 0..50 {
        engine.tick();
        assert_eq!(engine.poll(), None);
    }
    engine.persisted(write.number + 1);
    assert_eq!(engine.poll(), None, "another write counts for this one");
    engine.persisted(write.number);
    assert!(matches!(engine.poll(), Some(Event::Apply { data, .. }) if data == b"one"));
}

#[test]
fn what_comes_during_a_write_goes_into_the_next() {
    let (mut engine, mut disk) = led();
    assert!(engine.propose(b"one".to_vec()));
    let Some(Event::Persist(first)) = engine.poll() else { panic!("nothing is stored") };
    for data in [b"two", b"six", b"ten"] {
        assert!(engine.propose(data.to_vec()));
        assert_eq!(engine.poll(), None);
    }
    engine.persisted(first.number);
    let events = settle(&mut engine, &mut disk);
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Persist(_))).count(), 1);
    assert_eq!(applied(&events), [b"one", b"two", b"six", b"ten"]);
}

#[test]
fn commands_are_bounded_and_never_empty() {
    let (mut engine, _) = led();
    assert!(!engine.propose(Vec::new()));
    assert!(!engine.propose(vec![0; COMMAND_MAX + 1]));
    assert!(engine.propose(vec![0; COMMAND_MAX]));
    let (mut follower, _) = founded(&[1, 2, 3]);
    assert!(!follower.propose(b"one".to_vec()));
    assert!(!follower.set_voters(&[NodeId(1)], Honest));
    follower.confirm(1);
    assert_eq!(follower.poll(), None);
}

#[test]
fn a_restart_gives_the_state_back() {
    let (mut engine, mut disk) = led();
    for data in [b"one", b"two"] {
        engine.propose(data.to_vec());
        settle(&mut engine, &mut disk);
    }
    let term = engine.term();
    let mut again = Engine::restore(NodeId(1), &disk, 3).expect("it is whole").expect("something is stored");
    assert_eq!(again.term(), term);
    again.campaign();
    let events = settle(&mut again, &mut disk);
    assert_eq!(applied(&events), [&b"founding"[..], b"one", b"two"]);
    assert!(again.term() > term);

    assert!(again.snapshot(b"all of it".to_vec()));
    settle(&mut again, &mut disk);
    assert_eq!(disk.len(), 2, "the log is not compacted");
    let mut third = Engine::restore(NodeId(1), &disk, 3).expect("it is whole").expect("something is stored");
    assert_eq!(applied(&settle(&mut third, &mut disk)), [b"all of it"]);
}

#[test]
fn a_snapshot_is_wanted_when_the_log_is_long() {
    let (mut engine, mut disk) = led();
    while engine.log_len() <= LOG_MAX {
        assert!(!engine.wants_snapshot(), "after {}", engine.log_len());
        engine.propose(b"one".to_vec());
        settle(&mut engine, &mut disk);
    }
    assert!(engine.wants_snapshot());
    assert!(!engine.snapshot(vec![0; SNAPSHOT_MAX + 1]));
    assert!(engine.snapshot(vec![0; SNAPSHOT_MAX]));
    assert!(!engine.wants_snapshot());
    assert_eq!(engine.log_len(), 0);
    assert!(!engine.snapshot(Vec::new()), "nothing has happened since");
}

#[test]
fn recovery_finds_everything_that_is_stored() {
    let (mut engine, mut disk) = led();
    engine.propose(b"one".to_vec());
    settle(&mut engine, &mut disk);
    engine.snapshot(b"one applied".to_vec());
    engine.propose(b"two".to_vec());
    settle(&mut engine, &mut disk);
    let recovered = Engine::recover(&disk).expect("it is whole").expect("something is stored");
    assert_eq!(recovered.state, b"one applied");
    assert_eq!(recovered.voters, [NodeId(1)]);
    let term = engine.term();
    assert_eq!(recovered.commands, [(term, b"two".to_vec())]);
    assert_eq!(Engine::recover(&BTreeMap::new()), Ok(None));
}

#[test]
fn a_damaged_log_is_refused() {
    let (mut engine, mut disk) = led();
    for data in [b"one", b"two"] {
        engine.propose(data.to_vec());
        settle(&mut engine, &mut disk);
    }
    assert!(matches!(Engine::restore(NodeId(1), &BTreeMap::new(), 3), Ok(None)));
    // Only the end of the log may be missing, as if it had never been written.
    let last = *disk.keys().next_back().expect("there is a log");
    for key in disk.keys().copied().filter(|key| *key != last).collect::<Vec<_>>() {
        let mut without = disk.clone();
        without.remove(&key);
        assert!(Engine::restore(NodeId(1), &without, 3).is_err(), "without {key}");
        for place in 0..disk[&key].len() {
            let mut damaged = disk.clone();
            damaged.get_mut(&key).expect("it is there").truncate(place);
            assert!(Engine::restore(NodeId(1), &damaged, 3).is_err(), "{key} cut at {place}");
        }
    }
}

#[test]
fn a_term_is_stored_before_a_learner_hears_of_it() {
    let (mut engine, mut disk) = led();
    assert!(engine.set_voters(&[NodeId(1), NodeId(2), NodeId(3)], Honest));
    settle(&mut engine, &mut disk);
    assert_eq!(engine.learners(), [NodeId(2)]);
    let mut again = Engine::restore(NodeId(1), &disk, 3).expect("it is whole").expect("something is stored");
    while again.poll().is_some() {}
    again.campaign();
    let (mut sent, mut write) = (0, None);
    while let Some(event) = again.poll() {
        match event {
            Event::Persist(started) => write = Some(started.number),
            Event::Send { .. } => sent += 1,
            _ => {}
        }
    }
    assert!(!again.is_leader());
    assert_eq!(sent, 0, "its term may be forgotten and used again");
    again.persisted(write.expect("a term is stored"));
    assert!(settle(&mut again, &mut disk).iter().any(|event| matches!(event, Event::Send { .. })));
}

#[test]
fn one_of_three_leads_and_all_agree() -> Tested {
    let mut world = started(3, 3)?;
    for _ in 0..200 {
        let leader = world.leader().expect("it leads");
        world.propose(leader)?;
        world.step()?;
    }
    assert_eq!(world.leader(), Some(NodeId(1)));
    assert!(world.engine(NodeId(2)).log_len() <= LOG_MAX + 1, "nobody compacts");
    world.progresses(20)
}

#[test]
fn voters_change_from_one_to_five_and_back() -> Tested {
    let mut world = started(6, 1)?;
    world.reach_voters(&[1, 2, 3], 200)?;
    world.reach_voters(&[1, 2, 3, 4, 5], 200)?;
    world.reach_voters(&[3, 4, 5], 200)?;
    assert!(world.leader().is_some_and(|leader| leader.0 >= 3));
    world.reach_voters(&[6], 200)?;
    assert_eq!(world.leader(), Some(NodeId(6)));
    world.progresses(100)
}

#[test]
fn voters_change_while_members_die() -> Tested {
    let mut world = started(7, 1)?;
    // A newcomer dies before it has learned anything: the others cannot go on with it, and do without it.
    world.crash(NodeId(3));
    assert!(world.reach_voters(&[1, 2, 3], 100).is_err());
    assert_eq!(world.engine(NodeId(1)).voters(), [NodeId(1)]);
    world.reach_voters(&[1, 2, 4], 200)?;
    assert_eq!(world.engine(NodeId(1)).learners(), []);
    // A voter dies, and is replaced.
    world.crash(NodeId(2));
    world.reach_voters(&[1, 4, 5], 200)?;
    // The leader dies in the middle of a change.
    let target = [1, 4, 5, 6, 7].map(NodeId);
    let leader = world.leader().expect("it leads");
    world.until(200, |world| {
        let conf = world.engine(leader).conf();
        world.set_voters(leader, &target).is_err() || !conf.voters_outgoing.is_empty()
    })?;
    world.crash(leader);
    let survivors: Vec<u32> = [4, 5, 6].to_vec();
    world.reach_voters(&survivors, 600)?;
    world.heal()?;
    world.progresses(200)?;
    world.reach_voters(&[2], 300)?;
    world.progresses(100)
}

#[test]
fn a_newcomer_is_sent_a_snapshot_even_if_it_is_lost() -> Tested {
    let mut world = started(2, 1)?;
    for _ in 0..100 {
        world.propose(NodeId(1))?;
        world.step()?;
    }
    world.cuts.insert((NodeId(1), NodeId(2)));
    world.set_voters(NodeId(1), &[NodeId(1), NodeId(2)])?;
    for _ in 0..50 {
        world.step()?;
    }
    assert_eq!(world.engine(NodeId(1)).learners(), [NodeId(2)]);
    // Only the snapshot gets lost: its receiver answers heartbeats before and after.
    world.cuts.clear();
    world.until(20, |world| {
        let progress = world.engine(NodeId(1)).node.raft.prs().get(2).map(|progress| progress.state);
        progress == Some(raft::ProgressState::Snapshot)
    })?;
    world.crash(NodeId(2));
    world.restart(NodeId(2))?;
    world.reach_voters(&[1, 2], 200)?;
    world.progresses(100)
}

#[test]
fn a_node_that_waits_does_not_campaign() -> Tested {
    let mut world = World::new(1, 1, 0);
    world.engine(NodeId(1)).campaign();
    for _ in 0..200 {
        world.step()?;
    }
    assert_eq!(world.engine(NodeId(1)).term(), 0);
    assert_eq!(world.sent, 0);
    Ok(())
}

#[test]
fn everything_restarts() -> Tested {
    let mut world = started(5, 5)?;
    for _ in 0..100 {
        let leader = world.leader().expect("it leads");
        world.propose(leader)?;
        world.step()?;
    }
    let before = world.machines[&NodeId(1)].state;
    for id in world.ids() {
        world.crash(id);
    }
    for id in world.ids() {
        world.restart(id)?;
    }
    world.progresses(300)?;
    assert!(world.machines[&NodeId(1)].state.index > before.index);
    Ok(())
}

#[test]
fn leadership_is_handed_over() -> Tested {
    let mut world = started(3, 3)?;
    let leader = world.leader().expect("it leads");
    let to = NodeId(leader.0 % 3 + 1);
    world.engine(leader).transfer(to);
    world.drain(leader)?;
    world.step()?;
    assert_eq!(world.leader(), Some(to));
    world.progresses(20)
}

#[test]
fn a_slow_disk_silences_nobody() -> Tested {
    for slow in [&[1][..], &[2], &[1, 2, 3]] {
        let mut world = started(3, 3)?;
        let leader = world.leader().expect("it leads");
        let term = world.engine(leader).term();
        for id in slow {
            world.machines.get_mut(&NodeId(*id)).expect("it exists").write_ticks = 1;
        }
        world.step()?;
        world.slow_disks(slow, 100);
        for _ in 0..5 {
            world.propose(leader)?;
            for _ in 0..100 {
                world.step()?;
                assert_eq!((world.leader(), world.engine(leader).term()), (Some(leader), term), "{slow:?}");
            }
        }
        world.progresses(700)?;
        assert_eq!(world.engine(leader).term(), term);
    }
    Ok(())
}

#[test]
fn a_leader_without_a_quorum_is_not_confirmed_and_steps_down() -> Tested {
    let mut world = started(3, 3)?;
    let leader = world.leader().expect("it leads");
    world.cuts.extend(world.ids().iter().flat_map(|id| [(*id, leader), (leader, *id)]));
    world.confirm(leader)?;
    assert!(world.until(60, |world| !world.engine(leader).is_leader())?);
    assert!(world.until(60, |world| world.leader().is_some())?);
    // The one that was never answered is forgotten: an answer would fail the check.
    world.cuts.clear();
    world.progresses(100)
}

#[test]
fn a_confirmation_is_given_before_anything_of_the_own_term_is_committed_only_then() -> Tested {
    let mut world = World::new(5, 3, 3);
    for id in world.ids() {
        world.drain(id)?;
    }
    world.until(60, |world| world.leader().is_some())?;
    let leader = world.leader().expect("it leads");
    world.confirm(leader)?;
    world.progresses(50)
}

/// Those who no longer vote may go, and all who do may restart: they need nobody else.
#[test]
fn those_who_vote_on_know_it_from_disk_when_the_others_may_go() -> Tested {
    for seed in 0..20 {
        let mut world = started(3, 3)?;
        world.reach_voters(&[1 + seed % 3], 200)?;
        let stored = |world: &mut World| world.leader().is_some_and(|leader| world.engine(leader).voters_are_stored());
        assert!(world.until(100, stored)?, "they never may");
        for id in world.ids() {
            world.crash(id);
        }
        world.restart(NodeId(1 + seed % 3))?;
        world.progresses(300)?;
    }
    Ok(())
}
