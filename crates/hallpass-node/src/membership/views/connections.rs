//! Connections of both planes, and the links of those that carry locks.

use std::collections::BTreeSet;

use hallpass_core::{NodeId, Ticks};

use super::{Action, Views};
use crate::faults::Conduct;
use crate::links::{Links, Process};
use crate::membership::HelloError;
use crate::node::Checked;
use crate::wire::{Hello, Plane};

impl<F: Conduct> Views<F> {
    pub(crate) fn hello(&self, peer: NodeId, links: &Links) -> Option<Hello> {
        let link = &links[links.position(peer)?];
        let mut hello = self.base.greeting(peer, Plane::Locks);
        hello.to_incarnation = link.process.map(|process| process.incarnation);
        hello.received = link.received();
        Some(hello)
    }

    pub(crate) fn control_hello(&self, peer: Option<NodeId>) -> Hello {
        self.base.greeting(peer.unwrap_or(NodeId::SERVER), Plane::Control)
    }

    pub(crate) fn check_hello(&self, hello: &Hello, links: &Links) -> Result<(), HelloError> {
        if hello.group != self.base.label {
            return Err(HelloError::Group(hello.group.clone()));
        }
        if hello.from == self.base.me.id {
            return Err(HelloError::Itself);
        }
        if hello.from == NodeId::SERVER || (hello.to != self.base.me.id && hello.to != NodeId::SERVER) {
            return Err(HelloError::Elsewhere(hello.to));
        }
        if hello.group_id != 0 && self.base.group_id != 0 && hello.group_id != self.base.group_id {
            return Err(HelloError::OtherGroup);
        }
        self.check_name(hello)?;
        if hello.plane == Plane::Control {
            return Ok(());
        }
        let link = links.position(hello.from).ok_or(HelloError::Unknown)?;
        match links[link].process {
            Some(known) if known.incarnation > hello.incarnation => Err(HelloError::Outdated),
            _ => Ok(()),
        }
    }

    /// A connection that carries locks. Links are between two incarnations: with another one they begin again.
    pub(crate) fn accept(&mut self, hello: &Hello, links: &mut Links) -> Result<(), HelloError> {
        let Some(index) = links.position(hello.from) else { return Err(HelloError::Unknown) };
        let link = &mut links[index];
        link.meet(Process { incarnation: hello.incarnation, boot_id: 0 });
        let knows_me = hello.to_incarnation == Some(self.base.me.incarnation);
        link.connect(if knows_me { hello.received } else { 0 }).map_err(HelloError::Link)?;
        // A node that joins says soon which members it has reached.
        if self.member.install().open().is_none() {
            self.repeat_soon();
        }
        Ok(())
    }

    pub(crate) fn on_control_connected(&mut self, hello: &Hello, now: Checked) {
        self.base.now = now.ticks();
        self.base.connected.insert(hello.from, hello.name.clone());
        self.outside.founders.iter_mut().for_each(|founders| founders.on_connected(hello.from));
        self.find_own_group(hello);
        self.repeat_soon();
        self.announce_soon();
        if !self.member.session().is_valid(self.base.now) {
            self.member.renew_at = 0;
        }
        self.base.actions.push_back(Action::View);
        self.run_until_idle();
    }

    pub(crate) fn on_control_disconnected(&mut self, peer: NodeId) {
        self.base.connected.remove(&peer);
        self.base.actions.push_back(Action::View);
    }

    /// Makes the links fit the peers, and marks those of the view. Returns the peers with whom no connection stands any more: their
    /// links are gone, or begin again with an incarnation that this node has not been connected with.
    pub(crate) fn update_links(&self, links: &mut Links, now: Ticks) -> Vec<NodeId> {
        let peers: BTreeSet<NodeId> = self.peers().into_keys().collect();
        let mut gone = links.keep(&peers, now);
        let view = self.member.install().group().filter(|_| self.member.install().open().is_some());
        for index in 0..links.len() {
            let link = &mut links[index];
            let member = view.and_then(|group| group.members.get(&link.peer));
            (link.in_view, link.in_view_as) = (member.is_some(), member.map(|member| member.incarnation));
            link.joins = member.is_none() && self.joins(link.peer);
            if let Some(member) = member
                && link.process.is_none_or(|process| process.incarnation < member.incarnation)
            {
                if link.connected {
                    gone.push(link.peer);
                }
                link.meet(Process { incarnation: member.incarnation, boot_id: 0 });
            }
        }
        gone
    }
}
