//! The resource that the locks protect. It accepts work with a fence, and remembers the highest fence of a write.
//!
//! The harness has a thread for each client. A client sends one [`Work`] a line. The answer is one byte: whether the work was accepted,
//! and whether the network is calm.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::clock;
use crate::records::{Log, Work};

/// The harness's side of the resource.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    ledger: Arc<Mutex<Ledger>>,
    calm: Arc<AtomicBool>,
}

/// What the resource remembers of the work it was asked for.
#[derive(Debug)]
struct Ledger {
    log: Log,
    /// The highest fence of a write, by lock.
    marks: BTreeMap<String, u64>,
    /// When the last grant arrived under which work was accepted, by client.
    last: BTreeMap<String, u64>,
}

impl Resource {
    pub(crate) fn listen(socket: &Path, log: &Path) -> std::io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let ledger = Ledger { log: Log::open(log)?, marks: BTreeMap::new(), last: BTreeMap::new() };
        let this = Self { ledger: Arc::new(Mutex::new(ledger)), calm: Arc::new(AtomicBool::new(true)) };
        let resource = this.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let resource = resource.clone();
                thread::spawn(move || resource.serve(stream));
            }
        });
        Ok(this)
    }

    /// In a calm network, holders keep their locks only for a moment.
    pub(crate) fn set_calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::SeqCst);
    }

    /// Those of `clients` that have got no lock since this time.
    pub(crate) fn waiting_since<'a>(&self, clients: &'a [String], since: u64) -> Vec<&'a str> {
        let ledger = self.ledger();
        let got_in = |client: &&String| ledger.last.get(*client).is_some_and(|at| *at >= since);
        clients.iter().filter(|client| !got_in(client)).map(String::as_str).collect()
    }

    fn serve(&self, stream: UnixStream) {
        let Ok(mut answers) = stream.try_clone() else { return };
        for line in BufReader::new(stream).lines() {
            let Some(work) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { return };
            let accepted = self.decide(work);
            let answer = Answer { accepted, calm: self.calm.load(Ordering::SeqCst) };
            if answers.write_all(&[answer.into()]).is_err() {
                return;
            }
        }
    }

    fn decide(&self, mut work: Work) -> bool {
        let mut ledger = self.ledger();
        let mark = ledger.marks.get(&work.lock).copied().unwrap_or(0);
        work.accepted = if work.shared { work.fence > mark } else { work.fence >= mark };
        work.at = clock::now();
        if work.accepted {
            ledger.last.insert(work.client.clone(), work.start);
            if !work.shared {
                ledger.marks.insert(work.lock.clone(), work.fence);
            }
        }
        ledger.log.append(&work).expect("the resource can write its log");
        work.accepted
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) accepted: bool,
    pub(crate) calm: bool,
}

impl From<Answer> for u8 {
    fn from(answer: Answer) -> Self {
        u8::from(answer.accepted) | u8::from(answer.calm) << 1
    }
}

/// A holder's side of the resource.
#[derive(Debug)]
pub(crate) struct ResourceClient(UnixStream);

impl ResourceClient {
    pub(crate) fn connect(socket: &Path) -> std::io::Result<Self> {
        UnixStream::connect(socket).map(Self)
    }

    pub(crate) fn work(&mut self, work: &Work) -> std::io::Result<Answer> {
        let mut line = serde_json::to_vec(work)?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        let mut answer = [0];
        self.0.read_exact(&mut answer)?;
        Ok(Answer { accepted: answer[0] & 1 != 0, calm: answer[0] & 2 != 0 })
    }
}
