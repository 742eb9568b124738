//! What a node tells about its locks.

use std::time::Duration;

use hallpass::{LockState, Mode, Node};

use crate::common::{by_permissions, group, until};

#[tokio::test]
async fn one_lock_is_found_by_its_name() {
    let nodes = group(2, by_permissions).await;
    assert!(nodes[0].lock_info("x").is_none());
    let guard = nodes[0].lock("x").acquire().await.unwrap();
    let held = nodes[0].lock_info("x").unwrap();
    assert_eq!((held.state, held.held, held.holders), (LockState::Here, Some(Mode::Exclusive), 1));
    assert!(held.missing.is_empty());

    let (waiting, id) = (nodes[1].lock("x"), nodes[0].status().id);
    let mut waits = Box::pin(waiting.acquire());
    assert!(tokio::time::timeout(Duration::from_millis(5), &mut waits).await.is_err(), "the other node holds it");
    let wanted = nodes[1].lock_info("x").unwrap();
    assert_eq!((wanted.state, wanted.missing, wanted.waiters), (LockState::Elsewhere, vec![id], 1));

    guard.release().await.unwrap();
    drop(waits.await.unwrap());
    assert_eq!(nodes[1].lock_info("x").unwrap().state, LockState::Cached);
}

/// The home knows the order; who waits elsewhere learns from it who is inside, when somebody asks.
#[tokio::test]
async fn who_waits_learns_from_the_home_who_has_the_lock() {
    let nodes = group(3, |_, builder| builder).await;
    let ids: Vec<u32> = nodes.iter().map(|node| node.status().id).collect();
    let holder = nodes[0].lock("x").acquire().await.unwrap();
    let home = nodes[0].lock_info("x").unwrap().home.unwrap();
    let asking = (1..3).find(|index| ids[*index] != home).unwrap();
    let waiting = nodes[asking].lock("x");
    let mut waits = Box::pin(waiting.acquire());
    assert!(tokio::time::timeout(Duration::from_millis(5), &mut waits).await.is_err(), "another node holds it");
    let at_home = ids.iter().position(|id| *id == home).unwrap();
    let order = || nodes[at_home].lock_info("x").and_then(|lock| lock.order);
    until("the home has heard of both", || order() == Some(vec![ids[0], ids[asking]])).await;
    nodes[asking].inquire("x");
    until("the home says who has it", || nodes[asking].lock_info("x").unwrap().missing == [ids[0]]).await;
    holder.release().await.unwrap();
    drop(waits.await.unwrap());
}

/// More locks than are looked at in one go.
#[tokio::test]
async fn all_locks_are_listed_by_name() {
    let node = Node::builder().listen("127.0.0.1:0").start().await.unwrap();
    let names: Vec<String> = (0..1000).map(|n| format!("lock {n:04}")).collect();
    let guards = node.acquire_all(names.clone()).await.unwrap();
    assert_eq!(node.locks().into_iter().map(|lock| lock.name).collect::<Vec<_>>(), names);
    drop(guards);
    assert!(node.status().fences_left > 0);
}

#[tokio::test]
async fn the_messages_of_a_lock_can_be_watched() {
    let nodes = group(3, by_permissions).await;
    let trace = nodes[0].trace("x").unwrap();
    drop(nodes[1].lock("other").acquire().await.unwrap());
    // The first asks everybody; the second asks those who have the permission now, and so on.
    for index in [0, 1, 0] {
        nodes[index].lock("x").acquire().await.unwrap().release().await.unwrap();
    }
    let (messages, missed) = trace.take();
    assert_eq!(missed, 0);
    let seen: Vec<_> = messages.iter().map(|message| (message.kind, message.is_sent, message.peer)).collect();
    let peer = nodes[1].status().id;
    for (kind, is_sent) in [("REQUEST", true), ("REPLY", false), ("REQUEST", false), ("REPLY", true)] {
        assert!(seen.contains(&(kind, is_sent, peer)), "{kind} {is_sent} in {seen:?}");
    }
    assert!(messages.iter().all(|message| message.text.starts_with(message.kind)), "{messages:?}");
    assert!(messages.is_sorted_by(|before, after| before.ago >= after.ago), "in order: {messages:?}");
    assert_eq!(trace.take(), (Vec::new(), 0));
    let more: Vec<_> = (0..15).map(|_| nodes[0].trace("y").unwrap()).collect();
    assert!(nodes[0].trace("z").is_none(), "too many watch");
    drop(more);
    assert!(nodes[0].trace("z").is_some());
}
