//! Two connected nodes, for the fuzz targets and their seeds.

use hallpass_core::NodeId;
use hallpass_node::{Class, Node, NodeConfig, Output};

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

/// Two nodes that have greeted each other.
pub fn connected_pair() -> [Node<()>; 2] {
    let members = [NodeId(1), NodeId(2)];
    let mut nodes = members.map(|me| {
        let mut config = NodeConfig::new(me, members);
        config.classes = CLASSES
            .map(|(prefix, protocol)| Class {
                prefix: prefix.to_owned(),
                protocol: protocol.to_owned(),
                options: Vec::new(),
            })
            .to_vec();
        Node::new(config).expect("the classes exist")
    });
    let hello = [nodes[0].hello(members[1]), nodes[1].hello(members[0])].map(|hello| hello.expect("a member"));
    nodes[1].handle_hello(&hello[0], 0).expect("the same group");
    nodes[0].handle_hello(&hello[1], 0).expect("the same group");
    nodes.iter_mut().for_each(|node| drop(drain(node)));
    nodes
}

/// Carries out what a node asks for; returns the bytes for its peer.
pub fn drain(node: &mut Node<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(output) = node.poll_output() {
        match output {
            Output::Persist(record) => node.handle_persisted(record, 0),
            Output::Answer { .. } => {}
            Output::Transmit(peer) => {
                bytes.extend_from_slice(node.poll_transmit(peer));
                let length = node.poll_transmit(peer).len();
                node.handle_transmitted(peer, length);
            }
            // What else there is concerns views, or tells the driver something that it may ignore here.
            _ => {}
        }
    }
    bytes
}
