use std::future::Future;
use std::time::Instant;

use hallpass::Node;
use hallpass_node::leases::{Bounds, LeaseTerm};
use hallpass_testkit::{LIMIT, Scratch};

use super::*;
use crate::registry::EventKind;
use crate::{Agent, AgentOptions};

const SESSION: Duration = Duration::from_secs(2);

/// An agent of a group of one, and its service.
struct TestAgent {
    service: Service,
    node: Node,
    stop: Box<dyn Fn() + Send>,
    serving: tokio::task::JoinHandle<()>,
    directory: Scratch,
}

impl TestAgent {
    async fn start() -> Self {
        Self::start_with(SESSION).await
    }

    async fn start_with(session: Duration) -> Self {
        Self::start_in(Scratch::new("service"), session).await
    }

    async fn start_in(directory: Scratch, session: Duration) -> Self {
        let mut options = AgentOptions::new(directory.join("agent.sock"), directory.join("data"));
        options.ttl = session;
        let agent = Agent::start(Node::builder().group("g").name("n"), options).await.expect("the agent starts");
        let (service, node, stop) = (agent.service(), agent.node(), Box::new(agent.stopper()));
        let serving = tokio::spawn(async move { drop(agent.serve().await) });
        Self { service, node, stop, serving, directory }
    }

    async fn end(self) {
        self.leave_directory().await;
    }

    async fn leave_directory(self) -> Scratch {
        (self.stop)();
        within(self.serving).await.expect("the agent does not panic");
        self.directory
    }

    fn lease(&self, ttl: Duration) -> LeaseTtl {
        self.service.grant(None, ttl, Owner::Nobody, Arc::default()).expect("a lease")
    }

    async fn acquire(&self, lease: LeaseId, lock: &str) -> Acquired {
        within(self.service.acquire(lease, lock, WAIT)).await.expect("the lock is granted")
    }

    fn waiters(&self, lock: &str) -> usize {
        self.node.lock_info(lock).map_or(0, |lock| lock.waiters)
    }

    async fn until(&self, what: impl Fn() -> bool) {
        let end = Instant::now() + LIMIT;
        while !what() {
            assert!(Instant::now() < end, "it never happens");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

const WAIT: Wanted = Wanted { mode: Mode::Exclusive, tries: false, timeout: None };
const TRY: Wanted = Wanted { mode: Mode::Exclusive, tries: true, timeout: None };
const HOUR: Duration = Duration::from_secs(3600);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it takes no longer")
}

#[tokio::test]
async fn a_lock_passes_from_lease_to_lease() {
    let agent = TestAgent::start().await;
    let (one, other) = (agent.lease(HOUR).id, agent.lease(HOUR).id);
    assert_ne!(one, other);
    let first = agent.acquire(one, "a").await;
    let busy = agent.service.acquire(other, "a", TRY).await.unwrap_err();
    assert!(matches!(busy, AcquireFault::Busy(_)), "{busy}");
    let late = Wanted { timeout: Some(Duration::from_millis(1)), ..WAIT };
    assert!(matches!(agent.service.acquire(other, "a", late).await, Err(AcquireFault::Late(_))));
    let service = agent.service.clone();
    let second = tokio::spawn(async move { service.acquire(other, "a", WAIT).await });
    agent.until(|| agent.waiters("a") == 1).await;
    assert!(!agent.service.release(one, "a", Some(first.fence + 1)).await.unwrap(), "another fence releases nothing");
    assert!(agent.service.release(one, "a", Some(first.fence)).await.unwrap());
    let second = within(second).await.unwrap().unwrap();
    assert!(second.fence > first.fence);
    assert!(!agent.service.release(one, "a", None).await.unwrap(), "a late release frees nothing of another lease");
    assert_eq!(agent.service.promise_lease(other).unwrap().locks[0].fence, second.fence);
    assert_eq!(agent.service.revoke(other).unwrap(), [("a".to_owned(), second.fence)]);
    assert_eq!(agent.service.leases(), [one]);
    assert_eq!(agent.service.keepalive(other), Err(LeaseError::NotFound(other)));
    agent.end().await;
}

#[tokio::test]
async fn the_same_lease_gets_the_same_lock_once() {
    let agent = TestAgent::start().await;
    let lease = agent.lease(HOUR).id;
    let holder = agent.node.lock("a").acquire().await.unwrap();
    // Two requests of one lease wait for one lock: whichever is granted first, the other is too.
    let wait = || {
        let service = agent.service.clone();
        tokio::spawn(async move { service.acquire(lease, "a", WAIT).await })
    };
    let (one, two) = (wait(), wait());
    agent.until(|| agent.service.shared().counts.waiting.get() == 2).await;
    assert!(matches!(agent.service.acquire(lease, "a", TRY).await, Err(AcquireFault::Busy(_))));
    drop(holder);
    let (one, two) = (within(one).await.unwrap().unwrap(), within(two).await.unwrap().unwrap());
    assert_eq!(one.fence, two.fence);
    assert!(one.already != two.already);
    let again = agent.acquire(lease, "a").await;
    assert!(again.already && again.fence == one.fence);
    let shared = Wanted { mode: Mode::Shared, ..WAIT };
    let other = agent.service.acquire(lease, "a", shared).await.unwrap_err();
    assert_eq!(other, AcquireFault::OtherMode(lease, Mode::Exclusive));
    agent.end().await;
}

#[tokio::test]
async fn a_lease_that_is_not_kept_alive_ends_and_the_next_gets_in() {
    let agent = TestAgent::start().await;
    let lease = agent.lease(Duration::from_millis(300)).id;
    let (_, mut events) = agent.service.subscribe();
    let first = agent.acquire(lease, "a").await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(agent.service.keepalive(lease).unwrap().ttl() <= Duration::from_millis(300));
    }
    let next = agent.lease(HOUR).id;
    let second = agent.acquire(next, "a").await;
    assert!(second.fence > first.fence);
    assert_eq!(agent.service.keepalive(lease), Err(LeaseError::NotFound(lease)));
    let mut kinds = Vec::new();
    while let Ok(event) = events.try_recv() {
        kinds.push(event.event);
    }
    assert_eq!(kinds, [EventKind::Granted, EventKind::LeaseExpired, EventKind::Released, EventKind::Granted]);
    agent.end().await;
}

#[tokio::test]
async fn a_client_that_gives_up_leaves_nothing_behind() {
    let agent = TestAgent::start().await;
    let (one, other) = (agent.lease(HOUR).id, agent.lease(HOUR).id);
    agent.acquire(one, "a").await;
    let clients = agent.service.shared().clients.len();
    for new in [false, true] {
        let service = agent.service.clone();
        let waiting = tokio::spawn(async move {
            match new {
                true => service.acquire_new(HOUR, Owner::Nobody, Arc::default(), "a", WAIT).await,
                false => service.acquire(other, "a", WAIT).await,
            }
        });
        agent.until(|| agent.waiters("a") == 1).await;
        waiting.abort();
        agent.until(|| agent.waiters("a") == 0).await;
        let _ = waiting.await;
        let shared = agent.service.shared();
        let leases = agent.service.lease_count();
        assert_eq!((shared.clients.len(), shared.counts.waiting.get(), leases), (clients, 0, 2));
        assert_eq!(shared.clients.counts(), (1, 0));
    }
    // The lease can ask again: nothing of it waits.
    agent.service.release(one, "a", None).await.unwrap();
    agent.acquire(other, "a").await;
    agent.end().await;
}

#[tokio::test]
async fn a_waiter_whose_lease_ends_gets_nothing() {
    let agent = TestAgent::start().await;
    let lease = agent.lease(HOUR).id;
    let holder = agent.node.lock("a").acquire().await.unwrap();
    let service = agent.service.clone();
    let waiting = tokio::spawn(async move { service.acquire(lease, "a", WAIT).await });
    agent.until(|| agent.waiters("a") == 1).await;
    agent.service.revoke(lease).unwrap();
    assert_eq!(within(waiting).await.unwrap(), Err(AcquireFault::LeaseEnded(lease)));
    drop(holder);
    assert_eq!(agent.service.acquire(lease, "a", WAIT).await, Err(LeaseError::NotFound(lease).into()));
    agent.end().await;
}

#[tokio::test]
async fn nobody_is_told_more_than_a_session_less_drift() {
    let agent = TestAgent::start().await;
    let told = agent.lease(HOUR);
    let most = SESSION * 100 / 101 + Duration::from_millis(1);
    assert!(told.ttl() <= most && told.granted == HOUR, "{told:?}");
    let acquired = within(agent.service.acquire_new(HOUR, Owner::Nobody, Arc::default(), "a", WAIT)).await.unwrap();
    assert!(acquired.lease.ttl() <= most, "{acquired:?}");
    assert!(agent.service.keepalive(acquired.lease.id).unwrap().ttl() <= most);
    let exists = agent.service.grant(Some(told.id), HOUR, Owner::Nobody, Arc::default());
    assert_eq!(exists, Err(LeaseError::Exists(told.id)));
    agent.end().await;
}

#[tokio::test]
async fn what_an_operator_breaks_is_kept_for_as_long_as_was_told() {
    let agent = TestAgent::start().await;
    let lease = agent.lease(HOUR).id;
    agent.acquire(lease, "a").await;
    agent.acquire(lease, "b").await;
    let told = Instant::now() + agent.service.keepalive(lease).unwrap().ttl();
    let (_, mut events) = agent.service.subscribe();
    let node = agent.node.clone();
    let broken = tokio::spawn(async move { node.break_lock("a", LIMIT).await });
    let next = within(agent.node.lock("a").acquire()).await.unwrap();
    assert!(Instant::now() >= told, "the next one got in while the client counted on the lock");
    within(broken).await.unwrap().unwrap();
    drop(next);
    // Nothing is told any more, and the other lock goes the same way.
    drop(within(agent.node.lock("b").acquire()).await.unwrap());
    assert_eq!(agent.service.keepalive(lease), Err(LeaseError::NotFound(lease)));
    let mut kinds = Vec::new();
    while let Ok(event) = events.try_recv() {
        kinds.push(event.event);
    }
    assert!(
        kinds.contains(&EventKind::Broken) && kinds.contains(&EventKind::Lost) && kinds.contains(&EventKind::LeaseLost),
        "{kinds:?}"
    );
    agent.end().await;
}

/// Listeners to the service's events are told, although nobody asks it anything. Those who ask are told as well.
#[tokio::test]
async fn a_node_that_fails_takes_its_leases_along() {
    for panics in [false, true] {
        let agent = TestAgent::start().await;
        let lease = agent.lease(HOUR).id;
        agent.acquire(lease, "a").await;
        let (_, mut events) = agent.service.subscribe();
        if panics {
            agent.node.fail();
        } else {
            agent.node.crash().await;
        }
        while within(events.recv()).await.unwrap().event != EventKind::LeaseLost {}
        assert_eq!(agent.service.keepalive(lease), Err(LeaseError::NotFound(lease)));
        within(agent.serving).await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_that_ends_tells_nobody_to_hold_anything_for_longer() {
    let agent = TestAgent::start().await;
    let (lease, idle) = (agent.lease(HOUR).id, agent.lease(HOUR).id);
    agent.acquire(lease, "a").await;
    (agent.stop)();
    agent.until(|| agent.service.is_ending()).await;
    let before = Instant::now();
    tokio::time::sleep(SESSION / 4).await;
    if let Ok(told) = agent.service.keepalive(lease) {
        assert!(told.ttl() <= SESSION.saturating_sub(before.elapsed() / 2), "{told:?}");
    }
    assert_eq!(agent.service.keepalive(idle), Err(LeaseError::NotFound(idle)));
    assert_eq!(agent.service.grant(None, HOUR, Owner::Nobody, Arc::default()), Err(LeaseError::Ending));
    // It has ended as soon as its last client has.
    let _ = agent.service.revoke(lease);
    within(agent.serving).await.unwrap();
}

/// A lease of 20 s at 0.5 s: a lock acquired under it is certain for 19.5 s and the drift, not for 20 s.
#[tokio::test]
async fn a_lock_under_an_old_lease_is_certain_for_no_longer_than_the_lease() {
    const LEASE: Duration = Duration::from_secs(20);
    let agent = TestAgent::start_with(LIMIT).await;
    let lease = agent.lease(LEASE).id;
    let granted = Instant::now();
    tokio::time::sleep(Duration::from_millis(500)).await;
    // A new lock, and one that the lease holds already.
    for already in [false, true] {
        let left = (LEASE * 101 / 100).saturating_sub(granted.elapsed());
        let acquired = agent.acquire(lease, "a").await;
        assert_eq!(acquired.already, already);
        let ttl = acquired.lease.ttl();
        assert!(ttl <= left * 100 / 101, "told {ttl:?}, and the lease ends in {left:?}");
    }
    agent.service.revoke(lease).unwrap();
    agent.end().await;
}

/// Nobody keeps the lease alive any more, and nobody releases it: what was told is kept, and the next one is in no sooner.
#[tokio::test]
async fn an_agent_that_ends_keeps_what_it_has_told() {
    let agent = TestAgent::start().await;
    let lease = agent.lease(HOUR).id;
    agent.acquire(lease, "a").await;
    let told = Instant::now() + agent.service.keepalive(lease).unwrap().ttl();
    let lock = agent.node.lock("a");
    let next = tokio::spawn(async move { lock.acquire().await.map(|_| Instant::now()) });
    agent.until(|| agent.waiters("a") == 1).await;
    (agent.stop)();
    // By the lease's end, or by that of the node, if the machine is slow.
    let passed = within(next).await.unwrap().unwrap_or_else(|_| Instant::now());
    assert!(passed >= told, "the lock was free {:?} before the client's time was over", told - passed);
    agent.end().await;
}

/// The group's sessions are longer than what the agent has on disk, and it cannot write more.
#[tokio::test]
async fn an_agent_that_cannot_cover_what_it_tells_grants_nothing() {
    let directory = TestAgent::start_with(LIMIT).await.leave_directory().await;
    let agent = TestAgent::start_in(directory, SESSION).await;
    let draft = agent.directory.join("data/running.new");
    std::fs::create_dir(&draft).unwrap();
    assert_eq!(agent.node.status().ttl, LIMIT, "the group's sessions are as it was founded");
    let service = &agent.service;
    let refused = service.grant(None, HOUR, Owner::Nobody, Arc::default());
    assert!(matches!(refused, Err(LeaseError::NotPersisted(_))), "{refused:?}");
    let refused = within(service.acquire_new(HOUR, Owner::Nobody, Arc::default(), "a", WAIT)).await;
    assert!(matches!(refused, Err(AcquireFault::Lease(LeaseError::NotPersisted(_)))), "{refused:?}");
    std::fs::remove_dir(&draft).unwrap();
    agent.until(|| service.grant(None, HOUR, Owner::Nobody, Arc::default()).is_ok()).await;
    let running = std::fs::read_to_string(agent.directory.join("data/running")).unwrap();
    assert_eq!(running, LIMIT.as_millis().to_string());
    let told = agent.lease(HOUR);
    assert!(told.ttl() > SESSION, "{told:?}");
    agent.end().await;
}

/// What holders of such an agent are told is what the next one waits in any case.
#[tokio::test]
async fn what_is_held_is_told_no_longer_than_it_is_covered() {
    let directory = TestAgent::start_with(LIMIT).await.leave_directory().await;
    let agent = TestAgent::start_in(directory, SESSION).await;
    std::fs::create_dir(agent.directory.join("data/running.new")).unwrap();
    let guard = within(agent.node.lock("a").acquire()).await.unwrap();
    let bounds = agent.service.shared().bounds(std::iter::once(&guard));
    assert_eq!(u128::from(bounds.covered), SESSION.as_nanos());
    drop(guard);
    agent.end().await;
}

/// Clients that count seconds may look half a second late. Only in groups with short sessions they cannot be told so much less.
#[test]
fn whole_seconds_never_leave_less_than_half_a_second_where_sessions_last_3_s() {
    let told = |session_ms: u64, left_ms: u64| {
        let session = Duration::from_millis(session_ms).as_nanos() as u64;
        let bounds = Bounds { held_until: None, end: None, covered: session, session, drift_ppm: 0 };
        let mut term = LeaseTerm::new(left_ms * 1_000_000, 0, 0);
        let promise = term.promise(0, &bounds).unwrap();
        let id = LeaseId::new(1).unwrap();
        LeaseTtl { id, granted: HOUR, promise, session: Duration::from_millis(session_ms) }.seconds()
    };
    assert_eq!([999, 1000, 1499, 1500, 2499, 2500].map(|left_ms| told(5000, left_ms)), [0, 0, 0, 1, 1, 2]);
    assert_eq!([2999, 3000].map(|session_ms| told(session_ms, 1499)), [1, 0]);
    assert_eq!([999, 1000, 1499, 1500].map(|left_ms| told(2000, left_ms)), [0, 1, 1, 1]);
}

/// One request waits for a disk that hangs. The others are told what is written down already.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_keeps_no_lease_from_being_kept_alive() {
    let agent = TestAgent::start_with(LIMIT).await;
    let (one, other) = (agent.lease(HOUR).id, agent.lease(HOUR).id);
    let draft = agent.directory.join("data/running.new");
    let made = std::process::Command::new("mkfifo").arg(&draft).status().unwrap();
    assert!(made.success());
    // As when the agent's group has longer sessions than the agent had alone.
    let shared = Arc::clone(agent.service.shared());
    shared.marks().set_persisted(SESSION);
    let service = agent.service.clone();
    let hangs = tokio::task::spawn_blocking(move || service.keepalive(one));
    agent.until(|| shared.marks().is_writing()).await;
    let service = agent.service.clone();
    let answered = tokio::task::spawn_blocking(move || service.keepalive(other));
    let told = tokio::time::timeout(LIMIT, answered).await;
    // Both ends of it are there now, so that nothing waits for it any more.
    let _ends = std::fs::File::options().read(true).write(true).open(&draft).unwrap();
    let told = told.expect("nobody waits for the disk").unwrap().unwrap();
    assert!(told.ttl() <= SESSION, "{told:?}");
    within(hangs).await.unwrap().unwrap();
    std::fs::remove_file(&draft).unwrap();
    agent.end().await;
}
