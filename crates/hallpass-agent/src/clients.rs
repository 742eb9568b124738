//! Who the clients of an agent are, what they hold and what they wait for: for people who ask why a lock is not free.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hallpass::Mode;

use crate::api::ClientLine;
use crate::os::{self, Credentials};

/// All clients that are connected.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    clients: BTreeMap<u64, Client>,
}

/// One client: a process that has connected, as the system knows it.
#[derive(Debug)]
struct Client {
    pid: Option<u32>,
    user: Option<String>,
    command: Option<String>,
    uses: Vec<Use>,
}

/// A lock that a client holds or waits for.
#[derive(Debug)]
struct Use {
    lock: String,
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
    state: std::sync::Arc<crate::agent::State>,
    id: u64,
}

impl Entry {
    pub(crate) fn new(state: std::sync::Arc<crate::agent::State>, who: Credentials) -> Self {
        let client = Client {
            pid: who.pid,
            user: who.uid.map(os::user_name),
            command: who.pid.and_then(os::command_of),
            uses: Vec::new(),
        };
        let mut table = state.clients.lock();
        let id = table.next;
        table.next += 1;
        table.clients.insert(id, client);
        drop(table);
        Self { state, id }
    }

    pub(crate) fn waits(&self, lock: &str, mode: Mode) {
        let lock = lock.to_owned();
        self.change(|uses| uses.push(Use { lock, mode, fence: None, since: Instant::now() }));
    }

    /// A client waits for one lock at a time.
    pub(crate) fn waits_no_more(&self) {
        self.change(|uses| uses.retain(|used| used.fence.is_some()));
    }

    pub(crate) fn holds(&self, granted: u64) {
        self.change(|uses| {
            for used in uses.iter_mut().filter(|used| used.fence.is_none()) {
                (used.fence, used.since) = (Some(granted), Instant::now());
            }
        });
    }

    pub(crate) fn released(&self, lock: &str, fence: u64) {
        self.change(|uses| {
            if let Some(index) = uses.iter().position(|used| used.lock == lock && used.fence == Some(fence)) {
                uses.swap_remove(index);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Use>)) {
        if let Some(client) = self.state.clients.lock().clients.get_mut(&self.id) {
            change(&mut client.uses);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.state.clients.lock().clients.remove(&self.id);
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

    /// The clients of every lock, by its name. `node` is where they are.
    pub(crate) fn by_lock(&self, node: &str) -> BTreeMap<String, Uses> {
        self.uses(node, |_| true)
    }

    /// The clients of one lock.
    pub(crate) fn of_lock(&self, node: &str, lock: &str) -> Uses {
        self.uses(node, |name| name == lock).remove(lock).unwrap_or_default()
    }

    fn uses(&self, node: &str, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Uses> {
        let table = self.lock();
        let mut all: BTreeMap<String, Uses> = BTreeMap::new();
        for client in table.clients.values() {
            for used in client.uses.iter().filter(|used| wanted(&used.lock)) {
                let line = ClientLine {
                    node: node.to_owned(),
                    mode: Some(used.mode.to_string()),
                    pid: client.pid,
                    user: client.user.clone(),
                    command: client.command.clone(),
                    for_ms: Some(used.since.elapsed().as_millis() as u64),
                };
                let of_lock = all.entry(used.lock.clone()).or_default();
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

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
