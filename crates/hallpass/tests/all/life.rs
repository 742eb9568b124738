//! The life of a group on real sockets: members leave, are cut off, join while they run, and find each other by a name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hallpass::{AcquireError, Builder, GroupError, Node};
use tokio::task::JoinHandle;

use crate::common::relay::Network;
use crate::common::{
    Authority, PATIENCE, Scratch, TTL, addresses, complete, group, in_view, named, quick, soon, until,
};

/// Sessions that nobody waits for: whatever ends in time does not wait for one.
const LONG: Duration = Duration::from_secs(300);

/// Waits for the lock, and tells when it was granted.
async fn waiter(node: &Node, lock: &str) -> JoinHandle<Instant> {
    let waiting = node.lock(lock);
    let task = tokio::spawn(async move {
        let _guard = waiting.acquire().await.unwrap();
        Instant::now()
    });
    until("a waiter", || node.lock_info(lock).is_some_and(|lock| lock.waiters == 1)).await;
    task
}

/// First the steward, then one that votes, then one of two: each holds a lock that another one waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_leaves_hands_its_locks_over_at_once() {
    let scratch = Scratch::new("leaves");
    let with = |index: usize, builder: Builder| builder.ttl(LONG).data(scratch.join(index.to_string()));
    let mut nodes = group(4, with).await;
    while nodes.len() > 1 {
        let steward = nodes[0].status().steward;
        let is_steward = |node: &Node| Some(node.status().id) == steward;
        let leaving = nodes.iter().position(|node| is_steward(node) == (nodes.len() % 2 == 0)).unwrap();
        let leaving = nodes.remove(leaving);
        let guard = soon("the lock", leaving.lock("x").acquire()).await.unwrap();
        let waiting = waiter(&nodes[0], "x").await;
        let begun = Instant::now();
        soon("to leave", leaving.leave(PATIENCE)).await.unwrap();
        let left = begun.elapsed();
        let granted = soon("the lock", waiting).await.unwrap();
        let after = granted.saturating_duration_since(begun);
        println!("of {} members: left after {left:?}, the next holder is in after {after:?}", nodes.len() + 1);
        assert!(guard.is_lost());
        complete(&nodes.iter().collect::<Vec<_>>(), nodes.len()).await;
        let id = leaving.status().id;
        until("its vote is handed over", || nodes.iter().all(|node| !node.status().voters.contains(&id))).await;
    }
    // The last one takes the group with it.
    soon("to leave", nodes[0].leave(PATIENCE)).await.unwrap();
}

/// Nobody is there who could let it go: it is told so, as often as it asks, and can be stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_cannot_leave_is_told() {
    let nodes = group(3, quick).await;
    nodes[1].crash().await;
    nodes[2].crash().await;
    let short = Duration::from_millis(50);
    for _ in 0..2 {
        assert_eq!(soon("an answer", nodes[0].leave(short)).await, Err(GroupError::Timeout));
    }
    assert_eq!(nodes[0].lock("x").acquire_timeout(short).await.map(drop), Err(AcquireError::Timeout));
    soon("the end", nodes[0].stop()).await;
    assert_eq!(soon("an answer", nodes[0].leave(short)).await, Err(GroupError::Stopped));
}

/// A member that is cut off from the others knows it before they give its lock to somebody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_cut_off_has_lost_its_locks_before_another_gets_them() {
    let (network, nodes) = Network::of_three(Duration::from_secs(1)).await;
    for cuts_steward in [false, true] {
        let steward = nodes[0].status().steward;
        let is_cut = |node: &&Node| (Some(node.status().id) == steward) == cuts_steward;
        let cut = nodes.iter().find(is_cut).unwrap();
        let other = nodes.iter().find(|node| node.name() != cut.name()).unwrap();
        let guard = Arc::new(soon("the lock", cut.lock("x").acquire()).await.unwrap());
        let (at_risk, held) = (Arc::clone(&guard), Arc::clone(&guard));
        let at_risk = tokio::spawn(async move {
            at_risk.at_risk().await;
            at_risk.is_lost()
        });
        let waiting = other.lock("x");
        let waiting = tokio::spawn(async move {
            let next = waiting.acquire().await.unwrap();
            (held.is_lost(), next.fence())
        });
        until("a waiter", || other.lock_info("x").is_some_and(|lock| lock.waiters == 1)).await;
        network.cut_off(&[cut.name()]);
        assert!(!soon("at risk", at_risk).await.unwrap(), "the warning comes first");
        soon("lost", guard.lost()).await;
        let (was_lost, fence) = soon("the lock", waiting).await.unwrap();
        assert!(was_lost, "two held the lock");
        assert!(fence > guard.fence());
        assert!(cut.lock("x").try_acquire().await.is_ok_and(|guard| guard.is_none()), "it grants nothing");
        network.cut_off(&[]);
        complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
    }
}

/// A node that waits for founders who never come joins a group that it is told of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_in_no_group_joins_one_while_it_runs() {
    let nodes = group(2, quick).await;
    let free = addresses(2);
    let lonely = Node::builder().name("lonely").listen(&free[0]).peers(&free).ttl(TTL).start().await.unwrap();
    assert_eq!(lonely.join("127.0.0.1:1", Duration::from_millis(50)).await, Err(GroupError::Timeout));
    let nonsense = lonely.join("nonsense", PATIENCE).await;
    assert!(matches!(nonsense, Err(GroupError::Refused(_))), "{nonsense:?}");
    soon("to join", lonely.join(&nodes[1].address().to_string(), PATIENCE)).await.unwrap();
    complete(&[&nodes[0], &nodes[1], &lonely], 3).await;
    let again = lonely.join(&nodes[0].address().to_string(), PATIENCE).await;
    assert!(again.unwrap_err().to_string().contains("in a group already"));

    // It is sent away for good, and let in again.
    let id = lonely.status().id;
    soon("to remove it", nodes[0].evict(id, true, PATIENCE)).await.unwrap();
    complete(&[&nodes[0], &nodes[1]], 2).await;
    until("why", || lonely.status().waits_for.is_some_and(|why| why.contains("evicted from the group for good"))).await;
    soon("to admit it", nodes[1].admit("lonely", PATIENCE)).await.unwrap();
    complete(&[&nodes[0], &nodes[1], &lonely], 3).await;
    drop(soon("a lock", lonely.lock("x").acquire()).await.unwrap());
}

/// A node that joins need not be on any list: its certificate says who it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_keys_join_and_strangers_do_not() {
    let scratch = Scratch::new("keys-join");
    let (authority, other) = (Authority::new(), Authority::new());
    let nodes =
        group(2, |index, builder| quick(index, builder).keys(authority.keys(&scratch, &format!("n{index}")))).await;
    let through = format!("n1@{}", nodes[1].address());
    let join = |name: &str, authority: &Authority, through: &str| {
        let builder = Node::builder().name(name).ttl(TTL).join(through);
        builder.keys(authority.keys(&scratch, name)).start()
    };
    let joiner = join("joiner", &authority, &through).await.unwrap();
    complete(&[&nodes[0], &nodes[1], &joiner], 3).await;
    drop(soon("a lock", joiner.lock("x").acquire()).await.unwrap());
    // With keys of others, or through a member of another name.
    let stranger = join("stranger", &other, &through).await.unwrap();
    crate::common::trouble(&stranger, "its keys come from another").await;
    let misled = join("misled", &authority, &format!("n0@{}", nodes[1].address())).await.unwrap();
    crate::common::trouble(&misled, "is called 'n0'").await;
    assert_eq!(in_view(&nodes[0]), 3);
    let without = Node::builder().name("plain").join(nodes[1].address().to_string()).start().await.unwrap();
    crate::common::trouble(&without, "it has keys, and this node has none").await;
}

/// The process is gone for certain: nobody waits for its session, which lasts as long as it does by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_process_that_is_killed_and_restarted_is_free_at_once() {
    let scratch = Scratch::new("killed");
    let addresses = addresses(3);
    let start = |index: usize| {
        let builder = Node::builder().name(format!("n{index}")).listen(&addresses[index]).peers(named(&addresses));
        builder.data(scratch.join(index.to_string())).start()
    };
    let mut nodes = [start(0).await.unwrap(), start(1).await.unwrap(), start(2).await.unwrap()];
    complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
    for killed in 0..3 {
        let guard = soon("the lock", nodes[killed].lock("x").acquire()).await.unwrap();
        let waiting = waiter(&nodes[(killed + 1) % 3], "x").await;
        let begun = Instant::now();
        nodes[killed].crash().await;
        assert!(guard.is_lost());
        nodes[killed] = start(killed).await.unwrap();
        let granted = soon("the lock", waiting).await.unwrap();
        println!("the next holder is in {:?} after the kill", granted.saturating_duration_since(begun));
        complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
    }
}

/// What a node that is alone holds nobody can take away, until another one is about to join.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_holder_has_a_deadline_before_another_member_is_there() {
    let alone = Node::builder().name("alone").ttl(TTL).start().await.unwrap();
    let guard = alone.lock("x").acquire().await.unwrap();
    assert_eq!(guard.valid_until(), None);
    let joining = Node::builder().name("joining").ttl(TTL).join(alone.address().to_string()).start().await.unwrap();
    soon("a deadline", guard.became_revocable()).await;
    soon("to join", joining.ready()).await;
    assert!(guard.valid_until().is_some() && !guard.is_lost());
    assert!(joining.lock("x").try_acquire().await.unwrap().is_none());
    soon("to leave", joining.leave(PATIENCE)).await.unwrap();
    until("no deadline", || guard.valid_until().is_none()).await;
}
