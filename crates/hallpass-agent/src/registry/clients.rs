//! The clients of an agent, the locks that they hold, and those that they wait for. People ask here why a lock is not free.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hallpass::Mode;
use tokio::sync::Notify;

use super::counts::Counts;
use super::events::{Event, EventKind, Events};
use crate::line_protocol::ClientLine;
use crate::os::{self, Credentials};

/// All clients: connections to the socket, leases, and requests of the API that wait.
#[derive(Debug)]
pub(crate) struct Clients {
    table: Mutex<Table>,
    /// Notified when a client leaves.
    left: Notify,
    counts: Arc<Counts>,
    events: Arc<Events>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    clients: BTreeMap<u64, Client>,
}

/// Where a client comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its process, its user and what it runs, as the system knows them, if it came through a Unix socket.
    pub(crate) pid: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) user: Option<String>,
    pub(crate) command: Option<String>,
    /// Where it comes from, if it came over TCP.
    pub(crate) address: Option<String>,
    /// The name of its token.
    pub(crate) token: Option<String>,
}

impl Origin {
    /// A process of this machine.
    pub(crate) fn of_process(who: Credentials) -> Self {
        let (user, command) = (who.uid.map(os::user_name), who.pid.and_then(os::command_of));
        Self { pid: who.pid, uid: who.uid, user, command, address: None, token: None }
    }

    /// Its address and its token, as other clients see them.
    pub(crate) fn client(&self) -> Option<String> {
        let token = self.token.as_ref().map(|token| format!("(token {token})"));
        let known: Vec<String> = self.address.iter().cloned().chain(token).collect();
        (!known.is_empty()).then(|| known.join(" "))
    }

    /// Who it is, for the audit lines.
    pub(crate) fn who(&self) -> String {
        match (&self.token, self.uid, &self.user) {
            (Some(token), _, _) => format!("token {token}"),
            (None, Some(uid), Some(user)) if *user != uid.to_string() => format!("user {user} ({uid})"),
            (None, Some(uid), _) => format!("user {uid}"),
            (None, None, _) => "anybody".to_owned(),
        }
    }

    /// Where it comes from, for the audit lines.
    pub(crate) fn from(&self) -> String {
        match (self.pid, &self.address) {
            (Some(pid), _) => format!("unix socket, pid {pid}"),
            (None, Some(address)) => format!("tcp {address}"),
            (None, None) => "unknown".to_owned(),
        }
    }
}

#[derive(Debug)]
struct Client {
    origin: Arc<Origin>,
    uses: BTreeMap<u64, LockUse>,
}

/// A lock that a client holds or waits for.
#[derive(Debug)]
struct LockUse {
    lock: Arc<str>,
    mode: Mode,
    /// None while the client waits.
    fence: Option<u64>,
    since: Instant,
}

/// The clients of one lock.
#[derive(Debug, Default)]
pub(crate) struct LockClients {
    pub(crate) held_by: Vec<ClientLine>,
    pub(crate) waiting: Vec<ClientLine>,
}

/// Registers a client among the others, until it is dropped.
#[derive(Debug)]
pub(crate) struct ClientRegistration {
    clients: Arc<Clients>,
    id: u64,
    origin: Arc<Origin>,
}

impl ClientRegistration {
    pub(crate) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The client waits for a lock from now on.
    pub(crate) fn waits(&self, lock: &str, mode: Mode) -> UseGuard {
        let (name, since): (Arc<str>, _) = (lock.into(), Instant::now());
        let mut table = self.clients.lock();
        let number = table.next;
        table.next += 1;
        if let Some(client) = table.clients.get_mut(&self.id) {
            client.uses.insert(number, LockUse { lock: Arc::clone(&name), mode, fence: None, since });
        }
        drop(table);
        let (clients, origin) = (Arc::clone(&self.clients), Arc::clone(&self.origin));
        UseGuard { clients, origin, client: self.id, number, lock: name, since, fence: None, lost: false }
    }
}

impl Drop for ClientRegistration {
    fn drop(&mut self) {
        self.clients.lock().clients.remove(&self.id);
        self.clients.left.notify_waiters();
    }
}

/// Shows that a client waits for a lock or holds it, until it is dropped. Drop it after the lock's guard: a client that still holds
/// something must not look gone.
#[derive(Debug)]
pub(crate) struct UseGuard {
    clients: Arc<Clients>,
    origin: Arc<Origin>,
    client: u64,
    number: u64,
    lock: Arc<str>,
    since: Instant,
    fence: Option<u64>,
    lost: bool,
}

impl UseGuard {
    /// The client holds it.
    pub(crate) fn granted(&mut self, fence: u64) {
        let now = Instant::now();
        self.clients.counts.waits.observe(now - self.since);
        (self.fence, self.since) = (Some(fence), now);
        if let Some(used) = self.clients.lock().used(self.client, self.number) {
            (used.fence, used.since) = (Some(fence), now);
        }
        self.tell(EventKind::Granted);
    }

    /// Reports something that the client did not ask for. A lock that is lost is not released.
    pub(crate) fn report(&mut self, news: EventKind) {
        self.lost |= news == EventKind::Lost;
        if news == EventKind::Lost {
            self.clients.counts.losses.add();
        }
        self.tell(news);
    }

    fn tell(&self, kind: EventKind) {
        self.clients.events.send(kind, || Event {
            lock: Some(self.lock.to_string()),
            fence: self.fence.map(|fence| fence.to_string()),
            client: self.origin.client().or_else(|| self.origin.pid.map(|pid| format!("pid {pid}"))),
            ..Event::default()
        });
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        if let Some(client) = self.clients.lock().clients.get_mut(&self.client) {
            client.uses.remove(&self.number);
        }
        if self.fence.is_none() {
            return;
        }
        self.clients.counts.holds.observe(self.since.elapsed());
        if !self.lost {
            self.tell(EventKind::Released);
        }
    }
}

impl Table {
    fn used(&mut self, client: u64, number: u64) -> Option<&mut LockUse> {
        self.clients.get_mut(&client)?.uses.get_mut(&number)
    }
}

impl Clients {
    pub(crate) fn new(counts: Arc<Counts>, events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), left: Notify::new(), counts, events })
    }

    /// Adds a client.
    pub(crate) fn register(self: &Arc<Self>, origin: Arc<Origin>) -> ClientRegistration {
        let mut table = self.lock();
        let id = table.next;
        table.next += 1;
        table.clients.insert(id, Client { origin: Arc::clone(&origin), uses: BTreeMap::new() });
        drop(table);
        ClientRegistration { clients: Arc::clone(self), id, origin }
    }

    /// Resolves when a client leaves, and at once if there is none.
    pub(crate) async fn client_left(&self) {
        let left = self.left.notified();
        tokio::pin!(left);
        left.as_mut().enable();
        if self.len() > 0 {
            left.await;
        }
    }

    /// Resolves when there has been no client for this long; without a limit, never.
    pub(crate) async fn idle_for(&self, limit: Option<Duration>) {
        let Some(limit) = limit else { return std::future::pending().await };
        loop {
            self.client_left().await;
            tokio::select! {
                () = tokio::time::sleep(limit) => if self.len() == 0 { return },
                () = self.left.notified() => {}
            }
        }
    }

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
    pub(crate) fn by_lock(&self, node: &str, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, LockClients> {
        let table = self.lock();
        let mut all: BTreeMap<String, LockClients> = BTreeMap::new();
        for client in table.clients.values() {
            let Origin { pid, user, command, .. } = &*client.origin;
            let known = client.origin.client();
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
    pub(crate) fn of_lock(&self, node: &str, lock: &str) -> LockClients {
        self.by_lock(node, |name| name == lock).remove(lock).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
