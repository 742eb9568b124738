//! The printed text, put back.

use super::*;

type Printed = Net<AsPrinted>;

#[test]
fn t6_a_reply_without_a_number_answers_the_next_request() {
    for (words, entered) in [("as-printed=T6", &["enter"][..]), ("as-printed=T15", &[])] {
        let mut net = Printed::new([1, 2], words);
        net.acquire(1);
        net.deliver_first("REQUEST", 1, 2);
        net.cancel(1);
        net.acquire(1);
        assert_eq!(net.deliver_first("REPLY", 2, 1), entered, "{words}: the REPLY is to the request that was given up");
    }
}

#[test]
fn t15_without_the_test_on_using_a_node_that_is_inside_gives() {
    let mut net = Printed::new([1, 2], "as-printed=T15");
    net.acquire(1);
    net.deliver_all();
    net.acquire(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), ["REPLY(2) to 2"]);
    assert_eq!(net.deliver_first("REPLY", 1, 2), ["enter"]);
    assert_eq!(net.inside(), [1, 2]);
    assert_eq!(net.nodes[&1].request_number(), Some(1), "its own request is still there");
}

#[test]
fn t16_with_a_gap_before_the_entry_a_node_enters_without_the_permission() {
    let mut net = Printed::new([1, 2], "as-printed=T16");
    net.acquire(2);
    net.deliver_first("REQUEST", 2, 1);
    assert_eq!(net.deliver_first("REPLY", 1, 2), ["set Using"]);
    assert_eq!(net.fire(2, CrTimer::Using), ["enter"]);
    net.release(2);
    net.acquire(1);
    assert_eq!(net.acquire(2), ["set Using"], "its permission is here");
    let early = CrMessage::Request(Asked { number: 1, mode: Exclusive });
    assert_eq!(net.receive(1, 2, early), ["REPLY(1) to 1", "REQUEST(2) to 1"]);
    assert_eq!(net.fire(2, CrTimer::Using), ["enter"]);
}

#[test]
fn t16_giving_up_cancels_the_entry() {
    let mut net = Printed::new([1, 2], "as-printed=T16");
    net.acquire(1);
    net.deliver_all();
    assert_eq!(net.cancel(1), ["cancel Using"]);
}

#[test]
fn a_trap_that_was_not_put_back_stays_closed() {
    let mut net = Printed::new([1, 2], "as-printed=T16");
    net.acquire(1);
    net.deliver_all();
    net.fire(1, CrTimer::Using);
    net.acquire(2);
    assert_eq!(net.deliver_first("REQUEST", 2, 1), NOTHING, "T15: the test on Using is there");
    let mut net = Printed::new([1, 2], "as-printed=T15");
    net.acquire(1);
    net.deliver_first("REQUEST", 1, 2);
    assert_eq!(net.deliver_first("REPLY", 2, 1), ["enter"], "T16: at once");
}

#[test]
fn only_these_three_can_be_put_back() {
    assert!(parse::<AsPrinted>("as-printed=T1").unwrap_err().contains("offered: T6, T15, T16"));
    assert_eq!(parse::<AsPrinted>("cache-idle=2T as-printed=T15").unwrap().0.cache_idle, Some(2000));
}
