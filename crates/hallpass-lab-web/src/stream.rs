//! Answers that come bit by bit: server-sent events, so that a page sees how far a job is.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures_core::Stream;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::jobs::Watch;

/// Progress is told at most so often.
const EVERY: Duration = Duration::from_millis(100);
/// How many events may wait for a slow client; progress that does not fit is left out.
const QUEUE: usize = 16;

/// The body of an answer. Dropping it ends the job.
pub(crate) struct Events {
    receiver: mpsc::Receiver<Bytes>,
    watch: Watch,
}

/// Where a job tells how far it is.
pub(crate) struct Teller {
    sender: mpsc::Sender<Bytes>,
    last: Instant,
}

/// Both ends.
pub(crate) fn events(watch: Watch) -> (Teller, Events) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Teller { sender, last: Instant::now() }, Events { receiver, watch })
}

impl Teller {
    /// Tells how far the job is, if it is time.
    pub(crate) fn progress(&mut self, make: impl FnOnce() -> Value) {
        if self.last.elapsed() >= EVERY {
            self.last = Instant::now();
            let _ = self.sender.try_send(event("progress", &make().to_string()));
        }
    }

    /// Tells the result, a JSON document, or why there is none.
    pub(crate) fn finish(self, result: Result<String, String>) {
        let _ = self.sender.blocking_send(match result {
            Ok(document) => event("done", &document),
            Err(error) => event("failed", &Value::String(error).to_string()),
        });
    }
}

fn event(name: &str, data: &str) -> Bytes {
    // A line break would end the data; JSON has none that means anything.
    Bytes::from(format!("event: {name}\ndata: {}\n\n", data.replace(['\n', '\r'], "")))
}

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context).map(|event| event.map(Ok))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.watch.end();
    }
}
