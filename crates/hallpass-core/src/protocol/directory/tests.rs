use proptest::prelude::*;

use super::*;
use crate::protocol::Message;
use crate::protocol::testing::{NOTHING, Net, assert_canonical, assert_round_trip, count, fence, initial, parse};
use crate::{InitialHolders, View};
use Mode::{Exclusive, Shared};

/// Members 1, 2 and 3. Member 1 is the home.
fn net(words: &str) -> Net<Directory> {
    Net::new([1, 2, 3], words)
}

fn held_by(holders: &[u32], words: &str) -> Net<Directory> {
    let holders: Vec<NodeId> = holders.iter().copied().map(NodeId).collect();
    Net::with_initial(View::new([1, 2, 3].map(NodeId)), words, initial(&holders, 0))
}

impl Net<Directory> {
    fn give_back(&mut self, member: u32) -> Vec<String> {
        self.act(member, Input::GiveBack)
    }

    fn attempt(&mut self, member: u32, mode: Mode) -> Vec<String> {
        self.expect_mode(member, mode);
        self.act(member, Input::Try { mode })
    }

    fn home(&self) -> &Home {
        self.nodes[&1].desk.as_ref().unwrap()
    }
}

mod costs {
    use super::*;

    #[test]
    fn a_free_lock_costs_its_home_nothing() {
        let mut net = net("");
        assert_eq!(net.acquire(1), ["enter"]);
        assert_eq!(net.release(1), NOTHING);
        assert_eq!(net.give_back(1), NOTHING);
        assert!(net.nodes[&1].is_idle());
    }

    #[test]
    fn a_free_lock_costs_another_member_three_messages_of_which_it_waits_for_two() {
        let mut net = net("");
        assert_eq!(net.acquire(2), ["REQ(1) to 1"]);
        assert_eq!(net.deliver(2, 1), ["GRANT(1, count 1) to 2"]);
        assert_eq!(net.deliver(1, 2), ["enter"]);
        assert_eq!(net.release(2), NOTHING);
        assert!(net.nodes[&2].gives_back(), "it did not come back to this lock before");
        assert_eq!(net.give_back(2), ["BACK(1, used 1, served 0) to 1"]);
        net.deliver_all();
        assert!(net.home().is_idle());
        assert!(net.nodes[&2].is_idle());
    }

    #[test]
    fn a_handover_is_one_message() {
        let mut net = net("");
        net.acquire(2);
        net.deliver_all();
        net.acquire(3);
        assert_eq!(net.deliver(3, 1), ["FWD(1: 3's 1, count 2) to 2"]);
        net.deliver_all();
        assert_eq!(net.release(2), ["GRANT(1, count 2) to 3"]);
        assert_eq!(net.deliver(2, 3), ["enter"]);
        assert!(net.nodes[&2].is_idle(), "who has handed over forgets the lock at once");
    }

    #[test]
    fn who_comes_back_to_a_lock_gets_a_block_of_counts_and_keeps_it() {
        let mut net = net("");
        net.pass_through(2);
        net.give_back(2);
        net.deliver_all();
        net.acquire(2);
        assert_eq!(net.deliver(2, 1), ["GRANT(2, count 2..17) to 2"]);
        net.deliver_all();
        net.release(2);
        assert!(!net.nodes[&2].gives_back());
        for _ in 0..15 {
            assert_eq!(net.acquire(2), ["enter"], "no message");
            assert_eq!(net.release(2), NOTHING);
        }
        assert_eq!(net.acquire(2), ["REQ(3, back 2 used 17) to 1"]);
        assert_eq!(net.deliver(2, 1), ["GRANT(3, count 18..49) to 2"], "twice as many");
    }

    #[test]
    fn the_home_itself_gets_blocks_too() {
        let mut net = net("");
        for _ in 0..2 {
            net.acquire(1);
            net.release(1);
            if net.nodes[&1].gives_back() {
                net.give_back(1);
            }
        }
        assert!(net.nodes[&1].held.is_some(), "it came back, and keeps the lock");
        assert!(net.nodes[&1].allows(Exclusive));
    }

    #[test]
    fn counts_that_were_not_used_come_back() {
        let mut net = net("block=100");
        net.pass_through(2);
        net.give_back(2);
        net.deliver_all();
        assert_eq!(net.home().top, 1);
        net.pass_through(3);
        assert_eq!(net.fences, [1, 2]);
    }

    #[test]
    fn a_writer_after_readers_needs_a_grant_of_each() {
        let mut net = net("");
        net.acquire_shared(1);
        net.acquire_shared(2);
        net.deliver_all();
        net.acquire(3);
        assert_eq!(net.deliver(3, 1), ["FWD(1: 3's 1, count 1, one of 2) to 2"]);
        assert_eq!(net.release(1), ["GRANT(1, count 1, one of 2) to 3"]);
        net.deliver_all();
        assert!(!net.is_inside(3));
        net.release(2);
        net.deliver_all();
        assert!(net.is_inside(3));
    }

    #[test]
    fn readers_read_again_without_a_message_until_a_writer_comes() {
        let mut net = net("");
        net.pass_through_as(2, Shared);
        assert_eq!(net.acquire_shared(2), ["enter"]);
        net.release(2);
        assert_eq!(net.acquire(2), ["REQ(2, back 1 used 1) to 1"]);
        net.deliver_all();
        assert_eq!(net.inside(), [2]);
    }

    #[test]
    fn an_attempt_is_granted_where_the_lock_is_free_or_unused() {
        let mut net = net("give-back=when-asked");
        net.pass_through(2);
        assert_eq!(net.attempt(3, Exclusive), ["REQ(1, try) to 1"]);
        assert_eq!(net.deliver(3, 1), ["PROBE(1 for 3's 1) to 2"]);
        assert_eq!(net.deliver(1, 2), ["BACK(1, used 1, served 0) to 1"]);
        assert_eq!(net.deliver(2, 1), ["GRANT(1, count 2) to 3"]);
        assert_eq!(net.deliver(1, 3), ["enter"]);
    }

    #[test]
    fn an_attempt_is_refused_where_the_lock_is_in_use() {
        let mut net = net("");
        net.acquire(2);
        net.deliver_all();
        net.attempt(3, Shared);
        assert_eq!(net.deliver(3, 1), ["PROBE(1 for 3's 1) to 2"]);
        assert_eq!(net.deliver(1, 2), ["HELD(3's 1) to 1"]);
        assert_eq!(net.deliver(2, 1), ["BUSY(1) to 3"]);
        assert_eq!(net.deliver(1, 3), ["busy"]);
        assert!(net.nodes[&3].is_idle());
    }
}

mod races {
    use super::*;

    #[test]
    fn the_home_grants_in_the_place_of_one_whose_back_has_crossed_its_fwd() {
        let mut net = net("");
        net.acquire(2);
        net.deliver_all();
        net.acquire(3);
        assert_eq!(net.deliver(3, 1), ["FWD(1: 3's 1, count 2) to 2"]);
        net.release(2);
        net.give_back(2);
        assert_eq!(net.deliver(1, 2), NOTHING, "it has forgotten");
        assert_eq!(net.deliver(2, 1), ["GRANT(1, count 2) to 3"]);
        net.deliver_all();
        assert_eq!(net.inside(), [3]);
    }

    #[test]
    fn a_cancelled_request_keeps_its_place_and_passes_its_grant_on() {
        let mut net = net("");
        net.acquire(1);
        net.acquire(2);
        net.acquire(3);
        net.deliver(2, 1);
        net.deliver(3, 1);
        assert_eq!(net.cancel(2), NOTHING);
        net.deliver_all();
        net.release(1);
        net.deliver_all();
        assert_eq!(net.inside(), [3]);
        assert!(net.nodes[&2].is_idle());
    }

    #[test]
    fn a_caller_takes_the_place_of_one_that_gave_up() {
        let mut net = net("");
        net.acquire(1);
        net.acquire(2);
        net.deliver_all();
        net.cancel(2);
        assert_eq!(net.acquire(2), NOTHING, "it is asked for already");
        net.release(1);
        assert_eq!(net.deliver(1, 2), ["enter"]);
    }

    #[test]
    fn a_fwd_that_comes_before_the_grant_is_kept() {
        let mut net = net("");
        net.acquire(1);
        net.acquire(2);
        net.acquire(3);
        net.deliver(2, 1);
        net.deliver(3, 1);
        assert_eq!(net.deliver(1, 2), NOTHING);
        net.release(1);
        net.deliver_all();
        assert_eq!(net.inside(), [2]);
        assert_eq!(net.release(2), ["GRANT(1, count 3) to 3"]);
    }

    #[test]
    fn an_upgrade_waits_for_the_other_readers_and_a_second_one_is_refused() {
        let mut net = held_by(&[2, 3], "");
        net.expect_mode(2, Exclusive);
        assert_eq!(net.act(2, Input::Upgrade), ["REQ(1, upgrade of 0) to 1"]);
        assert_eq!(net.act(3, Input::Upgrade), ["REQ(1, upgrade of 0) to 1"]);
        net.inside.remove(&2);
        net.deliver(2, 1);
        assert_eq!(net.deliver(3, 1), ["BUSY(1) to 3"]);
        assert_eq!(net.deliver(1, 3), NOTHING, "the other one comes after it");
        assert_eq!(net.deliver(1, 3), ["refused"]);
        assert_eq!(net.release(3), ["GRANT(1, count 1) to 2"]);
        assert_eq!(net.deliver(3, 2), ["enter"]);
    }

    #[test]
    fn a_writer_that_reads_on_lets_the_readers_in_that_wait() {
        let mut net = net("");
        net.acquire(2);
        net.deliver_all();
        net.acquire_shared(3);
        net.deliver_all();
        net.inside.remove(&2);
        net.expect_mode(2, Shared);
        let all = ["enter", "GRANT(1, count 2) to 3", "BACK(1, used 1, served 1, keep) to 1"];
        assert_eq!(net.act(2, Input::Downgrade), all);
        net.deliver_all();
        assert_eq!(net.inside(), [2, 3]);
        assert_eq!(net.fences, [1, 2, 2]);
    }
}

mod people {
    use super::*;

    #[test]
    fn a_member_that_waits_learns_from_the_home_who_is_inside() {
        let mut net = net("");
        net.acquire(2);
        net.deliver_all();
        net.acquire(3);
        net.deliver_all();
        assert_eq!(net.nodes[&3].missing_permissions(), Some(vec![]), "nobody has said yet");
        assert_eq!(net.act(3, Input::Inquire), ["WHO(1) to 1"]);
        assert_eq!(net.deliver(3, 1), ["HAS(1: 2) to 3"]);
        assert_eq!(net.deliver(1, 3), NOTHING);
        assert_eq!(net.nodes[&3].missing_permissions(), Some(vec![NodeId(2)]));
        net.acquire(1);
        assert_eq!(net.act(1, Input::Inquire), NOTHING, "the home knows");
        assert_eq!(net.nodes[&1].missing_permissions(), Some(vec![NodeId(2)]));
        net.release(2);
        net.deliver_all();
        assert_eq!(net.act(3, Input::Inquire), NOTHING, "it is inside");
        assert_eq!(net.nodes[&1].missing_permissions(), Some(vec![NodeId(2)]), "it has not heard of the handover");
    }
}

mod holders {
    use super::*;

    #[test]
    fn who_holds_the_lock_at_the_start_gives_it_back_at_once() {
        let mut net = held_by(&[2], "");
        net.acquire(3);
        net.deliver_all();
        assert_eq!(net.inside(), [2]);
        assert_eq!(net.release(2), ["GRANT(1, count 1) to 3"]);
        net.deliver_all();
        assert_eq!(net.fences, [1]);

        let mut net = held_by(&[2], "");
        net.release(2);
        assert!(net.nodes[&2].gives_back());
        assert_eq!(net.give_back(2), ["BACK(0, used 0, served 0) to 1"]);
        net.deliver_all();
        assert!(net.home().is_idle());
    }

    #[test]
    fn readers_at_the_start_let_others_join() {
        let mut net = held_by(&[2, 3], "");
        assert_eq!(net.acquire_shared(1), ["enter"]);
        assert_eq!(net.fences, [1]);
        assert_eq!(net.home().top, 0);
    }

    #[test]
    fn numbers_and_the_largest_count_outlive_an_instance() {
        let mut net = net("");
        net.pass_through(2);
        net.give_back(2);
        net.deliver_all();
        for member in [1, 2] {
            net.give_back(member);
            assert!(net.nodes[&member].is_idle());
            let floor = net.nodes[&member].floor().unwrap();
            let mut fresh = net.fresh(member, 0, InitialHolders::NOBODY);
            fresh.raise_floor(floor);
            net.nodes.insert(member, fresh);
        }
        assert_eq!(net.acquire(2), ["REQ(2) to 1"]);
        net.deliver_all();
        assert_eq!(net.fences, [1, 2]);
    }
}

mod limits {
    use super::*;

    #[test]
    fn past_the_last_fences_of_an_epoch_requests_are_refused() {
        let last = Fence::COUNT_MAX - 1 - home::BLOCK_MAX;
        let view = View::new([1, 2, 3].map(NodeId));
        let mut net = Net::<Directory>::with_initial(view, "", initial(&[], last - 1));
        net.pass_through(2);
        net.give_back(2);
        net.deliver_all();
        assert_eq!(net.fences, [last]);
        assert_eq!(net.acquire(3), ["REQ(1) to 1"]);
        assert_eq!(net.deliver(3, 1), ["BUSY(1) to 3"]);
        assert_eq!(net.deliver(1, 3), ["refused"]);
        assert_eq!(net.acquire(1), ["refused"], "at the home, too");
        assert!(net.nodes[&3].is_idle());
    }

    #[test]
    fn what_a_liar_says_grants_nothing_and_breaks_nothing() {
        let mut net = net("");
        net.acquire(2);
        let share = Share { count: 1, upto: 1, need: 2 };
        let next = Successor { asker: Asker { member: NodeId(3), number: 9 }, mode: Exclusive, share };
        for message in [
            DirectoryMessage::Grant { number: 5, share },
            DirectoryMessage::Forward { number: 1, next },
            DirectoryMessage::Busy { number: 1 },
            DirectoryMessage::Probe { number: 1, attempt: next.asker },
            DirectoryMessage::Request { number: 1, mode: Exclusive, asking: Asking::Plain, back: None },
        ] {
            assert_eq!(net.receive(3, 2, message), NOTHING, "only the home says so, and only to the home");
        }
        // One of two grants, and then one that says something else.
        net.receive(3, 2, DirectoryMessage::Grant { number: 1, share });
        assert_eq!(
            net.receive(3, 2, DirectoryMessage::Grant { number: 1, share: Share { need: 1, ..share } }),
            NOTHING
        );
        assert!(!net.is_inside(2));
    }

    #[test]
    fn a_member_that_repeats_a_request_is_heard_once() {
        let mut net = net("");
        net.acquire(2);
        net.deliver_all();
        let again = DirectoryMessage::Request { number: 1, mode: Exclusive, asking: Asking::Plain, back: None };
        assert_eq!(net.receive(2, 1, again), NOTHING);
        assert_eq!(net.home().chain.len(), 1);
    }

    #[test]
    fn options_say_what_they_take() {
        assert_eq!(parse::<Directory>("home=9").unwrap_err(), "option home=9 names no member; there are 1, 2, 3");
        let error = parse::<Directory>("block=0").unwrap_err();
        assert_eq!(error, "a block of 0 counts is not possible; it has 1 to 1048576");
        assert!(parse::<Directory>("leave-out=4").is_err(), "what ships lacks no rule");
        let error = parse::<IncompleteDirectory>("leave-out=15").unwrap_err();
        assert!(error.starts_with("option leave-out=15 names no rule; there are 1, 2, 3,"), "{error}");
        let mut net = Net::<Directory>::new([1, 2, 3], "home=2");
        assert_eq!(net.acquire(1), ["REQ(1) to 2"]);
    }
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Exclusive), Just(Shared)]
}

fn asker() -> impl Strategy<Value = Asker> {
    (0u32..5, count()).prop_map(|(member, number)| Asker { member: NodeId(member), number })
}

fn share() -> impl Strategy<Value = Share> {
    (fence(), 0u64..9, 1u32..5).prop_map(|(count, more, need)| {
        let upto = (count + more).min(Fence::COUNT_MAX);
        Share { count: count.min(upto), upto, need }
    })
}

fn message() -> impl Strategy<Value = DirectoryMessage> {
    let asking = prop_oneof![Just(Asking::Plain), Just(Asking::Try), count().prop_map(|of| Asking::Upgrade { of }),];
    let back = prop::option::of((count(), fence()).prop_map(|(number, used)| GivenBack { number, used }));
    prop_oneof![
        (count(), mode(), asking, back).prop_map(|(number, mode, asking, back)| {
            let mode = if matches!(asking, Asking::Upgrade { .. }) { Exclusive } else { mode };
            DirectoryMessage::Request { number, mode, asking, back }
        }),
        (count(), share()).prop_map(|(number, share)| DirectoryMessage::Grant { number, share }),
        (count(), asker(), mode(), share()).prop_map(|(number, asker, mode, share)| {
            DirectoryMessage::Forward { number, next: Successor { asker, mode, share } }
        }),
        (count(), fence(), 0u32..9, any::<bool>()).prop_map(|(number, used, served, keep)| DirectoryMessage::Back {
            number,
            used,
            served,
            keep
        }),
        (count(), asker()).prop_map(|(number, attempt)| DirectoryMessage::Probe { number, attempt }),
        asker().prop_map(|attempt| DirectoryMessage::Held { attempt }),
        count().prop_map(|number| DirectoryMessage::Busy { number }),
        count().prop_map(|number| DirectoryMessage::Who { number }),
        (count(), prop::collection::vec((0u32..9).prop_map(NodeId), 0..8))
            .prop_map(|(number, members)| DirectoryMessage::Has { number, members: members.into() }),
    ]
}

/// What a member may be given, by its callers and by members that lie.
#[derive(Clone, Debug)]
enum Given {
    Ask(Mode, bool),
    Leave,
    GiveBack,
    Upgrade,
    Downgrade,
    Hear(u32, DirectoryMessage),
}

fn given() -> impl Strategy<Value = Given> {
    // Numbers that are near those in use find more than any.
    let near = (1u32..4, message(), 0u64..6).prop_map(|(from, mut message, number)| {
        match &mut message {
            DirectoryMessage::Request { number: named, .. }
            | DirectoryMessage::Grant { number: named, .. }
            | DirectoryMessage::Forward { number: named, .. }
            | DirectoryMessage::Back { number: named, .. }
            | DirectoryMessage::Probe { number: named, .. }
            | DirectoryMessage::Who { number: named }
            | DirectoryMessage::Has { number: named, .. }
            | DirectoryMessage::Busy { number: named } => *named = number,
            DirectoryMessage::Held { attempt } => attempt.number = number,
        }
        Given::Hear(from, message)
    });
    let near = near.boxed();
    prop_oneof![
        (mode(), any::<bool>()).prop_map(|(mode, tries)| Given::Ask(mode, tries)),
        Just(Given::Leave),
        Just(Given::GiveBack),
        Just(Given::Upgrade),
        Just(Given::Downgrade),
        near.clone(),
        near.clone(),
        near,
        (1u32..4, message()).prop_map(|(from, message)| Given::Hear(from, message)),
    ]
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(message in message()) {
        assert_round_trip(&message);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(bytes in prop::collection::vec(prop_oneof![0u8..16, any::<u8>()], 0..40)) {
        assert_canonical::<DirectoryMessage>(&bytes);
    }

    /// Members may send anything at all: nothing panics, and what is remembered of them stays bounded.
    #[test]
    fn nothing_that_members_send_breaks_a_node(home in any::<bool>(), given in prop::collection::vec(given(), 0..60)) {
        let net = net(if home { "home=1" } else { "home=2" });
        let mut node = net.nodes[&1].clone();
        let mut out = Effects::new();
        for step in given {
            let input = match (step, node.caller) {
                (Given::Ask(mode, true), Caller::Nobody) => Input::Try { mode },
                (Given::Ask(mode, false), Caller::Nobody) => Input::Acquire { mode, draw: 0 },
                (Given::Leave, Caller::Inside(_)) => Input::Release,
                (Given::Leave, _) => Input::Cancel,
                (Given::GiveBack, _) => Input::GiveBack,
                (Given::Upgrade, _) => Input::Upgrade,
                (Given::Downgrade, _) => Input::Downgrade,
                (Given::Hear(from, message), _) if from != 1 => Input::Deliver { from: NodeId(from), message },
                _ => continue,
            };
            out.clear();
            node.handle(input, &mut out);
            let to_itself = |effect: &Effect<_, _>| matches!(effect, Effect::Send { to: NodeId(1), .. });
            prop_assert!(!out.iter().any(to_itself));
            prop_assert!(node.remembered() <= 3 * 3, "{node:?}");
        }
    }
}

#[test]
fn messages_are_small_and_unknown_kinds_are_refused() {
    let bytes = |message: DirectoryMessage| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    };
    let request = DirectoryMessage::Request { number: 100, mode: Shared, asking: Asking::Plain, back: None };
    assert_eq!(bytes(request), [17, 100]);
    let share = Share { count: 9, upto: 9, need: 1 };
    assert_eq!(bytes(DirectoryMessage::Grant { number: 100, share }), [2, 100, 9, 0, 1]);
    for kind in [0, 10, 2 | 16, 4 | 16, 7 | 32, 1 | 32 | 64, 8 | 128] {
        let refused = DirectoryMessage::decode(&mut crate::codec::Reader::new(&[kind, 0, 0, 1, 0, 1, 1]));
        assert_eq!(refused, Err(crate::codec::DecodeError::Unknown), "{kind}");
    }
}
