//! What members ask of the whole group: the steward carries it out and answers when it is done.

use std::collections::BTreeMap;

use hallpass_core::{NodeId, View};

use super::member::Phase;
use super::voter::Voter;
use super::{Action, Views};
use crate::config::Digest;
use crate::faults::Conduct;
use crate::locks::Classes;
use crate::membership::control::Control;
use crate::membership::group::{Group, Member};
use crate::membership::steward::{Order, OrderState, Steward};
use crate::node::Checked;
use crate::output::{Ordered, Request, RequestError, Stage};

/// How many names and keys a group bans at a time.
const BANS_MAX: usize = 1024;

/// The side of the node that asks.
impl<F: Conduct> Views<F> {
    pub(crate) fn on_request(&mut self, request: Request, token: u64, now: Checked) {
        self.base.now = now.ticks();
        if let Some(error) = self.why_impossible(&request) {
            return self.base.actions.push_back(Action::Done { token, result: Err(error) });
        }
        if let Request::Admit { name } = &request {
            self.lift_ban_here(name);
        }
        match request {
            // What it knew as a voter is lost with a process that has no directory: others must be able to decide without it.
            Request::Stop => self.withdraw(self.base.me.durable),
            Request::Leave => self.withdraw(false),
            _ => {}
        }
        self.base.requests.insert(token, request);
        self.base.repeat_at = 0;
        if self.member.phase() == Phase::Gone {
            self.gone();
        }
        self.finish_withdrawing();
        self.run_until_idle();
    }

    /// Why nobody needs to be asked for this.
    fn why_impossible(&self, request: &Request) -> Option<RequestError> {
        if let Request::SetClass(class) = request {
            let members = self.member.install().group().into_iter().flat_map(|group| group.members.keys().copied());
            let view = View::new(members.chain([self.base.me.id]));
            if let Err(error) = Classes::new(self.base.me.id, &view, std::slice::from_ref(class)) {
                return Some(RequestError::Invalid(error.0));
            }
        }
        if let Request::Evict { node, .. } = *request
            && !self.peers().contains_key(&node)
            && node != self.base.me.id
        {
            return Some(RequestError::NoMember(node));
        }
        // Nobody would listen to it any more, and it would never hear what became of it.
        if *request == (Request::Evict { node: self.base.me.id, ban: true }) {
            let why = "a node cannot ban itself: run that on another member, or 'hallpass leave' on this one";
            return Some(RequestError::Invalid(why.to_owned()));
        }
        if let Request::Ban { name } = request
            && let Some(why) = self.why_needed(name)
        {
            return Some(RequestError::Invalid(why));
        }
        let leaves = matches!(request, Request::Stop | Request::Leave);
        if let Some(held_back) = self.outside.held_back.as_ref().filter(|_| !leaves) {
            return Some(RequestError::Invalid(held_back.why().to_owned()));
        }
        let why = if *request == Request::Leave { self.cannot_leave() } else { None };
        why.map(RequestError::Invalid)
    }

    pub(crate) fn forget_request(&mut self, token: u64) {
        self.base.requests.remove(&token);
    }

    pub(super) fn on_answer(&mut self, token: u64, result: Result<(), String>) {
        if self.base.requests.remove(&token).is_some() {
            let result = result.map_err(RequestError::Invalid);
            self.base.actions.push_back(Action::Done { token, result });
        }
    }
}

/// The steward's side.
impl<F: Conduct> Views<F> {
    pub(super) fn on_ask(&mut self, from: NodeId, token: u64, request: Request) {
        let needed = if let Request::Ban { name } = &request { self.why_needed(name) } else { None };
        let Some((_, group, steward)) = Voter::serving(&mut self.voter) else {
            if from != self.base.me.id {
                self.send_contacts(from);
            }
            return;
        };
        if steward.orders.iter().any(|order| order.from == from && order.token == token) {
            return;
        }
        if let Some(result) = steward.answer_to(group, from, token, &request) {
            return self.base.send(from, Control::Answer { token, result });
        }
        if let Some(why) = needed {
            return self.base.send(from, Control::Answer { token, result: Err(why) });
        }
        if let Request::SetClass(class) = &request
            && let Some(why) = Classes::unknown(std::slice::from_ref(class))
        {
            let why = format!("the steward refuses it: {why}");
            return self.base.send(from, Control::Answer { token, result: Err(why) });
        }
        if let Some(why) = why_no_ban(group, steward, &request) {
            return self.base.send(from, Control::Answer { token, result: Err(why) });
        }
        if let Request::Evict { node, ban } = request {
            if let Some(result) = answer_to_evict(group, steward, node, ban) {
                return self.base.send(from, Control::Answer { token, result });
            }
            steward.sessions.stop_acknowledging(node);
            if let Some(incarnation) = group.incarnation_of(node) {
                self.base.send(node, Control::Expelled { incarnation });
            }
        }
        let state = match request {
            Request::Break { .. } => OrderState::Breaking(BTreeMap::new()),
            Request::Evict { node, .. } => match group.find(node) {
                Some(member) => OrderState::Evicting(member.incarnation),
                None => OrderState::New,
            },
            _ => OrderState::New,
        };
        let bans = match request {
            Request::Evict { node, ban: true } => {
                let candidate = || steward.candidates.get(&node).map(|candidate| &candidate.member);
                group.find(node).or_else(candidate).map(|member| member.name.clone())
            }
            _ => None,
        };
        if let Some((action, what)) = in_words(group, &request) {
            let ordered = Ordered { by: name_in(group, from), action, what, stage: Stage::Begun };
            self.base.actions.push_back(Action::Ordered(ordered));
        }
        steward.orders.push(Order { from, token, request, state, bans });
        steward.announce_at = 0;
    }

    /// Says whom the group has let in or forgotten, compared with the members and voters before.
    pub(super) fn report_changes(&mut self, before: &BTreeMap<NodeId, Member>) {
        let (me, mut reports) = (&self.base.me, Vec::new());
        let Some((_, group, steward)) = Voter::serving(&mut self.voter) else { return };
        let now = known(group);
        for joined in now.values().filter(|member| !before.contains_key(&member.id)) {
            reports.push((joined.name.clone(), "join", joined));
        }
        for gone in before.values().filter(|member| !now.contains_key(&member.id)) {
            let by = if steward.withdrawn.contains_key(&gone.id) { &gone.name } else { &me.name };
            reports.push((by.clone(), "leave", gone));
        }
        for (by, action, Member { name, address, .. }) in reports {
            let ordered = Ordered { by, action, what: format!("{name} at {address}"), stage: Stage::Done };
            self.base.actions.push_back(Action::Ordered(ordered));
        }
    }

    /// The name of a member, for people.
    pub(crate) fn member_name(&self, id: NodeId) -> String {
        self.member.install().group().map_or_else(|| id.to_string(), |group| name_in(group, id))
    }

    /// Tells all members which locks are to be broken.
    pub(super) fn tell_breaks(&mut self) {
        let Some((_, group, steward)) = Voter::serving(&mut self.voter) else { return };
        for order in &steward.orders {
            if let (Request::Break { lock }, OrderState::Breaking(_)) = (&order.request, &order.state) {
                let token = break_token(order.from, order.token);
                for id in group.members.keys() {
                    self.base.send(*id, Control::Break { token, lock: lock.clone() });
                }
            }
        }
    }

    /// A member says how many of a broken lock's holders it had, and how many of them are left.
    pub(super) fn on_broken(&mut self, from: NodeId, token: u64, before: u64, left: u64) {
        let Some((_, _, steward)) = Voter::serving(&mut self.voter) else { return };
        for order in &mut steward.orders {
            if let OrderState::Breaking(answers) = &mut order.state
                && break_token(order.from, order.token) == token
            {
                answers.insert(from, (before, left));
            }
        }
    }

    /// Answers what has been done.
    pub(super) fn answer(&mut self) -> bool {
        let is_released = self.release_withdrawn();
        let voters = self.voters();
        let Some((engine, group, steward)) = Voter::serving(&mut self.voter) else { return false };
        let is_needed = |id: &NodeId| voters.contains(id) || !engine.voters_are_stored();
        let is_installed = steward.is_installed();
        let mut answers = Vec::new();
        steward.orders.retain(|order| {
            let result = result_of(order, group, is_installed, is_needed);
            let is_open = result.is_none();
            answers.extend(result.map(|result| ((order.from, order.token, order.request.clone()), result)));
            is_open
        });
        let is_answered = !answers.is_empty();
        for (order, result) in answers {
            let (to, token, _) = order;
            steward.on_answered(group, order, &result, self.base.now);
            self.base.send(to, Control::Answer { token, result });
        }
        is_released || is_answered
    }
}

/// Why nothing more can be banned: each ban is in every message that names the members.
fn why_no_ban<F: Conduct>(group: &Group, steward: &Steward<F>, request: &Request) -> Option<String> {
    let is_banned = |node| group.find(node).is_some_and(|member| group.banned.contains(&member.name));
    let is_new = match request {
        Request::Ban { name } => !group.banned.contains(name),
        Request::Evict { node, ban: true } => !is_banned(*node),
        _ => false,
    };
    let bans = |order: &&Order| matches!(order.request, Request::Ban { .. } | Request::Evict { ban: true, .. });
    let count = group.banned.len() + steward.orders.iter().filter(bans).count();
    (is_new && count >= BANS_MAX).then(|| format!("the group keeps at most {BANS_MAX} bans: lift some that are over"))
}

/// What can be said about an order to evict at once; `None` if it is to be carried out.
fn answer_to_evict<F: Conduct>(
    group: &Group,
    steward: &Steward<F>,
    node: NodeId,
    ban: bool,
) -> Option<Result<(), String>> {
    let stays = |member: &Member| {
        let is_leaving = steward.sessions.is_unacknowledged(member.id);
        member.id != node && !group.banned.contains(&member.name) && !is_leaving
    };
    let votes = |member: &&Member| member.durable || !group.durable;
    let staying: Vec<&Member> = group.members.values().filter(|member| stays(member)).collect();
    let why = match staying.iter().any(votes) {
        true => None,
        false if staying.is_empty() => Some("it is the last member: nobody would be left to admit it again"),
        false => Some("it is the last member with a data directory: nobody could take its vote over"),
    };
    let is_known = group.find(node).is_some();
    if let Some(why) = why.filter(|_| is_known) {
        return Some(Err(why.to_owned()));
    }
    let is_candidate = steward.candidates.contains_key(&node);
    let has_effect = is_known || ban && is_candidate;
    (!has_effect).then_some(Ok(()))
}

/// What came of an order; `None` while it is being carried out.
fn result_of(
    order: &Order,
    group: &Group,
    is_installed: bool,
    is_needed: impl Fn(&NodeId) -> bool,
) -> Option<Result<(), String>> {
    match (&order.request, &order.state) {
        (_, OrderState::Until(epoch)) if is_installed && group.epoch >= *epoch => Some(Ok(())),
        (Request::Evict { node, .. }, OrderState::Evicted) => {
            // One that was admitted again has its vote again.
            let keeps_vote = is_needed(node) && group.find(*node).is_none();
            (!keeps_vote && is_installed && order.bans.is_none()).then_some(Ok(()))
        }
        (_, OrderState::Breaking(said)) => {
            let all = group.members.keys().all(|id| said.get(id).is_some_and(|(_, left)| *left == 0));
            let held = said.values().any(|(before, _)| *before > 0);
            all.then(|| if held { Ok(()) } else { Err("nobody holds this lock".to_owned()) })
        }
        _ => None,
    }
}

/// The members, and the voters that are away.
pub(super) fn known(group: &Group) -> BTreeMap<NodeId, Member> {
    group.absent.iter().chain(&group.members).map(|(id, member)| (*id, member.clone())).collect()
}

fn name_in(group: &Group, id: NodeId) -> String {
    group.find(id).map_or_else(|| id.to_string(), |member| member.name.clone())
}

/// What a request does, and to what. None if that is the member's own affair.
fn in_words(group: &Group, request: &Request) -> Option<(&'static str, String)> {
    Some(match request {
        // They are nobody's to order for others.
        Request::Stop | Request::Leave => return None,
        Request::Evict { node, ban: false } => ("evict", name_in(group, *node)),
        Request::Evict { node, ban: true } => ("ban", name_in(group, *node)),
        Request::Ban { name } => ("ban", name.clone()),
        Request::Admit { name } => ("admit", name.clone()),
        Request::SetClass(class) => {
            ("class set", [&[class.prefix.clone(), class.protocol.clone()], &class.options[..]].concat().join(" "))
        }
        Request::Break { lock } => ("break", lock.clone()),
    })
}

/// Tells an order to break a lock from others, also of other members.
fn break_token(from: NodeId, token: u64) -> u64 {
    let mut digest = Digest::default();
    digest.add(&from.0.to_be_bytes());
    digest.add(&token.to_be_bytes());
    digest.0
}
