//! Nodes with the group's key that greet as they should, and then say what is not theirs to say.

use hallpass_core::Fence;
use hallpass_core::codec::{Reader, put_number};

use super::*;
use crate::HelloError;
use crate::links::LinkError;
use crate::locks::HeldLock;
use crate::membership::testing::{Contacts, Control, Envelope, Founder, Group, Member};
use crate::wire::{Header, Hello, Outgoing, write};

const LIAR: NodeId = NodeId(5);
/// A member without a vote, and the steward.
const VICTIMS: [NodeId; 2] = [NodeId(4), NodeId(1)];

/// What a liar is to the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Liar {
    Stranger,
    /// It asks to join, and does not reach everybody.
    Candidate,
    Evicted,
    Banned,
}

/// A group of four with three voters, and a liar that is connected with all of them as far as they let it.
fn group_with(liar: Liar) -> (Net, Hello) {
    let mut net = Net::founded(3);
    let start = |net: &mut Net, id: u32| {
        let config = net.config(id, Founding::Never, 1);
        net.start(config);
    };
    start(&mut net, 4);
    net.run_until_open(3000);
    start(&mut net, LIAR.0);
    match liar {
        Liar::Stranger => {}
        Liar::Candidate => {
            net.cut(2, LIAR.0);
            net.run(500);
        }
        Liar::Evicted | Liar::Banned => {
            net.run_until_open(3000);
            let request = Request::Evict { node: LIAR, ban: liar == Liar::Banned };
            net.input(2, |node, now| node.handle_request(request, 1, now));
        }
    }
    let hello = net.nodes[&LIAR].node.control_hello(None);
    net.crash(LIAR.0);
    net.seeds.remove(&LIAR);
    if liar != Liar::Candidate {
        net.run(3 * TTL / MS);
    }
    assert_eq!(net.steward(), 1);
    for id in 1..=4 {
        let greeted = net.input(id, |node, now| node.handle_hello(&hello, now));
        let expected = if liar == Liar::Banned { Err(HelloError::Banned) } else { Ok(()) };
        assert_eq!(greeted, expected, "{liar:?} at {id}");
        net.nodes.get_mut(&NodeId(id)).unwrap().denied.clear();
    }
    (net, hello)
}

/// The group as the last view has it.
fn stored(net: &Net) -> Group {
    Group::decode(&mut Reader::new(&net.nodes[&VICTIMS[0]].disk[&keys::GROUP])).unwrap()
}

impl Net {
    /// The liar says this to a node.
    fn lie(&mut self, to: NodeId, message: Control) {
        let group_id = self.nodes[&to].node.status().group_id.unwrap();
        self.lie_for(group_id, to, message);
    }

    /// The same, for this group.
    fn lie_for(&mut self, group_id: u64, to: NodeId, message: Control) {
        let bytes = Envelope { group_id, message }.encode();
        let _ = self.input(to.0, |node, now| node.handle_control(LIAR, &bytes, now));
    }
}

const LIARS: [Liar; 4] = [Liar::Stranger, Liar::Candidate, Liar::Evicted, Liar::Banned];

#[test]
fn forged_views_give_no_lock_to_a_second_holder() {
    for (liar, victim) in LIARS.into_iter().flat_map(|liar| VICTIMS.map(|victim| (liar, victim))) {
        let (mut net, _) = group_with(liar);
        let grant = net.lock(2, "x", 1, 100);
        let known = stored(&net);
        // It is alone in a view of any epoch that the liar likes.
        let mut forged = known.clone();
        forged.members.retain(|id, _| *id == victim);
        forged.epoch = known.epoch + 1000;
        let epoch = forged.epoch;
        net.lie(victim, Control::Prepare { group: forged, voters: vec![LIAR] });
        net.lie(victim, Control::Start { epoch, part: 0, parts: 1, locks: Vec::new() });
        let entered = net.acquire(victim.0, "x", 2);
        assert_eq!(entered, None, "{liar:?} gives {victim} a lock that another member holds with {}", grant.fence);
        assert!(net.nodes[&victim].node.epoch() < Some(epoch), "{liar:?} at {victim}");
        net.run(300);
        assert!(net.granted(victim.0, 2).is_none() && net.all_open(), "{liar:?} at {victim}");
        assert!(net.nodes.values().all(|one| one.lapses == 0), "{liar:?} at {victim}");
        if liar != Liar::Banned {
            assert_eq!(net.nodes[&victim].denied, [(LIAR, "Prepare"), (LIAR, "Start")], "{liar:?}");
            assert_eq!(net.nodes[&victim].node.counters().denied, 2);
        }
    }
}

#[test]
fn forged_starts_and_locks_change_no_view_that_the_steward_prepares() {
    let (mut net, _) = group_with(Liar::Stranger);
    let grant = net.lock(2, "x", 1, 100);
    let epoch = stored(&net).epoch + 1;
    net.input(1, |node, now| {
        let class =
            crate::config::Class { prefix: "y".to_owned(), protocol: "raymond".to_owned(), options: Vec::new() };
        node.handle_request(Request::SetClass(class), 9, now);
    });
    let lock = |fence| HeldLock { name: "x".into(), mode: Mode::Exclusive, fence, holders: vec![VICTIMS[0]] };
    for _ in 0..200 {
        net.step();
        for victim in VICTIMS {
            net.lie(victim, Control::Start { epoch, part: 0, parts: 1, locks: vec![lock(Fence::new(1 << 62))] });
        }
    }
    assert_eq!(net.nodes[&VICTIMS[0]].node.epoch(), Some(epoch), "the view has begun");
    assert!(net.nodes[&NodeId(2)].lost.is_empty() && net.all_open());
    assert!(net.input(2, |node, now| node.handle_release(grant.ticket, now)));
}

#[test]
fn orders_of_those_who_are_no_members_are_not_carried_out() {
    for liar in LIARS {
        let (mut net, hello) = group_with(liar);
        let grant = net.lock(2, "x", 1, 100);
        let epoch = stored(&net).epoch;
        let requests = [
            Request::Break { lock: "x".to_owned() },
            Request::Evict { node: NodeId(3), ban: true },
            Request::Admit { name: hello.name.clone() },
        ];
        for (request, to) in requests.iter().flat_map(|request| (1..=4).map(move |to| (request, NodeId(to)))) {
            net.lie(to, Control::Ask { token: 77, request: request.clone() });
        }
        net.run(2 * TTL / MS);
        assert!(net.nodes[&NodeId(2)].lost.is_empty() && net.all_open(), "{liar:?}");
        assert!(liar == Liar::Candidate || stored(&net).epoch == epoch, "{liar:?}");
        assert_eq!(stored(&net).banned.contains(&hello.name), liar == Liar::Banned, "{liar:?}");
        assert!(net.input(2, |node, now| node.handle_release(grant.ticket, now)), "{liar:?}");
    }
}

#[test]
fn nobody_is_sent_away_or_led_astray_by_those_who_are_no_members() {
    for liar in LIARS {
        let (mut net, hello) = group_with(liar);
        let incarnation = Incarnation::FIRST;
        let Group { id: group_id, epoch, ttl, drift_ppm, members, .. } = stored(&net);
        let grant = net.lock(2, "x", 1, 100);
        // Members as they are, and what of them the liar would like to be.
        let another = Member { incarnation: Incarnation::new(9).unwrap(), ..members[&NodeId(3)].clone() };
        let renamed = Member { id: LIAR, ..another.clone() };
        let founder = Founder {
            address: "host-5:1".to_owned(),
            id: LIAR,
            incarnation,
            name: hello.name,
            durable: true,
            floor: epoch + 1000,
            settings: 0,
        };
        let founding = Control::Founding { expect: 1, known: vec![founder] };
        let members: Vec<Member> = members.into_values().filter(|member| member.id != NodeId(3)).collect();
        let (absent, candidates) = (Vec::new(), members.clone());
        let (steward, voters) = (Some(LIAR), vec![LIAR]);
        let contacts = Contacts {
            epoch: Fence::EPOCH_MAX,
            steward,
            members,
            absent,
            candidates,
            voters,
            ttl,
            drift_ppm,
            banned: None,
        };
        // It leads consensus, in a term that nobody else has reached.
        let mut heartbeat = vec![1, 2];
        [1 << 40, 0, 0].into_iter().for_each(|number| put_number(&mut heartbeat, number));
        let now = net.now;
        let lies = [
            Control::Expelled { incarnation },
            Control::Withdrawn { incarnation },
            Control::Renewed { incarnation, sent: now },
            Control::Contacts(contacts),
            Control::Candidates { epoch: epoch + 1, candidates: Vec::new() },
            Control::Engine(heartbeat),
            Control::Break { token: 1, lock: "x".to_owned() },
            Control::Probe { epoch },
            Control::Answer { token: 1, result: Ok(()) },
            Control::Refused { why: "go away".to_owned() },
            Control::Probed { epoch, incarnation, started: epoch },
            Control::Report { epoch, incarnation, part: 0, parts: 1, held: Vec::new() },
            Control::Started { epoch, incarnation },
            Control::Broken { token: 1, before: 1, left: 0 },
            Control::Join { member: another, reached: (1..=4).map(NodeId).collect() },
            Control::Join { member: renamed, reached: (1..=4).map(NodeId).collect() },
            founding.clone(),
        ];
        // A member that is not in any more would say this.
        let told = [
            Control::Withdraw { incarnation, keeps_vote: false },
            Control::Renew { incarnation, sent: now, unreachable: vec![NodeId(3)], wants_epoch: true },
        ];
        let terms: Vec<_> = net.nodes.values().map(|one| one.node.term()).collect();
        for (lie, to) in lies.iter().chain(&told).flat_map(|lie| (1..=4).map(move |to| (lie, NodeId(to)))) {
            net.lie(to, lie.clone());
        }
        for to in (1..=4).map(NodeId) {
            net.lie_for(0, to, founding.clone());
            net.lie_for(group_id ^ 1, to, Control::Expelled { incarnation });
        }
        // Also what comes at the wrong time, or to one that would do nothing with it.
        let expected: Vec<_> = lies.iter().map(Control::name).chain(["Expelled"]).map(|name| (LIAR, name)).collect();
        let is_heard = liar != Liar::Banned;
        for (id, one) in net.nodes.iter().filter(|_| is_heard) {
            assert_eq!(one.denied, expected, "{liar:?} at {id}");
            assert_eq!(one.node.counters().denied as usize, expected.len());
        }
        net.run(2 * TTL / MS);
        assert!(net.nodes[&NodeId(2)].lost.is_empty(), "{liar:?}");
        assert!(net.input(2, |node, now| node.handle_release(grant.ticket, now)), "{liar:?}");
        assert_eq!(net.nodes.values().map(|one| one.node.term()).collect::<Vec<_>>(), terms, "{liar:?}");
        assert!(net.nodes.values().all(|one| one.lapses == 0), "{liar:?}");
        assert!(net.all_open() && net.steward() == 1, "{liar:?}");
    }
}

/// While voters are being replaced those before may not go. Whoever says that it goes, too, is nobody that the steward has to remember.
#[test]
fn nothing_is_kept_of_those_who_leave_and_were_never_in() {
    let mut net = Net::founded(1);
    for id in [2, 3] {
        let config = net.config(id, Founding::Never, 1);
        net.start(config);
    }
    let steward = |net: &Net| net.nodes[&NodeId(1)].node.voters_are_stored();
    let is_in = |net: &Net| net.nodes[&NodeId(1)].node.members().len() == 3;
    while !is_in(&net) || steward(&net) {
        net.step();
    }
    net.slow_disks.extend([2, 3].map(NodeId));
    net.run(100);
    assert!(!steward(&net), "their disks take nothing");
    let group_id = net.nodes[&NodeId(1)].node.status().group_id.unwrap();
    let hello = net.nodes[&NodeId(2)].node.control_hello(None);
    let told = |net: &mut Net, id: u32| {
        let from = NodeId(id);
        let hello = Hello { from, name: id.to_string(), boot_id: id.into(), ..hello.clone() };
        net.input(1, |node, now| node.handle_hello(&hello, now)).unwrap();
        let message = Control::Withdraw { incarnation: Incarnation::FIRST, keeps_vote: false };
        let bytes = Envelope { group_id, message }.encode();
        net.input(1, |node, now| node.handle_control(from, &bytes, now)).unwrap();
        let answers = net.control.iter().filter(|(_, to, _)| *to == from).count();
        net.control.retain(|(_, to, _)| *to != from);
        answers
    };
    let early: usize = (100..1_100).map(|id| told(&mut net, id)).sum();
    assert_eq!((net.nodes[&NodeId(1)].node.leaving(), early), (0, 0));
    net.slow_disks.clear();
    [2, 3].iter().for_each(|id| net.finish_writes(*id));
    net.run_until_open(1000);
    while !steward(&net) {
        net.step();
    }
    assert_eq!(told(&mut net, 100), 1, "it is out");
}

#[test]
fn a_ban_ends_connections_and_refuses_greetings_on_both_planes() {
    let (mut net, hello) = group_with(Liar::Evicted);
    let config = net.config(LIAR.0, Founding::Never, 2);
    net.start(config);
    net.seeds.insert(LIAR);
    net.run_until_open(5000);
    net.input(4, |node, now| node.handle_request(Request::Evict { node: LIAR, ban: true }, 1, now));
    net.run(3 * TTL / MS);
    for (id, one) in net.nodes.iter().filter(|(id, _)| **id != LIAR) {
        assert!(!one.control_with.contains(&LIAR) && !one.locks_with.contains(&LIAR), "{id}");
        for plane in [Plane::Control, Plane::Locks] {
            let mut hello = Hello { plane, ..hello.clone() };
            assert_eq!(one.node.check_hello(&hello), Err(HelloError::Banned));
            // Under another id it has the same name.
            hello.from = NodeId(99);
            assert_eq!(one.node.check_hello(&hello), Err(HelloError::Banned));
        }
    }
    net.input(2, |node, now| node.handle_request(Request::Admit { name: hello.name.clone() }, 2, now));
    net.run_until_open(10_000);
}

#[test]
fn the_id_of_a_member_is_for_its_name() {
    let (net, hello) = group_with(Liar::Stranger);
    for id in 1..=4 {
        let hello = Hello { from: NodeId(id % 4 + 1), ..hello.clone() };
        let refused = net.nodes[&NodeId(id)].node.check_hello(&hello);
        assert_eq!(refused, Err(HelloError::Name((id % 4 + 1).to_string())));
    }
}

/// Anybody could dial a node that looks for a group. Only the operator has said where the group is.
#[test]
fn a_node_outside_of_any_group_believes_those_whose_addresses_it_was_given() {
    let mut net = Net::default();
    let config = net.config(4, Founding::Never, 1);
    net.start(config);
    let liar = net.config(LIAR.0, Founding::Together(1), 1);
    net.start(liar);
    net.seeds.clear();
    net.run(100);
    let hello = net.nodes[&LIAR].node.control_hello(None);
    net.input(4, |node, now| node.handle_hello(&hello, now)).unwrap();
    let contacts = Contacts { epoch: 1, steward: Some(LIAR), ttl: TTL, ..Contacts::default() };
    let bytes = Envelope { group_id: hello.group_id, message: Control::Contacts(contacts) }.encode();
    net.input(4, |node, now| node.handle_control(LIAR, &bytes, now)).unwrap();
    assert_eq!(net.nodes[&NodeId(4)].node.status().group_id, None);
    net.input(4, |node, _| node.handle_seed(&hello));
    net.input(4, |node, now| node.handle_control(LIAR, &bytes, now)).unwrap();
    assert_eq!(net.nodes[&NodeId(4)].node.status().group_id, Some(hello.group_id));
}

/// Its own name is what each node is called in these tests.
fn name_of(net: &Net, id: u32) -> String {
    net.nodes[&NodeId(id)].node.control_hello(None).name
}

/// A group of three of which one is banned, with the directory of another member that was away when the ban was lifted.
fn away_when_a_ban_was_lifted() -> (Net, [u32; 3], BTreeMap<u64, Vec<u8>>) {
    let mut net = Net::founded(3);
    let asks = net.steward();
    let [banned, away] = (1..=3).filter(|id| *id != asks).collect::<Vec<_>>()[..] else { unreachable!() };
    let key = "the digest of a key".to_owned();
    let evict = Request::Evict { node: NodeId(banned), ban: true };
    net.input(asks, |node, now| node.handle_request(evict, 1, now));
    net.input(asks, |node, now| node.handle_request(Request::Ban { name: key.clone() }, 2, now));
    net.run(3 * TTL / MS);
    let name = name_of(&net, banned);
    assert!([&name, &key].iter().all(|one| net.nodes[&NodeId(away)].node.banned().any(|banned| banned == **one)));
    let disk = net.crash(away);
    for (token, name) in (3..).zip([name, key]) {
        net.input(asks, |node, now| node.handle_request(Request::Admit { name }, token, now));
    }
    net.run_until_open(5 * TTL / MS);
    (net, [asks, banned, away], disk)
}

#[test]
fn a_member_that_was_away_when_a_ban_was_lifted_learns_of_that() {
    let (mut net, [.., away], disk) = away_when_a_ban_was_lifted();
    net.restart(away, disk);
    net.run_until_open(3 * TTL / MS);
    assert_eq!(net.nodes[&NodeId(away)].node.banned().count(), 0);
}

#[test]
fn where_only_the_one_that_was_banned_could_say_that_it_is_no_more_an_operator_does() {
    let (mut net, [asks, admitted, away], disk) = away_when_a_ban_was_lifted();
    net.input(asks, |node, now| node.handle_request(Request::Leave, 9, now));
    net.run(3 * TTL / MS);
    net.crash(asks);
    assert_eq!(net.nodes[&NodeId(admitted)].node.view(), [NodeId(admitted)]);
    net.restart(away, disk);
    net.run(3 * TTL / MS);
    assert!(!net.all_open(), "it does not listen to a node that it knows as banned");
    let name = name_of(&net, admitted);
    net.input(away, |node, now| node.handle_request(Request::Admit { name }, 1, now));
    net.run_until_open(3 * TTL / MS);
}

/// Who is a member by these names, as the last view has it.
fn called(net: &Net, name: &str) -> Vec<NodeId> {
    stored(net).members.into_values().filter(|member| member.name == name).map(|member| member.id).collect()
}

/// A key is for one name. With as many ids as its holder likes it would get as many votes.
#[test]
fn of_two_nodes_of_one_name_one_joins_at_a_time() {
    let (mut net, _) = group_with(Liar::Stranger);
    for id in [6, 7] {
        let config = NodeConfig { name: "x".to_owned(), ..net.config(id, Founding::Never, 1) };
        net.start(config);
    }
    net.run(5 * TTL / MS);
    let [first] = called(&net, "x")[..] else { panic!("{:?} are called 'x'", called(&net, "x")) };
    assert!(!net.nodes[&NodeId(13 - first.0)].node.is_complete());
    // A node that has lost its directory takes the place of the former one.
    net.crash(first.0);
    net.run_until_open(10 * TTL / MS);
    assert_eq!(called(&net, "x"), [NodeId(13 - first.0)]);
}

/// All members are told who wants to join, and dial it.
#[test]
fn many_who_ask_to_join_keep_no_member_busy() {
    let (mut net, hello) = group_with(Liar::Stranger);
    for id in 100..1_600 {
        let (id, name) = (NodeId(id), id.to_string());
        let hello = Hello { from: id, name: name.clone(), boot_id: id.0.into(), ..hello.clone() };
        net.input(1, |node, now| node.handle_hello(&hello, now)).unwrap();
        let member =
            Member { id, incarnation: Incarnation::FIRST, name, address: "host-5:1".to_owned(), durable: true };
        let group_id = net.nodes[&NodeId(1)].node.status().group_id.unwrap();
        let bytes = Envelope { group_id, message: Control::Join { member, reached: Vec::new() } }.encode();
        net.input(1, |node, now| node.handle_control(id, &bytes, now)).unwrap();
        net.control.retain(|(_, to, _)| net.nodes.contains_key(to));
    }
    net.run(2 * TTL / MS);
    assert!(net.all_open() && net.nodes.values().all(|one| one.lapses == 0));
    for one in net.nodes.values() {
        assert!(one.node.contacts().len() <= 3 + 1024, "{} are to be dialed", one.node.contacts().len());
    }
}

/// Frames of a view that a node has not started yet wait for it. Of one that is no member none are to come.
#[test]
fn hardly_anything_is_kept_of_what_a_candidate_sends_over_its_connection_for_locks() {
    let (mut net, hello) = group_with(Liar::Candidate);
    let net_epoch = stored(&net).epoch;
    let frame = |to: NodeId, sequence, epoch| {
        let (from, incarnation, mut out) = (LIAR, Incarnation::FIRST, Vec::new());
        let header = Header { sequence, acknowledges: 0, epoch, from, incarnation, to_incarnation: Incarnation::FIRST };
        let body = Outgoing::Message { lock: "x", attempt: None };
        write(&mut out, &header, &body, |out| out.extend_from_slice(&[7; 60_000])).unwrap();
        (to, out)
    };
    for victim in VICTIMS {
        let greet = |net: &mut Net| {
            let hello = Hello { plane: Plane::Locks, to: victim, ..hello.clone() };
            net.input(victim.0, |node, now| node.handle_hello(&hello, now)).unwrap();
        };
        let say = |net: &mut Net, (_, bytes): (NodeId, Vec<u8>)| {
            net.input(victim.0, |node, now| node.handle_bytes(LIAR, &bytes, now))
        };
        greet(&mut net);
        assert_eq!(say(&mut net, frame(victim, 1, net_epoch + 1)), Ok(()));
        assert_eq!(say(&mut net, frame(victim, 2, net_epoch + 1)), Err(LinkError::Flooded), "{victim}");
        // Those of this view are dropped, and it reads no acknowledgement of them.
        greet(&mut net);
        let mut said = (1..1000).map(|sequence| say(&mut net, frame(victim, sequence, net_epoch)));
        assert!(said.any(|said| said == Err(LinkError::Unread)), "{victim}");
    }
    assert!(net.nodes.values().all(|one| one.lapses == 0));
}
