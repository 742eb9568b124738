//! Section 8: a node comes back without memory and asks its neighbours.
//!
//! It waits until all it sent before has arrived, sends RESTART to its neighbours, and from their ADVISEs rebuilds HOLDER,
//! ASKED and REQUEST_Q; USING is false. A neighbour that is recovering itself answers when it has finished, and one that is
//! down not at all: two neighbours that fail together stay out until a view without them (8.8, T29), and nothing else
//! comes of it.
//!
//! Where it departs from the printed text:
//!
//! - T26: 8.1 has ASKED the wrong way round in states 3 and 4; 8.3 is right.
//! - T27: a PRIVILEGE sent before the RESTART was heard may arrive after the node has rebuilt it, and then there are two.
//!   What is sent to a node names its life, and a node drops what was meant for a former one. That such messages are lost
//!   does no harm: each of them was sent before its sender's ADVISE, which tells what became of it. So the duplicates of
//!   8.6 do not arise either.
//! - T28: who crashed inside may go on outside, and its last fences are known to nobody. A node that keeps the privilege
//!   tells a neighbour its count every `reserve` entries, by an ADVISE that nobody asked for; it need not wait, for
//!   the restart interval sees to it that this arrives before a RESTART. A neighbour that advises 'you hold' adds the
//!   reserve to the count it remembers, tells that, and remembers it too. So a rebuilt privilege starts above every fence
//!   given, however often its holder dies, as long as the holder's neighbours do not die with it, which is 8.8's assumption.
//! - 8.4: the core has no clock, so the queue is rebuilt by the count of PRIVILEGEs received, the second way.

use super::{Out, Raymond, RaymondMessage, RaymondTimer, Standing};
use crate::protocol::{Effect, Span, Trap};
use crate::{Fence, NodeId};

/// What only a protocol with recovery needs to know. Lists are by position in the neighbours.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Recovery {
    /// 0, or after a crash in this view the incarnation.
    life: u32,
    /// The neighbours' lives, as their RESTARTs or ADVISEs told.
    lives: Vec<u32>,
    /// How often each neighbour has sent the privilege here (8.4).
    served: Vec<u32>,
    /// The count when the privilege last came here; a neighbour of the holder remembers as much.
    base: u64,
    phase: Option<Phase>,
}

/// 'The recovery phase'.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Phase {
    /// What each neighbour has advised.
    advice: Vec<Option<Advice>>,
    /// RESTARTs of neighbours, to be answered once this node knows something.
    unanswered: Vec<(usize, u32)>,
}

/// An ADVISE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Advice {
    pub(super) standing: Standing,
    pub(super) served: u32,
    pub(super) count: u64,
}

/// A node without neighbours has no witness: its lives share the counts, so many each.
const ALONE: u64 = 1 << 24;

impl Recovery {
    pub(super) fn new(neighbours: usize, count: u64) -> Self {
        Self { life: 0, lives: vec![0; neighbours], served: vec![0; neighbours], base: count, phase: None }
    }

    /// True if there is something to remember: a life other than the first, here or at a neighbour.
    pub(super) fn is_marked(&self) -> bool {
        self.life > 0 || self.lives.iter().any(|life| *life > 0)
    }
}

/// The node that comes back.
impl Raymond {
    /// 'The first action of the recovery phase is to delay'.
    pub(super) fn on_restart_of_this_node(&mut self, out: &mut Out) {
        let (me, neighbours) = (self.fixed.me, self.fixed.neighbours.len());
        self.queue.retain(|node| *node == me);
        (self.holder, self.using, self.asked) = (None, false, false);
        self.set_count(0);
        let Some(recovery) = &mut self.recovery else { return };
        **recovery = Recovery::new(neighbours, 0);
        recovery.life = self.fixed.incarnation.max(1);
        recovery.phase = Some(Phase { advice: vec![None; neighbours], unanswered: Vec::new() });
        let after = Span::exactly(self.fixed.bounds.round_trip());
        out.push(Effect::SetTimer { timer: RaymondTimer::RestartInterval, after });
    }

    pub(super) fn on_restart_interval_timeout(&mut self, out: &mut Out) {
        let life = self.life();
        if self.is_recovering() {
            let restart = |to: &NodeId| Effect::Send { to: *to, message: RaymondMessage::Restart { life } };
            out.extend(self.fixed.neighbours.iter().map(restart));
            self.finish_if_advised(out);
        }
    }

    /// An ADVISE quotes the life that asked: one to a recovery that failed itself is dropped (8.7). One that nobody asked
    /// for tells how far the holder has counted.
    pub(super) fn on_advise(&mut self, neighbour: usize, life: u32, of: u32, advice: Advice, out: &mut Out) {
        let Some(recovery) = self.recovery.as_mut().filter(|recovery| recovery.life == life) else { return };
        if let Some(phase) = &mut recovery.phase {
            let known = phase.advice[neighbour].get_or_insert(advice);
            known.count = known.count.max(advice.count);
            recovery.lives[neighbour] = of;
            self.finish_if_advised(out);
        } else if self.holder == Some(self.fixed.neighbours[neighbour]) {
            self.fences.observe(advice.count);
        }
    }

    /// 8.2 to 8.5, once all have answered.
    fn finish_if_advised(&mut self, out: &mut Out) {
        let Some(recovery) = &mut self.recovery else { return };
        let complete = |phase: &mut Phase| phase.advice.iter().all(Option::is_some);
        let Some(phase) = recovery.phase.take_if(complete) else { return };
        let life = recovery.life;
        let advice: Vec<Advice> = phase.advice.into_iter().flatten().collect();
        self.rebuild_holder(life, &advice);
        self.rebuild_queue(&advice);
        out.push(Effect::Joined);
        for (neighbour, life) in phase.unanswered {
            self.on_restart(neighbour, life, out);
        }
        self.proceed(out);
    }

    /// 8.2 and 8.3. Who got the PRIVILEGE during recovery has it, whatever was advised before (8.6).
    fn rebuild_holder(&mut self, life: u32, advice: &[Advice]) {
        let elsewhere = |advice: &&Advice| matches!(advice.standing, Standing::Queued | Standing::NotQueued);
        let dissenting = advice.iter().position(|advice| elsewhere(&advice));
        let known = advice.iter().map(|advice| advice.count).max();
        if self.holder == Some(self.fixed.me) {
            return;
        }
        self.set_count(known.unwrap_or(u64::from(life).saturating_mul(ALONE)));
        let Some(at) = dissenting else {
            self.holder = Some(self.fixed.me);
            return self.note_base();
        };
        self.holder = Some(self.fixed.neighbours[at]);
        let asked =
            if self.fixed.rules.printed.contains(Trap::SwappedAsked) { Standing::NotQueued } else { Standing::Queued };
        self.asked = advice[at].standing == asked;
    }

    /// 8.4: who asked before the crash comes first, whoever had the privilege least often in front; then those who asked
    /// during recovery.
    fn rebuild_queue(&mut self, advice: &[Advice]) {
        let is_queued = |at: &usize| advice[*at].standing == Standing::YoursAsked;
        let mut asked: Vec<usize> = (0..advice.len()).filter(is_queued).collect();
        asked.sort_by_key(|at| (advice[*at].served, *at));
        let during = std::mem::take(&mut self.queue);
        asked.into_iter().for_each(|at| self.enqueue(self.fixed.neighbours[at]));
        during.into_iter().for_each(|node| self.enqueue(node));
        if self.fixed.rules.greedy && self.queue.contains(&self.fixed.me) {
            self.queue.retain(|node| *node != self.fixed.me);
            self.queue.insert(0, self.fixed.me);
        }
    }
}

/// Its neighbours, and every node's memory of counts.
impl Raymond {
    /// A neighbour has come back: from now on what is sent to it names its new life.
    pub(super) fn on_restart(&mut self, neighbour: usize, life: u32, out: &mut Out) {
        let Some(recovery) = self.recovery.as_mut().filter(|recovery| life > recovery.lives[neighbour]) else { return };
        if let Some(phase) = &mut recovery.phase {
            phase.unanswered.retain(|(other, _)| *other != neighbour);
            return phase.unanswered.push((neighbour, life));
        }
        recovery.lives[neighbour] = life;
        if self.holder == Some(self.fixed.neighbours[neighbour]) {
            self.set_count(self.fences.count().saturating_add(self.fixed.rules.reserve));
        }
        self.advise(neighbour, out);
    }

    /// 8.1: the state of the edge between the two as this node sees it.
    fn advise(&self, neighbour: usize, out: &mut Out) {
        let Some(recovery) = &self.recovery else { return };
        let to = self.fixed.neighbours[neighbour];
        let standing = if self.holder == Some(to) {
            if self.asked { Standing::YoursAsked } else { Standing::Yours }
        } else if self.queue.contains(&to) {
            Standing::Queued
        } else {
            Standing::NotQueued
        };
        let (life, of, served) = (recovery.lives[neighbour], recovery.life, recovery.served[neighbour]);
        out.push(Effect::Send {
            to,
            message: RaymondMessage::Advise { life, of, standing, served, count: self.fences.count() },
        });
    }

    /// Before an entry: if the reserve is used up, a neighbour hears of the count (T28).
    pub(super) fn tell_count_if_due(&mut self, out: &mut Out) {
        let reserve = self.fixed.rules.reserve;
        let is_due = |recovery: &&mut Box<Recovery>| self.fences.count() >= recovery.base.saturating_add(reserve);
        if let Some(recovery) = self.recovery.as_mut().filter(is_due) {
            recovery.base = self.fences.count();
            if !self.fixed.neighbours.is_empty() {
                self.advise(0, out);
            }
        }
    }

    /// The largest count this life may reach.
    pub(super) fn count_max(&self) -> u64 {
        match &self.recovery {
            Some(recovery) if self.fixed.neighbours.is_empty() => {
                (u64::from(recovery.life) + 1).saturating_mul(ALONE).min(Fence::COUNT_MAX)
            }
            _ => Fence::COUNT_MAX,
        }
    }

    pub(super) fn is_recovering(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.phase.is_some())
    }

    pub(super) fn life(&self) -> u32 {
        self.recovery.as_ref().map_or(0, |recovery| recovery.life)
    }

    pub(super) fn life_of(&self, node: NodeId) -> u32 {
        let Some(recovery) = &self.recovery else { return 0 };
        self.fixed.neighbours.binary_search(&node).map_or(0, |at| recovery.lives[at])
    }

    /// T27: what was sent to a former life is dropped.
    pub(super) fn is_for_this(&self, life: u32) -> bool {
        life == self.life() || self.takes_former_incarnations()
    }

    /// As printed (T27): a message counts whichever incarnation it was meant for.
    pub(super) fn takes_former_incarnations(&self) -> bool {
        self.fixed.rules.printed.contains(Trap::UntaggedIncarnation)
    }

    /// The privilege is here, with this count, which somebody else knows too.
    pub(super) fn note_base(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.base = self.fences.count();
        }
    }

    pub(super) fn note_served(&mut self, neighbour: usize) {
        if let Some(recovery) = &mut self.recovery {
            recovery.served[neighbour] = recovery.served[neighbour].saturating_add(1);
        }
    }
}
