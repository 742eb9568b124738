use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::Frame;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::answer::typed;
use super::input::Params;
use super::{Api, Caller, Fault, Traffic};
use crate::account::{Account, Permit};
use crate::registry::{Event, EventKind};
use crate::shares::Share;
use crate::tokens::Right;

/// How many may listen at a time: each takes a task.
const STREAMS_MAX: usize = 5_000;
/// How much of a stream may be ready and not yet taken. A slower client misses events, and is told how many.
const READY_MAX: usize = 64;
/// How often something is sent at least, so that both sides notice when the other is gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    /// Only events of locks with this prefix, and those of no lock.
    #[serde(default)]
    prefix: String,
    /// Rare events of the past first.
    #[serde(default)]
    recent: bool,
    /// No grants and releases.
    #[serde(default)]
    rare: bool,
}

pub(super) async fn events(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<Query>,
) -> Result<Response, Fault> {
    caller.needs_some(Right::Inspect)?;
    let (sender, stream) = Stream::open(&api.traffic, &caller)?;
    tokio::spawn(feed(api, caller, query, sender));
    Ok(typed("text/event-stream", Body::new(stream)))
}

/// Writes events into a stream until nobody reads it any more, or the agent ends.
async fn feed(api: Api, caller: Caller, query: Query, sender: mpsc::Sender<Bytes>) {
    let (past, mut following) = api.service.subscribe();
    // The sender of events goes with the agent.
    drop(api);
    let wanted = |event: &Event| {
        let is_frequent = matches!(event.event, EventKind::Granted | EventKind::Released);
        let of_lock = |lock: &String| lock.starts_with(&query.prefix) && caller.may(Right::Inspect, lock);
        let is_visible = match (&event.lock, &event.lease) {
            (Some(lock), _) => of_lock(lock),
            (None, Some(_)) => event.owner.as_ref().is_some_and(|owner| caller.lease_use(owner).is_some()),
            (None, None) => true,
        };
        !(query.rare && is_frequent) && is_visible
    };
    let first = past.iter().filter(|event| query.recent && wanted(event)).map(|event| text_of(event));
    let first = first.fold(b": hallpass\n\n".to_vec(), |all, event| [all, event].concat());
    if sender.send(Bytes::from(first)).await.is_err() {
        return;
    }
    loop {
        let text = tokio::select! {
            event = following.recv() => match event {
                Ok(event) if wanted(&event) => text_of(&event),
                Ok(_) => continue,
                Err(RecvError::Lagged(missed)) => format!("event: missed\ndata: {{\"missed\":{missed}}}\n\n").into_bytes(),
                Err(RecvError::Closed) => return,
            },
            () = tokio::time::sleep(SIGN_OF_LIFE) => b": \n\n".to_vec(),
            () = sender.closed() => return,
        };
        // Waits for a slow reader: what happens meanwhile is kept for a while, then missed. One that does not read at all is cut off.
        if sender.send(Bytes::from(text)).await.is_err() {
            return;
        }
    }
}

pub(super) fn text_of(event: &Event) -> Vec<u8> {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("id: {}\nevent: {}\ndata: {data}\n\n", event.id, event.event.name()).into_bytes()
}

/// A body that is never complete. Its client counts as one that listens until it is dropped.
pub(super) struct Stream {
    ready: mpsc::Receiver<Bytes>,
    _share: Share,
    _quota: Option<Permit>,
}

impl Stream {
    /// Counts one more client that listens. What is sent becomes its body.
    pub(super) fn open(traffic: &Traffic, caller: &Caller) -> Result<(mpsc::Sender<Bytes>, Self), Fault> {
        let quota = caller.account().map(Account::enter_watches).transpose()?;
        let share = traffic.streams.enter(&caller.owner(), STREAMS_MAX);
        let share = share.ok_or_else(|| {
            Fault::new(StatusCode::TOO_MANY_REQUESTS, "too many clients listen already; close a stream of events")
        })?;
        let (sender, ready) = mpsc::channel(READY_MAX);
        Ok((sender, Self { ready, _share: share, _quota: quota }))
    }
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.ready.poll_recv(cx).map(|text| text.map(|text| Ok(Frame::data(text))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;

    #[test]
    fn the_streams_of_one_client_leave_room_for_those_of_another() {
        let traffic = Traffic::default();
        let open = |user: u32| Stream::open(&traffic, &Caller::trusted_as(Owner::User(user)));
        let (one, other) = (1_900_777_001, 1_900_777_002);
        let ones: Vec<_> = std::iter::from_fn(|| open(one).ok()).collect();
        assert_eq!(ones.len(), STREAMS_MAX / 2);
        assert_eq!(open(one).map(|_| ()).unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        let others = open(other).expect("there is room for others");
        assert_eq!(traffic.streams.get(), STREAMS_MAX / 2 + 1);
        drop((ones, others));
        assert_eq!(traffic.streams.get(), 0);
    }
}
