use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hallpass::{AcquireError, AcquireOptions, Guard, Mode};

use crate::agent::{Ended, State};
use crate::api::{MemberLine, Request, Response, VERSION, WaitingLine};
use crate::clients::Entry;
use crate::lines::Lines;
use crate::os::{self, Connection};
use crate::status;

/// A client that waits is told for what after so long, and looked after again as often.
const EXPLAIN_INTERVAL: Duration = Duration::from_secs(1);

/// One client, from its connection to its end. Dropping a session releases what it holds.
pub(crate) struct Session {
    state: Arc<State>,
    lines: Lines,
    /// By name and fence. A client that shares a lock with itself holds several guards with one fence.
    held: BTreeMap<(String, u64), Vec<Guard>>,
    may_end_agent: bool,
    /// What others are shown of this client. Dropped after the guards.
    entry: Entry,
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
        let entry = Entry::new(Arc::clone(&state), who);
        let may_end_agent = os::is_trusted(who.uid);
        Self { state, lines: Lines::new(connection), held: BTreeMap::new(), may_end_agent, entry }
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
        let status = self.state.node.status();
        let (ttl_ms, private) = (self.state.ttl.as_millis() as u64, self.state.private);
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

    async fn handle(&mut self, request: Request) -> std::io::Result<Next> {
        Ok(Next::Answer(match request {
            Request::Acquire { lock, shared, tries, timeout_ms, explain } => {
                let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                let mut options = AcquireOptions::new(mode);
                if tries {
                    options = options.try_now();
                }
                if let Some(limit) = timeout_ms {
                    options = options.timeout(Duration::from_millis(limit));
                }
                self.entry.waits(&lock, mode);
                let next = self.acquire(lock, options, explain).await;
                self.entry.waits_no_more();
                return next;
            }
            Request::Cancel => Response::Cancelled,
            Request::Release { lock, fence } => self.release(lock, fence).await,
            Request::Locks { prefix, held, after, limit } => {
                status::locks(&self.state, &prefix, held, after.as_deref(), limit.unwrap_or(usize::MAX))
            }
            Request::Members => {
                let members = self.state.node.status().members.into_iter().map(MemberLine::from).collect();
                Response::Members { members }
            }
            Request::Status => Response::Status(status::of(&self.state)),
            Request::Leave if !self.may_end_agent => {
                let text = "only the agent's own user and root may end it".to_owned();
                Response::Error { text }
            }
            Request::Leave => {
                self.lines.send(&Response::Leaving).await?;
                self.state.stop(Ended::Left);
                return Ok(Next::Leave);
            }
        }))
    }

    /// Waits for the lock, and for the client meanwhile.
    async fn acquire(&mut self, name: String, options: AcquireOptions, explain: bool) -> std::io::Result<Next> {
        let lock = self.state.node.lock(name.as_str());
        let acquired = lock.acquire_with(options);
        tokio::pin!(acquired);
        let mut told = WaitingLine::default();
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
                () = self.state.ends() => return Ok(self.refuse_at_end()),
                () = tokio::time::sleep(EXPLAIN_INTERVAL), if explain => {
                    let waiting = status::waiting(&self.state, &name);
                    if !status::says_the_same(&waiting, &told) {
                        self.lines.send(&Response::Waiting(waiting.clone())).await?;
                        told = waiting;
                    }
                }
            }
        };
        Ok(Next::Answer(match acquired {
            Ok(guard) => {
                let fence = guard.fence();
                self.entry.holds(fence);
                self.held.entry((name.clone(), fence)).or_default().push(guard);
                Response::Granted { lock: name, fence }
            }
            Err(AcquireError::Busy) => Response::Busy { why: status::why_busy(&self.state, &name) },
            Err(AcquireError::Timeout) => Response::Late { why: status::why_busy(&self.state, &name) },
            // The agent ends, and the client may look for another one.
            Err(AcquireError::Stopped) => return Ok(self.refuse_at_end()),
            Err(error) => Response::Error { text: error.to_string() },
        }))
    }

    /// A client that holds other locks keeps its connection until it has released them.
    fn refuse_at_end(&self) -> Next {
        if self.held.is_empty() {
            return Next::End;
        }
        Next::Answer(Response::Error { text: "the agent was ended".to_owned() })
    }

    async fn release(&mut self, lock: String, fence: u64) -> Response {
        self.entry.released(&lock, fence);
        let key = (lock, fence);
        let guard = self.held.get_mut(&key).and_then(Vec::pop);
        if self.held.get(&key).is_some_and(Vec::is_empty) {
            self.held.remove(&key);
        }
        let Some(guard) = guard else { return Response::Released { held: false } };
        let held = guard.release().await.is_ok();
        Response::Released { held }
    }
}
