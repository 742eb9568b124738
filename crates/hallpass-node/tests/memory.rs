//! What a lock costs in memory, counted by an allocator: the nodes' promise to whoever has a million of them.

#![allow(unsafe_code, reason = "an allocator is unsafe by nature; this one counts and hands on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use hallpass_core::{Mode, NodeId};
use hallpass_node::{Answer, Node, NodeConfig, Outcome, Output, Patience, Ticket};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A power of two, so that tables which double are full.
const LOCKS: usize = 8192;
/// The most that a lock may cost beyond its name.
const BYTES_MAX: usize = 400;

/// Carries out what the nodes ask for until they ask for nothing more; returns the grant there was.
fn run(nodes: &mut [Node<()>]) -> Option<Ticket> {
    let (mut granted, mut quiet) = (None, false);
    while !std::mem::replace(&mut quiet, true) {
        for from in 0..nodes.len() {
            while let Some(output) = nodes[from].poll_output() {
                quiet = false;
                match output {
                    Output::Persist(record) => nodes[from].handle_persisted(record, 0),
                    Output::Answer { outcome: Outcome::Granted(grant), .. } => granted = Some(grant.ticket),
                    Output::Answer { outcome, .. } => panic!("{outcome:?}"),
                    other @ (Output::Lapsed | Output::Control { .. }) => panic!("{other:?} with a fixed list"),
                    Output::Transmit(peer) => {
                        let (me, to) = (nodes[from].id(), peer.0 as usize - 1);
                        let bytes = nodes[from].poll_transmit(peer).to_vec();
                        nodes[from].handle_transmitted(peer, bytes.len());
                        nodes[to].handle_bytes(me, &bytes, 0).unwrap();
                    }
                    _ => {}
                }
            }
        }
    }
    granted
}

fn group() -> Vec<Node<()>> {
    let members = [NodeId(1), NodeId(2), NodeId(3)];
    let mut nodes: Vec<Node<()>> = members.iter().map(|me| Node::new(NodeConfig::new(*me, members)).unwrap()).collect();
    for (one, two) in [(0, 1), (0, 2), (1, 2)] {
        let hello = [nodes[one].hello(members[two]).unwrap(), nodes[two].hello(members[one]).unwrap()];
        nodes[two].handle_hello(&hello[0], 0).unwrap();
        nodes[one].handle_hello(&hello[1], 0).unwrap();
        run(&mut nodes);
    }
    nodes
}

// One test: another one at the same time would be counted, too.
#[test]
fn a_lock_on_three_nodes_costs_at_most_400_bytes_beyond_its_name() {
    let names: Vec<String> = (0..LOCKS).map(|number| format!("invoices/{number:08}")).collect();
    let mut nodes = group();
    let mut tickets = Vec::with_capacity(LOCKS);
    let before = LIVE.load(Ordering::Relaxed);
    for name in &names {
        let asked = nodes[0].handle_acquire(name, Mode::Exclusive, Patience::Wait, 0, || ());
        assert!(matches!(asked, Ok(Answer::Waiting(_))));
        tickets.push(run(&mut nodes).expect("nobody else wants it"));
    }
    assert_eq!((nodes[0].len(), nodes[1].len(), nodes[2].len()), (LOCKS, 0, 0), "who has no part in it keeps nothing");
    let cost = || (LIVE.load(Ordering::Relaxed) - before) / LOCKS;
    let held = cost() - names[0].len();
    assert!(held <= BYTES_MAX, "a lock that is held costs {held} bytes");

    tickets.drain(..).for_each(|ticket| assert!(nodes[0].handle_release(ticket, 0)));
    let cached = cost() - names[0].len();
    assert!(cached <= BYTES_MAX, "a lock whose permissions are kept costs {cached} bytes");

    nodes[0].handle_timeout(u64::MAX);
    assert!(nodes[0].is_empty());
    let left = LIVE.load(Ordering::Relaxed).saturating_sub(before);
    assert!(left < LOCKS, "{left} bytes are left of locks that are forgotten");
}
