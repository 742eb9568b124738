//! The clients' work: they get a lock, work under it, and record when.

mod api;
mod command;
mod lease;
mod socket;

use std::path::PathBuf;
use std::time::Duration;

use crate::clock;
use crate::random::Random;
use crate::records::{Files, Log, Record, Work};
use crate::resource::{Answer, ResourceClient};

pub(crate) use command::work_under_run;
pub(crate) use lease::hold_by_lease;
pub(crate) use socket::hold_through_socket;

/// How often a holder works.
const WORK_INTERVAL: Duration = Duration::from_millis(10);
/// How many locks clients contend for.
const LOCKS: usize = 3;
/// How often a client looks for an agent that is gone.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The identity that the harness gives a client.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) client: String,
    /// The prefix of its locks. Each group has locks of its own.
    pub(crate) locks: String,
    pub(crate) files: Files,
    pub(crate) resource: PathBuf,
}

/// Why a client's conversation with its agent is over.
enum Gone {
    Agent,
    Harness(std::io::Error),
}

/// Whether a holder still has its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holding {
    Yes,
    /// It still has the lock, and should end.
    AtRisk,
    Lost,
}

/// A client with its connection to the resource.
struct Holder {
    client: String,
    records: Log,
    resource: ResourceClient,
}

/// One grant, and the work that is done under it.
struct Stint {
    work: Work,
    /// When the holder last worked.
    worked: u64,
}

impl Holder {
    fn new(identity: &Identity) -> std::io::Result<Self> {
        Ok(Self {
            client: identity.client.clone(),
            records: Log::open(&identity.files.records())?,
            resource: ResourceClient::connect(&identity.resource)?,
        })
    }

    /// Records that a grant has arrived. A process that holds several locks has a `number` for each, counted from 1.
    fn begin(&mut self, number: usize, lock: &str, shared: bool, fence: u64, at: u64) -> std::io::Result<Stint> {
        let client = if number == 1 { self.client.clone() } else { format!("{}/{number}", self.client) };
        let (lock, start) = (lock.to_owned(), at);
        self.records.append(&Record::Start { client: client.clone(), lock: lock.clone(), shared, fence, at })?;
        let work = Work { client, lock, shared, fence, start, asked: start, at: 0, accepted: false };
        Ok(Stint { work, worked: start })
    }

    /// Works once. `asked` is a moment at which the holder knew that it held the lock.
    fn work_once(&mut self, stint: &mut Stint, asked: u64) -> std::io::Result<Answer> {
        stint.work.asked = asked;
        let answer = self.resource.work(&stint.work)?;
        if answer.accepted {
            stint.worked = asked;
        }
        Ok(answer)
    }

    /// Records that the holder has stopped working. A release is sent after this.
    fn end(&mut self, stint: Stint, at: u64, lost: bool) -> std::io::Result<()> {
        let Stint { work: Work { client, lock, fence, .. }, worked } = stint;
        self.records.append(&Record::End { client, lock, fence, at, worked, lost })
    }

    /// Works for the time `hold`, or for `hold_in_storm` while the network fails. `holding` waits up to the given time, and tells
    /// whether the lock is still held. Returns true if it is held at the end and has to be released.
    fn work(
        &mut self,
        lock: &str,
        shared: bool,
        fence: u64,
        [hold, hold_in_storm]: [Duration; 2],
        mut holding: impl FnMut(Duration) -> Holding,
    ) -> std::io::Result<bool> {
        let start = clock::now();
        // A grant that was read late may already be over. Then it was never used.
        match holding(Duration::ZERO) {
            Holding::Yes => {}
            Holding::AtRisk => return Ok(true),
            Holding::Lost => return Ok(false),
        }
        let mut stint = self.begin(1, lock, shared, fence, start)?;
        let mut asked = start;
        let lost = loop {
            let answer = self.work_once(&mut stint, asked)?;
            if !answer.accepted {
                break true;
            }
            let limit = if answer.calm { hold } else { hold_in_storm };
            if clock::now() - start >= limit.as_nanos() as u64 {
                break false;
            }
            let held = holding(WORK_INTERVAL);
            // Read before the lock is checked, so the lock was held at this moment.
            let now = clock::now();
            match if held == Holding::Yes { holding(Duration::ZERO) } else { held } {
                Holding::Yes => asked = now,
                Holding::AtRisk => break false,
                Holding::Lost => break true,
            }
        };
        // The lock is held until the release, unless its deadline passed just before the release.
        let at = clock::now();
        let lost = lost || holding(Duration::ZERO) == Holding::Lost;
        self.end(stint, at, lost)?;
        Ok(!lost)
    }
}

/// Draws one of the locks with this prefix.
pub(crate) fn draw_lock(locks: &str, random: &mut Random) -> String {
    format!("{locks}/{}", random.below(LOCKS))
}
