//! A peer that reads late.

use hallpass_node::wire::{Body, Frame};
use tokio::io::AsyncReadExt;

use crate::common::node_with_silent_peer;

/// More than sockets keep: what did not fit is written when the peer reads again, each request once.
#[tokio::test]
async fn a_peer_that_reads_late_gets_everything() {
    const LOCKS: usize = 25_000;
    let (node, mut peer) = node_with_silent_peer().await;
    let names: Vec<String> = (0..LOCKS).map(|index| format!("{index:0>250}")).collect();
    let waiting: Vec<_> = names
        .iter()
        .map(|name| {
            let lock = node.lock(name.as_str());
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    while node.status().messages < LOCKS as u64 {
        tokio::task::yield_now().await;
    }
    let (mut received, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    let mut found = Vec::new();
    while found.len() < LOCKS {
        let length = peer.stream.read(&mut buffer).await.unwrap();
        assert!(length > 0, "the connection was closed after {} requests", found.len());
        received.extend_from_slice(&buffer[..length]);
        let mut taken = 0;
        while let Ok((frame, length)) = Frame::decode(&received[taken..]) {
            taken += length;
            if let Body::Message { lock, .. } = frame.body {
                found.push(lock.to_owned());
            }
        }
        received.drain(..taken);
    }
    found.sort_unstable();
    assert!(found == names, "every request once");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
