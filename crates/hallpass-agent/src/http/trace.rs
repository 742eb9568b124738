use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use hallpass::{Node, Trace, TracedMessage};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::answer::typed;
use super::events::Stream;
use super::input::LockName;
use super::{Api, Caller, Fault};
use crate::registry::Event;
use crate::status::name_of;
use crate::tokens::Right;

/// How often messages are fetched from the node while somebody watches. People would not notice if it were more often.
const FETCH: Duration = Duration::from_millis(100);
/// After this number of silent fetches something is sent, so that both sides notice when the other is gone.
const SIGN_OF_LIFE: u32 = 150;

/// The messages of one lock, as this agent's node sends and receives them, and what becomes of the lock here.
pub(super) async fn trace(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    LockName(name): LockName,
) -> Result<Response, Fault> {
    caller.needs(Right::Inspect, &name)?;
    let too_many = || {
        let text = "too many locks are watched already; close one of those pages";
        Fault::new(StatusCode::TOO_MANY_REQUESTS, text)
    };
    let node = api.service.shared().node();
    let trace = node.trace(&name).ok_or_else(too_many)?;
    let (sender, stream) = Stream::open(&api.traffic, &caller)?;
    tokio::spawn(feed(api, node, trace, name, sender));
    Ok(typed("text/event-stream", Body::new(stream)))
}

/// Writes messages and events into a stream until nobody reads it any more, or the agent ends.
async fn feed(api: Api, node: Node, trace: Trace, lock: String, sender: mpsc::Sender<Bytes>) {
    let (_, mut events) = api.service.subscribe();
    drop(api);
    if sender.send(Bytes::from(line("begin", &begin(&node, &lock)))).await.is_err() {
        return;
    }
    let mut ticks = tokio::time::interval(FETCH);
    let mut silent = 0;
    loop {
        let text = tokio::select! {
            event = events.recv() => match event {
                Ok(event) if event.lock.as_deref() == Some(lock.as_str()) => between_messages(&event),
                Ok(_) => continue,
                Err(RecvError::Lagged(missed)) => line("missed", &json!({"missed": missed})),
                Err(RecvError::Closed) => return,
            },
            _ = ticks.tick() => messages(&node, &trace),
            () = sender.closed() => return,
        };
        silent = if text.is_empty() { silent + 1 } else { 0 };
        let text = if silent == SIGN_OF_LIFE { b": \n\n".to_vec() } else { text };
        silent %= SIGN_OF_LIFE;
        // Waits for a slow reader. The node keeps some messages meanwhile, and counts those that are too many.
        if !text.is_empty() && sender.send(Bytes::from(text)).await.is_err() {
            return;
        }
    }
}

/// The first event: the members, and the time.
fn begin(node: &Node, lock: &str) -> serde_json::Value {
    let status = node.status();
    let members = status.members.iter().filter(|member| member.in_view || member.is_this);
    let members: Vec<_> = members.map(|member| json!({"name": name_of(member), "this": member.is_this})).collect();
    json!({"lock": lock, "node": status.name, "members": members, "at_ms": in_ms(now())})
}

/// An event with the time as messages have it: whole milliseconds would put a grant before the message that brought it.
fn between_messages(event: &Event) -> Vec<u8> {
    let mut data = serde_json::to_value(event).unwrap_or_default();
    data["at_ms"] = json!(in_ms(Duration::from_micros(event.at_us)));
    line(event.event.name(), &data)
}

/// The messages that were sent and received since the last fetch.
fn messages(node: &Node, trace: &Trace) -> Vec<u8> {
    let (messages, missed) = trace.take();
    let now = now();
    if messages.is_empty() {
        return Vec::new();
    }
    let status = node.status();
    let name = |id: u32| {
        let member = status.members.iter().find(|member| member.id == id);
        member.map_or_else(|| id.to_string(), name_of)
    };
    let document = |message: TracedMessage| {
        json!({
            "at_ms": in_ms(now.saturating_sub(message.ago)),
            "peer": name(message.peer),
            "sent": message.is_sent,
            "kind": message.kind,
            "text": message.text,
        })
    };
    let messages: Vec<_> = messages.into_iter().map(document).collect();
    line("messages", &json!({"missed": missed, "messages": messages}))
}

/// Since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// In milliseconds with a fraction: messages follow each other in microseconds.
fn in_ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

fn line(event: &str, data: &serde_json::Value) -> Vec<u8> {
    format!("event: {event}\ndata: {data}\n\n").into_bytes()
}
