//! One member of a group, as a pure state machine: it serves named locks to local callers, exchanges messages with the
//! other members over links, and knows who they are. It reads no clock, opens no socket and starts no thread, so the same
//! code runs in the simulator and over TCP.
//!
//! # The driver's contract
//!
//! **After every input, take outputs until there is none, and carry out each one before taking the next.**
//!
//! 1. Call one `handle_*` of [`Node`], with the time that it is now.
//! 2. Take [`Node::poll_output`] until it returns `None`:
//!    - [`Output::Persist`]: start the write to disk. Once it is synced, which may be much later, call
//!      [`Node::handle_persisted`]. The node holds back everything that depends on it until then.
//!    - [`Output::Answer`]: give a waiting caller its answer. [`Output::Lapsed`], [`Output::Lost`] and [`Output::Revoked`] take
//!      away what was granted: its holder must know before the next output is carried out.
//!    - [`Output::View`]: connect with [`Node::contacts`] on both [planes](wire::Plane), the lower id dials; while
//!      [`Node::needs_seeds`], dial the addresses that were given, too. [`Output::Disconnect`]: close a connection.
//!    - [`Output::Control`]: one message for a control connection. It may be lost.
//!    - [`Output::Transmit`]: give [`Node::poll_transmit`] to the connection with that peer, and report how many bytes it
//!      took by [`Node::handle_transmitted`]. When a connection that did not take all can take more, call
//!      [`Node::handle_writable`].
//! 3. Call [`Node::handle_timeout`] no later than [`Node::poll_timeout`] says.
//!
//! Every input asserts, in debug builds, that the outputs of the one before were taken.
//!
//! The same as code. `Host` is everything that this crate does not do: clock, disk, sockets and callers.
//!
//! ```
//! use hallpass_core::{NodeId, Ticks};
//! use hallpass_node::{Node, Outcome, Output, Write};
//!
//! enum Input {
//!     Bytes { from: NodeId, bytes: Vec<u8> },
//!     Persisted(Write),
//!     Writable,
//!     /// Nothing has happened before the deadline.
//!     Timeout,
//! }
//!
//! trait Host<C> {
//!     fn now(&self) -> Ticks;
//!     fn wait_until(&mut self, deadline: Option<Ticks>) -> Input;
//!     fn write_to_disk(&mut self, write: Write);
//!     fn answer(&mut self, caller: C, outcome: Outcome);
//!     fn void_guards(&mut self, output: Output<C>);
//!     /// Returns how many bytes the socket took.
//!     fn send(&mut self, to: NodeId, bytes: &[u8]) -> usize;
//!     fn send_control(&mut self, to: NodeId, message: Vec<u8>);
//!     fn close(&mut self, peer: NodeId);
//!     fn connect_and_close(&mut self, node: &Node<C>);
//! }
//!
//! fn drive<C>(mut node: Node<C>, host: &mut impl Host<C>) {
//!     loop {
//!         // 2. Carry out the outputs, in order. A new node may have some before its first input.
//!         while let Some(output) = node.poll_output() {
//!             match output {
//!                 Output::Persist(write) => host.write_to_disk(write),
//!                 Output::Answer { caller, outcome } => host.answer(caller, outcome),
//!                 Output::Lapsed | Output::Lost(_) | Output::Revoked { .. } => host.void_guards(output),
//!                 Output::Transmit(peer) => {
//!                     let taken = host.send(peer, node.poll_transmit(peer));
//!                     node.handle_transmitted(peer, taken);
//!                 }
//!                 Output::Control { to, bytes } => host.send_control(to, bytes),
//!                 Output::Disconnect(peer) => host.close(peer),
//!                 Output::View => host.connect_and_close(&node),
//!                 _ => {}
//!             }
//!         }
//!         // 3. Wait for an input, and no longer than the node says. 1. Then give it that one input.
//!         let input = host.wait_until(node.poll_timeout());
//!         let now = host.now();
//!         match input {
//!             // A real driver also closes the connection on an error, and calls `handle_disconnect`.
//!             Input::Bytes { from, bytes } => drop(node.handle_bytes(from, &bytes, now)),
//!             Input::Persisted(write) => node.handle_persisted(write, now),
//!             Input::Writable => node.handle_writable(now),
//!             Input::Timeout => node.handle_timeout(now),
//!         }
//!     }
//! }
//! ```
//!
//! A node that founds a group of one, and its locks:
//!
//! ```
//! use hallpass_core::{Mode, NodeId};
//! use hallpass_node::{Answer, Node, NodeConfig, Output, Patience, ViewsConfig};
//!
//! // A node that founds a group of one. What it stores goes nowhere here.
//! let config = NodeConfig::new(NodeId(1), ViewsConfig::new("localhost:7400"));
//! let mut node: Node<&str> = Node::new(config)?;
//! let mut now = 0;
//! while !node.is_complete() {
//!     while let Some(output) = node.poll_output() {
//!         if let Output::Persist(write) = output {
//!             node.handle_persisted(write, now);
//!         }
//!     }
//!     if let Some(deadline) = node.poll_timeout() {
//!         now = deadline.max(now);
//!         node.handle_timeout(now);
//!     }
//! }
//! while node.poll_output().is_some() {}
//!
//! // It grants its locks at once.
//! let answer = node.handle_acquire("invoices/42", Mode::Exclusive, Patience::Wait, now, || "first caller")?;
//! let Answer::Granted(grant) = answer else { panic!("nobody else holds it") };
//!
//! // The next caller waits, and is answered when the first one releases the lock.
//! node.handle_acquire("invoices/42", Mode::Exclusive, Patience::Wait, now, || "second caller")?;
//! assert!(node.poll_output().is_none());
//! assert!(node.handle_release(grant.ticket, now));
//! let Some(Output::Answer { caller, .. }) = node.poll_output() else { panic!("it waited") };
//! assert_eq!(caller, "second caller");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod faults;
mod incarnation;
pub mod leases;
mod links;
mod locks;
mod membership;
mod node;
mod output;
mod status;
mod tap;
#[cfg(test)]
mod tests;
pub mod wire;

#[doc(hidden)]
pub use membership::model;

pub use config::{Class, FOUNDED_WITH, Founding, NodeConfig, ViewsConfig};
pub use faults::Honest;
#[doc(hidden)]
#[cfg(any(test, feature = "planted-bugs"))]
pub use faults::{Planted, Sabotage};
pub use incarnation::Incarnation;
pub use links::LinkError;
pub use locks::Slot;
pub use membership::{HelloError, RecoverError, keys, last_members, recover};
pub use node::Node;
pub use output::{
    Answer, Grant, Ordered, Outcome, Output, Patience, Refusal, Request, RequestError, Stage, Ticket, Write,
};
pub use status::{Contact, Counters, LockState, LockStatus, MemberStatus, Status, ViewState};
pub use tap::{TapId, TracedMessage};
