use super::super::*;
use crate::protocol::hands::Hands;

/// The short cuts do what the long way does, or nothing.
#[test]
fn short_cuts_lead_to_the_same_place() {
    let mut net = Hands::<CarvalhoRoucairol>::new(3, "");
    let mut seen = [0; 4];
    let mut compare = |net: &Hands<CarvalhoRoucairol>| {
        for node in net.nodes.values() {
            for mode in [Mode::Exclusive, Mode::Shared] {
                let (mut short, mut long, mut out) = (node.clone(), node.clone(), Effects::new());
                let entered = short.enter_fast(mode);
                if node.request.is_none() {
                    long.handle(Input::Acquire { mode, draw: 0 }, &mut out);
                    let at_once = matches!(out.as_slice(), [Effect::Enter { .. }]);
                    assert_eq!(entered.is_some(), at_once);
                }
                match entered {
                    Some(fence) => assert_eq!((&short, out), (&long, vec![Effect::Enter { fence }])),
                    None => assert_eq!(&short, node),
                }
                seen[usize::from(entered.is_some())] += 1;
            }
            let (mut short, mut long, mut out) = (node.clone(), node.clone(), Effects::new());
            let left = short.leave_fast();
            if left {
                long.handle(Input::Release, &mut out);
                assert_eq!((&short, out), (&long, Effects::new()));
            } else {
                assert_eq!(&short, node);
            }
            seen[2 + usize::from(left)] += 1;
        }
    };
    for asks in [1, 1, 2, 3, 1, 2, 2] {
        compare(&net);
        net.ask(asks);
        while let Some((from, to, _)) = net.flying.first().cloned() {
            compare(&net);
            let (_, _, message) = net.flying.remove(0);
            net.receive(from, to, message);
        }
        // Somebody waits while it is inside, every other time.
        let other = asks % 3 + 1;
        net.ask(other);
        while let Some((from, to, _)) = net.flying.first().cloned() {
            compare(&net);
            let (_, _, message) = net.flying.remove(0);
            net.receive(from, to, message);
        }
        for node in [asks, other] {
            compare(&net);
            net.exit(node);
            while let Some((from, to, _)) = net.flying.first().cloned() {
                let (_, _, message) = net.flying.remove(0);
                net.receive(from, to, message);
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}
