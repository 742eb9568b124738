//! Distributed mutual exclusion algorithms as pure state machines.
//!
//! A [`Protocol`] takes inputs and returns effects, and does nothing else. It reads no clock, opens no socket, starts no
//! thread and draws no random number. So the same code runs in a simulator, under an exhaustive checker and in
//! production, and the same inputs always give the same run.
//!
//! ```
//! use hallpass_core::protocol::ricart_agrawala::{RicartAgrawala, Rules};
//! use hallpass_core::{Bounds, Effect, Effects, Fence, InitialHolders, Input, Mode, NodeId, Protocol, Setup, View};
//!
//! let view = View::new([NodeId(1), NodeId(2)]);
//! let options = Rules::default();
//! let node = |me| {
//!     let (initial, home) = (InitialHolders::NOBODY, NodeId(1));
//!     let bounds = Bounds::NONE;
//!     RicartAgrawala::new(&Setup { me, view: &view, initial, home, incarnation: 0, bounds, options: &options })
//! };
//! let (mut one, mut two) = (node(NodeId(1)), node(NodeId(2)));
//!
//! // Node 1 wants the lock: its REQUEST is one broadcast effect.
//! let mut out = Effects::new();
//! one.handle(Input::Acquire { mode: Mode::Exclusive, draw: 0 }, &mut out);
//! let Some(Effect::Broadcast { message: request }) = out.pop() else { panic!() };
//!
//! // Node 2 does not, so it sends a REPLY at once.
//! two.handle(Input::Deliver { from: NodeId(1), message: request }, &mut out);
//! let Some(Effect::Send { message: reply, .. }) = out.pop() else { panic!() };
//!
//! // That was the only REPLY node 1 waited for: it enters, with the first fencing token.
//! one.handle(Input::Deliver { from: NodeId(2), message: reply }, &mut out);
//! assert_eq!(out.pop(), Some(Effect::Enter { fence: Fence::new(1) }));
//! ```
//!
//! **The driver's contract**: after every call of [`Protocol::handle`], carry out all effects, in order, before the next
//! input.
//!
//! The algorithms are in [`protocol`], a module for each paper. [`codec`] turns their messages into bytes, and [`duration`]
//! reads options such as `250ms`.

pub mod codec;
pub mod duration;
mod fence;
mod node_id;
pub mod protocol;
mod random;
mod slab;
mod view;

pub use fence::{Fence, FenceCounter};
pub use node_id::{NodeId, NodeSet};
pub use protocol::{Bounds, Effect, Effects, Input, Message, Mode, Protocol, Span, Ticks};
pub use random::SplitMix64;
pub use slab::Slab;
pub use view::{InitialHolders, Setup, View};
