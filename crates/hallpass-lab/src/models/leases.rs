//! What an agent tells its clients: a client with a lease, or one at the socket, holds a lock, and the lease runs out, the session is over, an
//! operator breaks the lock, or the agent ends or is killed. The lock may not pass on while what the client was told says that it holds it.
//!
//! Everything that passes the lock on happens as early as it can. What is told is made by the agent's own types. A client counts on the longest
//! of its answers, from when it sent each request, however late the agent reads that.

use hallpass_check::Space;
use hallpass_core::Ticks;
use hallpass_node::leases::{Bounds, LeaseTerm};
use hallpass_sim::oracle::Violation;

use super::Described;

/// How long a session of the group lasts.
const TTL: Ticks = 6;
/// How long the agent has on disk that the next one waits, from its own settings.
const OWN_TTL: Ticks = 3;
/// One clock may run twice as fast as another.
const DRIFT_PPM: u32 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// An acquire under a lease is answered as if it had been kept alive.
    TtlPastLease,
    /// An agent that ends tells what its session would give.
    ToldPastEnd,
    /// A session is told as if it had just been renewed.
    ToldPastSession,
    /// Clients are told what their own, slower clocks make too long.
    NoDrift,
    /// Clients are told more than the next agent waits.
    ToldUncovered,
    /// A broken lock is lost after a third of a session, though a client was told more.
    BreakPastPromise,
    /// A break waits for the ttl that was told, and not for the drift of the client's clock.
    PromiseWithoutDrift,
    /// An agent that ends waits for nobody.
    EndAtOnce,
}

pub(super) const BUGS: &[(&str, Bug)] = &[
    ("ttl-past-lease", Bug::TtlPastLease),
    ("told-past-end", Bug::ToldPastEnd),
    ("told-past-session", Bug::ToldPastSession),
    ("no-drift", Bug::NoDrift),
    ("told-uncovered", Bug::ToldUncovered),
    ("break-past-promise", Bug::BreakPastPromise),
    ("promise-without-drift", Bug::PromiseWithoutDrift),
    ("end-at-once", Bug::EndAtOnce),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct LeasesModel {
    bug: Option<Bug>,
    /// When the model ends.
    time: u8,
}

impl LeasesModel {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        Self { bug, time: 8 }
    }
}

/// What is the same all the way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Setting {
    access: Access,
    /// How fast the clocks of the agent and of the client run.
    rates: [u8; 2],
    /// Nothing can be written any more: the mark stays as it is.
    disk_full: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Access {
    /// HTTP or gRPC, with a lease of this length.
    Lease(Ticks),
    /// The socket, on the agent's machine: one clock.
    Socket,
}

/// What a client with a lease has asked, and when, by its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Asked {
    acquire: Option<Ticks>,
    keepalive: Option<Ticks>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct LeasesState {
    time: u8,
    setting: Option<Setting>,
    /// Until when the node's session is valid. From here on all by the agent's clock.
    valid_until: Ticks,
    term: Option<LeaseTerm>,
    /// How long the next agent waits, as it is on disk.
    mark: Ticks,
    /// What a break waits for.
    promised_until: Ticks,
    broken_at: Option<Ticks>,
    end: Option<Ticks>,
    killed_at: Option<Ticks>,
    asked: Asked,
    /// The client was granted the lock.
    holds: bool,
    /// Until when it counts on that, by its clock.
    counts_until: Ticks,
    /// The lock has passed on: nothing follows.
    passed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Set(Setting),
    Tick,
    /// The node's session is renewed.
    Renew,
    AskLock,
    AskKeepalive,
    Grant,
    KeepAlive,
    /// The client at the socket is told a new deadline.
    Tell,
    Break,
    End,
    /// The agent that ends gives everything up.
    Stop,
    Kill,
}

impl LeasesState {
    fn now(&self, clock: usize) -> Ticks {
        Ticks::from(self.time) * self.setting.map_or(1, |setting| Ticks::from(setting.rates[clock]))
    }

    fn is_alive(&self) -> bool {
        self.killed_at.is_none() && !self.passed && self.setting.is_some()
    }

    /// The longest that this client counts on without being reached, as the node is told it.
    fn promise_to_node(&mut self, bug: Option<Bug>) {
        let Some(term) = self.term else { return };
        let now = self.now(0);
        let left = if bug == Some(Bug::PromiseWithoutDrift) { term.granted() } else { term.deadline() - now };
        self.promised_until = self.promised_until.max(now + left.min(TTL));
    }

    /// What is certain now. The mark is written first, if that is needed and can be.
    fn bounds(&mut self, bug: Option<Bug>) -> Bounds {
        if self.setting.is_some_and(|setting| !setting.disk_full) {
            self.mark = TTL;
        }
        let valid_until = if bug == Some(Bug::ToldPastSession) { self.now(0) + TTL } else { self.valid_until };
        Bounds {
            held_until: Some(self.broken_at.map_or(valid_until, |at| at.min(valid_until))),
            end: self.end.filter(|_| bug != Some(Bug::ToldPastEnd)),
            covered: if bug == Some(Bug::ToldUncovered) { TTL } else { self.mark },
            session: TTL,
            drift_ppm: if bug == Some(Bug::NoDrift) { 0 } else { DRIFT_PPM },
        }
    }

    /// The agent answers what a client with a lease has sent at this time of its own clock.
    fn answer(&mut self, sent: Ticks, keeps: bool, bug: Option<Bug>) {
        let now = self.now(0);
        let Some(term) = self.term else { return };
        let renewed = term.renewed(now, DRIFT_PPM);
        let mut term = if keeps || bug == Some(Bug::TtlPastLease) { renewed } else { term };
        let before = self.term.replace(term);
        self.promise_to_node(bug);
        let bounds = self.bounds(bug);
        let promise = term.promise(now, &bounds);
        self.term = if keeps || bug != Some(Bug::TtlPastLease) { Some(term) } else { before };
        match promise {
            Some(promise) => {
                self.holds |= !keeps;
                self.counts_until = self.counts_until.max(sent + promise.ttl());
            }
            // What it was told before is what it goes by.
            None => self.term = before,
        }
    }

    /// A client at the socket is told a deadline, of the clock that both have.
    fn tell(&mut self, bug: Option<Bug>) {
        let bounds = self.bounds(bug);
        self.counts_until = self.counts_until.max(bounds.deadline(self.now(0)).unwrap_or(Ticks::MAX));
    }

    /// What is over makes no difference any more.
    fn forget(&mut self) {
        let client = if self.term.is_some() { 1 } else { 0 };
        let forget = |until: &mut Ticks, now: Ticks| *until = if *until <= now { 0 } else { *until };
        let (now, of_client) = (self.now(0), self.now(client));
        forget(&mut self.promised_until, now);
        forget(&mut self.counts_until, of_client);
    }

    /// Why another one can be granted the lock now, if that is so.
    fn passes(&self) -> Option<&'static str> {
        let now = self.now(0);
        let is_over = |at: Option<Ticks>| at.is_some_and(|at| now >= at);
        if now >= self.valid_until {
            return Some("the agent's session is over");
        }
        if self.killed_at.is_some_and(|at| now >= at + self.mark.max(OWN_TTL)) {
            return Some("the next agent has waited");
        }
        if self.killed_at.is_some() {
            return None;
        }
        if is_over(self.broken_at) {
            return Some("an operator has broken the lock");
        }
        let ending = self.end.is_some();
        if self.term.is_some_and(|term| term.is_over(now, ending)) {
            return Some("the lease is over");
        }
        is_over(self.end).then_some("the agent has ended")
    }

    /// The lock passes on, and its client must know.
    fn pass(&mut self, why: &str) -> Option<Violation> {
        self.passed = true;
        let now = self.now(if self.term.is_some() { 1 } else { 0 });
        let is_told = self.holds && now < self.counts_until;
        let text =
            format!("{why}, and a client was told that it holds the lock until {} of its clock", self.counts_until);
        is_told.then_some(Violation { property: "told", text })
    }
}

impl Space for LeasesModel {
    type State = LeasesState;
    type Step = Step;

    fn first(&self) -> LeasesState {
        LeasesState {
            time: 0,
            setting: None,
            valid_until: TTL,
            term: None,
            mark: OWN_TTL,
            promised_until: 0,
            broken_at: None,
            end: None,
            killed_at: None,
            asked: Asked::default(),
            holds: false,
            counts_until: 0,
            passed: false,
        }
    }

    fn steps(&self, state: &LeasesState, steps: &mut Vec<Step>) {
        if state.setting.is_none() {
            for disk_full in [false, true] {
                let set = |access, rates| Step::Set(Setting { access, rates, disk_full });
                steps.push(set(Access::Socket, [1, 1]));
                for lease in [2, 5] {
                    steps.extend([[1, 1], [1, 2], [2, 1]].map(|rates| set(Access::Lease(lease), rates)));
                }
            }
            return;
        }
        if state.passed {
            return;
        }
        if state.time < self.time {
            steps.push(Step::Tick);
        }
        if !state.is_alive() {
            return;
        }
        if state.valid_until < state.now(0) + TTL {
            steps.push(Step::Renew);
        }
        if state.term.is_some() {
            let Asked { acquire, keepalive } = state.asked;
            if !state.holds {
                steps.push(if acquire.is_none() { Step::AskLock } else { Step::Grant });
            }
            steps.push(if keepalive.is_none() { Step::AskKeepalive } else { Step::KeepAlive });
        } else {
            steps.push(Step::Tell);
        }
        if state.broken_at.is_none() && state.holds {
            steps.push(Step::Break);
        }
        match state.end {
            None => steps.push(Step::End),
            // It waits for those who hold.
            Some(_) if !state.holds || self.bug == Some(Bug::EndAtOnce) => steps.push(Step::Stop),
            Some(_) => {}
        }
        steps.push(Step::Kill);
    }

    fn apply(&mut self, state: &mut LeasesState, step: Step) -> Option<Violation> {
        let (now, of_client) = (state.now(0), state.now(1));
        match step {
            Step::Set(setting) => {
                state.setting = Some(setting);
                match setting.access {
                    Access::Lease(granted) => {
                        state.term = Some(LeaseTerm::new(granted, 0, DRIFT_PPM));
                        state.answer(0, true, self.bug);
                    }
                    Access::Socket => {
                        state.holds = true;
                        state.tell(self.bug);
                    }
                }
            }
            Step::Tick => {
                state.time += 1;
                state.forget();
                return state.passes().and_then(|why| state.pass(why));
            }
            Step::Renew => state.valid_until = now + TTL,
            Step::AskLock => state.asked.acquire = Some(of_client),
            Step::AskKeepalive => state.asked.keepalive = Some(of_client),
            Step::Grant => {
                let sent = state.asked.acquire.take()?;
                state.answer(sent, false, self.bug);
            }
            Step::KeepAlive => {
                let sent = state.asked.keepalive.take()?;
                state.answer(sent, true, self.bug);
            }
            Step::Tell => state.tell(self.bug),
            Step::Break => {
                let waits = if self.bug == Some(Bug::BreakPastPromise) { 0 } else { state.promised_until };
                let at = (now + TTL / 3).max(waits);
                state.broken_at = Some(at);
                if state.term.is_none() {
                    // It is told at once, and has this long to end.
                    state.counts_until = state.counts_until.min(at);
                }
            }
            Step::End => state.end = Some(now + TTL),
            Step::Stop => return state.pass("the agent has stopped"),
            Step::Kill => state.killed_at = Some(now),
        }
        None
    }

    fn must_happen(&self, _: Step) -> bool {
        true
    }

    /// Time is up, or the lock has passed on.
    fn check_end(&self, state: &LeasesState) -> Option<Violation> {
        let is_over = state.passed || state.time >= self.time;
        (!is_over).then(|| Violation { property: "progress", text: "the agent is stuck".to_owned() })
    }
}

impl Described for LeasesModel {
    const NODES: u32 = 1;

    fn describe(&self, state: &LeasesState, step: Step) -> String {
        let (now, of_client) = (state.now(0), state.now(1));
        match step {
            Step::Set(Setting { access, rates: [agent, client], disk_full }) => {
                let who = match access {
                    Access::Lease(granted) => format!("a client gets a lease of {granted}"),
                    Access::Socket => "a client at the socket holds the lock".to_owned(),
                };
                let disk = if disk_full { ", and the disk is full" } else { "" };
                format!("{who}; the agent's clock runs at rate {agent}, the client's at {client}{disk}")
            }
            Step::Tick => format!("time {} begins", state.time + 1),
            Step::Renew => format!("the agent's session is renewed at its time {now}"),
            Step::AskLock => format!("the client asks for the lock at its time {of_client}"),
            Step::AskKeepalive => format!("the client sends a keepalive at its time {of_client}"),
            Step::Grant => format!("the agent grants the lock at its time {now}"),
            Step::KeepAlive => format!("the agent answers the keepalive at its time {now}"),
            Step::Tell => format!("the agent tells a deadline at its time {now}"),
            Step::Break => format!("an operator breaks the lock at the agent's time {now}"),
            Step::End => format!("the agent begins to end at its time {now}"),
            Step::Stop => format!("the agent stops at its time {now}"),
            Step::Kill => format!("the agent is killed at its time {now}"),
        }
    }
}
