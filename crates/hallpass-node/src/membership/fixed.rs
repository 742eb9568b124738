//! A fixed list of members. A node takes part once it has been connected with every other member since it was started,
//! since only then it knows the view: its epoch is the highest incarnation among the members.

use std::fmt;
use std::num::NonZeroU64;

use hallpass_core::NodeId;

use crate::config::{Digest, NodeConfig};
use crate::links::{LinkError, Links, Process, Sender};
use crate::output::Record;
use crate::wire::{Hello, Plane};

#[derive(Debug)]
pub(crate) struct FixedList {
    me: NodeId,
    process: Process,
    group: String,
    name: String,
    config_digest: u64,
    view: ViewState,
}

/// How far this node is from taking part.
#[derive(Clone, Copy, Debug)]
enum ViewState {
    /// Some members' incarnations are not known.
    Incomplete,
    /// All are known; the epoch is being written to disk.
    Persisting(Complete),
    /// The node takes part.
    Installed(Complete),
}

/// What is known once every member's incarnation is.
#[derive(Clone, Copy, Debug)]
struct Complete {
    epoch: u64,
    incarnations_digest: NonZeroU64,
}

impl FixedList {
    pub(crate) fn new(config: &NodeConfig) -> Self {
        Self {
            me: config.me,
            process: Process { incarnation: config.incarnation, boot_id: config.boot_id },
            group: config.group.clone(),
            name: config.name.clone(),
            config_digest: config.digest(),
            view: ViewState::Incomplete,
        }
    }

    pub(crate) fn process(&self) -> Process {
        self.process
    }

    /// The view's number, once this node takes part.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.installed().map(|complete| complete.epoch)
    }

    /// The sender of this node's frames in a view.
    pub(crate) fn sender(&self, epoch: u64) -> Sender {
        Sender { me: self.me, incarnation: self.process.incarnation, epoch }
    }

    pub(crate) fn hello(&self, peer: NodeId, links: &Links) -> Option<Hello> {
        let link = &links[links.position(peer)?];
        Some(Hello {
            group: self.group.clone(),
            name: self.name.clone(),
            from: self.me,
            to: peer,
            plane: Plane::Locks,
            address: String::new(),
            group_id: 0,
            incarnation: self.process.incarnation,
            boot_id: self.process.boot_id,
            to_incarnation: link.process.map(|process| process.incarnation),
            received: link.received(),
            config_digest: self.config_digest,
            incarnations_digest: self.installed().map(|complete| complete.incarnations_digest),
        })
    }

    /// Whether a greeting is acceptable: the position of its sender's link.
    pub(crate) fn check(&self, hello: &Hello, links: &Links) -> Result<usize, HelloError> {
        if hello.group != self.group {
            return Err(HelloError::Group(hello.group.clone()));
        }
        if hello.to != self.me {
            return Err(HelloError::Member(hello.to));
        }
        let index = links.position(hello.from).ok_or(HelloError::Member(hello.from))?;
        if hello.config_digest != self.config_digest {
            return Err(HelloError::Config);
        }
        if links[index].process.is_some_and(|known| known != process_of(hello)) {
            return Err(HelloError::Restarted);
        }
        if hello.to_incarnation.is_some_and(|known| known != self.process.incarnation) {
            return Err(HelloError::RestartedHere);
        }
        // Two that know different incarnations of a third would wait for each other's messages for ever.
        if let (Some(theirs), Some(complete)) = (hello.incarnations_digest, self.installed())
            && theirs != complete.incarnations_digest
        {
            return Err(HelloError::RestartedBetween);
        }
        Ok(index)
    }

    /// Takes a greeting; on success the connection stands.
    pub(crate) fn accept(&self, hello: &Hello, links: &mut Links) -> Result<(), HelloError> {
        let index = self.check(hello, links)?;
        links[index].connect(hello.received).map_err(HelloError::Link)?;
        links[index].process = Some(process_of(hello));
        Ok(())
    }

    /// What to do next towards a view, if every member's incarnation has become known.
    pub(crate) fn advance(&mut self, links: &Links) -> Option<Advance> {
        let ViewState::Incomplete = self.view else { return None };
        let complete = self.complete(links)?;
        if complete.epoch > self.process.incarnation.get().into() {
            self.view = ViewState::Persisting(complete);
            return Some(Advance::Persist(Record::Epoch(complete.epoch)));
        }
        // The incarnation is on disk already, and the next one is above it.
        self.view = ViewState::Installed(complete);
        Some(Advance::Install { epoch: complete.epoch })
    }

    /// A record is on disk.
    pub(crate) fn persisted(&mut self, record: &Record) -> Option<Advance> {
        let Record::Epoch(epoch) = *record else { return None };
        match self.view {
            ViewState::Persisting(complete) if complete.epoch == epoch => {
                self.view = ViewState::Installed(complete);
                Some(Advance::Install { epoch })
            }
            _ => None,
        }
    }

    fn installed(&self) -> Option<Complete> {
        if let ViewState::Installed(complete) = self.view { Some(complete) } else { None }
    }

    fn complete(&self, links: &Links) -> Option<Complete> {
        let peers = links.iter().map(|link| Some((link.peer, link.process?)));
        let mut processes: Vec<(NodeId, Process)> = peers.collect::<Option<_>>()?;
        processes.push((self.me, self.process));
        processes.sort_unstable();
        let mut digest = Digest::default();
        for (node, Process { incarnation, boot_id }) in &processes {
            digest.add(&[&node.0.to_be_bytes()[..], &incarnation.get().to_be_bytes(), &boot_id.to_be_bytes()].concat());
        }
        let epoch = processes.iter().map(|(_, process)| process.incarnation.get()).max()?;
        let incarnations_digest = NonZeroU64::new(digest.0).unwrap_or(NonZeroU64::MIN);
        Some(Complete { epoch: epoch.into(), incarnations_digest })
    }
}

/// The next step towards a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    Persist(Record),
    Install { epoch: u64 },
}

fn process_of(hello: &Hello) -> Process {
    Process { incarnation: hello.incarnation, boot_id: hello.boot_id }
}

/// Why a peer's greeting is rejected. The connection is to be closed; nothing else has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HelloError {
    /// It is of another group.
    Group(String),
    /// It is not a member, or takes this node for another.
    Member(NodeId),
    /// Its list of members or lock classes is different.
    Config,
    /// It was restarted: what it knew of the locks is lost.
    Restarted,
    /// This node was restarted since the peer was connected with it.
    RestartedHere,
    /// A third member was restarted between its connections with the two.
    RestartedBetween,
    /// It acknowledges frames that were never sent.
    Link(LinkError),
    /// It is this node.
    Itself,
    /// It is in another group of the same name.
    OtherGroup,
    /// A later start of it is known.
    Outdated,
    /// It is no member of a group whose members come and go: not yet, or not any more.
    Unknown,
    /// It looks for this node where another one was before.
    Elsewhere(NodeId),
}

impl HelloError {
    /// The same for people, in words that are true for both sides, since both read them. `here` is who rejects, `peer` who
    /// is rejected.
    pub fn explain(&self, here: &str, peer: &str) -> String {
        match self {
            Self::Group(group) => {
                format!("{peer} is of group '{group}', {here} is not: give all members of a group the same group name")
            }
            Self::Member(node) => format!(
                "{peer} takes itself or {here} for member {node}: give all members the same list of members, written in \
                 the same way"
            ),
            Self::Config => format!(
                "{peer} and {here} have different lists of members or lock classes: give all members the same, written \
                 in the same way"
            ),
            Self::Restarted => format!(
                "{peer} was restarted and has forgotten the locks, {here} was not: restart {here}, and all other members \
                 that were not restarted either"
            ),
            Self::RestartedHere => format!(
                "{here} was restarted and has forgotten the locks, {peer} was not: restart {peer}, and all other members \
                 that were not restarted either"
            ),
            Self::RestartedBetween => {
                format!("{peer} and {here} know different starts of some member: restart all members of the group")
            }
            Self::Itself => format!("{here} has called itself: an address in its list of peers is its own"),
            Self::OtherGroup => format!(
                "{peer} and {here} are in two groups of the same name: give one of them another name, or one of the nodes an \
                 empty data directory"
            ),
            Self::Outdated => {
                format!("a later start of {peer} is known to {here}: an old process of it is still there")
            }
            Self::Unknown => {
                format!("{here} does not know {peer} as a member, not yet or not any more: it joins by itself")
            }
            Self::Elsewhere(node) => {
                format!("{peer} looks for node {node} at the address of {here}: it hears of the change from the group")
            }
            Self::Link(error) => {
                format!("{peer} does not keep to the protocol: {error}; restart all members of the group")
            }
        }
    }
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explain("this node", "the peer"))
    }
}

impl std::error::Error for HelloError {}
