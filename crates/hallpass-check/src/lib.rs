//! Exhaustive exploration: every order of messages, every moment to ask, leave, give up or crash.
//!
//! Breadth first, so that the first violation found is a shortest one. A state is remembered by a 64-bit fingerprint and
//! the step that led to it: at ten million states the chance that two of them share one is about three in a million.
//! There is no symmetry reduction over node ids: ties are broken by id, so the nodes are not alike.
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

/// How far to go.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Stop, incomplete, once so many different states are known. The bound keeps memory bounded.
    pub states_max: usize,
    /// Look for violations of this property only; steps that violate another are not followed.
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

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// Different states.
    pub states: usize,
    /// States generated, repeated ones included.
    pub generated: u64,
    /// The longest of the shortest ways to a state, counted in states.
    pub depth: usize,
    /// Every reachable state was seen.
    pub complete: bool,
    /// The first violation, with a shortest way to it.
    pub violation: Option<(Violation, Vec<Step>)>,
    /// The most that the node with the highest id was overtaken.
    pub overtaken_max: u64,
    /// A way to a state where that happened.
    pub overtaken_steps: Vec<Step>,
    /// How long it took.
    pub took: Duration,
}

/// How far an exploration is.
#[derive(Clone, Copy, Debug)]
pub struct SoFar {
    /// Different states.
    pub states: usize,
    /// States generated.
    pub generated: u64,
    /// The current depth.
    pub depth: usize,
    /// States of this depth.
    pub frontier: usize,
}

/// Explores every state that can be reached, until a violation or the end of the effort.
pub fn explore<P: Protocol>(config: &ModelConfig<P>, effort: &Effort, mut watch: impl FnMut(SoFar)) -> Exploration {
    let began = Instant::now();
    let mut search = Search::<P>::new(Model::new(config));
    let complete = search.run(config, effort, &mut watch);
    Exploration {
        states: search.parents.len(),
        generated: search.generated,
        depth: search.depth,
        complete,
        overtaken_max: search.overtaken.0,
        overtaken_steps: search.way_to(search.overtaken.1),
        violation: search.violation,
        took: began.elapsed(),
    }
}

struct Search<P: Protocol> {
    hasher: FixedState,
    seen: HashSet<u64, BuildHasherDefault<Identity>>,
    /// For each state, where it came from and by which step.
    parents: Vec<(u32, Step)>,
    /// States of the next depth, with their positions in `parents`.
    next: Vec<(Model<P>, u32)>,
    generated: u64,
    depth: usize,
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

    /// True if every reachable state was seen.
    fn run(&mut self, config: &ModelConfig<P>, effort: &Effort, watch: &mut impl FnMut(SoFar)) -> bool {
        let (mut steps, mut scratch) = (Vec::new(), Scratch::default());
        loop {
            let frontier = std::mem::take(&mut self.next);
            if frontier.is_empty() {
                return true;
            }
            self.depth += 1;
            let width = frontier.len();
            // A state that has been expanded is dropped at once: the frontier is what fills the memory.
            for (at, (model, index)) in frontier.into_iter().enumerate() {
                self.expand(config, &model, index, effort, &mut steps, &mut scratch);
                if self.violation.is_some() || self.parents.len() >= effort.states_max {
                    return false;
                }
                if at.is_multiple_of(4096) {
                    let states = self.parents.len();
                    watch(SoFar { states, generated: self.generated, depth: self.depth, frontier: width });
                }
            }
        }
    }

    fn expand(
        &mut self,
        config: &ModelConfig<P>,
        model: &Model<P>,
        index: u32,
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
            self.violation = Some((violation, self.way_to(index)));
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
                let mut way = self.way_to(index);
                way.push(*step);
                self.violation = Some((violation, way));
                return;
            }
            if self.seen.insert(self.hasher.hash_one(&next)) {
                let position = self.parents.len() as u32;
                self.parents.push((index, *step));
                if next.overtaken() > self.overtaken.0 {
                    self.overtaken = (next.overtaken(), position);
                }
                self.next.push((next, position));
            }
        }
    }

    fn way_to(&self, mut index: u32) -> Vec<Step> {
        let mut way = Vec::new();
        while index != 0 {
            let (parent, step) = self.parents[index as usize];
            way.push(step);
            index = parent;
        }
        way.reverse();
        way
    }
}

/// Fingerprints are hashes already.
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
