use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hallpass::{AcquireError, AcquireOptions, Guard};

use crate::agent::State;
use crate::api::{LockLine, MemberLine, Request, Response, VERSION};
use crate::lines::Lines;
use crate::os::Connection;
use crate::status;

/// One client, from its connection to its end. Dropping a session releases what it holds.
pub(crate) struct Session {
    state: Arc<State>,
    lines: Lines,
    /// By name and fence. A client that shares a lock with itself holds several guards with one fence.
    held: BTreeMap<(String, u64), Vec<Guard>>,
}

impl Session {
    pub(crate) fn new(state: Arc<State>, connection: Connection) -> Self {
        Self { state, lines: Lines::new(connection), held: BTreeMap::new() }
    }

    /// Answers requests until the client disconnects or the agent ends.
    pub(crate) async fn run(&mut self) -> std::io::Result<()> {
        let status = self.state.node.status();
        let ttl_ms = self.state.ttl.as_millis() as u64;
        let welcome = Response::Welcome { version: VERSION, node: status.name, group: status.group, ttl_ms };
        self.lines.send(&welcome).await?;
        while let Some(request) = self.lines.receive().await? {
            let response = match request {
                Err(error) => Response::Error { text: error.to_string() },
                Ok(Request::Acquire { lock, shared, tries, timeout_ms }) => {
                    let mut options = if shared { AcquireOptions::shared() } else { AcquireOptions::exclusive() };
                    if tries {
                        options = options.try_now();
                    }
                    if let Some(limit) = timeout_ms {
                        options = options.timeout(Duration::from_millis(limit));
                    }
                    match self.acquire(lock, options).await? {
                        Some(response) => response,
                        None => return Ok(()),
                    }
                }
                Ok(Request::Cancel) => Response::Cancelled,
                Ok(Request::Release { lock, fence }) => self.release(lock, fence).await,
                Ok(Request::Locks) => {
                    let locks = self.state.node.locks().into_iter().map(LockLine::from).collect();
                    Response::Locks { locks }
                }
                Ok(Request::Members) => {
                    let members = self.state.node.status().members.into_iter().map(MemberLine::from).collect();
                    Response::Members { members }
                }
                Ok(Request::Status) => Response::Status(status::of(&self.state)),
                Ok(Request::Leave) => {
                    self.lines.send(&Response::Leaving).await?;
                    self.state.stop.notify_one();
                    return Ok(());
                }
            };
            self.lines.send(&response).await?;
        }
        Ok(())
    }

    /// Waits for the lock, and for the client meanwhile: none if it disconnects.
    async fn acquire(&mut self, name: String, options: AcquireOptions) -> std::io::Result<Option<Response>> {
        let lock = self.state.node.lock(name.as_str());
        let acquired = tokio::select! {
            biased;
            acquired = lock.acquire_with(options) => acquired,
            request = self.lines.receive() => return Ok(match request? {
                None => None,
                Some(Ok(Request::Cancel)) => Some(Response::Cancelled),
                Some(_) => Some(Response::Error { text: "one request at a time: this one has ended the wait".to_owned() }),
            }),
        };
        Ok(Some(match acquired {
            Ok(guard) => {
                let fence = guard.fence();
                self.held.entry((name.clone(), fence)).or_default().push(guard);
                Response::Granted { lock: name, fence }
            }
            Err(AcquireError::Busy) => Response::Busy { why: status::missing_member(&self.state.node) },
            Err(AcquireError::Timeout) => Response::Late { why: status::missing_member(&self.state.node) },
            // The agent ends: so does the connection, and the client may look for another agent.
            Err(AcquireError::Stopped) => return Ok(None),
            Err(error) => Response::Error { text: error.to_string() },
        }))
    }

    async fn release(&mut self, lock: String, fence: u64) -> Response {
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
