//! Watches of lock keys: a client that waits is told when its predecessor is deleted.
//!
//! Only deletions are told, since a lock's key is written once. A key that is not there counts as deleted at once: it may have been
//! deleted just before the watch began, and a client that waits for that must not wait forever.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::call::Answers;
use super::key::Key;
use super::proto::watch_request::Request;
use super::proto::*;
use super::{Etcd, error};
use crate::account::{Account, Permit};
use crate::http::{Caller, Fault, take_request};
use crate::registry::counts::Gauge;
use crate::shares::Share;
use crate::tokens::Right;

/// How many watches may wait at a time, each with a task: as many as requests may wait for locks.
const WATCHES_MAX: usize = 20_000;
/// How many one connection may have, those included that have told their deletion and were not ended.
const OF_CONNECTION_MAX: usize = 1_000;
/// How many answers may wait to be sent. Watches wait for room; a client that reads nothing is cut off by its connection.
const ANSWERS_MAX: usize = 64;

impl Etcd {
    pub(super) fn watch(
        self: Arc<Self>,
        caller: Caller,
        mut requests: Streaming<WatchRequest>,
    ) -> Answers<WatchResponse> {
        let (answers, stream) = mpsc::channel(ANSWERS_MAX);
        tokio::spawn(async move {
            let mut watches = Watches { etcd: self, caller, answers, all: BTreeMap::new(), next: 0 };
            loop {
                let request = tokio::select! {
                    request = requests.message() => request,
                    () = watches.answers.closed() => return,
                };
                match request {
                    Ok(Some(request)) => watches.handle(request).await,
                    // It may send nothing more, and still listen.
                    Ok(None) => return watches.answers.closed().await,
                    Err(_) => return,
                }
            }
        });
        Answers::new(ReceiverStream::new(stream))
    }
}

/// The watches of one stream. They end with it.
struct Watches {
    etcd: Arc<Etcd>,
    caller: Caller,
    answers: mpsc::Sender<Result<WatchResponse, Status>>,
    all: BTreeMap<i64, OneWatch>,
    next: i64,
}

/// What a watch that waits takes of its owner's share, and of its token's quota.
type Counted = (Share, Option<Permit>);

/// One watch, until it is dropped: then its task ends, if it still has one.
struct OneWatch {
    _ends: oneshot::Sender<()>,
    of_connection: Arc<Gauge>,
}

impl Drop for OneWatch {
    fn drop(&mut self) {
        self.of_connection.leave();
    }
}

impl Watches {
    async fn handle(&mut self, request: WatchRequest) {
        match request.request {
            Some(Request::Create(request)) => self.create(request).await,
            Some(Request::Cancel(WatchCancelRequest { watch_id })) => {
                let watch = self.all.remove(&watch_id);
                if watch.is_some() {
                    self.answer(WatchResponse { watch_id, canceled: true, ..WatchResponse::default() }).await;
                }
            }
            // No watch is behind.
            Some(Request::Progress(_)) => self.answer(WatchResponse { watch_id: -1, ..WatchResponse::default() }).await,
            None => {}
        }
    }

    async fn create(&mut self, request: WatchCreateRequest) {
        let (key, counted, watch, ended) = match self.check(&request).and_then(|key| self.admit(key)) {
            Ok(admitted) => admitted,
            Err(status) => {
                let refused = WatchResponse { watch_id: -1, created: true, canceled: true, ..WatchResponse::default() };
                return self.answer(WatchResponse { cancel_reason: status.message().to_owned(), ..refused }).await;
            }
        };
        let watch_id = if request.watch_id > 0 { request.watch_id } else { self.free_id() };
        self.answer(WatchResponse { watch_id, created: true, ..WatchResponse::default() }).await;
        let tells = !request.filters().any(|filter| filter == WatchFilter::NoDelete);
        let (etcd, answers, bytes) = (Arc::clone(&self.etcd), self.answers.clone(), request.key);
        self.all.insert(watch_id, watch);
        // What has told its deletion stays, like etcd's, until its client ends it, and takes no task.
        let tell = async move {
            let _counted = counted;
            match &key {
                Key::Predecessor(key) => etcd.waiters.wait(key).await,
                Key::Lock(key) => etcd.waiters.gone(key).await,
            }
            if tells {
                let header = etcd.header();
                let mod_revision = header.as_ref().map_or(0, |header| header.revision);
                let kv = Some(KeyValue { key: bytes, mod_revision, ..KeyValue::default() });
                let events = vec![Event { r#type: EventType::Delete.into(), kv, prev_kv: None }];
                let _ = answers.send(Ok(WatchResponse { header, watch_id, events, ..WatchResponse::default() })).await;
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                _ = ended => {}
                () = tell => {}
            }
        });
    }

    /// Counts one more watch.
    fn admit(&self, key: Key) -> Result<(Key, Counted, OneWatch, oneshot::Receiver<()>), Status> {
        let quota = self.caller.account().map(Account::enter_watches).transpose().map_err(Fault::from)?;
        let share = self.etcd.watches.enter(&self.caller.owner(), WATCHES_MAX).ok_or_else(error::too_many)?;
        let of_connection = Arc::clone(self.caller.watches());
        if !of_connection.enter(OF_CONNECTION_MAX) {
            return Err(error::too_many());
        }
        let (ends, ended) = oneshot::channel();
        Ok((key, (share, quota), OneWatch { _ends: ends, of_connection }, ended))
    }

    fn check(&self, request: &WatchCreateRequest) -> Result<Key, Status> {
        if !request.range_end.is_empty() {
            return Err(error::unserved("a watch of several keys"));
        }
        take_request(&self.caller)?;
        let key = Key::parse(&request.key)?;
        let (Key::Lock(lock_key) | Key::Predecessor(lock_key)) = &key;
        let caller = &self.caller;
        caller.needs(Right::Acquire, &lock_key.lock).or_else(|_| caller.needs(Right::Inspect, &lock_key.lock))?;
        if request.watch_id < 0 || self.all.contains_key(&request.watch_id) && request.watch_id != 0 {
            return Err(Status::invalid_argument("mvcc: duplicate watch ID provided on the WatchStream"));
        }
        Ok(key)
    }

    fn free_id(&mut self) -> i64 {
        while self.all.contains_key(&self.next) {
            self.next += 1;
        }
        self.next += 1;
        self.next - 1
    }

    async fn answer(&self, answer: WatchResponse) {
        let _ = self.answers.send(Ok(WatchResponse { header: self.etcd.header(), ..answer })).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::tests::{TestAgent, within};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_has_so_many_watches_and_no_more() {
        let agent = TestAgent::start().await;
        let (caller, etcd) = (Caller::trusted(), agent.etcd());
        let (answers, mut told) = mpsc::channel(2 * OF_CONNECTION_MAX + 10);
        let watches = || Watches {
            etcd: Arc::clone(&etcd),
            caller: caller.clone(),
            answers: answers.clone(),
            all: BTreeMap::new(),
            next: 0,
        };
        // Two streams of one connection. Nobody has the key: each watch tells its deletion at once.
        let (mut one, mut other) = (watches(), watches());
        let request = || WatchCreateRequest { key: b"a/1f".to_vec(), ..WatchCreateRequest::default() };
        for _ in 0..OF_CONNECTION_MAX {
            one.create(request()).await;
        }
        let mut deleted = 0;
        while deleted < OF_CONNECTION_MAX {
            deleted += within(told.recv()).await.unwrap().unwrap().events.len();
        }
        while etcd.watches.get() > 0 {
            tokio::task::yield_now().await;
        }
        other.create(request()).await;
        let refused = within(told.recv()).await.unwrap().unwrap();
        assert!(refused.created && refused.canceled && refused.watch_id == -1, "{refused:?}");
        assert_eq!(refused.cancel_reason, error::too_many().message());
        one.handle(WatchRequest { request: Some(Request::Cancel(WatchCancelRequest { watch_id: 0 })) }).await;
        assert!(within(told.recv()).await.unwrap().unwrap().canceled);
        other.create(request()).await;
        assert!(!within(told.recv()).await.unwrap().unwrap().canceled);
        drop((one, other));
        assert_eq!(caller.watches().get(), 0);
        agent.end().await;
    }
}
