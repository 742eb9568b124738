//! The printed text of the three traps that can be put back, kept apart from the code that ships.

use super::{Asked, CarvalhoRoucairol, CrMessage, CrRules, CrTimer, Out, Request};
use crate::protocol::{
    Capabilities, Effect, Floor, Input, Needs, OptionError, Options, Protocol, Span, Trap, TrapSet, Variables,
};
use crate::{NodeId, Setup};

/// [`CarvalhoRoucairol`] with traps put back, to see them fail; for the laboratory only.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AsPrinted {
    inner: CarvalhoRoucairol,
    printed: TrapSet,
}

impl Protocol for AsPrinted {
    type Message = CrMessage;
    type Timer = CrTimer;
    type Options = (CrRules, TrapSet);

    fn parse(options: &Options) -> Result<Self::Options, OptionError> {
        CrRules::parse(options, &[Trap::CountedReplies, Trap::UsingTest, Trap::AtomicEntry])
    }

    fn needs((rules, _): &Self::Options) -> Needs {
        CarvalhoRoucairol::needs(rules)
    }

    fn new(setup: &Setup<'_, Self::Options>) -> Self {
        let (rules, printed) = setup.options;
        Self { inner: CarvalhoRoucairol::new(&setup.with_options(rules)), printed: *printed }
    }

    fn handle(&mut self, input: Input<CrMessage, CrTimer>, out: &mut Out) {
        if input == Input::Timeout(CrTimer::Using) {
            // T16: whether all permissions are still here is not asked again.
            self.inner.enter(out);
        } else if self.printed.contains(Trap::AtomicEntry) {
            self.handle_without_entering(input, out);
        } else {
            self.react(input, out);
            self.inner.enter_if_granted(out);
        }
    }

    fn variables(&self, out: &mut Variables) {
        self.inner.variables(out);
    }

    fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }

    fn is_moot(&self, from: NodeId, message: &CrMessage) -> bool {
        !self.printed.contains(Trap::CountedReplies) && self.inner.is_moot(from, message)
    }

    fn request_number(&self) -> Option<u64> {
        self.inner.request_number()
    }

    fn highest_number(&self) -> u64 {
        self.inner.highest_number()
    }
}

/// What is needed to drop an instance that is idle.
impl Capabilities for AsPrinted {
    fn floor(&self) -> Option<Floor> {
        self.inner.floor()
    }

    fn raise_floor(&mut self, floor: Floor) {
        self.inner.raise_floor(floor);
    }
}

impl AsPrinted {
    /// T16: the entry is a step of its own, at any later time.
    fn handle_without_entering(&mut self, input: Input<CrMessage, CrTimer>, out: &mut Out) {
        let (was_waiting, was_granted) = (self.inner.is_waiting(), self.inner.is_waiting_granted());
        if was_waiting && matches!(input, Input::Cancel | Input::Release) {
            out.push(Effect::CancelTimer(CrTimer::Using));
        }
        self.react(input, out);
        if self.inner.is_waiting_granted() && !was_granted {
            out.push(Effect::SetTimer { timer: CrTimer::Using, after: Span { min: 0, max: u64::MAX } });
        }
    }

    /// T15: without the test on `Using` a node that is inside answers like one that wants nothing.
    fn react(&mut self, input: Input<CrMessage, CrTimer>, out: &mut Out) {
        let hides = self.printed.contains(Trap::UsingTest) && matches!(input, Input::Deliver { .. });
        let hidden = self.inner.request.take_if(|request| hides && request.inside);
        self.inner.react(self.as_printed(input), out);
        if hidden.is_some() {
            self.inner.request = hidden;
        }
    }

    /// T6: `REPLY(ME)` names its sender only, so it answers the request that waits, whatever it was sent for.
    fn as_printed(&self, input: Input<CrMessage, CrTimer>) -> Input<CrMessage, CrTimer> {
        match (input, &self.inner.request) {
            (Input::Deliver { from, message: CrMessage::Reply { fence, .. } }, Some(Request { number, mode, .. }))
                if self.printed.contains(Trap::CountedReplies) =>
            {
                let answers = Asked { number: *number, mode: *mode };
                Input::Deliver { from, message: CrMessage::Reply { answers, fence } }
            }
            (input, _) => input,
        }
    }
}
