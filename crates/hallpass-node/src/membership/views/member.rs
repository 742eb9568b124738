//! A member: its phase, its session, and the view that it is in or on its way to.

use hallpass_core::{NodeId, Ticks};

use super::breaks::Breaks;
use super::life::Life;
use crate::Incarnation;
use crate::locks::{Held, HeldLock};
use crate::membership::group::Group;
use crate::membership::install::Install;
use crate::membership::rights::PhaseKind;
use crate::membership::session::Session;
use crate::status::ViewState;

/// Every change of what is private here is one of [`Life`]'s transitions.
pub(super) struct MemberRole {
    phase: Phase,
    session: Session,
    /// The view that it is in, and what it has reported and started.
    install: Install<Group>,
    /// The view that it is to be in next.
    next: Next,
    /// Who has prepared the last view here, and its epoch.
    installer: Option<(NodeId, u64)>,
    /// When the session is renewed; 0 is at once.
    pub(super) renew_at: Ticks,
    /// The last acknowledgement came for a renewal that was sent then.
    pub(super) renewed: Ticks,
    /// Why it takes no part in views that it was asked for, from which epoch on.
    pub(super) refusal: Option<(u64, String)>,
    /// Its fences run out: it needs a view of a later epoch.
    pub(super) wants_epoch: bool,
    /// An operator founded the group again from here, and sessions of the lost one may go on: there is no view yet.
    waits_for_lost: bool,
    /// It was sent away before its session was over, and does not join before that.
    pub(super) joins_from: Ticks,
    pub(super) breaks: Breaks,
}

/// Whether a node takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Waits until its predecessor's session is over. It counts from the first look at the clock.
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
    /// When it was said first.
    pub(super) at: Ticks,
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
}

/// What it is.
impl MemberRole {
    pub(super) fn new(incarnation: Incarnation, ttl: Ticks) -> Self {
        Self {
            phase: Phase::Running,
            session: Session::new(incarnation, ttl),
            install: Install::default(),
            next: Next::Nothing,
            installer: None,
            renew_at: 0,
            renewed: 0,
            refusal: None,
            wants_epoch: false,
            waits_for_lost: false,
            joins_from: 0,
            breaks: Breaks::default(),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn install(&self) -> &Install<Group> {
        &self.install
    }

    pub(super) fn next(&self) -> &Next {
        &self.next
    }

    pub(super) fn waits_for_lost(&self) -> bool {
        self.waits_for_lost
    }

    /// The epoch of the last view that was prepared here, if this node has done that.
    pub(super) fn prepared_by(&self, id: NodeId) -> Option<u64> {
        self.installer.filter(|(installer, _)| *installer == id).map(|(_, epoch)| epoch)
    }

    /// It is in a view, or on its way into one.
    pub(super) fn takes_part(&self) -> bool {
        self.install.is_in_view() || !matches!(self.next, Next::Nothing)
    }

    /// It takes part, or tries to, and its session is not over.
    pub(super) fn may_install(&self) -> bool {
        self.phase == Phase::Running && !self.session.has_lapsed()
    }

    pub(super) fn life(&self) -> Life {
        match self.phase {
            Phase::Waiting { .. } => Life::Waiting,
            Phase::Persisting => Life::Persisting,
            Phase::Withdrawing { .. } => Life::Withdrawing,
            Phase::Gone => Life::Gone,
            Phase::Running if self.session.has_lapsed() => Life::Lapsed,
            Phase::Running if self.next.is_closing() => Life::Closing,
            Phase::Running if self.install.open().is_some() => Life::Open,
            Phase::Running if self.install.is_in_view() => Life::Reported,
            Phase::Running if self.next.is_too_early() => Life::Prepared,
            Phase::Running => Life::Joining,
        }
    }

    pub(super) fn state(&self) -> ViewState {
        match self.life() {
            Life::Persisting | Life::Lapsed => ViewState::Lapsed,
            Life::Waiting | Life::Joining | Life::Prepared | Life::Withdrawing | Life::Gone => ViewState::Joining,
            Life::Open => ViewState::Open,
            Life::Reported => ViewState::Changing,
            // The view before is as it was until the locks are closed.
            Life::Closing if self.install.open().is_some() => ViewState::Open,
            Life::Closing if self.install.is_in_view() => ViewState::Changing,
            Life::Closing => ViewState::Joining,
        }
    }
}

/// What happens to it.
impl MemberRole {
    fn change<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.life();
        let result = change(self);
        let after = self.life();
        debug_assert!(before.may_become(after), "a member does not go from {before:?} to {after:?}");
        result
    }

    /// It is to wait for the end of its predecessor's session before anything else; for longer if that was in a group that is lost.
    pub(super) fn wait_for_predecessor(&mut self, waits_for_lost: bool) {
        (self.phase, self.waits_for_lost) = (Phase::Waiting { until: None }, waits_for_lost);
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
            Some(until) if now >= until => self.change(|member| {
                (member.phase, member.waits_for_lost) = (Phase::Running, false);
            }),
            Some(_) => {}
        }
    }

    /// A session that begins with its first renewal.
    pub(super) fn begin_session(&mut self, incarnation: Incarnation, ttl: Ticks) {
        self.change(|member| member.session = Session::new(incarnation, ttl));
    }

    /// The steward has acknowledged the renewal that was sent at this time.
    pub(super) fn on_acknowledged(&mut self, incarnation: Incarnation, sent: Ticks, now: Ticks) {
        self.session.on_acknowledged(incarnation, sent, now);
    }

    /// It decides alone: see [`Session::renew_at`].
    pub(super) fn renew_alone(&mut self, now: Ticks) {
        self.session.renew_at(now);
    }

    /// True if the session is over now and was not before.
    pub(super) fn lapse_if_due(&mut self, now: Ticks) -> bool {
        self.change(|member| member.session.lapse_if_due(now))
    }

    /// It holds nothing and is in no view any more, in this incarnation.
    pub(super) fn end(&mut self) {
        // Its clients may go by the deadline that they were told.
        self.joins_from = self.session.valid_until().unwrap_or(0);
        self.change(|member| {
            member.session.end();
            member.install.end();
            member.next = Next::Nothing;
        });
        self.breaks.end();
    }

    /// Its next incarnation is being written.
    pub(super) fn persist(&mut self) {
        self.change(|member| member.phase = Phase::Persisting);
    }

    /// Its next incarnation is on disk.
    pub(super) fn come_back(&mut self, incarnation: Incarnation) {
        self.change(|member| {
            // It may have been stopped meanwhile.
            if member.phase == Phase::Persisting {
                member.phase = Phase::Running;
            }
            member.session = Session::new(incarnation, member.session.ttl());
        });
    }

    /// It is to leave; false if it does so already.
    pub(super) fn withdraw(&mut self, keeps_vote: bool) -> bool {
        let begins = !matches!(self.phase, Phase::Withdrawing { .. } | Phase::Gone);
        if begins {
            self.change(|member| member.phase = Phase::Withdrawing { keeps_vote, offers_at: 0 });
            self.end();
        }
        begins
    }

    /// A steward that leaves offers its office to another member again at this time.
    pub(super) fn offer_again_at(&mut self, time: Ticks) {
        if let Phase::Withdrawing { offers_at, .. } = &mut self.phase {
            *offers_at = time;
        }
    }

    /// It has left.
    pub(super) fn leave(&mut self) {
        self.change(|member| member.phase = Phase::Gone);
    }

    /// A view was prepared for which it is not ready.
    pub(super) fn on_prepared_early(&mut self, prepared: Prepared) {
        self.change(|member| member.next = Next::TooEarly(prepared));
    }

    /// Takes what was prepared too early.
    pub(super) fn take_prepared(&mut self) -> Option<Prepared> {
        self.change(|member| match std::mem::take(&mut member.next) {
            Next::TooEarly(prepared) => Some(prepared),
            other => {
                member.next = other;
                None
            }
        })
    }

    /// Its locks are to be closed for this view.
    pub(super) fn close_for(&mut self, from: NodeId, group: Group) {
        self.installer = Some((from, group.epoch));
        self.change(|member| member.next = Next::Closing(group));
    }

    /// The locks are closed, and this is held; false if they were not to be closed.
    pub(super) fn on_closed(&mut self, held: Vec<Held>) -> bool {
        self.change(|member| match std::mem::take(&mut member.next) {
            Next::Closing(group) => {
                member.install.on_closed(group.epoch, group, held);
                true
            }
            other => {
                member.next = other;
                false
            }
        })
    }

    /// A part of a view's start; all locks that are held if this was the last.
    pub(super) fn on_start(
        &mut self,
        epoch: u64,
        part: u32,
        parts: u32,
        locks: Vec<HeldLock>,
    ) -> Option<Vec<HeldLock>> {
        self.change(|member| member.install.on_start(epoch, part, parts, locks))
    }
}

/// Planted bugs: what no member does.
impl MemberRole {
    /// See [`Session::revive`].
    #[cfg(any(test, feature = "planted-bugs"))]
    pub(super) fn revive(&mut self, sent: Ticks) {
        self.session.revive(sent);
    }

    /// See [`Install::pretend_reported`].
    #[cfg(any(test, feature = "planted-bugs"))]
    pub(super) fn pretend_reported(&mut self, epoch: u64) {
        self.install.pretend_reported(epoch, None);
    }

    /// Reports again for the view that it is in.
    pub(super) fn close_again(&mut self, held: Vec<Held>) -> bool {
        let Some(group) = self.install.group().cloned() else { return false };
        self.install.on_closed(group.epoch, group, held);
        true
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
