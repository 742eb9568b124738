//! What every node has, in a group or not: who it is, whom it knows, its connections, its writes, what it was asked for, and what it
//! asks its driver for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use hallpass_core::{NodeId, Ticks};

use super::action::Action;
use crate::config::{Class, Digest, NodeConfig, ViewsConfig};
use crate::faults::{Conduct, Sabotage};
use crate::membership::control::{Contacts, Control, Envelope, Founder};
use crate::membership::founding;
use crate::membership::group::{Group, Member};
use crate::membership::keys;
use crate::output::{Request, Write};
use crate::wire::{Hello, Plane};

pub(super) struct Base<F> {
    pub(super) me: Member,
    pub(super) boot_id: u64,
    /// The group's name.
    pub(super) label: String,
    pub(super) settings: Settings<F>,
    /// 0: in no group.
    pub(super) group_id: u64,
    /// What it was last told about who is there.
    pub(super) known: Contacts,
    /// Nodes with a control connection, and the names in their greetings.
    pub(super) connected: BTreeMap<NodeId, String>,
    /// The keys that they have shown, and this node's own, each by the name under which it would be banned.
    pub(super) keys: BTreeMap<NodeId, Vec<String>>,
    /// Nodes that were found at addresses that this node was given.
    pub(super) seeds: BTreeMap<NodeId, String>,
    /// Who is not admitted.
    pub(super) bans: Bans,
    /// Messages that were dropped because of who sent them.
    pub(super) denied: u64,
    /// Writes that are under way: what they were for.
    pub(super) writes: BTreeMap<u64, Purpose>,
    pub(super) last_write: u64,
    /// The group of this id is on disk: a process that is started from the same directory knows that it had a predecessor.
    pub(super) remembered: u64,
    /// A voter has stored the group that this node has founded: it comes back whatever crashes. Before that, others are not told of it:
    /// they would wait for it forever, and so would the founders when they hear of it again.
    pub(super) is_stored: bool,
    /// What this node's callers ask of the group.
    pub(super) requests: BTreeMap<u64, Request>,
    /// How often it has asked the steward for something.
    pub(super) asked: u32,
    /// When the steward last said that it is the steward.
    pub(super) steward_heard: Ticks,
    /// Why it is in no view, as others told it.
    pub(super) why: Option<String>,
    /// Its group has had more than one member.
    pub(super) is_shared: bool,
    /// When founding, joining, leaving and requests are repeated; 0 is at once.
    pub(super) repeat_at: Ticks,
    pub(super) now: Ticks,
    /// Messages of this node to itself.
    pub(super) inbox: VecDeque<Control>,
    pub(super) actions: VecDeque<Action>,
}

/// The names that are banned, as of the newest epoch of which this node knows that.
#[derive(Default)]
pub(super) struct Bans {
    pub(super) epoch: u64,
    pub(super) names: BTreeSet<String>,
}

pub(super) struct Settings<F> {
    pub(super) classes: Vec<Class>,
    pub(super) ttl: Ticks,
    pub(super) drift_ppm: u32,
    pub(super) replace_after: Ticks,
    pub(super) voters_max: usize,
    pub(super) seed: u64,
    pub(super) epoch_floor: u64,
    pub(super) conduct: F,
}

/// What a write is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A write of the consensus engine; the first one of a founder has the group with it.
    Engine(u64),
    Incarnation,
    /// The group of this id.
    Group(u64),
    /// Nothing waits for it.
    Nothing,
}

impl<F: Conduct> Base<F> {
    pub(super) fn new(config: &NodeConfig, views: &ViewsConfig, last_seen: Option<&Group>, conduct: F) -> Self {
        let me = Member {
            id: config.me,
            incarnation: config.incarnation,
            name: config.name.clone(),
            address: views.address.clone(),
            durable: views.durable,
        };
        let settings = Settings {
            classes: Class::founded_with(&config.classes),
            ttl: views.ttl,
            drift_ppm: views.drift_ppm,
            replace_after: views.replace_after,
            voters_max: views.voters_max,
            seed: config.boot_id ^ u64::from(me.id.0),
            epoch_floor: views.epoch_floor,
            conduct,
        };
        let known = last_seen.map_or_else(Contacts::default, |group| Contacts {
            epoch: group.epoch,
            ttl: group.ttl,
            drift_ppm: group.drift_ppm,
            absent: group.absent.values().cloned().collect(),
            members: group.members.values().cloned().collect(),
            banned: Some(group.banned.clone()),
            ..Contacts::default()
        });
        Self {
            me,
            boot_id: config.boot_id,
            label: config.group.clone(),
            settings,
            group_id: last_seen.map_or(0, |group| group.id),
            known,
            connected: BTreeMap::new(),
            keys: BTreeMap::new(),
            seeds: BTreeMap::new(),
            bans: last_seen
                .map_or_else(Bans::default, |group| Bans { epoch: group.epoch, names: group.banned.clone() }),
            denied: 0,
            writes: BTreeMap::new(),
            last_write: 0,
            remembered: last_seen.map_or(0, |group| group.id),
            is_stored: true,
            requests: BTreeMap::new(),
            asked: 0,
            steward_heard: 0,
            why: None,
            is_shared: views.stored.contains_key(&keys::SHARED),
            repeat_at: 0,
            now: 0,
            inbox: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// True if this node was planted with this bug.
    pub(super) fn breaks(&self, rule: Sabotage) -> bool {
        self.settings.conduct.breaks(rule)
    }

    // ---- what it says and writes ----

    pub(super) fn send(&mut self, to: NodeId, message: Control) {
        if to == self.me.id {
            self.inbox.push_back(message);
        } else if self.connected.contains_key(&to) {
            let bytes = Envelope { group_id: self.group_id, message }.encode();
            self.actions.push_back(Action::Send { to, bytes });
        }
    }

    pub(super) fn persist(&mut self, purpose: Purpose, remove: Range<u64>, put: Vec<(u64, Vec<u8>)>) {
        self.last_write += 1;
        self.writes.insert(self.last_write, purpose);
        self.actions.push_back(Action::Persist(Write { number: self.last_write, remove, put }));
    }

    /// Stores the group, so that the node finds it again.
    pub(super) fn remember(&mut self, group: &Group) {
        let mut bytes = Vec::new();
        group.encode(&mut bytes);
        // Also of one that is about to join: the members that let it in may have left before its first view.
        self.is_shared |= group.members.keys().chain(group.absent.keys()).any(|id| *id != self.me.id);
        let shared = self.is_shared.then(|| (keys::SHARED, Vec::new()));
        let put = [(keys::GROUP, bytes)].into_iter().chain(shared).collect();
        // A node that is in a view again has waited for what a lost group had granted.
        self.persist(Purpose::Group(group.id), keys::RECOVERED..keys::RECOVERED + 1, put);
    }

    pub(super) fn joins_unstored(&self) -> bool {
        self.breaks(Sabotage::JoinUnstored)
    }

    /// Whether the group is being written, and this node waits for that.
    pub(super) fn is_remembering(&self) -> bool {
        !self.joins_unstored() && self.writes.values().any(|purpose| *purpose == Purpose::Group(self.group_id))
    }

    // ---- what it is ----

    /// True if a node that speaks of itself by this name has greeted with it.
    pub(super) fn is_called(&self, id: NodeId, name: &str) -> bool {
        let known = if id == self.me.id { Some(&self.me.name) } else { self.connected.get(&id) };
        known.is_some_and(|known| known == name)
    }

    /// This node, as a founder of a group.
    pub(super) fn founder(&self) -> Founder {
        let Member { id, incarnation, name, address, durable } = self.me.clone();
        let mut digest = Digest::default();
        for class in &self.settings.classes {
            digest.add(class.prefix.as_bytes());
            digest.add(class.protocol.as_bytes());
            class.options.iter().for_each(|option| digest.add(option.as_bytes()));
        }
        digest.add(&self.settings.ttl.to_be_bytes());
        digest.add(&self.settings.drift_ppm.to_be_bytes());
        if !self.breaks(Sabotage::FoundWithAnyVoters) {
            digest.add(&(self.settings.voters_max as u64).to_be_bytes());
            digest.add(&self.settings.replace_after.to_be_bytes());
        }
        Founder { address, id, incarnation, name, durable, floor: self.settings.epoch_floor, settings: digest.0 }
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

    pub(super) fn greeting(&self, to: NodeId, plane: Plane) -> Hello {
        Hello {
            group: self.label.clone(),
            name: self.me.name.clone(),
            from: self.me.id,
            to,
            plane,
            address: self.me.address.clone(),
            group_id: self.group_id,
            incarnation: self.me.incarnation,
            boot_id: self.boot_id,
            to_incarnation: None,
            received: 0,
            config_digest: self.is_shared.into(),
            incarnations_digest: None,
        }
    }
}
