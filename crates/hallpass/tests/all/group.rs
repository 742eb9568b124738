//! Real nodes on loopback.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hallpass::{Keys, Node, StartError};
use hallpass_core::codec::{put_number, put_numbers};
use hallpass_node::wire::Hello;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{Authority, Log, Scratch, addresses, by_permissions, complete, group, named, soon, trouble, until};

/// All callers want one lock, many times: no two hold it at once, and fences rise.
async fn contend(nodes: &[Node], callers: usize, rounds: usize) {
    let (inside, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for caller in 0..callers {
        let lock = nodes[caller % nodes.len()].lock("contended");
        let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
        tasks.push(tokio::spawn(async move {
            for _ in 0..rounds {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                assert!(last.swap(guard.fence(), Ordering::SeqCst) < guard.fence(), "the fence did not rise");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_take_turns() {
    let nodes = group(3, |_, builder| builder).await;
    contend(&nodes, 8, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streaks_and_other_protocols_take_turns_too() {
    let nodes = group(3, |_, builder| builder.local_streak(4)).await;
    contend(&nodes, 7, 100).await;
    for protocol in ["ricart-agrawala", "lamport", "suzuki-kasami", "naimi-trehel", "raymond", "maekawa", "token"] {
        let nodes = group(3, |_, builder| builder.class("cont", protocol, &[])).await;
        contend(&nodes, 5, 30).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_make_a_group_and_keep_others_out() {
    let scratch = Scratch::new("keys");
    let (ours, theirs) = (Authority::new(), Authority::new());
    let keys: Vec<Keys> = (0..3).map(|index| ours.keys(&scratch, &format!("n{index}"))).collect();
    let nodes = group(3, |index, builder| builder.keys(keys[index].clone())).await;
    contend(&nodes, 6, 100).await;

    // A node with keys of another authority never completes a group, and does no harm.
    let pair = addresses(2);
    let start = |index: usize, keys: Keys| {
        Node::builder().name(format!("n{index}")).listen(&pair[index]).peers(named(&pair)).keys(keys).start()
    };
    let (member, other) =
        (start(0, keys[0].clone()).await.unwrap(), start(1, theirs.keys(&scratch, "n1")).await.unwrap());
    assert!(tokio::time::timeout(Duration::from_millis(500), other.ready()).await.is_err());
    assert!(!member.status().complete);
}

/// The two ends of a TLS connection with the keys of a member that does not keep to the rules.
struct Impostor(Keys);

impl Impostor {
    fn identity(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain = CertificateDer::pem_file_iter(&self.0.certificate).unwrap().collect::<Result<_, _>>().unwrap();
        (chain, PrivateKeyDer::from_pem_file(&self.0.key).unwrap())
    }

    /// Waits for a node's call: its greeting, and the stream to answer.
    fn answer(
        &self,
        listener: &std::net::TcpListener,
    ) -> (Hello, rustls::StreamOwned<rustls::ServerConnection, std::net::TcpStream>) {
        let (chain, key) = self.identity();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::StreamOwned::new(tls, listener.accept().unwrap().0);
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).unwrap();
        (Hello::decode(&buffer[..length]).unwrap().0, stream)
    }

    /// Calls a node with this greeting, and returns the beginning of what it answers.
    fn call(&self, address: &str, hello: &Hello) -> Vec<u8> {
        self.connect(address, hello).0
    }

    /// The same, with the connection.
    fn connect(&self, address: &str, hello: &Hello) -> (Vec<u8>, Called) {
        let (chain, key) = self.identity();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.0.authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        let tls = rustls::ClientConnection::new(Arc::new(config), "member.hallpass".try_into().unwrap()).unwrap();
        let socket = std::net::TcpStream::connect(address).unwrap();
        let mut stream = rustls::StreamOwned::new(tls, socket);
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        stream.write_all(&bytes).unwrap();
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).unwrap();
        (buffer[..length].to_vec(), stream)
    }
}

type Called = rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>;

/// What a control connection carries: its length, the version, the group, and the message's number and content.
fn control(group_id: u64, message: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![hallpass_node::wire::VERSION];
    put_number(&mut bytes, group_id);
    bytes.push(message);
    bytes.extend_from_slice(content);
    [&(bytes.len() as u32).to_be_bytes(), &bytes[..]].concat()
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// It has keys of the group's authority, greets as it should, and was never admitted. What it says then could give the lock to a second
/// holder, take it from the first, or end the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_with_a_valid_certificate_that_lies_changes_nothing() {
    // Far above those that a group takes from the clock.
    const EPOCH: u64 = 1 << 26;
    let log = Log::begin();
    let (scratch, authority) = (Scratch::new("liar"), Authority::new());
    let keys: Vec<Keys> = (0..2).map(|index| authority.keys(&scratch, &format!("n{index}"))).collect();
    let nodes = group(2, |index, builder| builder.keys(keys[index].clone())).await;
    complete(&nodes.iter().collect::<Vec<_>>(), 2).await;
    let guard = nodes[0].lock("x").acquire().await.unwrap();
    let (address, steward) = (nodes[1].address().to_string(), nodes[0].address().to_string());
    let liar = Impostor(authority.keys(&scratch, "n2"));
    let lies = tokio::task::spawn_blocking(move || {
        let greeting = Hello {
            group: "hallpass".to_owned(),
            name: "n2".to_owned(),
            from: hallpass_core::NodeId(77),
            to: hallpass_core::NodeId(0),
            plane: hallpass_node::wire::Plane::Control,
            address: "127.0.0.1:9".to_owned(),
            group_id: 0,
            incarnation: hallpass_node::Incarnation::FIRST,
            boot_id: 1,
            to_incarnation: None,
            received: 0,
            config_digest: 1,
            incarnations_digest: None,
        };
        let mut streams = Vec::new();
        for address in [&address, &steward] {
            let (answer, mut stream) = liar.connect(address, &greeting);
            let (hello, _) = Hello::decode(&answer).expect("a greeting");
            // A view of the victim alone, and its start.
            let mut prepare = Vec::new();
            put_numbers(&mut prepare, [hello.group_id, EPOCH, 900, 5_000_000_000, 10_000, 0, 1]);
            put_numbers(&mut prepare, [hello.from.0.into(), hello.incarnation.get().into(), 0]);
            put_text(&mut prepare, &hello.name);
            put_text(&mut prepare, &hello.address);
            put_numbers(&mut prepare, [0, 0, 0, 1, 77]);
            let mut start = Vec::new();
            put_numbers(&mut start, [EPOCH, 0, 1, 0]);
            let mut renewed = Vec::new();
            put_numbers(&mut renewed, [hello.incarnation.get().into(), u64::MAX]);
            let mut breaks = vec![7, 6];
            put_text(&mut breaks, "x");
            let mut join = Vec::new();
            put_numbers(&mut join, [hello.from.0.into(), hello.incarnation.get().into(), 1]);
            put_text(&mut join, "n2");
            put_text(&mut join, "127.0.0.1:9");
            put_number(&mut join, 0);
            let mut founding = Vec::new();
            put_numbers(&mut founding, [1, 1, 77, 1, 1]);
            put_text(&mut founding, "n2");
            put_text(&mut founding, "127.0.0.1:9");
            put_numbers(&mut founding, [EPOCH, 0]);
            let incarnation = hello.incarnation.get() as u8;
            for (number, content) in [
                (13, prepare),
                (15, start),
                (4, renewed),
                (17, breaks),
                (5, vec![incarnation]),
                (14, vec![1, 1, 0, 1, 0]),
                (12, vec![1, incarnation, 1]),
                (16, vec![1, incarnation]),
                (20, vec![7, 1, 0]),
                (6, join),
                (1, founding),
            ] {
                stream.write_all(&control(hello.group_id, number, &content).repeat(30)).unwrap();
            }
            streams.push(stream);
        }
        streams
    });
    let streams = lies.await.unwrap();
    let denied = || nodes.iter().map(|node| node.counters().denied).collect::<Vec<_>>();
    // All but the order, at the node that is not the steward: it says who is.
    until("the lies to arrive", || denied().iter().all(|count| *count >= 10 * 30)).await;
    let said = log.with("dropped a message that its sender may not send");
    assert!(said.iter().any(|line| line.contains("n2") && line.contains("Prepare")), "{said:?}");
    assert!(said.len() <= 2 * 10, "{} lines for {:?}", said.len(), denied());
    assert!(nodes[1].lock("x").try_acquire().await.unwrap().is_none(), "two hold the lock");
    assert!(!guard.is_lost());
    for node in &nodes {
        assert!(node.status().complete && node.status().epoch < Some(EPOCH), "{:?}", node.status());
        assert_eq!(node.counters().lapses, 0);
    }
    drop((streams, guard));
    drop(soon("the lock", nodes[1].lock("x").acquire()).await.unwrap());
}

/// Each request to join makes a node write down the whole group, on the thread that renews sessions. What cannot be read at once waits at its
/// sender.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_floods_is_read_at_a_steady_rate() {
    // In src/allowance.rs.
    const BURST: f64 = 400.0;
    const PER_SECOND: f64 = 200.0;
    let nodes = group(2, |_, builder| builder).await;
    complete(&nodes.iter().collect::<Vec<_>>(), 2).await;
    let addresses: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let (begun, is_over) = (std::time::Instant::now(), Arc::new(AtomicBool::new(false)));
    let _end = EndOnDrop(Arc::clone(&is_over));
    for address in addresses {
        let is_over = Arc::clone(&is_over);
        tokio::task::spawn_blocking(move || {
            let hello = Hello { from: hallpass_core::NodeId(77), ..greeting("guest") };
            let (group_id, mut stream) = greet(&address, &hello);
            let mut join = Vec::new();
            put_numbers(&mut join, [77, 1, 0]);
            put_text(&mut join, "guest");
            put_text(&mut join, "127.0.0.1:9");
            put_number(&mut join, 0);
            // The second is counted, since no stranger may say it.
            let flood = [control(group_id, 6, &join), control(group_id, 5, &[1])].concat().repeat(1000);
            stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                written += stream.write(&flood[written % flood.len()..]).unwrap_or(0);
            }
        });
    }
    let denied = || nodes.iter().map(|node| node.counters().denied).collect::<Vec<_>>();
    until("more than the first of it", || denied().iter().all(|count| *count >= 400)).await;
    let (denied, seconds) = (denied(), begun.elapsed().as_secs_f64());
    let most = (BURST + PER_SECOND * seconds) / 2.0;
    assert!(denied.iter().all(|count| *count as f64 <= most + 1.0), "{denied:?} of {most} after {seconds} s");
    for node in &nodes {
        assert!(node.status().complete && node.counters().lapses == 0, "{:?}", node.status());
    }
}

/// Sets a flag, also where a test fails.
struct EndOnDrop(Arc<AtomicBool>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Greets a node without keys. Returns its group, and the connection.
fn greet(address: &str, hello: &Hello) -> (u64, std::net::TcpStream) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    stream.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    loop {
        let mut part = [0; 1024];
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "it is refused");
        answer.extend_from_slice(&part[..length]);
        if let Ok((theirs, _)) = Hello::decode(&answer) {
            return (theirs.group_id, stream);
        }
    }
}

/// A node that is alone grants nothing more when a member of another group of its name greets: one that can prove who it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_member_can_tell_a_node_that_it_is_in_the_wrong_group() {
    let (scratch, authority) = (Scratch::new("wrong-group"), Authority::new());
    let address = addresses(1).remove(0);
    // A node with keys names all founders, itself too.
    let builder = Node::builder().name("n0").listen(&address).peers(named(std::slice::from_ref(&address)));
    let node = builder.keys(authority.keys(&scratch, "n0")).start().await.unwrap();
    let guard = node.lock("x").acquire().await.unwrap();
    let hello = Hello { group_id: 99, config_digest: 1, ..greeting("n1") };
    let call = |keys: Keys, hello: Hello| {
        let address = address.clone();
        soon("an answer", async { tokio::task::spawn_blocking(move || Impostor(keys).call(&address, &hello)).await })
    };
    // The certificate of another name; a group that nobody else was ever in.
    for (keys, config_digest) in [("n2", 1), ("n1", 0)] {
        let answer = call(authority.keys(&scratch, keys), Hello { config_digest, ..hello.clone() }).await.unwrap();
        assert!(answer.starts_with(b"deny"), "{answer:?}");
        assert!(!guard.is_lost() && node.status().complete, "{keys}, {config_digest}");
    }
    let answer = call(authority.keys(&scratch, "n1"), hello).await.unwrap();
    assert!(answer.starts_with(b"deny"), "{answer:?}");
    soon("the loss", guard.lost()).await;
    assert!(!node.status().complete);
    let why = node.status().waits_for.unwrap_or_default();
    assert!(why.contains("'n1' (127.0.0.1:9)") && why.contains("hallpass join"), "{why}");
}

/// A member's certificate is for one name: nobody can use it to speak for another member, neither called nor calling.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_uses_the_name_of_another_is_rejected() {
    let (scratch, authority) = (Scratch::new("impostor"), Authority::new());
    let pair = addresses(2);
    let start = |index: usize| {
        let name = format!("n{index}");
        let keys = authority.keys(&scratch, &name);
        Node::builder().name(name).listen(&pair[index]).peers(named(&pair)).keys(keys).start()
    };
    let impostor = Arc::new(Impostor(authority.keys(&scratch, "n2")));

    // It is called as n1 and answers as n1. The greeting of n0 tells it everything it needs.
    let listener = std::net::TcpListener::bind(&pair[1]).unwrap();
    let member = start(0).await.unwrap();
    let called = Arc::clone(&impostor);
    let greeting = tokio::task::spawn_blocking(move || {
        let (theirs, mut stream) = called.answer(&listener);
        let mut answer = Vec::new();
        let from = hallpass_core::NodeId(77);
        Hello { name: "n1".into(), from, to: theirs.from, ..theirs.clone() }.encode(&mut answer);
        stream.write_all(&answer).unwrap();
        // Its other calls are not answered.
        (theirs, listener)
    });
    let (greeting, listener) = greeting.await.unwrap();
    trouble(&member, "the certificate of 'n1'").await;
    assert!(!member.status().complete);
    drop((member, listener));

    // It calls n1 as n0, first with n0's greeting, then with its own name in it. With n0's keys that works.
    let member = start(1).await.unwrap();
    let own = Arc::new(Impostor(authority.keys(&scratch, "n0")));
    let call = async |who: &Arc<Impostor>, name: &str| {
        let (who, address, hello) = (Arc::clone(who), pair[1].clone(), Hello { name: name.into(), ..greeting.clone() });
        tokio::task::spawn_blocking(move || who.call(&address, &hello)).await.unwrap()
    };
    for name in ["n0", "n2"] {
        let answer = call(&impostor, name).await;
        assert!(answer.starts_with(b"deny"), "{name}: {}", String::from_utf8_lossy(&answer));
        assert!(!member.status().complete);
    }
    assert!(call(&own, "n0").await.starts_with(b"hall"));
}

/// The TLS library compares names without regard to case and trailing dots, and every certificate of a group is valid for one more name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_for_one_name_byte_for_byte() {
    let (scratch, authority) = (Scratch::new("one-name"), Authority::new());
    let address = addresses(1).remove(0);
    let peers = named(std::slice::from_ref(&address));
    let node = Node::builder().name("n0").listen(&address).peers(peers).keys(authority.keys(&scratch, "n0"));
    let node = node.start().await.unwrap();
    node.ready().await;
    let several = authority.keys_for(&scratch.join("several"), &["b", "c", "member.hallpass"]);
    let foreign = authority.keys_for(&scratch.join("foreign"), &["b"]);
    let own = || authority.keys(&scratch, "b");
    let refused = [
        (own(), "B"),
        (own(), "b."),
        (own(), "member.hallpass"),
        (several.clone(), "b"),
        (several, "c"),
        (foreign, "b"),
    ];
    for (keys, name) in refused.into_iter().chain([(own(), "b")]) {
        let hello = greeting(name);
        let is_own = keys.certificate == own().certificate && name == "b";
        let address = address.clone();
        let answer = tokio::task::spawn_blocking(move || Impostor(keys).call(&address, &hello)).await.unwrap();
        let expected: &[u8] = if is_own { b"hall" } else { b"deny" };
        assert!(answer.starts_with(expected), "{name}: {}", String::from_utf8_lossy(&answer));
    }
    // Nor does a node begin with a name that is not its certificate's.
    for (name, certificate) in
        [("B", "b"), ("b.", "b"), ("member.hallpass", "member.hallpass"), ("Member.Hallpass.", "b")]
    {
        let builder = Node::builder().name(name).join(&address).listen("127.0.0.1:0").advertise("127.0.0.1:9");
        let error = builder.keys(authority.keys(&scratch.join("second"), certificate)).start().await.err();
        assert!(error.is_some(), "{name}");
    }
}

/// The greeting of a node that is in no group and looks for one.
fn greeting(name: &str) -> Hello {
    Hello {
        group: "hallpass".to_owned(),
        name: name.to_owned(),
        from: hallpass_core::NodeId(77),
        to: hallpass_core::NodeId(0),
        plane: hallpass_node::wire::Plane::Control,
        address: "127.0.0.1:9".to_owned(),
        group_id: 0,
        incarnation: hallpass_node::Incarnation::FIRST,
        boot_id: 1,
        to_incarnation: None,
        received: 0,
        config_digest: 0,
        incarnations_digest: None,
    }
}

#[tokio::test]
async fn garbage_and_other_groups_are_rejected_and_do_no_harm() {
    let nodes = group(2, |_, builder| builder).await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"hall\xff\xff", b"hall\x00\x02\x09\x00", b""] {
        let mut stream = TcpStream::connect(nodes[1].address()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ =
            tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.expect("it is closed");
    }
    // One of another group, at an address of this one's list.
    let pair = addresses(2);
    let start = |index: usize, group: &str| Node::builder().group(group).listen(&pair[index]).peers(&pair).start();
    let (one, other) = (start(0, "one").await.unwrap(), start(1, "other").await.unwrap());
    assert!(tokio::time::timeout(Duration::from_millis(300), one.ready()).await.is_err());
    assert!(!other.status().complete);
    contend(&nodes, 4, 50).await;
}

/// Relays bytes, and cuts each connection after some of them: within a frame, a greeting or a handshake.
async fn relay_and_cut(listener: TcpListener, to: String, cuts: Arc<AtomicUsize>) {
    for seed in 1_u64.. {
        let (Ok((mut near, _)), Ok(mut far)) = (listener.accept().await, TcpStream::connect(&to).await) else {
            continue;
        };
        let cuts = Arc::clone(&cuts);
        tokio::spawn(async move {
            let mut left = 150 + (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % 12_000;
            let (mut forth, mut back) = ([0; 700], [0; 700]);
            while left > 0 {
                let (bytes, sink) = tokio::select! {
                    read = near.read(&mut forth) => (&forth[..read.unwrap_or(0)], &mut far),
                    read = far.read(&mut back) => (&back[..read.unwrap_or(0)], &mut near),
                };
                let bytes = &bytes[..bytes.len().min(left)];
                if bytes.is_empty() || sink.write_all(bytes).await.is_err() {
                    return;
                }
                left -= bytes.len();
            }
            cuts.fetch_add(1, Ordering::Relaxed);
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_are_replaced_unnoticed() {
    let (scratch, authority) = (Scratch::new("cuts"), Authority::new());
    for encrypted in [false, true] {
        let (fronts, cuts) = (addresses(3), Arc::new(AtomicUsize::new(0)));
        let mut nodes = Vec::new();
        for (index, front) in fronts.iter().enumerate() {
            let behind = addresses(1).remove(0);
            let listener = TcpListener::bind(front).await.unwrap();
            tokio::spawn(relay_and_cut(listener, behind.clone(), Arc::clone(&cuts)));
            let name = format!("n{index}");
            let mut builder = Node::builder().name(&name).listen(behind).advertise(front).peers(named(&fronts));
            if encrypted {
                builder = builder.keys(authority.keys(&scratch, &name));
            }
            nodes.push(builder.start().await.unwrap());
        }
        contend(&nodes, 6, 25).await;
        assert!(cuts.load(Ordering::Relaxed) > 3, "{cuts:?}");
    }
}

/// All on one thread: a caller who finds the lock here every time must not keep it from the other members.
#[tokio::test]
async fn a_caller_who_never_waits_lets_others_in() {
    let nodes = group(2, |_, builder| builder).await;
    let greedy = nodes[0].lock("x");
    drop(greedy.acquire().await.unwrap());
    // Long enough for the lock to count as uncontended again.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let other = {
        let lock = nodes[1].lock("x");
        tokio::spawn(async move { lock.acquire().await.unwrap().fence() })
    };
    for _ in 0..1_000_000 {
        drop(greedy.acquire().await.unwrap());
        if other.is_finished() {
            return;
        }
    }
    panic!("the other was never granted the lock");
}

/// The same with a new handle each time, in all the ways there are to ask: none of them may keep the one thread to itself.
#[tokio::test]
async fn no_loop_of_a_caller_starves_another_node() {
    let nodes = group(2, |_, builder| builder).await;
    let (near, far) = (&nodes[0], &nodes[1]);
    async fn ask(node: &Node, how: usize) {
        match how {
            0 => drop(node.lock("x").acquire().await.unwrap()),
            1 => drop(node.lock("x").acquire_shared().await.unwrap()),
            2 => drop(node.acquire_all(["x", "y"]).await.unwrap()),
            3 => drop(node.elect("x").await.unwrap()),
            4 => drop(node.lock("x").acquire_timeout(Duration::from_secs(60)).await.unwrap()),
            // Somebody else on this node holds it: the answer is there at once.
            _ => assert!(node.lock("held").try_acquire().await.unwrap().is_none()),
        }
    }
    let held = near.lock("held").acquire().await.unwrap();
    for how in 0..6 {
        ask(near, how).await;
        let other = tokio::spawn({
            let lock = far.lock("x");
            async move { lock.acquire().await.unwrap().fence() }
        });
        let mut rounds = 0;
        while !other.is_finished() {
            ask(near, how).await;
            rounds += 1;
            assert!(rounds < 1_000_000, "way {how}: the other was not granted the lock");
        }
    }
    drop(held);
}

/// A caller who works long under the lock, without waiting for anything, is rarely counted: the time counts, too.
#[tokio::test]
async fn a_caller_who_works_long_lets_others_in() {
    let nodes = group(2, |_, builder| builder).await;
    drop(nodes[0].lock("x").acquire().await.unwrap());
    let other = tokio::spawn({
        let lock = nodes[1].lock("x");
        async move { lock.acquire().await.unwrap().fence() }
    });
    for _ in 0..50 {
        let guard = nodes[0].lock("x").acquire().await.unwrap();
        std::thread::sleep(Duration::from_millis(1));
        drop(guard);
        if other.is_finished() {
            return;
        }
    }
    panic!("the other was never granted the lock");
}

/// A permission counts as unused from the release on, however long the lock was held; after a while it is dropped.
#[tokio::test]
async fn permissions_are_kept_for_a_while_after_the_release() {
    let nodes = group(2, |index, builder| by_permissions(index, builder).cache_idle(Duration::from_secs(3))).await;
    let lock = nodes[0].lock("x");
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(3500)).await;
    drop(guard);
    // Longer than the node takes to look at the time.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = nodes[0].status().messages;
    drop(lock.acquire().await.unwrap());
    assert_eq!(nodes[0].status().messages, before);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if nodes[0].status().locks == 0 {
            return;
        }
    }
    panic!("it was never dropped");
}

/// Epochs come from the clock only where nothing is stored; a directory of an earlier version says how far they have come.
#[tokio::test]
async fn a_directory_of_an_earlier_version_is_taken_over() {
    let scratch = Scratch::new("earlier");
    let directory = |name: &str| {
        let path = scratch.join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let (old, fresh) = (directory("old"), directory("fresh"));
    std::fs::write(old.join("incarnation"), "7000000\n").unwrap();
    let epoch = async |builder: hallpass::Builder| {
        let node = builder.start().await.unwrap();
        node.ready().await;
        node.status().epoch.unwrap()
    };
    let taken_over = epoch(Node::builder().data(&old)).await;
    assert!((7_000_001..7_000_100).contains(&taken_over), "{taken_over}");
    assert!(epoch(Node::builder().data(&old)).await > taken_over);
    assert!(epoch(Node::builder().data(&fresh)).await < 100);
    assert!(epoch(Node::builder()).await > 1_000_000);
}

#[tokio::test]
async fn a_directory_that_others_can_write_to_is_rejected() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("open");
    std::fs::set_permissions(&scratch, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = Node::builder().listen("127.0.0.1:0").data(scratch.path()).start().await.err().unwrap();
    assert!(error.to_string().contains("other users can write to it"), "{error}");
}

#[tokio::test]
async fn wrong_settings_are_one_clear_line() {
    let text = |error: StartError| {
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let exposed = text(Node::builder().listen("0.0.0.0:0").start().await.err().unwrap());
    assert!(exposed.contains("hallpass init"), "{exposed}");
    let node = Node::builder().start().await.unwrap();
    let taken = text(Node::builder().listen(node.address().to_string()).start().await.err().unwrap());
    assert!(taken.contains(&node.address().to_string()), "{taken}");
    let class = text(Node::builder().class("x", "paxos", &[]).start().await.err().unwrap());
    assert!(class.contains("paxos"), "{class}");
    let classic = Node::builder().class("x", "ricart-agrawala", &["membership=classic"]);
    let classic = text(classic.start().await.err().unwrap());
    assert!(classic.contains("laboratory"), "{classic}");
    let scratch = Scratch::new("data");
    let data = || Node::builder().data(scratch.join("d"));
    let first = data().start().await.unwrap();
    first.ready().await;
    let epoch = first.status().epoch.unwrap();
    assert!(text(data().start().await.err().unwrap()).contains("another node uses"));
    drop(first);
    let second = data().start().await.unwrap();
    second.ready().await;
    assert!(second.status().epoch > Some(epoch), "each start counts");
    let keys = Authority::new().keys(&scratch, "a");
    let foreign = text(Node::builder().name("b").keys(keys).start().await.err().unwrap());
    assert!(foreign.contains("not a certificate of 'b'"), "{foreign}");
}
