//! Section 7.2: joining and coming back.
//!
//! Under mutual exclusion the sponsor sends ADD to all. Each adds the newcomer and *then* acknowledges with its highest
//! number, its own outstanding request included. The sponsor hands the maximum over and releases (T8).

use super::message::{ANY_INCARNATION, Body};
use super::rules::NumberSource;
use super::task::Goal;
use super::{Change, Classic, ClassicTimer, Membership, Out};
use crate::NodeId;
use crate::protocol::{Effect, Ticks, Trap};

/// The newcomer.
impl Classic {
    pub(super) fn on_join(&mut self, sponsor: NodeId, out: &mut Out) {
        if self.membership != Membership::Outside {
            return;
        }
        if self.incarnation == 0 {
            self.membership = Membership::Joining { sponsor };
            return self.ask_to_join(out);
        }
        // 7.2.1: 'it should first notify other nodes that it failed', then wait until its old messages have arrived and
        // everybody has removed it.
        self.membership = Membership::Returning { sponsor };
        for node in self.contacts.iter() {
            let failed = Body::Failed { node: self.me, incarnation: self.incarnation - 1 };
            self.send_to(*node, ANY_INCARNATION, failed, out);
        }
        self.set(ClassicTimer::RestartInterval, self.round_trip(), out);
    }

    /// Asks the sponsor, and the next time another one, in case it is dead.
    pub(super) fn ask_to_join(&mut self, out: &mut Out) {
        let (Membership::Returning { sponsor } | Membership::Joining { sponsor }) = self.membership else { return };
        self.send_to(sponsor, ANY_INCARNATION, Body::Join, out);
        let others = &self.contacts;
        let next = others.iter().find(|node| **node > sponsor).or(others.first()).copied().unwrap_or(sponsor);
        self.membership = Membership::Joining { sponsor: next };
        self.set(ClassicTimer::NoWelcome, 2 * self.round_trip() + self.bounds().section_max, out);
    }

    pub(super) fn on_welcome(
        &mut self,
        from: NodeId,
        incarnation: u32,
        names: &[(NodeId, u32)],
        highest: u64,
        out: &mut Out,
    ) {
        if !matches!(self.membership, Membership::Joining { .. }) || self.task.is_some() {
            return;
        }
        out.push(Effect::CancelTimer(ClassicTimer::NoWelcome));
        self.add(from, incarnation, out);
        for (node, incarnation) in names {
            self.add(*node, *incarnation, out);
        }
        if self.rules.0.by_broadcast {
            self.begin(Goal::Include, out);
        } else if self.rules.0.number_source == NumberSource::Sponsor {
            self.become_member(highest, out);
        } else {
            self.start_learning(highest, out);
        }
    }

    /// 7.2.3: on every list, but not yet sure of the highest number. `known` is the highest so far.
    pub(super) fn start_learning(&mut self, known: u64, out: &mut Out) {
        self.membership = Membership::Learning { first: None, requests: Vec::new(), known };
        match self.rules.0.number_source {
            NumberSource::Ask => self.begin(Goal::Ask, out),
            NumberSource::Quiet => {
                let others = self.listed().count() as Ticks;
                let each = self.bounds().section_max + self.round_trip();
                self.set(ClassicTimer::Quiet, self.round_trip().saturating_add(each.saturating_mul(others)), out);
            }
            _ => {}
        }
    }

    pub(super) fn on_quiet_timeout(&mut self, out: &mut Out) {
        if let Membership::Learning { known, .. } = self.membership {
            self.become_member(known, out);
        }
    }

    /// Ways 2, 3 and 5: the REQUESTs that arrive tell a newcomer how high the numbers are.
    pub(super) fn learn_from(&mut self, from: NodeId, number: u64, out: &mut Out) {
        let group: Vec<NodeId> = self.listed().collect();
        let Membership::Learning { first, requests, .. } = &mut self.membership else { return };
        match requests.binary_search_by_key(&from, |(node, _)| *node) {
            Ok(position) => requests[position].1 = requests[position].1.saturating_add(1).min(4),
            Err(position) => requests.insert(position, (from, 1)),
        }
        let first = *first.get_or_insert(number);
        let is_sure = match self.rules.0.number_source {
            NumberSource::Each => group.iter().all(|node| requests.iter().any(|(other, _)| other == node)),
            NumberSource::Risen => self.base.highest >= first + group.len() as u64,
            NumberSource::Fourth => requests.iter().any(|(_, times)| *times >= 4),
            NumberSource::Sponsor | NumberSource::Ask | NumberSource::Quiet => false,
        };
        if is_sure {
            self.become_member(0, out);
        }
    }

    /// From now on this node makes requests, above the numbers that it knows of.
    pub(super) fn become_member(&mut self, highest: u64, out: &mut Out) {
        self.base.highest = self.base.highest.max(highest);
        self.membership = Membership::Member;
        out.push(Effect::Joined);
        self.make_next_request(out);
    }
}

/// The sponsor.
impl Classic {
    pub(super) fn on_join_request(&mut self, node: NodeId, incarnation: u32, out: &mut Out) {
        let newest = self.name(node).is_none_or(|name| name.incarnation <= incarnation);
        if self.membership != Membership::Member || !newest {
            return; // It will ask somebody else.
        }
        if self.rules.0.by_broadcast {
            return self.send_to(node, incarnation, Body::Welcome { names: self.list(), highest: 0 }, out);
        }
        let change = Change::Sponsor { node, incarnation };
        let is_current = self.task.as_ref().is_some_and(|task| task.goal == Goal::Sponsor { node, incarnation });
        if !self.pending.contains(&change) && !is_current {
            self.pending.push(change);
            self.make_next_request(out);
        }
    }

    /// This node is inside, to insert another one.
    pub(super) fn sponsor(&mut self, node: NodeId, incarnation: u32, out: &mut Out) {
        if self.printed(Trap::UnacknowledgedJoin) {
            // As printed (T8): notifies the newcomer and the others, and waits for no acknowledgement.
            let welcome = Body::Welcome { names: self.list(), highest: self.base.highest };
            self.send_to(node, incarnation, welcome, out);
            self.send_all(&Body::Add { node, incarnation }, out);
            self.add(node, incarnation, out);
            return self.on_release(out);
        }
        self.add(node, incarnation, out);
        self.begin(Goal::Sponsor { node, incarnation }, out);
    }
}

/// Everybody else.
impl Classic {
    pub(super) fn on_add(&mut self, from: NodeId, node: NodeId, incarnation: u32, out: &mut Out) {
        self.add(node, incarnation, out);
        if !self.printed(Trap::UnacknowledgedJoin) {
            self.send(from, Body::Added { node, incarnation, highest: self.base.highest }, out);
        }
    }

    pub(super) fn on_include_me(&mut self, from: NodeId, incarnation: u32, out: &mut Out) {
        self.add(from, incarnation, out);
        self.send(from, Body::Included { highest: self.base.highest }, out);
        self.leave_newcomer_too(from, out);
    }
}
