use super::*;
use crate::trace::{Scale, sample};

fn states(layout: &Layout, row: usize) -> Vec<(State, Option<usize>, Option<usize>)> {
    let mine = layout.spans.iter().filter(|span| span.row == row);
    mine.map(|span| (span.state, span.first, span.last)).collect()
}

#[test]
fn messages_run_from_the_sending_to_the_arrival() {
    let layout = Layout::new(&sample::two_nodes());
    assert_eq!(layout.arrows.len(), 3);
    let request = &layout.arrows[0];
    assert_eq!((request.send, request.end, request.outcome), (1, Some(2), Outcome::Delivered));
    assert_eq!((request.from, request.to), (layout.positions[1], layout.positions[2]));
    assert!(request.from.0 < request.to.0 && request.from.1 < request.to.1);
}

#[test]
fn what_the_network_loses_ends_between_the_lifelines() {
    let layout = Layout::new(&sample::two_nodes());
    let lost = &layout.arrows[2];
    assert_eq!(lost.outcome, Outcome::Lost);
    assert!(layout.y(0) < lost.to.1 && lost.to.1 < layout.y(1));
    assert_eq!(layout.positions[8], lost.to);
}

#[test]
fn what_a_dead_node_loses_ends_at_its_lifeline() {
    let mut trace = sample::two_nodes();
    trace.events.insert(7, sample::event(3600, 1, EventKind::Crash));
    let layout = Layout::new(&trace);
    assert_eq!(layout.arrows[2].to.1, layout.y(0));
}

#[test]
fn an_arrow_lost_at_once_still_slants() {
    let mut trace = sample::two_nodes();
    trace.events[8].at = trace.events[7].at;
    let layout = Layout::new(&trace);
    assert!(layout.arrows[2].to.0 > layout.arrows[2].from.0);
}

#[test]
fn a_message_that_never_arrives_is_drawn_too() {
    let mut trace = sample::two_nodes();
    trace.events.truncate(2);
    let layout = Layout::new(&trace);
    assert_eq!(layout.arrows.len(), 1);
    assert_eq!((layout.arrows[0].outcome, layout.arrows[0].end), (Outcome::InFlight, None));
}

#[test]
fn a_repeated_message_has_two_arrows() {
    let mut trace = sample::overtaking();
    trace.events.push(sample::event(4, 2, sample::deliver(1, 1, "REPLY", "REPLY(1)")));
    assert_eq!(Layout::new(&trace).arrows.len(), 3);
}

#[test]
fn states_begin_and_end_with_their_events() {
    let layout = Layout::new(&sample::everything());
    let expected = [
        (State::Paused, Some(13), Some(14)),
        (State::Waiting, Some(0), Some(1)),
        (State::Waiting, Some(2), Some(7)),
        (State::Inside(Mode::Exclusive), Some(7), Some(10)),
        (State::Down, Some(15), Some(16)),
    ];
    assert_eq!(states(&layout, 0), expected);
    assert_eq!(states(&layout, 2), [(State::Away, None, Some(18)), (State::Away, Some(21), None)]);
    assert!(states(&layout, 1).contains(&(State::Inside(Mode::Shared), Some(23), None)), "inside from the start");
}

#[test]
fn a_crash_ends_what_the_node_was_in() {
    let mut trace = sample::two_nodes();
    trace.events.truncate(6);
    trace.events.push(sample::event(3000, 1, EventKind::Crash));
    let layout = Layout::new(&trace);
    assert!(states(&layout, 0).contains(&(State::Inside(Mode::Exclusive), Some(5), Some(6))));
    assert_eq!(layout.alive(0), [(layout.left, layout.positions[6].0)]);
}

#[test]
fn time_is_to_scale_and_steps_are_even() {
    let layout = Layout::new(&sample::two_nodes());
    let x = |index: usize| layout.positions[index].0;
    assert!(((x(4) - x(2)) / (x(2) - x(0)) - 1.5).abs() < 1e-9);

    let mut trace = sample::overtaking();
    trace.events[3].at = 1000;
    let layout = Layout::new(&trace);
    assert_eq!(layout.positions[3].0 - layout.positions[2].0, layout.positions[1].0 - layout.positions[0].0);
    assert_eq!(layout.marks.last().unwrap().1, "1000");
}

#[test]
fn odd_traces_do_no_harm() {
    let empty = Trace { title: String::new(), nodes: vec![], scale: Scale::Time { tick: 0 }, events: vec![] };
    assert!(Layout::new(&empty).right > 0.0);
    // A single event, far from zero, of a node that is not listed: the arrival of a message that was never sent.
    let events = vec![sample::event(u64::MAX, 9, sample::deliver(1, 1, "REPLY", "REPLY(1)"))];
    let layout = Layout::new(&Trace { events, ..empty });
    assert_eq!(layout.rows, [NodeId(9)]);
    assert!(layout.positions[0].0.is_finite());
    assert!(layout.arrows.is_empty());
}
