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
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use foldhash::quality::FixedState;
use hallpass_core::Protocol;
use hallpass_sim::oracle::Violation;
use hallpass_sim::{Model, ModelConfig, Scratch, Step};

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
pub struct Exploration {
    /// Distinct states.
    pub states: usize,
    /// States generated, including repeated ones.
    pub generated: u64,
    /// The length, in states, of the longest among the shortest paths to each state.
    pub depth: usize,
    /// Every reachable state was visited.
    pub complete: bool,
    /// The first violation found, with a shortest path to it.
    pub violation: Option<(Violation, Vec<Step>)>,
    /// The most often that the node with the highest id was overtaken during one request.
    pub overtaken_max: u64,
    /// A path to a state in which that happened.
    pub overtaken_steps: Vec<Step>,
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

/// Visits every reachable state, up to the first violation or the bounds of the effort. `on_progress` is called often, and
/// may stop it.
pub fn explore<P: Protocol, F: Into<Flow>>(
    config: &ModelConfig<P>,
    effort: &Effort,
    mut on_progress: impl FnMut(Progress) -> F,
) -> Exploration {
    let began = Instant::now();
    let mut search = Search::<P>::new(Model::new(config));
    let complete = search.run(config, effort, &mut |progress| on_progress(progress).into());
    Exploration {
        states: search.parents.len(),
        generated: search.generated,
        depth: search.depth,
        complete,
        overtaken_max: search.overtaken.0,
        overtaken_steps: search.path_to(search.overtaken.1),
        violation: search.violation,
        took: began.elapsed(),
    }
}

struct Search<P: Protocol> {
    hasher: FixedState,
    seen: HashSet<u64, BuildHasherDefault<Identity>>,
    /// For each state, the position of its parent and the step from there. The first state's entry is never read.
    parents: Vec<(u32, Step)>,
    /// States of the next depth, with their positions in `parents`.
    next: Vec<(Model<P>, u32)>,
    generated: u64,
    depth: usize,
    /// The most overtakes so far, and the position of a state with that many.
    overtaken: (u64, u32),
    violation: Option<(Violation, Vec<Step>)>,
}

impl<P: Protocol> Search<P> {
    fn new(first: Model<P>) -> Self {
        let hasher = FixedState::with_seed(0x6861_6c6c_7061_7373);
        let seen = HashSet::from_iter([hasher.hash_one(&first)]);
        Self {
            hasher,
            seen,
            parents: vec![(0, Step::Tick)],
            next: vec![(first, 0)],
            generated: 1,
            depth: 0,
            overtaken: (0, 0),
            violation: None,
        }
    }

    /// True if every reachable state was visited.
    fn run(&mut self, config: &ModelConfig<P>, effort: &Effort, on_progress: &mut dyn FnMut(Progress) -> Flow) -> bool {
        let (mut steps, mut scratch) = (Vec::new(), Scratch::default());
        loop {
            let frontier = std::mem::take(&mut self.next);
            if frontier.is_empty() {
                return true;
            }
            self.depth += 1;
            let width = frontier.len();
            // An expanded state is dropped at once, because the frontier takes most of the memory.
            for (number, (model, position)) in frontier.into_iter().enumerate() {
                self.expand(config, &model, position, effort, &mut steps, &mut scratch);
                if self.violation.is_some() || self.parents.len() >= effort.states_max {
                    return false;
                }
                if number.is_multiple_of(4096) {
                    let (states, growth) = (self.parents.len(), self.growth());
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
        let parents = self.parents.capacity() * size_of::<(u32, Step)>();
        let next = self.next.capacity() * size_of::<(Model<P>, u32)>();
        grows(self.seen.len(), self.seen.capacity(), set)
            + grows(self.parents.len(), self.parents.capacity(), parents)
            + grows(self.next.len(), self.next.capacity(), next)
    }

    fn expand(
        &mut self,
        config: &ModelConfig<P>,
        model: &Model<P>,
        position: u32,
        effort: &Effort,
        steps: &mut Vec<Step>,
        scratch: &mut Scratch<P>,
    ) {
        steps.clear();
        model.steps(config, steps);
        if !steps.iter().any(|step| step.must_happen())
            && let Some(violation) = model.check_end(config)
            && effort.looks_for(&violation)
        {
            self.violation = Some((violation, self.path_to(position)));
            return;
        }
        for step in steps {
            let mut next = model.clone();
            let violation = next.apply(config, *step, scratch, None);
            self.generated += 1;
            if let Some(violation) = violation {
                if !effort.looks_for(&violation) {
                    continue;
                }
                let mut path = self.path_to(position);
                path.push(*step);
                self.violation = Some((violation, path));
                return;
            }
            if self.seen.insert(self.hasher.hash_one(&next)) {
                let next_position = self.parents.len() as u32;
                self.parents.push((position, *step));
                if next.overtaken() > self.overtaken.0 {
                    self.overtaken = (next.overtaken(), next_position);
                }
                self.next.push((next, next_position));
            }
        }
    }

    fn path_to(&self, mut position: u32) -> Vec<Step> {
        let mut path = Vec::new();
        while position != 0 {
            let (parent, step) = self.parents[position as usize];
            path.push(step);
            position = parent;
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
