//! What the papers claim, measured now.

use hallpass_core::protocol::Mutation;
use serde::Serialize;

/// One claim and what came of it. The JSON keys are a contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// `RA-14`, or `RA-14/detail`.
    pub id: String,
    /// What the paper says, in a few words.
    pub claim: String,
    /// The paper's value.
    pub expected: String,
    /// The value of a run made now.
    pub measured: String,
    /// They agree.
    pub ok: bool,
}

/// Which claims to measure, and how.
#[derive(Clone, Debug, Default)]
pub struct ClaimsSpec {
    /// Also what takes longer than two minutes.
    pub full: bool,
    /// Only ids that start with this, such as `RA-14`.
    pub only: Option<String>,
    /// A bug to plant, for tests of the checks themselves.
    pub mutation: Option<Mutation>,
}

/// How far the measuring is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Claims measured.
    pub done: usize,
    /// Claims in all.
    pub total: usize,
    /// The claim that was just begun or finished, such as `RA-14`.
    pub current: String,
}

/// Measures the claims on all cores; rows come in the order of their ids. `watch` is called from several threads.
pub fn run(_spec: &ClaimsSpec, _watch: impl Fn(Progress) + Sync) -> Vec<Row> {
    Vec::new()
}
