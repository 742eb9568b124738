//! The part of KV that locks need: transactions, ranges and deletions of lock keys. Everything is checked before anything is done.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Status;

use super::key::{Key, LockKey, lock_of_prefix};
use super::lease::lease_id;
use super::proto::compare::With;
use super::proto::request_op::Request;
use super::proto::response_op::Response;
use super::proto::*;
use super::waiters::Seen;
use super::{Etcd, error};
use crate::http::Caller;
use crate::tokens::Right;

/// How many parts a transaction may have: etcd's limit.
const PARTS_MAX: usize = 128;

/// The key that `etcdctl endpoint health` reads.
const HEALTH_KEY: &[u8] = b"health";

/// A part of a transaction, checked.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Read(Ask),
    /// Waits for a lock.
    Make(LockKey),
    Delete(LockKey),
}

/// Which keys to read.
#[derive(Clone, Debug, PartialEq)]
struct Ask {
    which: Which,
    /// The newest first.
    newest: bool,
    limit: usize,
    count_only: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Which {
    One(Key),
    /// All keys of a lock, the holder's first.
    All(Arc<str>),
    /// The last key of a lock with at most this create revision.
    LastBefore(Arc<str>, i64),
}

/// A condition, checked.
struct Condition {
    key: LockKey,
    result: CompareResult,
    with: With,
}

/// What a transaction has seen. It sees the same until it ends.
#[derive(Default)]
struct Sight {
    seen: BTreeMap<LockKey, Option<Seen>>,
    /// The newest revision among them.
    revision: Option<i64>,
}

impl Sight {
    fn note(&mut self, key: &LockKey, seen: Option<Seen>) -> Option<Seen> {
        self.revision = self.revision.max(seen.map(Seen::now));
        self.seen.insert(key.clone(), seen);
        seen
    }

    /// The client's own key of this lock, if the transaction has seen it.
    fn waiter_at(&self, lock: &str) -> Option<(&LockKey, Seen)> {
        let of_lock = self.seen.iter().filter(|(key, _)| *key.lock == *lock);
        of_lock.filter_map(|(key, seen)| seen.map(|seen| (key, seen))).next()
    }
}

impl Etcd {
    pub(super) async fn range(self: Arc<Self>, caller: Caller, request: RangeRequest) -> Result<RangeResponse, Status> {
        if request.key == HEALTH_KEY && request.range_end.is_empty() {
            return self.health(&caller);
        }
        let ask = Ask::check(&request)?;
        self.read(&caller, &ask, &mut Sight::default())
    }

    /// `etcdctl endpoint health` reads a key that nobody has: a server that can tell so is well.
    fn health(&self, caller: &Caller) -> Result<RangeResponse, Status> {
        caller.needs_some(Right::Inspect).or_else(|_| caller.needs_some(Right::Acquire))?;
        if !self.api.service.shared().node().status().complete {
            return Err(error::no_leader());
        }
        Ok(RangeResponse { header: self.header(), more: false, kvs: Vec::new(), count: 0 })
    }

    pub(super) async fn delete_range(
        self: Arc<Self>,
        caller: Caller,
        request: DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, Status> {
        let key = check_delete(&request)?;
        let deleted = self.delete_key(&caller, &key, None).await?;
        Ok(DeleteRangeResponse { header: self.header(), deleted: i64::from(deleted), prev_kvs: Vec::new() })
    }

    /// Does the one or the other. What it makes is removed again if the future is dropped while its lock is waited for.
    pub(super) async fn txn(self: Arc<Self>, caller: Caller, request: TxnRequest) -> Result<TxnResponse, Status> {
        let TxnRequest { compare, success, failure } = request;
        if compare.len().max(success.len()).max(failure.len()) > PARTS_MAX {
            return Err(Status::invalid_argument("etcdserver: too many operations in txn request"));
        }
        let conditions: Vec<_> = compare.into_iter().map(Condition::check).collect::<Result<_, _>>()?;
        let check = |parts: Vec<RequestOp>| parts.into_iter().map(Part::check).collect::<Result<Vec<_>, Status>>();
        let (success, failure) = (check(success)?, check(failure)?);
        let (mut sight, mut succeeded) = (Sight::default(), true);
        for condition in &conditions {
            self.may_see(&caller, &condition.key)?;
            let seen = sight.note(&condition.key, self.waiters.promise(&condition.key)?);
            succeeded &= condition.holds(seen);
        }
        let mut responses = Vec::new();
        for part in if succeeded { &success } else { &failure } {
            responses.push(ResponseOp { response: Some(self.perform(&caller, part, &mut sight).await?) });
        }
        let header = sight.revision.map_or_else(|| self.header(), |revision| self.header_at(revision));
        Ok(TxnResponse { header, succeeded, responses })
    }

    async fn perform(&self, caller: &Caller, part: &Part, sight: &mut Sight) -> Result<Response, Status> {
        Ok(match part {
            Part::Read(ask) => Response::Range(self.read(caller, ask, sight)?),
            Part::Make(key) => {
                self.may_see(caller, key)?;
                caller.needs_lease(&self.api.service, key.lease)?;
                let seen = self.waiters.make(key).await?;
                sight.note(key, Some(seen));
                Response::Put(PutResponse { header: self.header_at(seen.now()), prev_kv: None })
            }
            Part::Delete(key) => {
                // Only what the conditions were about, if they were about it.
                let before = sight.seen.get(key).copied();
                let deleted = match before {
                    Some(None) => false,
                    seen => self.delete_key(caller, key, seen.flatten()).await?,
                };
                sight.seen.insert(key.clone(), None);
                let (header, prev_kvs) = (self.header(), Vec::new());
                Response::DeleteRange(DeleteRangeResponse { header, deleted: i64::from(deleted), prev_kvs })
            }
        })
    }

    fn read(&self, caller: &Caller, ask: &Ask, sight: &mut Sight) -> Result<RangeResponse, Status> {
        let mut kvs = match &ask.which {
            Which::One(key) => self.read_one(caller, key, sight)?.into_iter().collect(),
            Which::LastBefore(lock, revision) => self.read_last(caller, lock, *revision, sight)?.into_iter().collect(),
            Which::All(lock) => match sight.waiter_at(lock) {
                // The first key: the client's own, or the one that it waits for.
                Some((key, seen)) => vec![seen.predecessor(key).unwrap_or_else(|| seen.key_value(key))],
                None => self.read_all(caller, lock)?,
            },
        };
        if ask.newest {
            kvs.reverse();
        }
        let count = kvs.len() as i64;
        kvs.truncate(if ask.count_only { 0 } else { ask.limit });
        let header = sight.revision.map_or_else(|| self.header(), |revision| self.header_at(revision));
        Ok(RangeResponse { header, more: !ask.count_only && (kvs.len() as i64) < count, kvs, count })
    }

    fn read_one(&self, caller: &Caller, key: &Key, sight: &mut Sight) -> Result<Option<KeyValue>, Status> {
        let (Key::Lock(lock_key) | Key::Predecessor(lock_key)) = key;
        self.may_see(caller, lock_key)?;
        let seen = match sight.seen.get(lock_key) {
            Some(seen) => *seen,
            None => {
                let seen = self.waiters.promise(lock_key)?;
                sight.note(lock_key, seen)
            }
        };
        Ok(seen.and_then(|seen| match key {
            Key::Lock(_) => Some(seen.key_value(lock_key)),
            Key::Predecessor(_) => seen.predecessor(lock_key),
        }))
    }

    /// The key before the waiter that was told the next revision: one key until it is granted, then none. A waiter that is not
    /// known any more has lost its lease, and is not to take an empty answer for its turn.
    fn read_last(
        &self,
        caller: &Caller,
        lock: &str,
        revision: i64,
        sight: &mut Sight,
    ) -> Result<Option<KeyValue>, Status> {
        let key = self.waiters.of_ticket(lock, revision.saturating_add(1)).ok_or_else(error::lease_not_found)?;
        self.may_see(caller, &key)?;
        let seen = self.waiters.promise(&key)?.ok_or_else(error::lease_not_found)?;
        sight.note(&key, Some(seen));
        Ok(seen.predecessor(&key))
    }

    /// The keys of this agent's clients for a lock.
    fn read_all(&self, caller: &Caller, lock: &Arc<str>) -> Result<Vec<KeyValue>, Status> {
        caller.needs(Right::Inspect, lock)?;
        let service = &self.api.service;
        let holds = |lease: &_| matches!(service.confirm_held(*lease, lock), Ok(Some(_)));
        let holder = service.leases().into_iter().find(holds).map(|lease| LockKey { lock: Arc::clone(lock), lease });
        let mut kvs = Vec::new();
        for key in holder.into_iter().chain(self.waiters.waiting_for(lock)) {
            let Some(seen) = self.waiters.promise(&key)? else { continue };
            // The first of those who wait here waits for somebody elsewhere, if nobody holds it here.
            kvs.extend(seen.predecessor(&key).filter(|_| kvs.is_empty()));
            kvs.push(seen.key_value(&key));
        }
        Ok(kvs)
    }

    /// The right to acquire a lock or to inspect it is enough to look at its keys.
    fn may_see(&self, caller: &Caller, key: &LockKey) -> Result<(), Status> {
        caller.needs(Right::Acquire, &key.lock).or_else(|_| caller.needs(Right::Inspect, &key.lock))?;
        Ok(())
    }
}

/// For the fuzz targets.
pub(super) fn is_served(request: &RangeRequest) -> bool {
    Ask::check(request).is_ok()
}

/// For the fuzz targets.
pub(super) fn is_served_txn(request: TxnRequest) -> bool {
    let parts = request.success.into_iter().chain(request.failure).map(Part::check);
    request.compare.into_iter().map(Condition::check).all(|condition| condition.is_ok())
        && parts.into_iter().all(|part| part.is_ok())
}

impl Part {
    fn check(part: RequestOp) -> Result<Self, Status> {
        match part.request {
            Some(Request::Range(request)) => Ask::check(&request).map(Self::Read),
            Some(Request::Put(request)) => check_put(&request).map(Self::Make),
            Some(Request::DeleteRange(request)) => check_delete(&request).map(Self::Delete),
            Some(Request::Txn(_)) => Err(error::unserved("a transaction within a transaction")),
            None => Err(error::no_key()),
        }
    }
}

fn check_put(request: &PutRequest) -> Result<LockKey, Status> {
    let key = LockKey::parse(&request.key)?;
    if lease_id(request.lease) != Some(key.lease) {
        return Err(error::invalid(format!(
            "the key of a lock ends with its lease, but {key} was given another lease, or none"
        )));
    }
    if !request.value.is_empty() {
        return Err(error::invalid("the key of a lock has no value; nothing else can be stored here"));
    }
    if request.prev_kv || request.ignore_value || request.ignore_lease {
        return Err(error::unserved("an option of Put"));
    }
    Ok(key)
}

fn check_delete(request: &DeleteRangeRequest) -> Result<LockKey, Status> {
    if !request.range_end.is_empty() {
        return Err(error::unserved("the deletion of several keys at once"));
    }
    LockKey::parse(&request.key)
}

impl Ask {
    fn check(request: &RangeRequest) -> Result<Self, Status> {
        if request.revision != 0 {
            return Err(error::unserved("reading the past"));
        }
        if request.min_mod_revision != 0 || request.max_mod_revision != 0 || request.min_create_revision != 0 {
            return Err(error::unserved("a range by these revisions"));
        }
        let newest = request.sort_order() == SortOrder::Descend;
        let which = if request.range_end.is_empty() {
            Which::One(Key::parse(&request.key)?)
        } else {
            let lock = lock_of_prefix(&request.key, &request.range_end)?;
            match request.max_create_revision {
                0 => Which::All(lock),
                last if newest && request.limit == 1 && request.sort_target() == SortTarget::Create => {
                    Which::LastBefore(lock, last)
                }
                _ => return Err(error::unserved("a range by create revision that is not that of the last key")),
            }
        };
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        Ok(Self { which, newest, limit, count_only: request.count_only })
    }
}

impl Condition {
    fn check(compare: Compare) -> Result<Self, Status> {
        let key = LockKey::parse(&compare.key)?;
        if !compare.range_end.is_empty() {
            return Err(error::unserved("a condition about several keys"));
        }
        let result = CompareResult::try_from(compare.result);
        let result = result.map_err(|_| error::invalid("the condition of the transaction is not understood"))?;
        let target = CompareTarget::try_from(compare.target);
        let with = match (target, compare.with) {
            (Ok(CompareTarget::Version), with @ (None | Some(With::Version(_)))) => with.unwrap_or(With::Version(0)),
            (Ok(CompareTarget::Create), with @ (None | Some(With::CreateRevision(_)))) => {
                with.unwrap_or(With::CreateRevision(0))
            }
            (Ok(CompareTarget::Mod), with @ (None | Some(With::ModRevision(_)))) => {
                with.unwrap_or(With::ModRevision(0))
            }
            (Ok(CompareTarget::Lease), with @ (None | Some(With::Lease(_)))) => with.unwrap_or(With::Lease(0)),
            (Ok(CompareTarget::Value), _) => return Err(error::unserved("a condition about a value")),
            _ => return Err(error::invalid("the condition of the transaction is not understood")),
        };
        Ok(Self { key, result, with })
    }

    /// A key that is not there has only zeros.
    fn holds(&self, seen: Option<Seen>) -> bool {
        let kv = seen.map(|seen| seen.key_value(&self.key)).unwrap_or_default();
        let order = match &self.with {
            With::Version(version) => kv.version.cmp(version),
            With::CreateRevision(revision) => kv.create_revision.cmp(revision),
            With::ModRevision(revision) => kv.mod_revision.cmp(revision),
            With::Lease(lease) => kv.lease.cmp(lease),
            With::Value(value) => kv.value.cmp(value),
        };
        match self.result {
            CompareResult::Equal => order == Ordering::Equal,
            CompareResult::Greater => order == Ordering::Greater,
            CompareResult::Less => order == Ordering::Less,
            CompareResult::NotEqual => order != Ordering::Equal,
        }
    }
}
