//! Members that reject each other say so to both sides: who, why, and what to do.

use std::time::Duration;

use hallpass::{Builder, Keys, Node};

use crate::common::{Authority, Log, Scratch, addresses, node_with_peer, trouble};

/// Two nodes with one list of peers.
struct Pair {
    addresses: Vec<String>,
    peers: Vec<String>,
}

impl Pair {
    fn new() -> Self {
        let mut addresses = addresses(2);
        addresses.sort_unstable();
        let peers = addresses.iter().zip(["a", "b"]).map(|(address, name)| format!("{name}@{address}")).collect();
        Self { addresses, peers }
    }

    fn builder(&self, index: usize) -> Builder {
        Node::builder().name(["a", "b"][index]).listen(&self.addresses[index]).peers(&self.peers)
    }
}

/// What both say, when they do not come together.
async fn troubles(a: &Node, b: &Node, expected: &str) -> [String; 2] {
    let said = [trouble(a, expected).await, trouble(b, expected).await];
    for text in &said {
        assert!(text.contains("'a' (") && text.contains("'b' ("), "both are named: {text}");
        assert!(!text.contains('\\') && !text.contains('\n'), "{text}");
    }
    said
}

#[tokio::test]
async fn other_groups_are_named() {
    let pair = Pair::new();
    let a = pair.builder(0).group("one's").start().await.unwrap();
    let b = pair.builder(1).group("two").start().await.unwrap();
    troubles(&a, &b, "of group 'one's'").await;
}

#[tokio::test]
async fn a_rejection_is_logged_once_while_it_lasts() {
    let log = Log::begin();
    let pair = Pair::new();
    let a = pair.builder(0).group("one").start().await.unwrap();
    let b = pair.builder(1).group("two").start().await.unwrap();
    troubles(&a, &b, "of group 'one'").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for side in ["it rejects this node", "this node rejects it"] {
        // Both call each other, as long as neither is in a group.
        assert!((1..=2).contains(&log.with(side).len()), "{:#?}", log.first(10));
    }
    let lines = log.with("of group 'one'");
    assert!(lines[0].contains("peer=b@") || lines[0].contains("peer=a@"), "{lines:?}");
}

#[tokio::test]
async fn a_peers_text_cannot_write_to_the_terminal() {
    let (node, _peer) = node_with_peer(|hello| hallpass_node::wire::Hello { group: "\u{1b}[2J".into(), ..hello }).await;
    let text = trouble(&node, "of group").await;
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[tokio::test]
async fn keys_that_do_not_fit_are_named() {
    let (scratch, ours, theirs) = (Scratch::new("foreign"), Authority::new(), Authority::new());
    let keys = |authority: &Authority, under: &str, name: &str| authority.keys(&scratch.join(under), name);
    let start = async |first: Option<Keys>, second: Option<Keys>| {
        let pair = Pair::new();
        let start = async |index: usize, keys: Option<Keys>| {
            let builder = pair.builder(index);
            if let Some(keys) = keys { builder.keys(keys) } else { builder }.start().await.unwrap()
        };
        [start(0, first).await, start(1, second).await]
    };
    let [a, b] = start(Some(keys(&ours, "1", "a")), Some(keys(&theirs, "1", "b"))).await;
    trouble(&a, "its keys come from another 'hallpass init'").await;
    trouble(&b, "a connection from its address has failed: this node's keys come from another 'hallpass init'").await;
    let [a, b] = start(Some(keys(&ours, "2", "a")), None).await;
    trouble(&a, "keys of the same 'hallpass init'").await;
    trouble(&b, "it has keys, and this node has none").await;
    let [a, b] = start(None, Some(keys(&ours, "3", "b"))).await;
    trouble(&a, "it has keys, and this node has none").await;
    trouble(&b, "it does not use TLS").await;
}

/// Who is called sees only that somebody at the address of a member has failed to authenticate.
#[tokio::test]
async fn old_certificates_are_named() {
    let log = Log::begin();
    let (scratch, authority) = (Scratch::new("expired"), Authority::new());
    let pair = Pair::new();
    let expired = authority.keys_until(&scratch, "a", 2020);
    let a = pair.builder(0).keys(expired).start().await.unwrap();
    let b = pair.builder(1).keys(authority.keys(&scratch, "b")).start().await.unwrap();
    trouble(&a, "this node's certificate has expired").await;
    trouble(&b, "its certificate has expired").await;
    assert!((1..=2).contains(&log.with("its certificate has expired").len()), "{:#?}", log.first(10));
}

/// The list says who is at an address. Any other node there is refused and told so, with or without keys.
#[tokio::test]
async fn a_name_in_the_list_is_enforced() {
    let (scratch, authority) = (Scratch::new("names"), Authority::new());
    for (other, encrypted) in [(0, false), (1, false), (0, true), (1, true)] {
        let pair = Pair::new();
        let mut builders = [pair.builder(0), pair.builder(1)];
        // The other one has itself without a name in its list, which is the same to the group.
        let mut peers = pair.peers.clone();
        peers[other].clone_from(&pair.addresses[other]);
        builders[other] = builders[other].clone().name("c").peers(peers);
        if encrypted {
            let names = [["c", "b"], ["a", "c"]][other];
            let keyed = builders.into_iter().zip(names);
            let keyed = keyed.map(|(builder, name)| builder.keys(authority.keys(&scratch, name)));
            builders = keyed.collect::<Vec<_>>().try_into().unwrap();
        }
        let [a, b] = builders;
        let nodes = [a.start().await.unwrap(), b.start().await.unwrap()];
        let rejected = trouble(&nodes[1 - other], "this node rejects it").await;
        let expected =
            ["is called 'a' in the list of members of 'b'", "is called 'b' in the list of members of 'a'"][other];
        assert!(rejected.contains("'c' (") && rejected.contains(expected), "{rejected}");
        assert!(!nodes[1 - other].status().complete);
        let told = trouble(&nodes[other], "it rejects this node").await;
        assert!(told.contains(expected), "{told}");
    }
}
