//! One lock's protocol, whichever it is, between a node's callers and its links.

use hallpass_core::codec::{DecodeError, Reader};
use hallpass_core::protocol::carvalho_roucairol::CarvalhoRoucairol;
use hallpass_core::protocol::directory::Directory;
use hallpass_core::protocol::{Capabilities, Medium, Needs, OptionError, Options, ProtocolKind, Visitor};
use hallpass_core::{
    Bounds, Effect, Effects, Fence, InitialHolders, Input, Message, Mode, NodeId, Protocol, Setup, Ticks, View,
};

use crate::links::Links;
use crate::tap::{Taps, TracedMessage};
use crate::wire::Attempt;

/// A protocol's input before its message has been decoded and its timer chosen.
pub(crate) type RawInput<'a> = Input<Reader<'a>, ()>;

/// Where a lock's messages go, and what time it is.
pub(crate) struct Outbox<'a> {
    pub(crate) links: &'a mut Links,
    pub(crate) lock: &'a str,
    /// The attempt that the messages belong to, if they do.
    pub(crate) attempt: Option<Attempt>,
    pub(crate) now: Ticks,
    pub(crate) taps: &'a mut Taps,
}

impl Outbox<'_> {
    fn send<M: Message>(&mut self, index: usize, message: &M) {
        self.links.send(index, self.lock, self.attempt, message);
        let peer = self.links[index].peer;
        self.note(peer, true, message);
    }

    #[inline]
    fn note<M: Message>(&mut self, peer: NodeId, is_sent: bool, message: &M) {
        let at = self.now;
        self.taps.note(self.lock, || TracedMessage {
            at,
            peer,
            is_sent,
            kind: message.kind(),
            text: message.to_string(),
        });
    }
}

/// A protocol of any kind. Those that groups use by default are stored inline and share their lists of effects with all
/// locks, so that a million of them are small; the others are behind a pointer and have their own.
pub(crate) enum Machine {
    Directory(Directory),
    Permissions(CarvalhoRoucairol),
    Boxed(Box<dyn DynProtocol>),
}

/// The lists of effects that all inline machines of a kind share.
#[derive(Default)]
pub(crate) struct SharedEffects {
    directory: Effects<<Directory as Protocol>::Message, <Directory as Protocol>::Timer>,
    permissions: Effects<<CarvalhoRoucairol as Protocol>::Message, <CarvalhoRoucairol as Protocol>::Timer>,
}

/// What an input means for the local caller that the protocol was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ForCaller {
    Nothing,
    Enters(Fence),
    /// The caller only tries, and others come first.
    Busy,
    /// There is no fence left for it in this view.
    Refused,
}

impl Machine {
    /// Handles one input; says what it means for the local caller.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        input: RawInput<'_>,
        effects: &mut SharedEffects,
        outbox: &mut Outbox<'_>,
    ) -> Result<ForCaller, DecodeError> {
        match self {
            Self::Directory(protocol) => handle(protocol, input, &mut effects.directory, &mut Vec::new(), outbox),
            Self::Permissions(protocol) => handle(protocol, input, &mut effects.permissions, &mut Vec::new(), outbox),
            Self::Boxed(running) => running.handle(input, outbox),
        }
    }

    /// True if this message asks for something that the receiver may defer.
    pub(crate) fn asks(&self, message: Reader<'_>) -> bool {
        match self {
            Self::Directory(_) => asks::<Directory>(message),
            Self::Permissions(_) => asks::<CarvalhoRoucairol>(message),
            Self::Boxed(running) => running.asks(message),
        }
    }

    /// Another lock's machine in the same state: for templates.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Directory(protocol) => Self::Directory(protocol.clone()),
            Self::Permissions(protocol) => Self::Permissions(protocol.clone()),
            Self::Boxed(running) => Self::Boxed(running.copy()),
        }
    }

    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Directory(protocol) => protocol.is_idle(),
            Self::Permissions(protocol) => protocol.is_idle(),
            Self::Boxed(running) => running.is_idle(),
        }
    }

    #[inline]
    pub(crate) fn capabilities(&self) -> &dyn Capabilities {
        match self {
            Self::Directory(protocol) => protocol,
            Self::Permissions(protocol) => protocol,
            Self::Boxed(running) => running.capabilities(),
        }
    }

    #[inline]
    pub(crate) fn capabilities_mut(&mut self) -> &mut dyn Capabilities {
        match self {
            Self::Directory(protocol) => protocol,
            Self::Permissions(protocol) => protocol,
            Self::Boxed(running) => running.capabilities_mut(),
        }
    }

    /// The highest request number known to it, or 0 if its numbers mean nothing outside the view.
    pub(crate) fn highest_number(&self) -> u64 {
        match self {
            Self::Directory(protocol) => protocol.highest_number(),
            Self::Permissions(protocol) => protocol.highest_number(),
            Self::Boxed(running) => running.highest_number(),
        }
    }

    /// The fast path, without a call through a pointer where it matters.
    #[inline]
    pub(crate) fn enter_fast(&mut self, mode: Mode) -> Option<Fence> {
        match self {
            Self::Directory(protocol) => protocol.enter_fast(mode),
            Self::Permissions(protocol) => protocol.enter_fast(mode),
            Self::Boxed(running) => running.capabilities_mut().enter_fast(mode),
        }
    }

    /// The fast path out.
    #[inline]
    pub(crate) fn leave_fast(&mut self) -> bool {
        match self {
            Self::Directory(protocol) => protocol.leave_fast(),
            Self::Permissions(protocol) => protocol.leave_fast(),
            Self::Boxed(running) => running.capabilities_mut().leave_fast(),
        }
    }

    /// When the next of its timers fires.
    #[inline]
    pub(crate) fn timeout(&self) -> Option<Ticks> {
        match self {
            Self::Directory(_) | Self::Permissions(_) => None,
            Self::Boxed(running) => running.timeout(),
        }
    }
}

/// A protocol behind a pointer, with its effects and timers.
pub(crate) trait DynProtocol: Send {
    fn handle(&mut self, input: RawInput<'_>, outbox: &mut Outbox<'_>) -> Result<ForCaller, DecodeError>;
    fn asks(&self, message: Reader<'_>) -> bool;
    fn copy(&self) -> Box<dyn DynProtocol>;
    fn is_idle(&self) -> bool;
    fn highest_number(&self) -> u64;
    fn capabilities(&self) -> &dyn Capabilities;
    fn capabilities_mut(&mut self) -> &mut dyn Capabilities;
    fn timeout(&self) -> Option<Ticks>;
}

struct Instance<P: Protocol> {
    protocol: P,
    effects: Effects<P::Message, P::Timer>,
    timers: Vec<(Ticks, P::Timer)>,
}

impl<P: Protocol + 'static> DynProtocol for Instance<P> {
    fn handle(&mut self, input: RawInput<'_>, outbox: &mut Outbox<'_>) -> Result<ForCaller, DecodeError> {
        handle(&mut self.protocol, input, &mut self.effects, &mut self.timers, outbox)
    }

    fn asks(&self, message: Reader<'_>) -> bool {
        asks::<P>(message)
    }

    fn copy(&self) -> Box<dyn DynProtocol> {
        Box::new(Self { protocol: self.protocol.clone(), effects: Effects::new(), timers: self.timers.clone() })
    }

    fn is_idle(&self) -> bool {
        self.protocol.is_idle() && self.timers.is_empty()
    }

    fn highest_number(&self) -> u64 {
        self.protocol.highest_number()
    }

    fn capabilities(&self) -> &dyn Capabilities {
        &self.protocol
    }

    fn capabilities_mut(&mut self) -> &mut dyn Capabilities {
        &mut self.protocol
    }

    fn timeout(&self) -> Option<Ticks> {
        self.timers.iter().map(|(at, _)| *at).min()
    }
}

/// One input, and all of its effects in order. Nothing happens if the message cannot be decoded or no timer is due.
fn handle<P: Protocol>(
    protocol: &mut P,
    input: RawInput<'_>,
    effects: &mut Effects<P::Message, P::Timer>,
    timers: &mut Vec<(Ticks, P::Timer)>,
    outbox: &mut Outbox<'_>,
) -> Result<ForCaller, DecodeError> {
    let input = match input {
        Input::Acquire { mode, draw } => Input::Acquire { mode, draw },
        Input::Cancel => Input::Cancel,
        Input::Release => Input::Release,
        Input::Deliver { from, message: mut bytes } => {
            let message = P::Message::decode(&mut bytes)?;
            bytes.finish()?;
            outbox.note(from, false, &message);
            Input::Deliver { from, message }
        }
        Input::Timeout(()) => match take_due(timers, outbox.now) {
            Some(timer) => Input::Timeout(timer),
            None => return Ok(ForCaller::Nothing),
        },
        Input::Try { mode } => Input::Try { mode },
        Input::GiveBack => Input::GiveBack,
        Input::Inquire => Input::Inquire,
        Input::Downgrade => Input::Downgrade,
        Input::Upgrade => Input::Upgrade,
        // Classic membership is for the laboratory; no class has it.
        Input::Join { .. } | Input::Leave => return Ok(ForCaller::Nothing),
    };
    protocol.handle(input, effects);
    let mut for_caller = ForCaller::Nothing;
    for effect in effects.drain(..) {
        match effect {
            Effect::Send { to, message } => {
                if let Some(index) = outbox.links.position(to) {
                    outbox.send(index, &message);
                }
            }
            Effect::Broadcast { message } => {
                for index in 0..outbox.links.len() {
                    if outbox.links[index].in_view {
                        outbox.send(index, &message);
                    }
                }
            }
            Effect::Enter { fence } => for_caller = ForCaller::Enters(fence),
            Effect::Busy => for_caller = ForCaller::Busy,
            Effect::Refused => for_caller = ForCaller::Refused,
            Effect::SetTimer { timer, after } => {
                timers.retain(|(_, set)| *set != timer);
                timers.push((outbox.now.saturating_add(after.min), timer));
            }
            Effect::CancelTimer(timer) => timers.retain(|(_, set)| *set != timer),
            Effect::Joined | Effect::Left | Effect::Restart => {}
        }
    }
    Ok(for_caller)
}

fn asks<P: Protocol>(mut message: Reader<'_>) -> bool {
    P::Message::decode(&mut message).is_ok_and(|message| message.grant().is_some())
}

/// The timer that is due longest, taken off the list.
fn take_due<T: Copy>(timers: &mut Vec<(Ticks, T)>, now: Ticks) -> Option<T> {
    let due = timers.iter().enumerate().filter(|(_, (at, _))| *at <= now).min_by_key(|(_, (at, _))| *at);
    let (index, _) = due?;
    Some(timers.swap_remove(index).1)
}

/// Makes what starts the locks of a class.
pub(crate) struct Factory<'a> {
    pub(crate) options: &'a Options,
    pub(crate) me: NodeId,
    pub(crate) view: &'a View,
}

/// Makes the machine of one lock of a class, given its home and who holds it at the start.
pub(crate) type Start = Box<dyn Fn(NodeId, InitialHolders<'_>) -> Machine + Send + Sync>;

/// How the locks of a class start, and what their protocol needs.
pub(crate) struct Made {
    pub(crate) start: Start,
    pub(crate) needs: Needs,
}

impl Factory<'_> {
    pub(crate) fn make(&self, kind: ProtocolKind) -> Result<Made, OptionError> {
        if self.options.get("as-printed").is_some() {
            return Err(OptionError("as-printed puts errors back: it runs in the laboratory only".to_owned()));
        }
        if self.options.get("cache-idle").is_some() {
            return Err(OptionError("cache-idle is a setting of the whole node, not of a class".to_owned()));
        }
        match kind {
            ProtocolKind::Directory => self.start_as(Machine::Directory),
            ProtocolKind::CarvalhoRoucairol => self.start_as(Machine::Permissions),
            _ => kind.visit(Self { ..*self }),
        }
    }

    fn start_as<P: Protocol + 'static>(&self, machine: fn(P) -> Machine) -> Result<Made, OptionError> {
        let options = P::parse(self.options)?;
        let needs = P::needs(&options);
        let obstacles = [
            (needs.medium == Medium::Sequenced, "needs a medium that puts all broadcasts into one order"),
            (needs.delay_bound.is_some(), "needs a bound on message delay, which a real network does not keep"),
            (needs.membership || needs.recovery || needs.start, "brings its own membership"),
            (needs.server, "needs a server that is no member"),
            (needs.no_cancel.is_some(), "cannot take a request back with these options"),
            (!needs.fences, "gives no fences with these options"),
            (needs.lab_only.is_some(), needs.lab_only.unwrap_or_default()),
        ];
        if let Some((_, why)) = obstacles.iter().find(|(applies, _)| *applies) {
            return Err(OptionError(format!("this protocol {why}: it runs in the laboratory only")));
        }
        let (me, view) = (self.me, self.view.clone());
        let start = move |home: NodeId, initial: InitialHolders<'_>| {
            let bounds = Bounds::NONE;
            let setup = Setup { me, view: &view, initial, home, incarnation: 0, bounds, options: &options };
            machine(P::new(&setup))
        };
        Ok(Made { start: Box::new(start), needs })
    }
}

impl Visitor for Factory<'_> {
    type Output = Result<Made, OptionError>;

    fn visit<P: Protocol + 'static>(self) -> Self::Output {
        self.start_as(|protocol: P| {
            Machine::Boxed(Box::new(Instance { protocol, effects: Effects::new(), timers: Vec::new() }))
        })
    }
}
