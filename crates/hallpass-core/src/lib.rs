//! The algorithms of hallpass, pure.
//!
//! Everything here is a state machine: inputs go in, effects come out, and nothing else happens. No clock is read, no
//! socket opened, no thread started, no chance taken. So the same code runs in the simulator, under the exhaustive
//! checker and in production.
//!
//! ```
//! use hallpass_core::protocol::ricart_agrawala::{Rules, RicartAgrawala};
//! use hallpass_core::{Bounds, Effect, Effects, Fence, Input, Mode, NodeId, Protocol, InitialHolders, Setup, View};
//!
//! let view = View::new([NodeId(1), NodeId(2)]);
//! let rules = Rules::default();
//! let setup = |me| Setup { me, view: &view, initial: InitialHolders::NOBODY, incarnation: 0, bounds: Bounds::NONE, options: &rules };
//! let mut one = RicartAgrawala::new(&setup(NodeId(1)));
//! let mut two = RicartAgrawala::new(&setup(NodeId(2)));
//!
//! // Node 1 asks; its REQUEST is one broadcast effect.
//! let mut out = Effects::new();
//! one.handle(Input::Acquire { mode: Mode::Exclusive, draw: 0 }, &mut out);
//! let Some(Effect::Broadcast { message: request }) = out.pop() else { panic!() };
//!
//! // Node 2 wants nothing, so it replies at once, and node 1 enters.
//! two.handle(Input::Deliver { from: NodeId(1), message: request }, &mut out);
//! let Some(Effect::Send { message: reply, .. }) = out.pop() else { panic!() };
//! one.handle(Input::Deliver { from: NodeId(2), message: reply }, &mut out);
//! assert_eq!(out.pop(), Some(Effect::Enter { fence: Fence::new(1) }));
//! ```
//!
//! **The driver's contract**: after every [`Protocol::handle`] carry out all effects, in order, before the next input.

pub mod codec;
mod fence;
mod node_id;
pub mod protocol;
mod slab;
mod view;

pub use fence::{Fence, FenceCounter};
pub use node_id::{NodeId, NodeSet};
pub use protocol::{Bounds, Effect, Effects, Input, Message, Mode, Protocol, Span, Ticks};
pub use slab::Slab;
pub use view::{InitialHolders, Setup, View};
