//! What clients do: they get a lock, work under it, and write down when.

mod command;
mod socket;

use std::path::PathBuf;
use std::time::Duration;

use crate::clock;
use crate::records::{Files, Log, Record, Work};
use crate::resource::ResourceClient;

pub(crate) use command::work_under_run;
pub(crate) use socket::hold_through_socket;

/// How often a holder works.
const WORK_INTERVAL: Duration = Duration::from_millis(10);
/// How many locks clients contend for.
pub(crate) const LOCKS: usize = 3;

/// Who a client is, as the harness tells it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) client: String,
    pub(crate) files: Files,
    pub(crate) resource: PathBuf,
}

/// Whether a holder still has its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holding {
    Yes,
    /// It has, and should end.
    AtRisk,
    Lost,
}

/// A client with its connection to the resource.
struct Holder {
    client: String,
    records: Log,
    resource: ResourceClient,
}

impl Holder {
    fn new(identity: &Identity) -> std::io::Result<Self> {
        Ok(Self {
            client: identity.client.clone(),
            records: Log::open(&identity.files.records())?,
            resource: ResourceClient::connect(&identity.resource)?,
        })
    }

    /// Works for as long as `hold`, or while the network fails for as long as `hold_in_storm`. `holding` waits up to the given time and
    /// tells whether the lock is still held. True if it is at the end, and is to be released.
    fn work(
        &mut self,
        lock: &str,
        shared: bool,
        fence: u64,
        [hold, hold_in_storm]: [Duration; 2],
        mut holding: impl FnMut(Duration) -> Holding,
    ) -> std::io::Result<bool> {
        let start = clock::now();
        // A grant that was read late may be over already: then it was never used.
        match holding(Duration::ZERO) {
            Holding::Yes => {}
            Holding::AtRisk => return Ok(true),
            Holding::Lost => return Ok(false),
        }
        let (client, lock) = (self.client.clone(), lock.to_owned());
        self.records.append(&Record::Start { client: client.clone(), lock: lock.clone(), shared, fence, at: start })?;
        let mut work = Work { client, lock, shared, fence, start, asked: start, at: 0, accepted: false };
        let mut worked = start;
        let lost = loop {
            let answer = self.resource.work(&work)?;
            if !answer.accepted {
                break true;
            }
            worked = work.asked;
            let limit = if answer.calm { hold } else { hold_in_storm };
            let now = clock::now();
            if now - start >= limit.as_nanos() as u64 {
                break false;
            }
            let held = holding(WORK_INTERVAL);
            // Read before the lock is looked after: whatever comes between, the lock was held at this moment.
            let asked = clock::now();
            match if held == Holding::Yes { holding(Duration::ZERO) } else { held } {
                Holding::Yes => work.asked = asked,
                Holding::AtRisk => break false,
                Holding::Lost => break true,
            }
        };
        let Work { client, lock, .. } = work;
        self.records.append(&Record::End { client, lock, fence, at: clock::now(), worked, lost })?;
        Ok(!lost)
    }
}

/// The name of a lock.
pub(crate) fn lock_name(index: usize) -> String {
    format!("chaos/{index}")
}
