use std::time::{Duration, Instant};

use hallpass::Node;
use hallpass_testkit::{LIMIT, Scratch};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio_stream::StreamExt;
use tonic::Code;

use super::key::LockKey;
use super::proto::compare::With;
use super::proto::request_op::Request as Part;
use super::proto::response_op::Response as Done;
use super::proto::*;
use super::*;
use crate::http::{Access, Traffic};
use crate::service::LeaseId;
use crate::{Agent, AgentOptions};

/// An agent of a group of one, and etcd's API of it.
pub(super) struct TestAgent {
    etcd: Arc<Etcd>,
    node: Node,
    stop: Box<dyn Fn() + Send>,
    serving: tokio::task::JoinHandle<()>,
    _directory: Scratch,
}

impl TestAgent {
    pub(super) async fn start() -> Self {
        let directory = Scratch::new("etcd");
        let options = AgentOptions::new(directory.join("agent.sock"), directory.join("data"));
        let agent = Agent::start(Node::builder().group("g").name("n"), options).await.expect("the agent starts");
        let access = Arc::new(Access::new(None).expect("no file is read"));
        let api = Api { service: agent.service(), access, traffic: Arc::new(Traffic::default()) };
        let (node, stop) = (agent.node(), Box::new(agent.stopper()));
        let serving = tokio::spawn(async move { drop(agent.serve().await) });
        Self { etcd: Arc::new(Etcd::new(api)), node, stop, serving, _directory: directory }
    }

    pub(super) async fn end(self) {
        (self.stop)();
        within(self.serving).await.expect("the agent does not panic");
    }

    pub(super) fn etcd(&self) -> Arc<Etcd> {
        Arc::clone(&self.etcd)
    }

    async fn lease(&self) -> LeaseId {
        let request = LeaseGrantRequest { ttl: 600, id: 0 };
        let granted = self.etcd().lease_grant(Caller::trusted(), request).await.expect("a lease");
        lease::lease_id(granted.id).expect("a lease's id")
    }

    async fn key(&self, lock: &str) -> LockKey {
        LockKey { lock: lock.into(), lease: self.lease().await }
    }

    async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        within(self.etcd().txn(Caller::trusted(), request)).await
    }

    async fn get(&self, key: &LockKey) -> RangeResponse {
        let request = RangeRequest { key: key.bytes(), ..RangeRequest::default() };
        self.etcd().range(Caller::trusted(), request).await.expect("a key is read")
    }

    async fn last_before(&self, lock: &str, revision: i64) -> Result<RangeResponse, Status> {
        let mut request = prefix(lock);
        request.max_create_revision = revision;
        request.sort_order = SortOrder::Descend.into();
        self.etcd().range(Caller::trusted(), request).await
    }

    async fn delete(&self, key: &LockKey) -> i64 {
        let request = DeleteRangeRequest { key: key.bytes(), ..DeleteRangeRequest::default() };
        within(self.etcd().delete_range(Caller::trusted(), request)).await.expect("a key is deleted").deleted
    }

    async fn revoke(&self, lease: LeaseId) {
        let request = LeaseRevokeRequest { id: lease.get() as i64 };
        self.etcd().lease_revoke(Caller::trusted(), request).await.expect("the lease was there");
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

pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it takes no longer")
}

fn prefix(lock: &str) -> RangeRequest {
    let (key, range_end) = (format!("{lock}/").into_bytes(), format!("{lock}0").into_bytes());
    RangeRequest { key, range_end, limit: 1, sort_target: SortTarget::Create.into(), ..RangeRequest::default() }
}

fn part(request: Part) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn created_at(key: &LockKey, revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Create.into(),
        key: key.bytes(),
        with: Some(With::CreateRevision(revision)),
        ..Compare::default()
    }
}

/// What Go's `Mutex` begins with.
fn take(key: &LockKey) -> TxnRequest {
    let owner = || RangeRequest { sort_order: SortOrder::Ascend.into(), ..prefix(&key.lock) };
    let put = PutRequest { key: key.bytes(), lease: key.lease.get() as i64, ..PutRequest::default() };
    let get = RangeRequest { key: key.bytes(), ..RangeRequest::default() };
    TxnRequest {
        compare: vec![created_at(key, 0)],
        success: vec![part(Part::Put(put)), part(Part::Range(owner()))],
        failure: vec![part(Part::Range(get)), part(Part::Range(owner()))],
    }
}

/// What a later version of it ends with.
fn give_back(key: &LockKey, revision: i64) -> TxnRequest {
    let delete = DeleteRangeRequest { key: key.bytes(), ..DeleteRangeRequest::default() };
    TxnRequest {
        compare: vec![created_at(key, revision)],
        success: vec![part(Part::DeleteRange(delete))],
        failure: vec![],
    }
}

fn revision(header: &Option<ResponseHeader>) -> i64 {
    header.as_ref().expect("a header").revision
}

/// The revision that Go's client takes for its own, and that of the owner.
fn mine_and_owner(answer: &TxnResponse) -> (i64, i64) {
    let kvs = |part: &ResponseOp| match &part.response {
        Some(Done::Range(range)) => range.kvs.clone(),
        other => panic!("{other:?} is not a range"),
    };
    let mine = match answer.succeeded {
        true => revision(&answer.header),
        false => kvs(&answer.responses[0])[0].create_revision,
    };
    (mine, kvs(&answer.responses[1])[0].create_revision)
}

#[tokio::test]
async fn a_free_lock_is_had_with_the_first_transaction() {
    let agent = TestAgent::start().await;
    let key = agent.key("jobs/daily").await;
    let answer = agent.txn(take(&key)).await.unwrap();
    let (mine, owner) = mine_and_owner(&answer);
    assert!(answer.succeeded && mine == owner);
    let fence = agent.node.lock_info("jobs/daily").unwrap().fence as i64;
    assert_eq!(mine, fence);
    // Another mutex of the same session finds the key, and has the lock as well.
    let again = agent.txn(take(&key)).await.unwrap();
    assert!(!again.succeeded);
    assert_eq!(mine_and_owner(&again), (mine, mine));
    let got = agent.get(&key).await;
    assert_eq!((got.kvs[0].create_revision, got.kvs[0].mod_revision, revision(&got.header)), (mine, mine, mine));
    assert_eq!((agent.delete(&key).await, agent.delete(&key).await), (1, 0));
    assert!(agent.get(&key).await.kvs.is_empty());
    let next = agent.txn(take(&key)).await.unwrap();
    assert!(next.succeeded && mine_and_owner(&next).0 > mine);
    agent.end().await;
}

#[tokio::test]
async fn a_waiter_sees_one_predecessor_until_it_has_the_lock() {
    let agent = TestAgent::start().await;
    let holder = agent.node.lock("a").acquire().await.unwrap();
    let key = agent.key("a").await;
    let answer = agent.txn(take(&key)).await.unwrap();
    let (mine, owner) = mine_and_owner(&answer);
    assert!(answer.succeeded && owner == mine - 1 && mine < holder.fence() as i64);
    // Another mutex of the same session waits for the same.
    assert_eq!(mine_and_owner(&agent.txn(take(&key)).await.unwrap()), (mine, owner));
    let before = agent.last_before("a", mine - 1).await.unwrap().kvs;
    assert_eq!((before.len(), before[0].create_revision, &before[0].key), (1, owner, &key.predecessor()));
    let etcd = agent.etcd();
    let watched = key.clone();
    let watch = tokio::spawn(async move { etcd.waiters.wait(&watched).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!watch.is_finished());
    let fence = holder.fence() as i64;
    drop(holder);
    within(watch).await.unwrap();
    let turn = agent.last_before("a", mine - 1).await.unwrap();
    let got = agent.get(&key).await;
    assert!(turn.kvs.is_empty() && revision(&turn.header) > fence);
    // The key is the one that the client made; the answer's revision is the fence.
    assert_eq!((got.kvs[0].create_revision, revision(&got.header)), (mine, revision(&turn.header)));
    assert_eq!(got.kvs[0].mod_revision as u64, agent.node.lock_info("a").unwrap().fence);
    assert!(agent.txn(give_back(&key, mine)).await.unwrap().succeeded);
    drop(within(agent.node.lock("a").acquire()).await.unwrap());
    agent.end().await;
}

#[tokio::test]
async fn a_client_that_gives_up_waiting_leaves_nothing_behind() {
    let agent = TestAgent::start().await;
    let holder = agent.node.lock("a").acquire().await.unwrap();
    let key = agent.key("a").await;
    // The transaction is cancelled, before it is answered.
    let (etcd, request) = (agent.etcd(), take(&key));
    let transaction = tokio::spawn(async move { etcd.txn(Caller::trusted(), request).await });
    agent.until(|| agent.waiters("a") == 1).await;
    transaction.abort();
    agent.until(|| agent.waiters("a") == 0).await;
    // The key is deleted.
    let (mine, _) = mine_and_owner(&agent.txn(take(&key)).await.unwrap());
    assert_eq!((agent.waiters("a"), agent.delete(&key).await), (1, 1));
    agent.until(|| agent.waiters("a") == 0).await;
    within(agent.etcd.waiters.gone(&key)).await;
    assert_eq!(agent.last_before("a", mine - 1).await.unwrap_err().code(), Code::NotFound);
    // The lease ends.
    let (mine, _) = mine_and_owner(&agent.txn(take(&key)).await.unwrap());
    agent.revoke(key.lease).await;
    within(agent.etcd.waiters.wait(&key)).await;
    agent.until(|| agent.waiters("a") == 0).await;
    assert!(agent.get(&key).await.kvs.is_empty());
    assert_eq!(agent.last_before("a", mine - 1).await.unwrap_err().message(), error::LEASE_NOT_FOUND);
    assert_eq!(agent.txn(take(&key)).await.unwrap_err().message(), error::LEASE_NOT_FOUND);
    assert_eq!(agent.etcd.waiters.len(), (0, 0));
    drop(holder);
    agent.end().await;
}

#[tokio::test]
async fn a_stale_deletion_frees_nothing() {
    let agent = TestAgent::start().await;
    let key = agent.key("a").await;
    let (old, _) = mine_and_owner(&agent.txn(take(&key)).await.unwrap());
    assert!(agent.txn(give_back(&key, old)).await.unwrap().succeeded);
    let (new, _) = mine_and_owner(&agent.txn(take(&key)).await.unwrap());
    assert!(!agent.txn(give_back(&key, old)).await.unwrap().succeeded);
    assert_eq!(agent.get(&key).await.kvs[0].create_revision, new);
    // The key of a lease that has ended frees nothing of the next one.
    let other = agent.key("a").await;
    agent.revoke(key.lease).await;
    let answer = agent.txn(take(&other)).await.unwrap();
    assert_eq!((agent.delete(&key).await, agent.get(&other).await.kvs.len()), (0, 1));
    assert_eq!(mine_and_owner(&answer).0, agent.node.lock_info("a").unwrap().fence as i64);
    agent.end().await;
}

#[tokio::test]
async fn locks_and_transactions_know_each_other() {
    let agent = TestAgent::start().await;
    let (one, two) = (agent.key("a").await, agent.key("a").await);
    let lock = |key: &LockKey| LockRequest { name: b"a".to_vec(), lease: key.lease.get() as i64 };
    let locked = within(agent.etcd().lock(Caller::trusted(), lock(&one))).await.unwrap();
    assert_eq!(locked.key, one.bytes());
    assert_eq!(agent.get(&one).await.kvs[0].create_revision, revision(&locked.header));
    let (mine, owner) = mine_and_owner(&agent.txn(take(&two)).await.unwrap());
    assert_ne!(mine, owner);
    let all = RangeRequest { limit: 0, ..prefix("a") };
    let listed = agent.etcd().range(Caller::trusted(), all).await.unwrap().kvs;
    assert_eq!(listed.iter().map(|kv| kv.key.clone()).collect::<Vec<_>>(), [one.bytes(), two.bytes()]);
    agent.etcd().unlock(Caller::trusted(), UnlockRequest { key: one.bytes() }).await.unwrap();
    within(agent.etcd.waiters.wait(&two)).await;
    let again = within(agent.etcd().lock(Caller::trusted(), lock(&two))).await.unwrap();
    assert_eq!(revision(&again.header), revision(&agent.get(&two).await.header));
    agent.etcd().unlock(Caller::trusted(), UnlockRequest { key: two.bytes() }).await.unwrap();
    assert!(agent.get(&two).await.kvs.is_empty());
    agent.end().await;
}

#[tokio::test]
async fn what_is_no_lock_is_refused() {
    let agent = TestAgent::start().await;
    let key = agent.key("a").await;
    let put = |change: &dyn Fn(&mut PutRequest)| {
        let mut put = PutRequest { key: key.bytes(), lease: key.lease.get() as i64, ..PutRequest::default() };
        change(&mut put);
        TxnRequest { success: vec![part(Part::Put(put))], ..TxnRequest::default() }
    };
    let wrong = [
        put(&|put| put.key = b"config".to_vec()),
        put(&|put| put.lease = 0),
        put(&|put| put.lease += 1),
        put(&|put| put.value = b"x".to_vec()),
        put(&|put| put.prev_kv = true),
        TxnRequest { success: vec![part(Part::Txn(Opaque {}))], ..TxnRequest::default() },
        TxnRequest { success: vec![RequestOp { request: None }], ..TxnRequest::default() },
        TxnRequest {
            compare: vec![Compare { key: key.bytes(), result: 9, ..Compare::default() }],
            ..TxnRequest::default()
        },
        TxnRequest { success: vec![RequestOp { request: None }; 129], ..TxnRequest::default() },
    ];
    for request in wrong {
        let status = agent.txn(request.clone()).await.unwrap_err();
        assert!(matches!(status.code(), Code::InvalidArgument | Code::Unimplemented), "{request:?}: {status}");
    }
    let ranges = [
        RangeRequest { key: b"config".to_vec(), ..RangeRequest::default() },
        RangeRequest { key: vec![0], range_end: vec![0], ..RangeRequest::default() },
        RangeRequest { revision: 3, ..prefix("a") },
        RangeRequest { max_create_revision: 3, ..prefix("a") },
        RangeRequest { min_mod_revision: 3, ..prefix("a") },
    ];
    for request in ranges {
        let status = agent.etcd().range(Caller::trusted(), request.clone()).await.unwrap_err();
        assert!(matches!(status.code(), Code::InvalidArgument | Code::Unimplemented), "{request:?}: {status}");
    }
    for name in [&b""[..], b"\xff", &[b'a'; 256]] {
        let request = LockRequest { name: name.to_vec(), lease: 0 };
        assert_eq!(agent.etcd().lock(Caller::trusted(), request).await.unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(agent.etcd.waiters.len(), (0, 0));
    agent.end().await;
}

/// What clients of one lock can do.
#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    /// And give up before it is answered.
    TakeBriefly(usize),
    Lock(usize),
    Delete(usize),
    Revoke(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..4_usize;
    prop_oneof![
        3 => who.clone().prop_map(Step::Take),
        2 => who.clone().prop_map(Step::TakeBriefly),
        2 => who.clone().prop_map(Step::Lock),
        4 => who.clone().prop_map(Step::Delete),
        1 => who.prop_map(Step::Revoke),
    ]
}

/// Whatever clients do, in whatever order: one holder at most, and in the end nothing is left.
#[test]
fn one_holder_at_most_and_nothing_left_behind() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let agent = runtime.block_on(TestAgent::start());
    let mut runner = TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
    let steps = proptest::collection::vec(step(), 1..12);
    let result = runner.run(&steps, |steps| runtime.block_on(play(&agent, &steps)));
    result.unwrap();
    runtime.block_on(agent.end());
}

async fn play(agent: &TestAgent, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut keys = Vec::new();
    for _ in 0..4 {
        keys.push(agent.key("a").await);
    }
    let brief = Duration::from_millis(3);
    for step in steps {
        match step {
            Step::Take(who) => {
                let answer = agent.txn(take(&keys[*who])).await.unwrap();
                let (mine, owner) = mine_and_owner(&answer);
                let seen = agent.get(&keys[*who]).await;
                prop_assert_eq!(seen.kvs[0].create_revision, mine);
                prop_assert!(owner != mine || seen.kvs[0].mod_revision >= mine);
            }
            Step::TakeBriefly(who) => {
                let transaction = agent.etcd().txn(Caller::trusted(), take(&keys[*who]));
                let _ = tokio::time::timeout(brief, transaction).await;
            }
            Step::Lock(who) => {
                let request = LockRequest { name: b"a".to_vec(), lease: keys[*who].lease.get() as i64 };
                let _ = tokio::time::timeout(brief, agent.etcd().lock(Caller::trusted(), request)).await;
            }
            Step::Delete(who) => drop(agent.delete(&keys[*who]).await),
            Step::Revoke(who) => {
                agent.revoke(keys[*who].lease).await;
                keys[*who] = agent.key("a").await;
            }
        }
        let held =
            keys.iter().filter(|key| agent.etcd.waiters.promise(key).unwrap().is_some_and(|seen| seen.fence.is_some()));
        prop_assert!(held.count() <= 1);
    }
    for key in &keys {
        agent.delete(key).await;
        agent.revoke(key.lease).await;
    }
    let free = agent.node.lock("a").acquire_timeout(LIMIT).await;
    prop_assert!(free.is_ok());
    agent.until(|| agent.waiters("a") == 0 && agent.etcd.waiters.len() == (0, 0)).await;
    Ok(())
}

#[test]
fn messages_are_read_as_etcd_writes_them() {
    // Field 1 "foo", field 2 1234; and a transaction's condition, which has a field 64.
    let lock = LockRequest::decode(&[0x0a, 3, b'f', b'o', b'o', 0x10, 0xd2, 0x09][..]).unwrap();
    assert_eq!((lock.name.as_slice(), lock.lease), (&b"foo"[..], 1234));
    let compare = Compare::decode(&[0x10, 1, 0x1a, 1, b'k', 0x28, 5, 0x82, 0x04, 1, b'z'][..]).unwrap();
    assert_eq!(
        (compare.target(), compare.with, compare.range_end),
        (CompareTarget::Create, Some(With::CreateRevision(5)), vec![b'z'])
    );
    let event = Event { r#type: 1, kv: Some(KeyValue { key: vec![b'k'], ..KeyValue::default() }), prev_kv: None };
    let watch = WatchResponse { watch_id: 3, events: vec![event], ..WatchResponse::default() };
    assert_eq!(watch.encode_to_vec(), [0x10, 3, 0x5a, 7, 0x08, 1, 0x12, 3, 0x0a, 1, b'k']);
}

#[test]
fn the_gateway_writes_what_etcds_does() {
    let header = Some(ResponseHeader { cluster_id: u64::MAX, member_id: 2, revision: 3, raft_term: 0 });
    let told = LeaseTimeToLiveResponse { header, id: 1234, ttl: -1, granted_ttl: 0, keys: vec![b"foo/4d2".to_vec()] };
    let text = serde_json::to_string(&told).unwrap();
    let header = r#"{"cluster_id":"18446744073709551615","member_id":"2","revision":"3"}"#;
    assert_eq!(text, format!(r#"{{"header":{header},"ID":"1234","TTL":"-1","keys":["Zm9vLzRkMg=="]}}"#));
    let read = gateway::read::<LeaseGrantRequest>;
    let grant = LeaseGrantRequest { ttl: 60, id: 1234 };
    assert_eq!(read(br#"{"TTL": 60, "ID": "1234"}"#).unwrap(), grant);
    assert_eq!(read(br#"{"ID": 1234, "TTL": "60", "else": {}}"#).unwrap(), grant);
    assert_eq!(read(b" ").unwrap(), LeaseGrantRequest::default());
    for wrong in [&b"x"[..], b"[", b"{\"TTL\": 1.5}", b"{\"TTL\": \"\"}", b"{\"TTL\": 18446744073709551615}", b"\xff"] {
        assert_eq!(read(wrong).unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(gateway::read::<LockRequest>(br#"{"name": "Zm9v"}"#).unwrap().name, b"foo");
    let two = gateway::read_all(br#"{"ID": 1}{"ID": "2"}"#).unwrap();
    assert_eq!(two.iter().map(|request| request.id).collect::<Vec<_>>(), [1, 2]);
    assert!(gateway::read_all(&b"{}".repeat(1001)).is_err());
}

proptest! {
    #[test]
    fn whatever_is_sent_is_read_or_refused(kind: u8, bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\{\\}\\[\\]\":,a-zA-Z0-9 ]{0,60}") {
        fuzzing::message(kind, &bytes);
        fuzzing::gateway(&bytes);
        fuzzing::gateway(text.as_bytes());
    }
}

/// Go's client takes an answer with ttl 0 for the end of its session, at once.
#[tokio::test]
async fn an_agent_that_ends_says_so_with_every_keepalive() {
    let agent = TestAgent::start().await;
    let key = agent.key("a").await;
    assert!(agent.txn(take(&key)).await.unwrap().succeeded);
    let keepalive = || {
        let request = LeaseKeepAliveRequest { id: key.lease.get() as i64 };
        agent.etcd.lease_keep_alive(&Caller::trusted(), &request).map(|answer| answer.ttl)
    };
    assert!(keepalive().unwrap() > 0);
    (agent.stop)();
    agent.until(|| agent.etcd.api.service.is_ending()).await;
    assert_eq!(keepalive().unwrap(), 0);
    agent.revoke(key.lease).await;
    agent.end().await;
}

/// A client that sends its next keepalive in a second would hear of it in a second.
#[tokio::test]
async fn streams_of_keepalives_are_told_at_once_that_the_agent_ends() {
    let agent = TestAgent::start().await;
    let (held, idle) = (agent.key("a").await, agent.lease().await);
    assert!(agent.txn(take(&held)).await.unwrap().succeeded);
    let (sender, requests) = tokio::sync::mpsc::channel(4);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut answers = agent.etcd().lease_keep_alives(Caller::trusted(), requests);
    for lease in [held.lease, idle] {
        sender.send(Ok(LeaseKeepAliveRequest { id: lease.get() as i64 })).await.unwrap();
        let answer = within(answers.next()).await.unwrap().unwrap();
        assert!(answer.id == lease.get() as i64 && answer.ttl > 0, "{answer:?}");
    }
    (agent.stop)();
    let mut told = Vec::new();
    while told.len() < 2 {
        let answer = within(answers.next()).await.unwrap().unwrap();
        assert_eq!(answer.ttl, 0);
        told.push(answer.id);
    }
    told.sort_unstable();
    let mut both = [held.lease, idle].map(|lease| lease.get() as i64);
    both.sort_unstable();
    assert_eq!(told, both);
    agent.revoke(held.lease).await;
    agent.end().await;
}

/// Clients that count seconds may notice half a second late that theirs are over.
#[tokio::test]
async fn whole_seconds_leave_time_to_notice() {
    let agent = TestAgent::start().await;
    let session = agent.etcd.api.service.shared().ttl();
    let request = LeaseGrantRequest { ttl: 600, id: 0 };
    let granted = agent.etcd().lease_grant(Caller::trusted(), request).await.unwrap();
    let told = Duration::from_secs(granted.ttl as u64);
    assert!(told >= Duration::from_secs(1) && told * 101 / 100 + Duration::from_millis(500) <= session, "{told:?}");
    agent.end().await;
}
