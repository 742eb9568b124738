//! The messages of etcd's API that are served, written by hand after its public definitions (`rpc.proto`, `kv.proto`, `v3lock.proto`), so
//! that the build needs no protoc. Field numbers are etcd's; the suite in etcd-tests/ talks with etcd's own clients through them.
//!
//! Those of the JSON gateway have serde's derives too: see [`json`](super::json) for how numbers and bytes are written.

mod keys;
mod locks;
mod server;
mod watches;

use prost::Message;
use serde::Serialize;

pub use self::keys::*;
pub use self::locks::*;
pub use self::server::*;
pub use self::watches::*;
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
