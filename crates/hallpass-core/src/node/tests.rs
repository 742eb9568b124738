use super::*;

/// Two nodes and the bytes between them.
fn pair() -> [Node<u32>; 2] {
    let members = [NodeId(1), NodeId(2)];
    members.map(|me| Node::new(NodeConfig::new(me, members)).unwrap())
}

fn connect(nodes: &mut [Node<u32>; 2]) {
    let hello = [nodes[0].hello(NodeId(2)).unwrap(), nodes[1].hello(NodeId(1)).unwrap()];
    nodes[1].handle_hello(&hello[0], 0).unwrap();
    nodes[0].handle_hello(&hello[1], 0).unwrap();
}

/// Carries bytes to and fro until nothing is left to carry.
fn exchange(nodes: &mut [Node<u32>; 2]) {
    loop {
        let mut moved = false;
        for (from, to) in [(0, 1), (1, 0)] {
            let ids = [nodes[0].id(), nodes[1].id()];
            let bytes = nodes[from].poll_transmit(ids[to]).to_vec();
            nodes[from].handle_transmitted(ids[to], bytes.len());
            nodes[to].handle_bytes(ids[from], &bytes, 0).unwrap();
            moved |= !bytes.is_empty();
        }
        if !moved {
            return;
        }
    }
}

fn wait(node: &mut Node<u32>, mode: Mode, caller: u32) -> Answer {
    node.handle_acquire("x", mode, Patience::Wait, 0, || caller).unwrap()
}

fn granted(node: &mut Node<u32>) -> (u32, Ticket, u64) {
    match node.poll_output() {
        Some(Output::Granted { caller, ticket, fence }) => (caller, ticket, fence.count()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lock_goes_to_and_fro_and_is_forgotten() {
    let mut nodes = pair();
    let Answer::Waiting(_) = wait(&mut nodes[0], Mode::Exclusive, 7) else { panic!("nobody is there yet") };
    connect(&mut nodes);
    exchange(&mut nodes);
    let (caller, first, fence) = granted(&mut nodes[0]);
    assert_eq!((caller, fence), (7, 1));
    assert!(matches!(wait(&mut nodes[1], Mode::Exclusive, 8), Answer::Waiting(_)));
    exchange(&mut nodes);
    assert_eq!(nodes[1].poll_output(), None);
    assert!(nodes[0].handle_release(first, 0));
    assert!(!nodes[0].handle_release(first, 0), "a turn ends once");
    exchange(&mut nodes);
    let (caller, second, fence) = granted(&mut nodes[1]);
    assert_eq!((caller, fence), (8, 2));
    assert!(nodes[1].handle_release(second, 0));
    // The permission stays for a while; then nothing is left.
    assert!(
        matches!(wait(&mut nodes[1], Mode::Exclusive, 9), Answer::Granted(ticket, fence) if fence.count() == 3 && nodes[1].handle_release(ticket, 0))
    );
    let late = nodes[1].poll_timeout().unwrap();
    nodes.iter_mut().for_each(|node| node.handle_timeout(late));
    assert!(nodes.iter().all(Node::is_empty));
    assert!(matches!(wait(&mut nodes[0], Mode::Exclusive, 1), Answer::Waiting(_)));
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[0]).2, 4, "the floor outlives the lock");
}

#[test]
fn an_attempt_is_answered_by_who_is_before_it_and_the_next_caller_is_served() {
    let mut nodes = pair();
    connect(&mut nodes);
    assert!(matches!(wait(&mut nodes[0], Mode::Exclusive, 1), Answer::Waiting(_)));
    exchange(&mut nodes);
    let (_, inside, _) = granted(&mut nodes[0]);
    let tried = nodes[1].handle_acquire("x", Mode::Exclusive, Patience::Try, 0, || 2).unwrap();
    assert!(matches!(tried, Answer::Waiting(_)));
    assert!(matches!(wait(&mut nodes[1], Mode::Exclusive, 3), Answer::Waiting(_)));
    exchange(&mut nodes);
    assert_eq!(nodes[1].poll_output(), Some(Output::Busy { caller: 2 }));
    assert!(nodes[0].handle_release(inside, 0));
    exchange(&mut nodes);
    assert_eq!(granted(&mut nodes[1]).0, 3, "the request of an attempt is not taken over by the next caller");
}

#[test]
fn what_only_shows_failures_is_for_the_laboratory() {
    let classes = [
        ("ricart-agrawala", "numbers=modulo:5"),
        ("ricart-agrawala", "fence=off"),
        ("ricart-agrawala", "reply=implicit"),
        ("ricart-agrawala", "membership=classic"),
        ("ricart-agrawala", "medium=sequenced"),
        ("ricart-agrawala", "as-printed=T1"),
        ("raymond", "recovery=classic"),
        ("raymond", "start=initialize"),
        ("maekawa", "failed=arrival"),
        ("token-ring", "idle=spin"),
        ("lamport-fifo", "links=any"),
        ("carvalho-roucairol", "cache-idle=1s"),
    ];
    for (protocol, option) in classes {
        let mut config = NodeConfig::new(NodeId(1), [NodeId(1), NodeId(2)]);
        let (protocol, options) = (protocol.to_owned(), vec![option.to_owned()]);
        config.classes.push(Class { prefix: "x".to_owned(), protocol, options });
        assert!(Node::<u32>::new(config).is_err(), "{option}");
    }
}
