//! Connections of strangers: they keep no member out, and do not fill the log.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hallpass::{Keys, Node};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Authority, Log, Scratch, addresses, node_with_silent_peer};

/// Long enough for every machine: what takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps many connections with a node open, and opens each again when the node closes it, until this is dropped.
struct Strangers {
    opened: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Strangers {
    const COUNT: usize = 150;

    /// Each connection comes from one of these addresses, and says this before it falls silent.
    fn begin(to: SocketAddr, sources: Vec<Ipv4Addr>, says: &'static [u8]) -> Self {
        let (opened, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&opened), Arc::clone(&over));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = std::thread::spawn(move || {
            let mut open: Vec<Option<TcpStream>> = (0..Self::COUNT).map(|_| None).collect();
            while !end.load(Ordering::Relaxed) {
                for (socket, source) in open.iter_mut().zip(sources.iter().cycle()) {
                    if end.load(Ordering::Relaxed) || socket.as_mut().is_some_and(is_open) {
                        continue;
                    }
                    *socket = runtime.block_on(connect(*source, to));
                    if let Some(socket) = socket {
                        let _ = socket.write_all(says);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { opened, over, thread: Some(thread) }
    }

    async fn all_there(&self) {
        while self.opened.load(Ordering::Relaxed) < Self::COUNT {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> Option<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).ok()?;
    let stream = tokio::time::timeout(Duration::from_secs(1), socket.connect(to)).await.ok()?.ok()?;
    stream.into_std().ok()
}

/// The node has not closed it.
fn is_open(socket: &mut TcpStream) -> bool {
    socket.read(&mut [0; 64]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// A member joins while strangers take all the places they can get.
async fn a_member_joins(keys: [Option<Keys>; 2], sources: Vec<Ipv4Addr>, says: &'static [u8]) {
    let log = Log::begin();
    // The lower one makes the connection.
    let pair = addresses(2);
    let peers = [format!("n0@{}", pair[0]), format!("n1@{}", pair[1])];
    let [first, second] = keys;
    let start = async |index: usize, keys: Option<Keys>| {
        let builder = Node::builder().name(format!("n{index}")).listen(&pair[index]).peers(&peers);
        if let Some(keys) = keys { builder.keys(keys) } else { builder }.start().await.unwrap()
    };
    let there = start(1, second).await;
    let strangers = Strangers::begin(there.address(), sources, says);
    strangers.all_there().await;
    let member = start(0, first).await;
    tokio::time::timeout(PATIENCE, member.ready()).await.expect("strangers kept the member out");
    drop(tokio::time::timeout(PATIENCE, member.lock("x").acquire()).await.expect("no answer").unwrap());
    // They go on for a while.
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(strangers);
    assert!(log.len() < 50, "{} lines: {:#?}", log.len(), log.first(20));
}

#[tokio::test]
async fn silent_strangers_do_not_keep_a_member_out() {
    a_member_joins([None, None], vec![Ipv4Addr::LOCALHOST], b"").await;
}

#[tokio::test]
async fn silent_strangers_do_not_keep_a_member_with_keys_out() {
    let (scratch, authority) = (Scratch::new("strangers"), Authority::new());
    let keys = ["n0", "n1"].map(|name| Some(authority.keys(&scratch, name)));
    a_member_joins(keys, vec![Ipv4Addr::LOCALHOST], b"").await;
}

/// They begin a greeting and do not end it, so that they look like members; but they come from elsewhere.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn strangers_of_other_addresses_do_not_take_the_places_of_members() {
    let sources = (2..10).map(|last| Ipv4Addr::new(127, 0, 0, last)).collect();
    a_member_joins([None, None], sources, b"hal").await;
}

/// A peer that connects and disconnects all the time, or sends garbage each time, is a few lines in the log.
#[tokio::test]
async fn a_peer_that_comes_and_goes_does_not_fill_the_log() {
    let log = Log::begin();
    let (called, silence) = node_with_silent_peer().await;
    let mut greeting = Vec::new();
    silence.greeting.encode(&mut greeting);
    silence.peer.crash().await;
    drop(silence);
    let before = log.len();
    for then in [&b""[..], b"\xff\xffgarbage"] {
        for _ in 0..100 {
            let mut stream = tokio::net::TcpStream::connect(called.address()).await.unwrap();
            stream.write_all(&greeting).await.unwrap();
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0, "a greeting");
            stream.write_all(then).await.unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    }
    let lines = log.len() - before;
    assert!((1..20).contains(&lines), "{lines} lines: {:#?}", log.first(before + 30));
}
