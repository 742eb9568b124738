//! Who may connect: greetings, and which process is behind each id.

use std::collections::BTreeMap;

use hallpass_core::{NodeId, Ticks};
use hallpass_node::wire::{Hello, Plane};
use hallpass_node::{Contact, HelloError, Incarnation};

use super::{Driver, State};
use crate::text::printable;

impl Driver {
    /// Returns the greeting for a peer. The id of a peer that is dialed by its address alone is not known.
    pub(crate) fn hello(&self, plane: Plane, peer: Option<NodeId>) -> Option<Hello> {
        let state = self.state();
        match plane {
            Plane::Locks => state.node.hello(peer?),
            Plane::Control => Some(state.node.control_hello(peer)),
        }
    }

    /// Checks whether the sender of a greeting may connect.
    pub(crate) fn check_hello(&self, hello: &Hello) -> Result<(), String> {
        let state = self.state();
        let checked = state.node.check_hello(hello);
        let is_mine = hello.from == self.id && hello.boot_id != self.boot_id;
        let is_twice = is_mine || state.is_twice(hello);
        drop(state);
        if is_twice {
            return Err(self.explain_twice(hello));
        }
        checked.map_err(|error| self.explain(&error, hello))
    }

    /// Explains that two nodes have one id: ids are drawn at random, and a directory can be copied.
    fn explain_twice(&self, hello: &Hello) -> String {
        format!(
            "{} has the id {} of another node that runs: start it again if it has no data directory; if it has, the directory was copied: \
             give it an empty one",
            self.describe(hello),
            hello.from
        )
    }

    /// Handles a refused greeting whose sender is who it says, as far as that can be proven here. If the sender is in another group of the
    /// same name, this node may have founded its own group by mistake.
    pub(crate) fn look_at_other_group(&self, hello: &Hello) {
        let before = self.state().node.status().waits_for;
        self.input(|state| state.node.handle_other_group(hello, state.now));
        let why = self.state().node.status().waits_for;
        if let Some(why) = why.filter(|why| before.as_ref() != Some(why)) {
            tracing::error!(
                why = printable(&why),
                "this node is in another group than others of its name, and grants nothing more"
            );
        }
    }

    pub(super) fn explain(&self, error: &HelloError, hello: &Hello) -> String {
        // The peer's words are in it.
        printable(&error.explain(&self.me, &self.describe(hello)))
    }

    /// Describes a peer by the name that it gives itself and the address by which it is known here.
    pub(crate) fn describe(&self, hello: &Hello) -> String {
        let name = printable(&hello.name);
        let address = self.peer(hello.from).map(|peer| peer.address.clone());
        match address.or_else(|| Some(printable(&hello.address)).filter(|address| !address.is_empty())) {
            Some(address) => format!("'{name}' ({address})"),
            None => format!("'{name}'"),
        }
    }

    /// True if this node has dialed itself.
    pub(crate) fn is_self(&self, hello: &Hello) -> bool {
        hello.from == self.id && hello.boot_id == self.boot_id
    }
}

/// Which process every peer was that has greeted.
#[derive(Default)]
pub(super) struct Processes(BTreeMap<NodeId, Process>);

/// A process of a peer, by its greeting.
struct Process {
    incarnation: Incarnation,
    boot_id: u64,
    /// When its last connection was made or ended.
    seen: Ticks,
}

impl State {
    /// Forgets processes that are neither peers nor connected: nothing must tell them from others any more.
    pub(super) fn forget_processes(&mut self, contacts: &[Contact]) {
        let Self { processes, controls, .. } = self;
        processes.0.retain(|id, _| controls.contains_key(id) || contacts.iter().any(|contact| contact.id == *id));
    }

    /// Notes the process that a connection was made with.
    pub(super) fn meet_process(&mut self, hello: &Hello) {
        let process = Process { incarnation: hello.incarnation, boot_id: hello.boot_id, seen: self.now };
        self.processes.0.insert(hello.from, process);
    }

    /// Notes that a connection with a peer has ended.
    pub(super) fn see_process(&mut self, peer: NodeId) {
        let now = self.now;
        self.processes.0.entry(peer).and_modify(|process| process.seen = now);
    }

    /// True if another process uses the id of this greeting's sender. A new start has a higher incarnation, or a new id where no directory
    /// counts starts. A process that was not seen for two sessions holds nothing any more. It may have crashed before the incarnation of its
    /// greeting was on its disk.
    fn is_twice(&self, hello: &Hello) -> bool {
        let id = hello.from;
        let Some(process) = self.processes.0.get(&id) else { return false };
        let is_there = self.controls.contains_key(&id)
            || self.lock_connections.contains(id)
            || self.now.saturating_sub(process.seen) < 2 * self.node.status().ttl;
        process.incarnation == hello.incarnation && process.boot_id != hello.boot_id && is_there
    }
}
