//! Groups whose members come, go and fail while the others go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hallpass::{AcquireError, GroupError, Node, ViewState};

use crate::common::relay::Network;
use crate::common::{PATIENCE, Scratch, TTL, addresses, complete, group, in_view, named, quick, soon, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_the_lock_of_a_member_that_was_killed() {
    let nodes = group(3, quick).await;
    let guard = nodes[0].lock("x").acquire().await.unwrap();
    let fence = guard.fence();
    let waiting = tokio::spawn({
        let lock = nodes[1].lock("x");
        async move { lock.acquire().await.map(|guard| guard.fence()) }
    });
    until("a waiter", || nodes[1].lock_info("x").is_some_and(|lock| lock.waiters == 1)).await;
    nodes[0].crash().await;
    assert!(guard.is_lost());
    let next = soon("the lock", waiting).await.unwrap().unwrap();
    assert!(next > fence);
    complete(&[&nodes[1], &nodes[2]], 2).await;
    assert!(guard.release().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_group_goes_on_when_its_steward_is_killed() {
    let nodes = group(3, quick).await;
    let steward = nodes[0].status().steward.expect("a steward");
    let (gone, left): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(|node| node.status().id == steward);
    gone[0].crash().await;
    for node in &left {
        drop(soon("a lock", node.lock("x").acquire()).await.unwrap());
    }
    complete(&[&left[0], &left[1]], 2).await;
    assert_ne!(left[0].status().steward, Some(steward));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stops_is_out_at_once_and_comes_back_as_the_same() {
    let scratch = Scratch::new("restart");
    let addresses = addresses(3);
    // Sessions that nobody waits for here.
    let start = |index: usize| {
        let builder = Node::builder().name(format!("n{index}")).listen(&addresses[index]).peers(named(&addresses));
        builder.ttl(10 * PATIENCE).data(scratch.join(format!("{index}"))).start()
    };
    let mut nodes = Vec::new();
    for index in 0..3 {
        nodes.push(start(index).await.unwrap());
    }
    complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
    let mut fence = 0;
    for index in 0..3 {
        let guard = soon("a lock", nodes[index].lock("x").acquire()).await.unwrap();
        assert!(guard.fence() > fence);
        fence = guard.fence();
        let id = nodes[index].status().id;
        soon("the end", nodes[index].stop()).await;
        assert!(guard.is_lost());
        // Its lock is free, though it was not released.
        let guard = soon("a lock", nodes[(index + 1) % 3].lock("x").acquire()).await.unwrap();
        assert!(guard.fence() > fence);
        fence = guard.fence();
        drop(guard);
        nodes[index] = start(index).await.unwrap();
        assert_eq!(nodes[index].status().id, id);
        complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
        assert_eq!(nodes[index].status().voters.len(), 3, "a restart takes no vote");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_restarted_and_fences_rise() {
    let scratch = Scratch::new("all-restarted");
    let addresses = addresses(3);
    let mut fence = 0;
    for _ in 0..3 {
        let mut nodes = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let builder = Node::builder().name(format!("n{index}")).listen(address).peers(named(&addresses));
            nodes.push(quick(index, builder.data(scratch.join(format!("{index}")))).start().await.unwrap());
        }
        for node in &nodes {
            let guard = soon("a lock", node.lock("x").acquire()).await.unwrap();
            assert!(guard.fence() > fence, "{} after {fence}", guard.fence());
            fence = guard.fence();
        }
        for node in &nodes {
            node.crash().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_join_through_any_member_and_leave() {
    let nodes = group(3, quick).await;
    let held = nodes[0].lock("x").acquire().await.unwrap();
    let join =
        |name: &str, through: &Node| Node::builder().name(name).join(through.address().to_string()).ttl(TTL).start();
    let fourth = join("fourth", &nodes[2]).await.unwrap();
    let fifth = join("fifth", &fourth).await.unwrap();
    complete(&[&nodes[0], &nodes[1], &nodes[2], &fourth, &fifth], 5).await;
    assert!(!held.is_lost(), "others come and go");
    assert_eq!(fifth.lock("x").try_acquire().await.map(|guard| guard.is_some()), Ok(false));
    soon("to leave", nodes[1].leave(PATIENCE)).await.unwrap();
    soon("to leave", fourth.leave(PATIENCE)).await.unwrap();
    complete(&[&nodes[0], &nodes[2], &fifth], 3).await;
    held.release().await.unwrap();
    drop(soon("the lock", fifth.lock("x").acquire()).await.unwrap());
    let late = fourth.lock("x").acquire().await.map(drop);
    assert_eq!(late, Err(AcquireError::Stopped));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_removed_locks_broken_and_classes_set() {
    let nodes = group(3, quick).await;
    let broken = nodes[0].lock("x").acquire().await.unwrap();
    let other = nodes[0].lock("y").acquire().await.unwrap();
    soon("to break it", nodes[1].break_lock("x", PATIENCE)).await.unwrap();
    soon("at risk", broken.at_risk()).await;
    soon("lost", broken.lost()).await;
    assert!(broken.is_lost() && broken.is_broken(), "it is known why");
    assert!(!other.is_broken() && broken.release().await.is_err());
    assert!(!other.is_lost(), "only the one that was broken");
    let nobody = nodes[1].break_lock("nobody's", PATIENCE).await;
    assert!(matches!(nobody, Err(GroupError::Refused(_))), "{nobody:?}");
    drop(soon("the lock", nodes[1].lock("x").acquire()).await.unwrap());

    soon("a class", nodes[2].set_class("tokens/", "raymond", &[], PATIENCE)).await.unwrap();
    drop(soon("a lock", nodes[0].lock("tokens/1").acquire()).await.unwrap());
    until("the class", || nodes[0].lock_info("tokens/1").is_some_and(|lock| lock.protocol == "raymond")).await;

    let victim = nodes[0].status().id;
    soon("to remove it", nodes[1].evict(victim, true, PATIENCE)).await.unwrap();
    assert!(other.is_lost());
    complete(&[&nodes[1], &nodes[2]], 2).await;
}

/// All are cut off from each other: what is held is lost, and nothing is granted until there is a majority again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_locks_are_lost_and_none_is_granted() {
    let (network, nodes) = Network::of_three(TTL).await;
    // Nobody reaches anybody: nobody has a majority, and all that is held is lost.
    let guard = nodes[0].lock("x").acquire().await.unwrap();
    assert!(guard.valid_until().is_some());
    network.cut_off(&["n0", "n1", "n2"]);
    soon("at risk", guard.at_risk()).await;
    soon("lost", guard.lost()).await;
    let waiting = tokio::spawn({
        let lock = nodes[1].lock("x");
        async move { lock.acquire().await.map(|guard| guard.fence()) }
    });
    until("lapsed", || nodes.iter().all(|node| node.status().view != ViewState::Open)).await;
    assert!(!waiting.is_finished(), "nothing is granted without a majority");
    network.cut_off(&[]);
    let fence = soon("the lock", waiting).await.unwrap().unwrap();
    assert!(fence > guard.fence() && guard.is_lost());
    complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
}

/// A program that blocks its runtime neither loses its session nor keeps others waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_is_blocked_loses_nothing_and_keeps_nobody_waiting() {
    const BLOCKED: Duration = Duration::from_secs(4);
    let addresses = addresses(3);
    let builder = |index: usize| {
        let builder = Node::builder().name(format!("n{index}")).listen(&addresses[index]).peers(named(&addresses));
        quick(index, builder)
    };
    let (blocked, blocks) = (builder(2), Arc::new(AtomicBool::new(false)));
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let begun = Arc::clone(&blocks);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let node = blocked.start().await.unwrap();
            node.ready().await;
            // Its permission is here, and others will ask for it.
            drop(node.lock("x").acquire().await.unwrap());
            let held = node.lock("held").acquire().await.unwrap();
            begun.store(true, Ordering::Relaxed);
            sender.send(node.clone()).unwrap();
            std::thread::sleep(BLOCKED);
            begun.store(false, Ordering::Relaxed);
            assert!(!held.is_lost(), "the session went on");
            held.release().await.unwrap();
            node.stop().await;
        });
    });
    let (first, second) = (builder(0).start().await.unwrap(), builder(1).start().await.unwrap());
    let node = soon("the third", receiver).await.unwrap();
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while blocks.load(Ordering::Relaxed) && rounds < 20 {
        for node in [&first, &second] {
            // Also those that nobody has a permission for yet.
            for name in ["x".to_owned(), format!("{rounds}")] {
                let begun = Instant::now();
                drop(soon("a lock", node.lock(name).acquire()).await.unwrap());
                longest = longest.max(begun.elapsed());
            }
        }
        rounds += 1;
    }
    assert!(blocks.load(Ordering::Relaxed), "only {rounds} rounds while the other was blocked");
    println!("while its runtime was blocked others waited for {longest:?} at most");
    assert_eq!(in_view(&first), 3);
    drop(node);
    tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
}

/// A group whose members store nothing is founded anew when all of them are started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_directories_is_founded_again() {
    let addresses = addresses(3);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut nodes = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let builder = Node::builder().name(format!("n{index}")).listen(address).peers(named(&addresses));
            nodes.push(quick(index, builder).start().await.unwrap());
        }
        complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
        ids.extend(nodes.iter().map(|node| node.status().id));
        // One that is killed and started again is a new member.
        nodes[1].crash().await;
        let builder = Node::builder().name("n1").listen(&addresses[1]).peers(named(&addresses));
        nodes[1] = quick(1, builder).start().await.unwrap();
        complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
        ids.push(nodes[1].status().id);
        for node in &nodes {
            node.crash().await;
        }
    }
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "each start without a directory is another node");
}

/// Two of three members are gone for good, and the directory of the third makes a group of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_lost_its_majority_is_recovered() {
    let scratch = Scratch::new("recovered");
    let nodes = group(3, |index, builder| quick(index, builder.data(scratch.join(format!("{index}"))))).await;
    let fence = nodes[0].lock("x").acquire().await.unwrap().fence();
    let epoch = nodes[0].status().epoch.unwrap();
    for node in &nodes {
        node.crash().await;
    }
    let survivor = scratch.join("0");
    let recovered = hallpass::recover(&survivor).unwrap();
    assert!(recovered > epoch + 60_000, "{recovered} after {epoch}");
    let node = Node::builder().data(&survivor).start().await.unwrap();
    let guard = soon("a lock", node.lock("x").acquire()).await.unwrap();
    assert!(guard.fence() > fence && in_view(&node) == 1);
    let error = hallpass::recover(scratch.join("nothing")).unwrap_err().to_string();
    assert!(error.contains("it contains no data of a node"), "{error}");
}
