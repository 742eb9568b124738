//! What a mutual exclusion algorithm is to its driver: one trait, its inputs and its effects.
//!
//! One instance is one lock on one node within one view. Each algorithm is a folder. Its `mod.rs` can be read beside the
//! paper, and its opening says where the two differ. `message.rs` holds what nodes send each other and the bytes of it,
//! `rules.rs` the options where there are many, and `tests` the tests, all of them on the one harness in `testing`.

mod capabilities;
pub mod carvalho_roucairol;
pub mod central;
mod constant;
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

use std::fmt::{Debug, Display};
use std::hash::Hash;

use crate::codec::{DecodeError, Reader};
use crate::{Fence, NodeId, Setup};

pub use capabilities::{Capabilities, Floor};
pub use mutant::{Mutant, Mutation};
pub use options::{OptionError, Options, Parsed};
pub use roster::{Kind, Visitor};
pub use trap::{Trap, TrapSet};

/// A span of time in the driver's unit: nanoseconds in production and in the simulator, slots in the checker.
pub type Ticks = u64;

/// How long until a timer fires: the driver picks a moment in the range, so that the core needs no chance of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// Not before this long.
    pub min: Ticks,
    /// Not after this long.
    pub max: Ticks,
}

impl Span {
    /// A moment without play.
    pub const fn exactly(ticks: Ticks) -> Self {
        Self { min: ticks, max: ticks }
    }
}

/// What the driver promises about time. Safety of the explicit algorithms never depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// No message is under way for longer, processing at its receiver included.
    pub transit_max: Ticks,
    /// An estimate of the longest critical section.
    pub section_max: Ticks,
}

impl Bounds {
    /// Nothing is promised.
    pub const NONE: Self = Self { transit_max: 0, section_max: 0 };

    /// A wait after which every round trip begun before it is over.
    pub const fn round_trip(&self) -> Ticks {
        2 * self.transit_max + 1
    }
}

/// How an entry shares the critical section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mode {
    /// Alone: the papers' critical section, a writer.
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

/// Where a node's own caller is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Caller {
    Nobody,
    Waiting,
    Inside,
}

/// What a driver tells a protocol instance.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<M, T> {
    /// The local caller wants in. There is one at a time: drivers serialise them.
    Acquire {
        /// How it wants to enter.
        mode: Mode,
        /// A number drawn by the driver, for protocols that use chance; see [`Protocol::draws`].
        draw: u32,
    },
    /// The local caller gives up before it has entered.
    Cancel,
    /// The local caller leaves the critical section.
    Release,
    /// A message has arrived.
    Deliver {
        /// Who sent it.
        from: NodeId,
        /// What it says.
        message: M,
    },
    /// A timer that was set has run out.
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
        /// What to say.
        message: M,
    },
    /// Send to every other node at once. On a sequenced medium the sender hears it too.
    Broadcast {
        /// What to say.
        message: M,
    },
    /// The local caller is inside from now on.
    Enter {
        /// The entry's fencing token.
        fence: Fence,
    },
    /// Fire a timer later; setting one that is set moves it.
    SetTimer {
        /// Which.
        timer: T,
        /// When.
        after: Span,
    },
    /// Do not fire this timer.
    CancelTimer(T),
    /// Classic membership: this node is a member now, and its requests are served.
    Joined,
    /// Classic membership: everybody has forgotten this node; it may be switched off.
    Left,
    /// Classic membership: the group has removed this node. Start it anew with a higher incarnation; whoever waits keeps waiting.
    Restart,
}

/// The ordered list of effects of one input. Drivers keep one and drain it, so that nothing is allocated in the long run.
pub type Effects<M, T> = Vec<Effect<M, T>>;

/// A message of some protocol: what the driver must know to carry, count and show it.
pub trait Message: Clone + Eq + Ord + Hash + Debug + Display + Send {
    /// The paper's name for it, such as `REQUEST`.
    fn kind(&self) -> &'static str;
    /// Appends the message's bytes.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads one message; never panics, whatever the bytes.
    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError>;
    /// For [`Mutation`]: what would grant this message, if it asks for something that a receiver may defer.
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
    /// A broadcast is one message; its receivers hear it at different times, in no common order.
    Broadcast,
    /// A broadcast is one message; every node, the sender included, hears all broadcasts in one order.
    Sequenced,
}

/// What a protocol with given options needs of the world around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// How broadcasts travel.
    pub medium: Medium,
    /// A name for the option that needs a bound on message delay, if one does.
    pub delay_bound: Option<&'static str>,
    /// A name for the option that needs links that keep order, if one does.
    pub fifo: Option<&'static str>,
    /// Why shared entries are refused, if they are.
    pub no_shared: Option<&'static str>,
    /// Why cancellation is refused, if it is.
    pub no_cancel: Option<&'static str>,
    /// Why lost or repeated messages are refused, if they are.
    pub no_loss: Option<&'static str>,
    /// Why every order of events cannot be explored, if it cannot.
    pub unexplorable: Option<&'static str>,
    /// Why this is for the laboratory only, if it is: it shows how something fails.
    pub lab_only: Option<&'static str>,
    /// Nodes may join, leave, crash and come back.
    pub membership: bool,
    /// Nodes may crash and come back, in the same place; they are told by [`Input::Join`] and say [`Effect::Joined`].
    pub recovery: bool,
    /// The founding members are told by [`Input::Join`] to begin, all of them, before anything else.
    pub start: bool,
    /// There is one more process, [`NodeId::SERVER`], which is no member and never asks.
    pub server: bool,
    /// Entries carry fences; without them an exploration without end stays finite.
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
            server: false,
            fences: true,
        }
    }
}

/// One mutual exclusion algorithm: one lock, one node, one view.
///
/// - **Inputs**: [`handle`](Self::handle) takes them all; each call is atomic.
/// - **Outputs**: the effects it appends, to be carried out in order.
/// - **Getters**: [`is_idle`](Self::is_idle).
///
/// State is `Clone + Eq + Hash`, so that the checker can explore it.
pub trait Protocol: Capabilities + Clone + Eq + Hash + Debug + Send {
    /// What nodes tell each other.
    type Message: Message;
    /// The timers it sets.
    type Timer: Copy + Eq + Ord + Hash + Debug + Send;
    /// Its options, parsed and found to fit together.
    type Options: Clone + Debug + Send + Sync;

    /// Reads options, or says which one does not fit and why.
    fn parse(options: &Options) -> Result<Self::Options, OptionError>;
    /// What the protocol needs of the world under these options.
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
    /// True if delivering this message changes nothing, now or whenever it comes. Explorers may then drop it at once.
    fn is_moot(&self, _from: NodeId, _message: &Self::Message) -> bool {
        false
    }
    /// The number by which a waiting or entered request is ordered, for those who watch.
    fn request_number(&self) -> Option<u64> {
        None
    }
    /// The highest sequence number this node knows, for those who watch.
    fn highest_number(&self) -> u64 {
        0
    }
}
