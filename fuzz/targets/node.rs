#![no_main]

use hallpass_core::codec::put_number;
use hallpass_core::{Mode, NodeId};
use hallpass_fuzz::{connected_pair, drain, node_in_phase};
use hallpass_node::Patience;
use hallpass_node::wire::VERSION;
use libfuzzer_sys::fuzz_target;

/// What the steward, another member and a stranger say to a node in any phase: a byte for the sender, the plane and the group, then a length
/// in two bytes and the message's bytes.
fn whole_node(phase: u8, mut bytes: &[u8]) {
    let mut victim = node_in_phase(usize::from(phase));
    let group_id = victim.node.status().group_id.unwrap_or(0);
    while let [how, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (message, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        let from = NodeId(1 + u32::from(how & 3) % 3);
        if how & 4 == 0 {
            let mut whole = vec![VERSION];
            put_number(&mut whole, if how & 8 == 0 { group_id } else { 0 });
            whole.extend_from_slice(message);
            let _ = victim.node.handle_control(from, &whole, victim.now);
        } else {
            let _ = victim.node.handle_bytes(from, message, victim.now);
        }
        victim.drain();
        victim.now += u64::from(how >> 4) * 100_000_000;
        victim.node.handle_timeout(victim.now);
        victim.drain();
    }
}

fuzz_target!(|bytes: &[u8]| {
    // An odd first byte: control messages, and the phase in the other bits.
    if let Some((first, rest)) = bytes.split_first().filter(|(first, _)| **first & 1 == 1) {
        return whole_node(first >> 1, rest);
    }
    let [mut node, _] = connected_pair();
    // The first byte says in which portions the others come.
    let Some((portion, bytes)) = bytes.split_first() else { return };
    for portion in bytes.chunks(1 + usize::from(*portion)) {
        let result = node.handle_bytes(NodeId(2), portion, 0);
        drain(&mut node);
        if result.is_err() {
            node.handle_disconnect(NodeId(2), 0);
            drain(&mut node);
            break;
        }
    }
    // Whatever the other member sent, callers here can still ask, and give up.
    if let Ok(hallpass_node::Answer::Waiting(ticket)) =
        node.handle_acquire("x", Mode::Exclusive, Patience::Wait, 0, || ())
    {
        drain(&mut node);
        assert!(node.handle_cancel(ticket, 0));
    }
    drain(&mut node);
    // A century later. Time comes from this machine's clock, never from another member.
    node.handle_timeout(100 * 31_557_600 * 1_000_000_000);
    drain(&mut node);
});
