//! The blocking API, without and within a runtime.

use std::time::Duration;

use hallpass::blocking::{InsideRuntime, Node};
use hallpass::{AcquireError, AcquireOptions, GroupError, StartError};

use crate::common::addresses;

const PATIENCE: Duration = Duration::from_secs(60);
const SHORTLY: Duration = Duration::from_millis(5);

fn pair() -> [Node; 2] {
    let addresses = addresses(2);
    let start = |index: usize| {
        let builder = Node::builder().name(format!("n{index}")).listen(&addresses[index]).peers(&addresses);
        builder.ttl(Duration::from_secs(1)).start_blocking().unwrap()
    };
    let nodes = [start(0), start(1)];
    for node in &nodes {
        assert!(node.ready_timeout(PATIENCE).unwrap());
        node.ready().unwrap();
    }
    nodes
}

#[test]
fn two_blocking_nodes_take_turns() {
    let nodes = pair();
    let inside = std::sync::Mutex::new(0_u64);
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                for _ in 0..100 {
                    let guard = node.lock("x").acquire().unwrap();
                    let mut last = inside.try_lock().expect("the other one is inside");
                    assert!(guard.fence() > *last);
                    *last = guard.fence();
                    drop(last);
                    guard.release().unwrap();
                }
            });
        }
    });
}

#[test]
fn everything_the_async_api_can_do_has_its_name_here() {
    let nodes = pair();
    let (near, far) = (nodes[0].lock("x"), nodes[1].lock("x"));
    assert_eq!((nodes[0].name(), near.name()), ("n0", "x"));
    assert_eq!(nodes[0].status().members.len(), 2);
    assert_ne!(nodes[0].address(), nodes[1].address());

    let reader = near.acquire_shared().unwrap();
    assert_eq!(reader.name(), "x");
    drop(far.acquire_with(AcquireOptions::shared().timeout(PATIENCE)).unwrap());
    assert!(far.try_acquire().unwrap().is_none());
    assert_eq!(far.acquire_timeout(SHORTLY).map(drop).unwrap_err(), AcquireError::Timeout);
    assert_eq!(nodes[0].locks()[0].holders, 1);
    drop(reader);
    assert_eq!(nodes[1].acquire_all(["x", "a", "x"]).unwrap().len(), 2);

    let term = nodes[0].elect("leader").unwrap();
    assert_eq!(term.name(), "leader");
    let number = term.number();
    term.resign().unwrap();
    let term = nodes[1].elect("leader").unwrap();
    assert!(term.number() > number);
    let guard = far.acquire().unwrap();
    assert!(!guard.lost_timeout(SHORTLY).unwrap() && !guard.at_risk_timeout(SHORTLY).unwrap());
    assert!(!term.lost_timeout(SHORTLY).unwrap() && !term.at_risk_timeout(SHORTLY).unwrap());
    assert!(!nodes[1].stopped_timeout(SHORTLY).unwrap());
    std::thread::scope(|scope| {
        let waits = [
            scope.spawn(|| guard.lost()),
            scope.spawn(|| guard.at_risk()),
            scope.spawn(|| term.lost()),
            scope.spawn(|| term.at_risk()),
            scope.spawn(|| nodes[1].stopped()),
        ];
        nodes[1].stop();
        assert!(waits.into_iter().all(|wait| wait.join().unwrap() == Ok(())));
    });
    assert!(guard.lost_timeout(PATIENCE).unwrap() && term.lost_timeout(PATIENCE).unwrap());
    assert!(guard.is_lost() && term.is_lost());
    assert!(guard.release().is_err());
    assert!(term.resign().is_err());
    assert_eq!(far.acquire().map(drop).unwrap_err(), AcquireError::Stopped);
}

#[test]
fn the_group_changes_as_with_the_async_api() {
    let [first, second] = pair();
    let ttl = Duration::from_millis(400);
    let third = Node::builder().name("third").join(first.address().to_string()).ttl(ttl).start_blocking().unwrap();
    assert!(third.ready_timeout(PATIENCE).unwrap());
    assert!(matches!(third.join("127.0.0.1:1", PATIENCE), Err(GroupError::Refused(_))), "it is in a group");
    let guard = third.lock("x").acquire().unwrap();
    first.break_lock("x", PATIENCE).unwrap();
    assert!(guard.lost_timeout(PATIENCE).unwrap());
    first.set_class("tokens/", "raymond", &[], PATIENCE).unwrap();
    drop(second.lock("tokens/1").acquire().unwrap());
    assert_eq!(second.lock_info("tokens/1").unwrap().protocol, "raymond");
    second.evict(third.status().id, true, PATIENCE).unwrap();
    first.admit("third", PATIENCE).unwrap();
    third.ready().unwrap();
    drop(third.lock("x").acquire().unwrap());
    third.leave(PATIENCE).unwrap();
    assert_eq!(third.lock("x").acquire().map(drop).unwrap_err(), AcquireError::Stopped);
    // The others hear of it by themselves.
    let rounds = (0..3000).take_while(|_| {
        std::thread::sleep(SHORTLY);
        first.members().len() > 2
    });
    assert!(rounds.count() < 3000, "{:?}", first.members());
}

#[test]
fn a_blocking_call_inside_a_runtime_is_an_error() {
    let node = Node::builder().start_blocking().unwrap();
    let (guard, term) = (node.lock("x").acquire().unwrap(), node.elect("leader").unwrap());
    let inside = Err(AcquireError::InsideRuntime(InsideRuntime));
    for runtime in [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()] {
        let mut runtime = runtime;
        runtime.build().unwrap().block_on(async {
            let started = Node::builder().start_blocking().map(drop);
            assert!(matches!(started, Err(StartError::InsideRuntime(_))), "{started:?}");
            let lock = node.lock("y");
            assert_eq!(lock.acquire().map(drop), inside);
            assert_eq!(lock.acquire_shared().map(drop), inside);
            assert_eq!(lock.try_acquire().map(drop), inside);
            assert_eq!(lock.acquire_timeout(SHORTLY).map(drop), inside);
            assert_eq!(node.acquire_all(["y"]).map(drop), inside);
            assert_eq!(node.elect("y").map(drop), inside);
            let in_group = Err(GroupError::InsideRuntime(InsideRuntime));
            assert_eq!(node.leave(SHORTLY), in_group);
            assert_eq!(node.join("127.0.0.1:1", SHORTLY), in_group);
            assert_eq!(node.evict(1, false, SHORTLY), in_group);
            assert_eq!(node.admit("a", SHORTLY), in_group);
            assert_eq!(node.set_class("t/", "raymond", &[], SHORTLY), in_group);
            assert_eq!(node.break_lock("y", SHORTLY), in_group);
            assert_eq!(node.ready(), Err(InsideRuntime));
            assert_eq!(node.ready_timeout(SHORTLY), Err(InsideRuntime));
            assert_eq!(node.stopped(), Err(InsideRuntime));
            assert_eq!(guard.lost(), Err(InsideRuntime));
            assert_eq!(guard.lost_timeout(SHORTLY), Err(InsideRuntime));
            assert_eq!(guard.at_risk(), Err(InsideRuntime));
            assert_eq!(term.lost(), Err(InsideRuntime));
        });
    }
    assert_eq!(node.locks().iter().map(|lock| lock.holders).sum::<usize>(), 2, "nothing was acquired");
    // What does not wait works there, up to the end of the node.
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        guard.release().unwrap();
        let held = node.locks().iter().filter(|lock| lock.held.is_some()).count();
        assert_eq!(held, 1, "the term's");
        drop(term);
        drop(node);
    });
}
