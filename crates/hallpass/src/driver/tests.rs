use std::sync::atomic::Ordering;

use hallpass_core::Mode;
use hallpass_node::wire::{Hello, Plane};
use hallpass_node::{Grant, Incarnation, NodeConfig, Patience, ViewsConfig};

use super::connections::GUESTS_MAX;
use super::*;
use crate::AcquireError;
use crate::waiter::Verdict;

/// The driver of a node that has stored nothing yet.
fn outside() -> Arc<Driver> {
    let node = Node::new(NodeConfig::new(NodeId(1), ViewsConfig::new("host:1"))).unwrap();
    Driver::new(Parts { me: "'a'".to_owned(), boot_id: 5, tls: None, seeds: Vec::new(), node })
}

/// The driver of a node that has founded its group.
fn alone() -> Arc<Driver> {
    let driver = outside();
    driver.begin(None);
    while !driver.state().node.is_complete() {
        std::thread::sleep(Duration::from_millis(1));
        driver.tick();
    }
    driver
}

fn ask(driver: &Driver, lock: &str) -> Result<Asked, AcquireError> {
    driver.acquire(lock, Mode::Exclusive, Patience::Wait)
}

/// The node's own thread may be quicker than the one that starts the node.
#[tokio::test]
async fn nothing_counts_as_stored_before_there_is_a_thread_that_writes() {
    let driver = outside();
    let tick_for_a_while = || {
        for _ in 0..50 {
            driver.tick();
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    tick_for_a_while();
    let (disk, jobs) = std::sync::mpsc::channel();
    driver.begin(Some(disk));
    tick_for_a_while();
    assert!(!driver.state().node.is_complete(), "nothing was stored");
    let writes = jobs.try_iter().filter_map(|job| if let Job::Write(write) = job { Some(write) } else { None });
    let writes: Vec<_> = writes.collect();
    assert!(!writes.is_empty());
    driver.persisted(writes);
    tick_for_a_while();
    assert!(matches!(jobs.try_recv(), Ok(Job::Write(_))), "it goes on with the next");
}

#[tokio::test]
async fn a_node_that_has_failed_grants_nothing_more() {
    let driver = alone();
    let Ok(Asked::Granted(Granted { grant: Grant { ticket, .. }, .. })) = ask(&driver, "x") else {
        panic!("it is free")
    };
    let Ok(Asked::Waiting(_, waiter)) = ask(&driver, "x") else { panic!("it is held") };
    fail(&driver, |_| ());
    assert!(!driver.is_stopped());
    assert!(!driver.release(ticket), "nobody is let in");
    assert!(driver.is_stopped());
    assert!(is_answered(&waiter, Err(AcquireError::Stopped)));
    assert!(matches!(ask(&driver, "y"), Err(AcquireError::Stopped)));
}

#[tokio::test]
async fn a_node_whose_writes_nobody_carries_out_any_more_stops() {
    let driver = alone();
    let Ok(Asked::Granted(granted)) = ask(&driver, "x") else { panic!("it is free") };
    crate::disk::close_on_panic(&Arc::downgrade(&driver), || ());
    assert!(!driver.is_closed(), "it has ended in order");
    crate::disk::close_on_panic(&Arc::downgrade(&driver), || std::panic::resume_unwind(Box::new("on purpose")));
    assert!(driver.is_closed());
    assert_eq!(driver.validity(granted), Validity::Lost);
}

/// A writer waits, and a reader behind it. The writer's request is withdrawn after the stop: without the stop, the reader
/// would now be granted the lock.
#[tokio::test]
async fn nothing_is_granted_after_the_stop() {
    let driver = alone();
    let ask_for = |mode| driver.acquire("x", mode, Patience::Wait);
    assert!(matches!(ask_for(Mode::Shared), Ok(Asked::Granted(_))));
    let Ok(Asked::Waiting(writer, first)) = ask_for(Mode::Exclusive) else { panic!("it is read") };
    let Ok(Asked::Waiting(_, second)) = ask_for(Mode::Shared) else { panic!("a writer waits") };
    driver.stop(Duration::ZERO);
    assert!(is_answered(&first, Err(AcquireError::Stopped)));
    driver.cancel(writer);
    assert!(is_answered(&second, Err(AcquireError::Stopped)));
    assert!(matches!(ask(&driver, "y"), Err(AcquireError::Stopped)));
}

/// The panic comes between a grant and its answer to the caller.
#[tokio::test]
async fn a_grant_that_was_not_answered_yet_is_answered_with_the_stop() {
    let driver = alone();
    let Ok(Asked::Granted(Granted { grant: Grant { ticket, .. }, .. })) = ask(&driver, "x") else {
        panic!("it is free")
    };
    let Ok(Asked::Waiting(_, waiter)) = ask(&driver, "x") else { panic!("it is held") };
    fail(&driver, |state| state.node.handle_release(ticket, 0));
    driver.tick();
    assert!(is_answered(&waiter, Err(AcquireError::Stopped)));
}

/// A task that is woken may want the node at once, on the thread that wakes it.
#[tokio::test]
async fn callers_are_woken_without_the_nodes_lock() {
    struct Looks(Arc<Driver>, std::sync::atomic::AtomicU32);
    impl std::task::Wake for Looks {
        fn wake(self: Arc<Self>) {
            assert!(
                !matches!(self.0.state.try_lock(), Err(std::sync::TryLockError::WouldBlock)),
                "woken under the lock"
            );
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    type End = fn(&Arc<Driver>, Ticket);
    let ends: [End; 3] = [
        |driver, ticket| assert!(driver.release(ticket)),
        |driver, _| driver.stop(Duration::ZERO),
        |driver, _| {
            fail(driver, |_| ());
            driver.tick();
        },
    ];
    for end in ends {
        let driver = alone();
        let Ok(Asked::Granted(Granted { grant: Grant { ticket, .. }, .. })) = ask(&driver, "x") else {
            panic!("it is free")
        };
        let Ok(Asked::Waiting(_, waiter)) = ask(&driver, "x") else { panic!("it is held") };
        let looks = Arc::new(Looks(Arc::clone(&driver), 0.into()));
        let waker = std::task::Waker::from(Arc::clone(&looks));
        let mut cx = std::task::Context::from_waker(&waker);
        assert!(waiter.poll(&mut cx).is_pending());
        let mut stopped = std::pin::pin!(driver.when_stopped());
        assert!(stopped.as_mut().poll(&mut cx).is_pending());
        end(&driver, ticket);
        let woken = if driver.is_stopped() { 2 } else { 1 };
        assert_eq!(looks.1.load(Ordering::Relaxed), woken);
    }
}

fn is_answered(waiter: &Waiter, verdict: Verdict) -> bool {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    waiter.poll(&mut cx) == std::task::Poll::Ready(verdict)
}

/// As a bug would, after doing this.
fn fail<T>(driver: &Driver, first: impl FnOnce(&mut State) -> T + Send) {
    let fails = || {
        let mut state = driver.state();
        first(&mut state);
        panic!("on purpose");
    };
    assert!(std::thread::scope(|scope| scope.spawn(fails).join()).is_err());
}

#[tokio::test]
async fn the_oldest_of_too_many_guests_gives_way() {
    let driver = outside();
    driver.begin(None);
    let hello = driver.hello(Plane::Control, Some(NodeId(1))).unwrap();
    let connect = |id: u32| {
        let outbox = Arc::new(Outbox::new(false, None));
        let hello = Hello { from: NodeId(id), boot_id: id.into(), name: format!("guest-{id}"), ..hello.clone() };
        assert_eq!(driver.connect_control(&hello, &outbox), Ok(true));
        outbox
    };
    let ids = 10..10 + GUESTS_MAX as u32;
    let all: Vec<_> = ids.map(connect).collect();
    assert!(all.iter().all(|outbox| !outbox.is_closed()));
    all[0].set_peer(Some(&crate::peer::Peer::new(None, "host:1".to_owned())));
    let _one_more = connect(9);
    assert!(all.iter().all(|outbox| !outbox.is_closed()), "one of them is a guest no more");
    let _another = connect(8);
    let closed: Vec<usize> = (0..all.len()).filter(|index| all[*index].is_closed()).collect();
    assert_eq!(closed, [1]);
}

/// Ids are drawn at random, 32 bits long; the number of a process has 64.
#[tokio::test]
async fn two_nodes_that_have_drawn_one_id_are_told_from_each_other() {
    let driver = outside();
    driver.begin(None);
    let hello = Hello { from: NodeId(2), boot_id: 7, ..driver.hello(Plane::Control, Some(NodeId(1))).unwrap() };
    let twin = Hello { boot_id: 8, ..hello.clone() };
    assert_eq!(driver.check_hello(&twin), Ok(()), "the first one to come is the node of this id");
    let outbox = Arc::new(Outbox::new(false, None));
    assert_eq!(driver.connect_control(&hello, &outbox), Ok(true));
    assert_eq!(driver.check_hello(&hello), Ok(()), "a second connection");
    let why = driver.check_hello(&twin).unwrap_err();
    assert!(why.contains("has the id 2 of another node"), "{why}");
    // Where its connection is lost its locks are not yet.
    driver.disconnect_control(NodeId(2), &outbox);
    assert!(driver.check_hello(&twin).is_err() && driver.check_hello(&hello).is_ok());
    // A later start of the node that has a directory.
    let later = Incarnation::new(hello.incarnation.get() + 1).unwrap();
    assert_eq!(driver.check_hello(&Hello { incarnation: later, ..twin.clone() }), Ok(()));
    // This node's own id.
    let mine = Hello { from: NodeId(1), to: NodeId(1), ..twin };
    let why = driver.check_hello(&mine).unwrap_err();
    assert!(why.contains("has the id 1 of another node"), "{why}");
}
