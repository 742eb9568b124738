//! Plants every kind of violation, and sees it found.

use super::*;

fn start(client: &str, shared: bool, fence: u64, at: u64) -> Record {
    Record::Start { client: client.to_owned(), lock: "l".to_owned(), shared, fence, at }
}

fn end(client: &str, fence: u64, at: u64) -> Record {
    Record::End { client: client.to_owned(), lock: "l".to_owned(), fence, at, worked: at, lost: false }
}

fn lost(client: &str, fence: u64, worked: u64, at: u64) -> Record {
    Record::End { client: client.to_owned(), lock: "l".to_owned(), fence, at, worked, lost: true }
}

fn work(client: &str, shared: bool, fence: u64, at: u64) -> Work {
    Work { client: client.to_owned(), lock: "l".to_owned(), shared, fence, start: at, asked: at, at, accepted: true }
}

fn history(records: &[Record]) -> History {
    History { records: records.to_vec(), ..History::default() }
}

/// The names of the violations, in order.
fn found(history: &History) -> Vec<&'static str> {
    let name = |violation: &Violation| match violation {
        Violation::Overlap { .. } => "overlap",
        Violation::FenceRepeated { .. } => "repeated",
        Violation::FenceRegressed { .. } => "regressed",
        Violation::AcceptedOlder { .. } => "accepted older",
        Violation::StaleWork { .. } => "stale",
        Violation::Ungranted { .. } => "ungranted",
        Violation::Starved { .. } => "starved",
    };
    check(history).violations.iter().map(name).collect()
}

/// An exclusive holder, two readers at once, another exclusive holder.
fn sound() -> History {
    let mut history = history(&[
        start("a", false, 5, 10),
        end("a", 5, 20),
        start("b", true, 6, 20),
        start("c", true, 6, 25),
        end("b", 6, 30),
        end("c", 6, 40),
        start("a", false, 6, 41),
        end("a", 6, 50),
    ]);
    history.work =
        vec![work("a", false, 5, 15), work("b", true, 6, 22), work("c", true, 6, 26), work("a", false, 6, 45)];
    history
}

#[test]
fn what_is_sound_passes() {
    let verdict = check(&sound());
    assert_eq!(verdict.violations, []);
    assert_eq!((verdict.grants, verdict.shared, verdict.work, verdict.refused), (4, 2, 4, 0));
}

#[test]
fn two_exclusive_holders_at_once_are_found() {
    let both = [start("a", false, 5, 10), end("a", 5, 20), start("b", false, 6, 19), end("b", 6, 30)];
    assert_eq!(found(&history(&both)), ["overlap"]);
}

#[test]
fn one_that_holds_for_long_is_compared_with_all_that_come_meanwhile() {
    let records = [
        start("a", false, 5, 10),
        end("a", 5, 100),
        start("b", false, 6, 20),
        end("b", 6, 30),
        start("c", false, 7, 40),
        end("c", 7, 50),
    ];
    assert_eq!(found(&history(&records)), ["overlap", "overlap"]);
}

#[test]
fn exclusive_beside_shared_is_found_in_either_order() {
    let reader_first = [start("a", true, 5, 10), end("a", 5, 20), start("b", false, 6, 15), end("b", 6, 30)];
    assert_eq!(found(&history(&reader_first)), ["overlap"]);
    let writer_first = [start("a", false, 5, 10), end("a", 5, 20), start("b", true, 6, 15), end("b", 6, 30)];
    assert_eq!(found(&history(&writer_first)), ["overlap"]);
    let reader_hidden = [
        start("a", true, 5, 10),
        end("a", 5, 60),
        start("b", true, 5, 12),
        end("b", 5, 15),
        start("c", false, 6, 30),
        end("c", 6, 40),
    ];
    assert_eq!(found(&history(&reader_hidden)), ["overlap"]);
}

#[test]
fn a_lock_that_was_lost_counts_until_its_holder_last_worked() {
    let records = [start("a", false, 5, 10), lost("a", 5, 20, 40), start("b", false, 6, 30), end("b", 6, 50)];
    let verdict = check(&history(&records));
    assert_eq!((verdict.violations.len(), verdict.lost, verdict.noticed_late), (0, 1, 1));
    let records = [start("a", false, 5, 10), lost("a", 5, 31, 40), start("b", false, 6, 30), end("b", 6, 50)];
    assert_eq!(found(&history(&records)), ["overlap"]);
}

#[test]
fn a_killed_holder_counts_until_it_was_killed() {
    let mut history = history(&[start("a", false, 5, 10), start("b", false, 6, 30), end("b", 6, 40)]);
    assert_eq!(found(&history), [""; 0]);
    history.events = vec![Event::Killed { client: "a".to_owned(), at: 35 }];
    assert_eq!(found(&history), ["overlap"]);
    // A kill after its next start does not belong to this hold.
    history.records.push(start("a", false, 7, 45));
    history.events = vec![Event::Killed { client: "a".to_owned(), at: 46 }];
    assert_eq!(found(&history), [""; 0]);
}

#[test]
fn a_holder_without_an_end_counts_until_its_last_accepted_work() {
    let mut history = history(&[start("a", false, 5, 10), start("b", false, 6, 30), end("b", 6, 40)]);
    history.work = vec![work("a", false, 5, 29)];
    assert_eq!(found(&history), [""; 0]);
    history.work = vec![work("a", false, 5, 31)];
    assert_eq!(found(&history), ["overlap"]);
}

#[test]
fn a_fence_that_comes_twice_is_found() {
    let records = [start("a", false, 5, 10), end("a", 5, 20), start("b", false, 5, 30), end("b", 5, 40)];
    assert_eq!(found(&history(&records)), ["repeated"]);
}

#[test]
fn fences_that_go_back_are_found() {
    let pair = |first: (bool, u64), second: (bool, u64)| {
        let records = [
            start("a", first.0, first.1, 10),
            end("a", first.1, 20),
            start("b", second.0, second.1, 30),
            end("b", second.1, 40),
        ];
        found(&history(&records))
    };
    assert_eq!(pair((false, 5), (false, 4)), ["regressed"]);
    // A reader's fence is larger than that of every earlier writer, and not larger than the next writer's.
    assert_eq!(pair((false, 5), (true, 5)), ["regressed"]);
    assert_eq!(pair((true, 5), (false, 4)), ["regressed"]);
    assert_eq!(pair((true, 5), (false, 5)), [""; 0]);
    assert_eq!(pair((true, 5), (true, 4)), [""; 0]);
    // Earlier holds count too, not only the last one.
    let records = [
        start("a", false, 9, 10),
        end("a", 9, 20),
        start("b", false, 4, 30),
        end("b", 4, 40),
        start("c", false, 6, 50),
        end("c", 6, 60),
    ];
    assert_eq!(found(&history(&records)), ["regressed", "regressed"]);
}

#[test]
fn a_resource_that_accepts_an_older_fence_is_found() {
    let mut history = sound();
    history.work.push(work("a", false, 5, 60));
    assert_eq!(found(&history), ["accepted older"]);
    let mut history = sound();
    history.work.push(work("c", true, 6, 60));
    assert_eq!(found(&history), ["accepted older"], "a read is above the last write");
}

#[test]
fn work_that_was_refused_is_a_violation_unless_its_process_was_stopped_meanwhile() {
    let mut history = sound();
    history.work.push(Work { asked: 18, accepted: false, ..work("a", false, 5, 60) });
    assert_eq!(found(&history), ["stale"]);
    history.events = vec![Event::Stopped { client: "a".to_owned(), from: 19, to: 55 }];
    assert_eq!(found(&history), [""; 0]);
    history.events = vec![Event::Stopped { client: "a".to_owned(), from: 11, to: 17 }];
    assert_eq!(found(&history), ["stale"]);
    history.events = vec![Event::Stopped { client: "b".to_owned(), from: 19, to: 55 }];
    assert_eq!(found(&history), ["stale"]);
}

#[test]
fn work_without_a_grant_is_found() {
    let mut history = sound();
    history.work.push(work("d", false, 9, 60));
    assert_eq!(found(&history), ["ungranted"]);
    let mut history = sound();
    history.work.push(work("b", false, 6, 60));
    assert_eq!(found(&history), ["ungranted"], "a reader does not write");
}

#[test]
fn a_client_that_does_not_get_in_after_the_healing_is_starved() {
    let clients = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let healed = |until: u64, names: &[&str]| {
        let mut history = sound();
        history.events = vec![Event::Healed { at: 21, until, limit: 10, clients: clients(names) }];
        history
    };
    assert_eq!(found(&healed(60, &["c"])), [""; 0]);
    assert_eq!(check(&healed(60, &["c"])).recoveries, [4]);
    assert_eq!(found(&healed(60, &["a", "c"])), ["starved"], "it got in, but too late");
    assert_eq!(found(&healed(60, &["d"])), ["starved"], "it never got in");
    assert_eq!(found(&healed(30, &["a"])), [""; 0], "the next fault came first");
}

#[test]
fn a_process_that_holds_several_locks_is_killed_and_stopped_as_one() {
    let mut history = history(&[start("a/2", false, 5, 10), start("b", false, 6, 25), end("b", 6, 30)]);
    history.events = vec![Event::Killed { client: "a".to_owned(), at: 27 }];
    assert_eq!(found(&history), ["overlap"]);
    history.events = vec![Event::Killed { client: "a".to_owned(), at: 20 }];
    assert_eq!(found(&history), [""; 0]);

    history.work = vec![work("b", false, 6, 26), Work { accepted: false, at: 40, ..work("a/2", false, 5, 19) }];
    assert_eq!(found(&history), ["stale"]);
    history.events.push(Event::Stopped { client: "a".to_owned(), from: 19, to: 39 });
    assert_eq!(found(&history), [""; 0]);
}
