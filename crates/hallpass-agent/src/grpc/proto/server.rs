//! What clients ask about the server.

use prost::Message;
use serde::{Deserialize, Serialize};

use super::ResponseHeader;
use crate::grpc::json;

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
