//! How a view begins: the steward probes, prepares and starts it, and each member ends the view before, reports what it holds, and takes
//! part. The rules of both sides are in [`install`](crate::membership::install).

use hallpass_core::{NodeId, View};

use super::action::Opening;
use super::member::Prepared;
use super::voter::Voter;
use super::{Action, Views};
use crate::Incarnation;
use crate::faults::{Conduct, Sabotage};
use crate::links::Sender;
use crate::locks::{Classes, Held, HeldLock};
use crate::membership::control::Control;
use crate::membership::group::Group;
use crate::membership::install::{Needs, Prepare, Step, parts};
use crate::node::Checked;

/// The steward's side.
impl<F: Conduct> Views<F> {
    /// Goes on with the installation of the view: members that have not answered are told again. False if there is nothing new.
    pub(super) fn announce(&mut self) -> bool {
        let (voters, now, interval) = (self.voters(), self.base.now, self.repeat_after());
        let me = self.base.me.id;
        let limits = (self.base.settings.voters_max, self.base.settings.replace_after);
        let Some((engine, group, steward)) = Voter::serving(&mut self.voter) else { return false };
        let target = steward.voters(group, &voters, me, limits, now);
        // One that was to vote and has gone learns no more.
        let is_settled = target == engine.voters() && engine.learners().is_empty();
        if !target.is_empty() && !is_settled {
            engine.set_voters(&target, self.base.settings.conduct);
        }
        let step = (steward.installation.epoch, steward.installation.step);
        let is_new = steward.announced != Some(step);
        if !is_new && now < steward.announce_at {
            return false;
        }
        steward.announced = Some(step);
        steward.announce_at = now + interval;
        self.tell_missing(voters);
        self.tell_breaks();
        let is_done = is_new && step.1 == Step::Done;
        if is_done {
            self.base.actions.push_back(Action::View);
        }
        // Members that have not heard of a candidate cannot be reached by it.
        let has_candidates = self.steward().is_some_and(|steward| !steward.candidates.is_empty());
        if is_done {
            self.spread_contacts();
        } else if !is_new && has_candidates {
            self.spread_candidates();
        }
        is_new
    }

    /// Tells those that have not answered yet in which step the view is.
    fn tell_missing(&mut self, voters: Vec<NodeId>) {
        let Some((_, group, steward)) = Voter::serving(&mut self.voter) else { return };
        let installation = &steward.installation;
        let epoch = installation.epoch;
        let message = match installation.step {
            Step::Probing => Control::Probe { epoch },
            Step::Preparing => Control::Prepare { group: group.clone(), voters },
            Step::Starting => {
                let view = View::new(installation.incarnations().map(|(id, _)| id)).with_epoch(epoch);
                // All members find the same homes. The steward may be none of them.
                let Some(member) = view.members().first() else { return };
                let classes = Classes::fitting(*member, &view, &group.classes);
                let needs = Needs::of(&installation.locks, |name| classes.home_of(name));
                for id in installation.missing.keys() {
                    let chunks = parts(&needs.of_member(*id));
                    let count = chunks.len() as u32;
                    for (part, locks) in (0..).zip(chunks) {
                        self.base.send(*id, Control::Start { epoch, part, parts: count, locks });
                    }
                }
                return;
            }
            Step::Done | Step::Void => return,
        };
        for id in installation.missing.keys() {
            self.base.send(*id, message.clone());
        }
    }

    pub(super) fn on_probed(&mut self, from: NodeId, epoch: u64, incarnation: Incarnation, started: u64) {
        let own = self.is_own_view();
        if let Some((_, _, steward)) = Voter::serving(&mut self.voter) {
            steward.installation.on_probed(epoch, from, incarnation, started, own);
        }
    }

    pub(super) fn on_report(&mut self, from: (u64, NodeId, Incarnation), part: u32, parts: u32, held: Vec<Held>) {
        let Some((_, _, steward)) = Voter::serving(&mut self.voter) else { return };
        steward.installation.on_report(from, part, parts, held);
        #[cfg(any(test, feature = "planted-bugs"))]
        if self.base.breaks(Sabotage::NoWaitForReports) {
            steward.installation.wait_no_longer();
        }
    }

    pub(super) fn on_started(&mut self, from: NodeId, epoch: u64, incarnation: Incarnation) {
        if let Some((_, _, steward)) = Voter::serving(&mut self.voter) {
            steward.installation.on_started(epoch, from, incarnation);
        }
    }
}

/// A member's side.
impl<F: Conduct> Views<F> {
    /// The steward asks whether this node is there, and which view it has started.
    pub(super) fn on_probe(&mut self, from: NodeId, epoch: u64) {
        let (incarnation, started) = (self.base.me.incarnation, self.member.install().open().unwrap_or(0));
        self.base.send(from, Control::Probed { epoch, incarnation, started });
    }

    pub(super) fn on_prepare(&mut self, from: NodeId, group: Group, voters: Vec<NodeId>) {
        if group.incarnation_of(self.base.me.id) != Some(self.base.me.incarnation) {
            return;
        }
        self.base.known.steward = Some(from);
        self.base.is_stored = true;
        if self.member.next().is_closing() && !self.base.breaks(Sabotage::CloseTwice) {
            // The report is on its way, and if this is about a later view it is said again.
            return;
        }
        match self.member.install().on_prepare(group.epoch) {
            Prepare::Ignore => {}
            Prepare::Repeat => self.send_report(from),
            Prepare::Report if Classes::unknown(&group.classes).is_some() => {
                self.member.refusal = Classes::unknown(&group.classes).map(|why| (group.epoch, why));
                self.end_view();
                self.repeat_soon();
            }
            Prepare::Report if !self.may_take_part(&group) => {
                if !self.member.next().is_too_early() {
                    self.member.renew_at = 0;
                }
                self.base.known.voters.clone_from(&voters);
                let at = self.base.now;
                self.member.on_prepared_early(Prepared { from, group, voters, at });
            }
            Prepare::Report => self.close_for(from, group, voters),
        }
    }

    /// Ends the view: the locks are to be closed, and what is held is reported for the next view.
    fn close_for(&mut self, from: NodeId, group: Group, voters: Vec<NodeId>) {
        if self.renews_alone() {
            self.member.renew_alone(self.base.now);
        }
        self.base.known.epoch = group.epoch;
        (self.base.known.ttl, self.base.known.drift_ppm) = (group.ttl, group.drift_ppm);
        self.base.known.voters = voters;
        self.base.known.members = group.members.values().cloned().collect();
        self.base.remember(&group);
        self.follow_bans(group.epoch, &group.banned);
        self.member.close_for(from, group);
        self.member.wants_epoch = false;
        self.base.actions.push_back(Action::Close);
        self.base.actions.push_back(Action::Peers);
    }

    /// A view was prepared too early for this node: it may be ready for it now.
    pub(super) fn take_up_pending(&mut self) {
        let Some(Prepared { from, group, voters, .. }) = self.member.take_prepared() else { return };
        if self.member.may_install() {
            self.on_prepare(from, group, voters);
        }
    }

    /// Whether this node can be in a view of this group: it has a session, and has stored that it is in the group. What is missing is
    /// asked for.
    fn may_take_part(&mut self, group: &Group) -> bool {
        let forgets_session = self.base.breaks(Sabotage::ForgetSessionOnDisk);
        let has_session = self.member.session().is_valid(self.base.now) || self.renews_alone();
        if !has_session && (!self.member.install().is_in_view() || forgets_session) {
            // Without a view nothing is held under the session before: it never began.
            self.member.begin_session(self.base.me.incarnation, group.ttl);
        }
        let is_remembered = self.base.remembered == group.id || self.base.joins_unstored();
        if !is_remembered && !self.base.is_remembering() {
            self.base.remember(group);
        }
        has_session && is_remembered
    }

    /// The locks are closed, and this is held: it is reported.
    pub(crate) fn on_closed(&mut self, held: Vec<Held>, now: Checked) {
        self.base.now = now.ticks();
        let closes_again = self.base.breaks(Sabotage::CloseTwice) && !self.member.next().is_closing();
        let is_closed = if closes_again { self.member.close_again(held) } else { self.member.on_closed(held) };
        if !is_closed {
            return;
        }
        if let Some(to) = self.steward_id() {
            self.send_report(to);
        }
        self.run_until_idle();
    }

    fn send_report(&mut self, to: NodeId) {
        let (epoch, incarnation) = (self.member.install().reported(), self.base.me.incarnation);
        let chunks = parts(self.member.install().report());
        let count = chunks.len() as u32;
        for (part, held) in (0..).zip(chunks) {
            self.base.send(to, Control::Report { epoch, incarnation, part, parts: count, held });
        }
    }

    pub(super) fn on_start(&mut self, from: NodeId, epoch: u64, part: u32, count: u32, locks: Vec<HeldLock>) {
        #[cfg(any(test, feature = "planted-bugs"))]
        if self.base.breaks(Sabotage::AcceptStaleStart) {
            self.member.pretend_reported(epoch);
        }
        if let Some(holders) = self.member.on_start(epoch, part, count, locks)
            && let Some(group) = self.member.install().group()
        {
            self.base.why = None;
            let sender = Sender { me: self.base.me.id, incarnation: self.base.me.incarnation, epoch };
            let view = View::new(group.members.keys().copied()).with_epoch(epoch);
            let opening = Opening { sender, view, classes: group.classes.clone(), holders };
            self.base.actions.push_back(Action::Peers);
            self.base.actions.push_back(Action::Open(Box::new(opening)));
        }
        if self.member.install().open() == Some(epoch) {
            let incarnation = self.base.me.incarnation;
            self.base.send(from, Control::Started { epoch, incarnation });
        }
    }
}
