//! Watches of lock keys: a client that waits is told when its predecessor is deleted.
//!
//! Only deletions are told, since a lock's key is written once. A key that is not there counts as deleted at once: it may have been
//! deleted just before the watch began, and a client that waits for that must not wait forever.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::call::Answers;
use super::key::Key;
use super::proto::watch_request::Request;
use super::proto::*;
use super::{Etcd, error};
use crate::http::{Caller, take_request};
use crate::tokens::Right;

/// How many keys one stream may watch: as many as one connection may have requests.
const WATCHES_MAX: usize = 10_000;
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
            let mut watches = Watches { etcd: self, caller, answers, tasks: BTreeMap::new(), next: 0 };
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
    tasks: BTreeMap<i64, AbortHandle>,
    next: i64,
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.tasks.values().for_each(AbortHandle::abort);
    }
}

impl Watches {
    async fn handle(&mut self, request: WatchRequest) {
        match request.request {
            Some(Request::Create(request)) => self.create(request).await,
            Some(Request::Cancel(WatchCancelRequest { watch_id })) => {
                if let Some(task) = self.tasks.remove(&watch_id) {
                    task.abort();
                    self.answer(WatchResponse { watch_id, canceled: true, ..WatchResponse::default() }).await;
                }
            }
            // No watch is behind.
            Some(Request::Progress(_)) => self.answer(WatchResponse { watch_id: -1, ..WatchResponse::default() }).await,
            None => {}
        }
    }

    async fn create(&mut self, request: WatchCreateRequest) {
        let key = match self.check(&request) {
            Ok(key) => key,
            Err(status) => {
                let refused = WatchResponse { watch_id: -1, created: true, canceled: true, ..WatchResponse::default() };
                return self.answer(WatchResponse { cancel_reason: status.message().to_owned(), ..refused }).await;
            }
        };
        let watch_id = if request.watch_id > 0 { request.watch_id } else { self.free_id() };
        self.answer(WatchResponse { watch_id, created: true, ..WatchResponse::default() }).await;
        let tells = !request.filters().any(|filter| filter == WatchFilter::NoDelete);
        let (etcd, answers, bytes) = (Arc::clone(&self.etcd), self.answers.clone(), request.key);
        let task = tokio::spawn(async move {
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
            // It stays, like etcd's, until its client ends it.
            std::future::pending::<()>().await;
        });
        self.tasks.insert(watch_id, task.abort_handle());
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
        if self.tasks.len() >= WATCHES_MAX {
            return Err(error::too_many());
        }
        if request.watch_id < 0 || self.tasks.contains_key(&request.watch_id) && request.watch_id != 0 {
            return Err(Status::invalid_argument("mvcc: duplicate watch ID provided on the WatchStream"));
        }
        Ok(key)
    }

    fn free_id(&mut self) -> i64 {
        while self.tasks.contains_key(&self.next) {
            self.next += 1;
        }
        self.next += 1;
        self.next - 1
    }

    async fn answer(&self, answer: WatchResponse) {
        let _ = self.answers.send(Ok(WatchResponse { header: self.etcd.header(), ..answer })).await;
    }
}
