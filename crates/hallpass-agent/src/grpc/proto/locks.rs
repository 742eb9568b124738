//! Locks and leases.

use prost::Message;
use serde::{Deserialize, Serialize};

use super::ResponseHeader;
use crate::grpc::json;

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

/// How long the lease lasts; 0 if it has ended.
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
