use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hallpass::{AcquireError, AcquireOptions, GroupError, Guard, Mode, Node};
use tracing::{Instrument, Span};

use crate::agent::{GroupFault, State};
use crate::api::{MemberLine, Request, Response, VERSION, WaitingLine};
use crate::lines::Lines;
use crate::os::{self, Connection};
use crate::service::{Entry, Kind, LeaseError, Origin, Service, Used};
use crate::{status, telemetry};

/// A client that waits is told for what after so long, and looked after again as often.
const EXPLAIN_INTERVAL: Duration = Duration::from_secs(1);

/// How often to look at what a client holds: sixteen times in a session, within these bounds.
const LOOK_INTERVALS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];
/// How long the group has to do what it is asked for, unless the client says otherwise.
const GROUP_TIMEOUT: Duration = Duration::from_secs(10);

/// One client, from its connection to its end. Dropping a session releases what it holds.
pub(crate) struct Session {
    state: Arc<State>,
    lines: Lines,
    /// By name and fence. A client that shares a lock with itself holds several guards with one fence.
    held: BTreeMap<(String, u64), Vec<Held>>,
    /// What the client was last told about the session; none before it was told anything.
    told_session: Option<Option<u64>>,
    may_end_agent: bool,
    /// What others are shown of this client. Dropped after the guards.
    entry: Entry,
}

/// A lock that a client holds, and what it was told about it.
struct Held {
    guard: Guard,
    told: Told,
    /// What others are shown of it. Dropped after the guard.
    used: Used,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Held,
    AtRisk,
    Broken,
    Lost,
}

impl Held {
    fn new(guard: Guard, used: Used) -> Self {
        Self { guard, told: Told::Held, used }
    }

    /// What is to be told now. An agent that has come to its end holds nothing, before it gives its locks up.
    fn state(&self, agent: &State) -> Told {
        if self.guard.is_lost() || agent.ending_left().is_some_and(|left| left.is_zero()) {
            Told::Lost
        } else if self.guard.is_broken() {
            Told::Broken
        } else if self.guard.is_at_risk() {
            Told::AtRisk
        } else {
            Told::Held
        }
    }

    /// Until when it is held for certain, by the clock that clients share. There is no other place where that is found out.
    fn valid_until(&self, agent: &State) -> Option<u64> {
        agent.prepare_to_tell();
        let now = os::now();
        agent.bounds(std::iter::once(&self.guard)).deadline(now)
    }

    /// Resolves when there is something to tell that no deadline has told.
    async fn news(&self) {
        match self.told {
            Told::Held => self.guard.at_risk().await,
            _ => self.guard.lost().await,
        }
    }
}

/// What follows a request.
enum Next {
    Answer(Response),
    /// The client or the agent has ended.
    End,
    /// The agent has been asked to leave.
    Leave,
}

impl Session {
    pub(crate) fn new(state: Arc<State>, connection: Connection) -> Self {
        let who = os::credentials(&connection);
        let entry = Entry::new(Arc::clone(&state), Arc::new(Origin::of_process(who)));
        let may_end_agent = os::is_trusted(who.uid);
        let (lines, held) = (Lines::new(connection), BTreeMap::new());
        Self { state, lines, held, told_session: None, may_end_agent, entry }
    }

    /// Answers requests until the client disconnects or the agent ends.
    pub(crate) async fn run(mut self) {
        match self.serve().await {
            Ok(Next::Leave) => {
                let mut leaving = self.state.leaving.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                leaving.push(self.lines);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "a client has disconnected"),
        }
    }

    async fn serve(&mut self) -> std::io::Result<Next> {
        let status = self.state.node().status();
        let (ttl_ms, private) = (status.ttl.as_millis() as u64, self.state.private);
        let welcome = Response::Welcome { version: VERSION, node: status.name, group: status.group, ttl_ms, private };
        self.lines.send(&welcome).await?;
        let mut told = false;
        loop {
            let request = tokio::select! {
                request = self.lines.receive() => request?,
                () = self.state.ends(), if !told => {
                    if self.held.is_empty() {
                        return Ok(Next::End);
                    }
                    told = true;
                    self.lines.send(&Response::Ending { why: "the agent was ended".to_owned() }).await?;
                    self.tell_news().await?;
                    continue;
                }
                () = next_look(&self.state, &self.held) => {
                    self.tell_news().await?;
                    continue;
                }
            };
            let Some(request) = request else { return Ok(Next::End) };
            let next = match request {
                Err(error) => Next::Answer(Response::Error { text: error.to_string() }),
                Ok(request) => self.handle(request).await?,
            };
            match next {
                Next::Answer(response) => self.lines.send(&response).await?,
                end => return Ok(end),
            }
            if told && self.held.is_empty() {
                return Ok(Next::End);
            }
        }
    }

    /// Tells the client what has changed about the locks that it holds.
    async fn tell_news(&mut self) -> std::io::Result<()> {
        let mut news = Vec::new();
        let mut session = None;
        for ((lock, fence), all) in &mut self.held {
            for held in all.iter_mut().filter(|held| held.told != Told::Lost) {
                let (state, until) = (held.state(&self.state), held.valid_until(&self.state));
                if matches!(state, Told::Held | Told::AtRisk) {
                    // The session is the same for all of them: of two looks the later one knows more.
                    session = Some(until);
                }
                let (lock, fence) = (lock.clone(), *fence);
                match state {
                    _ if state == held.told => {}
                    Told::Held => {}
                    Told::AtRisk | Told::Broken => {
                        held.used.tell_news(if state == Told::Broken { Kind::Broken } else { Kind::AtRisk });
                        let (valid_until_ns, broken) = (until.unwrap_or(u64::MAX), state == Told::Broken);
                        news.push(Response::AtRisk { lock, fence, valid_until_ns, broken });
                    }
                    Told::Lost => {
                        held.used.tell_news(Kind::Lost);
                        // Whoever was not told in time that it would be broken is told now why it is lost.
                        if held.told != Told::Broken && held.guard.is_broken() {
                            let valid_until_ns = until.unwrap_or(u64::MAX);
                            news.push(Response::AtRisk { lock: lock.clone(), fence, valid_until_ns, broken: true });
                        }
                        news.push(Response::Lost { lock, fence });
                    }
                }
                held.told = state;
            }
        }
        if let Some(valid_until_ns) = session.filter(|session| is_news(self.told_session.flatten(), *session)) {
            self.told_session = session;
            self.lines.send(&Response::Session { valid_until_ns }).await?;
        }
        for line in news {
            self.lines.send(&line).await?;
        }
        Ok(())
    }

    async fn handle(&mut self, request: Request) -> std::io::Result<Next> {
        if changes_the_group(&request) && !self.may_end_agent {
            let text = "only the agent's own user and root may ask for this".to_owned();
            return Ok(Next::Answer(Response::Error { text }));
        }
        let (node, service) = (self.state.node(), Service::new(Arc::clone(&self.state)));
        let done = match request {
            Request::Acquire { lock, shared, tries, timeout_ms, explain } => {
                let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                let mut options = AcquireOptions::new(mode);
                if tries {
                    options = options.try_now();
                }
                if let Some(limit) = timeout_ms {
                    options = options.timeout(Duration::from_millis(limit));
                }
                let used = self.entry.waits(&lock, mode);
                let span = telemetry::acquire(&lock, mode);
                return self.acquire(lock, options, explain, used, span).await;
            }
            Request::Cancel => return Ok(Next::Answer(Response::Cancelled)),
            Request::Release { lock, fence } => return Ok(Next::Answer(self.release(lock, fence).await)),
            Request::Locks { prefix, held, after, limit } => {
                let limit = limit.unwrap_or(usize::MAX);
                return Ok(Next::Answer(status::locks(&self.state, &prefix, held, after.as_deref(), limit)));
            }
            Request::Members => {
                let members = node.members().into_iter().map(MemberLine::from).collect();
                return Ok(Next::Answer(Response::Members { members }));
            }
            Request::Status => return Ok(Next::Answer(Response::Status(Box::new(status::of(&self.state))))),
            Request::Leave { timeout_ms } => {
                self.lines.send(&Response::Leaving).await?;
                self.state.leave(limit(timeout_ms));
                return Ok(Next::Leave);
            }
            Request::Join { address, timeout_ms } => self.state.join(address, limit(timeout_ms)).await,
            Request::Evict { node: member, ban, timeout_ms } => match find_member(&node, &member) {
                Ok(id) => {
                    let done = service.evict((id, &member), ban, limit(timeout_ms), self.entry.origin()).await;
                    done.map_err(GroupFault::Group)
                }
                Err(text) => return Ok(Next::Answer(Response::Error { text })),
            },
            Request::Admit { name, timeout_ms } => node.admit(name, limit(timeout_ms)).await.map_err(GroupFault::Group),
            Request::Break { lock, timeout_ms } => {
                let done = service.break_lock(&lock, limit(timeout_ms), self.entry.origin()).await;
                done.map_err(GroupFault::Group)
            }
            Request::SetClass { prefix, protocol, options, timeout_ms } => {
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                node.set_class(prefix, protocol, &options, limit(timeout_ms)).await.map_err(GroupFault::Group)
            }
        };
        Ok(Next::Answer(match done {
            Ok(()) => Response::Done,
            Err(GroupFault::Group(GroupError::Timeout)) => Response::Late { why: self.state.node().status().waits_for },
            Err(error) => Response::Error { text: error.to_string() },
        }))
    }

    /// Waits for the lock, and for the client meanwhile.
    async fn acquire(
        &mut self,
        name: String,
        options: AcquireOptions,
        explain: bool,
        used: Used,
        span: Span,
    ) -> std::io::Result<Next> {
        if let Err(why) = self.state.may_grant() {
            return Ok(Next::Answer(Response::Error { text: LeaseError::Uncovered(why).to_string() }));
        }
        // While the agent joins a group, callers wait.
        self.state.is_settled().await;
        let node = self.state.node();
        let lock = node.lock(name.as_str());
        let acquired = lock.acquire_with(options).instrument(span.clone());
        tokio::pin!(acquired);
        let mut told = WaitingLine::default();
        let acquired = loop {
            tokio::select! {
                biased;
                acquired = &mut acquired => break acquired,
                request = self.lines.receive() => return Ok(match request.inspect(|_| self.state.counts.cancelled.add())? {
                    None => Next::End,
                    Some(Ok(Request::Cancel)) => Next::Answer(Response::Cancelled),
                    Some(_) => {
                        let text = "one request at a time: this one has ended the wait".to_owned();
                        Next::Answer(Response::Error { text })
                    }
                }),
                () = self.state.ends() => return Ok(self.refuse_at_end()),
                () = next_look(&self.state, &self.held) => self.tell_news().await?,
                () = tokio::time::sleep(EXPLAIN_INTERVAL), if explain => {
                    let waiting = status::waiting(&self.state, &name);
                    if !status::says_the_same(&waiting, &told) {
                        self.lines.send(&Response::Waiting(waiting.clone())).await?;
                        told = waiting;
                    }
                }
            }
        };
        telemetry::acquired(&span, acquired.as_ref().map(Guard::fence));
        let counts = &self.state.counts;
        match &acquired {
            Ok(_) => {}
            Err(AcquireError::Busy) => counts.busy.add(),
            Err(AcquireError::Timeout) => counts.late.add(),
            Err(_) => counts.refused.add(),
        }
        Ok(Next::Answer(match acquired {
            Ok(guard) => self.granted(name, guard, used),
            Err(AcquireError::Busy) => Response::Busy { why: status::why_busy(&self.state, &name) },
            Err(AcquireError::Timeout) => Response::Late { why: status::why_busy(&self.state, &name) },
            // The agent ends, and the client may look for another one.
            Err(AcquireError::Stopped) => return Ok(self.refuse_at_end()),
            Err(error) => Response::Error { text: error.to_string() },
        }))
    }

    fn granted(&mut self, lock: String, guard: Guard, mut used: Used) -> Response {
        let fence = guard.fence();
        used.granted(fence);
        let held = Held::new(guard, used);
        let valid_until_ns = held.valid_until(&self.state);
        self.told_session = Some(valid_until_ns);
        self.held.entry((lock.clone(), fence)).or_default().push(held);
        Response::Granted { lock, fence, valid_until_ns, ttl_ms: self.state.ttl().as_millis() as u64 }
    }

    /// A client that holds other locks keeps its connection until it has released them.
    fn refuse_at_end(&self) -> Next {
        if self.held.is_empty() {
            return Next::End;
        }
        Next::Answer(Response::Error { text: "the agent was ended".to_owned() })
    }

    async fn release(&mut self, lock: String, fence: u64) -> Response {
        let key = (lock, fence);
        let held = self.held.get_mut(&key).and_then(Vec::pop);
        if self.held.get(&key).is_some_and(Vec::is_empty) {
            self.held.remove(&key);
        }
        let Some(held) = held else { return Response::Released { held: false } };
        let Held { guard, used, .. } = held;
        let held = guard.release().await.is_ok();
        drop(used);
        Response::Released { held }
    }
}

/// Resolves when there is news of what a client holds: at once if something is at risk or lost, when the deadline is over, and now and then, to
/// tell a later one. Never if it holds nothing.
async fn next_look(agent: &State, held: &BTreeMap<(String, u64), Vec<Held>>) {
    let kept = || held.values().flatten().filter(|held| held.told != Told::Lost);
    let Some(first) = kept().next() else { return std::future::pending().await };
    let interval = (agent.ttl() / 16).clamp(LOOK_INTERVALS[0], LOOK_INTERVALS[1]);
    // The session is the same for all of them.
    let until = first.valid_until(agent);
    let left = until.map(|until| Duration::from_nanos(until.saturating_sub(os::now())));
    let mut all: Vec<_> = kept().map(|held| Box::pin(held.news())).collect();
    let any_news = poll_fn(|context| {
        let any = all.iter_mut().any(|news| news.as_mut().poll(context).is_ready());
        if any { Poll::Ready(()) } else { Poll::Pending }
    });
    tokio::select! {
        () = tokio::time::sleep(left.map_or(interval, |left| left.min(interval))) => {}
        () = any_news => {}
        // The first deadline is told at once: another member may be in soon.
        () = first.guard.has_deadline(), if until.is_none() => {}
    }
}

/// True if a deadline is to be told in place of another one. It is derived from clocks anew each time, and never moves back.
fn is_news(told: Option<u64>, now: Option<u64>) -> bool {
    const NOISE_NS: u64 = 1_000_000;
    match (told, now) {
        (Some(told), Some(now)) => now > told + NOISE_NS,
        (told, now) => told.is_some() != now.is_some(),
    }
}

fn limit(timeout_ms: Option<u64>) -> Duration {
    timeout_ms.map_or(GROUP_TIMEOUT, Duration::from_millis)
}

/// True for requests that are not about locks alone.
fn changes_the_group(request: &Request) -> bool {
    match request {
        Request::Acquire { .. }
        | Request::Cancel
        | Request::Release { .. }
        | Request::Locks { .. }
        | Request::Members
        | Request::Status => false,
        Request::Leave { .. }
        | Request::Join { .. }
        | Request::Evict { .. }
        | Request::Admit { .. }
        | Request::Break { .. }
        | Request::SetClass { .. } => true,
    }
}

/// The number of a member, by its name or number.
pub(crate) fn find_member(node: &Node, wanted: &str) -> Result<u32, String> {
    let members = node.members();
    let named = members.iter().filter(|member| member.id != 0 && member.name.as_deref() == Some(wanted));
    // Of several with one name, one that has lost its directory is the old one: the name means the one that takes part.
    let named = named.max_by_key(|member| member.in_view);
    let found = named.or_else(|| members.iter().find(|member| member.id != 0 && member.id.to_string() == wanted));
    found
        .map(|member| member.id)
        .ok_or_else(|| format!("there is no member '{}'; 'hallpass members' lists them", wanted.escape_debug()))
}
