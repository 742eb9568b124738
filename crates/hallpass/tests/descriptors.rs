//! A process that has no file descriptors left. The limit is the whole process's: this program has one test.

#[path = "all/common/mod.rs"]
mod common;

use std::fs::File;
use std::time::Duration;

use common::{Log, addresses};
use hallpass::Node;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

const PATIENCE: Duration = Duration::from_secs(60);

fn use_up_descriptors() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).take(10_000).collect()
}

async fn lock(node: &Node) {
    let acquired = tokio::time::timeout(PATIENCE, node.lock("x").acquire()).await;
    drop(acquired.expect("it is granted").unwrap());
}

#[tokio::test]
async fn without_descriptors_nothing_is_lost_and_it_passes() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), ..getrlimit(Resource::Nofile) }).unwrap();
    let log = Log::begin();
    let mut pair = addresses(2);
    // The lower one makes the connection.
    pair.sort_unstable();
    let start = async |index: usize| Node::builder().listen(&pair[index]).peers(&pair).start().await.unwrap();

    let caller = start(0).await;
    let mut used = Vec::new();
    let why = tokio::time::timeout(PATIENCE, async {
        loop {
            // Again each time: an attempt to connect that was under way gives its descriptor back, to the next one.
            used.extend(use_up_descriptors());
            match caller.status().members.iter().find_map(|member| member.trouble.clone()) {
                Some(why) if why.contains("too many open files") => return why,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    let why = why.await.expect("it says that there are too many open files");
    assert!(why.contains("ulimit -n"), "{why}");
    drop(used);
    let called = start(1).await;
    tokio::time::timeout(PATIENCE, async { tokio::join!(caller.ready(), called.ready()) }).await.expect("a group");
    // Both are connected for locks, too.
    lock(&called).await;
    lock(&caller).await;

    let client = TcpSocket::new_v4().unwrap();
    let used = use_up_descriptors();
    let mut client = client.connect(called.address()).await.unwrap();
    let refused = async {
        while log.with("cannot accept a connection").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("it says so");
    // Members that are connected go on, and the log does not fill.
    tokio::time::sleep(Duration::from_millis(500)).await;
    lock(&called).await;
    lock(&caller).await;
    assert_eq!(log.with("cannot accept a connection").len(), 1, "{:?}", log.first(20));
    drop(used);
    client.write_all(b"not a greeting").await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, client.read(&mut [0; 64])).await.expect("it is accepted and closed");
    assert!(matches!(answer, Ok(0) | Err(_)), "{answer:?}");
}
