//! Reads the bodies of requests. They have limits on their time, on their length, and on how many may be incomplete at a time.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use tokio::time::{Sleep, sleep};

use crate::connections::Source;
use crate::owner::Owner;
use crate::shares::{Party, Share, Shares};

/// The longest body, and the longest message of gRPC: every request of ours is shorter.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024;
/// The same for what anybody may send who has no token: a name and a password.
pub(crate) const STRANGERS_BYTES_MAX: usize = 1024;
/// How long a body, or a message of a stream, may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many may be incomplete at a time at one door, of callers of one kind. This bounds the memory that they take: 8 MiB.
const INCOMPLETE_MAX: usize = 512;
/// The same for callers without rights.
const STRANGERS_INCOMPLETE_MAX: usize = 64;

/// The room that a caller has for bodies which have arrived in part: its share of what callers of its kind have.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    incomplete: Arc<Shares>,
    max: usize,
    of: Party,
}

impl Bodies {
    pub(super) fn new(incomplete: &Arc<Shares>, max: usize, of: impl Into<Party>) -> Self {
        Self { incomplete: Arc::clone(incomplete), max, of: of.into() }
    }
}

/// The bodies at one door. No caller takes the room of those who have more rights.
#[derive(Debug, Default)]
pub(crate) struct DoorBodies {
    trusted: Arc<Shares>,
    known: Arc<Shares>,
    strangers: Arc<Shares>,
}

impl DoorBodies {
    /// Those of all who may do everything. Nobody of them has a share alone: over TCP they are not told apart.
    pub(super) fn trusted(&self) -> Bodies {
        Bodies::new(&self.trusted, INCOMPLETE_MAX, Source::Own)
    }

    /// Those of another user of this machine, or of a token.
    pub(super) fn known(&self, owner: &Owner) -> Bodies {
        Bodies::new(&self.known, INCOMPLETE_MAX, owner)
    }

    /// Those of callers without rights who come from there.
    pub(super) fn strangers(&self, source: Source) -> Bodies {
        Bodies::new(&self.strangers, STRANGERS_INCOMPLETE_MAX, source)
    }
}

/// Why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    #[error("the body did not arrive in time")]
    Late,
    #[error("too many bodies are incomplete; try again later")]
    TooMany,
    #[error("the body is longer than {BODY_BYTES_MAX} bytes")]
    TooLong,
    #[error("the body was not received: {0}")]
    Broken(String),
}

/// A body whose sender must not take too long. Until it has to be waited for, this costs nothing.
pub(crate) struct Timed<E> {
    body: Body,
    /// Of a stream of messages: each may take its time, and between two of them there is no limit.
    messages: Option<Messages>,
    wait: Option<Wait>,
    bodies: Bodies,
    error: PhantomData<fn() -> E>,
}

/// The wait for the rest of something incomplete.
struct Wait {
    over: Pin<Box<Sleep>>,
    _share: Share,
}

impl<E> Timed<E> {
    /// A body that is read as a whole.
    pub(crate) fn whole(body: Body, bodies: &Bodies) -> Self {
        Self { body, messages: None, wait: None, bodies: bodies.clone(), error: PhantomData }
    }

    /// A stream of gRPC's messages.
    pub(crate) fn stream(body: Body, bodies: &Bodies) -> Self {
        Self { messages: Some(Messages::default()), ..Self::whole(body, bodies) }
    }

    fn is_between_messages(&self) -> bool {
        self.messages.as_ref().is_some_and(Messages::is_between)
    }
}

impl<E: From<BodyFault>> HttpBody for Timed<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            if let (Some(messages), Some(Ok(frame))) = (&mut this.messages, &frame) {
                frame.data_ref().into_iter().for_each(|data| messages.note(data));
            }
            if frame.is_none() || this.is_between_messages() {
                this.wait = None;
            }
            let broken = |error: axum::Error| BodyFault::Broken(error.to_string()).into();
            return Poll::Ready(frame.map(|frame| frame.map_err(broken)));
        }
        if this.is_between_messages() {
            return Poll::Pending;
        }
        if this.wait.is_none() {
            let Bodies { incomplete, max, of } = &this.bodies;
            let Some(share) = incomplete.enter(of.clone(), *max) else {
                return Poll::Ready(Some(Err(BodyFault::TooMany.into())));
            };
            this.wait = Some(Wait { over: Box::pin(sleep(BODY_TIMEOUT)), _share: share });
        }
        if let Some(wait) = &mut this.wait {
            ready!(wait.over.as_mut().poll(cx));
        }
        Poll::Ready(Some(Err(BodyFault::Late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// How far a stream of gRPC's messages has come. Each begins with a flag and its length.
#[derive(Default)]
struct Messages {
    /// How many bytes of the five before a message have arrived.
    head: u8,
    length: u32,
    /// How much of a message is missing.
    left: usize,
}

impl Messages {
    fn is_between(&self) -> bool {
        self.head == 0 && self.left == 0
    }

    fn note(&mut self, mut data: &[u8]) {
        while let Some((first, rest)) = data.split_first() {
            if self.left > 0 {
                let taken = self.left.min(data.len());
                self.left -= taken;
                data = &data[taken..];
                continue;
            }
            // The flag is shifted out.
            self.length = self.length << 8 | u32::from(*first);
            self.head += 1;
            if self.head == 5 {
                (self.left, self.head) = (self.length as usize, 0);
            }
            data = rest;
        }
    }
}

/// Reads a whole body, of at most so many bytes.
pub(crate) async fn read(body: Body, bytes_max: usize, bodies: &Bodies) -> Result<Vec<u8>, BodyFault> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(BodyFault::TooLong);
    }
    let mut body = Timed::<BodyFault>::whole(body, bodies);
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(data) = frame?.into_data() else { continue };
        if all.len() + data.len() > bytes_max {
            return Err(BodyFault::TooLong);
        }
        all.extend_from_slice(&data);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_stream_is_between_messages_where_one_is_complete() {
        let mut messages = Messages::default();
        let bytes = [0, 0, 0, 0, 2, 7, 7, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 7];
        let mut between = Vec::new();
        for (index, byte) in bytes.iter().enumerate() {
            messages.note(&[*byte]);
            between.extend(messages.is_between().then_some(index));
        }
        // The last length is 256.
        assert_eq!(between, [6, 11]);
        let mut at_once = Messages::default();
        at_once.note(&bytes);
        assert_eq!((at_once.left, messages.left), (255, 255));
    }

    /// The beginning of a body whose rest never comes.
    struct Stops(bool);

    impl HttpBody for Stops {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match std::mem::replace(&mut self.0, true) {
                false => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"{"))))),
                true => Poll::Pending,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_is_given_up() {
        let bodies = DoorBodies::default().trusted();
        assert_eq!(read(Body::new(Stops(false)), BODY_BYTES_MAX, &bodies).await, Err(BodyFault::Late));
        assert_eq!(bodies.incomplete.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_slow_bodies_of_one_client_leave_room_for_those_of_another() {
        let door = DoorBodies::default();
        let of = |number: u32| door.known(&Owner::User(1_900_777_000 + number));
        let slow = |bodies: Bodies| async move { read(Body::new(Stops(false)), BODY_BYTES_MAX, &bodies).await };
        let many: Vec<_> = (0..INCOMPLETE_MAX).map(|_| tokio::spawn(slow(of(1)))).collect();
        let others =
            [of(2), of(3), door.strangers(Source::Own), door.trusted()].map(|bodies| tokio::spawn(slow(bodies)));
        let mut kept = 0;
        for one in many {
            kept += usize::from(one.await.unwrap() == Err(BodyFault::Late));
        }
        assert_eq!(kept, INCOMPLETE_MAX / 2);
        for other in others {
            assert_eq!(other.await.unwrap(), Err(BodyFault::Late), "it had room");
        }
    }
}
