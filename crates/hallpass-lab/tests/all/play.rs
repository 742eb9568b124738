//! Whatever was explored or walked can be played again as a scenario, and comes to the same end.

use hallpass_lab::scenario::{self, Playback, SHIPPED};
use hallpass_lab::traps::{Show, TRAPS};
use hallpass_lab::{CheckSpec, Flow, check};
use hallpass_sim::Rng;
use hallpass_sim::trace::{EventKind, to_json};

#[test]
fn every_trap_is_played_to_its_violation_and_mended_to_none() {
    for trap in TRAPS {
        let Some(lockstep) = trap.lockstep(|| Flow::Continue) else { continue };
        let lockstep = lockstep.unwrap_or_else(|error| panic!("{}: {error}", trap.id));
        assert!(lockstep.printed.violation.is_some(), "{} does not break as printed", trap.id);
        assert_eq!(lockstep.mended.violation, None, "{} breaks although it is mended", trap.id);
        assert!(lockstep.printed.steps.iter().all(|step| !step.is_skipped));
        assert!(lockstep.mended.steps.len() >= lockstep.printed.steps.len());
        assert!(!lockstep.printed.states.is_empty(), "{} shows no variables", trap.id);
    }
}

#[test]
fn simulated_traps_break_and_do_not() {
    for trap in TRAPS {
        let Some(specs) = trap.simulations() else { continue };
        let (printed, mended) = specs.unwrap();
        let (printed, mended) = (hallpass_lab::simulate(&printed).unwrap(), hallpass_lab::simulate(&mended).unwrap());
        assert!(mended.violations.is_empty(), "{}", trap.id);
        // T13 and T14 are about bounds: somebody is overtaken more often.
        let breaks = !printed.violations.is_empty() || printed.max_overtakes > mended.max_overtakes;
        assert!(breaks, "{}: {} and {}", trap.id, printed.max_overtakes, mended.max_overtakes);
    }
}

#[test]
fn there_are_thirty_and_each_says_how_it_is_seen() {
    let ids: Vec<String> = (1..=30).map(|number| format!("T{number}")).collect();
    assert_eq!(TRAPS.iter().map(|trap| trap.id).collect::<Vec<_>>(), ids);
    assert_eq!(TRAPS.iter().filter(|trap| matches!(trap.show, Show::Explore { .. })).count(), 19);
}

#[test]
fn a_counterexample_is_a_scenario_that_breaks() {
    let spec = CheckSpec { nodes: 2, entries: Some(1), ..CheckSpec::of("ricart-agrawala") }.with("as-printed=T3 ");
    let spec = CheckSpec { entries: Some(2), ..spec };
    let report = check(&spec, |_| {}).unwrap();
    let found = report.violations.first().expect("T3 breaks");
    let played = scenario::play(&found.scenario, None).unwrap();
    assert_eq!(played.violation.as_deref(), Some(found.text.as_str()));
    // The rewritten text has the outcomes, and is as the tests want it.
    let again = scenario::play(&played.rewritten, None).unwrap();
    assert_eq!(again.first_difference(), None);
}

/// Takes random steps among those that are offered, as somebody does who plays.
fn wander(head: &str, seed: u64, steps: usize) -> Playback {
    let mut rng = Rng::new(seed);
    let mut text = head.to_owned();
    let mut played = scenario::play(&text, None).unwrap();
    for _ in 0..steps {
        if played.next.is_empty() {
            break;
        }
        let choice = &played.next[rng.below(played.next.len() as u64) as usize];
        text.push_str(&format!("\n{}\n----\n", choice.command));
        played = scenario::play(&text, None)
            .unwrap_or_else(|error| panic!("a step that was offered cannot be taken: {error}\n{text}"));
    }
    played
}

#[test]
fn every_step_that_is_offered_can_be_taken_and_exported() {
    let heads = [
        "protocol ricart-agrawala\nnodes 1 2 3\n",
        "protocol ricart-agrawala membership=classic\nnodes 1 2 3\n",
        "protocol ricart-agrawala increment=random:3\nnodes 1 2\n",
        "protocol ricart-agrawala reply=implicit\nnodes 1 2 3\n",
        "protocol ricart-agrawala medium=sequenced\nnodes 1 2 3\n",
        "protocol ricart-agrawala-ring\nnodes 1 2 3\n",
        "protocol carvalho-roucairol\nnodes 1 2 3\n",
        "protocol central\nnodes 1 2 3\n",
        "protocol lamport\nnodes 1 2 3\n",
        "protocol lamport-fifo\nnodes 1 2 3\norder fifo\n",
        "protocol token\nnodes 1 2 3\n",
        "protocol token-ring\nnodes 1 2 3\n",
        "protocol raymond tree=line recovery=classic\nnodes 1 2 3\n",
        "protocol naimi-trehel\nnodes 1 2 3 4\n",
        "protocol suzuki-kasami\nnodes 1 2 3\n",
        "protocol maekawa\nnodes 1 2 3 4\n",
        "protocol carvalho-roucairol\nnodes 1 2 3\nholders 1,3:shared\n",
        "protocol directory block=2\nnodes 1 2 3\norder fifo\n",
        "protocol directory\nnodes 1 2 3\norder fifo\nholders 1,3:shared\n",
    ];
    for head in heads {
        for seed in 0..3 {
            let played = wander(head, seed, 40);
            let again = scenario::play(&played.rewritten, None).unwrap();
            assert_eq!(again.first_difference(), None, "{head}");
            assert_eq!(to_json(&again.trace), to_json(&played.trace), "{head}");
            assert_eq!((again.violation, again.next), (played.violation, played.next), "{head}");
        }
    }
}

#[test]
fn states_are_of_nodes_and_moments_of_the_trace() {
    for (name, text) in SHIPPED {
        let played = scenario::play(text, None).unwrap();
        for change in &played.states {
            assert!(change.from <= played.trace.events.len(), "{name}");
        }
        for (first, last) in played.steps.iter().map(|step| step.events) {
            assert!(first <= last && last <= played.trace.events.len(), "{name}");
        }
    }
}

#[test]
fn what_a_message_changes_is_seen_at_its_arrival() {
    let played = scenario::play_shipped("ricart-agrawala-figure-1", None).unwrap();
    let events = &played.trace.events;
    let deferred = events.iter().position(|event| {
        event.node.0 == 2
            && matches!(&event.kind, EventKind::Deliver { from, kind, .. } if from.0 == 3 && *kind == "REQUEST")
    });
    let change = played.states.iter().find(|change| change.from == deferred.unwrap() + 1).expect("2 defers 3");
    assert!(change.variables.pairs().contains(&("Reply_Deferred", "3".to_owned())), "{change:?}");
}
