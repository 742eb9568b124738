mod branches;
mod cancel;
mod fast_path;
mod fences;
mod printed;
mod readers;
mod walk;
mod wire;

use super::*;
use crate::protocol::testing::{NOTHING, Net, initial, parse};
use crate::{InitialHolders, Message, View};
use Mode::{Exclusive, Shared};

type Group = Net<CarvalhoRoucairol>;

/// What a node has from another: `X`, `S` or nothing.
fn permission(group: &Group, node: u32, from: u32) -> &'static str {
    let protocol = &group.nodes[&node];
    let position = protocol.position(NodeId(from)).unwrap();
    match (protocol.exclusive.contains(position), protocol.shared.contains(position)) {
        (true, false) => "X",
        (false, true) => "S",
        (false, false) => "",
        (true, true) => panic!("{node} has both of {from}"),
    }
}
