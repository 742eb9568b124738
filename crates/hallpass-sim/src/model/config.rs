//! What does not change while a model is explored.

use hallpass_core::protocol::Needs;
use hallpass_core::{Bounds, InitialHolders, NodeId, Protocol, Setup, View};

use super::countdown::NEVER;
use super::{Holders, Limits, Model, Scratch, Step};
use crate::config::{Features, NO_ROOM};
use crate::oracle::Violation;
use crate::trace::{Event, EventKind};
use crate::{ConfigError, Order, Rng};

/// What does not change while steps are taken in a [`Model`].
#[derive(Clone, Debug)]
pub struct ModelConfig<P: Protocol> {
    pub(super) view: View,
    /// All nodes, the founding members first.
    pub(super) ids: Vec<NodeId>,
    options: P::Options,
    pub(super) needs: Needs,
    /// How many values of a request's random number make a difference.
    pub(super) draws: u8,
    pub(super) order: Order,
    pub(super) limits: Limits,
    pub(super) holders: Holders,
    /// The most slots that a message may be in flight. `None`: time does not exist, and a message may take forever.
    pub(super) delay: Option<u8>,
    /// Messages that can no longer change anything are dropped.
    pub(super) drops_moot: bool,
}

impl<P: Protocol> ModelConfig<P> {
    /// Checks that nodes, options and limits fit together.
    pub fn new(nodes: &[NodeId], options: P::Options, order: Order, limits: Limits) -> Result<Self, ConfigError> {
        let view = View::new(nodes.iter().copied());
        let needs = P::needs(&options);
        check(&view, &needs, order, &limits)?;
        let newest = view.members().last().map_or(0, |node| node.0);
        let newcomers = (1..=u32::from(limits.joins)).map(|n| NodeId(newest + n));
        // A server comes after the members. No protocol with a server has newcomers.
        let server = needs.server.then_some(NodeId::SERVER);
        let ids = view.members().iter().copied().chain(server).chain(newcomers).collect();
        let draws = P::draws(&options).min(8) as u8;
        let delay = needs.delay_bound.map(|_| 1);
        let holders = Holders::default();
        Ok(Self { view, ids, options, needs, draws, order, limits, holders, delay, drops_moot: true })
    }

    /// Starts with these holders instead of none.
    pub fn held_by(self, holders: Holders) -> Result<Self, ConfigError> {
        holders.check(self.view.members(), &self.needs, &self.limits)?;
        Ok(Self { holders, ..self })
    }

    /// Keeps messages that change nothing in flight until they are delivered, for observers of every message.
    pub fn keeping_moot(self) -> Self {
        Self { drops_moot: false, ..self }
    }

    /// All nodes: the founding members, a server if there is one, newcomers. A node's position here stands for it in steps.
    pub fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    /// The founding members.
    pub fn founders(&self) -> &[NodeId] {
        self.view.members()
    }

    /// Who holds the lock at the start.
    pub fn holders(&self) -> &Holders {
        &self.holders
    }

    /// True if the last of [`ids`](Self::ids) is a newcomer.
    pub fn has_spare_newcomer(&self) -> bool {
        self.limits.joins > 0
    }

    /// The position of a node.
    pub fn position(&self, id: NodeId) -> Option<u8> {
        self.ids.iter().position(|known| *known == id).map(|position| position as u8)
    }

    /// What is so before the first step: who is inside.
    pub fn first_events(&self) -> Vec<Event> {
        let kind = EventKind::Hold(self.holders.mode);
        self.holders.nodes.iter().map(|node| Event { at: 0, node: *node, kind: kind.clone() }).collect()
    }

    /// Takes steps from the beginning up to the first violation, and returns every event.
    pub fn replay(&self, steps: &[Step]) -> (Vec<Event>, Option<Violation>) {
        let (mut model, mut scratch) = (Model::new(self), Scratch::default());
        let (mut events, mut violation) = (self.first_events(), None);
        for (number, step) in (1..).zip(steps) {
            let before = events.len();
            violation = model.apply(self, *step, &mut scratch, Some(&mut events));
            events[before..].iter_mut().for_each(|event| event.at = number);
            if violation.is_some() {
                break;
            }
        }
        crate::trace::link(&mut events);
        (events, violation)
    }

    /// Takes random steps until none is left, at most `steps_max`, and returns the model after them. `observe` gets each
    /// step, the model after it, and what it violates.
    pub fn walk(
        &self,
        seed: u64,
        steps_max: usize,
        mut observe: impl FnMut(Step, &Model<P>, Option<Violation>),
    ) -> Model<P> {
        let (mut model, mut scratch, mut rng) = (Model::new(self), Scratch::default(), Rng::new(seed));
        let mut steps = Vec::new();
        for _ in 0..steps_max {
            steps.clear();
            model.steps(self, &mut steps);
            if steps.is_empty() {
                break;
            }
            let step = steps[rng.below(steps.len() as u64) as usize];
            let violation = model.apply(self, step, &mut scratch, None);
            observe(step, &model, violation);
        }
        model
    }

    /// An instance of the beginning.
    pub(super) fn first_protocol(&self, index: usize) -> P {
        self.make_protocol(index, 0, self.holders.as_initial())
    }

    /// An instance that knows of no holder.
    pub(super) fn protocol(&self, index: usize, incarnation: u8) -> P {
        self.make_protocol(index, incarnation, InitialHolders::NOBODY)
    }

    fn make_protocol(&self, index: usize, incarnation: u8, initial: InitialHolders<'_>) -> P {
        // A slot is a T. A section can always last longer, so no node stops waiting for one to end; except where nodes or
        // messages can be gone for good: there, probing at the earliest moment is the hardest test.
        let section_max = if self.limits.crashes + self.limits.losses > 0 { 0 } else { NEVER };
        P::new(&Setup {
            me: self.ids[index],
            view: &self.view,
            initial,
            home: self.view.members()[0],
            incarnation: incarnation.into(),
            bounds: Bounds { transit_max: u64::from(self.delay.unwrap_or(0)), section_max },
            options: &self.options,
        })
    }

    pub(super) fn is_server(&self, node: u8) -> bool {
        self.needs.server && self.ids[usize::from(node)] == NodeId::SERVER
    }
}

fn check(view: &View, needs: &Needs, order: Order, limits: &Limits) -> Result<(), ConfigError> {
    let refuse = |why: &str| Err(ConfigError(why.to_owned()));
    if view.members().is_empty() || view.members().len() > 32 {
        return refuse("exploration takes 1 to 32 nodes");
    }
    let features = Features {
        nodes: view.members(),
        order,
        shared: limits.readers,
        cancel: limits.cancels != Some(0),
        lossy: limits.losses + limits.duplicates > 0,
        membership: limits.joins + limits.leaves > 0,
        restart: limits.restarts > 0,
        home: limits.tries || limits.upgrades || limits.reentry,
    };
    features.check(needs)?;
    if let Some(why) = needs.unexplorable {
        return refuse(why);
    }
    if view.members().last().is_some_and(|newest| newest.0 > u32::MAX - 256) {
        return refuse(NO_ROOM);
    }
    Ok(())
}
