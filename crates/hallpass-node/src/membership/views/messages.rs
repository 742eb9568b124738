//! What nodes say to each other about the group, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_core::{NodeId, View};

use super::{Action, Opening, Phase, Purpose, Views, break_token};
use crate::Incarnation;
use crate::config::Sabotage;
use crate::links::{Links, Sender};
use crate::locks::{Classes, HeldLock};
use crate::membership::control::{Contacts, Control, Envelope, Founder};
use crate::membership::engine::Engine;
use crate::membership::group::{Group, Member};
use crate::membership::install::Prepare;
use crate::membership::session::Session;
use crate::membership::sessions::Renewal;
use crate::membership::steward::{Candidate, Order, OrderState, Withdrawal};
use crate::output::{Request, RequestError};

impl Views {
    pub(super) fn renew(&mut self, links: &Links) {
        let ttl = self.session.ttl();
        self.timers.renew = self.now + ttl / 4;
        // One whose disk does not take the group lets its session end: the others go on without it.
        let is_awaited = self.pending.as_ref().is_some_and(|(_, group, _)| self.remembered == group.id);
        let is_member = self.phase == Phase::Running
            && !self.session.has_lapsed()
            && (self.view.is_some() || is_awaited || self.pending.is_some() && self.joins_unstored());
        if !is_member {
            return;
        }
        let unreachable = links
            .iter()
            .filter(|link| link.in_view && !link.connected && self.now.saturating_sub(link.disconnected_at) > ttl / 2)
            .map(|link| link.peer)
            .collect();
        let message = Control::Renew {
            incarnation: self.me.incarnation,
            sent: self.now,
            unreachable,
            wants_epoch: self.wants_epoch,
        };
        let answered = self.timers.renewed != 0 && self.now.saturating_sub(self.timers.renewed) < ttl / 2;
        match self.steward_id() {
            Some(steward) if answered => self.send(steward, message),
            // Nobody answers: whoever votes may be the steward by now. If all of those are gone, others know who is.
            steward => {
                self.timers.renew = self.now + ttl / 16;
                let is_reached = |id: &NodeId| *id == self.me.id || self.connected.contains(id);
                let voters: BTreeSet<NodeId> = self.voters().into_iter().chain(steward).filter(is_reached).collect();
                for peer in if voters.is_empty() { self.connected.clone() } else { voters } {
                    self.send(peer, message.clone());
                }
            }
        }
    }

    pub(super) fn repeat(&mut self, links: &Links) {
        if matches!(self.phase, Phase::Waiting { .. } | Phase::Persisting | Phase::Gone) || self.held_back.is_some() {
            return;
        }
        let is_in_group = self.is_in_group();
        if let Some(founders) = self.founders.as_mut().filter(|_| !is_in_group) {
            let message = Control::Founding { expect: founders.expect() as u32, known: founders.known() };
            for peer in founders.to_tell(&self.connected) {
                self.send(peer, message.clone());
            }
            return;
        }
        if let Phase::Withdrawing { keeps_vote } = self.phase {
            self.hand_over_office();
            let message = Control::Withdraw { incarnation: self.me.incarnation, keeps_vote };
            self.ask_steward(message);
        } else if self.refuses() {
            // It votes on, and is out of the view: the others do not wait for it.
            let message = Control::Withdraw { incarnation: self.me.incarnation, keeps_vote: self.me.durable };
            self.ask_steward(message);
        } else if self.view.is_none() && self.pending.is_none() && self.now >= self.joins_from && !self.is_remembering()
        {
            let reached = links.iter().filter(|link| link.connected).map(|link| link.peer).collect();
            let message = Control::Join { member: self.me.clone(), reached };
            self.ask_steward(message);
        }
        for (token, request) in self.requests.clone() {
            if !matches!(request, Request::Stop | Request::Leave) {
                self.ask_steward(Control::Ask { token, request });
            }
        }
    }

    /// True while the group has a class of locks whose protocol this version does not know.
    fn refuses(&mut self) -> bool {
        let is_over = |group: &Group, epoch| group.epoch > epoch && Classes::unknown(&group.classes).is_none();
        self.refusal.take_if(|(epoch, _)| self.replica.as_ref().is_some_and(|group| is_over(group, *epoch)));
        self.refusal.is_some()
    }

    /// Asks the steward, or those who vote where it is not known or not reached: they know it first.
    pub(super) fn ask_steward(&mut self, message: Control) {
        self.asked = self.asked.wrapping_add(1);
        // Now and then everybody is asked: the one who is taken for the steward may not be it any more, unless it has just
        // said so itself.
        let doubts = self.now >= self.steward_heard + 4 * self.repeat_after();
        let asks_all = doubts && self.asked.is_multiple_of(8);
        let steward = self.steward_id().filter(|id| *id == self.me.id || self.connected.contains(id));
        match steward.filter(|id| *id == self.me.id || !asks_all) {
            Some(steward) => self.send(steward, message),
            None => {
                let voters: BTreeSet<NodeId> =
                    self.voters().into_iter().filter(|id| self.connected.contains(id)).collect();
                let knows_voters = !voters.is_empty() && !asks_all;
                for peer in if knows_voters { voters } else { self.connected.clone() } {
                    self.send(peer, message.clone());
                }
            }
        }
    }

    pub(super) fn on_message(&mut self, from: NodeId, message: Control) {
        match message {
            Control::Founding { expect, known } => self.on_founding(from, expect, known),
            Control::Engine(bytes) => self.on_engine(from, &bytes),
            Control::Renew { incarnation, sent, unreachable, wants_epoch } => {
                let renewal = Renewal { incarnation, sent, received: self.now };
                self.on_renew(from, renewal, &unreachable, wants_epoch);
            }
            Control::Renewed { incarnation, sent } => {
                if self.settings.sabotage == Some(Sabotage::LateAckUndoesLapse) {
                    self.session.revive(sent);
                }
                self.session.on_acknowledged(incarnation, sent, self.now);
                if self.session.has_lapsed() {
                    return;
                }
                if incarnation == self.me.incarnation {
                    self.timers.renewed = self.timers.renewed.max(sent);
                    self.timers.renew = sent + self.session.ttl() / 4;
                    self.known.steward = Some(from);
                }
                self.take_up_pending();
            }
            Control::Expelled { incarnation } => {
                let takes_part = self.view.is_some() || self.pending.is_some() || self.closing.is_some();
                if incarnation == self.me.incarnation && !self.session.has_lapsed() && takes_part {
                    self.lapse();
                }
            }
            Control::Join { member, reached } => self.on_join(from, member, reached),
            Control::Contacts(contacts) => self.on_contacts(from, contacts),
            Control::Candidates { epoch, candidates } => {
                if epoch >= self.known.epoch && candidates != self.known.candidates {
                    self.known.candidates = candidates;
                    self.actions.push_back(Action::Peers);
                }
            }
            Control::Refused { why } => {
                self.why = Some(why);
                self.actions.push_back(Action::View);
            }
            Control::Withdraw { incarnation, keeps_vote } => self.on_withdraw(from, incarnation, keeps_vote),
            Control::Withdrawn { incarnation } => {
                if incarnation == self.me.incarnation && matches!(self.phase, Phase::Withdrawing { .. }) {
                    self.gone();
                }
            }
            Control::Probe { epoch } => {
                let (incarnation, started) = (self.me.incarnation, self.install.open().unwrap_or(0));
                self.send(from, Control::Probed { epoch, incarnation, started });
            }
            Control::Probed { epoch, incarnation, started } => {
                let own = self.is_own_view();
                if let Some(steward) = &mut self.steward {
                    steward.installation.on_probed(epoch, from, incarnation, started, own);
                }
            }
            Control::Prepare { group, voters } => self.on_prepare(from, group, voters),
            Control::Report { epoch, incarnation, part, parts, held } => {
                if let Some(steward) = &mut self.steward {
                    steward.installation.on_report((epoch, from, incarnation), part, parts, held);
                    if self.settings.sabotage == Some(Sabotage::NoWaitForReports) {
                        steward.installation.wait_no_longer();
                    }
                }
            }
            Control::Start { epoch, part, parts, locks } => self.on_start(from, epoch, part, parts, locks),
            Control::Started { epoch, incarnation } => {
                if let Some(steward) = &mut self.steward {
                    steward.installation.on_started(epoch, from, incarnation);
                }
            }
            Control::Ask { token, request } => self.on_ask(from, token, request),
            Control::Answer { token, result } => {
                if self.requests.remove(&token).is_some() {
                    let result = result.map_err(RequestError::Invalid);
                    self.actions.push_back(Action::Done { token, result });
                }
            }
            Control::Break { token, lock } => {
                // Whoever was told how long it holds something believes it for so long, and cannot be reached before.
                let at = (self.now + self.session.ttl() / 3).max(self.promised_until);
                self.actions.push_back(Action::Break { from, token, lock, at });
            }
            Control::Broken { token, before, left } => {
                if let Some(steward) = &mut self.steward {
                    for order in &mut steward.orders {
                        if let OrderState::Breaking(answers) = &mut order.state
                            && break_token(order.from, order.token) == token
                        {
                            answers.insert(from, (before, left));
                        }
                    }
                }
            }
        }
    }

    pub(super) fn on_founding(&mut self, from: NodeId, expect: u32, known: Vec<Founder>) {
        if self.is_in_group() {
            self.send_founding(from);
            return self.send_contacts(from);
        }
        let Some(founders) = &mut self.founders else { return };
        if expect as usize != founders.expect() {
            self.why = Some(format!(
                "another node expects {expect} members, this one {}: give all members the same list",
                founders.expect()
            ));
            return;
        }
        self.why = None;
        if founders.on_said(from, known) {
            self.repeat_soon();
            self.actions.push_back(Action::View);
        }
    }

    /// What this node founded with others it says again: they may have missed it, or not have stored it.
    fn send_founding(&mut self, to: NodeId) {
        if self.held_back.is_some() {
            return;
        }
        if let Some(founders) = self.founders.as_ref().filter(|_| to != self.me.id) {
            let message = Control::Founding { expect: founders.expect() as u32, known: founders.known() };
            self.send(to, message);
        }
    }

    /// Others have founded a group with this node, which has not, or died before that was stored. If it is to vote it has never
    /// done so: it begins where the others began, as one that was away since then.
    pub(super) fn on_founded(&mut self, group_id: u64, founders: &[Founder]) {
        let settings = self.founder().settings;
        let is_mine = founders.iter().any(|founder| founder.id == self.me.id)
            && founders.iter().all(|founder| founder.settings == settings);
        let group = self.founding(founders);
        if self.phase == Phase::Gone || self.engine.is_some() || !is_mine || group.id != group_id {
            return;
        }
        if self.group_id == 0 {
            self.found(founders);
        } else if self.group_id == group_id {
            self.begin_to_vote(&group);
        }
    }

    pub(super) fn on_engine(&mut self, from: NodeId, bytes: &[u8]) {
        // A leader has chosen this node to vote, or it has voted since the group was founded and never knew: its
        // directory is its own, so it has never voted otherwise.
        if self.engine.is_none() && self.group_id != 0 {
            self.engine = Some(Engine::join(self.me.id, self.settings.seed));
            self.timers.tick = 0;
        }
        if let Some(engine) = &mut self.engine {
            // A peer that sends what makes no sense is ignored.
            let _ = engine.receive(from, bytes);
        }
    }

    pub(super) fn on_renew(&mut self, from: NodeId, renewal: Renewal, unreachable: &[NodeId], wants_epoch: bool) {
        let Some(steward) = &mut self.steward else {
            // Not the steward: tell whoever asks who is.
            if from != self.me.id && self.known.steward != Some(self.me.id) {
                self.send_contacts(from);
            }
            return;
        };
        let Some(group) = &self.replica else { return };
        if group.incarnation_of(from) != Some(renewal.incarnation) {
            // It was removed, and does not know.
            let incarnation = renewal.incarnation;
            return self.send(from, Control::Expelled { incarnation });
        }
        steward.on_unreachable(from, unreachable, self.now);
        steward.needs_epoch |= wants_epoch;
        steward.sessions.on_renewal(from, renewal);
    }

    pub(super) fn on_join(&mut self, from: NodeId, member: Member, reached: Vec<NodeId>) {
        let Some(steward) = &mut self.steward else {
            self.send_founding(from);
            return self.send_contacts(from);
        };
        let Some(group) = &self.replica else { return };
        if member.id != from {
            return;
        }
        if self.held_back.is_some() {
            return self.send_contacts(from);
        }
        if group.banned.contains(&member.name) {
            let why = format!("'{}' was evicted from the group for good", member.name);
            return self.send(from, Control::Refused { why });
        }
        let same_name = |known: &&Member| known.name == member.name && known.id != member.id;
        if let Some(known) = group.members.values().find(same_name) {
            // A node that has lost its directory takes the place of the old one when that is gone.
            let why = format!(
                "a member of the name '{}' is in the group ({}): it is admitted when that one is gone, or under another name",
                known.name, known.address
            );
            self.send(from, Control::Refused { why });
            return self.send_contacts(from);
        }
        if group.find(from).is_some_and(|known| known.incarnation >= member.incarnation)
            && group.incarnation_of(from) != Some(member.incarnation)
        {
            // It was here before under this incarnation: it must come back under the next.
            return self.send_contacts(from);
        }
        if group.incarnation_of(from) == Some(member.incarnation) {
            self.timers.steward = 0;
            return self.send_contacts(from);
        }
        // Its predecessor is dead: the node vouches for it.
        steward.sessions.doom(from);
        let candidate = Candidate { member, reached: reached.into_iter().collect(), heard: self.now };
        let is_new = steward.candidates.insert(from, candidate).is_none();
        if is_new {
            // All members hear of it soon, and of all others that come at about the same time.
            self.announce_soon();
            self.actions.push_back(Action::Peers);
        }
        self.send_contacts(from);
    }

    pub(super) fn my_contacts(&self) -> Contacts {
        let candidates = self.steward.iter().flat_map(|steward| steward.candidates.values());
        let candidates = candidates.map(|candidate| candidate.member.clone());
        match self.group().filter(|group| group.epoch >= self.known.epoch) {
            Some(group) => Contacts {
                epoch: group.epoch,
                steward: self.steward_id(),
                members: group.members.values().cloned().collect(),
                absent: group.absent.values().cloned().collect(),
                candidates: candidates.collect(),
                voters: self.voters(),
                ttl: group.ttl,
                drift_ppm: group.drift_ppm,
            },
            None => Contacts { steward: self.steward_id(), voters: self.voters(), ..self.known.clone() },
        }
    }

    pub(super) fn send_contacts(&mut self, to: NodeId) {
        // Nobody is to enter a group that may be the wrong one.
        if let Some(held_back) = &self.held_back {
            let why = format!("'{}' admits nobody: {}", self.me.name, held_back.why());
            return self.send(to, Control::Refused { why });
        }
        if self.group_id != 0 && self.is_stored {
            let contacts = self.my_contacts();
            self.send(to, Control::Contacts(contacts));
        }
    }

    /// All members are told who is to be connected with whom.
    pub(super) fn spread_contacts(&mut self) {
        let message = Control::Contacts(self.my_contacts());
        self.spread(message);
    }

    /// All members are told who wants to join.
    pub(super) fn spread_candidates(&mut self) {
        let (Some(steward), Some(group)) = (&self.steward, &self.replica) else { return };
        let candidates = steward.candidates.values().map(|candidate| candidate.member.clone()).collect();
        let message = Control::Candidates { epoch: group.epoch, candidates };
        self.spread(message);
    }

    /// What all members are to be told is written once.
    fn spread(&mut self, message: Control) {
        let Some(group) = &self.replica else { return };
        let bytes = Envelope { group_id: self.group_id, message }.encode();
        for to in group.members.keys().copied().filter(|id| self.connected.contains(id)) {
            self.actions.push_back(Action::Send { to, bytes: bytes.clone() });
        }
    }

    pub(super) fn on_contacts(&mut self, from: NodeId, mut contacts: Contacts) {
        if contacts.epoch < self.known.epoch {
            return;
        }
        if contacts.steward == Some(from) {
            self.steward_heard = self.now;
        } else if contacts.epoch == self.known.epoch && self.known.steward.is_some() {
            // Only the steward knows who wants to join. What others have heard of it differs from one to the next, and would be
            // news each time.
            contacts.candidates.clone_from(&self.known.candidates);
        }
        self.why = None;
        self.is_stored = true;
        // Whoever is known under a higher incarnation, or was removed under this one, takes the next.
        let mine = contacts.members.iter().chain(&contacts.absent).find(|member| member.id == self.me.id);
        let in_view =
            contacts.members.iter().any(|member| member.id == self.me.id && member.incarnation == self.me.incarnation);
        let is_out = mine.is_some_and(|member| member.incarnation >= self.me.incarnation) && !in_view;
        // Whoever knows no steward tells nothing new about it: else it would be asked again for every answer.
        let contacts = Contacts { steward: contacts.steward.or(self.known.steward), ..contacts };
        // A leader that lost its vote while it was cut off is told so by nobody else.
        if let (Some(engine), Some(group)) = (&mut self.engine, &self.replica)
            && contacts.epoch > group.epoch
            && !contacts.voters.contains(&self.me.id)
        {
            engine.step_down();
        }
        let changed = self.known != contacts;
        self.known = contacts;
        self.remember_before_joining();
        if self.phase == Phase::Running && is_out {
            let known = self.known.members.iter().chain(&self.known.absent).find(|member| member.id == self.me.id);
            let known = known.map_or(0, |member| member.incarnation.get());
            let next = known.max(self.me.incarnation.get()).saturating_add(1);
            if self.view.is_some() || self.pending.is_some() || self.closing.is_some() {
                self.end_view(true);
            }
            self.phase = Phase::Persisting;
            self.use_incarnation(next);
        }
        if changed {
            self.timers.renew = self.timers.renew.min(self.now);
            self.repeat_soon();
            self.actions.push_back(Action::Peers);
        }
    }

    pub(super) fn on_withdraw(&mut self, from: NodeId, incarnation: Incarnation, keeps_vote: bool) {
        let voters = self.voters();
        let (Some(steward), Some(group), Some(engine)) = (&mut self.steward, &self.replica, &self.engine) else {
            return self.send_contacts(from);
        };
        let is_in = group.incarnation_of(from) == Some(incarnation);
        let is_needed = voters.contains(&from) || group.absent.contains_key(&from) || !engine.voters_are_stored();
        let votes = !keeps_vote && is_needed;
        // A steward that leaves goes when another one has taken over, and says so.
        if !is_in && !votes && (from != self.me.id || group.members.is_empty()) {
            steward.withdrawn.remove(&from);
            return self.send(from, Control::Withdrawn { incarnation });
        }
        steward.sessions.doom(from);
        let known = steward.withdrawn.get(&from).and_then(|withdrawal| withdrawal.member.clone());
        let member = group.find(from).cloned().or(known);
        steward.withdrawn.insert(from, Withdrawal { incarnation, keeps_vote, member });
        self.timers.steward = 0;
    }

    pub(super) fn is_own_view(&self) -> bool {
        let term = self.engine.as_ref().map_or(0, Engine::term);
        self.replica.as_ref().is_some_and(|group| group.term == term)
    }

    pub(super) fn on_prepare(&mut self, from: NodeId, group: Group, voters: Vec<NodeId>) {
        let is_me = group.incarnation_of(self.me.id) == Some(self.me.incarnation);
        if !is_me || self.phase != Phase::Running || self.session.has_lapsed() {
            return;
        }
        self.known.steward = Some(from);
        self.is_stored = true;
        if self.closing.is_some() && self.settings.sabotage != Some(Sabotage::CloseTwice) {
            // The report is on its way, and if this is about a later view it is said again.
            return;
        }
        match self.install.on_prepare(group.epoch) {
            Prepare::Ignore => {}
            Prepare::Repeat => self.send_report(from),
            Prepare::Report if Classes::unknown(&group.classes).is_some() => {
                self.refusal = Classes::unknown(&group.classes).map(|why| (group.epoch, why));
                self.end_view(false);
                self.repeat_soon();
            }
            Prepare::Report if !self.may_take_part(&group) => {
                if self.pending.is_none() {
                    self.timers.renew = 0;
                }
                self.known.voters.clone_from(&voters);
                self.pending = Some((from, group, voters));
            }
            Prepare::Report => {
                if self.renews_alone() {
                    self.session.renew_at(self.now);
                }
                self.known.epoch = group.epoch;
                (self.known.ttl, self.known.drift_ppm) = (group.ttl, group.drift_ppm);
                self.known.voters = voters;
                self.known.members = group.members.values().cloned().collect();
                self.remember(&group);
                self.closing = Some(group);
                self.wants_epoch = false;
                self.actions.push_back(Action::Close);
                self.actions.push_back(Action::Peers);
            }
        }
    }

    /// Whether this node can be in a view of this group: it has a session, and has stored that it is in the group. What is missing is asked for.
    fn may_take_part(&mut self, group: &Group) -> bool {
        let forgets_session = self.settings.sabotage == Some(Sabotage::ForgetSessionOnDisk);
        let has_session = self.session.is_valid(self.now) || self.renews_alone();
        if !has_session && (self.view.is_none() || forgets_session) {
            // Without a view nothing is held under the session before: it never began.
            self.session = Session::new(self.me.incarnation, group.ttl);
        }
        let is_remembered = self.remembered == group.id || self.joins_unstored();
        if !is_remembered && !self.is_remembering() {
            self.remember(group);
        }
        has_session && is_remembered
    }

    /// A node stores that it is in a group before it asks to join: members that wait for a view do not wait for its disk.
    fn remember_before_joining(&mut self) {
        let Contacts { epoch, ttl, drift_ppm, .. } = self.known;
        let joins = self.view.is_none() && self.pending.is_none() && ttl > 0;
        if !joins || self.remembered == self.group_id || self.is_remembering() {
            return;
        }
        let by_id = |members: &[Member]| members.iter().map(|member| (member.id, member.clone())).collect();
        // Of a term in which nothing is decided: it was in no view yet, and cannot be what a group is recovered from.
        self.remember(&Group {
            id: self.group_id,
            epoch,
            term: 0,
            members: by_id(&self.known.members),
            absent: by_id(&self.known.absent),
            banned: BTreeSet::new(),
            classes: Vec::new(),
            ttl,
            drift_ppm,
            durable: self.me.durable,
        });
    }

    fn joins_unstored(&self) -> bool {
        self.settings.sabotage == Some(Sabotage::JoinUnstored)
    }

    /// Whether the group is being written, and this node waits for that.
    fn is_remembering(&self) -> bool {
        !self.joins_unstored() && self.writes.values().any(|purpose| *purpose == Purpose::Group(self.group_id))
    }

    pub(super) fn on_start(&mut self, from: NodeId, epoch: u64, part: u32, count: u32, locks: Vec<HeldLock>) {
        if self.phase != Phase::Running || self.session.has_lapsed() {
            return;
        }
        if self.settings.sabotage == Some(Sabotage::AcceptStaleStart) {
            self.install.pretend_reported(epoch);
        }
        if let Some(holders) = self.install.on_start(epoch, part, count, locks)
            && let Some(group) = &self.view
        {
            self.why = None;
            let sender = Sender { me: self.me.id, incarnation: self.me.incarnation, epoch };
            let view = View::new(group.members.keys().copied()).with_epoch(epoch);
            let opening = Opening { sender, view, classes: group.classes.clone(), holders };
            self.actions.push_back(Action::Peers);
            self.actions.push_back(Action::Open(Box::new(opening)));
        }
        if self.install.open() == Some(epoch) {
            let incarnation = self.me.incarnation;
            self.send(from, Control::Started { epoch, incarnation });
        }
    }

    pub(super) fn on_ask(&mut self, from: NodeId, token: u64, request: Request) {
        let (Some(steward), Some(group)) = (&mut self.steward, &self.replica) else {
            if from != self.me.id {
                self.send_contacts(from);
            }
            return;
        };
        if steward.orders.iter().any(|order| order.from == from && order.token == token) {
            return;
        }
        if let Request::SetClass(class) = &request
            && let Some(why) = Classes::unknown(std::slice::from_ref(class))
        {
            let why = format!("the steward refuses it: {why}");
            return self.send(from, Control::Answer { token, result: Err(why) });
        }
        if let Request::Evict { node, ban } = request {
            let stays = |member: &Member| {
                let is_leaving = steward.sessions.is_doomed(member.id);
                member.id != node && !group.banned.contains(&member.name) && !is_leaving
            };
            let votes = |member: &&Member| member.durable || !group.durable;
            let staying: Vec<&Member> = group.members.values().filter(|member| stays(member)).collect();
            let why = match staying.iter().any(votes) {
                true => None,
                false if staying.is_empty() => Some("it is the last member: nobody would be left to admit it again"),
                false => Some("it is the last member with a data directory: nobody could take its vote over"),
            };
            if let Some(why) = why.filter(|_| group.find(node).is_some()) {
                return self.send(from, Control::Answer { token, result: Err(why.to_owned()) });
            }
            let is_candidate = steward.candidates.contains_key(&node);
            if group.find(node).is_none() && !(ban && is_candidate) {
                return self.send(from, Control::Answer { token, result: Ok(()) });
            }
            steward.sessions.doom(node);
            if let Some(incarnation) = group.incarnation_of(node) {
                self.send(node, Control::Expelled { incarnation });
            }
        }
        let Some(steward) = &mut self.steward else { return };
        let state = match request {
            Request::Break { .. } => OrderState::Breaking(BTreeMap::new()),
            Request::Evict { node, .. } => match self.replica.as_ref().and_then(|group| group.find(node)) {
                Some(member) => OrderState::Evicting(member.incarnation),
                None => OrderState::New,
            },
            _ => OrderState::New,
        };
        let bans = match request {
            Request::Evict { node, ban: true } => {
                let member = self.replica.as_ref().and_then(|group| group.find(node));
                let candidate = || steward.candidates.get(&node).map(|candidate| &candidate.member);
                member.or_else(candidate).map(|member| member.name.clone())
            }
            _ => None,
        };
        steward.orders.push(Order { from, token, request, state, bans });
        self.timers.steward = 0;
    }
}
