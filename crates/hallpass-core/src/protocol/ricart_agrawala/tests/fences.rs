//! Fences, and the initial holders that a view change reports, in every machine that counts its entries.

use super::*;

const COUNTING: [(&str, &str); 5] = [
    ("plain", ""),
    ("plain", "release=broadcast"),
    ("ring", "ring=echo"),
    ("ring", "ring=annotate"),
    ("sequenced", ""),
];

/// A check that is generic over the machine, for each machine that counts.
macro_rules! for_each_machine {
    ($check:ident) => {
        for (machine, words) in COUNTING {
            match machine {
                "plain" => $check::<RicartAgrawala>(words),
                "ring" => $check::<Ring>(words),
                _ => $check::<Sequenced>(words),
            }
        }
    };
}

fn three() -> View {
    View::new([1, 2, 3].map(NodeId))
}

#[test]
fn they_count_the_entries_of_all_nodes() {
    fn check<P: Protocol>(words: &str) {
        let mut net = Net::<P>::new([1, 2, 3], words);
        for node in [1, 2, 1, 3, 3, 2, 1] {
            net.pass_through(node);
        }
        assert_eq!(net.fences, [1, 2, 3, 4, 5, 6, 7], "{words}");
    }
    for_each_machine!(check);
    check::<RicartAgrawala>("clock=lamport");
    check::<RicartAgrawala>("numbers=modulo:5");
}

#[test]
fn they_count_under_contention_too() {
    fn check<P: Protocol>(words: &str) {
        let mut net = Net::<P>::new([1, 2, 3], words);
        for _ in 0..3 {
            for node in [3, 1, 2] {
                net.acquire(node);
            }
            for _ in 0..3 {
                net.deliver_all();
                let inside = net.inside();
                assert_eq!(inside.len(), 1, "{words}");
                net.release(inside[0]);
            }
        }
        assert_eq!(net.fences, (1..=9).collect::<Vec<_>>(), "{words}");
    }
    for_each_machine!(check);
}

#[test]
fn tickets_rise_from_entry_to_entry() {
    fn check<P: Protocol>(words: &str, turn: impl Fn(&mut Net<P>, u32)) {
        let mut net = Net::<P>::new([1, 2, 3], words);
        for node in [3, 1, 2, 2, 3, 1] {
            turn(&mut net, node);
        }
        assert_eq!(net.fences.len(), 6);
        assert!(net.fences.is_sorted_by(|a, b| a < b), "{words}: {:?}", net.fences);
    }
    check::<Classic>("", Net::pass_through);
    check::<RicartAgrawala>("reply=implicit", |net, node| {
        net.acquire(node);
        net.deliver_all();
        net.fire(node, RaTimer::RoundTrip);
        net.release(node);
    });
}

#[test]
fn a_shared_entry_carries_the_last_exclusive_one_plus_one() {
    fn check<P: Protocol>(words: &str) {
        let mut net = Net::<P>::new([1, 2, 3], words);
        net.pass_through(1);
        for reader in [2, 3] {
            net.acquire_shared(reader);
            net.deliver_all();
        }
        assert_eq!(net.inside(), [2, 3], "{words}");
        net.release(2);
        net.release(3);
        net.deliver_all();
        net.pass_through(1);
        net.pass_through_as(2, Mode::Shared);
        assert_eq!(net.fences, [1, 2, 2, 2, 3], "{words}");
    }
    for_each_machine!(check);
}

#[test]
fn the_epoch_goes_in_front() {
    fn check<P: Protocol>(words: &str) {
        let mut net = Net::<P>::with_initial(three().with_epoch(5), words, InitialHolders::NOBODY);
        net.pass_through(2);
        net.pass_through(3);
        let fences = [1, 2].map(|count| Fence::compose(5, count).unwrap().get());
        assert_eq!(net.fences, fences, "{words}");
        assert!(net.fences[0] > Fence::compose(4, Fence::COUNT_MAX).unwrap().get());
    }
    for_each_machine!(check);
}

#[test]
fn past_the_last_one_nobody_enters_and_nothing_panics() {
    fn check<P: Protocol>(words: &str) {
        let mut net = Net::<P>::with_initial(three().with_epoch(1), words, initial(&[], Fence::COUNT_MAX - 1));
        net.pass_through(2);
        assert_eq!(net.fences, [Fence::compose(1, Fence::COUNT_MAX).unwrap().get()], "{words}");
        for mode in [Mode::Exclusive, Mode::Shared] {
            for node in [1, 2] {
                net.acquire_as(node, mode);
                net.deliver_all();
                assert_eq!((net.inside(), net.fences.len()), (vec![], 1), "{words}");
                net.cancel(node);
                net.deliver_all();
                assert!(net.nodes[&node].is_idle(), "{words}");
            }
        }
    }
    for_each_machine!(check);
}

#[test]
fn alone_past_the_last_one_nobody_enters_either() {
    fn check<P: Protocol>(words: &str) {
        let mut net = Net::<P>::with_initial(View::new([NodeId(1)]), words, initial(&[], Fence::COUNT_MAX));
        assert_eq!(net.acquire(1), NOTHING, "{words}");
        assert_eq!(net.cancel(1), NOTHING, "{words}");
    }
    for_each_machine!(check);
}

#[test]
fn a_ticket_past_the_last_one_does_not_enter() {
    let mut net = Net::<Classic>::new([1, 2], "");
    net.acquire(1);
    net.take(1, 2);
    let request = RaMessage::Request { number: (1 << 31) - 2, mode: Mode::Exclusive };
    let body = Body::Base(request);
    net.receive(2, 1, ClassicMessage { from: 0, to: 0, body });
    net.in_flight.clear();
    net.cancel(1);
    net.pass_through(1);
    assert_eq!(net.fences, [((1 << 31) - 1) << 32 | 1]);
    net.acquire(1);
    net.deliver_all();
    assert_eq!(net.inside(), [0; 0]);
}

/// Node 3 is inside from the start, as a view change reported it.
fn three_holds<P: Protocol>(words: &str, mode: Mode) -> Net<P> {
    let fence = Fence::compose(3, 41).unwrap();
    Net::with_initial(three().with_epoch(4), words, InitialHolders { holders: &[NodeId(3)], mode, fence })
}

#[test]
fn an_initial_holder_is_inside_and_defers_everybody_until_it_leaves() {
    fn check<P: Protocol>(words: &str) {
        let mut net = three_holds::<P>(words, Mode::Exclusive);
        assert!(!net.nodes[&3].is_idle());
        net.acquire(1);
        net.acquire(2);
        net.deliver_all();
        assert_eq!(net.inside(), [3], "{words}");
        net.release(3);
        net.deliver_all();
        assert_eq!(net.inside(), [1], "{words}");
        net.release(1);
        net.deliver_all();
        assert_eq!(net.inside(), [2], "{words}");
        // The epoch is the new view's, and the count goes on.
        assert_eq!(net.fences, [42, 43].map(|count| Fence::compose(4, count).unwrap().get()), "{words}");
    }
    for words in ["", "release=broadcast", "clock=lamport", "clock=lamport clocks=5,9,7", "increment=random:4"] {
        check::<RicartAgrawala>(words);
    }
    check::<Ring>("ring=echo");
    check::<Ring>("ring=annotate");
    check::<Sequenced>("");
}

#[test]
fn an_initial_holder_answers_each_request_by_its_number() {
    let mut net = three_holds::<RicartAgrawala>("", Mode::Exclusive);
    net.acquire(1);
    net.deliver(1, 2);
    net.acquire(2);
    assert_eq!(net.deliver(1, 3), NOTHING);
    assert_eq!(net.deliver(2, 3), NOTHING);
    assert_eq!(net.release(3), ["REPLY(1) to 1", "REPLY(2) to 2"]);
}

#[test]
fn an_initial_reader_lets_readers_in_and_keeps_writers_out() {
    fn check<P: Protocol>(words: &str) {
        let mut net = three_holds::<P>(words, Mode::Shared);
        net.acquire_shared(1);
        net.deliver_all();
        assert_eq!(net.inside(), [1, 3], "{words}");
        net.release(1);
        net.acquire(2);
        net.deliver_all();
        assert_eq!(net.inside(), [3], "{words}");
        net.release(3);
        net.deliver_all();
        assert_eq!(net.inside(), [2], "{words}");
    }
    check::<RicartAgrawala>("");
    check::<Ring>("ring=echo");
    check::<Ring>("ring=annotate");
    check::<Sequenced>("");
}

#[test]
fn a_count_that_one_node_knows_at_the_start_reaches_the_others() {
    fn check<P: Protocol>(words: &str) {
        let mut net = Net::<P>::with_initial(three().with_epoch(4), words, InitialHolders::NOBODY);
        net.start(2, 0, initial(&[], 41));
        net.pass_through(2);
        net.pass_through(1);
        assert_eq!(net.fences, [42, 43].map(|count| Fence::compose(4, count).unwrap().get()), "{words}");
    }
    for_each_machine!(check);
}
