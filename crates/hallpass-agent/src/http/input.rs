//! Reads and checks what requests carry. Each mistake in it is a [`Fault`].

use std::convert::Infallible;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use hallpass::KeyDigest;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Api, BODY_BYTES_MAX, Caller, Fault, body};
use crate::service::LeaseId;

/// The longest name of a lock, in bytes.
const NAME_MAX: usize = 255;

/// The names in a path, percent-decoded.
async fn names(parts: &mut Parts, api: &Api) -> Result<Vec<String>, Fault> {
    let mut encoded = parts.uri.path().split('%').skip(1);
    if !encoded.all(|rest| rest.get(..2).is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))) {
        return Err(Fault::invalid("a percent sign in a name is written %25"));
    }
    let path = Path::<Vec<String>>::from_request_parts(parts, api).await;
    path.map(|Path(names)| names).map_err(|error| Fault::invalid(format!("the path is not understood: {error}")))
}

/// The name of a lock: the last name of the path.
pub(super) struct LockName(pub(super) String);

impl FromRequestParts<Api> for LockName {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Fault> {
        let name = names(parts, api).await?.pop().unwrap_or_default();
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Fault::invalid(format!("a lock's name has 1 to {NAME_MAX} bytes")));
        }
        Ok(Self(name))
    }
}

/// The id of a lease: the first name of the path.
pub(super) struct Lease(pub(super) LeaseId);

impl FromRequestParts<Api> for Lease {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Fault> {
        let id = names(parts, api).await?.into_iter().next().unwrap_or_default();
        lease_id(&id).map(Self)
    }
}

/// Reads the id of a lease, as it was answered.
pub(super) fn lease_id(text: &str) -> Result<LeaseId, Fault> {
    let shown: String = text.chars().take(40).collect();
    LeaseId::parse(text).ok_or_else(|| {
        Fault::invalid(format!("'{shown}' is not a lease; give it as it was answered: lower-case hexadecimal"))
    })
}

/// The id or name of a member.
pub(super) struct MemberName(pub(super) String);

impl FromRequestParts<Api> for MemberName {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Fault> {
        names(parts, api).await.map(|mut names| Self(names.pop().unwrap_or_default()))
    }
}

/// A key: the last name of the path.
pub(super) struct Key(pub(super) KeyDigest);

impl FromRequestParts<Api> for Key {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Fault> {
        let text = names(parts, api).await?.pop().unwrap_or_default();
        let shown: String = text.chars().take(80).collect();
        text.parse().map(Self).map_err(|why| Fault::invalid(format!("'{shown}' is not a key: {why}")))
    }
}

/// The parameters after the question mark.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Params<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Fault> {
        let query = Query::<T>::from_request_parts(parts, api).await;
        query.map(|Query(params)| Self(params)).map_err(|error| {
            Fault::invalid(format!("what follows the question mark is not understood: {}", error.body_text()))
        })
    }
}

/// A body of JSON that is not read yet: rights are checked before.
pub(super) struct Unread<T> {
    body: Body,
    kind: PhantomData<fn() -> T>,
}

impl<T> FromRequest<Api> for Unread<T> {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &Api) -> Result<Self, Infallible> {
        Ok(Self { body: request.into_body(), kind: PhantomData })
    }
}

impl<T: DeserializeOwned> Unread<T> {
    /// Reads it. An empty body is `{}`.
    pub(super) async fn read(self, caller: &Caller) -> Result<T, Fault> {
        let body = body::read(self.body, BODY_BYTES_MAX, caller.bodies()).await?;
        let text: &[u8] = match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => b"{}",
            Some(b'{') => &body,
            Some(_) => return Err(Fault::invalid("the body is not a JSON object such as {\"timeout_ms\": 1000}")),
        };
        let read = serde_json::from_slice(text);
        read.map_err(|error| Fault::invalid(format!("the body is not understood: {error}")))
    }
}

/// A body with a limit alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limit {
    timeout_ms: Option<u64>,
}

impl Limit {
    pub(super) fn get(&self) -> Duration {
        limit(self.timeout_ms)
    }
}

/// How long the group has to do what it is asked for: ten seconds unless the client says otherwise.
fn limit(timeout_ms: Option<u64>) -> Duration {
    timeout_ms.map_or(Duration::from_secs(10), Duration::from_millis)
}
