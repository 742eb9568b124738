//! Exhaustive exploration of a model: every order of messages, every moment to request, cancel, leave or crash.
//!
//! The search is breadth first, so that the first violation found has a shortest path. A state is remembered by a 64-bit
//! fingerprint and the step that led to it: with ten million states the chance that two share a fingerprint is about three
//! in a million. There is no symmetry reduction over node ids, because ties are broken by id: nodes are not alike.
//!
//! ```
//! use hallpass_check::{Effort, explore};
//! use hallpass_core::NodeId;
//! use hallpass_core::protocol::ricart_agrawala::{RicartAgrawala, Rules};
//! use hallpass_sim::{Limits, Order, ModelConfig};
//!
//! let limits = Limits { entries: Some(2), cancels: Some(0), ..Limits::default() };
//! let config = ModelConfig::<RicartAgrawala>::new(&[NodeId(1), NodeId(2)], Rules::default(), Order::Any, limits).unwrap();
//! let found = explore(&config, &Effort::default(), |_| {});
//! assert!(found.complete && found.violation.is_none());
//! ```

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use foldhash::quality::FixedState;
use hallpass_core::Protocol;
use hallpass_sim::oracle::Violation;
use hallpass_sim::{Model, ModelConfig, Scratch, Step};

/// What can be explored: a first state, and the steps that lead from one state to others.
pub trait Space {
    /// Everything that decides what can happen.
    type State: Clone + Hash;
    /// One thing that happens.
    type Step: Copy;

    /// Where everything begins.
    fn first(&self) -> Self::State;
    /// Appends all that can happen in a state.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);
    /// Lets it happen, and says whether that violates a property.
    fn apply(&mut self, state: &mut Self::State, step: Self::Step) -> Option<Violation>;
    /// True if a step that can happen does happen at some time: an end is a state without any.
    fn must_happen(&self, step: Self::Step) -> bool;
    /// Whether it violates a property that everything ends here.
    fn check_end(&self, state: &Self::State) -> Option<Violation>;
    /// True if a node drops an idle instance in this step.
    fn drops(&self, _step: Self::Step) -> bool {
        false
    }
    /// How often the last node was overtaken on the way to this state.
    fn overtaken(&self, _state: &Self::State) -> u64 {
        0
    }
}

/// A protocol of locks.
struct Locks<'a, P: Protocol> {
    config: &'a ModelConfig<P>,
    scratch: Scratch<P>,
}

impl<P: Protocol> Space for Locks<'_, P> {
    type State = Model<P>;
    type Step = Step;

    fn first(&self) -> Model<P> {
        Model::new(self.config)
    }

    fn steps(&self, state: &Model<P>, steps: &mut Vec<Step>) {
        state.steps(self.config, steps);
    }

    fn apply(&mut self, state: &mut Model<P>, step: Step) -> Option<Violation> {
        state.apply(self.config, step, &mut self.scratch, None)
    }

    fn must_happen(&self, step: Step) -> bool {
        step.must_happen()
    }

    fn check_end(&self, state: &Model<P>) -> Option<Violation> {
        state.check_end(self.config)
    }

    fn drops(&self, step: Step) -> bool {
        matches!(step, Step::Drop(_))
    }

    fn overtaken(&self, state: &Model<P>) -> u64 {
        state.overtaken()
    }
}

/// The bounds of an exploration.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Stop, incomplete, at this many distinct states. This also bounds the memory.
    pub states_max: usize,
    /// Report violations of this property only. Steps that violate another one are not followed.
    pub property: Option<String>,
}

impl Effort {
    fn looks_for(&self, violation: &Violation) -> bool {
        self.property.as_ref().is_none_or(|property| property == violation.property)
    }
}

impl Default for Effort {
    fn default() -> Self {
        Self { states_max: 60_000_000, property: None }
    }
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Exploration<S = Step> {
    /// Distinct states.
    pub states: usize,
    /// States generated, including repeated ones.
    pub generated: u64,
    /// The length, in states, of the longest among the shortest paths to each state.
    pub depth: usize,
    /// Every reachable state was visited.
    pub complete: bool,
    /// The first violation found, with a shortest path to it.
    pub violation: Option<(Violation, Vec<S>)>,
    /// The most often that the node with the highest id was overtaken during one request.
    pub overtaken_max: u64,
    /// A path to a state in which that happened.
    pub overtaken_steps: Vec<S>,
    /// In how many of the steps a node dropped an idle instance.
    pub drops: u64,
    /// How long the exploration took.
    pub took: Duration,
}

/// How far an exploration has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Distinct states so far.
    pub states: usize,
    /// States generated so far.
    pub generated: u64,
    /// The current depth.
    pub depth: usize,
    /// How many states have this depth.
    pub frontier: usize,
    /// The bytes that tables which are nearly full will take on top of what they have, when they grow. They double, so
    /// that memory rises by leaps.
    pub growth: usize,
}

/// Whether an exploration goes on. A closure that returns nothing lets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on.
    Continue,
    /// It ends here, incomplete.
    Stop,
}

impl From<()> for Flow {
    fn from((): ()) -> Self {
        Self::Continue
    }
}

/// Visits every reachable state of a protocol, up to the first violation or the bounds of the effort. `on_progress` is called
/// often, and may stop it.
pub fn explore<P: Protocol, F: Into<Flow>>(
    config: &ModelConfig<P>,
    effort: &Effort,
    on_progress: impl FnMut(Progress) -> F,
) -> Exploration {
    explore_space(&mut Locks { config, scratch: Scratch::default() }, effort, on_progress)
}

/// As [`explore`], of anything that has states.
pub fn explore_space<S: Space, F: Into<Flow>>(
    space: &mut S,
    effort: &Effort,
    mut on_progress: impl FnMut(Progress) -> F,
) -> Exploration<S::Step> {
    let began = Instant::now();
    let mut search = Search::<S>::new(space.first());
    let complete = search.run(space, effort, &mut |progress| on_progress(progress).into());
    Exploration {
        states: search.states(),
        generated: search.generated,
        depth: search.depth,
        complete,
        overtaken_max: search.overtaken.0,
        overtaken_steps: search.path_to(search.overtaken.1),
        violation: search.violation,
        drops: search.drops,
        took: began.elapsed(),
    }
}

/// A state's fingerprint: the same in every run.
pub fn fingerprint(state: &impl Hash) -> u64 {
    FixedState::with_seed(0x6861_6c6c_7061_7373).hash_one(state)
}

struct Search<S: Space> {
    seen: HashSet<u64, BuildHasherDefault<Identity>>,
    /// For each state but the first, the number of its parent and the step from there. The first one's number is 0.
    parents: Vec<(u32, S::Step)>,
    /// States of the next depth, with their numbers.
    next: Vec<(S::State, u32)>,
    generated: u64,
    depth: usize,
    /// The most overtakes so far, and the number of a state with that many.
    overtaken: (u64, u32),
    violation: Option<(Violation, Vec<S::Step>)>,
    drops: u64,
}

impl<S: Space> Search<S> {
    fn new(first: S::State) -> Self {
        let seen = HashSet::from_iter([fingerprint(&first)]);
        let next = vec![(first, 0)];
        Self { seen, parents: Vec::new(), next, generated: 1, depth: 0, overtaken: (0, 0), violation: None, drops: 0 }
    }

    fn states(&self) -> usize {
        self.parents.len() + 1
    }

    /// True if every reachable state was visited.
    fn run(&mut self, space: &mut S, effort: &Effort, on_progress: &mut dyn FnMut(Progress) -> Flow) -> bool {
        let mut steps = Vec::new();
        loop {
            let frontier = std::mem::take(&mut self.next);
            if frontier.is_empty() {
                return true;
            }
            self.depth += 1;
            let width = frontier.len();
            // An expanded state is dropped at once, because the frontier takes most of the memory.
            for (count, (state, number)) in frontier.into_iter().enumerate() {
                self.expand(space, &state, number, effort, &mut steps);
                if self.violation.is_some() || self.states() >= effort.states_max {
                    return false;
                }
                if count.is_multiple_of(4096) {
                    let (states, growth) = (self.states(), self.growth());
                    let (generated, depth) = (self.generated, self.depth);
                    if on_progress(Progress { states, generated, depth, frontier: width, growth }) == Flow::Stop {
                        return false;
                    }
                }
            }
        }
    }

    /// See [`Progress::growth`].
    fn growth(&self) -> usize {
        // More than 4096 states have successors.
        const NEAR: usize = 100_000;
        let grows = |length: usize, capacity: usize, bytes: usize| if capacity - length < NEAR { bytes } else { 0 };
        // A table of fingerprints has a byte for each beside it, and an eighth of it is free. While the larger one is filled
        // the smaller one is still there.
        let set = self.seen.capacity() * 2 * 9 * 8 / 7;
        let parents = self.parents.capacity() * size_of::<(u32, S::Step)>();
        let next = self.next.capacity() * size_of::<(S::State, u32)>();
        grows(self.seen.len(), self.seen.capacity(), set)
            + grows(self.parents.len(), self.parents.capacity(), parents)
            + grows(self.next.len(), self.next.capacity(), next)
    }

    fn expand(&mut self, space: &mut S, state: &S::State, number: u32, effort: &Effort, steps: &mut Vec<S::Step>) {
        steps.clear();
        space.steps(state, steps);
        if !steps.iter().any(|step| space.must_happen(*step))
            && let Some(violation) = space.check_end(state)
            && effort.looks_for(&violation)
        {
            self.violation = Some((violation, self.path_to(number)));
            return;
        }
        for step in steps {
            let mut next = state.clone();
            let violation = space.apply(&mut next, *step);
            self.generated += 1;
            self.drops += u64::from(space.drops(*step));
            if let Some(violation) = violation {
                if !effort.looks_for(&violation) {
                    continue;
                }
                let mut path = self.path_to(number);
                path.push(*step);
                self.violation = Some((violation, path));
                return;
            }
            if self.seen.insert(fingerprint(&next)) {
                self.parents.push((number, *step));
                let next_number = self.parents.len() as u32;
                let overtaken = space.overtaken(&next);
                if overtaken > self.overtaken.0 {
                    self.overtaken = (overtaken, next_number);
                }
                self.next.push((next, next_number));
            }
        }
    }

    fn path_to(&self, mut number: u32) -> Vec<S::Step> {
        let mut path = Vec::new();
        while number != 0 {
            let (parent, step) = self.parents[number as usize - 1];
            path.push(step);
            number = parent;
        }
        path.reverse();
        path
    }
}

/// Fingerprints are already hashes, so the set need not hash them again.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

#[cfg(test)]
mod tests;
