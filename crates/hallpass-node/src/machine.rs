//! One lock's protocol, whichever it is, between a node's callers and its links.

use crate::link::{Link, Sender};
use crate::wire::Outgoing;
use hallpass_core::codec::{DecodeError, Reader};
use hallpass_core::protocol::Capabilities;
use hallpass_core::protocol::carvalho_roucairol::CarvalhoRoucairol;
use hallpass_core::protocol::{Floor, Kind, Medium, Needs, OptionError, Options, Visitor};
use hallpass_core::{
    Bounds, Effect, Effects, Fence, InitialHolders, Input, Message, Mode, NodeId, Protocol, Setup, Ticks, View,
};

/// What happens to a lock.
pub(crate) enum Drive<'a> {
    Acquire { mode: Mode, draw: u32 },
    Cancel,
    Release,
    Deliver { from: NodeId, bytes: Reader<'a> },
    Timeout,
}

/// Where a lock's messages go.
pub(crate) struct Wire<'a> {
    pub(crate) links: &'a mut [Link],
    pub(crate) sender: Sender,
    pub(crate) lock: &'a str,
    /// The attempt that the messages belong to, or 0.
    pub(crate) attempt: u64,
    pub(crate) now: Ticks,
    /// Messages sent.
    pub(crate) sent: &'a mut u64,
}

impl Wire<'_> {
    fn send<M: Message>(&mut self, at: usize, message: &M) {
        let body = Outgoing::Message { lock: self.lock, attempt: self.attempt };
        self.links[at].push(self.sender, &body, |out| message.encode(out));
        *self.sent += 1;
    }
}

/// A protocol of any kind. The default one is held in place and shares its list of effects with all locks, so that a
/// thousand of them are small; the others bring their own.
pub(crate) enum Machine {
    Permissions(CarvalhoRoucairol),
    Other(Box<dyn Running>),
}

/// What the machines of [`Machine::Permissions`] share.
pub(crate) type Scratch = Effects<<CarvalhoRoucairol as Protocol>::Message, <CarvalhoRoucairol as Protocol>::Timer>;

macro_rules! on_protocol {
    ($machine:expr, $protocol:ident => $then:expr) => {
        match $machine {
            Machine::Permissions($protocol) => $then,
            Machine::Other($protocol) => $then,
        }
    };
}

impl Machine {
    /// Does what there is to do; gives the fence if the local caller is inside now.
    #[inline]
    pub(crate) fn drive(
        &mut self,
        drive: Drive<'_>,
        scratch: &mut Scratch,
        wire: &mut Wire<'_>,
    ) -> Result<Option<Fence>, DecodeError> {
        match self {
            Self::Permissions(protocol) => run(protocol, drive, scratch, &mut Vec::new(), wire),
            Self::Other(running) => running.drive(drive, wire),
        }
    }

    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Permissions(protocol) => Self::Permissions(protocol.clone()),
            Self::Other(running) => Self::Other(running.copy()),
        }
    }

    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        on_protocol!(self, protocol => protocol.is_idle())
    }

    #[inline]
    pub(crate) fn floor(&self) -> Option<Floor> {
        on_protocol!(self, protocol => protocol.floor())
    }

    #[inline]
    pub(crate) fn raise_floor(&mut self, floor: Floor) {
        on_protocol!(self, protocol => protocol.raise_floor(floor));
    }

    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        on_protocol!(self, protocol => protocol.has_waiters())
    }

    #[inline]
    pub(crate) fn reenter(&mut self) -> Option<Fence> {
        on_protocol!(self, protocol => protocol.reenter())
    }

    #[inline]
    pub(crate) fn enter_fast(&mut self, mode: Mode) -> Option<Fence> {
        match self {
            Self::Permissions(protocol) => protocol.enter_fast(mode),
            Self::Other(_) => None,
        }
    }

    #[inline]
    pub(crate) fn leave_fast(&mut self) -> bool {
        match self {
            Self::Permissions(protocol) => protocol.leave_fast(),
            Self::Other(_) => false,
        }
    }

    pub(crate) fn forget_deferred(&mut self, from: NodeId) -> bool {
        on_protocol!(self, protocol => protocol.forget_deferred(from))
    }

    #[inline]
    pub(crate) fn supports_try(&self) -> bool {
        on_protocol!(self, protocol => protocol.supports_try())
    }

    #[inline]
    pub(crate) fn drop_permissions(&mut self) {
        on_protocol!(self, protocol => protocol.drop_permissions());
    }

    /// When the next of its timers fires.
    #[inline]
    pub(crate) fn timeout(&self) -> Option<Ticks> {
        match self {
            Self::Permissions(_) => None,
            Self::Other(running) => running.timeout(),
        }
    }
}

/// A protocol behind a pointer, with its effects and timers.
pub(crate) trait Running: Send {
    fn drive(&mut self, drive: Drive<'_>, wire: &mut Wire<'_>) -> Result<Option<Fence>, DecodeError>;
    fn copy(&self) -> Box<dyn Running>;
    fn is_idle(&self) -> bool;
    fn floor(&self) -> Option<Floor>;
    fn raise_floor(&mut self, floor: Floor);
    fn has_waiters(&self) -> bool;
    fn reenter(&mut self) -> Option<Fence>;
    fn forget_deferred(&mut self, from: NodeId) -> bool;
    fn supports_try(&self) -> bool;
    fn drop_permissions(&mut self);
    fn timeout(&self) -> Option<Ticks>;
}

struct Boxed<P: Protocol> {
    protocol: P,
    effects: Effects<P::Message, P::Timer>,
    timers: Vec<(Ticks, P::Timer)>,
}

impl<P: Protocol + 'static> Running for Boxed<P> {
    fn drive(&mut self, drive: Drive<'_>, wire: &mut Wire<'_>) -> Result<Option<Fence>, DecodeError> {
        run(&mut self.protocol, drive, &mut self.effects, &mut self.timers, wire)
    }

    fn copy(&self) -> Box<dyn Running> {
        Box::new(Self { protocol: self.protocol.clone(), effects: Effects::new(), timers: self.timers.clone() })
    }

    fn is_idle(&self) -> bool {
        self.protocol.is_idle() && self.timers.is_empty()
    }

    fn floor(&self) -> Option<Floor> {
        self.protocol.floor()
    }

    fn raise_floor(&mut self, floor: Floor) {
        self.protocol.raise_floor(floor);
    }

    fn has_waiters(&self) -> bool {
        self.protocol.has_waiters()
    }

    fn reenter(&mut self) -> Option<Fence> {
        self.protocol.reenter()
    }

    fn forget_deferred(&mut self, from: NodeId) -> bool {
        self.protocol.forget_deferred(from)
    }

    fn supports_try(&self) -> bool {
        self.protocol.supports_try()
    }

    fn drop_permissions(&mut self) {
        self.protocol.drop_permissions();
    }

    fn timeout(&self) -> Option<Ticks> {
        self.timers.iter().map(|(at, _)| *at).min()
    }
}

/// One input, and all of its effects in order.
fn run<P: Protocol>(
    protocol: &mut P,
    drive: Drive<'_>,
    effects: &mut Effects<P::Message, P::Timer>,
    timers: &mut Vec<(Ticks, P::Timer)>,
    wire: &mut Wire<'_>,
) -> Result<Option<Fence>, DecodeError> {
    match drive {
        Drive::Acquire { mode, draw } => protocol.handle(Input::Acquire { mode, draw }, effects),
        Drive::Cancel => protocol.handle(Input::Cancel, effects),
        Drive::Release => protocol.handle(Input::Release, effects),
        Drive::Deliver { from, mut bytes } => {
            let message = P::Message::decode(&mut bytes)?;
            bytes.finish()?;
            protocol.handle(Input::Deliver { from, message }, effects);
        }
        Drive::Timeout => {
            let due = timers.iter().enumerate().filter(|(_, (at, _))| *at <= wire.now).min_by_key(|(_, (at, _))| *at);
            if let Some((at, _)) = due {
                let (_, timer) = timers.swap_remove(at);
                protocol.handle(Input::Timeout(timer), effects);
            }
        }
    }
    let mut entered = None;
    for effect in effects.drain(..) {
        match effect {
            Effect::Send { to, message } => {
                if let Ok(at) = wire.links.binary_search_by_key(&to, |link| link.peer) {
                    wire.send(at, &message);
                }
            }
            Effect::Broadcast { message } => (0..wire.links.len()).for_each(|at| wire.send(at, &message)),
            Effect::Enter { fence } => entered = Some(fence),
            Effect::SetTimer { timer, after } => {
                timers.retain(|(_, set)| *set != timer);
                timers.push((wire.now.saturating_add(after.min), timer));
            }
            Effect::CancelTimer(timer) => timers.retain(|(_, set)| *set != timer),
            // Classic membership is for the laboratory; no class has it.
            Effect::Joined | Effect::Left | Effect::Restart => {}
        }
    }
    Ok(entered)
}

/// Makes the machine that all locks of a class start as.
pub(crate) struct Make<'a> {
    pub(crate) options: &'a Options,
    pub(crate) me: NodeId,
    pub(crate) view: &'a View,
}

/// A class's machine and whether readers may share.
pub(crate) struct Made {
    pub(crate) machine: Machine,
    pub(crate) no_shared: Option<&'static str>,
}

impl Make<'_> {
    pub(crate) fn of(&self, kind: Kind) -> Result<Made, OptionError> {
        if self.options.get("as-printed").is_some() {
            return Err(OptionError("as-printed puts errors back: it runs in the laboratory only".to_owned()));
        }
        if self.options.get("cache-idle").is_some() {
            return Err(OptionError("cache-idle is a setting of the whole node, not of a class".to_owned()));
        }
        if kind == Kind::CarvalhoRoucairol {
            let (protocol, needs) = self.instance::<CarvalhoRoucairol>()?;
            return Ok(Made { machine: Machine::Permissions(protocol), no_shared: needs.no_shared });
        }
        kind.visit(Self { ..*self })
    }

    fn instance<P: Protocol>(&self) -> Result<(P, Needs), OptionError> {
        let options = P::parse(self.options)?;
        let needs = P::needs(&options);
        let refused = [
            (needs.medium == Medium::Sequenced, "needs a medium that puts all broadcasts into one order"),
            (needs.delay_bound.is_some(), "needs a bound on message delay, which a real network does not keep"),
            (needs.membership || needs.recovery || needs.start, "brings its own membership"),
            (needs.server, "needs a server that is no member"),
            (needs.no_cancel.is_some(), "cannot take a request back with these options"),
            (!needs.fences, "gives no fences with these options"),
            (needs.lab_only.is_some(), needs.lab_only.unwrap_or_default()),
        ];
        if let Some((_, why)) = refused.iter().find(|(refused, _)| *refused) {
            return Err(OptionError(format!("this protocol {why}: it runs in the laboratory only")));
        }
        let Self { me, view, .. } = *self;
        let setup = Setup {
            me,
            view,
            initial: InitialHolders::NOBODY,
            incarnation: 0,
            bounds: Bounds::NONE,
            options: &options,
        };
        Ok((P::new(&setup), needs))
    }
}

impl Visitor for Make<'_> {
    type Output = Result<Made, OptionError>;

    fn visit<P: Protocol + 'static>(self) -> Self::Output {
        let (protocol, needs) = self.instance::<P>()?;
        let boxed = Boxed { protocol, effects: Effects::new(), timers: Vec::new() };
        Ok(Made { machine: Machine::Other(Box::new(boxed)), no_shared: needs.no_shared })
    }
}
