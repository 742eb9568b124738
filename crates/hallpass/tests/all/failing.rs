//! A node that panics inside takes its locks with it. Its holders are told, although nobody asks the node anything.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use hallpass::{AcquireError, Node};

use crate::common::{Log, PATIENCE, group, soon, until};

/// What the log says.
const FAILED: &str = "the node has failed and stops; this is a bug";

/// Nothing can take its locks away, so that its holders have no deadline at which they would look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holders_of_a_node_that_is_alone_are_told_that_it_has_failed() {
    let log = Log::begin();
    let node = Node::builder().start().await.unwrap();
    let guard = soon("the lock", node.lock("x").acquire()).await.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let (mut lost, lock) = (pin!(guard.lost()), node.lock("x"));
    let mut waits = pin!(lock.acquire());
    assert!(lost.as_mut().poll(&mut context).is_pending() && waits.as_mut().poll(&mut context).is_pending());
    node.fail();
    soon("the loss", lost).await;
    assert_eq!(soon("an answer", waits).await.map(drop), Err(AcquireError::Stopped));
    until("the line in the log", || log.with(FAILED).len() == 1).await;
    assert_eq!(node.lock("x").acquire().await.map(drop), Err(AcquireError::Stopped));
    soon("the end", node.stop()).await;
}

/// The others hear nothing of it, and wait for its session to end. Its holders know long before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holders_of_a_member_are_told_that_it_has_failed_before_others_are_let_in() {
    let nodes = group(3, |_, builder| builder.ttl(Duration::from_secs(4))).await;
    let guard = soon("the lock", nodes[0].lock("x").acquire()).await.unwrap();
    let told = tokio::spawn(async move {
        guard.lost().await;
        Instant::now()
    });
    let lock = nodes[1].lock("x");
    let next = tokio::spawn(async move { lock.acquire_timeout(PATIENCE).await.map(|_guard| Instant::now()) });
    until("a waiter", || nodes[1].lock_info("x").is_some_and(|lock| lock.waiters == 1)).await;
    nodes[0].fail();
    let told = soon("the loss", told).await.unwrap();
    let next = soon("the next holder", next).await.unwrap().unwrap();
    assert!(told < next, "the next holder was in {:?} before this one was told", told - next);
}
