//! How many connections a door takes, from whom, and which of them give way.
//!
//! A connection is a **stranger's** until its client has shown that it may do something here. Then its client is **known**.
//!
//! - A newcomer is always let in. If there are too many strangers, one of them is ended: one of the same source if that has used its share,
//!   else one of any source. Those that have asked nothing yet are ended first, and among these the oldest.
//! - A connection whose client is known is never ended to make room: its client may wait for a lock, or keep a lease alive. Instead, the
//!   requests of a newcomer are refused when there are too many. Each token or user has [a share](crate::shares), and root and the agent's own
//!   user are refused only when there is nothing left: an operator can act while others hold all the rest.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::registry::counts::Gauge;
use crate::shares::{Room, room};

/// How many connections one door takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// One token or user has a share of them.
    pub(crate) known: usize,
    pub(crate) strangers: usize,
    /// Of one source.
    pub(crate) strangers_of_one: usize,
}

impl Limits {
    /// The limits of the API on TCP, for a process that may have so many descriptors. The other doors have theirs left.
    pub(crate) fn of_tcp(descriptors: usize) -> Self {
        Self::new(descriptors / 2, descriptors / 16)
    }

    /// The limits of the API on its Unix socket.
    pub(crate) fn of_unix(descriptors: usize) -> Self {
        Self::new(descriptors / 5, descriptors / 16)
    }

    /// The limits of the agent's own socket. Its clients may be silent for as long as they like.
    pub(crate) fn of_socket(descriptors: usize) -> Self {
        let strangers = (descriptors / 16).clamp(8, 10_000);
        Self { strangers, strangers_of_one: strangers / 2, ..Self::new(descriptors / 10, strangers) }
    }

    fn new(known: usize, strangers: usize) -> Self {
        let (known, strangers) = (known.clamp(16, 10_000), strangers.clamp(8, 1_024));
        Self { known, strangers, strangers_of_one: strangers / 2 }
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// The agent's own user, or root. It has no share: it may use all there is.
    Own,
    /// Another user of this machine, if it is known which.
    User(Option<u32>),
    /// An IPv4 address, or an IPv6 network, where a single host may have as many addresses as it likes.
    Network(IpAddr),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address => address,
        })
    }
}

/// Who a known client is, where connections are counted for each.
pub(crate) type Holder = Option<Arc<str>>;

/// Why a client is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMany {
    #[error("there are {0} connections already")]
    InAll(usize),
    #[error("{0} has {1} connections already")]
    OfOne(Arc<str>, usize),
}

/// The connections of one door.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    table: Mutex<Table>,
    shed: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// Oldest first.
    strangers: BTreeMap<u64, Stranger>,
    known: usize,
    known_of: BTreeMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct Stranger {
    source: Source,
    has_asked: Arc<AtomicBool>,
    /// None until it has begun.
    task: Option<AbortHandle>,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default(), shed: AtomicUsize::new(0) })
    }

    /// Lets a connection in. `spawn` starts its task. Returns true if another one was ended for it.
    pub(crate) fn admit(self: &Arc<Self>, source: Source, spawn: impl FnOnce(Arc<Connection>) -> AbortHandle) -> bool {
        let (mut table, has_asked) = (self.table(), Arc::new(AtomicBool::new(false)));
        let sheds = table.make_room(source, &self.limits);
        if sheds {
            self.shed.fetch_add(1, Ordering::Relaxed);
        }
        let id = table.next;
        table.next += 1;
        table.strangers.insert(id, Stranger { source, has_asked: Arc::clone(&has_asked), task: None });
        drop(table);
        let connection = Arc::new(Connection::new(Arc::clone(self), id, has_asked));
        // Without the lock: a runtime that ends drops the task at once, and the connection with it.
        let task = spawn(Arc::clone(&connection));
        let mut table = self.table();
        match table.strangers.get_mut(&id) {
            Some(stranger) => stranger.task = Some(task),
            None if connection.is_known() => {}
            // It had to give way before it had begun.
            None => task.abort(),
        }
        drop(table);
        sheds
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        let table = self.table();
        table.strangers.len() + table.known
    }

    /// How many were ended to make room.
    pub(crate) fn shed(&self) -> usize {
        self.shed.load(Ordering::Relaxed)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Ends a stranger's connection if there is no room for one more of this source.
    fn make_room(&mut self, source: Source, limits: &Limits) -> bool {
        let of_source = self.strangers.values().filter(|each| each.source == source).count();
        let has_used_its_share = of_source >= limits.strangers_of_one && source != Source::Own;
        if !has_used_its_share && self.strangers.len() < limits.strangers {
            return false;
        }
        let among = self.strangers.iter().filter(|(_, each)| !has_used_its_share || each.source == source);
        let first = among.min_by_key(|(id, each)| (each.has_asked.load(Ordering::Relaxed), **id));
        let Some(id) = first.map(|(id, _)| *id) else { return false };
        let shed = self.strangers.remove(&id);
        shed.and_then(|shed| shed.task).inspect(AbortHandle::abort);
        true
    }

    /// A holder is root or the agent's own user by its source: clients of TCP that need no token have no holder, either.
    fn count_known(&mut self, holder: &Holder, source: Source, limits: &Limits) -> Result<(), TooMany> {
        let of_one = holder.as_ref().and_then(|name| self.known_of.get(name)).copied().unwrap_or_default();
        match (room(limits.known, self.known, of_one, source == Source::Own), holder) {
            (Room::Some, _) => {}
            (Room::NoneOfOne, Some(name)) => return Err(TooMany::OfOne(Arc::clone(name), of_one)),
            (Room::None | Room::NoneOfOne, _) => return Err(TooMany::InAll(self.known)),
        }
        if let Some(name) = holder {
            *self.known_of.entry(Arc::clone(name)).or_default() += 1;
        }
        self.known += 1;
        Ok(())
    }

    fn forget_known(&mut self, holder: &Holder) {
        self.known -= 1;
        let Some(name) = holder else { return };
        if let Some(of_one) = self.known_of.get_mut(name) {
            *of_one -= 1;
            if *of_one == 0 {
                self.known_of.remove(name);
            }
        }
    }
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    door: Arc<Connections>,
    id: u64,
    /// It is counted as that of a known client, and which.
    is_known: AtomicBool,
    holder: Mutex<Holder>,
    has_asked: Arc<AtomicBool>,
    /// Requests that are not over.
    open: AtomicUsize,
    begun: AtomicUsize,
    cut: Notify,
    /// Watches of keys that its client has not ended.
    pub(crate) watches: Arc<Gauge>,
}

impl Connection {
    fn new(door: Arc<Connections>, id: u64, has_asked: Arc<AtomicBool>) -> Self {
        let (is_known, holder) = (AtomicBool::new(false), Mutex::default());
        Self {
            door,
            id,
            is_known,
            holder,
            has_asked,
            open: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            cut: Notify::new(),
            watches: Arc::default(),
        }
    }

    /// A connection of a door that is no more, for tests of handlers.
    #[cfg(test)]
    pub(crate) fn alone() -> Arc<Self> {
        Arc::new(Self::new(Connections::new(Limits::of_socket(usize::MAX)), 0, Arc::default()))
    }

    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// The client may do something here. From now on its connection does not give way to others.
    pub(crate) fn introduce(&self, holder: impl FnOnce() -> Holder) -> Result<(), TooMany> {
        if self.is_known() {
            return Ok(());
        }
        let holder = holder();
        let mut table = self.door.table();
        // It may just have been ended, or two requests may come at once.
        let Some(source) = table.strangers.get(&self.id).map(|stranger| stranger.source) else { return Ok(()) };
        table.count_known(&holder, source, &self.door.limits)?;
        table.strangers.remove(&self.id);
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = holder;
        self.is_known.store(true, Ordering::Release);
        Ok(())
    }

    /// A request begins. It is over when what this returns is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenRequest {
        self.has_asked.store(true, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenRequest(Arc::clone(self))
    }

    /// Ends the connection.
    pub(crate) fn cut(&self) {
        self.cut.notify_one();
    }

    /// Resolves when the connection is to end.
    pub(crate) async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// How many requests are not over.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many have begun, ever.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = self.door.table();
        if self.is_known() {
            let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
            table.forget_known(&holder);
        } else {
            table.strangers.remove(&self.id);
        }
    }
}

/// A request that is not over.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<Connection>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { known: 8, strangers: 6, strangers_of_one: 3 };

    fn come(door: &Arc<Connections>, source: Source) -> (Arc<Connection>, AbortHandle) {
        let mut came = None;
        door.admit(source, |connection| {
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            came = Some((connection, task.clone()));
            task
        });
        came.unwrap()
    }

    fn from(last: u8) -> Source {
        IpAddr::from([10, 0, 0, last]).into()
    }

    async fn is_ended(task: &AbortHandle) -> bool {
        tokio::task::yield_now().await;
        task.is_finished()
    }

    #[tokio::test]
    async fn a_source_beyond_its_share_gives_way_to_itself() {
        let door = Connections::new(LIMITS);
        let (_other, other) = come(&door, from(1));
        let flood: Vec<_> = (0..4).map(|_| come(&door, from(2))).collect();
        assert!(is_ended(&flood[0].1).await && !is_ended(&flood[1].1).await && !is_ended(&other).await);
        assert_eq!((door.shed(), door.len()), (1, 4));
        // A user of this machine is a source, too; the agent's own has no share.
        let own: Vec<_> = (0..2).map(|_| come(&door, Source::Own)).collect();
        assert!(!is_ended(&own[0].1).await);
    }

    #[tokio::test]
    async fn what_has_asked_nothing_gives_way_first_and_what_is_known_never() {
        let door = Connections::new(LIMITS);
        let all: Vec<_> = (0..6).map(|last| come(&door, from(last))).collect();
        all[0].0.introduce(|| None).unwrap();
        drop(all[1].0.begin());
        let more: Vec<_> = (6..9).map(|last| come(&door, from(last))).collect();
        assert!(!is_ended(&all[0].1).await, "the oldest, but its client is known");
        assert!(!is_ended(&all[1].1).await, "it has asked");
        assert!(is_ended(&all[2].1).await && is_ended(&all[3].1).await);
        assert!(!is_ended(&more[2].1).await, "the newest is let in");
    }

    fn of(name: &str) -> Holder {
        Some(Arc::from(name))
    }

    /// As many connections of a known client as it gets, and why it gets no more.
    fn fill(door: &Arc<Connections>, source: Source, holder: &Holder) -> (Vec<Arc<Connection>>, TooMany) {
        let mut all = Vec::new();
        loop {
            let (connection, _) = come(door, source);
            match connection.introduce(|| holder.clone()) {
                Ok(()) => all.push(connection),
                Err(error) => return (all, error),
            }
        }
    }

    #[tokio::test]
    async fn a_client_beyond_its_share_is_not_served() {
        let door = Connections::new(LIMITS);
        let (mut ones, error) = fill(&door, Source::User(Some(1)), &of("a"));
        assert_eq!((ones.len(), error), (4, TooMany::OfOne("a".into(), 4)));
        let (others, error) = fill(&door, Source::User(Some(2)), &of("b"));
        assert_eq!((others.len(), error), (2, TooMany::OfOne("b".into(), 2)));
        ones.truncate(1);
        let (more, _) = fill(&door, Source::User(Some(1)), &of("a"));
        assert_eq!(more.len(), 2, "as much as it leaves");
        drop((ones, others, more));
        assert_eq!(door.len(), 0);
        assert!(door.table().known_of.is_empty());
    }

    /// The operator's break, evict, status and leave come over the same socket.
    #[tokio::test]
    async fn the_agents_own_user_is_served_where_others_have_all_the_rest() {
        for known in [16, 102, 10_000] {
            let door = Connections::new(Limits { known, ..Limits::of_socket(usize::MAX) });
            let users: Vec<_> =
                (1..40).map(|user| fill(&door, Source::User(Some(user)), &of(&format!("user {user}")))).collect();
            let theirs: usize = users.iter().map(|(connections, _)| connections.len()).sum();
            assert!(theirs < known && theirs >= known * 9 / 10, "{theirs} of {known}");
            assert_eq!(users[39 - 1].1, TooMany::InAll(theirs), "others have had as much as they get");
            let (own, error) = fill(&door, Source::Own, &None);
            assert_eq!((own.len(), error), (known - theirs, TooMany::InAll(known)));
        }
    }

    /// A client over TCP that needs no token has no share, and is not the agent's own user for that.
    #[tokio::test]
    async fn who_is_known_without_a_name_leaves_the_last_for_the_agents_own_user() {
        let door = Connections::new(LIMITS);
        let (theirs, error) = fill(&door, from(1), &None);
        assert_eq!((theirs.len(), error), (7, TooMany::InAll(7)));
        come(&door, Source::Own).0.introduce(|| None).unwrap();
    }

    #[test]
    fn all_doors_together_leave_descriptors_for_the_rest() {
        for descriptors in [1_024, 4_096, 65_536] {
            let doors = [Limits::of_tcp(descriptors), Limits::of_unix(descriptors), Limits::of_socket(descriptors)];
            let all: usize = doors.iter().map(|door| door.known + door.strangers).sum();
            assert!(all < descriptors, "{all} of {descriptors}");
        }
        let many = Limits::of_socket(usize::MAX);
        assert_eq!((many.known, many.strangers, many.strangers_of_one), (10_000, 10_000, 5_000));
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::2:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
    }
}
