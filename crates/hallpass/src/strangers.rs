//! Incoming connections whose peer is not known yet, and which of them gives way when there are too many.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// How many connections may wait for their greeting, not counting those from addresses of members.
const PERMITS_MAX: usize = 64;
/// How many of one source may wait. Where several members have the same address, this many for each.
const PERMITS_A_SOURCE_MAX: usize = 16;

/// Connections that wait for their greeting.
///
/// A newcomer always gets a permit. If none is left, another connection is ended: one of the same source if that has used its share, else
/// one of any source that is not a member's address. A connection that has sent nothing is ended before one that has, since a member
/// greets at once. Among these the oldest is ended first.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Oldest first.
    connections: Vec<Waiting>,
    next: u64,
    /// The sources of members, as far as their addresses tell, with the position of each among the peers.
    members: Vec<(usize, Source)>,
}

struct Waiting {
    id: u64,
    source: Source,
    /// It comes from a member's address.
    is_members: bool,
    has_spoken: bool,
    task: AbortHandle,
}

/// An IPv4 address, or an IPv6 network, where a single host may have as many addresses as it likes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address => address,
        })
    }
}

impl Strangers {
    /// Admits a connection from this address. `spawn` starts its task. Returns true if another connection was ended for it.
    pub(crate) fn admit(self: &Arc<Self>, from: IpAddr, spawn: impl FnOnce(ConnectionPermit) -> AbortHandle) -> bool {
        let mut table = self.table();
        let source = from.into();
        let crowded = table.make_room(source);
        let id = table.next;
        table.next += 1;
        // Under the lock: the task cannot leave before it is here.
        let task = spawn(ConnectionPermit { strangers: Arc::clone(self), id });
        let is_members = table.members_at(source).next().is_some();
        table.connections.push(Waiting { id, source, is_members, has_spoken: false, task });
        crowded
    }

    /// Sets the members' addresses, with their positions among the peers.
    pub(crate) fn set_members(&self, addresses: impl IntoIterator<Item = (usize, IpAddr)>) {
        let mut members: Vec<_> =
            addresses.into_iter().map(|(index, address)| (index, Source::from(address))).collect();
        members.dedup();
        self.table().members = members;
    }

    /// Returns the member at this address, if it is the only one there.
    pub(crate) fn only_member_at(&self, address: IpAddr) -> Option<usize> {
        let table = self.table();
        let mut members = table.members_at(address.into());
        members.next().filter(|_| members.next().is_none())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn members_at(&self, source: Source) -> impl Iterator<Item = usize> {
        self.members.iter().filter(move |(_, of)| *of == source).map(|(index, _)| *index)
    }

    /// Ends a connection if no permit is left for one more of this source.
    fn make_room(&mut self, source: Source) -> bool {
        let members = self.members_at(source).count();
        let is_full = |counts: &dyn Fn(&Waiting) -> bool, limit: usize| {
            self.connections.iter().filter(|each| counts(each)).count() >= limit
        };
        let same: &dyn Fn(&Waiting) -> bool = &|each| each.source == source;
        let strange: &dyn Fn(&Waiting) -> bool = &|each| !each.is_members;
        let gives_way = if is_full(same, PERMITS_A_SOURCE_MAX * members.max(1)) {
            same
        } else if members == 0 && is_full(strange, PERMITS_MAX) {
            strange
        } else {
            return false;
        };
        let among = self.connections.iter().enumerate().filter(|(_, each)| gives_way(each));
        let Some((index, _)) = among.min_by_key(|(_, each)| (each.has_spoken, each.id)) else { return false };
        self.connections.remove(index).task.abort();
        true
    }
}

/// A connection's permit to wait for its greeting, returned when it is dropped.
pub(crate) struct ConnectionPermit {
    strangers: Arc<Strangers>,
    id: u64,
}

impl ConnectionPermit {
    /// Notes that the peer has sent something.
    pub(crate) fn mark_spoken(&self) {
        if let Some(this) = self.strangers.table().connections.iter_mut().find(|each| each.id == self.id) {
            this.has_spoken = true;
        }
    }

    /// Returns the permit of a peer that is known: no stranger takes its connection any more. Returns false if one just has.
    pub(crate) fn leave(self) -> bool {
        self.remove()
    }

    fn remove(&self) -> bool {
        let mut table = self.strangers.table();
        let found = table.connections.iter().position(|each| each.id == self.id);
        found.map(|index| table.connections.remove(index)).is_some()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(strangers: &Arc<Strangers>, from: [u8; 4]) -> (Arc<ConnectionPermit>, AbortHandle) {
        let mut came = None;
        strangers.admit(from.into(), |permit| {
            let permit = Arc::new(permit);
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            came = Some((permit, task.clone()));
            task
        });
        came.unwrap()
    }

    async fn is_ended(task: &AbortHandle) -> bool {
        tokio::task::yield_now().await;
        task.is_finished()
    }

    #[tokio::test]
    async fn a_source_beyond_its_share_gives_way_to_itself() {
        let strangers = Arc::new(Strangers::default());
        let (_other, other) = come(&strangers, [10, 0, 0, 2]);
        let flood: Vec<_> = (0..PERMITS_A_SOURCE_MAX + 1).map(|_| come(&strangers, [10, 0, 0, 1])).collect();
        assert!(is_ended(&flood[0].1).await, "the oldest of the same source");
        assert!(!is_ended(&flood[1].1).await);
        assert!(!is_ended(&other).await);
    }

    #[tokio::test]
    async fn who_has_said_nothing_gives_way_first() {
        let strangers = Arc::new(Strangers::default());
        let all: Vec<_> = (0..PERMITS_MAX as u8).map(|host| come(&strangers, [10, 0, 0, host])).collect();
        all[0].0.mark_spoken();
        let (_newcomer, newcomer) = come(&strangers, [10, 0, 1, 1]);
        assert!(!is_ended(&all[0].1).await, "the oldest, but it has spoken");
        assert!(is_ended(&all[1].1).await);
        assert!(!is_ended(&newcomer).await);
    }

    #[tokio::test]
    async fn members_have_permits_of_their_own_that_no_stranger_takes() {
        let strangers = Arc::new(Strangers::default());
        strangers.set_members([(0, IpAddr::from([10, 0, 0, 1]))]);
        let (_member, member) = come(&strangers, [10, 0, 0, 1]);
        let all: Vec<_> = (0..2 * PERMITS_MAX as u8).map(|host| come(&strangers, [10, 0, 1, host])).collect();
        assert!(!is_ended(&member).await);
        assert!(is_ended(&all[0].1).await);
        let (_second, second) = come(&strangers, [10, 0, 0, 1]);
        assert!(!is_ended(&all[PERMITS_MAX].1).await, "a member takes no stranger's permit");
        assert!(!is_ended(&second).await);
    }

    #[tokio::test]
    async fn members_that_share_an_address_do_not_share_its_permits() {
        let strangers = Arc::new(Strangers::default());
        strangers.set_members([0, 1, 2].map(|index| (index, IpAddr::from([127, 0, 0, 1]))));
        let all: Vec<_> = (0..3 * PERMITS_A_SOURCE_MAX).map(|_| come(&strangers, [127, 0, 0, 1])).collect();
        assert!(!is_ended(&all[0].1).await);
        let (_one_more, _) = come(&strangers, [127, 0, 0, 1]);
        assert!(is_ended(&all[0].1).await);
    }

    #[tokio::test]
    async fn a_connection_that_has_left_is_not_ended_any_more() {
        let strangers = Arc::new(Strangers::default());
        let (permit, task) = come(&strangers, [10, 0, 0, 1]);
        assert!(Arc::into_inner(permit).unwrap().leave());
        let all: Vec<_> = (0..2 * PERMITS_A_SOURCE_MAX).map(|_| come(&strangers, [10, 0, 0, 1])).collect();
        assert!(!is_ended(&task).await);
        let ended = all.into_iter().next().unwrap();
        assert!(!Arc::into_inner(ended.0).unwrap().leave(), "it was ended before it could leave");
    }

    #[test]
    fn a_member_is_known_by_its_address_if_it_is_alone_there() {
        let strangers = Strangers::default();
        let at = |last| IpAddr::from([10, 0, 0, last]);
        strangers.set_members([(0, at(1)), (0, at(1)), (1, at(2)), (2, at(2)), (3, at(3)), (3, at(4))]);
        let found = [1, 2, 3, 4, 5].map(|last| strangers.only_member_at(at(last)));
        assert_eq!(found, [Some(0), None, Some(3), Some(3), None]);
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::2:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
    }
}
