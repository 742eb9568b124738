//! The inside of a worker process: callers of some system, doing what they are told on stdin.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{BufRead, Write};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

use crate::task::{Done, Ready, Reply, Stay, Task};
use crate::{BenchError, Histogram};

/// A system under test as one process sees it.
pub trait System: Send + Sync + 'static {
    /// Who acquires.
    type Caller: Caller;

    /// A caller of its own: with its own connection, where the system is reached by one.
    fn caller(&self, id: u32) -> impl Future<Output = Result<Self::Caller, BenchError>> + Send;

    /// Protocol messages that this process has sent so far.
    fn messages(&self) -> u64 {
        0
    }
}

/// One who takes locks, at most one at a time.
pub trait Caller: Send + 'static {
    /// Waits until it holds the lock of this number alone.
    fn acquire(&mut self, lock: u32) -> impl Future<Output = Result<(), BenchError>> + Send;

    /// The same, together with others who share; for systems that have it.
    fn acquire_shared(&mut self, _lock: u32) -> impl Future<Output = Result<(), BenchError>> + Send {
        async { Err(BenchError::new("this system does not share locks")) }
    }

    /// Leaves the lock it holds.
    fn release(&mut self) -> impl Future<Output = Result<(), BenchError>> + Send;
}

/// How many cycles are timed together where one is shorter than reading the clock.
const BATCH: u64 = 32;
/// How many are done before others of the same thread have their turn.
const YIELD: u64 = 32 * BATCH;

/// Runs a worker until stdin is closed: whoever started it has what it wanted, or is gone.
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
                say(&Reply::Failed(error.to_string()));
                return Err(error);
            }
        };
        say(&Reply::Ready(Ready::default()));
        let mut worker = Worker { system, callers: BTreeMap::new() };
        while let Some(line) = lines.recv().await {
            let done = match serde_json::from_str(&line) {
                Ok(task) => worker.carry_out(task).await,
                Err(error) => Err(BenchError::new(error)),
            };
            say(&done.map_or_else(|error| Reply::Failed(error.to_string()), Reply::Done));
        }
        Ok(())
    })
}

/// The runtime of every worker: callers, the raw round trip and the nodes stand on the same.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, BenchError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(BenchError::new)
}

/// Reads stdin on a thread of its own, and ends the process when it is closed, whatever goes on then.
pub(crate) fn lines_until_closed() -> mpsc::UnboundedReceiver<String> {
    // The other side waits for each answer before it says more: there is never more than one line.
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

pub(crate) fn say(reply: &Reply) {
    let line = serde_json::to_string(reply).expect("replies are plain data") + "\n";
    let mut out = std::io::stdout().lock();
    // Who does not listen any more has closed stdin too.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

/// Nanoseconds on a clock that all processes of a machine share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Worker<S: System> {
    system: S,
    callers: BTreeMap<u32, S::Caller>,
}

/// What one caller brings back.
struct Trip<C> {
    caller: C,
    cycles: Histogram,
    grants: u64,
}

/// Writes down who was inside when. Little is kept here: the memory of a worker is a figure too.
struct Record {
    file: File,
    bytes: Vec<u8>,
}

impl Record {
    const BYTES: usize = 64 * 1024;

    fn of(file: &File) -> Result<Self, BenchError> {
        let file = file.try_clone().map_err(BenchError::new)?;
        Ok(Self { file, bytes: Vec::with_capacity(Self::BYTES + Stay::BYTES) })
    }

    fn add(&mut self, stay: &Stay) -> Result<(), BenchError> {
        stay.encode(&mut self.bytes);
        if self.bytes.len() >= Self::BYTES { self.flush() } else { Ok(()) }
    }

    /// Callers of one worker share the file: it is open for appending, and a write is of whole records.
    fn flush(&mut self) -> Result<(), BenchError> {
        self.file.write_all(&self.bytes).map_err(BenchError::new)?;
        self.bytes.clear();
        Ok(())
    }
}

impl<S: System> Worker<S> {
    async fn carry_out(&mut self, task: Task) -> Result<Done, BenchError> {
        let begin = now();
        let mut done = match task {
            Task::Open { callers } => self.open(&callers).await.map(|()| Done::default()),
            Task::Run { callers, locks, seconds, record } => {
                self.run(&callers, locks, seconds, record.as_deref()).await
            }
            Task::Each { locks } => self.one(|id, caller| each(id, caller, locks)).await,
            Task::Hot { shared, seconds } => self.one(|_, caller| hot(caller, shared, nanos(seconds))).await,
        }?;
        done.nanos = now() - begin;
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
        let until = now() + nanos(seconds);
        let mut trips = Vec::new();
        for id in callers {
            let caller = self.callers.remove(id).expect("it was opened");
            let record = file.as_ref().map(Record::of).transpose()?;
            trips.push((*id, tokio::spawn(rounds(*id, caller, locks, until, record))));
        }
        let mut done = Done::default();
        for (id, trip) in trips {
            let trip = trip.await.map_err(BenchError::new)??;
            self.callers.insert(id, trip.caller);
            done.grants += trip.grants;
            done.cycles.merge(&trip.cycles);
        }
        Ok(done)
    }

    /// Lets the first caller do something on a task of its own.
    async fn one<F>(&mut self, work: impl FnOnce(u32, S::Caller) -> F) -> Result<Done, BenchError>
    where
        F: Future<Output = Result<Trip<S::Caller>, BenchError>> + Send + 'static,
    {
        if self.callers.is_empty() {
            self.open(&[0]).await?;
        }
        let (id, caller) = self.callers.pop_first().expect("it was opened");
        let trip = tokio::spawn(work(id, caller)).await.map_err(BenchError::new)??;
        self.callers.insert(id, trip.caller);
        Ok(Done { grants: trip.grants, cycles: trip.cycles, ..Done::default() })
    }
}

async fn rounds<C: Caller>(
    id: u32,
    mut caller: C,
    locks: u32,
    until: u64,
    mut record: Option<Record>,
) -> Result<Trip<C>, BenchError> {
    let (mut cycles, mut grants) = (Histogram::default(), 0);
    loop {
        let lock = ((u64::from(id) + grants) % u64::from(locks.max(1))) as u32;
        let asked = now();
        caller.acquire(lock).await?;
        let entered = now();
        let left = if record.is_some() { now() } else { entered };
        caller.release().await?;
        let end = now();
        cycles.add(end - asked);
        grants += 1;
        if let Some(record) = &mut record {
            record.add(&Stay { lock, caller: id, entered, left })?;
        }
        if end >= until {
            record.as_mut().map_or(Ok(()), Record::flush)?;
            return Ok(Trip { caller, cycles, grants });
        }
    }
}

async fn each<C: Caller>(_: u32, mut caller: C, locks: u32) -> Result<Trip<C>, BenchError> {
    let mut cycles = Histogram::default();
    for lock in 0..locks {
        let asked = now();
        caller.acquire(lock).await?;
        caller.release().await?;
        cycles.add(now() - asked);
    }
    Ok(Trip { caller, cycles, grants: u64::from(locks) })
}

async fn hot<C: Caller>(mut caller: C, shared: bool, nanos: u64) -> Result<Trip<C>, BenchError> {
    let (mut cycles, mut grants) = (Histogram::default(), 0);
    let until = now() + nanos;
    loop {
        let begin = now();
        for _ in 0..BATCH {
            if shared {
                caller.acquire_shared(0).await?
            } else {
                caller.acquire(0).await?
            }
            caller.release().await?;
        }
        let end = now();
        cycles.add((end - begin) / BATCH);
        grants += BATCH;
        if end >= until {
            return Ok(Trip { caller, cycles, grants });
        }
        // A caller who never waits would keep the sockets' readers of its thread waiting.
        if grants.is_multiple_of(YIELD) {
            tokio::task::yield_now().await;
        }
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl BenchError {
    /// An error that says this.
    pub fn new(why: impl Display) -> Self {
        Self(why.to_string())
    }
}
