use std::sync::Arc;
use std::time::Duration;

use hallpass::{GroupError, Mode};

use crate::connections::{Connection as Permit, Holder};
use crate::line_protocol::{MemberLine, Request, Response, VERSION, WaitingLine};
use crate::lines::Lines;
use crate::os::{self, Connection};
use crate::outcome::GroupFault;
use crate::registry::Origin;
use crate::service::{AcquireFault, ConnectionHolds, Hold, LeaseError, News, Service, Wanted};
use crate::{audit, status};

/// How often to check whether a waiting client is to be told something new about what it waits for.
const EXPLAIN_INTERVAL: Duration = Duration::from_secs(1);
/// How long the member that knows has for its answer. A round trip between members is rarely longer; a later answer is told next time.
const ANSWER_TIME: Duration = Duration::from_millis(20);
/// How long the group has to do what it is asked for, unless the client says otherwise.
const GROUP_TIMEOUT: Duration = Duration::from_secs(10);

/// One client, from its connection to its end. Dropping a session releases what the client holds.
pub(crate) struct Session {
    service: Service,
    lines: Lines,
    holds: ConnectionHolds,
    may_end_agent: bool,
    /// The connection can only release what it holds. That never ends: others have it too.
    is_hold_only: bool,
    permit: Arc<Permit>,
    /// Whose connection it is, where each user has a share of them.
    holder: Holder,
}

/// The next step after a request.
enum Next {
    Answer(Response),
    /// The client or the agent has ended.
    End,
    /// The agent has been asked to leave.
    Leave,
}

impl Session {
    pub(crate) fn new(service: Service, connection: Connection, permit: Arc<Permit>) -> Self {
        let who = os::credentials(&connection);
        let origin = Arc::new(Origin::of_process(who));
        let user = || format!("user {}", origin.user.as_deref().unwrap_or("?")).into();
        let holder = (!os::is_trusted(who.uid)).then(user);
        let holds = ConnectionHolds::new(service.clone(), origin);
        Self {
            service,
            lines: Lines::new(connection),
            holds,
            may_end_agent: os::is_trusted(who.uid),
            is_hold_only: false,
            permit,
            holder,
        }
    }

    /// Answers requests until the client disconnects or the agent ends.
    pub(crate) async fn run(mut self) {
        match self.serve().await {
            Ok(Next::Leave) => self.service.shared().answer_when_left(self.lines),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "client disconnected"),
        }
    }

    async fn serve(&mut self) -> std::io::Result<Next> {
        let shared = self.service.shared().clone();
        let status = shared.node().status();
        let (ttl_ms, private) = (status.ttl.as_millis() as u64, shared.private);
        let welcome = Response::Welcome { version: VERSION, node: status.name, group: status.group, ttl_ms, private };
        self.lines.send(&welcome).await?;
        let mut told_end = false;
        loop {
            let request = tokio::select! {
                request = self.lines.receive() => request?,
                () = shared.ends(), if !told_end => {
                    if self.holds.is_empty() {
                        return Ok(Next::End);
                    }
                    told_end = true;
                    self.lines.send(&Response::Ending { why: "the agent was ended".to_owned() }).await?;
                    self.tell_news().await?;
                    continue;
                }
                () = self.holds.next_look() => {
                    self.tell_news().await?;
                    continue;
                }
            };
            let Some(request) = request else { return Ok(Next::End) };
            let next = match request {
                Err(error) => Next::Answer(Response::Error { text: error.to_string() }),
                Ok(request) => match self.permit.introduce(|| self.holder.clone()) {
                    Ok(()) => self.handle(request).await?,
                    Err(error) => Next::Answer(Response::Error { text: error.to_string() }),
                },
            };
            match next {
                Next::Answer(response) => self.lines.send(&response).await?,
                end => return Ok(end),
            }
            if told_end && self.holds.is_empty() {
                return Ok(Next::End);
            }
        }
    }

    /// Tells the client what has changed about the locks that it holds.
    async fn tell_news(&mut self) -> std::io::Result<()> {
        for news in self.holds.look() {
            self.lines.send(&line(news)).await?;
        }
        Ok(())
    }

    async fn handle(&mut self, request: Request) -> std::io::Result<Next> {
        if self.is_hold_only && !matches!(request, Request::Release { .. }) {
            let text = "this connection keeps a lock for a command, and can do nothing but release it".to_owned();
            return Ok(Next::Answer(Response::Error { text }));
        }
        if changes_the_group(&request) && !self.may_end_agent {
            audit::refused(&asked(&request), self.holds.origin());
            let text = "only the agent's own user and root may ask for this".to_owned();
            return Ok(Next::Answer(Response::Error { text }));
        }
        let shared = self.service.shared();
        Ok(Next::Answer(match request {
            Request::Acquire { lock, shared, tries, timeout_ms, explain, hold_only } => {
                let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                let wanted = Wanted { mode, tries, timeout: timeout_ms.map(Duration::from_millis) };
                let next = self.acquire(lock, wanted, explain).await;
                self.is_hold_only = hold_only && matches!(next, Ok(Next::Answer(Response::Granted { .. })));
                return next;
            }
            Request::Leave { timeout_ms } => {
                audit::record_begun("leave", &shared.node().status().name, self.holds.origin());
                self.lines.send(&Response::Leaving).await?;
                self.service.shared().leave(limit(timeout_ms));
                return Ok(Next::Leave);
            }
            Request::Cancel => Response::Cancelled,
            Request::Release { lock, fence } => Response::Released { held: self.holds.release(lock, fence).await },
            Request::Locks { prefix, held, after, limit } => {
                status::locks(shared, &prefix, held, after.as_deref(), limit.unwrap_or(usize::MAX))
            }
            Request::Members => {
                Response::Members { members: shared.node().members().into_iter().map(MemberLine::from).collect() }
            }
            Request::Status => Response::Status(Box::new(status::of(shared))),
            Request::Join { address, timeout_ms } => {
                let joined = shared.join(address.clone(), limit(timeout_ms)).await;
                self.recorded("join", &address, joined)
            }
            Request::Evict { node, ban, timeout_ms } => match self.service.find_member(&node) {
                Ok(id) => {
                    let (limit, by) = (timeout_ms.map(Duration::from_millis), self.holds.origin());
                    self.done(self.service.evict((id, &node), ban, limit, by).await)
                }
                Err(text) => Response::Error { text },
            },
            Request::Admit { name, timeout_ms } => {
                let admitted = shared.node().admit(name.clone(), limit(timeout_ms)).await;
                self.recorded("admit", &name, admitted)
            }
            Request::BanKey { key, timeout_ms } => self.ban_key(&key, true, timeout_ms).await,
            Request::AdmitKey { key, timeout_ms } => self.ban_key(&key, false, timeout_ms).await,
            Request::Break { lock, timeout_ms } => {
                self.done(self.service.break_lock(&lock, limit(timeout_ms), self.holds.origin()).await)
            }
            Request::SetClass { prefix, protocol, options, timeout_ms } => {
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                let what = [&[prefix.as_str(), protocol.as_str()], &options[..]].concat().join(" ");
                let set = shared.node().set_class(prefix, protocol, &options, limit(timeout_ms)).await;
                self.recorded("class set", &what, set)
            }
        }))
    }

    /// The same as [`done`](Self::done), with a line for the audit.
    fn recorded(&self, action: &str, what: &str, done: Result<(), impl Into<GroupFault>>) -> Response {
        let done = done.map_err(Into::into);
        audit::record(action, what, self.holds.origin(), &done);
        self.done(done)
    }

    /// The answer to what was asked of the group.
    fn done(&self, done: Result<(), impl Into<GroupFault>>) -> Response {
        match done.map_err(Into::into) {
            Ok(()) => Response::Done,
            Err(GroupFault::Group(GroupError::Timeout)) => {
                Response::Late { why: self.service.shared().node().status().waits_for }
            }
            Err(error) => Response::Error { text: error.to_string() },
        }
    }

    /// Waits for the lock, and for the client meanwhile.
    async fn acquire(&mut self, lock: String, wanted: Wanted, explain: bool) -> std::io::Result<Next> {
        let acquired = self.holds.acquire(&lock, wanted);
        tokio::pin!(acquired);
        let mut told = WaitingLine::default();
        let mut is_asked = false;
        let acquired = loop {
            tokio::select! {
                biased;
                acquired = &mut acquired => break acquired,
                request = self.lines.receive() => return Ok(match request? {
                    None => Next::End,
                    Some(Ok(Request::Cancel)) => Next::Answer(Response::Cancelled),
                    Some(_) => {
                        let text = "one request at a time: this one has ended the wait".to_owned();
                        Next::Answer(Response::Error { text })
                    }
                }),
                () = self.holds.next_look() => self.tell_news().await?,
                // The member that keeps the lock's order is asked, and its answer is looked at a moment later.
                () = tokio::time::sleep(if is_asked { ANSWER_TIME } else { EXPLAIN_INTERVAL }), if explain => {
                    is_asked = !is_asked;
                    if is_asked {
                        self.service.shared().node().inquire(&lock);
                        continue;
                    }
                    let waiting = status::waiting(self.service.shared(), &lock);
                    if !status::says_the_same(&waiting, &told) {
                        self.lines.send(&Response::Waiting(waiting.clone())).await?;
                        told = waiting;
                    }
                }
            }
        };
        Ok(match acquired {
            Ok(hold) => Next::Answer(self.granted(lock, hold)),
            // The agent ends, and the client may look for another one, unless it has locks to release first.
            Err(AcquireFault::Lease(LeaseError::Ending)) if self.holds.is_empty() => Next::End,
            Err(AcquireFault::Busy(why)) => Next::Answer(Response::Busy { why }),
            Err(AcquireFault::Late(why)) => Next::Answer(Response::Late { why }),
            Err(fault) => Next::Answer(Response::Error { text: fault.to_string() }),
        })
    }

    /// Bans a key, or accepts it again.
    async fn ban_key(&mut self, key: &str, is_banned: bool, timeout_ms: Option<u64>) -> Response {
        match key.parse() {
            Ok(key) => {
                let by = self.holds.origin();
                self.done(self.service.ban_key(key, is_banned, limit(timeout_ms), by).await)
            }
            Err(why) => Response::Error { text: format!("'{}' is not a key: {why}", key.escape_debug()) },
        }
    }

    fn granted(&mut self, lock: String, hold: Hold) -> Response {
        let (fence, ttl) = (hold.fence(), self.service.shared().ttl());
        let valid_until_ns = self.holds.insert(lock.clone(), hold);
        Response::Granted { lock, fence, valid_until_ns, ttl_ms: ttl.as_millis() as u64 }
    }
}

fn line(news: News) -> Response {
    match news {
        News::Session(valid_until_ns) => Response::Session { valid_until_ns },
        News::AtRisk { lock, fence, deadline, broken } => {
            Response::AtRisk { lock, fence, valid_until_ns: deadline.unwrap_or(u64::MAX), broken }
        }
        News::Lost { lock, fence } => Response::Lost { lock, fence },
    }
}

/// A request that changes the group, in words.
fn asked(request: &Request) -> String {
    match request {
        Request::Leave { .. } => "leave".to_owned(),
        Request::Join { address, .. } => format!("join {address}"),
        Request::Evict { node, ban, .. } => format!("{} {node}", if *ban { "ban" } else { "evict" }),
        Request::Admit { name, .. } => format!("admit {name}"),
        Request::BanKey { key, .. } => format!("ban key {key}"),
        Request::AdmitKey { key, .. } => format!("admit key {key}"),
        Request::Break { lock, .. } => format!("break {lock}"),
        Request::SetClass { prefix, protocol, .. } => format!("class set {prefix} {protocol}"),
        _ => "a request that changes nothing".to_owned(),
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
        | Request::BanKey { .. }
        | Request::AdmitKey { .. }
        | Request::Break { .. }
        | Request::SetClass { .. } => true,
    }
}
