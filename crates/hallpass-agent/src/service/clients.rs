//! Who the clients of an agent are, what they hold and what they wait for: for people who ask why a lock is not free.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hallpass::Mode;

use super::events::{Event, Kind};
use crate::agent::State;
use crate::api::ClientLine;
use crate::os::{self, Credentials};

/// All clients: connections to the socket, leases, and requests of the API that wait.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    clients: BTreeMap<u64, Client>,
}

/// Where a client comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its process, its user and what it runs, as the system knows them, if it is on this machine.
    pub(crate) pid: Option<u32>,
    pub(crate) user: Option<String>,
    pub(crate) command: Option<String>,
    /// What else is known: an address, a token's name.
    pub(crate) client: Option<String>,
}

impl Origin {
    /// A process of this machine.
    pub(crate) fn of_process(who: Credentials) -> Self {
        let (user, command) = (who.uid.map(os::user_name), who.pid.and_then(os::command_of));
        Self { pid: who.pid, user, command, client: None }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid.map(|pid| format!("pid {pid} of {}", self.user.as_deref().unwrap_or("?")));
        let shown = pid.into_iter().chain(self.client.clone()).collect::<Vec<_>>().join(", ");
        f.write_str(if shown.is_empty() { "unknown" } else { &shown })
    }
}

#[derive(Debug)]
struct Client {
    origin: Arc<Origin>,
    uses: BTreeMap<u64, Use>,
}

/// A lock that a client holds or waits for.
#[derive(Debug)]
struct Use {
    lock: Arc<str>,
    mode: Mode,
    /// None while the client waits.
    fence: Option<u64>,
    since: Instant,
}

/// The clients of one lock.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    pub(crate) held_by: Vec<ClientLine>,
    pub(crate) waiting: Vec<ClientLine>,
}

/// A client's place among the others, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    state: Arc<State>,
    id: u64,
    origin: Arc<Origin>,
}

impl Entry {
    pub(crate) fn new(state: Arc<State>, origin: Arc<Origin>) -> Self {
        let mut table = state.clients.lock();
        let id = table.next;
        table.next += 1;
        table.clients.insert(id, Client { origin: Arc::clone(&origin), uses: BTreeMap::new() });
        drop(table);
        Self { state, id, origin }
    }

    pub(crate) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The client waits for a lock from now on.
    pub(crate) fn waits(&self, lock: &str, mode: Mode) -> Used {
        let (name, since): (Arc<str>, _) = (lock.into(), Instant::now());
        let mut table = self.state.clients.lock();
        let number = table.next;
        table.next += 1;
        if let Some(client) = table.clients.get_mut(&self.id) {
            client.uses.insert(number, Use { lock: Arc::clone(&name), mode, fence: None, since });
        }
        drop(table);
        let (state, origin) = (Arc::clone(&self.state), Arc::clone(&self.origin));
        Used { state, origin, client: self.id, number, lock: name, since, fence: None, lost: false }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.state.clients.lock().clients.remove(&self.id);
        self.state.client_left.notify_waiters();
    }
}

/// A lock that a client waits for or holds, until it is dropped. It is to be dropped after the guard, so that nobody is shown as gone
/// who still holds something.
#[derive(Debug)]
pub(crate) struct Used {
    state: Arc<State>,
    origin: Arc<Origin>,
    client: u64,
    number: u64,
    lock: Arc<str>,
    since: Instant,
    fence: Option<u64>,
    lost: bool,
}

impl Used {
    /// The client holds it.
    pub(crate) fn granted(&mut self, fence: u64) {
        let now = Instant::now();
        self.state.counts.waits.observe(now - self.since);
        (self.fence, self.since) = (Some(fence), now);
        if let Some(used) = self.state.clients.lock().used(self.client, self.number) {
            (used.fence, used.since) = (Some(fence), now);
        }
        self.tell(Kind::Granted);
    }

    /// Something has happened to it that the client did not ask for. What is lost is not released.
    pub(crate) fn tell_news(&mut self, news: Kind) {
        self.lost |= news == Kind::Lost;
        if news == Kind::Lost {
            self.state.counts.losses.add();
        }
        self.tell(news);
    }

    fn tell(&self, kind: Kind) {
        self.state.events.send(kind, || Event {
            lock: Some(self.lock.to_string()),
            fence: self.fence.map(|fence| fence.to_string()),
            client: self.origin.client.clone().or_else(|| self.origin.pid.map(|pid| format!("pid {pid}"))),
            ..Event::default()
        });
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if let Some(client) = self.state.clients.lock().clients.get_mut(&self.client) {
            client.uses.remove(&self.number);
        }
        if self.fence.is_none() {
            return;
        }
        self.state.counts.holds.observe(self.since.elapsed());
        if !self.lost {
            self.tell(Kind::Released);
        }
    }
}

impl Table {
    fn used(&mut self, client: u64, number: u64) -> Option<&mut Use> {
        self.clients.get_mut(&client)?.uses.get_mut(&number)
    }
}

impl Clients {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().clients.len()
    }

    /// True if one of them holds a lock or waits for one.
    pub(crate) fn uses_any(&self) -> bool {
        self.lock().clients.values().any(|client| !client.uses.is_empty())
    }

    /// How many locks clients hold, and how many they wait for.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let table = self.lock();
        let uses = || table.clients.values().flat_map(|client| client.uses.values());
        let held = uses().filter(|used| used.fence.is_some()).count();
        (held, uses().count() - held)
    }

    /// How many wait for the lock that most of them wait for.
    pub(crate) fn longest_queue(&self) -> usize {
        let table = self.lock();
        let mut queues: BTreeMap<&str, usize> = BTreeMap::new();
        let waiting =
            table.clients.values().flat_map(|client| client.uses.values()).filter(|used| used.fence.is_none());
        waiting.for_each(|used| *queues.entry(&used.lock).or_default() += 1);
        queues.into_values().max().unwrap_or(0)
    }

    /// The clients of every lock that is wanted, by its name. `node` is where they are.
    pub(crate) fn by_lock(&self, node: &str, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Uses> {
        let table = self.lock();
        let mut all: BTreeMap<String, Uses> = BTreeMap::new();
        for client in table.clients.values() {
            let Origin { pid, user, command, client: known } = &*client.origin;
            for used in client.uses.values().filter(|used| wanted(&used.lock)) {
                let line = ClientLine {
                    node: node.to_owned(),
                    mode: Some(used.mode.to_string()),
                    pid: *pid,
                    user: user.clone(),
                    command: command.clone(),
                    for_ms: Some(used.since.elapsed().as_millis() as u64),
                    client: known.clone(),
                };
                let of_lock = all.entry(used.lock.to_string()).or_default();
                if used.fence.is_some() { of_lock.held_by.push(line) } else { of_lock.waiting.push(line) }
            }
        }
        // The longest first.
        for of_lock in all.values_mut() {
            of_lock.held_by.sort_by_key(|line| std::cmp::Reverse(line.for_ms));
            of_lock.waiting.sort_by_key(|line| std::cmp::Reverse(line.for_ms));
        }
        all
    }

    /// The clients of one lock.
    pub(crate) fn of_lock(&self, node: &str, lock: &str) -> Uses {
        self.by_lock(node, |name| name == lock).remove(lock).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
