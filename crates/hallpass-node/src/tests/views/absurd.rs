//! Numbers that no honest node sends, in every phase of the node that receives them: none of them may end its process.

use hallpass_core::Fence;
use hallpass_core::codec::Reader;

use super::*;
use crate::config::Class;
use crate::locks::{Held, HeldLock};
use crate::membership::testing::{Contacts, Control, Envelope, Founder, Group, Member, TTL_MAX};

/// The node that receives them.
const VICTIM: NodeId = NodeId(3);
const MAX: u64 = u64::MAX;

fn member(id: u32, incarnation: u32) -> Member {
    let incarnation = Incarnation::new(incarnation).unwrap();
    Member { id: NodeId(id), incarnation, name: format!("n{id}"), address: format!("host-{id}:1"), durable: true }
}

/// A group of an epoch in which the victim is a member.
fn group(id: u64, epoch: u64, ttl: Ticks, victim: Incarnation) -> Group {
    let members = [member(1, 1), member(2, 1), member(VICTIM.0, victim.get())];
    Group {
        id,
        epoch,
        term: MAX,
        members: members.into_iter().map(|member| (member.id, member)).collect(),
        absent: BTreeMap::from([(NodeId(u32::MAX), member(u32::MAX, Incarnation::MAX))]),
        banned: BTreeSet::new(),
        classes: vec![Class::default_for("")],
        ttl,
        drift_ppm: 1_000_000,
        durable: true,
    }
}

/// Each message with the largest numbers that can be written into it, and with those next to the limits.
fn absurd(group_id: u64, victim: Incarnation, epoch: u64) -> Vec<Control> {
    let last = Incarnation::new(Incarnation::MAX).unwrap();
    let fence = Fence::new(MAX >> 1);
    let (everybody, held) = (vec![NodeId(1), NodeId(1), NodeId(u32::MAX)], |name: &str| Held {
        name: name.into(),
        mode: Mode::Exclusive,
        fence,
    });
    let lock = |name: &str, holders: &[u32]| HeldLock {
        name: name.into(),
        mode: Mode::Exclusive,
        fence,
        holders: holders.iter().copied().map(NodeId).collect(),
    };
    let locks = vec![lock("x", &[u32::MAX, 1, 1]), lock("x", &[]), lock("y", &[3, 3, 2])];
    let founder = |floor| {
        let Member { id, incarnation, name, address, durable } = member(1, Incarnation::MAX);
        Founder { address, id, incarnation, name, durable, floor, settings: MAX }
    };
    let mut all = Vec::new();
    for incarnation in [victim, last] {
        for sent in [MAX, MAX - TTL / 4, MAX >> 1] {
            all.push(Control::Renewed { incarnation, sent });
            all.push(Control::Renew { incarnation, sent, unreachable: everybody.clone(), wants_epoch: true });
        }
        for keeps_vote in [false, true] {
            all.push(Control::Withdraw { incarnation, keeps_vote });
        }
        for started in [0, MAX] {
            all.push(Control::Probed { epoch: MAX, incarnation, started });
            all.push(Control::Probed { epoch, incarnation, started });
        }
        for (part, parts) in [(0, 0), (u32::MAX, u32::MAX), (u32::MAX - 1, u32::MAX), (0, 1)] {
            let held = vec![held("x"), held("x")];
            all.push(Control::Report { epoch, incarnation, part, parts, held });
        }
        all.push(Control::Started { epoch: MAX, incarnation });
    }
    for (part, parts) in [(0, 0), (u32::MAX, u32::MAX), (u32::MAX - 1, u32::MAX), (0, 1)] {
        for epoch in [epoch, epoch + 1, Fence::EPOCH_MAX, MAX] {
            all.push(Control::Start { epoch, part, parts, locks: locks.clone() });
        }
    }
    for epoch in [epoch, epoch + 1, Fence::EPOCH_MAX] {
        for ttl in [1, TTL_MAX] {
            let group = group(group_id, epoch, ttl, victim);
            let members: Vec<Member> = group.members.values().cloned().collect();
            let (candidates, absent) = (members.clone(), vec![member(VICTIM.0, Incarnation::MAX)]);
            let (steward, voters, drift_ppm) = (Some(NodeId(u32::MAX)), everybody.clone(), 1_000_000);
            all.push(Control::Candidates { epoch, candidates: candidates.clone() });
            all.push(Control::Prepare { group, voters: voters.clone() });
            all.push(Control::Start { epoch, part: 0, parts: 1, locks: locks.clone() });
            all.push(Control::Contacts(Contacts {
                epoch,
                steward,
                members,
                absent,
                candidates,
                voters,
                ttl,
                drift_ppm,
                banned: None,
            }));
        }
    }
    for floor in [MAX, Fence::EPOCH_MAX, Fence::EPOCH_MAX - 1] {
        all.push(Control::Founding { expect: u32::MAX, known: vec![founder(floor), founder(0)] });
        all.push(Control::Founding { expect: 2, known: vec![founder(floor)] });
    }
    let requests = [
        Request::Evict { node: NodeId(u32::MAX), ban: true },
        Request::Evict { node: VICTIM, ban: false },
        Request::Break { lock: String::new() },
        Request::SetClass(Class::default_for("")),
        Request::Admit { name: "x".repeat(64) },
    ];
    all.extend(requests.map(|request| Control::Ask { token: MAX, request }));
    all.push(Control::Answer { token: MAX, result: Ok(()) });
    all.push(Control::Break { token: MAX, lock: "x".to_owned() });
    all.push(Control::Broken { token: MAX, before: MAX, left: MAX });
    all.push(Control::Probe { epoch: MAX });
    all.push(Control::Join { member: member(1, Incarnation::MAX), reached: everybody });
    // Consensus: every kind of message with a term and numbers at the limit of what is counted.
    let most = [255, 255, 255, 255, 255, 255, 255, 255, 63];
    for kind in 1..=10 {
        all.push(Control::Engine([vec![1, kind], most.repeat(6)].concat()));
        all.push(Control::Engine([vec![1, kind], most.repeat(3), vec![0]].concat()));
    }
    all
}

/// How the victim gets into a phase.
type Setup = fn(&mut Net);

const PHASES: [(&str, Setup); 8] = [
    ("open", |_| {}),
    ("slow", |net| {
        net.slow_disks.insert(VICTIM);
    }),
    ("lapsed", |net| {
        net.slow_disks.insert(VICTIM);
        net.now += 2 * TTL;
        net.input(VICTIM.0, |node, now| node.handle_timeout(now));
    }),
    ("withdrawing", |net| net.input(VICTIM.0, |node, now| node.handle_request(Request::Stop, 7, now))),
    ("gone", |net| {
        net.input(VICTIM.0, |node, now| node.handle_request(Request::Stop, 7, now));
        net.run(100);
    }),
    ("joining", |net| {
        let disk = net.crash(VICTIM.0);
        net.restart(VICTIM.0, disk);
        net.step();
    }),
    ("outside", |net| {
        net.crash(VICTIM.0);
        let config = net.config(VICTIM.0, Founding::Never, 1);
        net.start(config);
        net.connect();
    }),
    ("founding", |net| {
        net.crash(VICTIM.0);
        let config = net.config(VICTIM.0, Founding::Together(2), 1);
        net.start(config);
        net.connect();
    }),
];

#[test]
fn no_number_that_a_peer_sends_ends_a_node() {
    let count = absurd(1, Incarnation::FIRST, 1).len();
    for (phase, set_up) in PHASES {
        // Eight messages share a group: what one of them does to the victim the next one meets.
        for first in (0..count).step_by(8) {
            let mut net = Net::founded(3);
            let stored = net.nodes[&VICTIM].disk[&keys::GROUP].clone();
            let known = Group::decode(&mut Reader::new(&stored)).unwrap();
            set_up(&mut net);
            let victim = &net.nodes[&VICTIM].node;
            let incarnation = victim.control_hello(None).incarnation;
            for message in absurd(known.id, incarnation, known.epoch).into_iter().skip(first).take(8) {
                for (group_id, from) in [known.id, 0, MAX].into_iter().flat_map(|id| [(id, 1), (id, 2)]) {
                    let text = format!("{phase}: {message:?}");
                    let bytes = Envelope { group_id, message: message.clone() }.encode();
                    let fed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        let _ = net.input(VICTIM.0, |node, now| node.handle_control(NodeId(from), &bytes, now));
                        net.input(VICTIM.0, |node, now| node.handle_timeout(now));
                    }));
                    assert!(fed.is_ok(), "{text}");
                }
            }
            net.run(10);
        }
    }
}
