//! How a group comes to be: nodes that are in none find each other, and agree on who they are.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_core::NodeId;

use super::control::Founder;
use super::group::{Group, MEMBERS_MAX};
use crate::config::{Class, Digest};

/// A node that is in no group, and what it knows of others that are in none.
///
/// A group is founded when as many nodes as are expected have said, each on its own, that it knows exactly the same ones. A
/// node that has founded a group never says anything else again; so no other set of which it is a part can be agreed on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Founders {
    me: NodeId,
    expect: usize,
    /// By address: a node that was started again without its directory takes the place of its predecessor.
    known: BTreeMap<String, Founder>,
    /// What each of them has said last.
    said: BTreeMap<NodeId, Vec<Founder>>,
    /// Something was learned since this node has told all others what it knows.
    is_news: bool,
    /// Those who are connected since.
    untold: BTreeSet<NodeId>,
    /// How often it was time to tell.
    rounds: u32,
}

impl Founders {
    pub fn new(me: Founder, expect: usize) -> Self {
        let id = me.id;
        Self {
            me: id,
            expect,
            known: BTreeMap::from([(me.address.clone(), me)]),
            said: BTreeMap::new(),
            is_news: true,
            untold: BTreeSet::new(),
            rounds: 0,
        }
    }

    /// With these it has founded a group that it was never in. As long as one of the voters may have stored that, it founds no other group
    /// with different nodes.
    pub fn that_has_founded_with(mut self, before: Vec<Founder>) -> Self {
        for founder in before.into_iter().filter(|founder| founder.id != self.me) {
            self.known.entry(founder.address.clone()).or_insert(founder);
        }
        self
    }

    pub fn expect(&self) -> usize {
        self.expect
    }

    /// All that are known, by address.
    pub fn known(&self) -> Vec<Founder> {
        self.known.values().cloned().collect()
    }

    /// Another one is connected.
    pub fn on_connected(&mut self, id: NodeId) {
        self.untold.insert(id);
    }

    /// Who is to be told what this node knows, of those that are connected: all, if there is something new. Among many founders
    /// those who have said the same are not told again each time, or all would be busy with nothing else.
    pub fn to_tell(&mut self, connected: impl Iterator<Item = NodeId>) -> Vec<NodeId> {
        let (is_news, untold) = (std::mem::take(&mut self.is_news), std::mem::take(&mut self.untold));
        let known = self.known();
        let tells_all = is_news || self.rounds.is_multiple_of((known.len() as u32 / 8).max(1));
        self.rounds = self.rounds.wrapping_add(1);
        let lacks = |id: &NodeId| tells_all || untold.contains(id) || self.said.get(id) != Some(&known);
        connected.filter(lacks).collect()
    }

    /// What another one says; true if something new was learned.
    pub fn on_said(&mut self, from: NodeId, list: Vec<Founder>) -> bool {
        // No group has more members, and none is founded with them.
        if list.len() > MEMBERS_MAX || self.known.len() > MEMBERS_MAX {
            return false;
        }
        let mut changed = false;
        // Only of itself it knows best; of others it may know less than they say themselves.
        for founder in &list {
            let replaces = |known: &Founder| {
                founder.id == from && *known != *founder && known.id != self.me
                    || founder.id == known.id && founder.incarnation > known.incarnation
            };
            let known = self.known.get(&founder.address);
            if founder.id != self.me && known.is_none_or(replaces) {
                changed = true;
                self.known.insert(founder.address.clone(), founder.clone());
            }
        }
        // A node that has moved to another address is one node.
        let ids = |known: &BTreeMap<String, Founder>, id| known.values().filter(|founder| founder.id == id).count();
        if ids(&self.known, from) > 1 {
            let own = list.iter().find(|founder| founder.id == from).map(|founder| founder.address.clone());
            self.known.retain(|address, founder| founder.id != from || Some(address) == own.as_ref());
            changed = true;
        }
        // What those have said that are no more does not count again.
        let is_known = |id: &NodeId| self.known.values().any(|founder| founder.id == *id);
        self.said.retain(|id, _| *id == from || is_known(id));
        self.said.insert(from, list);
        self.is_news |= changed;
        changed
    }

    /// All of them, if they agree.
    pub fn agreed(&self) -> Option<Vec<Founder>> {
        let all = self.known();
        let agrees = |founder: &Founder| founder.id == self.me || self.said.get(&founder.id) == Some(&all);
        (all.len() == self.expect && self.other_settings().is_none() && all.iter().all(agrees)).then_some(all)
    }

    /// One whose settings are different.
    pub fn other_settings(&self) -> Option<&Founder> {
        let own = self.known.values().find(|founder| founder.id == self.me)?.settings;
        self.known.values().find(|founder| founder.settings != own)
    }
}

/// Every founder makes the same group from the same list.
pub fn found(founders: &[Founder], classes: &[Class], ttl: u64, drift_ppm: u32) -> Group {
    let mut digest = Digest::default();
    for founder in founders {
        digest.add(&founder.id.0.to_be_bytes());
        digest.add(&founder.incarnation.get().to_be_bytes());
        digest.add(&founder.floor.to_be_bytes());
    }
    Group {
        id: digest.0.max(1),
        epoch: 1 + founders.iter().map(|founder| founder.floor).max().unwrap_or(0),
        term: 1,
        members: founders.iter().map(|founder| (founder.id, founder.member())).collect(),
        absent: BTreeMap::new(),
        banned: Default::default(),
        classes: classes.to_vec(),
        ttl,
        drift_ppm,
        durable: founders.iter().all(|founder| founder.durable),
    }
}

/// How many of the members vote.
pub fn voters(members: usize, voters_max: usize) -> usize {
    match members.min(voters_max) {
        0..=2 => 1,
        3..=4 => 3,
        _ => 5,
    }
}
