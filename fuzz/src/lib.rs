//! Two connected nodes, for the fuzz targets and their seeds.

use std::collections::VecDeque;

use hallpass_core::NodeId;
use hallpass_node::wire::Hello;
use hallpass_node::{Class, Founding, Node, NodeConfig, Output, Request, ViewsConfig};

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

/// Where a node is in its life when others send it something.
pub const PHASES: usize = 7;

/// A node in one of the [`PHASES`], and its time. Nodes 1 and 2 are members of its group, as far as it is in one; node 3 is a stranger with the
/// group's key. All are connected with it.
pub fn node_in_phase(phase: usize) -> (Node<()>, u64) {
    const HOUR: u64 = 3600 * 1_000_000_000;
    let [steward, member] = connected_pair();
    let greeting = steward.control_hello(None);
    let stranger = Hello { from: NodeId(3), name: "3".to_owned(), boot_id: 3, group_id: 0, ..greeting.clone() };
    let outside = |founding| {
        let views = ViewsConfig { founding, ..ViewsConfig::new("host-9:1") };
        let mut node =
            Node::new(NodeConfig { boot_id: 9, ..NodeConfig::new(NodeId(9), views) }).expect("it has no classes");
        drain(&mut node);
        for hello in [greeting.clone(), member.control_hello(None)] {
            node.handle_seed(&hello);
            node.handle_hello(&hello, 0).expect("the same group");
            drain(&mut node);
        }
        node
    };
    let (mut node, now) = match phase % PHASES {
        0 => (outside(Founding::Never), 0),
        1 => (outside(Founding::Together(3)), 0),
        2 => (steward, HOUR / 36_000),
        3 => (member, HOUR / 36_000),
        // Its session is over.
        4 => (member, HOUR),
        5 => {
            let mut node = steward;
            node.handle_request(Request::Leave, 7, HOUR / 36_000);
            (node, HOUR / 36_000)
        }
        _ => {
            let mut node = member;
            node.handle_request(Request::Stop, 7, HOUR / 36_000);
            (node, HOUR / 36_000)
        }
    };
    drain(&mut node);
    node.handle_timeout(now);
    drain(&mut node);
    node.handle_hello(&stranger, now).expect("a stranger may ask to join");
    drain(&mut node);
    (node, now)
}

/// Two nodes that have founded a group and are connected for locks.
pub fn connected_pair() -> [Node<()>; 2] {
    let members = [NodeId(1), NodeId(2)];
    let mut nodes = members.map(|me| {
        let views = ViewsConfig { founding: Founding::Together(2), ..ViewsConfig::new(format!("host-{me}:1")) };
        let mut config = NodeConfig { boot_id: me.0.into(), ..NodeConfig::new(me, views) };
        config.classes = CLASSES
            .map(|(prefix, protocol)| Class {
                prefix: prefix.to_owned(),
                protocol: protocol.to_owned(),
                options: Vec::new(),
            })
            .to_vec();
        Node::new(config).expect("the classes exist")
    });
    let mut control = VecDeque::new();
    nodes.iter_mut().for_each(|node| drop(take_outputs(node, &mut control)));
    let hello = [nodes[0].control_hello(Some(members[1])), nodes[1].control_hello(Some(members[0]))];
    greet(&mut nodes, &hello, 0, &mut control);
    let mut now = 0;
    while !nodes.iter().all(Node::is_complete) {
        now += 1_000_000;
        for node in &mut nodes {
            node.handle_timeout(now);
            take_outputs(node, &mut control);
        }
        while let Some((to, bytes)) = control.pop_front() {
            let (from, node) = if to == members[0] { (members[1], &mut nodes[0]) } else { (members[0], &mut nodes[1]) };
            node.handle_control(from, &bytes, now).expect("an honest member");
            take_outputs(node, &mut control);
        }
    }
    let hello = [nodes[0].hello(members[1]), nodes[1].hello(members[0])].map(|hello| hello.expect("a member"));
    greet(&mut nodes, &hello, now, &mut control);
    nodes
}

fn greet(nodes: &mut [Node<()>; 2], hello: &[Hello; 2], now: u64, control: &mut VecDeque<(NodeId, Vec<u8>)>) {
    for (to, from) in [(1, 0), (0, 1)] {
        nodes[to].handle_hello(&hello[from], now).expect("the same group");
        take_outputs(&mut nodes[to], control);
    }
}

/// Carries out what a node asks for; returns the bytes for its peer.
pub fn drain(node: &mut Node<()>) -> Vec<u8> {
    take_outputs(node, &mut VecDeque::new())
}

fn take_outputs(node: &mut Node<()>, control: &mut VecDeque<(NodeId, Vec<u8>)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(output) = node.poll_output() {
        match output {
            Output::Persist(write) => node.handle_persisted(write, 0),
            Output::Control { to, bytes } => control.push_back((to, bytes)),
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
