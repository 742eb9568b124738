//! The supervisor: a process between `run` and its command. It makes sure that nothing keeps working once the lock is lost.
//!
//! Every process that the command starts becomes a child of the supervisor when its own parent ends, however far it has detached itself.
//! So the supervisor finds them all. It talks to the agent in place of `run`, and knows until when the lock is held. The command gets
//! SIGTERM when the session is not renewed, when the lock is broken or when the agent ends. After its grace it gets SIGKILL, before
//! anybody else can hold the lock. When `run` is gone, the supervisor kills everything at once. Only then does it close its copy of the
//! client connection, which keeps the lock. The command has a copy as well, and need not run as our user: the agent lets that connection do
//! nothing but release. Each of the three processes may be stopped or killed at any moment:
//!
//! - `run` is killed: the supervisor notices, kills the command and all it started, then lets the lock go. `run` is stopped: nothing
//!   depends on it.
//! - The supervisor is killed: the command dies with it. `run` inherits the remaining processes and kills them. The supervisor is
//!   stopped: `run` knows the last deadline that it was told, and kills everything shortly before it.
//! - The agent is stopped or killed: no new deadline arrives, and the last one counts.
//!
//! If the command ends and leaves processes running, the supervisor stays with them, and the lock is theirs until they end.
//!
//! Our user cannot kill a process of another user, such as one that `sudo` started. If `run` is killed, such a process keeps the lock
//! until it has ended. If the session ends, nothing can be done about it.
//!
//! | file | what it is |
//! |---|---|
//! | `wire.rs` | the lines that `run` and its supervisor exchange |
//! | `handle.rs` | the supervisor as `run` sees it |
//! | `process.rs` | the supervisor's process |
//! | `deadline.rs` | when the command must end |
//! | `child.rs` | the command, and all the processes that it started |

mod child;
mod deadline;
mod handle;
mod process;
mod wire;

pub(crate) use child::child;
pub(super) use handle::Supervisor;
pub(crate) use process::supervise;
pub(super) use wire::{Ended, Report};

/// Why a lock was lost, if the agent says so when the lock is released.
pub(super) const LOST_BEFORE_END: &str = "the command ended too late";
/// Why a lock was lost, if no answer of the agent prolonged it in time.
pub(super) const EXPIRED: &str = "its session could not be renewed";
