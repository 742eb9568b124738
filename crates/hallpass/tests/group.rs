//! Real nodes on loopback.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use common::{Authority, Scratch, addresses, group};
use hallpass::{AcquireError, Keys, Node, StartError};
use hallpass_node::wire::Hello;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Everybody wants one lock, many times: nobody meets anybody inside, and fences rise.
async fn contend(nodes: &[Node], callers: usize, rounds: usize) {
    let (inside, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for caller in 0..callers {
        let lock = nodes[caller % nodes.len()].lock("contended");
        let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
        tasks.push(tokio::spawn(async move {
            for _ in 0..rounds {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
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
async fn keys_make_a_group_and_keep_strangers_out() {
    let scratch = Scratch::new("keys");
    let (ours, theirs) = (Authority::new(), Authority::new());
    let keys: Vec<Keys> = (0..3).map(|at| ours.keys(&scratch.0, &format!("n{at}"))).collect();
    let nodes = group(3, |at, builder| builder.keys(keys[at].clone())).await;
    contend(&nodes, 6, 100).await;

    // A stranger with keys of its own authority never completes a group, and harms nobody.
    let pair = addresses(2);
    let start = |at: usize, keys: Keys| {
        Node::builder().name(format!("n{at}")).listen(&pair[at]).peers(&pair).keys(keys).start()
    };
    let (member, stranger) =
        (start(0, keys[0].clone()).await.unwrap(), start(1, theirs.keys(&scratch.0, "n1")).await.unwrap());
    assert!(tokio::time::timeout(Duration::from_millis(500), stranger.ready()).await.is_err());
    assert!(!member.status().complete);
}

/// A member's certificate is for one name: with it nobody speaks for another member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_calls_itself_by_anothers_name_is_refused() {
    let (scratch, authority) = (Scratch::new("impostor"), Authority::new());
    let mut pair = addresses(2);
    // The lower one calls.
    pair.sort_unstable();
    let listener = std::net::TcpListener::bind(&pair[1]).unwrap();
    let own = authority.keys(&scratch.0, "n2");
    let impostor = tokio::task::spawn_blocking(move || {
        let chain = CertificateDer::pem_file_iter(&own.certificate).unwrap().collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let mut tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut socket = listener.accept().unwrap().0;
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let mut buffer = [0; 1024];
        let length = std::io::Read::read(&mut stream, &mut buffer).unwrap();
        let (theirs, _) = Hello::decode(&buffer[..length]).unwrap();
        let mut answer = Vec::new();
        Hello { name: "n1".into(), from: theirs.to, to: theirs.from, ..theirs }.encode(&mut answer);
        std::io::Write::write_all(&mut stream, &answer).unwrap();
    });
    let keys = authority.keys(&scratch.0, "n0");
    let member = Node::builder().name("n0").listen(&pair[0]).peers(&pair).keys(keys).start().await.unwrap();
    impostor.await.unwrap();
    let trouble = || member.status().members.iter().find_map(|member| member.trouble.clone()).unwrap_or_default();
    for _ in 0..500 {
        if trouble().contains("certificate is not that of 'n1'") {
            return assert!(!member.status().complete);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was not refused: {}", trouble());
}

#[tokio::test]
async fn garbage_and_other_groups_are_refused_and_harm_nobody() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let nodes = group(2, |_, builder| builder).await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"hall\xff\xff", b"hall\x00\x02\x09\x00", b""] {
        let mut stream = tokio::net::TcpStream::connect(nodes[1].address()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ =
            tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.expect("it is closed");
    }
    // One of another group, at an address of this one's list.
    let pair = addresses(2);
    let start = |at: usize, group: &str| Node::builder().group(group).listen(&pair[at]).peers(&pair).start();
    let (one, other) = (start(0, "one").await.unwrap(), start(1, "other").await.unwrap());
    assert!(tokio::time::timeout(Duration::from_millis(300), one.ready()).await.is_err());
    assert!(!other.status().complete);
    contend(&nodes, 4, 50).await;
}

/// Passes bytes on, and cuts each connection after some: in the midst of a frame or of a greeting, or of a handshake.
async fn cut_now_and_then(listener: TcpListener, to: String, cuts: Arc<AtomicUsize>) {
    for seed in 1_u64.. {
        let (Ok((mut near, _)), Ok(mut far)) = (listener.accept().await, TcpStream::connect(&to).await) else {
            continue;
        };
        let cuts = Arc::clone(&cuts);
        tokio::spawn(async move {
            let mut left = 150 + (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % 12_000;
            let (mut there, mut back) = ([0; 700], [0; 700]);
            while left > 0 {
                let (bytes, sink) = tokio::select! {
                    read = near.read(&mut there) => (&there[..read.unwrap_or(0)], &mut far),
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
async fn connections_that_break_are_made_again_and_nobody_notices() {
    let (scratch, authority) = (Scratch::new("cuts"), Authority::new());
    for sealed in [false, true] {
        let (fronts, cuts) = (addresses(3), Arc::new(AtomicUsize::new(0)));
        let mut nodes = Vec::new();
        for (at, front) in fronts.iter().enumerate() {
            let behind = addresses(1).remove(0);
            let listener = TcpListener::bind(front).await.unwrap();
            tokio::spawn(cut_now_and_then(listener, behind.clone(), Arc::clone(&cuts)));
            let name = format!("n{at}");
            let mut builder = Node::builder().name(&name).listen(behind).advertise(front).peers(&fronts);
            if sealed {
                builder = builder.keys(authority.keys(&scratch.0, &name));
            }
            nodes.push(builder.start().await.unwrap());
        }
        contend(&nodes, 6, 25).await;
        assert!(cuts.load(Ordering::Relaxed) > 3, "{cuts:?}");
    }
}

/// One thread for everybody: a caller who finds the lock there every time must not keep it from the others.
#[tokio::test]
async fn a_caller_who_never_waits_lets_others_have_their_turn() {
    let nodes = group(2, |_, builder| builder).await;
    let greedy = nodes[0].lock("x");
    drop(greedy.acquire().await.unwrap());
    // Long enough for it to be no longer wanted elsewhere.
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
    panic!("the other never got in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_at_once_in_any_order_never_wait_in_a_circle() {
    let nodes = group(2, |_, builder| builder).await;
    let wishes = [["a", "b"], ["b", "a"]];
    let everybody = nodes.iter().zip(wishes).map(|(node, names)| async move {
        for _ in 0..200 {
            let guards = node.acquire_all(names).await.unwrap();
            assert_eq!(guards.len(), 2);
            tokio::task::yield_now().await;
        }
    });
    let [one, other]: [_; 2] = everybody.collect::<Vec<_>>().try_into().ok().unwrap();
    let both = async { tokio::join!(one, other) };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("nobody waits for ever");
    // The same lock twice is one lock.
    assert_eq!(nodes[0].acquire_all(["a", "a"]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_dropped_future_leaves_no_trace() {
    let nodes = group(3, |_, builder| builder).await;
    let guard = nodes[0].lock("x").acquire().await.unwrap();
    let waiting = nodes[1].lock("x");
    for _ in 0..20 {
        let late = waiting.acquire_timeout(Duration::from_millis(2)).await;
        assert_eq!(late.unwrap_err(), AcquireError::Timeout);
    }
    assert_eq!(nodes[1].locks().iter().map(|lock| lock.waiters).sum::<usize>(), 0);
    assert!(nodes[2].lock("x").try_acquire().await.unwrap().is_none());
    drop(guard);
    let fence = nodes[2].lock("x").acquire().await.unwrap().fence();
    assert!(nodes[1].lock("x").acquire().await.unwrap().fence() > fence);
}

#[tokio::test]
async fn readers_share_and_a_writer_waits_for_them() {
    let nodes = group(3, |_, builder| builder).await;
    let mut readers = Vec::new();
    for node in &nodes {
        readers.push(node.lock("x").acquire_shared().await.unwrap());
        readers.push(node.lock("x").acquire_shared().await.unwrap());
    }
    assert!(nodes[0].lock("x").try_acquire().await.unwrap().is_none());
    let writer = {
        let lock = nodes[0].lock("x");
        tokio::spawn(async move { lock.acquire().await.unwrap().fence() })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!writer.is_finished());
    let shared = readers[0].fence();
    drop(readers);
    assert!(writer.await.unwrap() >= shared);
    // Permissions stay: reading again on every node asks nobody.
    for node in &nodes {
        drop(node.lock("x").acquire_shared().await.unwrap());
    }
    let before: Vec<u64> = nodes.iter().map(|node| node.status().messages).collect();
    for node in &nodes {
        drop(node.lock("x").acquire_shared().await.unwrap());
    }
    let after: Vec<u64> = nodes.iter().map(|node| node.status().messages).collect();
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_stopped_node_tells_its_callers() {
    let nodes = group(2, |_, builder| builder).await;
    let guard = nodes[0].lock("x").acquire().await.unwrap();
    let waiting = {
        let lock = nodes[1].lock("x");
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    nodes[1].stop().await;
    assert_eq!(waiting.await.unwrap().unwrap_err(), AcquireError::Stopped);
    assert_eq!(nodes[1].lock("y").acquire().await.map(drop).unwrap_err(), AcquireError::Stopped);
    nodes[0].stop().await;
    guard.lost().await;
    assert!(guard.release().await.is_err());
}

/// A member takes the request of somebody who only tries, and dies instead of answering.
#[tokio::test]
async fn an_attempt_ends_when_a_member_dies_in_the_midst_of_it() {
    let mut addresses = addresses(2);
    // The lower one calls.
    addresses.sort_unstable();
    let listener = TcpListener::bind(&addresses[1]).await.unwrap();
    let node = Node::builder().name("a").listen(&addresses[0]).peers(&addresses).start().await.unwrap();
    let mut caller = listener.accept().await.unwrap().0;
    let mut buffer = [0; 1024];
    let length = caller.read(&mut buffer).await.unwrap();
    let (theirs, _) = Hello::decode(&buffer[..length]).unwrap();
    let answer = Hello { name: "b".into(), from: theirs.to, to: theirs.from, incarnations_digest: None, ..theirs };
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    caller.write_all(&bytes).await.unwrap();
    node.ready().await;
    let lock = node.lock("x");
    let attempt = tokio::spawn(async move { lock.try_acquire().await.map(|guard| guard.is_some()) });
    assert!(caller.read(&mut buffer).await.unwrap() > 0, "the request");
    drop((caller, listener));
    let answered = tokio::time::timeout(Duration::from_secs(30), attempt).await.expect("to be answered");
    assert_eq!(answered.unwrap(), Ok(false));
}

/// A permission counts as unused from the release on, however long the lock was held; and then it is given up.
#[tokio::test]
async fn what_was_held_for_long_is_kept_for_a_while_after_the_release() {
    let nodes = group(2, |_, builder| builder.cache_idle(Duration::from_secs(3))).await;
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
    panic!("it was never given up");
}

/// Fences rise although the member with the most lives is replaced, and although a directory is lost.
#[tokio::test]
async fn fences_rise_whoever_the_members_are() {
    let scratch = Scratch::new("lives");
    let data = |name: &str| scratch.0.join(name);
    let mut last = 0;
    let mut enter = async |members: &[&str]| {
        let nodes = group(members.len(), |at, builder| builder.data(data(members[at]))).await;
        let fence = nodes[0].lock("x").acquire().await.unwrap().fence();
        assert!(fence > last, "{members:?}: {fence} after {last}");
        last = fence;
    };
    enter(&["a", "b"]).await;
    for _ in 0..3 {
        drop(Node::builder().listen("127.0.0.1:0").data(data("a")).start().await.unwrap());
    }
    enter(&["a", "b"]).await;
    enter(&["b", "c"]).await;
    enter(&["c"]).await;
    enter(&["a", "c"]).await;
}

#[tokio::test]
async fn a_directory_that_others_can_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("open");
    std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Node::builder().listen("127.0.0.1:0").data(&scratch.0).start().await.err().unwrap();
    assert!(refused.to_string().contains("others can write there"), "{refused}");
}

#[tokio::test]
async fn settings_that_do_not_fit_are_one_clear_line() {
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
    let central = text(Node::builder().class("x", "central", &[]).start().await.err().unwrap());
    assert!(central.contains("laboratory"), "{central}");
    let scratch = Scratch::new("data");
    let data = || Node::builder().data(scratch.0.join("d"));
    let first = data().start().await.unwrap();
    let epoch = first.status().epoch.unwrap();
    assert!(text(data().start().await.err().unwrap()).contains("another node uses"));
    drop(first);
    assert_eq!(data().start().await.unwrap().status().epoch, Some(epoch + 1), "each life has its number");
    let keys = Authority::new().keys(&scratch.0, "a");
    let foreign = text(Node::builder().name("b").keys(keys).start().await.err().unwrap());
    assert!(foreign.contains("no certificate of 'b'"), "{foreign}");
}
