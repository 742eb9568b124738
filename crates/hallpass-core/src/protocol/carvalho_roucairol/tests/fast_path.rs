use super::*;

/// How often the fast path was taken and not taken: in, then out.
#[derive(Default, Debug)]
struct Seen {
    entered: [u32; 2],
    left: [u32; 2],
}

/// On every node the fast path does what the input does, or nothing.
fn compare(group: &Group, seen: &mut Seen) {
    for node in group.nodes.values() {
        for mode in [Exclusive, Shared] {
            let (mut fast, mut slow, mut out) = (node.clone(), node.clone(), Effects::new());
            let entered = fast.enter_fast(mode);
            if node.request.is_none() {
                slow.handle(Input::Acquire { mode, draw: 0 }, &mut out);
                let at_once = matches!(out.as_slice(), [Effect::Enter { .. }]);
                assert_eq!(entered.is_some(), at_once);
            }
            match entered {
                Some(fence) => assert_eq!((&fast, out), (&slow, vec![Effect::Enter { fence }])),
                None => assert_eq!(&fast, node),
            }
            seen.entered[usize::from(entered.is_some())] += 1;
        }
        let (mut fast, mut slow, mut out) = (node.clone(), node.clone(), Effects::new());
        let left = fast.leave_fast();
        if left {
            slow.handle(Input::Release, &mut out);
            assert_eq!((&fast, out), (&slow, Effects::new()));
        } else {
            assert_eq!(&fast, node);
        }
        seen.left[usize::from(left)] += 1;
    }
}

fn deliver_all(group: &mut Group, seen: &mut Seen) {
    while !group.in_flight.is_empty() {
        compare(group, seen);
        let (from, to, message) = group.in_flight.remove(0);
        group.receive(from, to, message);
    }
    compare(group, seen);
}

#[test]
fn the_fast_path_does_what_the_inputs_do() {
    let (mut group, mut seen) = (Group::new(1..=3, ""), Seen::default());
    for first in [1, 1, 2, 3, 1, 2, 2] {
        group.acquire(first);
        deliver_all(&mut group, &mut seen);
        let second = first % 3 + 1;
        group.acquire(second);
        deliver_all(&mut group, &mut seen);
        for node in [first, second] {
            group.release(node);
            deliver_all(&mut group, &mut seen);
        }
    }
    assert!(seen.entered.iter().chain(&seen.left).all(|count| *count > 0), "{seen:?}");
}
