//! What a lock costs in memory, counted by an allocator: the nodes' promise to those who have a million of them.

#![allow(unsafe_code, reason = "an allocator is unsafe by nature; this one counts and hands on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use hallpass_core::{Mode, NodeId, View};
use hallpass_node::{Answer, Founding, Node, NodeConfig, Outcome, Output, Patience, Ticket, ViewsConfig};

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
/// The most that a held lock may cost beyond its name, on its holder and its home together: the same in a group of any size.
const BYTES_MAX: usize = 900;

/// No session is shorter than the test.
const TTL: u64 = 24 * 3600 * 1_000_000_000;
/// Later than anything that locks wait for, and long before the end of a session.
const LATE: u64 = 1 << 45;

/// Carries out what the nodes ask for until they ask for nothing more; returns the grant there was.
fn run(nodes: &mut [Node<()>], now: u64) -> Option<Ticket> {
    let (mut granted, mut quiet, mut control) = (None, false, VecDeque::new());
    while !std::mem::replace(&mut quiet, true) {
        for from in 0..nodes.len() {
            while let Some(output) = nodes[from].poll_output() {
                quiet = false;
                let me = nodes[from].id();
                match output {
                    Output::Persist(write) => nodes[from].handle_persisted(write, now),
                    Output::Answer { outcome: Outcome::Granted(grant), .. } => granted = Some(grant.ticket),
                    Output::Answer { outcome, .. } => panic!("{outcome:?}"),
                    Output::Control { to, bytes } => control.push_back((me, to, bytes)),
                    Output::Transmit(peer) => {
                        let to = peer.0 as usize - 1;
                        let bytes = nodes[from].poll_transmit(peer).to_vec();
                        nodes[from].handle_transmitted(peer, bytes.len());
                        nodes[to].handle_bytes(me, &bytes, now).unwrap();
                    }
                    _ => {}
                }
            }
        }
        if let Some((from, to, bytes)) = control.pop_front() {
            quiet = false;
            nodes[to.0 as usize - 1].handle_control(from, &bytes, now).unwrap();
        }
    }
    granted
}

/// Three nodes that have founded a group, and since when it is there.
fn group() -> (Vec<Node<()>>, u64) {
    let members = [NodeId(1), NodeId(2), NodeId(3)];
    let founder = |me: NodeId| {
        let address = format!("host-{me}:1");
        let views = ViewsConfig { founding: Founding::Together(members.len()), ttl: TTL, ..ViewsConfig::new(address) };
        Node::new(NodeConfig { boot_id: me.0.into(), ..NodeConfig::new(me, views) }).unwrap()
    };
    let mut nodes: Vec<Node<()>> = members.into_iter().map(founder).collect();
    run(&mut nodes, 0);
    let pairs = [(0, 1), (0, 2), (1, 2)];
    for (one, two) in pairs {
        let hello = [(one, two), (two, one)].map(|(from, to)| nodes[from].control_hello(Some(members[to])));
        nodes[two].handle_hello(&hello[0], 0).unwrap();
        run(&mut nodes, 0);
        nodes[one].handle_hello(&hello[1], 0).unwrap();
        run(&mut nodes, 0);
    }
    let mut now = 0;
    while !nodes.iter().all(|node| node.is_complete()) {
        now += 1_000_000;
        assert!(now < LATE, "no group is founded");
        for node in 0..nodes.len() {
            nodes[node].handle_timeout(now);
            run(&mut nodes, now);
        }
    }
    for (one, two) in pairs {
        let hello = [nodes[one].hello(members[two]).unwrap(), nodes[two].hello(members[one]).unwrap()];
        nodes[two].handle_hello(&hello[0], now).unwrap();
        nodes[one].handle_hello(&hello[1], now).unwrap();
        run(&mut nodes, now);
    }
    (nodes, now)
}

// One test: another one at the same time would be counted, too.
#[test]
fn a_held_lock_costs_memory_on_its_holder_and_its_home_and_an_idle_one_nowhere() {
    let names: Vec<String> = (0..LOCKS).map(|number| format!("invoices/{number:08}")).collect();
    let (mut nodes, now) = group();
    let view = View::new([1, 2, 3].map(NodeId));
    let mut tickets = Vec::with_capacity(LOCKS);
    let before = LIVE.load(Ordering::Relaxed);
    for name in &names {
        let asked = nodes[0].handle_acquire(name, Mode::Exclusive, Patience::Wait, now, || ());
        let ticket = match asked {
            Ok(Answer::Granted(grant)) => Some(grant.ticket),
            _ => run(&mut nodes, now),
        };
        tickets.push(ticket.expect("nobody else wants it"));
    }
    let at_home = |node: u32| names.iter().filter(|name| view.home_of(name) == NodeId(node)).count();
    let kept = (nodes[0].len(), nodes[1].len(), nodes[2].len());
    assert_eq!(kept, (LOCKS, at_home(2), at_home(3)), "who has no part in it keeps nothing");
    let cost = || (LIVE.load(Ordering::Relaxed) - before) / LOCKS;
    let held = cost() - names[0].len();
    assert!(held <= BYTES_MAX, "a lock that is held costs {held} bytes");

    for ticket in tickets.drain(..) {
        assert!(nodes[0].handle_release(ticket, now));
        run(&mut nodes, now);
    }
    for node in &mut nodes {
        node.handle_timeout(LATE);
        assert!(node.is_empty(), "who used a lock once gives it back");
    }
    run(&mut nodes, LATE);
    let left = LIVE.load(Ordering::Relaxed).saturating_sub(before);
    assert!(left < LOCKS, "{left} bytes are left of locks that are forgotten");
}
