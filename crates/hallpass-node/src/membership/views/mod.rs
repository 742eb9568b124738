//! A node whose group changes: how it finds a group, renews its session, goes from view to view, and comes back.
//!
//! Messages that it sends to itself, such as the renewals of the steward's own session, take the same way as all others.

mod connections;
mod elsewhere;
mod messages;
mod serve;
mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hallpass_core::codec::DecodeError;
use hallpass_core::protocol::OptionError;
use hallpass_core::{NodeId, Ticks, View};

use crate::Incarnation;
use crate::config::{Class, Digest, Founding, NodeConfig, Sabotage, ViewsConfig};
use crate::links::{Links, Sender};
use crate::locks::{Classes, Held, HeldLock};
use crate::membership::control::{Contacts, Control, Envelope, Founder};
use crate::membership::engine::{Engine, Event};
use crate::membership::founding::{self, Founders};
use crate::membership::group::{Command, Group, Member};
use crate::membership::install::{Install, parts};
use crate::membership::keys;
use crate::membership::session::Session;
use crate::membership::steward::{Steward, Withdrawal};
use crate::node::Checked;
use crate::output::{Request, RequestError, Ticket, Write};
use elsewhere::HeldBack;

/// What the node is to do, in order.
pub(crate) enum Action {
    Persist(Write),
    Send {
        to: NodeId,
        bytes: Vec<u8>,
    },
    /// Connections and links are to be made or given up.
    Peers,
    /// The view is over: close the locks, and say what is held by [`Views::on_closed`].
    Close,
    Open(Box<Opening>),
    /// The session is over: nothing is held any more. If another incarnation follows, links begin again.
    Lapse {
        comes_back: bool,
    },
    /// Whoever holds this lock loses it at that time.
    Break {
        from: NodeId,
        token: u64,
        lock: String,
        at: Ticks,
    },
    Revoke(Ticket),
    Done {
        token: u64,
        result: Result<(), RequestError>,
    },
    View,
}

/// A view begins.
pub(crate) struct Opening {
    pub(crate) sender: Sender,
    pub(crate) view: View,
    pub(crate) classes: Vec<Class>,
    pub(crate) holders: Vec<HeldLock>,
}

pub(crate) struct Views {
    pub(super) me: Member,
    boot_id: u64,
    /// The group's name.
    label: String,
    pub(super) settings: Settings,
    pub(super) founders: Option<Founders>,
    /// 0: in no group.
    group_id: u64,
    pub(super) engine: Option<Engine>,
    /// The group as consensus has it, on a node that votes.
    pub(super) replica: Option<Group>,
    /// The group of the view that this node is in, or has reported for.
    view: Option<Group>,
    /// The group of a view that is prepared, while the locks of the view before are being closed.
    closing: Option<Group>,
    /// What it was last told about who is there.
    known: Contacts,
    pub(super) steward: Option<Steward>,
    session: Session,
    install: Install,
    /// A view that was prepared before this node had a session, or had stored that it is in this group.
    pending: Option<(NodeId, Group, Vec<NodeId>)>,
    phase: Phase,
    /// Nodes with a control connection.
    connected: BTreeSet<NodeId>,
    /// Writes that are under way: what they were for.
    writes: BTreeMap<u64, Purpose>,
    last_write: u64,
    /// The group that this node has founded as a voter. It is written together with the first state of the log: with one of them alone a node
    /// that crashed in between would be in a group that it never votes in.
    founded: Option<Vec<u8>>,
    /// The group of this id is on disk: a process that is started from the same directory knows that it had a predecessor.
    remembered: u64,
    /// The group that this node has founded is stored by a voter: it comes back, whoever crashes. Before that others are not told of it: they
    /// would wait for it for ever, and the founders with them when they hear of it again.
    is_stored: bool,
    requests: BTreeMap<u64, Request>,
    /// Locks that were taken from their holders, and when those lose them.
    broken: Vec<(Ticks, Ticket)>,
    /// Until when clients outside this process may believe that they hold something here: see [`Node::promise`](crate::Node::promise).
    promised_until: Ticks,
    /// How often this node became the steward.
    elections: u64,
    /// Orders to break a lock that were carried out here: its holders then.
    breaking: BTreeMap<u64, Vec<Ticket>>,
    wants_epoch: bool,
    /// An operator founded the group again from here, and sessions of the lost one may go on: there is no view yet.
    waits_for_lost: bool,
    /// It was sent away before its session was over, and does not join before that.
    joins_from: Ticks,
    /// How often it has asked the steward for something.
    asked: u32,
    /// When the steward last said that it is the steward.
    steward_heard: Ticks,
    why: Option<String>,
    /// Its group has had more than one member.
    pub(super) is_shared: bool,
    /// Why it takes no part in views that it was asked for, from which epoch on.
    refusal: Option<(u64, String)>,
    /// Why it grants nothing though it could decide alone.
    held_back: Option<HeldBack>,
    pub(super) timers: Timers,
    pub(super) now: Ticks,
    inbox: VecDeque<Control>,
    pub(super) actions: VecDeque<Action>,
}

pub(super) struct Settings {
    classes: Vec<Class>,
    ttl: Ticks,
    drift_ppm: u32,
    pub(super) replace_after: Ticks,
    pub(super) voters_max: usize,
    seed: u64,
    epoch_floor: u64,
    pub(super) sabotage: Option<Sabotage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Waits until its predecessor's session is over, whatever became of it.
    Waiting { until: Option<Ticks> },
    /// Takes part, or tries to.
    Running,
    /// The next incarnation is being written.
    Persisting,
    /// It leaves by its own will.
    Withdrawing { keeps_vote: bool },
    /// It has left.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// A write of the consensus engine; the first one of a founder has the group with it.
    Engine(u64),
    Incarnation,
    /// The group of this id.
    Group(u64),
    Nothing,
}

/// When what is to be done again; 0 is at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// The consensus engine's clock.
    tick: Ticks,
    renew: Ticks,
    /// Founding, joining, leaving and requests are repeated.
    repeat: Ticks,
    /// The steward's messages are repeated.
    pub(super) steward: Ticks,
    /// The last acknowledgement came for a renewal that was sent then.
    renewed: Ticks,
    /// Until when the founders' first leader is sought.
    campaign_until: Ticks,
    /// The office of a steward that leaves is offered to another one again.
    hand_over: Ticks,
}

impl Views {
    pub(crate) fn new(config: &NodeConfig, views: &ViewsConfig) -> Result<Self, OptionError> {
        let me = Member {
            id: config.me,
            incarnation: config.incarnation,
            name: config.name.clone(),
            address: views.address.clone(),
            durable: views.durable,
        };
        if me.id == NodeId::SERVER {
            return Err(OptionError("a node's id is not 0".to_owned()));
        }
        let seed = config.boot_id ^ u64::from(me.id.0);
        let stored = |error: String| OptionError(format!("what this node has stored cannot be used: {error}"));
        let engine = Engine::restore(me.id, &views.stored, seed).map_err(|error| stored(error.to_string()))?;
        let last_seen = match views.stored.get(&keys::GROUP) {
            None => None,
            Some(bytes) => {
                let group = Group::decode(&mut hallpass_core::codec::Reader::new(bytes));
                Some(group.map_err(|error| stored(error.to_string()))?)
            }
        };
        let settings = Settings {
            classes: config.classes.clone(),
            ttl: views.ttl,
            drift_ppm: views.drift_ppm,
            replace_after: views.replace_after,
            voters_max: views.voters_max,
            seed,
            epoch_floor: views.epoch_floor,
            sabotage: views.sabotage,
        };
        let mut node = Self {
            session: Session::new(me.incarnation, views.ttl),
            boot_id: config.boot_id,
            label: config.group.clone(),
            founders: None,
            group_id: last_seen.as_ref().map_or(0, |group| group.id),
            replica: None,
            view: None,
            closing: None,
            known: Contacts::default(),
            steward: None,
            install: Install::default(),
            pending: None,
            phase: Phase::Running,
            connected: BTreeSet::new(),
            writes: BTreeMap::new(),
            last_write: 0,
            founded: None,
            remembered: last_seen.as_ref().map_or(0, |group| group.id),
            is_stored: true,
            requests: BTreeMap::new(),
            broken: Vec::new(),
            promised_until: 0,
            elections: 0,
            breaking: BTreeMap::new(),
            wants_epoch: false,
            waits_for_lost: false,
            joins_from: 0,
            asked: 0,
            steward_heard: 0,
            why: None,
            is_shared: views.stored.contains_key(&keys::SHARED),
            refusal: None,
            held_back: None,
            timers: Timers::default(),
            now: 0,
            inbox: VecDeque::new(),
            actions: VecDeque::new(),
            engine,
            me,
            settings,
        };
        if let (Some(engine), Some(Sabotage::HandVotesToSilence)) = (&mut node.engine, views.sabotage) {
            engine.trust_silence();
        }
        if let Some(group) = last_seen {
            node.session = Session::new(node.me.incarnation, group.ttl);
            (node.known.epoch, node.known.ttl, node.known.drift_ppm) = (group.epoch, group.ttl, group.drift_ppm);
            node.known.absent = group.absent.values().cloned().collect();
            node.known.members = group.members.into_values().collect();
        }
        node.held_back = node.hold_back(views);
        let is_recovered =
            views.stored.contains_key(&keys::RECOVERED) && views.sabotage != Some(Sabotage::GrantOnceRecovered);
        if node.is_in_group() && (!views.predecessor_is_dead || is_recovered) {
            (node.phase, node.waits_for_lost) = (Phase::Waiting { until: None }, is_recovered);
        }
        if let Founding::Together(expect) = views.founding
            && !node.is_in_group()
        {
            let before = match views.stored.get(&keys::FOUNDERS) {
                None => Vec::new(),
                Some(bytes) => Founder::decode_all(&mut hallpass_core::codec::Reader::new(bytes))
                    .map_err(|error| stored(error.to_string()))?,
            };
            node.founders = Some(Founders::new(node.founder(), expect.max(1)).that_has_founded_with(before));
        }
        Ok(node)
    }

    pub(super) fn is_in_group(&self) -> bool {
        self.group_id != 0 || self.engine.is_some()
    }

    fn founder(&self) -> Founder {
        let Member { id, incarnation, name, address, durable } = self.me.clone();
        let mut digest = Digest::default();
        for class in &self.settings.classes {
            digest.add(class.prefix.as_bytes());
            digest.add(class.protocol.as_bytes());
            class.options.iter().for_each(|option| digest.add(option.as_bytes()));
        }
        digest.add(&self.settings.ttl.to_be_bytes());
        digest.add(&self.settings.drift_ppm.to_be_bytes());
        if self.settings.sabotage != Some(Sabotage::FoundWithAnyVoters) {
            digest.add(&(self.settings.voters_max as u64).to_be_bytes());
            digest.add(&self.settings.replace_after.to_be_bytes());
        }
        Founder { address, id, incarnation, name, durable, floor: self.settings.epoch_floor, settings: digest.0 }
    }

    // ---- actions ----

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(super) fn send(&mut self, to: NodeId, message: Control) {
        if to == self.me.id {
            self.inbox.push_back(message);
        } else if self.connected.contains(&to) {
            let bytes = Envelope { group_id: self.group_id, message }.encode();
            self.actions.push_back(Action::Send { to, bytes });
        }
    }

    fn persist(&mut self, purpose: Purpose, remove: std::ops::Range<u64>, put: Vec<(u64, Vec<u8>)>) {
        self.last_write += 1;
        self.writes.insert(self.last_write, purpose);
        self.actions.push_back(Action::Persist(Write { number: self.last_write, remove, put }));
    }

    // ---- inputs ----

    pub(crate) fn on_persisted(&mut self, number: u64, now: Checked) {
        self.now = now.ticks();
        match self.writes.remove(&number) {
            Some(Purpose::Engine(number)) => {
                if let Some(engine) = &mut self.engine {
                    engine.persisted(number);
                }
                // The founded group was in the first of these.
                self.is_stored = true;
                if self.replica.is_some() && self.remembered == 0 {
                    self.remembered = self.group_id;
                }
            }
            Some(Purpose::Incarnation) => {
                // It may have been stopped meanwhile.
                if self.phase == Phase::Persisting {
                    self.phase = Phase::Running;
                }
                self.session = Session::new(self.me.incarnation, self.session.ttl());
                self.timers.repeat = 0;
                self.actions.push_back(Action::View);
            }
            Some(Purpose::Group(id)) => {
                self.remembered = id;
                self.timers.repeat = 0;
                self.take_up_pending();
            }
            Some(Purpose::Nothing) | None => {}
        }
        self.go_on();
    }

    /// A view was prepared too early for this node: it may be ready for it now.
    fn take_up_pending(&mut self) {
        if let Some((from, group, voters)) = self.pending.take() {
            self.on_prepare(from, group, voters);
        }
    }

    pub(crate) fn on_control(&mut self, from: NodeId, bytes: &[u8], now: Checked) -> Result<(), DecodeError> {
        self.now = now.ticks();
        let Envelope { group_id, message } = match Envelope::decode(bytes) {
            // A later version says something that this one does not understand.
            Err(DecodeError::Unknown) => return Ok(()),
            decoded => decoded?,
        };
        if let (Control::Founding { known, .. }, true) = (&message, group_id != 0) {
            self.on_founded(group_id, known);
            self.go_on();
            return Ok(());
        }
        let is_founding = matches!(message, Control::Founding { .. });
        if self.phase != Phase::Gone && (group_id == self.group_id || self.group_id == 0 || is_founding) {
            if let (0, Control::Contacts(_)) = (self.group_id, &message)
                && group_id != 0
            {
                self.enter_group(group_id);
            }
            if group_id == self.group_id || is_founding {
                self.on_message(from, message);
            }
        } else if matches!(message, Control::Join { .. }) && group_id == 0 {
            // Whoever knows only an address is told which group this is, and asks again.
            self.send_contacts(from);
        }
        self.go_on();
        Ok(())
    }

    pub(crate) fn on_timeout(&mut self, now: Checked, links: &Links) {
        let now = now.ticks();
        self.now = now;
        if let Phase::Waiting { until } = self.phase {
            let drift_ppm = self.settings.drift_ppm.max(self.known.drift_ppm);
            let wait = self.session.ttl() + self.session.ttl().saturating_mul(drift_ppm.into()) / 1_000_000;
            match until {
                None => self.phase = Phase::Waiting { until: Some(now + wait) },
                Some(until) if now >= until => (self.phase, self.waits_for_lost) = (Phase::Running, false),
                Some(_) => {}
            }
        }
        if now >= self.timers.tick {
            self.timers.tick = now + self.tick();
            if let Some(engine) = &mut self.engine {
                engine.tick();
                if now < self.timers.campaign_until
                    && engine.leader().is_none()
                    && engine.voters().first() == Some(&self.me.id)
                {
                    engine.campaign();
                }
            }
        }
        if now >= self.timers.renew {
            self.renew(links);
        }
        if now >= self.timers.repeat {
            self.timers.repeat = now + self.repeat_after();
            self.repeat(links);
        }
        let (due, rest) = std::mem::take(&mut self.broken).into_iter().partition(|(at, _)| *at <= now);
        self.broken = rest;
        let due: Vec<(Ticks, Ticket)> = due;
        self.actions.extend(due.into_iter().map(|(_, ticket)| Action::Revoke(ticket)));
        // All others may have left meanwhile.
        if self.decides_alone() {
            self.finish_withdrawing();
        }
        self.go_on();
    }

    /// The engine's clock: elections take ten to twenty of these.
    fn tick(&self) -> Ticks {
        (self.session.ttl() / 100).clamp(5_000_000, 100_000_000)
    }

    /// Something has changed: it is said again, once for all that changes at about the same time.
    fn repeat_soon(&mut self) {
        self.timers.repeat = self.timers.repeat.min(self.now + self.soon());
    }

    /// The steward has something to tell to all members, once for all that happens at about the same time.
    pub(super) fn announce_soon(&mut self) {
        self.timers.steward = self.timers.steward.min(self.now + self.soon());
    }

    /// What happens within this time is told at once. It grows with the group, since more happens there, and each message that
    /// names all members is longer.
    fn soon(&self) -> Ticks {
        let members = self.group().map_or(self.known.members.len(), |group| group.members.len());
        2_000_000 + 50_000 * members as u64
    }

    pub(super) fn repeat_after(&self) -> Ticks {
        self.tick() * 2
    }

    pub(crate) fn timeout(&self) -> Option<Ticks> {
        if self.phase == Phase::Gone {
            return None;
        }
        let busy = self.founders.is_some() && !self.is_in_group()
            || !self.requests.is_empty()
            || self.install.open().is_none()
            || self.phase != Phase::Running;
        let busy = busy && self.held_back.is_none();
        let ticks = self.engine.as_ref().filter(|engine| !self.decides_alone() || !engine.learners().is_empty());
        let serving = self.steward.as_ref().filter(|_| self.held_back.is_none());
        let steward = serving.and_then(|steward| {
            let expiry = self.replica.as_ref().map_or(0, Group::expiry);
            // What is proposed comes first, whoever else is gone.
            let waits_for_next = !self.is_alone() && steward.proposed.is_none();
            let next = steward.sessions.next_expiry(expiry).filter(|_| waits_for_next);
            let waits = steward.proposed.is_none() && steward.is_installed() && steward.orders.is_empty();
            let waits = waits && steward.candidates.is_empty() && steward.withdrawn.is_empty();
            if waits { next } else { Some(next.map_or(self.timers.steward, |next| next.min(self.timers.steward))) }
        });
        let renew =
            (self.view.is_some() && !self.needs_no_session() || self.pending.is_some()).then_some(self.timers.renew);
        let times = [
            busy.then_some(self.timers.repeat),
            ticks.map(|_| self.timers.tick),
            steward,
            renew,
            self.broken.iter().map(|(at, _)| *at).min(),
        ];
        times.into_iter().flatten().min()
    }

    pub(crate) fn on_request(&mut self, request: Request, token: u64, now: Checked) {
        self.now = now.ticks();
        if let Request::SetClass(class) = &request {
            let members = self.view.as_ref().map(|group| group.members.keys().copied()).into_iter().flatten();
            let view = View::new(members.chain([self.me.id]));
            if let Err(error) = Classes::new(self.me.id, &view, std::slice::from_ref(class)) {
                let result = Err(RequestError::Invalid(error.0));
                return self.actions.push_back(Action::Done { token, result });
            }
        }
        if let Request::Evict { node, .. } = request
            && !self.peers().contains_key(&node)
            && node != self.me.id
        {
            return self.actions.push_back(Action::Done { token, result: Err(RequestError::NoMember(node)) });
        }
        if let Some(held_back) = self.held_back.as_ref().filter(|_| !matches!(request, Request::Stop | Request::Leave))
        {
            let result = Err(RequestError::Invalid(held_back.why().to_owned()));
            return self.actions.push_back(Action::Done { token, result });
        }
        if request == Request::Leave
            && let Some(why) = self.cannot_leave()
        {
            return self.actions.push_back(Action::Done { token, result: Err(RequestError::Invalid(why)) });
        }
        match request {
            // What it knew as a voter is lost with a process that has no directory: others must be able to decide without it.
            Request::Stop => self.withdraw(self.me.durable),
            Request::Leave => self.withdraw(false),
            _ => {}
        }
        self.requests.insert(token, request);
        self.timers.repeat = 0;
        if self.phase == Phase::Gone {
            self.gone();
        }
        self.finish_withdrawing();
        self.go_on();
    }

    /// Members without directories have no vote in a group whose members have some: they cannot go on without the last one that has.
    fn cannot_leave(&self) -> Option<String> {
        let group = self.group().filter(|group| group.durable && self.me.durable)?;
        let others = || group.members.values().chain(group.absent.values()).filter(|member| member.id != self.me.id);
        (others().count() > 0 && !others().any(|member| member.durable)).then(|| {
            "no other member has a data directory, so nobody could take its vote over: start one with a directory first, or stop \
             the others"
                .to_owned()
        })
    }

    pub(crate) fn forget_request(&mut self, token: u64) {
        self.requests.remove(&token);
    }

    pub(crate) fn ask_for_new_epoch(&mut self, now: Checked) {
        self.now = now.ticks();
        if !std::mem::replace(&mut self.wants_epoch, true) {
            self.timers.renew = 0;
        }
    }

    /// The session is over, if its time is.
    pub(crate) fn lapse_if_due(&mut self, now: Ticks) {
        self.now = now;
        self.renew_alone();
        if self.settings.sabotage != Some(Sabotage::KeepPermissionsAfterLapse) && self.session.lapse_if_due(now) {
            self.lapse();
        }
    }

    /// A steward that decides alone renews its own session: asked, confirmed and answered in one moment.
    pub(super) fn renew_alone(&mut self) {
        if self.renews_alone() {
            if self.view.is_some() {
                self.session.renew_at(self.now);
            }
            if let Some(steward) = &mut self.steward {
                steward.sessions.touch(self.me.id, self.now);
            }
        }
    }

    /// Everything that was held is lost, and the node comes back as its next incarnation.
    fn lapse(&mut self) {
        let comes_back = self.phase == Phase::Running;
        self.end_view(comes_back);
        if !comes_back {
            return;
        }
        self.phase = Phase::Persisting;
        self.use_incarnation(self.me.incarnation.get() + 1);
    }

    fn end_view(&mut self, comes_back: bool) {
        // Whoever was granted something may go by the deadline that it was told.
        self.joins_from = self.session.valid_until().unwrap_or(0);
        self.session.end();
        self.install.end();
        (self.view, self.closing, self.pending) = (None, None, None);
        (self.broken, self.breaking) = (Vec::new(), BTreeMap::new());
        self.actions.push_back(Action::Lapse { comes_back });
        self.actions.push_back(Action::Peers);
    }

    fn use_incarnation(&mut self, number: u32) {
        let Some(next) = Incarnation::new(number) else {
            self.why = Some("this node has used up its incarnations: give it another data directory".to_owned());
            return;
        };
        self.me.incarnation = next;
        self.persist(Purpose::Incarnation, 0..0, vec![(keys::INCARNATION, number.to_be_bytes().to_vec())]);
    }

    /// Leaves the view by its own will: it holds nothing from now on.
    fn withdraw(&mut self, keeps_vote: bool) {
        if !matches!(self.phase, Phase::Withdrawing { .. } | Phase::Gone) {
            self.phase = Phase::Withdrawing { keeps_vote };
            self.end_view(false);
        }
        self.hand_over_office();
        self.timers.repeat = self.now;
    }

    /// Another member is to be the steward: it stays when this one is gone. To be said again while this one still is, since the word may be lost.
    fn hand_over_office(&mut self) {
        let Phase::Withdrawing { keeps_vote } = self.phase else { return };
        let is_once = self.settings.sabotage == Some(Sabotage::CountRefusedProposals) && self.timers.hand_over > 0;
        if self.now < self.timers.hand_over || is_once {
            return;
        }
        // Meanwhile the engine takes no proposals: there is time for some before it is tried again.
        self.timers.hand_over = self.now + self.session.ttl() / 2;
        if let (Some(engine), Some(_), Some(group)) = (&mut self.engine, &self.steward, &self.replica) {
            let heir = engine
                .voters()
                .into_iter()
                .filter(|id| *id != self.me.id && group.members.contains_key(id) && self.connected.contains(id))
                .min_by_key(|id| engine.ticks_since(*id).unwrap_or(u64::MAX));
            if let Some(heir) = heir {
                engine.transfer(heir);
            } else if !keeps_vote || group.members.len() == 1 {
                let withdrawal = Withdrawal { incarnation: self.me.incarnation, keeps_vote, member: None };
                if let Some(steward) = &mut self.steward {
                    steward.withdrawn.insert(self.me.id, withdrawal);
                }
            }
        }
    }

    /// Whoever is alone, or votes alone, has nobody to wait for.
    fn finish_withdrawing(&mut self) {
        let Phase::Withdrawing { keeps_vote } = self.phase else { return };
        let alone = self
            .replica
            .as_ref()
            .or(self.view.as_ref())
            .is_none_or(|group| group.members.keys().all(|id| *id == self.me.id));
        if !self.is_in_group() || alone && self.steward.is_some() || keeps_vote && self.decides_alone() {
            self.gone();
        }
    }

    fn gone(&mut self) {
        self.phase = Phase::Gone;
        let leaving = |request: &Request| matches!(request, Request::Stop | Request::Leave);
        let done: Vec<u64> =
            self.requests.iter().filter(|(_, request)| leaving(request)).map(|(token, _)| *token).collect();
        for token in done {
            self.requests.remove(&token);
            self.actions.push_back(Action::Done { token, result: Ok(()) });
        }
        self.actions.push_back(Action::View);
    }

    /// The locks are closed, and this is held: it is reported.
    pub(crate) fn on_closed(&mut self, held: Vec<Held>, now: Checked) {
        self.now = now.ticks();
        let again = || self.view.clone().filter(|_| self.settings.sabotage == Some(Sabotage::CloseTwice));
        let Some(group) = self.closing.take().or_else(again) else { return };
        self.install.on_closed(group.epoch, held);
        self.view = Some(group);
        if let Some(to) = self.steward_id() {
            self.send_report(to);
        }
        self.go_on();
    }

    fn send_report(&mut self, to: NodeId) {
        let (epoch, incarnation) = (self.install.reported(), self.me.incarnation);
        let chunks = parts(self.install.report());
        let count = chunks.len() as u32;
        for (part, held) in (0..).zip(chunks) {
            self.send(to, Control::Report { epoch, incarnation, part, parts: count, held });
        }
    }

    /// A lock is to be broken, and these hold it. The first time they are told so: those are returned.
    pub(crate) fn elections(&self) -> u64 {
        self.elections
    }

    pub(crate) fn promise(&mut self, until: Ticks) {
        self.promised_until = self.promised_until.max(until);
    }

    pub(crate) fn on_break(&mut self, from: NodeId, token: u64, holders: &[Ticket], at: Ticks) -> Vec<Ticket> {
        let is_new = !self.breaking.contains_key(&token);
        let before = self.breaking.entry(token).or_insert_with(|| holders.to_vec());
        let left = holders.iter().filter(|ticket| before.contains(ticket)).count() as u64;
        let message = Control::Broken { token, before: before.len() as u64, left };
        self.send(from, message);
        if !is_new {
            return Vec::new();
        }
        self.broken.extend(holders.iter().map(|ticket| (at, *ticket)));
        holders.to_vec()
    }

    // ---- going on ----

    /// Everything that follows from an input, until nothing more does.
    fn go_on(&mut self) {
        for _ in 0..10_000 {
            if self.pump_engine() {
                continue;
            }
            if let Some(message) = self.inbox.pop_front() {
                self.on_message(self.me.id, message);
                continue;
            }
            if !self.serve_group() {
                return;
            }
        }
        debug_assert!(false, "the view layer does not come to rest");
    }

    /// Takes one event of the consensus engine; false if there is none.
    fn pump_engine(&mut self) -> bool {
        let Some(event) = self.engine.as_mut().and_then(Engine::poll) else { return false };
        match event {
            Event::Send { to, bytes } => self.send(to, Control::Engine(bytes)),
            Event::Persist(Write { number, remove, mut put }) => {
                put.extend(self.founded.take().map(|group| (keys::GROUP, group)));
                self.persist(Purpose::Engine(number), remove, put);
            }
            Event::Apply { term, data, .. } => {
                // What was committed was proposed by a steward: it can be read.
                let Ok(command) = Command::decode(&data) else { return true };
                if let Some(group) = &mut self.replica
                    && group.apply(term, &command)
                {
                    self.on_group_changed();
                }
            }
            Event::Restore { data, .. } => {
                if let Ok(group) = Group::decode(&mut hallpass_core::codec::Reader::new(&data)) {
                    self.group_id = group.id;
                    self.replica = Some(group);
                    self.on_group_changed();
                }
            }
            Event::OwnTerm => {
                if let Some(group) = &self.replica {
                    self.elections += 1;
                    let mut steward = Steward::new(group, self.now);
                    steward.sabotage = self.settings.sabotage;
                    self.steward = Some(steward);
                    (self.timers.steward, self.timers.renew) = (0, 0);
                    self.actions.push_back(Action::View);
                }
            }
            Event::Confirmed { batch } => self.acknowledge(batch),
            Event::Leader(leader) => {
                if leader != Some(self.me.id) {
                    self.steward = None;
                }
                self.known.steward = leader.or(self.known.steward);
                // The new steward counts from its election, and is to hear from everybody soon.
                self.timers.renew = self.timers.renew.min(self.now);
                self.timers.repeat = self.timers.repeat.min(self.now);
                self.actions.push_back(Action::View);
            }
            Event::Voters(voters) => {
                self.known.voters = voters;
                self.actions.push_back(Action::View);
            }
        }
        if let (Some(engine), Some(group)) = (&mut self.engine, &self.replica)
            && engine.wants_snapshot()
        {
            let mut state = Vec::new();
            group.encode(&mut state);
            engine.snapshot(state);
        }
        true
    }

    /// Consensus has another group than before.
    fn on_group_changed(&mut self) {
        let Some(group) = &self.replica else { return };
        if let Some(steward) = &mut self.steward {
            steward.follow(group, self.now);
            self.timers.steward = 0;
        }
        self.actions.push_back(Action::Peers);
    }

    fn acknowledge(&mut self, batch: u64) {
        let Some(steward) = &mut self.steward else { return };
        for (to, renewal) in steward.sessions.on_confirmed(batch) {
            self.send(to, Control::Renewed { incarnation: renewal.incarnation, sent: renewal.sent });
        }
    }

    /// This node is in the group of this id from now on: it joins it, or comes back to it.
    fn enter_group(&mut self, group_id: u64) {
        self.group_id = group_id;
        self.founders = None;
    }

    /// The group that these found.
    pub(super) fn founding(&self, founders: &[Founder]) -> Group {
        let Settings { classes, ttl, drift_ppm, .. } = &self.settings;
        founding::found(founders, classes, *ttl, *drift_ppm)
    }

    /// Who votes in it first.
    pub(super) fn founding_voters(&self, group: &Group) -> Vec<NodeId> {
        let count = founding::voters(group.members.len(), self.settings.voters_max);
        group.members.keys().copied().take(count).collect()
    }

    /// Founds the group with all who agree.
    pub(super) fn found(&mut self, founders: &[Founder]) {
        let group = self.founding(founders);
        self.group_id = group.id;
        self.known = Contacts {
            epoch: group.epoch,
            members: group.members.values().cloned().collect(),
            voters: self.founding_voters(&group),
            ttl: group.ttl,
            drift_ppm: group.drift_ppm,
            ..Contacts::default()
        };
        self.session = Session::new(self.me.incarnation, group.ttl);
        self.is_stored = false;
        if !self.begin_to_vote(&group) {
            // The group itself is stored with the first view. Before that the voters may lose it, and it is founded again.
            let mut bytes = Vec::new();
            Founder::encode_all(founders, &mut bytes);
            self.persist(Purpose::Nothing, 0..0, vec![(keys::FOUNDERS, bytes)]);
        }
        self.actions.push_back(Action::Peers);
    }

    /// A founder that votes begins with the founded group, whatever has become of that since: others tell. False if it does not vote.
    pub(super) fn begin_to_vote(&mut self, group: &Group) -> bool {
        let voters = self.founding_voters(group);
        if !voters.contains(&self.me.id) {
            return false;
        }
        let mut state = Vec::new();
        group.encode(&mut state);
        self.founded = Some(state.clone());
        let mut engine = Engine::found(self.me.id, &voters, state, self.settings.seed);
        if self.settings.sabotage == Some(Sabotage::HandVotesToSilence) {
            engine.trust_silence();
        }
        if voters.first() == Some(&self.me.id) {
            engine.campaign();
        }
        self.engine = Some(engine);
        self.replica = Some(group.clone());
        self.timers.campaign_until = self.now + 40 * self.tick();
        self.timers.tick = 0;
        true
    }

    /// Stores the group, so that the node finds it again.
    fn remember(&mut self, group: &Group) {
        let mut bytes = Vec::new();
        group.encode(&mut bytes);
        // Also of one that is about to join: who let it in may have left before its first view.
        self.is_shared |= group.members.keys().chain(group.absent.keys()).any(|id| *id != self.me.id);
        let shared = self.is_shared.then(|| (keys::SHARED, Vec::new()));
        let put = [(keys::GROUP, bytes)].into_iter().chain(shared).collect();
        // Whoever is in a view again has waited for what a lost group had granted.
        self.persist(Purpose::Group(group.id), keys::RECOVERED..keys::RECOVERED + 1, put);
    }
}

/// Tells an order to break a lock from others, also of other members.
pub(super) fn break_token(from: NodeId, token: u64) -> u64 {
    let mut digest = Digest::default();
    digest.add(&from.0.to_be_bytes());
    digest.add(&token.to_be_bytes());
    digest.0
}
