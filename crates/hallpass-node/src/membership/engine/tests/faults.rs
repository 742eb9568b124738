//! Everything that can go wrong at once, in many worlds.

use super::super::*;
use super::world::{Mistake, World};

/// A world of faults, then one without: what must not happen is never seen, and in the end there is progress.
fn run(seed: u64, mistake: Mistake) -> Result<u64, String> {
    let founders = [1, 3, 3, 5][(seed % 4) as usize];
    let mut world = World::new(seed, 6, founders);
    world.mistake = mistake;
    world.lost = [1, 5, 20][(seed / 4 % 3) as usize];
    world.delay_ticks = [1, 3, 8][(seed / 12 % 3) as usize];
    for machine in world.machines.values_mut() {
        machine.write_ticks = [1, 4, 25][(seed / 36 % 3) as usize];
    }
    for id in world.ids() {
        world.drain(id)?;
    }
    for _ in 0..240 {
        world.step()?;
        disturb(&mut world)?;
        work(&mut world)?;
    }
    world.heal()?;
    world.progresses(600)?;
    Ok(world.trace)
}

fn disturb(world: &mut World) -> Result<(), String> {
    let ids = world.ids();
    let (one, other) = (world.chance.pick(&ids), world.chance.pick(&ids));
    match world.chance.below(60) {
        0..2 if world.is_up(one) => world.crash(one),
        2..8 if !world.is_up(one) => world.restart(one)?,
        8 => {
            world.cuts.insert((one, other));
        }
        9 => world.cuts.extend(ids.iter().flat_map(|id| [(*id, one), (one, *id)])),
        // It is heard and hears nothing, or the other way round.
        10 => world.cuts.extend(ids.iter().map(|id| if *id < other { (*id, one) } else { (one, *id) })),
        11..14 => world.cuts.clear(),
        _ => {}
    }
    Ok(())
}

fn work(world: &mut World) -> Result<(), String> {
    let ids = world.ids();
    for id in ids.iter().copied().filter(|id| world.is_up(*id)).collect::<Vec<_>>() {
        if !world.engine(id).is_leader() {
            continue;
        }
        match world.chance.below(12) {
            0..3 => drop(world.propose(id)?),
            3 => world.confirm(id)?,
            4 => {
                let to = world.chance.pick(&ids);
                if world.chance.one_in(4) {
                    world.engine(id).transfer(to);
                    world.drain(id)?;
                }
            }
            5..10 => {
                // The target changes now and then.
                let era = world.now / 40;
                let size = [3, 1, 5, 3][(era % 4) as usize];
                let target: Vec<NodeId> = (0..size).map(|place| ids[((era + place) % 6) as usize]).collect();
                world.set_voters(id, &target)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn run_all(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        run(seed, Mistake::None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn nothing_goes_wrong_in_worlds_of_faults() {
    run_all(0..1500);
}

#[test]
fn nothing_goes_wrong_in_more_worlds_of_faults() {
    run_all(1500..3000);
}

#[test]
#[ignore = "takes long: cargo test --release --package hallpass-node --lib -- --ignored great_many_worlds"]
fn nothing_goes_wrong_in_a_great_many_worlds_of_faults() {
    run_all(3000..100_000);
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in 0..20 {
        assert_eq!(run(seed, Mistake::None), run(seed, Mistake::None), "seed {seed}");
    }
}

/// The checks find a mistake, and find it by themselves.
fn is_found(mistake: Mistake, what: &str) {
    let found = (0..20_000).filter_map(|seed| run(seed, mistake).err()).find(|violation| violation.contains(what));
    assert!(found.is_some(), "{mistake:?} is not found");
}

#[test]
fn a_forgotten_vote_is_found() {
    is_found(Mistake::ForgetVote, "lead in term");
}

#[test]
fn a_message_before_its_write_is_found() {
    is_found(Mistake::SendEarly, "differs from others");
}
