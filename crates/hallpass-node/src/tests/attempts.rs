//! Callers who do not wait.

use super::*;

#[test]
fn an_attempt_is_answered_by_who_is_before_it_and_the_next_caller_is_served() {
    let mut nodes: [_; 2] = connected(|_| {});
    assert!(matches!(wait(&mut nodes[0], Mode::Exclusive, 1), Answer::Waiting(_)));
    exchange(&mut nodes);
    let (_, inside, _) = granted(&mut nodes[0]);
    let tried = nodes[1].handle_acquire("x", Mode::Exclusive, Patience::Try, 0, || 2).unwrap();
    assert!(matches!(tried, Answer::Waiting(_)));
    assert!(matches!(wait(&mut nodes[1], Mode::Exclusive, 3), Answer::Waiting(_)));
    exchange(&mut nodes);
    assert_eq!(nodes[1].answer(), Some((2, Outcome::Busy)));
    assert!(nodes[0].handle_release(inside, 0));
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[1]).0, 3, "the request of an attempt is not taken over by the next caller");
}

#[test]
fn an_attempt_that_is_given_up_is_forgotten_and_its_answer_means_nobody_else() {
    let mut nodes: [_; 2] = connected(|_| {});
    let first = inside(&mut nodes, WRITE);
    let Answer::Waiting(tried) = try_to(&mut nodes[1], "x", WRITE, 10) else { panic!("one round trip") };
    assert!(nodes[1].handle_cancel(tried, 0));
    let Answer::Waiting(_) = try_to(&mut nodes[1], "x", WRITE, 11) else { panic!("one round trip") };
    waits(&mut nodes[1], WRITE, 12);
    carry(&mut nodes, 1, 0);
    carry(&mut nodes, 0, 1);
    assert_eq!(nodes[1].answer(), Some((11, Outcome::Busy)));
    assert_eq!(nodes[1].answer(), None, "the first attempt has nobody to be told");
    exchange(&mut nodes);
    assert_eq!(order(&mut nodes, (0, first)), [12]);
}

#[test]
fn an_attempt_is_busy_at_once_if_somebody_here_comes_first() {
    let mut nodes: [_; 2] = connected(|_| {});
    let first = inside(&mut nodes, READ);
    assert_eq!(try_to(&mut nodes[0], "x", WRITE, 1), Answer::Busy);
    assert!(matches!(try_to(&mut nodes[0], "x", READ, 1), Answer::Granted(_)));
    waits(&mut nodes[0], WRITE, 2);
    assert_eq!(try_to(&mut nodes[0], "x", READ, 3), Answer::Busy);
    waits(&mut nodes[1], WRITE, 4);
    assert_eq!(try_to(&mut nodes[1], "x", WRITE, 5), Answer::Busy, "somebody asks already");
    assert!(nodes[0].handle_release(first, 0));
}

#[test]
fn an_attempt_on_a_free_lock_is_granted() {
    let mut nodes: [_; 3] = connected(|_| {});
    let Answer::Waiting(_) = try_to(&mut nodes[0], "x", WRITE, 1) else { panic!("one round trip") };
    exchange(&mut nodes);
    let (caller, ticket, _) = granted(&mut nodes[0]);
    assert_eq!(caller, 1);
    assert!(nodes[0].handle_release(ticket, 0));
    assert!(matches!(try_to(&mut nodes[0], "x", WRITE, 2), Answer::Granted(_)), "the permissions are here");
}

#[test]
fn without_support_for_try_an_attempt_is_granted_at_once_or_never() {
    let mut nodes: [_; 2] = connected(|config| config.classes = vec![class("t/", "token", &[])]);
    let tried: Vec<Answer> = nodes.iter_mut().map(|node| try_to(node, "t/x", WRITE, 1)).collect();
    assert_eq!(tried.iter().filter(|answer| matches!(answer, Answer::Granted(_))).count(), 1, "the token is at one");
    assert_eq!(tried.iter().filter(|answer| **answer == Answer::Busy).count(), 1);
    exchange(&mut nodes);
    assert!(nodes.iter_mut().all(|node| node.answer().is_none()));
    let at = tried.iter().position(|answer| *answer != Answer::Busy).unwrap();
    let Answer::Granted(Grant { ticket, .. }) = tried[at] else { panic!() };
    nodes[1 - at].handle_acquire("t/x", WRITE, Patience::Wait, 0, || 7).unwrap();
    assert_eq!(order(&mut nodes, (at, ticket)), [7], "the attempt has left nothing behind");
}

/// A request that was given up is still noted down as deferred: it is not the attempt, which was granted there.
#[test]
fn an_attempt_is_not_refused_for_a_request_that_was_given_up_before_it() {
    let mut nodes: [_; 3] = connected(|_| {});
    inside(&mut nodes, READ);
    let writer = waits(&mut nodes[1], WRITE, 10);
    carry(&mut nodes, 1, 0);
    assert!(nodes[1].handle_cancel(writer, 0));
    let Answer::Waiting(_) = try_to(&mut nodes[1], "x", READ, 11) else { panic!("one round trip") };
    carry(&mut nodes, 1, 0);
    carry(&mut nodes, 0, 1);
    assert_eq!(nodes[1].answer(), None, "the other member has not answered yet");
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[1]).0, 11);
}

#[test]
fn an_attempt_does_not_wait_for_a_member_that_is_gone() {
    let mut nodes: [_; 2] = connected(|_| {});
    let attempt =
        |node: &mut Driven, lock: &str| node.handle_acquire(lock, Mode::Exclusive, Patience::Try, 0, || 5).unwrap();
    assert!(matches!(attempt(&mut nodes[0], "x"), Answer::Waiting(_)));
    nodes[0].handle_disconnect(NodeId(2));
    assert_eq!(nodes[0].answer(), Some((5, Outcome::Busy)));
    assert_eq!(attempt(&mut nodes[0], "y"), Answer::Busy);
}

/// What a node sends while somebody tries there has the attempt's mark, permissions for others too. They are no requests:
/// a node that has deferred an earlier one, given up since, does not answer BUSY to them.
#[test]
fn a_permission_that_is_given_while_somebody_tries_is_not_answered_busy() {
    let mut nodes: [_; 3] = connected(|_| {});
    waits(&mut nodes[0], READ, 1);
    let writer = waits(&mut nodes[1], WRITE, 2);
    carry(&mut nodes, 1, 0);
    assert!(nodes[1].handle_cancel(writer, 0));
    let tried = try_to(&mut nodes[1], "x", READ, 3);
    assert!(matches!(tried, Answer::Waiting(_)), "{tried:?}");
    carry(&mut nodes, 0, 1);
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[1]).0, 3, "only readers ask");
    assert_eq!(granted(&mut nodes[0]).0, 1);
}
