//! Work that takes a while: a bounded number of jobs at a time, each with a time limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hallpass_lab::Flow;
use tokio::sync::Semaphore;

/// The longest that one job may take.
const TIME_MAX: Duration = Duration::from_secs(90);
/// More requests than these that wait for their turn are sent away: one person at one page never has as many.
const WAITING_MAX: usize = 32;

/// The places for work.
#[derive(Clone)]
pub(crate) struct Jobs {
    places: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Too many wait already.
    Busy,
    /// The work has panicked.
    Broken,
}

/// What a job looks at now and then: whether anybody still wants its result.
#[derive(Clone)]
pub(crate) struct Watch {
    is_over: Arc<AtomicBool>,
    until: Instant,
}

/// Ends a job when it is dropped, as the future of a request is when its client goes away.
struct EndOnDrop(Arc<AtomicBool>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    /// One that nobody ends, for work that is not a request's.
    pub(crate) fn patient() -> Self {
        Self::for_time(Duration::from_secs(3600))
    }

    fn for_time(time: Duration) -> Self {
        Self { is_over: Arc::default(), until: Instant::now() + time }
    }

    pub(crate) fn flow(&self) -> Flow {
        if self.is_over.load(Ordering::Relaxed) || Instant::now() >= self.until { Flow::Stop } else { Flow::Continue }
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Jobs {
    /// As many at a time as there are cores, and at least two, so that a long one does not block a short one.
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self { places: Arc::new(Semaphore::new(cores.max(2))), waiting: Arc::default() }
    }

    /// Does the work on a thread of its own, in its turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Watch) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let watch = Watch::for_time(TIME_MAX);
        let guard = EndOnDrop(watch.is_over.clone());
        let done = self.start(watch, work).await.ok_or(Refused::Busy)?.await;
        drop(guard);
        done.map_err(|_| Refused::Broken)
    }

    /// Starts the work in its turn, under a watch that the caller keeps.
    pub(crate) async fn start<T: Send + 'static>(
        &self,
        watch: Watch,
        work: impl FnOnce(&Watch) -> T + Send + 'static,
    ) -> Option<tokio::task::JoinHandle<T>> {
        let waits = Waits::new(&self.waiting)?;
        let place = self.places.clone().acquire_owned().await.ok()?;
        drop(waits);
        Some(tokio::task::spawn_blocking(move || {
            let done = work(&watch);
            drop(place);
            done
        }))
    }

    /// A watch for work that is started by [`start`](Self::start).
    pub(crate) fn watch() -> Watch {
        Watch::for_time(TIME_MAX)
    }
}

/// One request that waits for its turn.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Option<Self> {
        let waits = Self(waiting);
        (waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(waits)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_ends_when_nobody_wants_it() {
        let jobs = Jobs::new();
        let (sender, receiver) = std::sync::mpsc::channel();
        let job = jobs.run(move |watch| {
            while watch.flow() == Flow::Continue {
                std::thread::yield_now();
            }
            sender.send(()).unwrap();
        });
        // The request is given up in the middle.
        assert!(tokio::time::timeout(Duration::from_millis(20), job).await.is_err());
        receiver.recv_timeout(Duration::from_secs(60)).expect("the job ends");
    }

    #[tokio::test]
    async fn a_job_that_panics_gives_its_place_back() {
        let jobs = Jobs::new();
        for _ in 0..100 {
            assert_eq!(jobs.run(|_| panic!("on purpose")).await, Err::<(), _>(Refused::Broken));
        }
        assert_eq!(jobs.run(|_| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn too_many_are_sent_away() {
        let jobs = Jobs { places: Arc::new(Semaphore::new(0)), waiting: Arc::default() };
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let jobs = jobs.clone();
                tokio::spawn(async move { jobs.run(|_| ()).await })
            })
            .collect();
        while jobs.waiting.load(Ordering::Relaxed) < WAITING_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(jobs.run(|_| ()).await, Err(Refused::Busy));
        waiting.iter().for_each(|task| task.abort());
    }
}
