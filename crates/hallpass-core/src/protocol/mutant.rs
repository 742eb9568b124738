use std::hash::{Hash, Hasher};

use super::{
    Attempts, Capabilities, Comer, Effect, Effects, Floor, Input, Message, Mode, Needs, OptionError, Options, Protocol,
    Span, Variables,
};
use crate::{Fence, InitialHolders, NodeId, Setup};

/// A bug to plant into any protocol, so that a test can show that a check would notice it.
///
/// It changes how an instance is made, its inputs and its effects only, so that the algorithms need no code for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutation {
    /// Every message is sent twice.
    SendTwice,
    /// Every REQUEST is granted at once, even if the receiver comes first.
    NeverDefer,
    /// Messages of this kind are never sent.
    Swallow(&'static str),
    /// Every timer fires at once.
    Impatient,
    /// Every timer waits this many times longer.
    Slow(u64),
    /// Every entry carries the same fence.
    StuckFence,
    /// A node is inside as soon as it asks.
    EnterAtOnce,
    /// A shared entry carries one less than it should: the last exclusive fence itself.
    ReadersBehind,
    /// A shared entry carries one more than it should: beyond the next exclusive fence.
    ReadersAhead,
    /// Every request is made as a writer's.
    WritersOnly,
    /// Instead of the number that was drawn, the lowest is used.
    LoadedDice,
    /// The last effect of a handler that does more than one thing is lost.
    HalfDone,
    /// Messages of this kind are never received.
    Deaf(&'static str),
    /// An instance that replaces a dropped one numbers its requests from the beginning.
    ForgetNumbers,
    /// An instance that replaces a dropped one counts its fences from the beginning.
    ForgetFences,
    /// An instance of which nothing is known, new or dropped, counts as one with the permission to read.
    AbsentMayRead,
    /// A node that holds the lock at the start does not count.
    IgnoreHolders,
}

/// A protocol with at most one [`Mutation`].
#[derive(Clone, Debug)]
pub struct Mutant<P> {
    inner: P,
    mutation: Option<Mutation>,
    /// Of the request that waits, as the protocol itself knows it.
    mode: Mode,
}

impl<P> Mutant<P> {
    /// The protocol itself, to look at its state.
    pub fn inner(&self) -> &P {
        &self.inner
    }
}

impl<P: PartialEq> PartialEq for Mutant<P> {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<P: Eq> Eq for Mutant<P> {}

impl<P: Hash> Hash for Mutant<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl<P: Protocol> Protocol for Mutant<P> {
    type Message = P::Message;
    type Timer = P::Timer;
    type Options = (P::Options, Option<Mutation>);

    fn parse(options: &Options) -> Result<Self::Options, OptionError> {
        Ok((P::parse(options)?, None))
    }

    fn needs((options, _): &Self::Options) -> Needs {
        P::needs(options)
    }

    fn draws((options, _): &Self::Options) -> u32 {
        P::draws(options)
    }

    fn new(setup: &Setup<'_, Self::Options>) -> Self {
        let (options, mutation) = setup.options;
        let setup = setup.with_options(options);
        let inner = match mutation {
            Some(Mutation::AbsentMayRead) if setup.initial.holders.is_empty() => after_reading(&setup),
            Some(Mutation::IgnoreHolders) => P::new(&Setup { initial: InitialHolders::NOBODY, ..setup }),
            _ => P::new(&setup),
        };
        Self { inner, mutation: *mutation, mode: Mode::default() }
    }

    fn handle(&mut self, input: Input<P::Message, P::Timer>, out: &mut Effects<P::Message, P::Timer>) {
        let Some(mutation) = self.mutation else { return self.inner.handle(input, out) };
        let Some(input) = mutate_input(mutation, input) else { return };
        let asks = matches!(input, Input::Acquire { .. });
        if let Input::Acquire { mode, .. } = &input {
            self.mode = *mode;
        }
        let start = out.len();
        let grant = match &input {
            Input::Deliver { from, message } if mutation == Mutation::NeverDefer => {
                message.grant().map(|grant| (*from, grant))
            }
            _ => None,
        };
        self.inner.handle(input, out);
        if let Some((to, message)) = grant
            && out.len() == start
        {
            out.push(Effect::Send { to, message });
        }
        let entered = || out[start..].iter().any(|effect| matches!(effect, Effect::Enter { .. }));
        if mutation == Mutation::EnterAtOnce && asks && !entered() {
            out.push(Effect::Enter { fence: Fence::new(1) });
        }
        mutate_effects(mutation, self.mode, start, out);
    }

    fn variables(&self, out: &mut Variables) {
        self.inner.variables(out);
    }

    fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }

    fn is_moot(&self, from: NodeId, message: &P::Message) -> bool {
        // The bugs by which a message without an effect has one, now or later.
        let has_effect = matches!(self.mutation, Some(Mutation::NeverDefer | Mutation::ForgetNumbers));
        !has_effect && self.inner.is_moot(from, message)
    }

    fn request_number(&self) -> Option<u64> {
        self.inner.request_number()
    }

    fn highest_number(&self) -> u64 {
        self.inner.highest_number()
    }

    fn fence_bound(&self) -> Option<u64> {
        self.inner.fence_bound()
    }

    fn remembered(&self) -> usize {
        self.inner.remembered()
    }
}

/// All of them are the protocol's own, except where the bug is about dropped instances.
impl<P: Protocol> Capabilities for Mutant<P> {
    fn floor(&self) -> Option<Floor> {
        self.inner.floor()
    }

    fn raise_floor(&mut self, floor: Floor) {
        self.inner.raise_floor(match self.mutation {
            Some(Mutation::ForgetNumbers) => Floor { number: 0, ..floor },
            Some(Mutation::ForgetFences) => Floor { fence: 0, ..floor },
            _ => floor,
        });
    }

    fn last_comer(&self) -> Option<Comer> {
        self.inner.last_comer()
    }

    fn remember_comer(&mut self, comer: Comer) {
        self.inner.remember_comer(comer);
    }

    fn number_floor(&self) -> Option<u64> {
        self.inner.number_floor()
    }

    fn has_waiters(&self) -> bool {
        self.inner.has_waiters()
    }

    fn reenter(&mut self) -> Option<Fence> {
        self.inner.reenter()
    }

    fn enter_fast(&mut self, mode: Mode) -> Option<Fence> {
        self.inner.enter_fast(mode)
    }

    fn must_ask(&self, mode: Mode) -> bool {
        self.inner.must_ask(mode)
    }

    fn leave_fast(&mut self) -> bool {
        self.inner.leave_fast()
    }

    fn forget_deferred(&mut self, from: NodeId) -> bool {
        self.inner.forget_deferred(from)
    }

    fn attempts(&self) -> Attempts {
        self.inner.attempts()
    }

    fn home(&self) -> Option<NodeId> {
        self.inner.home()
    }

    fn order(&self) -> Option<Vec<NodeId>> {
        self.inner.order()
    }

    fn gives_back(&self) -> bool {
        self.inner.gives_back()
    }

    fn is_cached(&self) -> bool {
        self.inner.is_cached()
    }

    fn missing_permissions(&self) -> Option<Vec<NodeId>> {
        self.inner.missing_permissions()
    }
}

/// An instance whose caller has just left, after reading.
fn after_reading<P: Protocol>(setup: &Setup<'_, P::Options>) -> P {
    let initial = InitialHolders { holders: &[setup.me], mode: Mode::Shared, ..setup.initial };
    let mut protocol = P::new(&Setup { initial, ..*setup });
    protocol.handle(Input::Release, &mut Effects::new());
    protocol
}

fn mutate_input<M: Message, T>(mutation: Mutation, input: Input<M, T>) -> Option<Input<M, T>> {
    Some(match (mutation, input) {
        (Mutation::Deaf(kind), Input::Deliver { message, .. }) if message.kind() == kind => return None,
        (Mutation::WritersOnly, Input::Acquire { draw, .. }) => Input::Acquire { mode: Mode::Exclusive, draw },
        (Mutation::LoadedDice, Input::Acquire { mode, .. }) => Input::Acquire { mode, draw: 0 },
        (_, input) => input,
    })
}

fn mutate_effects<M: Message, T: Copy>(mutation: Mutation, mode: Mode, start: usize, out: &mut Effects<M, T>) {
    if mutation == Mutation::HalfDone && out.len() > start + 1 {
        out.pop();
    }
    for effect in out.split_off(start) {
        match (mutation, effect) {
            (Mutation::SendTwice, effect @ (Effect::Send { .. } | Effect::Broadcast { .. })) => {
                out.extend([effect.clone(), effect]);
            }
            (Mutation::Swallow(kind), Effect::Send { message, .. } | Effect::Broadcast { message })
                if message.kind() == kind => {}
            (Mutation::Impatient, Effect::SetTimer { timer, .. }) => {
                out.push(Effect::SetTimer { timer, after: Span::exactly(0) });
            }
            (Mutation::Slow(times), Effect::SetTimer { timer, after }) => {
                let after = Span { min: after.min * times, max: after.max * times };
                out.push(Effect::SetTimer { timer, after });
            }
            (Mutation::StuckFence, Effect::Enter { .. }) => out.push(Effect::Enter { fence: Fence::new(1) }),
            (Mutation::ReadersBehind, Effect::Enter { fence }) if mode == Mode::Shared => {
                out.push(Effect::Enter { fence: Fence::new(fence.get() - 1) });
            }
            (Mutation::ReadersAhead, Effect::Enter { fence }) if mode == Mode::Shared => {
                out.push(Effect::Enter { fence: Fence::new(fence.get() + 1) });
            }
            (_, effect) => out.push(effect),
        }
    }
}
