#![no_main]

use hallpass_core::{Mode, NodeId};
use hallpass_fuzz::{connected_pair, drain};
use hallpass_node::Patience;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
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
