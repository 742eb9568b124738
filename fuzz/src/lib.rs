//! Nodes in every phase of their lives, for the fuzz targets and their seeds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hallpass_core::NodeId;
use hallpass_core::codec::Reader;
use hallpass_node::wire::{Hello, Plane};
use hallpass_node::{Class, Founding, Node, NodeConfig, Output, Request, ViewState, ViewsConfig};

/// A lock class for every protocol that a real group can use.
pub const CLASSES: [(&str, &str); 10] = [
    ("ra/", "ricart-agrawala"),
    ("rr/", "ricart-agrawala-ring"),
    ("lamport/", "lamport"),
    ("lf/", "lamport-fifo"),
    ("token/", "token"),
    ("nt/", "naimi-trehel"),
    ("sk/", "suzuki-kasami"),
    ("ry/", "raymond"),
    ("mk/", "maekawa"),
    ("ring/", "token-ring"),
];

const STEWARD: NodeId = NodeId(1);
const MEMBER: NodeId = NodeId(2);
const STRANGER: NodeId = NodeId(3);
const NEWCOMER: NodeId = NodeId(9);
const MS: u64 = 1_000_000;
const TTL: u64 = 5000 * MS;

/// The number of the message that prepares a view.
const PREPARE: u8 = 13;

/// Where a node is in its life when others send it something.
pub const PHASES: usize = 11;

/// A node in one of the [`PHASES`].
pub struct InPhase {
    pub node: Node<()>,
    pub now: u64,
    /// What it writes gets to the disk.
    writes_end: bool,
}

impl InPhase {
    /// Carries out what the node asks for.
    pub fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Persist(write) if self.writes_end => self.node.handle_persisted(write, self.now),
                Output::Transmit(peer) => {
                    let length = self.node.poll_transmit(peer).len();
                    self.node.handle_transmitted(peer, length);
                }
                // The driver may ignore the rest here.
                _ => {}
            }
        }
    }
}

/// A node in a phase. Nodes 1 and 2 are members of its group, as far as it is in one; node 3 is a stranger with the group's key. All are
/// connected with it.
pub fn node_in_phase(phase: usize) -> InPhase {
    let mut net = Net::founded();
    let mut writes_end = true;
    let stranger = Hello { from: STRANGER, name: "3".to_owned(), boot_id: 3, group_id: 0, ..net.hello(STEWARD) };
    let id = match phase % PHASES {
        0 => net.outside(Founding::Never),
        1 => net.outside(Founding::Together(3)),
        2 => STEWARD,
        3 => MEMBER,
        // Its session is over, and it asks to join again.
        4 => {
            net.now += 3 * TTL;
            net.input(MEMBER, |node, now| node.handle_timeout(now));
            MEMBER
        }
        // The same, and its next incarnation is being written.
        5 => {
            writes_end = false;
            net.slow = Some(MEMBER);
            net.now += 3 * TTL;
            net.input(MEMBER, |node, now| node.handle_timeout(now));
            MEMBER
        }
        // The steward leaves, and has nobody yet to hand its office to.
        6 => {
            net.input(STEWARD, |node, now| node.handle_request(Request::Leave, 7, now));
            STEWARD
        }
        7 => {
            net.input(MEMBER, |node, now| node.handle_request(Request::Stop, 7, now));
            net.run_until(|net, _| net.nodes[&MEMBER].poll_timeout().is_none());
            MEMBER
        }
        // It was started again while its predecessor's session may go on.
        8 => {
            let stored = std::mem::take(&mut net.disk);
            let views = ViewsConfig { stored, predecessor_is_dead: false, ..views(MEMBER, Founding::Never) };
            net.start(MEMBER, views);
            net.connect(STEWARD, MEMBER);
            MEMBER
        }
        // It has reported what it holds for the next view.
        9 => {
            let class = Class { prefix: "new/".to_owned(), protocol: "raymond".to_owned(), options: Vec::new() };
            net.input(STEWARD, |node, now| node.handle_request(Request::SetClass(class), 7, now));
            net.run_until(|net, _| net.nodes[&MEMBER].status().view == ViewState::Changing);
            MEMBER
        }
        // A view was prepared with it, and it has no session yet.
        _ => {
            net.outside(Founding::Never);
            net.run_until(|_, (to, message)| *to == NEWCOMER && tag(message) == Some(PREPARE));
            NEWCOMER
        }
    };
    net.input(id, |node, now| node.handle_timeout(now));
    net.input(id, |node, now| node.handle_hello(&stranger, now)).expect("a stranger may ask to join");
    let (now, node) = (net.now, net.nodes.remove(&id).expect("it runs"));
    let says = node.status().waits_for.unwrap_or_default();
    let expected = match phase % PHASES {
        0 => "no member is the steward",
        2 | 3 => "",
        5 => "writes to its data directory",
        6 | 7 => "leaves the group",
        8 => "session of its predecessor",
        1 => "to found the group",
        _ => "waits",
    };
    assert!(says.contains(expected) && says.is_empty() == expected.is_empty(), "{phase}: {says}");
    InPhase { node, now, writes_end }
}

/// What a control message is, by the byte behind the version and the group's id.
pub fn tag(message: &[u8]) -> Option<u8> {
    let mut reader = Reader::new(message.get(1..)?);
    reader.number().ok()?;
    reader.byte().ok()
}

fn views(id: NodeId, founding: Founding) -> ViewsConfig {
    ViewsConfig { founding, durable: true, ttl: TTL, ..ViewsConfig::new(format!("host-{id}:1")) }
}

/// Connected nodes, and what they have told each other that nobody has heard yet.
pub struct Net {
    nodes: BTreeMap<NodeId, Node<()>>,
    connected: BTreeSet<(NodeId, NodeId)>,
    messages: VecDeque<(NodeId, NodeId, Vec<u8>)>,
    /// All control messages that arrived: from whom, to whom.
    pub heard: Vec<(NodeId, NodeId, Vec<u8>)>,
    now: u64,
    /// Its writes never end.
    slow: Option<NodeId>,
    /// What the member has written.
    disk: BTreeMap<u64, Vec<u8>>,
}

impl Net {
    /// Two nodes that have founded a group and are connected for locks.
    pub fn founded() -> Self {
        let (nodes, connected) = (BTreeMap::new(), BTreeSet::new());
        let (messages, heard, disk) = (VecDeque::new(), Vec::new(), BTreeMap::new());
        let mut net = Self { nodes, connected, messages, heard, now: 0, slow: None, disk };
        for id in [STEWARD, MEMBER] {
            net.start(id, views(id, Founding::Together(2)));
        }
        net.connect(STEWARD, MEMBER);
        net.run_until(|net, _| net.nodes.values().all(Node::is_complete) && net.connected.len() == 1);
        net
    }

    fn start(&mut self, id: NodeId, views: ViewsConfig) {
        let class = |(prefix, protocol): (&str, &str)| Class {
            prefix: prefix.to_owned(),
            protocol: protocol.to_owned(),
            options: Vec::new(),
        };
        let mut config = NodeConfig { boot_id: id.0.into(), ..NodeConfig::new(id, views) };
        if id != NEWCOMER {
            config.classes = CLASSES.map(class).to_vec();
        }
        self.connected.retain(|(one, other)| ![one, other].contains(&&id));
        self.nodes.insert(id, Node::new(config).expect("the classes exist"));
        self.input(id, |_, _| ());
    }

    /// Another node, which was given the addresses of both members.
    fn outside(&mut self, founding: Founding) -> NodeId {
        self.start(NEWCOMER, views(NEWCOMER, founding));
        for id in [STEWARD, MEMBER] {
            let hello = self.hello(id);
            self.input(NEWCOMER, |node, _| node.handle_seed(&hello));
            self.connect(id, NEWCOMER);
        }
        NEWCOMER
    }

    fn hello(&self, id: NodeId) -> Hello {
        self.nodes[&id].control_hello(None)
    }

    /// They greet each other on the control plane.
    fn connect(&mut self, one: NodeId, other: NodeId) {
        for (to, hello) in [(other, self.hello(one)), (one, self.hello(other))] {
            self.input(to, |node, now| node.handle_hello(&hello, now)).expect("the same group");
        }
    }

    /// Those that are to be connected for locks are.
    fn connect_locks(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for (one, other) in ids.iter().flat_map(|one| ids.iter().map(move |other| (*one, *other))) {
            if one >= other || self.connected.contains(&(one, other)) {
                continue;
            }
            let (there, back) = (self.nodes[&one].hello(other), self.nodes[&other].hello(one));
            let (Some(there), Some(back)) = (there, back) else { continue };
            self.connected.insert((one, other));
            for (to, hello) in [(other, there), (one, back)] {
                debug_assert!(hello.plane == Plane::Locks);
                let _ = self.input(to, |node, now| node.handle_hello(&hello, now));
            }
        }
    }

    fn input<T>(&mut self, id: NodeId, input: impl FnOnce(&mut Node<()>, u64) -> T) -> T {
        let node = self.nodes.get_mut(&id).expect("it runs");
        let result = input(node, self.now);
        while let Some(output) = node.poll_output() {
            match output {
                Output::Persist(_) if self.slow == Some(id) => {}
                Output::Persist(write) => {
                    if id == MEMBER {
                        self.disk.retain(|key, _| !write.remove.contains(key));
                        self.disk.extend(write.put.clone());
                    }
                    node.handle_persisted(write, self.now);
                }
                Output::Control { to, bytes } => self.messages.push_back((id, to, bytes)),
                Output::Transmit(peer) => {
                    let length = node.poll_transmit(peer).len();
                    node.handle_transmitted(peer, length);
                }
                _ => {}
            }
        }
        result
    }

    /// Time passes, and messages arrive, until this is so after one of them.
    fn run_until(&mut self, is_so: impl Fn(&Self, &(NodeId, Vec<u8>)) -> bool) {
        for _ in 0..60_000 {
            self.now += MS;
            self.connect_locks();
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.input(id, |node, now| node.handle_timeout(now));
            }
            while let Some((from, to, bytes)) = self.messages.pop_front() {
                if self.nodes.contains_key(&to) {
                    self.input(to, |node, now| node.handle_control(from, &bytes, now)).expect("an honest node");
                    self.heard.push((from, to, bytes.clone()));
                }
                if is_so(self, &(to, bytes)) {
                    return;
                }
            }
        }
        panic!("it never happens");
    }
}

/// Two nodes that have founded a group and are connected for locks.
pub fn connected_pair() -> [Node<()>; 2] {
    let mut net = Net::founded();
    [STEWARD, MEMBER].map(|id| net.nodes.remove(&id).expect("it runs"))
}

/// Carries out what a node asks for; returns the bytes for its peer.
pub fn drain(node: &mut Node<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(output) = node.poll_output() {
        match output {
            Output::Persist(write) => node.handle_persisted(write, 0),
            Output::Transmit(peer) => {
                bytes.extend_from_slice(node.poll_transmit(peer));
                let length = node.poll_transmit(peer).len();
                node.handle_transmitted(peer, length);
            }
            // The driver may ignore the rest here.
            _ => {}
        }
    }
    bytes
}
