//! The status of a node and its agent, as lines for clients.

use hallpass::{LockInfo, LockState, Member, Status, ViewState};

use crate::line_protocol::{ClientLine, LockLine, MemberLine, Response, StatusLine, WaitingLine};
use crate::registry::LockClients;
use crate::shared::AgentShared;

impl From<Member> for MemberLine {
    fn from(member: Member) -> Self {
        let state = match (member.in_view, member.connected, member.id) {
            (true, ..) => "member",
            (_, _, 0) => "unknown",
            (_, true, _) => "joining",
            (_, false, _) => "away",
        };
        let why = match (state, member.voter) {
            ("away", true) => {
                Some("it has stopped or failed, and keeps its vote until it is back or replaced".to_owned())
            }
            ("away", false) => Some("it has stopped or failed".to_owned()),
            _ => None,
        };
        Self {
            id: member.id,
            name: member.name,
            address: member.address,
            incarnation: member.incarnation.unwrap_or(0),
            connected: member.connected,
            this: member.is_this,
            trouble: member.trouble.or(why),
            state: state.to_owned(),
            voter: member.voter,
            steward: member.steward,
            session_ms: member.session.map(|left| left.as_millis() as u64),
            keys: member.keys.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The status of an agent and its node.
pub(crate) fn of(agent: &AgentShared) -> StatusLine {
    let status = agent.node_status();
    let name = |id: u32| {
        let member = status.members.iter().find(|member| member.id == id);
        member.map_or_else(|| id.to_string(), name_of)
    };
    let mut voters: Vec<String> = status.voters.iter().map(|voter| name(*voter)).collect();
    voters.sort_unstable();
    let view = match status.view {
        ViewState::Open => "open",
        ViewState::Changing => "changing",
        ViewState::Lapsed => "lapsed",
        ViewState::Joining => "joining",
    };
    StatusLine {
        connected: status.members.iter().filter(|member| member.connected && !member.is_this).count(),
        members: status.members.len(),
        view: view.to_owned(),
        steward: status.steward.map(name),
        voters,
        session_ms: match status.view {
            ViewState::Open | ViewState::Changing => status.session.map(|left| left.as_millis() as u64),
            // Nothing is held, and nothing is certain.
            ViewState::Lapsed | ViewState::Joining => Some(0),
        },
        ttl_ms: status.ttl.as_millis() as u64,
        group: status.group,
        node: status.name,
        complete: status.complete,
        epoch: status.epoch,
        waits_for: status.waits_for,
        banned: status.banned,
        banned_keys: status.banned_keys.iter().map(ToString::to_string).collect(),
        encrypted: status.encrypted,
        clients: agent.clients.len(),
        locks: status.locks,
        messages: status.messages,
        grants: status.grants,
        fences_left: status.fences_left,
        private: agent.private,
    }
}

/// Which locks are wanted.
pub(crate) struct Filter<'a> {
    pub(crate) prefix: &'a str,
    /// The name contains this.
    pub(crate) search: &'a str,
    /// Only those that somebody here holds or wants.
    pub(crate) used: bool,
    /// The name comes after this one.
    pub(crate) after: Option<&'a str>,
    /// The client may know of it.
    pub(crate) allowed: &'a dyn Fn(&str) -> bool,
}

impl Filter<'_> {
    fn takes(&self, name: &str) -> bool {
        name.starts_with(self.prefix)
            && self.after.is_none_or(|after| name > after)
            && name.contains(self.search)
            && (self.allowed)(name)
    }
}

/// The first `limit` locks that are wanted, by name, and how many more there are.
pub(crate) fn page(agent: &AgentShared, filter: &Filter<'_>, limit: usize) -> (Vec<LockLine>, usize) {
    let status = agent.node().status();
    let mut uses = agent.clients.by_lock(&status.name, |name| filter.takes(name));
    let mut locks = agent.node().locks();
    locks.retain(|lock| filter.takes(&lock.name));
    // Before the group is complete only the clients are known.
    let is_known = |name: &str| locks.binary_search_by(|lock| lock.name.as_str().cmp(name)).is_ok();
    let unknown = |(name, uses): &(&String, &LockClients)| uses.held_by.is_empty() && !is_known(name);
    let unknown: Vec<String> = uses.iter().filter(unknown).map(|(name, _)| name.clone()).collect();
    locks.retain(|lock| !filter.used || lock.holders + lock.waiters > 0);
    let known = locks.into_iter().map(|lock| (lock.name.clone(), Some(lock)));
    let mut all: Vec<(String, Option<LockInfo>)> = known.chain(unknown.into_iter().map(|name| (name, None))).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let more = all.len().saturating_sub(limit);
    // Only those that are shown are made up.
    let lines = all.into_iter().take(limit).map(|(name, lock)| {
        let of_lock = uses.remove(&name).unwrap_or_default();
        match lock {
            Some(lock) => {
                ask_who_has(agent, &lock);
                lock_line(lock, of_lock, &status)
            }
            None => waited_for_line(name, of_lock),
        }
    });
    (lines.collect(), more)
}

/// The locks with this prefix after a name, at most `limit`; `held`: only those that somebody here holds or wants.
pub(crate) fn locks(agent: &AgentShared, prefix: &str, held: bool, after: Option<&str>, limit: usize) -> Response {
    let filter = Filter { prefix, search: "", used: held, after, allowed: &|_| true };
    let (locks, more) = page(agent, &filter, limit);
    Response::Locks { locks, more }
}

/// One lock, also if nothing is known of it here.
pub(crate) fn lock(agent: &AgentShared, name: &str) -> LockLine {
    let status = agent.node().status();
    let uses = agent.clients.of_lock(&status.name, name);
    match agent.node().lock_info(name) {
        Some(lock) => {
            ask_who_has(agent, &lock);
            lock_line(lock, uses, &status)
        }
        None => waited_for_line(name.to_owned(), uses),
    }
}

/// Who looks at a lock that is waited for here wants to know who has it. The answer of the lock's home is shown at the next look.
fn ask_who_has(agent: &AgentShared, lock: &LockInfo) {
    if lock.waiters > 0 && lock.held.is_none() {
        agent.node().inquire(&lock.name);
    }
}

/// A lock of which the node knows nothing yet.
fn waited_for_line(name: String, uses: LockClients) -> LockLine {
    LockLine {
        name,
        protocol: String::new(),
        held: None,
        holders: 0,
        waiters: uses.waiting.len(),
        fence: "0".to_owned(),
        place: "unknown".to_owned(),
        held_by: Vec::new(),
        waiting: uses.waiting,
    }
}

fn lock_line(lock: LockInfo, uses: LockClients, status: &Status) -> LockLine {
    let place = match lock.state {
        LockState::Here => "here",
        LockState::Elsewhere => "elsewhere",
        // Without a session others may have it.
        LockState::Cached if !matches!(status.view, ViewState::Lapsed | ViewState::Joining) => "cached",
        _ => "unknown",
    };
    LockLine {
        place: place.to_owned(),
        held_by: holders(uses.held_by, &lock, status),
        waiting: uses.waiting,
        name: lock.name,
        protocol: lock.protocol,
        held: lock.held.map(|mode| mode.to_string()),
        holders: lock.holders,
        waiters: lock.waiters,
        fence: lock.fence.to_string(),
    }
}

/// Clients here that hold the lock; if there are none, the connected members whose permission is missing.
fn holders(here: Vec<ClientLine>, lock: &LockInfo, status: &Status) -> Vec<ClientLine> {
    if !here.is_empty() || lock.held.is_some() {
        return here;
    }
    let members = status.members.iter().filter(|member| member.connected && lock.missing.contains(&member.id));
    let line = |member: &Member| ClientLine {
        node: name_of(member),
        mode: None,
        pid: None,
        user: None,
        command: None,
        for_ms: None,
        client: None,
    };
    members.map(line).collect()
}

/// The reasons why a client waits, as far as this agent knows.
pub(crate) fn waiting(agent: &AgentShared, lock: &str) -> WaitingLine {
    let status = agent.node().status();
    let LockClients { held_by, waiting } = agent.clients.of_lock(&status.name, lock);
    let before = waiting.len().saturating_sub(1);
    let Some(lock) = agent.node().lock_info(lock) else {
        // Outside of a view a node keeps nothing about its locks. It waits for the members that are not connected, or for what it says.
        let mut missing: Vec<String> = absent(&status).map(trouble_of).collect();
        if missing.is_empty() {
            missing.extend(status.waits_for);
        }
        return WaitingLine { held_by, missing, before };
    };
    // Nobody enters without the lock's home either.
    let asked =
        |member: &&Member| !member.connected && (lock.missing.contains(&member.id) || lock.home == Some(member.id));
    let missing = status.members.iter().filter(asked).map(trouble_of).collect();
    WaitingLine { held_by: holders(held_by, &lock, &status), missing, before }
}

/// True if there is nothing new to tell: time that passes is not new.
pub(crate) fn says_the_same(one: &WaitingLine, other: &WaitingLine) -> bool {
    let essence = |line: &WaitingLine| {
        let who = |client: &ClientLine| (client.node.clone(), client.pid);
        (line.held_by.iter().map(who).collect::<Vec<_>>(), line.missing.clone())
    };
    essence(one) == essence(other)
}

/// Why a lock was not free, in one line, if that is known.
pub(crate) fn why_busy(agent: &AgentShared, lock: &str) -> Option<String> {
    let waiting = waiting(agent, lock);
    let missing = waiting.missing.first().cloned().or_else(|| {
        // A client that only tries is refused while any member is not connected.
        let status = agent.node().status();
        let missing = absent(&status).next().map(trouble_of).or_else(|| status.waits_for.clone());
        missing.filter(|_| waiting.held_by.is_empty())
    });
    missing.or_else(|| waiting.held_by.first().map(|holder| format!("held by {}", holder.describe())))
}

/// The members that are missing before locks are granted: those of the view that are not connected. Before there is a view, all others.
fn absent(status: &Status) -> impl Iterator<Item = &Member> {
    let is_open = status.complete;
    status.members.iter().filter(move |member| !member.connected && (member.in_view || !is_open))
}

fn trouble_of(member: &Member) -> String {
    let name = name_of(member);
    match &member.trouble {
        Some(trouble) => format!("member '{name}' is not connected: {trouble}"),
        None if member.incarnation.is_none() => format!("member '{name}' has not connected yet"),
        None => format!("member '{name}' is not connected"),
    }
}

pub(crate) fn name_of(member: &Member) -> String {
    member.name.as_ref().unwrap_or(&member.address).escape_debug().to_string()
}
