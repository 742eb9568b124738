//! Acquiring, sharing, trying, giving up and losing locks.

use std::time::Duration;

use hallpass::{AcquireError, AcquireOptions, Mode, Node, Refusal};
use tokio::io::AsyncReadExt;

use crate::common::{by_permissions, group, node_with_silent_peer, soon};

/// Long enough for every machine. Whatever takes longer would never end.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn modes_timeouts_and_tries_combine() {
    let nodes = group(2, by_permissions).await;
    let (near, far) = (nodes[0].lock("x"), nodes[1].lock("x"));
    let shortly = Duration::from_millis(5);
    let failed = async |options| far.acquire_with(options).await.map(drop).unwrap_err();

    let reader = near.acquire_with(AcquireOptions::new(Mode::Shared).timeout(PATIENCE)).await.unwrap();
    for options in [AcquireOptions::shared(), AcquireOptions::shared().timeout(PATIENCE)] {
        drop(far.acquire_with(options).await.unwrap());
    }
    drop(far.acquire_with(AcquireOptions::shared().try_now()).await.unwrap());
    assert_eq!(failed(AcquireOptions::exclusive().try_now()).await, AcquireError::Busy);
    assert_eq!(failed(AcquireOptions::default().timeout(shortly)).await, AcquireError::Timeout);

    drop(reader);
    let writer = near.acquire_with(AcquireOptions::exclusive()).await.unwrap();
    assert_eq!(failed(AcquireOptions::shared().try_now()).await, AcquireError::Busy);
    assert_eq!(failed(AcquireOptions::shared().timeout(shortly)).await, AcquireError::Timeout);
    assert_eq!(nodes[1].locks().iter().map(|lock| lock.waiters).sum::<usize>(), 0, "who fails no longer waits");

    drop(writer);
    let writer = far.acquire_with(AcquireOptions::exclusive().timeout(PATIENCE)).await.unwrap();
    assert_eq!(nodes[1].locks()[0].held, Some(Mode::Exclusive));
    drop(writer);
    // Its permissions are here now: also who tries takes the fast path.
    let before = nodes[1].status().messages;
    drop(far.acquire_with(AcquireOptions::exclusive().try_now()).await.unwrap());
    assert_eq!(nodes[1].status().messages, before);
}

#[tokio::test]
async fn a_try_ends_in_time_when_a_member_does_not_answer() {
    let (node, _peer) = node_with_silent_peer().await;
    let lock = node.lock("x");
    let soon = lock.acquire_with(AcquireOptions::exclusive().try_now().timeout(Duration::from_millis(10)));
    tokio::select! {
        biased;
        ended = soon => assert_eq!(ended.map(drop).unwrap_err(), AcquireError::Busy),
        () = tokio::time::sleep(AcquireOptions::TRY_TIMEOUT) => panic!("the shorter limit was not kept"),
    }
    let tried = tokio::time::timeout(PATIENCE, lock.try_acquire()).await.expect("to be answered");
    assert!(tried.unwrap().is_none());
    assert_eq!(node.locks().iter().map(|lock| lock.waiters).sum::<usize>(), 0);
}

/// A member receives the request of a caller who tries, and dies instead of answering.
#[tokio::test]
async fn a_try_ends_when_a_member_dies_meanwhile() {
    let (node, mut peer) = node_with_silent_peer().await;
    let lock = node.lock("x");
    let attempt = tokio::spawn(async move { lock.try_acquire().await.map(|guard| guard.is_some()) });
    assert!(soon("the request", peer.stream.read(&mut [0; 1024])).await.unwrap() > 0);
    drop(peer);
    let answered = tokio::time::timeout(PATIENCE, attempt).await.expect("to be answered");
    assert_eq!(answered.unwrap(), Ok(false));
}

#[tokio::test]
async fn a_refused_request_says_why() {
    let node = Node::builder().start().await.unwrap();
    for name in ["", &"x".repeat(256)] {
        let refused = node.lock(name).acquire().await.map(drop).unwrap_err();
        assert_eq!(refused, AcquireError::Refused(Refusal::Name));
        assert!(refused.to_string().contains("1 to 255 bytes"), "{refused}");
    }
    assert_eq!(node.status().locks, 0, "nothing is left of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_at_once_in_any_order_never_deadlock() {
    let nodes = group(2, |_, builder| builder).await;
    let orders = [["a", "b"], ["b", "a"]];
    let everybody = nodes.iter().zip(orders).map(|(node, names)| async move {
        for _ in 0..200 {
            let guards = node.acquire_all(names).await.unwrap();
            assert_eq!(guards.len(), 2);
            tokio::task::yield_now().await;
        }
    });
    let [one, other]: [_; 2] = everybody.collect::<Vec<_>>().try_into().ok().unwrap();
    let both = async { tokio::join!(one, other) };
    tokio::time::timeout(PATIENCE, both).await.expect("a deadlock");
    // The same lock twice is one lock.
    assert_eq!(nodes[0].acquire_all(["a", "a"]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_dropped_future_withdraws_its_request() {
    let nodes = group(3, |_, builder| builder).await;
    let guard = nodes[0].lock("x").acquire().await.unwrap();
    let waiting = nodes[1].lock("x");
    for _ in 0..20 {
        let late = waiting.acquire_timeout(Duration::from_millis(2)).await;
        assert_eq!(late.unwrap_err(), AcquireError::Timeout);
    }
    assert_eq!(nodes[1].locks().iter().map(|lock| lock.waiters).sum::<usize>(), 0);
    assert!(nodes[2].lock("x").try_acquire().await.unwrap().is_none());
    drop(guard);
    let fence = nodes[2].lock("x").acquire().await.unwrap().fence();
    assert!(nodes[1].lock("x").acquire().await.unwrap().fence() > fence);
}

/// The lock is granted to a caller who is gone before it looks.
#[tokio::test]
async fn a_future_dropped_between_grant_and_poll_leaves_the_lock_free() {
    let nodes = group(2, by_permissions).await;
    let (holder, waiter) = (nodes[0].lock("x"), nodes[0].lock("x"));
    let guard = holder.acquire().await.unwrap();
    let mut waiting = Box::pin(waiter.acquire());
    // The first poll may only yield.
    for _ in 0..2 {
        let pending = std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await;
        assert!(pending, "it is held");
    }
    assert_eq!(nodes[0].locks()[0].waiters, 1);
    drop(guard);
    let granted = &nodes[0].locks()[0];
    assert_eq!((granted.waiters, granted.holders), (0, 1), "it was granted, and nobody has looked");
    drop(waiting);
    assert_eq!(nodes[0].locks().iter().map(|lock| lock.holders).sum::<usize>(), 0);
    let other = tokio::time::timeout(PATIENCE, nodes[1].lock("x").acquire()).await;
    drop(other.expect("it is held forever").unwrap());
}

/// Its permissions are on this node, which needs nobody to grant it.
#[tokio::test]
async fn a_stopped_node_does_not_grant_its_cached_lock() {
    let nodes = group(2, by_permissions).await;
    let lock = nodes[0].lock("x");
    drop(lock.acquire().await.unwrap());
    // Long enough for the lock to count as uncontended again: until then nobody takes the fast path.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let before = nodes[0].status().messages;
    for _ in 0..100 {
        drop(lock.acquire().await.unwrap());
    }
    assert_eq!(nodes[0].status().messages, before, "its permissions are here");
    nodes[0].stop().await;
    // Only now and then a caller yields and does not take the fast path.
    for _ in 0..100 {
        assert_eq!(lock.acquire().await.map(drop).unwrap_err(), AcquireError::Stopped);
        assert_eq!(lock.try_acquire().await.map(drop).unwrap_err(), AcquireError::Stopped);
    }
}

#[tokio::test]
async fn readers_share_and_a_writer_waits_for_them() {
    let nodes = group(3, |_, builder| builder).await;
    let mut readers = Vec::new();
    for node in &nodes {
        readers.push(node.lock("x").acquire_shared().await.unwrap());
        readers.push(node.lock("x").acquire_shared().await.unwrap());
    }
    assert!(nodes[0].lock("x").try_acquire().await.unwrap().is_none());
    let writer = {
        let lock = nodes[0].lock("x");
        tokio::spawn(async move { lock.acquire().await.unwrap().fence() })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!writer.is_finished());
    let shared = readers[0].fence();
    drop(readers);
    assert!(writer.await.unwrap() >= shared);
    // Permissions stay: reading again on every node asks nobody.
    for node in &nodes {
        drop(node.lock("x").acquire_shared().await.unwrap());
    }
    let before: Vec<u64> = nodes.iter().map(|node| node.status().messages).collect();
    for node in &nodes {
        drop(node.lock("x").acquire_shared().await.unwrap());
    }
    let after: Vec<u64> = nodes.iter().map(|node| node.status().messages).collect();
    assert_eq!(before, after);
}

#[tokio::test]
async fn stopping_a_node_ends_its_waits_guards_and_terms() {
    let nodes = group(2, |_, builder| builder).await;
    let guard = nodes[0].lock("x").acquire().await.unwrap();
    let term = nodes[0].elect("leader").await.unwrap();
    assert_eq!((guard.name(), term.name()), ("x", "leader"));
    assert!(!guard.is_lost() && !term.is_lost());
    let waiting = {
        let lock = nodes[1].lock("x");
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    nodes[1].stop().await;
    assert_eq!(waiting.await.unwrap().unwrap_err(), AcquireError::Stopped);
    assert_eq!(nodes[1].lock("y").acquire().await.map(drop).unwrap_err(), AcquireError::Stopped);
    nodes[0].stop().await;
    tokio::time::timeout(PATIENCE, async { tokio::join!(guard.at_risk(), guard.lost(), term.lost()) }).await.unwrap();
    assert!(guard.is_lost() && term.is_lost());
    assert!(guard.release().await.is_err());
    assert!(term.resign().await.is_err());
}

#[tokio::test]
async fn public_types_show_their_names_for_debugging() {
    let node = Node::builder().name("a").start().await.unwrap();
    let lock = node.lock("invoices/42");
    let guard = lock.acquire().await.unwrap();
    assert!(format!("{node:?}").contains("\"a\""));
    assert!(format!("{lock:?}").contains("invoices/42"));
    assert!(format!("{guard:?}").contains(&guard.fence().to_string()));
}
