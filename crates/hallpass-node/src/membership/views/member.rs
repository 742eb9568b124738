//! A member: its phase, its session, and the view that it is in or on its way to.

use std::collections::BTreeSet;

use hallpass_core::{NodeId, Ticks};

use super::breaks::Breaks;
use super::voter::Voter;
use super::{Action, Purpose, Views};
use crate::Incarnation;
use crate::config::Sabotage;
use crate::links::Links;
use crate::membership::control::Control;
use crate::membership::group::Group;
use crate::membership::install::Install;
use crate::membership::keys;
use crate::membership::rights::PhaseKind;
use crate::membership::session::Session;
use crate::node::Checked;
use crate::status::ViewState;

pub(super) struct MemberRole {
    pub(super) phase: Phase,
    pub(super) session: Session,
    /// When the session is renewed; 0 is at once.
    pub(super) renew_at: Ticks,
    /// The last acknowledgement came for a renewal that was sent then.
    pub(super) renewed: Ticks,
    /// The view that it is in, and what it has reported and started.
    pub(super) install: Install<Group>,
    /// The view that it is to be in next.
    pub(super) next: Next,
    /// Why it takes no part in views that it was asked for, from which epoch on.
    pub(super) refusal: Option<(u64, String)>,
    pub(super) wants_epoch: bool,
    /// An operator founded the group again from here, and sessions of the lost one may go on: there is no view yet.
    pub(super) waits_for_lost: bool,
    /// It was sent away before its session was over, and does not join before that.
    pub(super) joins_from: Ticks,
    pub(super) breaks: Breaks,
}

/// Whether a node takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Waits until its predecessor's session is over, whatever became of it. It counts from the first look at the clock.
    Waiting { until: Option<Ticks> },
    /// Takes part, or tries to.
    Running,
    /// The next incarnation is being written.
    Persisting,
    /// It leaves of its own accord. A steward offers its office to another member again at that time.
    Withdrawing { keeps_vote: bool, offers_at: Ticks },
    /// It has left.
    Gone,
}

/// The view that a member has been told to prepare for.
#[derive(Default)]
pub(super) enum Next {
    #[default]
    Nothing,
    /// It was prepared before this node had a session, or had stored that it is in this group.
    TooEarly(Prepared),
    /// The locks of the view before are being closed.
    Closing(Group),
}

/// What a steward said in `Prepare`.
pub(super) struct Prepared {
    pub(super) from: NodeId,
    pub(super) group: Group,
    pub(super) voters: Vec<NodeId>,
}

impl Next {
    pub(super) fn too_early(&self) -> Option<&Prepared> {
        if let Self::TooEarly(prepared) = self { Some(prepared) } else { None }
    }

    pub(super) fn is_too_early(&self) -> bool {
        self.too_early().is_some()
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self, Self::Closing(_))
    }

    /// Takes what came too early.
    pub(super) fn take_too_early(&mut self) -> Option<Prepared> {
        match std::mem::take(self) {
            Self::TooEarly(prepared) => Some(prepared),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the view for which the locks have been closed.
    pub(super) fn take_closing(&mut self) -> Option<Group> {
        match std::mem::take(self) {
            Self::Closing(group) => Some(group),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl MemberRole {
    pub(super) fn new(incarnation: Incarnation, ttl: Ticks) -> Self {
        Self {
            phase: Phase::Running,
            session: Session::new(incarnation, ttl),
            renew_at: 0,
            renewed: 0,
            install: Install::default(),
            next: Next::default(),
            refusal: None,
            wants_epoch: false,
            waits_for_lost: false,
            joins_from: 0,
            breaks: Breaks::default(),
        }
    }

    /// It is in a view, or on its way into one.
    pub(super) fn takes_part(&self) -> bool {
        self.install.is_in_view() || !matches!(self.next, Next::Nothing)
    }

    pub(super) fn state(&self) -> ViewState {
        match self.phase {
            Phase::Persisting => ViewState::Lapsed,
            Phase::Waiting { .. } | Phase::Withdrawing { .. } | Phase::Gone => ViewState::Joining,
            Phase::Running if self.session.has_lapsed() => ViewState::Lapsed,
            Phase::Running if self.install.open().is_some() => ViewState::Open,
            Phase::Running if self.install.is_in_view() => ViewState::Changing,
            Phase::Running => ViewState::Joining,
        }
    }

    /// Waiting for the predecessor's session begins, or is over.
    pub(super) fn wait(&mut self, now: Ticks, drift_ppm: u32) {
        let Phase::Waiting { until } = self.phase else { return };
        let ttl = self.session.ttl();
        match until {
            None => {
                let until = now + ttl + ttl.saturating_mul(drift_ppm.into()) / 1_000_000;
                self.phase = Phase::Waiting { until: Some(until) };
            }
            Some(until) if now >= until => (self.phase, self.waits_for_lost) = (Phase::Running, false),
            Some(_) => {}
        }
    }
}

/// Its session.
impl Views {
    pub(super) fn renew(&mut self, links: &Links) {
        let ttl = self.member.session.ttl();
        self.member.renew_at = self.base.now + ttl / 4;
        // One whose disk does not take the group lets its session end: the others go on without it.
        let waits = self.member.next.too_early();
        let is_awaited = waits.is_some_and(|prepared| self.base.remembered == prepared.group.id);
        let is_member = self.member.phase == Phase::Running
            && !self.member.session.has_lapsed()
            && (self.member.install.is_in_view() || is_awaited || waits.is_some() && self.base.joins_unstored());
        if !is_member {
            return;
        }
        let now = self.base.now;
        let unreachable = links
            .iter()
            .filter(|link| link.in_view && !link.connected && now.saturating_sub(link.disconnected_at) > ttl / 2)
            .map(|link| link.peer)
            .collect();
        let message = Control::Renew {
            incarnation: self.base.me.incarnation,
            sent: now,
            unreachable,
            wants_epoch: self.member.wants_epoch,
        };
        let answered = self.member.renewed != 0 && now.saturating_sub(self.member.renewed) < ttl / 2;
        match self.steward_id() {
            Some(steward) if answered => self.base.send(steward, message),
            // Nobody answers: any voter may be the steward by now. If all of those are gone, others know who is.
            steward => {
                self.member.renew_at = now + ttl / 16;
                let is_reached = |id: &NodeId| *id == self.base.me.id || self.base.connected.contains(id);
                let voters: BTreeSet<NodeId> = self.voters().into_iter().chain(steward).filter(is_reached).collect();
                for peer in if voters.is_empty() { self.base.connected.clone() } else { voters } {
                    self.base.send(peer, message.clone());
                }
            }
        }
    }

    pub(super) fn renew_deadline(&self) -> Option<Ticks> {
        let renews = self.member.install.is_in_view() && !self.needs_no_session() || self.member.next.is_too_early();
        renews.then_some(self.member.renew_at)
    }

    pub(super) fn on_renewed(&mut self, from: NodeId, incarnation: Incarnation, sent: Ticks) {
        if self.base.breaks(Sabotage::LateAckUndoesLapse) {
            self.member.session.revive(sent);
        }
        self.member.session.on_acknowledged(incarnation, sent, self.base.now);
        if self.member.session.has_lapsed() {
            return;
        }
        if incarnation == self.base.me.incarnation {
            self.member.renewed = self.member.renewed.max(sent);
            self.member.renew_at = sent + self.member.session.ttl() / 4;
            self.base.known.steward = Some(from);
        }
        self.take_up_pending();
    }

    /// The steward will not acknowledge this incarnation any more.
    pub(super) fn on_expelled(&mut self, incarnation: Incarnation) {
        let is_me = incarnation == self.base.me.incarnation;
        if is_me && !self.member.session.has_lapsed() && self.member.takes_part() {
            self.lapse();
        }
    }

    pub(crate) fn ask_for_new_epoch(&mut self, now: Checked) {
        self.base.now = now.ticks();
        if !std::mem::replace(&mut self.member.wants_epoch, true) {
            self.member.renew_at = 0;
        }
    }

    /// The session is over, if its time is.
    pub(crate) fn lapse_if_due(&mut self, now: Ticks) {
        self.base.now = now;
        self.renew_alone();
        if !self.base.breaks(Sabotage::KeepPermissionsAfterLapse) && self.member.session.lapse_if_due(now) {
            self.lapse();
        }
    }

    /// A steward that decides alone renews its own session: asked, confirmed and answered in one moment.
    pub(super) fn renew_alone(&mut self) {
        if self.renews_alone() {
            if self.member.install.is_in_view() {
                self.member.session.renew_at(self.base.now);
            }
            if let Some((_, _, steward)) = Voter::serving(&mut self.voter) {
                steward.sessions.touch(self.base.me.id, self.base.now);
            }
        }
    }

    /// Everything that was held is lost, and the node comes back as its next incarnation.
    fn lapse(&mut self) {
        let comes_back = self.member.phase == Phase::Running;
        self.end_view(comes_back);
        if comes_back {
            self.come_back_as(self.base.me.incarnation.get() + 1);
        }
    }

    pub(super) fn end_view(&mut self, comes_back: bool) {
        // Its clients may go by the deadline that they were told.
        self.member.joins_from = self.member.session.valid_until().unwrap_or(0);
        self.member.session.end();
        self.member.install.end();
        self.member.next = Next::Nothing;
        self.member.breaks.end();
        self.base.actions.push_back(Action::Lapse { comes_back });
        self.base.actions.push_back(Action::Peers);
    }

    /// Writes the next incarnation, which is to be on disk before it joins.
    pub(super) fn come_back_as(&mut self, number: u32) {
        self.member.phase = Phase::Persisting;
        let Some(next) = Incarnation::new(number) else {
            let why = "this node has used up its incarnations: give it another data directory";
            self.base.why = Some(why.to_owned());
            return;
        };
        self.base.me.incarnation = next;
        let put = vec![(keys::INCARNATION, number.to_be_bytes().to_vec())];
        self.base.persist(Purpose::Incarnation, 0..0, put);
    }

    /// The next incarnation is on disk.
    pub(super) fn on_incarnation_stored(&mut self) {
        // It may have been stopped meanwhile.
        if self.member.phase == Phase::Persisting {
            self.member.phase = Phase::Running;
        }
        self.member.session = Session::new(self.base.me.incarnation, self.member.session.ttl());
        self.base.repeat_at = 0;
        self.base.actions.push_back(Action::View);
    }

    /// It is alone, and nobody wants to join. A holder that is told a deadline is to know it before a second member
    /// is there.
    pub(super) fn needs_no_session(&self) -> bool {
        self.is_alone() && self.renews_alone() && self.steward().is_none_or(|steward| steward.candidates.is_empty())
    }

    /// Until when what is held here is held for certain; 0 without a session.
    pub(crate) fn valid_until(&self) -> Ticks {
        if self.needs_no_session() { Ticks::MAX } else { self.member.session.valid_until().unwrap_or(0) }
    }

    pub(crate) fn at_risk_from(&self) -> Ticks {
        match self.valid_until() {
            Ticks::MAX => Ticks::MAX,
            until => until.saturating_sub(self.member.session.ttl() / 2),
        }
    }
}

impl From<Phase> for PhaseKind {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Waiting { .. } => Self::Waiting,
            Phase::Running => Self::Running,
            Phase::Persisting => Self::Persisting,
            Phase::Withdrawing { .. } => Self::Withdrawing,
            Phase::Gone => Self::Gone,
        }
    }
}
