//! What the locks protect: it accepts work with a fence, and remembers the highest that wrote.
//!
//! One thread of the harness for each client. A client sends a [`Work`] a line and is answered with one byte: whether the work was
//! accepted, and whether the network is calm or not.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::clock;
use crate::records::{Log, Work};

/// The resource as the harness sees it.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    state: Arc<Mutex<State>>,
    calm: Arc<AtomicBool>,
}

#[derive(Debug)]
struct State {
    log: Log,
    /// By lock: the highest fence of a write.
    marks: BTreeMap<String, u64>,
    /// By client: when the last grant arrived under which its work was accepted.
    last: BTreeMap<String, u64>,
}

impl Resource {
    pub(crate) fn listen(socket: &Path, log: &Path) -> std::io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let state = State { log: Log::open(log)?, marks: BTreeMap::new(), last: BTreeMap::new() };
        let this = Self { state: Arc::new(Mutex::new(state)), calm: Arc::new(AtomicBool::new(true)) };
        let resource = this.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let resource = resource.clone();
                thread::spawn(move || resource.serve(stream));
            }
        });
        Ok(this)
    }

    /// While it is calm, holders keep their locks only for a moment.
    pub(crate) fn set_calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::SeqCst);
    }

    /// Those of `clients` that have got no lock since.
    pub(crate) fn waiting_since<'a>(&self, clients: &'a [String], since: u64) -> Vec<&'a str> {
        let state = self.state();
        let got_in = |client: &&String| state.last.get(*client).is_some_and(|at| *at >= since);
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
        let mut state = self.state();
        let mark = state.marks.get(&work.lock).copied().unwrap_or(0);
        work.accepted = if work.shared { work.fence > mark } else { work.fence >= mark };
        work.at = clock::now();
        if work.accepted {
            state.last.insert(work.client.clone(), work.start);
            if !work.shared {
                state.marks.insert(work.lock.clone(), work.fence);
            }
        }
        state.log.append(&work).expect("the resource can write its log");
        work.accepted
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the resource says.
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

/// The resource as a holder sees it.
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
