//! Section 6.6: readers and writers, first come first served (T12).

use super::*;
use Mode::{Exclusive, Shared};

/// Nodes 1 and 2 ask at the same time, in these modes; node 1 comes first. Who is inside, then, before anybody leaves?
fn both_ask<P: Protocol>(words: &str, first: Mode, second: Mode) -> Vec<u32> {
    let mut net = Net::<P>::new([1, 2, 3], words);
    net.acquire_as(1, first);
    net.acquire_as(2, second);
    net.deliver_all();
    let inside = net.inside();
    net.release(1);
    net.deliver_all();
    assert!(net.is_inside(2), "{words}");
    inside
}

#[test]
fn readers_do_not_defer_readers_and_all_else_is_deferred() {
    fn check<P: Protocol>(words: &str) {
        assert_eq!(both_ask::<P>(words, Shared, Shared), [1, 2], "{words}");
        assert_eq!(both_ask::<P>(words, Exclusive, Shared), [1], "{words}");
        assert_eq!(both_ask::<P>(words, Shared, Exclusive), [1], "{words}");
        assert_eq!(both_ask::<P>(words, Exclusive, Exclusive), [1], "{words}");
    }
    for words in ["", "release=broadcast", "clock=lamport", "reply-number=false"] {
        check::<RicartAgrawala>(words);
    }
    check::<Ring>("ring=echo");
    check::<Ring>("ring=annotate");
    check::<Sequenced>("");
    check::<Classic>("");
}

#[test]
fn a_reader_that_comes_after_a_waiting_writer_waits_behind_it() {
    let mut net = Net::<RicartAgrawala>::new([1, 2, 3], "");
    net.acquire_shared(1);
    net.deliver_all();
    net.acquire_as(2, Exclusive);
    net.deliver_all();
    net.acquire_shared(3);
    net.deliver_all();
    assert_eq!(net.inside(), [1]);
    net.release(1);
    net.deliver_all();
    assert_eq!(net.inside(), [2]);
    net.release(2);
    net.deliver_all();
    assert_eq!(net.inside(), [3]);
}

#[test]
fn the_writer_that_comes_second_yields_by_priority_in_both_roles() {
    let mut net = Net::<RicartAgrawala>::new([1, 2], "");
    net.acquire_shared(1);
    net.acquire_as(2, Exclusive);
    assert_eq!(net.deliver(2, 1), NOTHING, "a reader that comes first defers a writer");
    assert_eq!(net.deliver(1, 2), ["REPLY(1) to 1"], "a writer that comes second does not defer a reader");
    assert_eq!(net.deliver(2, 1), ["enter"]);
    assert_eq!(net.release(1), ["REPLY(1) to 2"]);
}

#[test]
fn the_mode_is_shown() {
    let mut net = Net::<RicartAgrawala>::new([1, 2], "");
    assert_eq!(net.acquire_shared(1), ["REQUEST(1, shared) to all"]);
}
