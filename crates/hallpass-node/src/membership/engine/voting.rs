//! What a node that leads, or stands for election, has to do for those who vote.

use std::collections::BTreeMap;

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use raft::{ProgressState, SnapshotStatus, StateRole};

use super::{CAUGHT_UP, ELECTION_TICKS, Engine, Event, Seal, codec, node};

/// What a node does of its own accord.
impl Engine {
    pub(super) fn is_elected(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    pub(super) fn do_what_is_due(&mut self) {
        if std::mem::take(&mut self.elections.wanted) && !self.is_elected() && self.node.raft.promotable() {
            if self.is_settled() {
                let _ = self.node.campaign();
            } else {
                self.elections.wanted = true;
            }
        }
        if self.is_leader() {
            self.leave_joint();
            self.seal_voters();
            self.ask();
        } else {
            (self.seal, self.inquiry) = (Seal::Needed, None);
            self.confirmations.waiting.clear();
            self.confirmations.asked = None;
        }
    }

    /// Starts a round of confirmation, if somebody waits for one. Before something of its own term is committed the engine
    /// would forget the question.
    pub(super) fn ask(&mut self) {
        let confirmations = &mut self.confirmations;
        let needed = !confirmations.waiting.is_empty() && confirmations.asked.is_none();
        if !needed || !self.node.raft.commit_to_current_term() {
            return;
        }
        confirmations.rounds += 1;
        let context = [self.node.raft.term.to_be_bytes(), confirmations.rounds.to_be_bytes()].concat();
        confirmations.asked = Some((context.clone(), std::mem::take(&mut confirmations.waiting)));
        self.node.read_index(context);
    }

    pub(super) fn on_confirmed(&mut self, context: &[u8]) {
        if let Some((_, batches)) = self.confirmations.asked.take_if(|(asked, _)| asked == context) {
            self.events.extend(batches.into_iter().map(|batch| Event::Confirmed { batch }));
        }
    }

    /// While voters are being replaced the old and the new ones both decide. The leader ends that, or gives way to one that
    /// votes on.
    pub(super) fn leave_joint(&mut self) {
        let conf = self.conf();
        let raft = &self.node.raft;
        if conf.voters_outgoing.is_empty() || raft.has_pending_conf() || raft.lead_transferee.is_some() {
            return;
        }
        if conf.voters.contains(&raft.id) {
            self.change_voters(ConfChangeTransition::Auto, Vec::new());
            return;
        }
        let candidates = conf.voters.iter().filter(|id| self.is_active(**id));
        let best = candidates.max_by_key(|id| raft.prs().get(**id).map(|progress| progress.matched));
        if let Some(best) = best.copied() {
            self.node.transfer_leader(best);
        }
    }

    pub(super) fn seal_voters(&mut self) {
        let raft = &self.node.raft;
        let is_due = self.seal == Seal::Needed && raft.commit_to_current_term() && !raft.has_pending_conf();
        if is_due && self.conf().voters_outgoing.is_empty() && self.node.propose(Vec::new(), Vec::new()).is_ok() {
            self.seal = Seal::Proposed(self.node.raft.raft_log.last_index());
        }
    }

    /// The next change on the way from these voters to those.
    pub(super) fn next_change(
        &self,
        conf: &ConfState,
        target: &[u64],
    ) -> Option<(ConfChangeTransition, Vec<(ConfChangeType, u64)>)> {
        let wanted = |id: &&u64| target.contains(id) && !conf.voters.contains(id);
        let leaving = |id: &&u64| !target.contains(id);
        if let Some(learner) = conf.learners.iter().find(|id| !wanted(id)) {
            return Some((ConfChangeTransition::Auto, vec![(ConfChangeType::RemoveNode, *learner)]));
        }
        let newcomers: Vec<u64> = target.iter().filter(wanted).copied().collect();
        if let Some(newcomer) = newcomers.iter().find(|id| !conf.learners.contains(id)) {
            return Some((ConfChangeTransition::Auto, vec![(ConfChangeType::AddLearnerNode, *newcomer)]));
        }
        // Once the change has begun it needs a majority of the new voters: one that is not there would stop everything.
        let active = target.iter().filter(|id| self.is_active(**id)).count();
        if !newcomers.iter().all(|id| self.is_active(*id)) || active <= target.len() / 2 {
            return None;
        }
        let adds = newcomers.iter().map(|id| (ConfChangeType::AddNode, *id));
        let removes = conf.voters.iter().filter(leaving).map(|id| (ConfChangeType::RemoveNode, *id));
        Some((ConfChangeTransition::Explicit, adds.chain(removes).collect()))
    }

    pub(super) fn change_voters(&mut self, transition: ConfChangeTransition, changes: Vec<(ConfChangeType, u64)>) {
        let single = |(kind, node_id)| {
            let mut single = ConfChangeSingle { node_id, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            single
        };
        let mut change = ConfChangeV2::default();
        change.set_transition(transition);
        change.set_changes(changes.into_iter().map(single).collect::<Vec<_>>().into());
        // If it is not taken, the next call of `set_voters` tries again.
        let _ = self.node.propose_conf_change(codec::encode_changes(&change), change);
    }

    /// Whether a follower has nearly all of the log and was heard of lately.
    pub(super) fn is_active(&self, id: u64) -> bool {
        let raft = &self.node.raft;
        if id == raft.id {
            return true;
        }
        let ticks = node(id).and_then(|node| self.ticks_since(node));
        let matched = raft.prs().get(id).map_or(0, |progress| progress.matched);
        let lately = ticks.is_some_and(|ticks| ticks <= ELECTION_TICKS as u64);
        lately && matched > 0 && matched + CAUGHT_UP >= raft.raft_log.last_index()
    }

    /// The engine waits for a snapshot's arrival, however long it takes: one that was lost is given up here.
    pub(super) fn repeat_lost_snapshots(&mut self) {
        let followers = self.node.raft.prs().iter();
        let waiting = followers.filter(|(_, progress)| progress.state == ProgressState::Snapshot);
        let waiting: BTreeMap<u64, usize> =
            waiting.map(|(id, _)| (*id, self.snapshots_sent.get(id).map_or(1, |ticks| ticks + 1))).collect();
        for (id, _) in waiting.iter().filter(|(_, ticks)| **ticks >= ELECTION_TICKS) {
            self.node.report_snapshot(*id, SnapshotStatus::Failure);
        }
        self.snapshots_sent = waiting;
        self.snapshots_sent.retain(|_, ticks| *ticks < ELECTION_TICKS);
    }

    pub(super) fn conf(&self) -> ConfState {
        let mut conf = self.node.raft.prs().conf().to_conf_state();
        conf.voters.sort_unstable();
        conf.voters_outgoing.sort_unstable();
        conf.learners.sort_unstable();
        conf.learners_next.sort_unstable();
        conf
    }
}
