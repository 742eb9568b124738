//! The messages of etcd's API that are served, written by hand after its public definitions (`rpc.proto`, `kv.proto`, `v3lock.proto`), so
//! that the build needs no protoc. Field numbers are etcd's; the suite in etcd-tests/ talks with etcd's own clients through them.
//!
//! Those of the JSON gateway have serde's derives too: see [`json`](super::json) for how numbers and bytes are written.

use prost::{Enumeration, Message, Oneof};
use serde::{Deserialize, Serialize};

use super::json;

/// In every answer. The revision is the fence where a lock was granted.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    #[serde(serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub cluster_id: u64,
    #[prost(uint64, tag = "2")]
    #[serde(serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    #[serde(serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub revision: i64,
    #[prost(uint64, tag = "4")]
    #[serde(serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub raft_term: u64,
}

// ---- v3lockpb ----

/// Waits for a lock.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "json::read_bytes")]
    pub name: Vec<u8>,
    #[prost(int64, tag = "2")]
    #[serde(deserialize_with = "json::read_number")]
    pub lease: i64,
}

/// The lock is held for as long as the key exists.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct LockResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(serialize_with = "json::write_bytes", skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<u8>,
}

/// Deletes a key that [`LockResponse`] named.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "json::read_bytes")]
    pub key: Vec<u8>,
}

/// The key is deleted.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct UnlockResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
}

// ---- leases ----

/// Makes a lease; without an id it gets one.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    #[serde(rename = "TTL", deserialize_with = "json::read_number")]
    pub ttl: i64,
    #[prost(int64, tag = "2")]
    #[serde(rename = "ID", deserialize_with = "json::read_number")]
    pub id: i64,
}

/// A lease was made.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    #[serde(rename = "ID", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub id: i64,
    #[prost(int64, tag = "3")]
    #[serde(rename = "TTL", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub ttl: i64,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// Asks for a token by name and password.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

/// The token to send with every request.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub token: String,
}

/// Ends a lease, and deletes its keys.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    #[serde(rename = "ID", deserialize_with = "json::read_number")]
    pub id: i64,
}

/// The lease has ended.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct LeaseRevokeResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
}

/// Keeps a lease alive.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    #[serde(rename = "ID", deserialize_with = "json::read_number")]
    pub id: i64,
}

/// The lease lasts for so long; 0 if it has ended.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    #[serde(rename = "ID", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub id: i64,
    #[prost(int64, tag = "3")]
    #[serde(rename = "TTL", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub ttl: i64,
}

/// Asks about a lease.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    #[serde(rename = "ID", deserialize_with = "json::read_number")]
    pub id: i64,
    #[prost(bool, tag = "2")]
    pub keys: bool,
}

/// What is known of a lease; -1 if it has ended.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct LeaseTimeToLiveResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    #[serde(rename = "ID", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub id: i64,
    #[prost(int64, tag = "3")]
    #[serde(rename = "TTL", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub ttl: i64,
    #[prost(int64, tag = "4")]
    #[serde(rename = "grantedTTL", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub granted_ttl: i64,
    #[prost(bytes = "vec", repeated, tag = "5")]
    #[serde(serialize_with = "json::write_list", skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Vec<u8>>,
}

/// Asks for all leases.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct LeaseLeasesRequest {}

/// One lease.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct LeaseStatus {
    #[prost(int64, tag = "1")]
    #[serde(rename = "ID", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub id: i64,
}

/// All leases of this agent.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct LeaseLeasesResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseStatus>,
}

// ---- keys ----

/// A key, its lease, and when it was made.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// Reads a key, or all keys from `key` to `range_end`.
#[derive(Clone, PartialEq, Message)]
pub struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    #[prost(int64, tag = "4")]
    pub revision: i64,
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub sort_order: i32,
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub sort_target: i32,
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    #[prost(bool, tag = "9")]
    pub count_only: bool,
    #[prost(int64, tag = "10")]
    pub min_mod_revision: i64,
    #[prost(int64, tag = "11")]
    pub max_mod_revision: i64,
    #[prost(int64, tag = "12")]
    pub min_create_revision: i64,
    #[prost(int64, tag = "13")]
    pub max_create_revision: i64,
}

/// How an answer is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SortOrder {
    None = 0,
    Ascend = 1,
    Descend = 2,
}

/// By what an answer is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SortTarget {
    Key = 0,
    Version = 1,
    Create = 2,
    Mod = 3,
    Value = 4,
}

/// The keys that were found.
#[derive(Clone, PartialEq, Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// Writes a key.
#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub lease: i64,
    #[prost(bool, tag = "4")]
    pub prev_kv: bool,
    #[prost(bool, tag = "5")]
    pub ignore_value: bool,
    #[prost(bool, tag = "6")]
    pub ignore_lease: bool,
}

/// The key was written.
#[derive(Clone, PartialEq, Message)]
pub struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, optional, tag = "2")]
    pub prev_kv: Option<KeyValue>,
}

/// Deletes a key, or all keys from `key` to `range_end`.
#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub prev_kv: bool,
}

/// So many keys were deleted.
#[derive(Clone, PartialEq, Message)]
pub struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub deleted: i64,
    #[prost(message, repeated, tag = "3")]
    pub prev_kvs: Vec<KeyValue>,
}

/// A part of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    #[prost(oneof = "request_op::Request", tags = "1, 2, 3, 4")]
    pub request: Option<request_op::Request>,
}

/// What [`RequestOp`] can be.
pub mod request_op {
    use super::*;

    /// A request.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Request {
        #[prost(message, tag = "1")]
        Range(RangeRequest),
        #[prost(message, tag = "2")]
        Put(PutRequest),
        #[prost(message, tag = "3")]
        DeleteRange(DeleteRangeRequest),
        /// A transaction in a transaction: it is not looked into.
        #[prost(message, tag = "4")]
        Txn(Opaque),
    }
}

/// A message whose content does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Opaque {}

/// The answer to a part of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct ResponseOp {
    #[prost(oneof = "response_op::Response", tags = "1, 2, 3")]
    pub response: Option<response_op::Response>,
}

/// What [`ResponseOp`] can be.
pub mod response_op {
    use super::*;

    /// An answer.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Response {
        #[prost(message, tag = "1")]
        Range(RangeResponse),
        #[prost(message, tag = "2")]
        Put(PutResponse),
        #[prost(message, tag = "3")]
        DeleteRange(DeleteRangeResponse),
    }
}

/// A condition of a transaction.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    #[prost(oneof = "compare::With", tags = "4, 5, 6, 7, 8")]
    pub with: Option<compare::With>,
    #[prost(bytes = "vec", tag = "64")]
    pub range_end: Vec<u8>,
}

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum CompareResult {
    Equal = 0,
    Greater = 1,
    Less = 2,
    NotEqual = 3,
}

/// What to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
    Value = 3,
    Lease = 4,
}

/// What [`Compare`] compares with.
pub mod compare {
    use super::*;

    /// A value.
    #[derive(Clone, PartialEq, Eq, Oneof)]
    pub enum With {
        #[prost(int64, tag = "4")]
        Version(i64),
        #[prost(int64, tag = "5")]
        CreateRevision(i64),
        #[prost(int64, tag = "6")]
        ModRevision(i64),
        #[prost(bytes = "vec", tag = "7")]
        Value(Vec<u8>),
        #[prost(int64, tag = "8")]
        Lease(i64),
    }
}

/// Does the one or the other, as the conditions are.
#[derive(Clone, PartialEq, Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// What was done.
#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

// ---- watches ----

/// Begins or ends a watch.
#[derive(Clone, PartialEq, Message)]
pub struct WatchRequest {
    #[prost(oneof = "watch_request::Request", tags = "1, 2, 3")]
    pub request: Option<watch_request::Request>,
}

/// What [`WatchRequest`] can be.
pub mod watch_request {
    use super::*;

    /// A request.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Request {
        #[prost(message, tag = "1")]
        Create(WatchCreateRequest),
        #[prost(message, tag = "2")]
        Cancel(WatchCancelRequest),
        #[prost(message, tag = "3")]
        Progress(Opaque),
    }
}

/// Watches a key, or all keys from `key` to `range_end`.
#[derive(Clone, PartialEq, Message)]
pub struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    #[prost(enumeration = "WatchFilter", repeated, tag = "5")]
    pub filters: Vec<i32>,
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
    #[prost(int64, tag = "7")]
    pub watch_id: i64,
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

/// What is not to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum WatchFilter {
    NoPut = 0,
    NoDelete = 1,
}

/// Ends a watch.
#[derive(Clone, PartialEq, Message)]
pub struct WatchCancelRequest {
    #[prost(int64, tag = "1")]
    pub watch_id: i64,
}

/// What has happened.
#[derive(Clone, PartialEq, Message)]
pub struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub watch_id: i64,
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// A key was written or deleted.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(enumeration = "EventType", tag = "1")]
    pub r#type: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
    #[prost(message, optional, tag = "3")]
    pub prev_kv: Option<KeyValue>,
}

/// What has happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum EventType {
    Put = 0,
    Delete = 1,
}

// ---- the server ----

/// Asks a member how it is.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct StatusRequest {}

/// How a member is.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[prost(int64, tag = "3")]
    #[serde(rename = "dbSize", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub db_size: i64,
    #[prost(uint64, tag = "4")]
    #[serde(serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub leader: u64,
    #[prost(uint64, tag = "5")]
    #[serde(rename = "raftIndex", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub raft_index: u64,
    #[prost(uint64, tag = "6")]
    #[serde(rename = "raftTerm", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub raft_term: u64,
    #[prost(uint64, tag = "7")]
    #[serde(
        rename = "raftAppliedIndex",
        serialize_with = "json::write_number",
        skip_serializing_if = "json::is_default"
    )]
    pub raft_applied_index: u64,
    #[prost(string, repeated, tag = "8")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    #[prost(int64, tag = "9")]
    #[serde(rename = "dbSizeInUse", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub db_size_in_use: i64,
    #[prost(bool, tag = "10")]
    #[serde(rename = "isLearner", skip_serializing_if = "json::is_default")]
    pub is_learner: bool,
}

/// Asks who is in the group.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub struct MemberListRequest {
    #[prost(bool, tag = "1")]
    pub linearizable: bool,
}

/// One member.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Member {
    #[prost(uint64, tag = "1")]
    #[serde(rename = "ID", serialize_with = "json::write_number", skip_serializing_if = "json::is_default")]
    pub id: u64,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[prost(string, repeated, tag = "3")]
    #[serde(rename = "peerURLs", skip_serializing_if = "Vec::is_empty")]
    pub peer_urls: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    #[serde(rename = "clientURLs", skip_serializing_if = "Vec::is_empty")]
    pub client_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    #[serde(rename = "isLearner", skip_serializing_if = "json::is_default")]
    pub is_learner: bool,
}

/// Who is in the group.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct MemberListResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}
