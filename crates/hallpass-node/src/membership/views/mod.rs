//! A node whose group changes: how it finds a group, renews its session, goes from view to view, and comes back.
//!
//! A node plays up to three roles at once, each with its own state and deadline. They share what every node has ([`base`]).
//!
//! | role | state | what it does |
//! |---|---|---|
//! | outside any group | [`outside`], [`elsewhere`] | finds others to found a group with, or holds back |
//! | member | [`member`], [`life`], [`breaks`] | [`joining`], [`renewing`] its session, [`installing`] views, [`leaving`] |
//! | voter | [`voter`] | takes part in consensus |
//! | steward, one of the voters | [`steward`](super::steward) | [`serve`]s the group, [`installing`] views, carries out [`orders`] |
//!
//! Messages that a node sends to itself, such as the renewals of the steward's own session, take the same way as all others.

mod action;
mod base;
mod breaks;
mod connections;
mod contacts;
mod elsewhere;
mod installing;
mod joining;
mod key_bans;
mod leaving;
#[allow(missing_docs, reason = "public for diagrams only")]
pub(super) mod life;
mod member;
mod orders;
mod outside;
mod renewing;
mod senders;
mod serve;
mod status;
mod voter;

use std::fmt::Display;

use hallpass_core::codec::{DecodeError, Reader};
use hallpass_core::protocol::OptionError;
use hallpass_core::{NodeId, Ticks};

use crate::config::{Founding, NodeConfig, ViewsConfig};
use crate::faults::{Conduct, Sabotage};
use crate::links::Links;
use crate::membership::control::{Control, Envelope, Founder};
use crate::membership::founding::Founders;
use crate::membership::group::Group;
use crate::membership::keys;
use crate::membership::rights::{Situation, Verdict, is_for_own_phase, judge};
use crate::membership::sessions::Renewal;
use crate::node::Checked;
pub(crate) use action::Action;
use base::{Base, Purpose};
use member::{MemberRole, Phase};
use outside::Outside;
use voter::Voter;

pub(crate) struct Views<F> {
    base: Base<F>,
    outside: Outside,
    member: MemberRole,
    /// `None` on a node that takes no part in consensus.
    voter: Option<Voter<F>>,
}

impl<F: Conduct> Views<F> {
    pub(crate) fn new(config: &NodeConfig, views: &ViewsConfig, conduct: F) -> Result<Self, OptionError> {
        if config.me == NodeId::SERVER {
            return Err(OptionError("a node's id is not 0".to_owned()));
        }
        let unusable = |error: &dyn Display| OptionError(format!("what this node has stored cannot be used: {error}"));
        let last_seen = match views.stored.get(&keys::GROUP) {
            None => None,
            Some(bytes) => Some(Group::decode(&mut Reader::new(bytes)).map_err(|error| unusable(&error))?),
        };
        let base = Base::new(config, views, last_seen.as_ref(), conduct);
        let voter = Voter::restore(&base, &views.stored).map_err(|error| unusable(&error))?;
        let member = MemberRole::new(config.incarnation, last_seen.map_or(views.ttl, |group| group.ttl));
        let mut node = Self { base, outside: Outside::default(), member, voter };
        node.outside.held_back = node.hold_back(views);
        let is_recovered =
            views.stored.contains_key(&keys::RECOVERED) && !node.base.breaks(Sabotage::GrantOnceRecovered);
        if node.is_in_group() && (!views.predecessor_is_dead || is_recovered) {
            node.member.wait_for_predecessor(is_recovered);
        }
        if let Founding::Together(expect) = views.founding
            && !node.is_in_group()
        {
            let before = match views.stored.get(&keys::FOUNDERS) {
                None => Vec::new(),
                Some(bytes) => Founder::decode_all(&mut Reader::new(bytes)).map_err(|error| unusable(&error))?,
            };
            let founders = Founders::new(node.base.founder(), expect.max(1)).that_has_founded_with(before);
            node.outside.founders = Some(founders);
        }
        Ok(node)
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.base.actions.pop_front()
    }

    // ---- inputs ----

    pub(crate) fn on_persisted(&mut self, number: u64, now: Checked) {
        self.base.now = now.ticks();
        match self.base.writes.remove(&number) {
            Some(Purpose::Engine(number)) => {
                if let Some(voter) = &mut self.voter {
                    voter.engine.persisted(number);
                }
                // The founded group was in the first of these.
                self.base.is_stored = true;
                if self.replica().is_some() && self.base.remembered == 0 {
                    self.base.remembered = self.base.group_id;
                }
            }
            Some(Purpose::Incarnation) => self.on_incarnation_stored(),
            Some(Purpose::Group(id)) => {
                self.base.remembered = id;
                self.base.repeat_at = 0;
                self.take_up_pending();
            }
            Some(Purpose::Nothing) | None => {}
        }
        self.run_until_idle();
    }

    pub(crate) fn on_control(&mut self, from: NodeId, bytes: &[u8], now: Checked) -> Result<(), DecodeError> {
        self.base.now = now.ticks();
        let Envelope { group_id, message } = match Envelope::decode(bytes) {
            // A later version says something that this one does not understand.
            Err(DecodeError::Unknown) => return Ok(()),
            decoded => decoded?,
        };
        self.receive(from, Some(group_id), message);
        self.run_until_idle();
        Ok(())
    }

    pub(crate) fn on_timeout(&mut self, now: Checked, links: &Links) {
        let now = now.ticks();
        self.base.now = now;
        self.member.wait(now, self.base.settings.drift_ppm.max(self.base.known.drift_ppm));
        self.tick_if_due();
        if now >= self.member.renew_at {
            self.renew(links);
        }
        if now >= self.base.repeat_at {
            self.base.repeat_at = now + self.repeat_after();
            self.repeat(links);
        }
        self.revoke_due();
        // All others may have left meanwhile.
        if self.decides_alone() {
            self.finish_withdrawing();
        }
        self.run_until_idle();
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called at the latest.
    pub(crate) fn timeout(&self) -> Option<Ticks> {
        if self.member.phase() == Phase::Gone {
            return None;
        }
        let deadlines = [
            self.repeat_deadline(),
            self.tick_deadline(),
            self.steward_deadline(),
            self.renew_deadline(),
            self.member.breaks.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    // ---- messages ----

    /// A message of another node, or of this one to itself, which names no group.
    fn receive(&mut self, from: NodeId, group_id: Option<u64>, message: Control) {
        let situation = Situation {
            phase: self.member.phase().into(),
            has_lapsed: self.member.session().has_lapsed(),
            is_steward: self.steward().is_some(),
            group_id: self.base.group_id,
        };
        let Some(group_id) = group_id else {
            if is_for_own_phase(&message, &situation) {
                self.handle(from, message);
            }
            return;
        };
        let Some(sender) = self.standing(from) else { return };
        match judge(&message, from, &sender, group_id, &situation) {
            Verdict::Handle => self.handle(from, message),
            Verdict::Enter(group_id) => {
                self.enter_group(group_id);
                self.handle(from, message);
            }
            Verdict::Founded { group_id, founders } => self.on_founded(group_id, founders),
            Verdict::TellContacts => self.send_contacts(from),
            // A member may be late. Nobody else has anything to say that only they may.
            Verdict::Drop if sender.is_stranger() && situation.group_id != 0 => self.deny(from, &message),
            Verdict::Drop => {}
            Verdict::Deny
                if self.base.breaks(Sabotage::AcceptStaleStart) && matches!(message, Control::Start { .. }) =>
            {
                self.handle(from, message);
            }
            Verdict::Deny => self.deny(from, &message),
        }
    }

    fn handle(&mut self, from: NodeId, message: Control) {
        match message {
            Control::Founding { expect, known } => self.on_founding(from, expect, known),
            Control::Engine(bytes) => self.on_engine(from, &bytes),
            Control::Renew { incarnation, sent, unreachable, wants_epoch } => {
                let renewal = Renewal { incarnation, sent, received: self.base.now };
                self.on_renew(from, renewal, &unreachable, wants_epoch);
            }
            Control::Renewed { incarnation, sent } => self.on_renewed(from, incarnation, sent),
            Control::Expelled { incarnation } => self.on_expelled(incarnation),
            Control::Join { member, reached } => self.on_join(from, member, reached),
            Control::Contacts(contacts) => self.on_contacts(from, contacts),
            Control::Candidates { epoch, candidates } => self.on_candidates(epoch, candidates),
            Control::Refused { why } => self.on_refused(why),
            Control::Withdraw { incarnation, keeps_vote } => self.on_withdraw(from, incarnation, keeps_vote),
            Control::Withdrawn { incarnation } => self.on_withdrawn(incarnation),
            Control::Probe { epoch } => self.on_probe(from, epoch),
            Control::Probed { epoch, incarnation, started } => self.on_probed(from, epoch, incarnation, started),
            Control::Prepare { group, voters } => self.on_prepare(from, group, voters),
            Control::Report { epoch, incarnation, part, parts, held } => {
                self.on_report((epoch, from, incarnation), part, parts, held);
            }
            Control::Start { epoch, part, parts, locks } => self.on_start(from, epoch, part, parts, locks),
            Control::Started { epoch, incarnation } => self.on_started(from, epoch, incarnation),
            Control::Ask { token, request } => self.on_ask(from, token, request),
            Control::Answer { token, result } => self.on_answer(token, result),
            Control::Break { token, lock } => self.order_break(from, token, lock),
            Control::Broken { token, before, left } => self.on_broken(from, token, before, left),
        }
    }

    /// Everything that follows from an input, until nothing more does.
    fn run_until_idle(&mut self) {
        for _ in 0..10_000 {
            if self.pump_engine() {
                continue;
            }
            if let Some(message) = self.base.inbox.pop_front() {
                self.receive(self.base.me.id, None, message);
                continue;
            }
            if !self.found_if_agreed() && !self.serve_group() {
                return;
            }
        }
        debug_assert!(false, "the view layer does not come to rest");
    }

    // ---- intervals ----

    /// The engine's clock: elections take ten to twenty of these.
    fn tick(&self) -> Ticks {
        (self.member.session().ttl() / 100).clamp(5_000_000, 100_000_000)
    }

    fn repeat_after(&self) -> Ticks {
        self.tick() * 2
    }

    /// Something has changed: it is said again, once for all that changes at about the same time.
    fn repeat_soon(&mut self) {
        self.base.repeat_at = self.base.repeat_at.min(self.base.now + self.soon());
    }

    /// The steward has something to tell to all members, once for all that happens at about the same time.
    fn announce_soon(&mut self) {
        let soon = self.base.now + self.soon();
        if let Some((_, _, steward)) = Voter::serving(&mut self.voter) {
            steward.announce_at = steward.announce_at.min(soon);
        }
    }

    /// What happens within this time is told at once. It grows with the group, since more happens there, and each message that
    /// names all members is longer.
    fn soon(&self) -> Ticks {
        let members = self.group().map_or(self.base.known.members.len(), |group| group.members.len());
        2_000_000 + 50_000 * members as u64
    }
}
