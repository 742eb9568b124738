//! Explorations as real nodes run the protocols: callers give up, idle locks are forgotten, a view starts with holders.

use hallpass_core::protocol::Mutation::{self, AbsentMayRead, ForgetFences, ForgetNumbers, IgnoreHolders};
use hallpass_core::protocol::ProtocolKind;
use hallpass_lab::{CheckReport, CheckSpec, InitialSpec, check};
use hallpass_sim::Order;

fn explore(spec: &CheckSpec) -> CheckReport {
    check(spec, |_| {}).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

/// Every state, no violation.
fn clean(spec: &CheckSpec) -> CheckReport {
    let report = explore(spec);
    let found: Vec<&str> = report.violations.iter().map(|found| found.text.as_str()).collect();
    assert!(found.is_empty(), "{spec:?}: {found:?}");
    assert!(report.complete, "{spec:?}: incomplete after {} states", report.states);
    report
}

/// Any request may be cancelled, idle locks are forgotten at any moment.
fn forgetting(protocol: &str) -> CheckSpec {
    CheckSpec { cancels: None, drop_idle: true, initial: InitialSpec::All, ..CheckSpec::of(protocol) }
}

/// Every state machine of the roster but those that put errors back, or leave rules out.
fn roster() -> Vec<CheckSpec> {
    let broken = [ProtocolKind::CarvalhoRoucairolAsPrinted, ProtocolKind::DirectoryIncomplete];
    let kinds = ProtocolKind::ALL.iter().filter(|kind| !broken.contains(kind));
    let spec = |kind: &ProtocolKind| {
        let spec = forgetting(kind.name());
        match kind {
            ProtocolKind::RicartAgrawalaClassic => spec.with("membership=classic"),
            ProtocolKind::RicartAgrawalaSequenced => spec.with("medium=sequenced"),
            ProtocolKind::CentralHosted => spec.with("server=member"),
            ProtocolKind::LamportFifo | ProtocolKind::Directory => CheckSpec { order: Order::Fifo, ..spec },
            _ => spec,
        }
    };
    kinds.map(spec).collect()
}

#[test]
fn every_protocol_is_safe_from_every_set_of_holders_with_two_nodes() {
    for spec in roster() {
        for order in [spec.order, Order::Fifo] {
            clean(&CheckSpec { nodes: 2, entries: Some(1), readers: true, order, ..spec.clone() });
        }
    }
}

/// One request a node, besides those of the first holders. Of those with too many orders of events for a test, `.ci/run`
/// explores more: here nobody gives up, and only one node is inside at the start.
#[test]
fn every_protocol_is_safe_with_three_nodes() {
    let many = ["ricart-agrawala membership=classic", "ricart-agrawala medium=sequenced", "lamport", "lamport-fifo"];
    for spec in roster() {
        let name = format!("{} {}", spec.protocol, spec.options.join(" "));
        let spec = CheckSpec { nodes: 3, entries: Some(1), ..spec };
        if many.contains(&name.trim_end()) {
            clean(&CheckSpec { cancels: Some(0), initial: "2".parse().unwrap(), ..spec });
        } else {
            clean(&spec);
        }
    }
}

#[test]
fn every_variant_is_safe_from_every_set_of_holders() {
    for (protocol, variants) in [
        ("ricart-agrawala", &["request=broadcast release=broadcast", "reply=implicit", "increment=random:3"][..]),
        ("ricart-agrawala", &["clock=lamport", "increment=priority priorities=1,2 hold-back=1T"]),
        ("ricart-agrawala-ring", &["ring=echo", "ring=annotate"]),
        ("central", &["queue=round-robin server=member", "queue=lowest-id server=member", "queue=lowest-id"]),
        ("carvalho-roucairol", &["cache-idle=1T"]),
        ("token", &["start=ricart-agrawala"]),
        ("raymond", &["piggyback=true", "greedy=true", "start=initialize", "recovery=classic"]),
    ] {
        for words in variants {
            clean(&CheckSpec { nodes: 2, entries: Some(1), readers: true, ..forgetting(protocol) }.with(words));
        }
    }
    for words in ["tree=line", "tree=star:3", "greedy=true piggyback=true tree=line", "start=initialize tree=line"] {
        clean(&CheckSpec { entries: Some(1), ..forgetting("raymond") }.with(words));
    }
    // Numbers modulo M know neither readers nor cancellations.
    let modulo = CheckSpec { cancels: Some(0), ..forgetting("ricart-agrawala") }.with("numbers=modulo:5");
    clean(&CheckSpec { entries: Some(1), ..modulo });
}

/// The default protocol, which keeps permissions and forgets them, at the largest size that takes seconds.
#[test]
fn permissions_that_are_forgotten_at_any_moment_are_safe() {
    let spec = forgetting("carvalho-roucairol");
    let report = clean(&CheckSpec { nodes: 2, entries: Some(2), readers: true, ..spec.clone() });
    assert!(report.drops > Some(10_000), "{:?}", report.drops);
    let report = clean(&CheckSpec { nodes: 3, entries: Some(1), readers: true, cancels: Some(0), ..spec });
    assert!(report.drops > Some(100_000), "{:?}", report.drops);
}

/// A protocol with nothing to forget but its floor is as new when it is idle, so that forgetting it changes nothing.
#[test]
fn an_idle_instance_of_ricart_agrawala_is_as_good_as_new() {
    assert_eq!(clean(&CheckSpec { nodes: 2, ..forgetting("ricart-agrawala") }).drops, Some(0));
}

/// The property that is violated if a bug is planted, with the number of steps to it.
fn caught(spec: CheckSpec) -> Option<(&'static str, usize)> {
    explore(&spec).violations.first().map(|found| (found.property, found.steps))
}

#[test]
fn holders_that_are_ignored_are_noticed_with_every_protocol() {
    for spec in roster() {
        let spec = CheckSpec { nodes: 2, entries: Some(1), mutation: Some(IgnoreHolders), ..spec };
        let found = caught(spec.clone());
        assert!(found.is_some_and(|(property, _)| property == "exclusion"), "{spec:?}: {found:?}");
    }
}

/// Bugs that show only when idle locks are forgotten: each is harmless as long as none is.
#[test]
fn what_must_outlive_a_forgotten_lock_is_noticed() {
    let pair = |protocol: &str, mutation: Mutation| CheckSpec {
        nodes: 2,
        readers: true,
        initial: InitialSpec::default(),
        mutation: Some(mutation),
        ..forgetting(protocol)
    };
    let planted = [
        ("carvalho-roucairol", ForgetFences, "fence"),
        ("carvalho-roucairol", ForgetNumbers, "exclusion"),
        ("carvalho-roucairol", AbsentMayRead, "exclusion"),
        ("ricart-agrawala", ForgetFences, "fence"),
        ("ricart-agrawala", ForgetNumbers, "exclusion"),
    ];
    for (protocol, mutation, property) in planted {
        let spec = pair(protocol, mutation);
        clean(&CheckSpec { drop_idle: false, ..spec.clone() });
        let found = caught(spec);
        assert!(found.is_some_and(|(found, _)| found == property), "{protocol} with {mutation:?}: {found:?}");
    }
}

/// T6: a REPLY that does not name its request answers the wrong one as soon as a caller may give up.
#[test]
fn a_reply_without_the_number_of_its_request_is_noticed() {
    for protocol in ["carvalho-roucairol", "ricart-agrawala"] {
        let spec =
            CheckSpec { nodes: 2, initial: InitialSpec::default(), ..forgetting(protocol) }.with("as-printed=T6");
        clean(&CheckSpec { cancels: Some(0), ..spec.clone() });
        assert_eq!(caught(spec), Some(("exclusion", 8)), "{protocol}");
    }
}
