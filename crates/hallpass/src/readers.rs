//! One task that reads all lock connections where callers run.
//!
//! With a task for each, the runtime wakes a second thread whenever two connections have something at once, to share work that takes
//! less time than waking it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;

/// Serves one connection until it ends.
type Reader = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where connections are handed to the task. It ends when this is dropped.
pub(crate) struct Readers(Closing);

#[derive(Default)]
struct Shared(Mutex<Inbox>);

#[derive(Default)]
struct Inbox {
    /// Connections that the task has not seen yet.
    new: Vec<Reader>,
    /// Wakes the task.
    task: Option<Waker>,
    is_closed: bool,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let task = self.inbox().task.clone();
        task.into_iter().for_each(Waker::wake);
    }
}

/// What wakes one reader: of many connections only those are looked at that have something.
struct Signal {
    is_set: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        self.shared.wake();
    }
}

impl Readers {
    pub(crate) fn start(callers: &Handle) -> Self {
        let shared = Arc::new(Shared::default());
        let mut readers = Vec::new();
        let task = Closing(Arc::clone(&shared));
        callers.spawn(poll_fn(move |cx| poll(&task.0, &mut readers, cx)));
        Self(Closing(shared))
    }

    /// Hands a connection to the task. If the callers' runtime has ended, so has the task, and nothing happens.
    pub(crate) fn add(&self, reader: impl Future<Output = ()> + Send + 'static) {
        let shared = &self.0.0;
        {
            let mut inbox = shared.inbox();
            if inbox.is_closed {
                return;
            }
            inbox.new.push(Box::pin(reader));
        }
        shared.wake();
    }
}

/// When either the task or the node is gone, the other one needs nothing more.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        let left = {
            let mut inbox = self.0.inbox();
            inbox.is_closed = true;
            std::mem::take(&mut inbox.new)
        };
        drop(left);
        self.0.wake();
    }
}

fn poll(shared: &Arc<Shared>, readers: &mut Vec<(Arc<Signal>, Reader)>, cx: &mut Context<'_>) -> Poll<()> {
    {
        let mut inbox = shared.inbox();
        if inbox.is_closed {
            return Poll::Ready(());
        }
        match &mut inbox.task {
            Some(task) => task.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        readers.extend(
            inbox
                .new
                .drain(..)
                .map(|reader| (Arc::new(Signal { is_set: AtomicBool::new(true), shared: Arc::clone(shared) }), reader)),
        );
    }
    readers.retain_mut(|(signal, reader)| {
        if !signal.is_set.swap(false, Ordering::AcqRel) {
            return true;
        }
        let waker = Waker::from(Arc::clone(signal));
        reader.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
    });
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::task::yield_now;

    use super::*;

    /// Counts how often it is looked at, and ends with its channel.
    fn counting(mut messages: UnboundedReceiver<()>) -> (Arc<AtomicU32>, impl Future<Output = ()>) {
        let looks = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&looks);
        let reader = poll_fn(move |cx| {
            count.fetch_add(1, Ordering::Relaxed);
            while let Poll::Ready(message) = messages.poll_recv(cx) {
                if message.is_none() {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        });
        (looks, reader)
    }

    #[tokio::test]
    async fn only_those_are_looked_at_that_have_something() {
        let readers = Readers::start(&Handle::current());
        let (one, received) = unbounded_channel();
        let (looks_at_one, reader) = counting(received);
        readers.add(reader);
        let (two, received) = unbounded_channel();
        let (looks_at_two, reader) = counting(received);
        readers.add(reader);
        let looks = || (looks_at_one.load(Ordering::Relaxed), looks_at_two.load(Ordering::Relaxed));
        yield_now().await;
        assert_eq!(looks(), (1, 1), "new ones are");
        one.send(()).unwrap();
        yield_now().await;
        assert_eq!(looks(), (2, 1));
        one.send(()).unwrap();
        two.send(()).unwrap();
        yield_now().await;
        assert_eq!(looks(), (3, 2));
        drop(one);
        yield_now().await;
        two.send(()).unwrap();
        yield_now().await;
        assert_eq!(looks(), (4, 3), "one that has ended does not end the others");
    }

    #[tokio::test]
    async fn the_readers_are_gone_when_their_node_is() {
        let readers = Readers::start(&Handle::current());
        let (sender, received) = unbounded_channel();
        readers.add(counting(received).1);
        yield_now().await;
        assert!(!sender.is_closed());
        drop(readers);
        yield_now().await;
        assert!(sender.is_closed());
    }

    #[test]
    fn nothing_is_kept_for_a_runtime_that_has_ended() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let readers = Readers::start(runtime.handle());
        let [(early, first), (late, second)] = [unbounded_channel(), unbounded_channel()];
        readers.add(counting(first).1);
        drop(runtime);
        assert!(early.is_closed());
        readers.add(counting(second).1);
        assert!(late.is_closed());
    }
}
