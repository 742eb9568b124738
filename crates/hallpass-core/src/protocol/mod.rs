//! The algorithms, and the trait by which drivers run them: [`Protocol`], its [`Input`]s and its [`Effect`]s.
//!
//! One instance is one lock on one node within one view. Each algorithm is a folder. Its `mod.rs` can be read beside the
//! paper, and its opening says where the two differ. `message.rs` holds what nodes send each other and the bytes of it,
//! `rules.rs` the options where there are many, and `tests` the tests, all of them on the one harness in `testing`.

mod capabilities;
pub mod carvalho_roucairol;
pub mod central;
mod constant;
pub mod directory;
pub mod lamport;
pub mod lamport_fifo;
pub mod maekawa;
mod mutant;
pub mod naimi_trehel;
mod options;
pub mod raymond;
pub mod ricart_agrawala;
mod roster;
pub mod suzuki_kasami;
#[cfg(test)]
mod testing;
pub mod token;
pub mod token_ring;
mod trap;
mod variables;

use std::fmt::{Debug, Display};
use std::hash::Hash;

use crate::codec::{DecodeError, Reader};
use crate::{Fence, NodeId, Setup};

pub use capabilities::{Attempts, Capabilities, Comer, Floor};
pub use mutant::{Mutant, Mutation};
pub use options::{OptionError, Options, Parsed};
pub use roster::{ProtocolKind, Visitor};
pub use trap::{Trap, TrapSet};
pub use variables::Variables;

/// A length of time in the driver's unit: nanoseconds in production and in the simulator, steps in the checker.
pub type Ticks = u64;

/// How long until a timer fires. The driver picks a moment in the range, so that protocols need no random numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// The shortest wait.
    pub min: Ticks,
    /// The longest wait.
    pub max: Ticks,
}

impl Span {
    /// A wait of exactly this length.
    pub const fn exactly(ticks: Ticks) -> Self {
        Self { min: ticks, max: ticks }
    }
}

/// What the driver guarantees about time. Only a protocol whose [`Needs::delay_bound`] says so relies on it for safety.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// The longest time a message is in flight, including its processing at the receiver.
    pub transit_max: Ticks,
    /// An estimate of the longest critical section.
    pub section_max: Ticks,
}

impl Bounds {
    /// No guarantee.
    pub const NONE: Self = Self { transit_max: 0, section_max: 0 };

    /// A wait after which every round trip that began before it is over.
    pub const fn round_trip(&self) -> Ticks {
        2 * self.transit_max + 1
    }
}

/// Whether an entry has the critical section for itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mode {
    /// Alone, as in the papers: a writer.
    #[default]
    Exclusive,
    /// Together with other shared entries: a reader.
    Shared,
}

impl Mode {
    /// True if entries of these two modes may not overlap.
    pub fn conflicts(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}

impl Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        })
    }
}

/// The timer of a protocol that sets none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NoTimer {}

/// The state of a node's own caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Caller {
    Nobody,
    Waiting,
    Inside,
}

/// What a driver passes to a protocol instance.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<M, T> {
    /// The local caller asks to enter. Drivers serialise callers, so there is one at a time.
    Acquire {
        /// Exclusive or shared.
        mode: Mode,
        /// A number drawn by the driver, for protocols that use random numbers; see [`Protocol::draws`].
        draw: u32,
    },
    /// The same for a caller that does not wait for a holder: it enters, or it is refused by [`Effect::Busy`]. Only for
    /// protocols whose [`Capabilities::attempts`] are [`Attempts::Asked`].
    Try {
        /// Exclusive or shared.
        mode: Mode,
    },
    /// The local caller gives up before it has entered, or the upgrade that it has asked for.
    Cancel,
    /// The local caller leaves the critical section.
    Release,
    /// Nobody here uses what is cached: permissions, a token, a lock. Give it up. Nothing happens while a caller is here.
    GiveBack,
    /// People want to know whom the local caller waits for: see [`Capabilities::missing_permissions`]. Protocols that know, or
    /// cannot know, ignore it.
    Inquire,
    /// The local caller that is inside alone goes on in shared mode: it enters again, with a shared entry's fence.
    Downgrade,
    /// The local caller that is inside in shared mode asks to be alone, with nobody in between. It enters again, or
    /// [`Effect::Refused`] says that it stays as it is.
    Upgrade,
    /// A message has arrived.
    Deliver {
        /// The sender.
        from: NodeId,
        /// The message.
        message: M,
    },
    /// A timer fires.
    Timeout(T),
    /// Classic membership: join the group through a member. Other protocols ignore it.
    Join {
        /// The member to ask first.
        sponsor: NodeId,
    },
    /// Classic membership: leave the group. Other protocols ignore it.
    Leave,
}

/// What a protocol instance asks its driver to do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect<M, T> {
    /// Send to one node.
    Send {
        /// The receiver, never the sender itself.
        to: NodeId,
        /// The message.
        message: M,
    },
    /// Send to every other node at once; on a sequenced medium, to the sender as well.
    Broadcast {
        /// The message.
        message: M,
    },
    /// The local caller enters.
    Enter {
        /// The entry's fencing token.
        fence: Fence,
    },
    /// The local caller's attempt is refused: others come first.
    Busy,
    /// The local caller's request or upgrade is refused for good in this view.
    Refused,
    /// Fire a timer later; one that is set already is moved.
    SetTimer {
        /// The timer.
        timer: T,
        /// How much later.
        after: Span,
    },
    /// Do not fire this timer.
    CancelTimer(T),
    /// Classic membership: this node is a member now, and its requests are served.
    Joined,
    /// Classic membership: everybody has removed this node, and it may be switched off.
    Left,
    /// Classic membership: the group has removed this node. Restart it with a higher incarnation; its caller keeps waiting.
    Restart,
}

/// The effects of one input, in order. A driver keeps one list and drains it, so that nothing is allocated in the long run.
pub type Effects<M, T> = Vec<Effect<M, T>>;

/// A message of a protocol, as far as a driver must know it to send, count and show it.
pub trait Message: Clone + Eq + Ord + Hash + Debug + Display + Send + 'static {
    /// The paper's name for it, such as `REQUEST`.
    fn kind(&self) -> &'static str;
    /// Appends the message as bytes.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads one message; never panics, whatever the bytes.
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError>;
    /// The message that grants this one, if this one asks for something that a receiver may defer.
    fn grant(&self) -> Option<Self> {
        None
    }
}

/// How the network must carry broadcasts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Medium {
    /// A broadcast is N-1 messages, each with its own delay.
    #[default]
    Unicast,
    /// A broadcast is one message. It arrives at different times, in no common order.
    Broadcast,
    /// A broadcast is one message. Every node, including the sender, receives all broadcasts in one order.
    Sequenced,
}

/// What a protocol with given options needs of its driver and its network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// How broadcasts travel.
    pub medium: Medium,
    /// The option that needs a bound on message delay, if one does.
    pub delay_bound: Option<&'static str>,
    /// The option that needs links that keep order, if one does.
    pub fifo: Option<&'static str>,
    /// Why shared entries are refused, if they are.
    pub no_shared: Option<&'static str>,
    /// Why cancellation is refused, if it is.
    pub no_cancel: Option<&'static str>,
    /// Why lost or repeated messages are refused, if they are.
    pub no_loss: Option<&'static str>,
    /// Why the orders of events cannot all be explored, if they cannot.
    pub unexplorable: Option<&'static str>,
    /// Why this is for the laboratory only, if it is: there it shows how something fails.
    pub lab_only: Option<&'static str>,
    /// Nodes may join, leave, crash and come back.
    pub membership: bool,
    /// Nodes may crash and come back in the same place: they get [`Input::Join`], and are back after [`Effect::Joined`].
    pub recovery: bool,
    /// Every founding member gets [`Input::Join`] before any other input.
    pub start: bool,
    /// At most one node may hold the lock at the start, whatever the mode.
    pub one_holder: bool,
    /// There is one more process, [`NodeId::SERVER`], which is not a member and never asks to enter.
    pub server: bool,
    /// One member keeps the order of a lock's requests: [`Setup::home`] matters.
    pub home: bool,
    /// Entries carry fences. Without them, an exploration of endless entries stays finite.
    pub fences: bool,
}

impl Default for Needs {
    fn default() -> Self {
        Self {
            medium: Medium::Unicast,
            delay_bound: None,
            fifo: None,
            no_shared: None,
            no_cancel: None,
            lab_only: None,
            no_loss: None,
            unexplorable: None,
            membership: false,
            recovery: false,
            start: false,
            one_holder: false,
            server: false,
            home: false,
            fences: true,
        }
    }
}

/// One mutual exclusion algorithm: one lock, one node, one view.
///
/// - **Inputs**: [`handle`](Self::handle) takes them all; each call is atomic.
/// - **Outputs**: the effects it appends, to be carried out in order.
/// - **Getters**: [`is_idle`](Self::is_idle), [`is_moot`](Self::is_moot), and the numbers by which tests and the simulator
///   watch it.
///
/// The state is `Clone + Eq + Hash`, so that the checker can explore it. What a node asks of a protocol beyond its paper
/// is in [`Capabilities`].
pub trait Protocol: Capabilities + Clone + Eq + Hash + Debug + Send {
    /// The messages between nodes.
    type Message: Message;
    /// The timers that an instance sets.
    type Timer: Copy + Eq + Ord + Hash + Debug + Send;
    /// The options, parsed and found to fit together.
    type Options: Clone + Debug + Send + Sync;

    /// Parses options; an error says which one does not fit, and why.
    fn parse(options: &Options) -> Result<Self::Options, OptionError>;
    /// What the protocol needs with these options.
    fn needs(options: &Self::Options) -> Needs;
    /// How many different values of `draw` in [`Input::Acquire`] matter.
    fn draws(_options: &Self::Options) -> u32 {
        1
    }
    /// A fresh instance.
    fn new(setup: &Setup<'_, Self::Options>) -> Self;
    /// Takes one input and appends its effects.
    fn handle(&mut self, input: Input<Self::Message, Self::Timer>, out: &mut Effects<Self::Message, Self::Timer>);
    /// True if nothing needs to be remembered: the instance may be dropped.
    fn is_idle(&self) -> bool;
    /// True if delivering this message has no effect, now or at any later time. A checker may then drop it at once.
    fn is_moot(&self, _from: NodeId, _message: &Self::Message) -> bool {
        false
    }
    /// The number that orders the request that waits or is inside, if requests have one.
    fn request_number(&self) -> Option<u64> {
        None
    }
    /// The highest sequence number this node knows, or 0 if the protocol has none.
    fn highest_number(&self) -> u64 {
        0
    }
    /// The largest count of an exclusive fence that may have been given out, where the instance knows a bound of all of
    /// them. A shared one's is at most one more.
    fn fence_bound(&self) -> Option<u64> {
        None
    }
    /// How many requests of all nodes it remembers in an order.
    fn remembered(&self) -> usize {
        0
    }
    /// Adds the state under the paper's names for its variables, for people to look at.
    fn variables(&self, out: &mut Variables);
}
