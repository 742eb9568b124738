//! Section 6.3: the REQUEST travels a ring of all nodes, N messages an entry instead of 2(N-1).
//!
//! `ring=echo`: a node that defers the REQUEST keeps it until it has left; back at its origin, it is the permission.
//! `ring=annotate`: the REQUEST never pauses; a node that defers it adds its name and sends a REPLY later.

use std::fmt;

use super::NUMBER_MAX;
use super::message::{put_mode, read_mode};
use crate::codec::{DecodeError, Reader, put_number, put_numbers};
use crate::protocol::constant::Constant;
use crate::protocol::{
    Capabilities, Effect, Effects, Floor, Input, Message, Mode, Needs, NoTimer, OptionError, Options, Protocol, Trap,
    TrapSet, Variables,
};
use crate::{FenceCounter, NodeId, Setup};

/// One node on the ring.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ring {
    me: NodeId,
    rules: Constant<RingRules>,
    /// The next node around; none if this one is alone.
    next: Option<NodeId>,
    /// `Highest_Sequence_Number`, this node's own numbers included (T1).
    highest: u64,
    request: Option<Request>,
    /// `ring=echo`: REQUESTs that stop here until this node has left: one of each node, and those given up.
    stopped: Vec<Travelling>,
    /// `ring=annotate`: the nodes that this one owes a REPLY, with the number of the request.
    deferred: Vec<(NodeId, u64)>,
    fences: FenceCounter,
}

/// The options of [`Ring`].
#[derive(Clone, Debug)]
pub struct RingRules {
    annotate: bool,
    printed: TrapSet,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Request {
    number: u64,
    mode: Mode,
    inside: bool,
    /// `ring=annotate`: the nodes that added their names to the REQUEST, once it is back.
    awaiting: Option<Vec<NodeId>>,
    /// REPLYs that came before the REQUEST was back (T11).
    early: Vec<NodeId>,
}

/// A REQUEST on its way around.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Travelling {
    number: u64,
    origin: NodeId,
    mode: Mode,
    /// The count of the largest fence known to the nodes it has passed.
    fence: u64,
    deferred_by: Box<[NodeId]>,
}

/// The messages of [`Ring`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RingMessage {
    /// A REQUEST on its way around; back at its origin, it grants itself.
    Request(Travelling),
    /// `ring=annotate`: a deferring node has left.
    Reply {
        /// The number of the request it answers.
        answers: u64,
        /// The count of the largest fence the sender knows.
        fence: u64,
    },
}

type Out = Effects<RingMessage, NoTimer>;

impl Protocol for Ring {
    type Message = RingMessage;
    type Timer = NoTimer;
    type Options = RingRules;

    fn parse(options: &Options) -> Result<RingRules, OptionError> {
        let mut parsed = options.read("ricart-agrawala-ring");
        let annotate = parsed.choice("ring", &[("echo", false), ("annotate", true)])?;
        parsed.choice("membership", &[("static", ())])?;
        let printed = parsed.as_printed(&[Trap::EarlyReply])?;
        if printed.contains(Trap::EarlyReply) && !annotate {
            return super::rules::refuse("as-printed=T11 is about REPLYs, which only ring=annotate sends");
        }
        parsed.finish()?;
        Ok(RingRules { annotate, printed })
    }

    fn needs(_: &RingRules) -> Needs {
        Needs::default()
    }

    fn new(setup: &Setup<'_, RingRules>) -> Self {
        let members = setup.view.members();
        let next = members.iter().find(|node| **node > setup.me).or(members.first()).copied();
        let holds = |mode| Request { number: 0, mode, inside: true, awaiting: None, early: Vec::new() };
        Self {
            me: setup.me,
            rules: Constant::new(setup.options.clone()),
            next: next.filter(|next| *next != setup.me),
            highest: 0,
            request: setup.initial.held_by(setup.me).map(holds),
            stopped: Vec::new(),
            deferred: Vec::new(),
            fences: setup.fences(),
        }
    }

    fn handle(&mut self, input: Input<RingMessage, NoTimer>, out: &mut Out) {
        match input {
            Input::Acquire { mode, .. } => self.on_acquire(mode, out),
            Input::Cancel | Input::Release => self.on_release(out),
            Input::Deliver { message: RingMessage::Request(travelling), .. } if travelling.number <= NUMBER_MAX => {
                if travelling.origin == self.me {
                    self.on_return(travelling, out);
                } else {
                    self.on_request(travelling, out);
                }
            }
            Input::Deliver { from, message: RingMessage::Reply { answers, fence } } => {
                self.on_reply(from, answers, fence, out)
            }
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        let request = self.request.as_ref();
        out.flag("Requesting_Critical_Section", request.is_some());
        out.optional("Our_Sequence_Number", request.map(|request| request.number));
        out.set("Highest_Sequence_Number", self.highest);
        if self.rules.annotate {
            out.list("Awaiting_Reply", request.and_then(|request| request.awaiting.as_ref()).into_iter().flatten());
            out.list("early REPLY from", request.into_iter().flat_map(|request| &request.early));
            out.list("Reply_Deferred", self.deferred.iter().map(|(node, _)| node));
        } else {
            out.list("stopped here", self.stopped.iter().map(|travelling| travelling.origin));
        }
        out.set("fence", self.fences.count());
    }

    fn is_idle(&self) -> bool {
        self.request.is_none() && self.stopped.is_empty() && self.deferred.is_empty()
    }

    /// An answer to a request that is over, with no fence that is new. Numbers and fences only rise, so it stays moot.
    fn is_moot(&self, _: NodeId, message: &RingMessage) -> bool {
        let (answers, fence) = match message {
            RingMessage::Request(travelling) if travelling.origin == self.me => (travelling.number, travelling.fence),
            RingMessage::Request(_) => return false,
            RingMessage::Reply { answers, fence } => (*answers, *fence),
        };
        let waits = self.request.as_ref().is_some_and(|request| request.number == answers && !request.inside);
        !waits
            && answers <= self.highest
            && fence <= self.fences.count()
            && !self.rules.printed.contains(Trap::EarlyReply)
    }

    fn request_number(&self) -> Option<u64> {
        self.request.as_ref().map(|request| request.number)
    }

    fn highest_number(&self) -> u64 {
        self.highest
    }
}

impl Capabilities for Ring {
    fn raise_floor(&mut self, floor: Floor) {
        self.highest = self.highest.max(floor.number);
        self.fences.observe(floor.fence);
    }

    fn number_floor(&self) -> Option<u64> {
        self.request.as_ref().filter(|request| !request.inside).map(|request| request.number - 1)
    }
}

impl Ring {
    fn on_acquire(&mut self, mode: Mode, out: &mut Out) {
        debug_assert!(self.request.is_none(), "the driver serialises local callers");
        self.highest += 1;
        let number = self.highest;
        self.request = Some(Request { number, mode, inside: false, awaiting: None, early: Vec::new() });
        if self.next.is_none() {
            return self.enter(out);
        }
        let travelling =
            Travelling { number, origin: self.me, mode, fence: self.fences.count(), deferred_by: Box::default() };
        self.pass_on(travelling, out);
    }

    fn on_request(&mut self, mut travelling: Travelling, out: &mut Out) {
        self.highest = self.highest.max(travelling.number);
        if !self.defers(&travelling) {
            return self.pass_on(travelling, out);
        }
        if !self.rules.annotate {
            self.stopped.push(travelling);
            return self.stopped.sort_unstable();
        }
        self.deferred.push((travelling.origin, travelling.number));
        self.deferred.sort_unstable();
        let noted = travelling.deferred_by.iter().copied().chain([self.me]);
        travelling.deferred_by = noted.collect();
        self.pass_on(travelling, out);
    }

    fn defers(&self, travelling: &Travelling) -> bool {
        self.request.as_ref().is_some_and(|request| {
            let we_come_first = (request.number, self.me) < (travelling.number, travelling.origin);
            we_come_first && request.mode.conflicts(travelling.mode)
        })
    }

    /// This node's own REQUEST is back: every node has let it pass or has added its name.
    fn on_return(&mut self, travelling: Travelling, out: &mut Out) {
        self.fences.observe(travelling.fence);
        let keeps_early = !self.rules.printed.contains(Trap::EarlyReply);
        let Some(request) = self.waiting_for(travelling.number).filter(|request| request.awaiting.is_none()) else {
            return;
        };
        let early = if keeps_early { std::mem::take(&mut request.early) } else { Vec::new() };
        request.awaiting = Some(travelling.deferred_by.into_iter().filter(|node| !early.contains(node)).collect());
        self.enter_if_granted(out);
    }

    fn on_reply(&mut self, from: NodeId, answers: u64, fence: u64, out: &mut Out) {
        self.fences.observe(fence);
        let Some(request) = self.waiting_for(answers) else { return };
        match &mut request.awaiting {
            Some(awaiting) => awaiting.retain(|node| *node != from),
            None => {
                request.early.push(from);
                request.early.sort_unstable();
            }
        }
        self.enter_if_granted(out);
    }

    fn on_release(&mut self, out: &mut Out) {
        if self.request.take().is_none() {
            return;
        }
        for travelling in std::mem::take(&mut self.stopped) {
            self.pass_on(travelling, out);
        }
        for (to, answers) in std::mem::take(&mut self.deferred) {
            out.push(Effect::Send { to, message: RingMessage::Reply { answers, fence: self.fences.count() } });
        }
    }

    fn pass_on(&self, mut travelling: Travelling, out: &mut Out) {
        travelling.fence = travelling.fence.max(self.fences.count());
        if let Some(to) = self.next {
            out.push(Effect::Send { to, message: RingMessage::Request(travelling) });
        }
    }

    fn waiting_for(&mut self, number: u64) -> Option<&mut Request> {
        self.request.as_mut().filter(|request| request.number == number && !request.inside)
    }

    fn enter_if_granted(&mut self, out: &mut Out) {
        let granted = |request: &Request| !request.inside && request.awaiting.as_ref().is_some_and(Vec::is_empty);
        if self.request.as_ref().is_some_and(granted) {
            self.enter(out);
        }
    }

    fn enter(&mut self, out: &mut Out) {
        let Some(request) = &mut self.request else { return };
        let Some(fence) = self.fences.next(request.mode) else { return };
        request.inside = true;
        out.push(Effect::Enter { fence });
    }
}

impl Message for RingMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Request(_) => "REQUEST",
            Self::Reply { .. } => "REPLY",
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Request(travelling) => {
                out.push(1);
                put_numbers(out, [travelling.number, travelling.origin.0.into(), travelling.fence]);
                put_mode(out, travelling.mode);
                put_number(out, travelling.deferred_by.len() as u64);
                travelling.deferred_by.iter().for_each(|node| put_number(out, node.0.into()));
            }
            Self::Reply { answers, fence } => {
                out.push(2);
                put_numbers(out, [*answers, *fence]);
            }
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match bytes.byte()? {
            1 => {
                let (number, origin, fence) = (bytes.count()?, bytes.node()?, bytes.fence()?);
                let mode = read_mode(bytes)?;
                let deferred_by = bytes.list(Reader::node)?;
                Self::Request(Travelling { number, origin, mode, fence, deferred_by })
            }
            2 => Self::Reply { answers: bytes.count()?, fence: bytes.fence()? },
            _ => return Err(DecodeError::Unknown),
        })
    }
}

impl fmt::Display for RingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(travelling) => {
                write!(f, "REQUEST({} of {}", travelling.number, travelling.origin)?;
                if travelling.mode == Mode::Shared {
                    f.write_str(", shared")?;
                }
                for node in &travelling.deferred_by {
                    write!(f, ", deferred by {node}")?;
                }
                f.write_str(")")
            }
            Self::Reply { answers, .. } => write!(f, "REPLY({answers})"),
        }
    }
}
