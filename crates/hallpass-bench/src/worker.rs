//! The inside of a worker process: callers of one system, and a loop that performs the tasks it reads from stdin.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{BufRead, Write};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

use crate::BenchError;
use crate::histogram::Histogram;
use crate::task::{Done, Hold, Ready, Reply, Task};

/// A system under test as one process sees it.
pub trait System: Send + Sync + 'static {
    /// What acquires its locks.
    type Caller: Caller;

    /// A new caller, with a connection of its own where the system needs one.
    fn caller(&self, id: u32) -> impl Future<Output = Result<Self::Caller, BenchError>> + Send;

    /// Protocol messages that this process has sent so far.
    fn messages(&self) -> u64 {
        0
    }
}

/// Acquires locks, at most one at a time.
pub trait Caller: Send + 'static {
    /// Waits until it holds the lock with this number exclusively.
    fn acquire(&mut self, lock: u32) -> impl Future<Output = Result<(), BenchError>> + Send;

    /// The same in shared mode, for systems that have it.
    fn acquire_shared(&mut self, _lock: u32) -> impl Future<Output = Result<(), BenchError>> + Send {
        async { Err(BenchError::new("this system does not share locks")) }
    }

    /// Releases the lock that it holds.
    fn release(&mut self) -> impl Future<Output = Result<(), BenchError>> + Send;

    /// The same without an answer, in systems that have to look for one.
    fn let_go(&mut self) -> impl Future<Output = Result<(), BenchError>> + Send {
        self.release()
    }
}

/// How many cycles are timed together where one is shorter than reading the clock.
const BATCH: u64 = 32;
/// How many cycles are done before other tasks of the same thread have their turn.
const YIELD: u64 = 32 * BATCH;

/// Runs a worker until stdin is closed: the benchmark needs it no more, or has ended.
pub fn serve<S, F>(start: impl FnOnce() -> F) -> Result<(), BenchError>
where
    S: System,
    F: Future<Output = Result<S, BenchError>>,
{
    let runtime = runtime()?;
    let mut lines = lines_until_closed();
    runtime.block_on(async {
        let system = match start().await {
            Ok(system) => system,
            Err(error) => {
                send(&Reply::Failed(error.to_string()));
                return Err(error);
            }
        };
        send(&Reply::Ready(Ready::default()));
        let mut worker = Worker { system, callers: BTreeMap::new() };
        while let Some(line) = lines.recv().await {
            let done = match serde_json::from_str(&line) {
                Ok(task) => worker.perform(task).await,
                Err(error) => Err(BenchError::new(error)),
            };
            send(&done.map_or_else(|error| Reply::Failed(error.to_string()), Reply::Done));
        }
        Ok(())
    })
}

/// The same runtime for every worker, so that callers, raw round trips and nodes are compared fairly.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, BenchError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(BenchError::new)
}

/// Reads stdin on a thread of its own, and ends the process when it is closed, whatever it is doing.
pub(crate) fn lines_until_closed() -> mpsc::UnboundedReceiver<String> {
    // Bounded by the benchmark, which waits for each reply before it sends the next line.
    let (lines, read) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    read
}

pub(crate) fn send(reply: &Reply) {
    let line = serde_json::to_string(reply).expect("replies are plain data") + "\n";
    let mut out = std::io::stdout().lock();
    // If the benchmark does not read any more it has closed stdin too, which ends this process.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

/// On a clock that all processes of a machine share.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Worker<S: System> {
    system: S,
    callers: BTreeMap<u32, S::Caller>,
}

/// A caller and what it has measured.
struct Measured<C> {
    caller: C,
    cycles: Histogram,
    grants: u64,
}

/// Writes holds to a file. Few are kept in memory, as the memory of a worker is one of the figures.
struct Record {
    file: File,
    bytes: Vec<u8>,
}

impl Record {
    const BYTES: usize = 64 * 1024;

    fn of(file: &File) -> Result<Self, BenchError> {
        let file = file.try_clone().map_err(BenchError::new)?;
        Ok(Self { file, bytes: Vec::with_capacity(Self::BYTES + Hold::BYTES) })
    }

    fn add(&mut self, hold: &Hold) -> Result<(), BenchError> {
        hold.encode(&mut self.bytes);
        if self.bytes.len() >= Self::BYTES { self.flush() } else { Ok(()) }
    }

    /// Callers of one worker share the file: it is opened for appending, and every write is of whole records.
    fn flush(&mut self) -> Result<(), BenchError> {
        self.file.write_all(&self.bytes).map_err(BenchError::new)?;
        self.bytes.clear();
        Ok(())
    }
}

impl<S: System> Worker<S> {
    async fn perform(&mut self, task: Task) -> Result<Done, BenchError> {
        let begin = now_ns();
        let mut done = match task {
            Task::Open { callers } => self.open(&callers).await.map(|()| Done::default()),
            Task::Run { callers, locks, seconds, record } => {
                self.run(&callers, locks, seconds, record.as_deref()).await
            }
            Task::Each { locks } => self.one(|id, caller| each(id, caller, locks)).await,
            Task::Hot { shared, checked, seconds } => {
                self.one(|_, caller| hot(caller, shared, checked, nanos(seconds))).await
            }
            Task::Change => Err(BenchError::new("this worker has callers, and no group to change")),
        }?;
        done.nanos = now_ns() - begin;
        done.messages = self.system.messages();
        Ok(done)
    }

    async fn open(&mut self, callers: &[u32]) -> Result<(), BenchError> {
        for id in callers {
            if !self.callers.contains_key(id) {
                self.callers.insert(*id, self.system.caller(*id).await?);
            }
        }
        Ok(())
    }

    async fn run(
        &mut self,
        callers: &[u32],
        locks: u32,
        seconds: f64,
        record: Option<&Path>,
    ) -> Result<Done, BenchError> {
        self.open(callers).await?;
        let file = record.map(|path| {
            std::fs::write(path, [])?;
            OpenOptions::new().append(true).open(path)
        });
        let file = file.transpose().map_err(BenchError::new)?;
        let until = now_ns() + nanos(seconds);
        let mut running = Vec::new();
        for id in callers {
            let caller = self.callers.remove(id).expect("it was opened");
            let record = file.as_ref().map(Record::of).transpose()?;
            running.push((*id, tokio::spawn(rounds(*id, caller, locks, until, record))));
        }
        let mut done = Done::default();
        for (id, task) in running {
            let measured = task.await.map_err(BenchError::new)??;
            self.callers.insert(id, measured.caller);
            done.grants += measured.grants;
            done.cycles.merge(&measured.cycles);
        }
        Ok(done)
    }

    /// Runs the first caller on a task of its own.
    async fn one<F>(&mut self, work: impl FnOnce(u32, S::Caller) -> F) -> Result<Done, BenchError>
    where
        F: Future<Output = Result<Measured<S::Caller>, BenchError>> + Send + 'static,
    {
        if self.callers.is_empty() {
            self.open(&[0]).await?;
        }
        let (id, caller) = self.callers.pop_first().expect("it was opened");
        let measured = tokio::spawn(work(id, caller)).await.map_err(BenchError::new)??;
        self.callers.insert(id, measured.caller);
        Ok(Done { grants: measured.grants, cycles: measured.cycles, ..Done::default() })
    }
}

async fn rounds<C: Caller>(
    id: u32,
    mut caller: C,
    locks: u32,
    until: u64,
    mut record: Option<Record>,
) -> Result<Measured<C>, BenchError> {
    let (mut cycles, mut grants) = (Histogram::default(), 0);
    loop {
        let lock = ((u64::from(id) + grants) % u64::from(locks.max(1))) as u32;
        let asked = now_ns();
        caller.acquire(lock).await?;
        let acquired_ns = now_ns();
        let released_ns = if record.is_some() { now_ns() } else { acquired_ns };
        caller.release().await?;
        let end = now_ns();
        cycles.add(end - asked);
        grants += 1;
        if let Some(record) = &mut record {
            record.add(&Hold { lock, caller: id, acquired_ns, released_ns })?;
        }
        if end >= until {
            record.as_mut().map_or(Ok(()), Record::flush)?;
            return Ok(Measured { caller, cycles, grants });
        }
    }
}

async fn each<C: Caller>(_: u32, mut caller: C, locks: u32) -> Result<Measured<C>, BenchError> {
    let mut cycles = Histogram::default();
    for lock in 0..locks {
        let asked = now_ns();
        caller.acquire(lock).await?;
        caller.release().await?;
        cycles.add(now_ns() - asked);
    }
    Ok(Measured { caller, cycles, grants: u64::from(locks) })
}

async fn hot<C: Caller>(mut caller: C, shared: bool, checked: bool, nanos: u64) -> Result<Measured<C>, BenchError> {
    let (mut cycles, mut grants) = (Histogram::default(), 0);
    let until = now_ns() + nanos;
    loop {
        let begin = now_ns();
        for _ in 0..BATCH {
            if shared {
                caller.acquire_shared(0).await?
            } else {
                caller.acquire(0).await?
            }
            if checked {
                caller.release().await?;
            } else {
                caller.let_go().await?;
            }
        }
        let end = now_ns();
        cycles.add((end - begin) / BATCH);
        grants += BATCH;
        if end >= until {
            return Ok(Measured { caller, cycles, grants });
        }
        // A caller that never waits would starve the tasks that read the sockets on its thread.
        if grants.is_multiple_of(YIELD) {
            tokio::task::yield_now().await;
        }
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl BenchError {
    /// An error with this message.
    pub fn new(why: impl Display) -> Self {
        Self(why.to_string())
    }
}
