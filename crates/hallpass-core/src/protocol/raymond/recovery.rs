//! Section 8: a node restarts without memory and asks its neighbours.
//!
//! It waits until all that it sent before has arrived, sends RESTART to its neighbours, and from their ADVISEs rebuilds
//! HOLDER, ASKED and REQUEST_Q; USING is false. A neighbour that is recovering itself answers when it has finished, and one
//! that is down does not answer: two neighbours that fail together stay out until there is a view without them (8.8, T29),
//! and do no harm.
//!
//! Where this differs from the printed text:
//!
//! - T26: 8.1 has ASKED swapped in states 3 and 4; 8.3 is right.
//! - T27: a PRIVILEGE sent before its sender received the RESTART may arrive after the node has rebuilt one, and then there
//!   are two. So messages name the incarnation of their receiver, and a node drops those for a former one. No information is
//!   lost: each of them was sent before its sender's ADVISE, which accounts for it. So the duplicates of 8.6 do not arise
//!   either.
//! - T28: a node that crashed inside may still act outside, and no other node knows its last fences. So a node that keeps the
//!   privilege sends its count to a neighbour every `reserve` entries, by an ADVISE that was not asked for. It need not wait
//!   for an answer: the restart interval is long enough for this to arrive before a RESTART. A neighbour that advises 'you
//!   hold' adds the reserve to the count it remembers, sends that, and remembers it as well. So a rebuilt privilege starts
//!   above every fence so far, however often its holder crashes, as long as the holder's neighbours do not crash with it,
//!   which is 8.8's assumption.
//! - 8.4: the core has no clock, so the queue is rebuilt by the count of PRIVILEGEs received, which is the paper's second way.

use super::{Out, Raymond, RaymondMessage, RaymondTimer, Standing};
use crate::protocol::{Effect, Span, Trap};
use crate::{Fence, NodeId};

/// What only a protocol with recovery needs to know. Lists are by position in the neighbours.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Recovery {
    /// 0, or after a crash in this view the node's incarnation.
    incarnation: u32,
    /// The neighbours' incarnations, from their RESTARTs or ADVISEs.
    incarnations: Vec<u32>,
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
    /// RESTARTs of neighbours, to be answered once this node has recovered.
    unanswered: Vec<(usize, u32)>,
}

/// An ADVISE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Advice {
    pub(super) standing: Standing,
    pub(super) served: u32,
    pub(super) count: u64,
}

/// No neighbour remembers the count of a node that is alone, so each of its incarnations has this many counts.
const ALONE: u64 = 1 << 24;

impl Recovery {
    pub(super) fn new(neighbours: usize, count: u64) -> Self {
        Self {
            incarnation: 0,
            incarnations: vec![0; neighbours],
            served: vec![0; neighbours],
            base: count,
            phase: None,
        }
    }

    /// True if there is something to remember: this node or a neighbour has restarted.
    pub(super) fn is_marked(&self) -> bool {
        self.incarnation > 0 || self.incarnations.iter().any(|incarnation| *incarnation > 0)
    }
}

/// The node that restarts.
impl Raymond {
    /// 'The first action of the recovery phase is to delay'.
    pub(super) fn on_restart_of_this_node(&mut self, out: &mut Out) {
        let (me, neighbours) = (self.fixed.me, self.fixed.neighbours.len());
        self.queue.retain(|node| *node == me);
        (self.holder, self.using, self.asked) = (None, false, false);
        self.set_count(0);
        let Some(recovery) = &mut self.recovery else { return };
        **recovery = Recovery::new(neighbours, 0);
        recovery.incarnation = self.fixed.incarnation.max(1);
        recovery.phase = Some(Phase { advice: vec![None; neighbours], unanswered: Vec::new() });
        let after = Span::exactly(self.fixed.bounds.round_trip());
        out.push(Effect::SetTimer { timer: RaymondTimer::RestartInterval, after });
    }

    pub(super) fn on_restart_interval_timeout(&mut self, out: &mut Out) {
        let incarnation = self.incarnation();
        if self.is_recovering() {
            let restart = |to: &NodeId| Effect::Send { to: *to, message: RaymondMessage::Restart { incarnation } };
            out.extend(self.fixed.neighbours.iter().map(restart));
            self.finish_if_advised(out);
        }
    }

    /// An ADVISE names the incarnation that asked: one for a recovery that failed itself is dropped (8.7). One that was not
    /// asked for carries the holder's count.
    pub(super) fn on_advise(&mut self, neighbour: usize, incarnation: u32, sender: u32, advice: Advice, out: &mut Out) {
        let Some(recovery) = self.recovery.as_mut().filter(|recovery| recovery.incarnation == incarnation) else {
            return;
        };
        if let Some(phase) = &mut recovery.phase {
            let known = phase.advice[neighbour].get_or_insert(advice);
            known.count = known.count.max(advice.count);
            recovery.incarnations[neighbour] = sender;
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
        let incarnation = recovery.incarnation;
        let advice: Vec<Advice> = phase.advice.into_iter().flatten().collect();
        self.rebuild_holder(incarnation, &advice);
        self.rebuild_queue(&advice);
        out.push(Effect::Joined);
        for (neighbour, incarnation) in phase.unanswered {
            self.on_restart(neighbour, incarnation, out);
        }
        self.proceed(out);
    }

    /// 8.2 and 8.3. A node that got the PRIVILEGE during recovery has it, whatever was advised before (8.6).
    fn rebuild_holder(&mut self, incarnation: u32, advice: &[Advice]) {
        let elsewhere = |advice: &&Advice| matches!(advice.standing, Standing::Queued | Standing::NotQueued);
        let towards_holder = advice.iter().position(|advice| elsewhere(&advice));
        let known = advice.iter().map(|advice| advice.count).max();
        if self.holder == Some(self.fixed.me) {
            return;
        }
        self.set_count(known.unwrap_or(u64::from(incarnation).saturating_mul(ALONE)));
        let Some(neighbour) = towards_holder else {
            self.holder = Some(self.fixed.me);
            return self.note_base();
        };
        self.holder = Some(self.fixed.neighbours[neighbour]);
        let asked =
            if self.fixed.rules.printed.contains(Trap::SwappedAsked) { Standing::NotQueued } else { Standing::Queued };
        self.asked = advice[neighbour].standing == asked;
    }

    /// 8.4: nodes that asked before the crash come first, the one that had the privilege least often in front; then those
    /// that asked during recovery.
    fn rebuild_queue(&mut self, advice: &[Advice]) {
        let is_queued = |neighbour: &usize| advice[*neighbour].standing == Standing::YoursAsked;
        let mut asked: Vec<usize> = (0..advice.len()).filter(is_queued).collect();
        asked.sort_by_key(|neighbour| (advice[*neighbour].served, *neighbour));
        let during = std::mem::take(&mut self.queue);
        asked.into_iter().for_each(|neighbour| self.enqueue(self.fixed.neighbours[neighbour]));
        during.into_iter().for_each(|node| self.enqueue(node));
        if self.fixed.rules.greedy && self.queue.contains(&self.fixed.me) {
            self.queue.retain(|node| *node != self.fixed.me);
            self.queue.insert(0, self.fixed.me);
        }
    }
}

/// Its neighbours, and every node's memory of counts.
impl Raymond {
    /// A neighbour has restarted: from now on messages to it name its new incarnation.
    pub(super) fn on_restart(&mut self, neighbour: usize, incarnation: u32, out: &mut Out) {
        let is_newer = |recovery: &&mut Box<Recovery>| incarnation > recovery.incarnations[neighbour];
        let Some(recovery) = self.recovery.as_mut().filter(is_newer) else { return };
        if let Some(phase) = &mut recovery.phase {
            phase.unanswered.retain(|(other, _)| *other != neighbour);
            return phase.unanswered.push((neighbour, incarnation));
        }
        recovery.incarnations[neighbour] = incarnation;
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
        let (incarnation, sender) = (recovery.incarnations[neighbour], recovery.incarnation);
        let (served, count) = (recovery.served[neighbour], self.fences.count());
        let message = RaymondMessage::Advise { incarnation, sender, standing, served, count };
        out.push(Effect::Send { to, message });
    }

    /// Before an entry: if the reserve is used up, sends the count to a neighbour (T28).
    pub(super) fn send_count_if_due(&mut self, out: &mut Out) {
        let reserve = self.fixed.rules.reserve;
        let is_due = |recovery: &&mut Box<Recovery>| self.fences.count() >= recovery.base.saturating_add(reserve);
        if let Some(recovery) = self.recovery.as_mut().filter(is_due) {
            recovery.base = self.fences.count();
            if !self.fixed.neighbours.is_empty() {
                self.advise(0, out);
            }
        }
    }

    /// The largest count that this incarnation may reach.
    pub(super) fn count_max(&self) -> u64 {
        match &self.recovery {
            Some(recovery) if self.fixed.neighbours.is_empty() => {
                (u64::from(recovery.incarnation) + 1).saturating_mul(ALONE).min(Fence::COUNT_MAX)
            }
            _ => Fence::COUNT_MAX,
        }
    }

    pub(super) fn is_recovering(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.phase.is_some())
    }

    pub(super) fn incarnation(&self) -> u32 {
        self.recovery.as_ref().map_or(0, |recovery| recovery.incarnation)
    }

    pub(super) fn incarnation_of(&self, node: NodeId) -> u32 {
        let Some(recovery) = &self.recovery else { return 0 };
        self.fixed.neighbours.binary_search(&node).map_or(0, |position| recovery.incarnations[position])
    }

    /// Messages to a former incarnation are dropped (T27).
    pub(super) fn is_for_this(&self, incarnation: u32) -> bool {
        incarnation == self.incarnation() || self.takes_former_incarnations()
    }

    /// As printed (T27): a message counts whichever incarnation it was meant for.
    pub(super) fn takes_former_incarnations(&self) -> bool {
        self.fixed.rules.printed.contains(Trap::UntaggedIncarnation)
    }

    /// The privilege is here, with a count that a neighbour knows as well.
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
