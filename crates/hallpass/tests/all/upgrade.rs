//! Two versions in one group: what a later version does differently must not keep its members from working with this one.
//!
//! There is only one version yet. A relay in front of a node pretends that the node is a later one.

use std::time::Duration;

use hallpass::Node;
use hallpass_node::wire::{Hello, OLDEST, Plane, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{TTL, addresses, complete, named, soon, trouble};

/// What the greetings of the later version say: its own version, and the oldest that it understands.
#[derive(Clone, Copy)]
struct Later {
    version: u8,
    oldest: u8,
}

/// Which side has a later version: the one that dials, or the one that answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pretender {
    Caller,
    Answerer,
}

/// What one of the two says seems to be of a later version, for all who dial `front` to reach the node at `back`.
async fn pretend(later: Later, pretender: Pretender, front: &str, back: String) {
    let listener = TcpListener::bind(front).await.unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(&back).await else { continue };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            let (plain, pretended) = match pretender {
                Pretender::Caller => ((far_in, near_out), (near_in, far_out)),
                Pretender::Answerer => ((near_in, far_out), (far_in, near_out)),
            };
            tokio::spawn(copy(plain.0, plain.1));
            tokio::spawn(speak_later(later, pretended.0, pretended.1));
        }
    });
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// A greeting with a field more; control messages with fields more, and of a kind that is not known. Messages of locks are
/// written in the version of their reader.
async fn speak_later(later: Later, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Option<()> {
    let mut received = Vec::new();
    let plane = loop {
        read(&mut from, &mut received).await?;
        if let Ok((hello, length)) = Hello::decode(&received) {
            let mut greeting: Vec<u8> = received.drain(..length).collect();
            greeting.extend_from_slice(b"new");
            greeting[4..6].copy_from_slice(&(length as u16 - 6 + 3).to_be_bytes());
            (greeting[6], greeting[7]) = (later.version, later.oldest);
            to.write_all(&greeting).await.ok()?;
            break hello.plane;
        }
        if received.starts_with(b"deny") {
            to.write_all(&received).await.ok()?;
            return None;
        }
    };
    const ENGINE: u8 = 2;
    loop {
        match plane {
            Plane::Locks => {
                to.write_all(&received).await.ok()?;
                received.clear();
            }
            Plane::Control => {
                while let Some(message) = take_message(&mut received) {
                    // The version, the group's id, then the kind.
                    let kind = 1 + message[1..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
                    let mut later_message = message.clone();
                    later_message[0] = later.version;
                    if message[kind] != ENGINE {
                        later_message.extend_from_slice(b"new");
                    }
                    let mut unknown = later_message.clone();
                    unknown[kind] = 0x7f;
                    for message in [unknown, later_message] {
                        to.write_all(&(message.len() as u32).to_be_bytes()).await.ok()?;
                        to.write_all(&message).await.ok()?;
                    }
                }
            }
        }
        read(&mut from, &mut received).await?;
    }
}

async fn read(from: &mut OwnedReadHalf, received: &mut Vec<u8>) -> Option<()> {
    let mut buffer = vec![0; 64 * 1024];
    let length = from.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
    received.extend_from_slice(&buffer[..length]);
    Some(())
}

fn take_message(received: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(received.get(..4)?.try_into().unwrap()) as usize;
    let message = received.get(4..4 + length)?.to_vec();
    received.drain(..4 + length);
    Some(message)
}

/// Three nodes; all but the first one are of a later version, as far as others can see.
async fn group_of(later: Later) -> Vec<Node> {
    let (fronts, backs) = (addresses(3), addresses(3));
    let mut nodes = Vec::new();
    for index in 0..3 {
        let pretender = if index == 0 { Pretender::Caller } else { Pretender::Answerer };
        pretend(later, pretender, &fronts[index], backs[index].clone()).await;
        let builder = Node::builder().name(format!("n{index}")).listen(&backs[index]).advertise(&fronts[index]);
        nodes.push(builder.peers(named(&fronts)).ttl(TTL).start().await.unwrap());
    }
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_version_that_understands_this_one_works_with_it() {
    let nodes = group_of(Later { version: VERSION + 1, oldest: OLDEST }).await;
    complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
    let mut fence = 0;
    for _ in 0..10 {
        for node in &nodes {
            let guard = soon("a lock", node.lock("x").acquire()).await.unwrap();
            assert!(guard.fence() > fence);
            fence = guard.fence();
        }
    }
    // Sessions are renewed over many of them, and a member leaves.
    let guard = soon("a lock", nodes[0].lock("y").acquire()).await.unwrap();
    tokio::time::sleep(3 * TTL).await;
    assert!(!guard.is_lost());
    soon("to leave", nodes[2].leave(Duration::from_secs(30))).await.unwrap();
    complete(&[&nodes[0], &nodes[1]], 2).await;
    assert!(!guard.is_lost());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_does_not_understand_this_one_is_refused_by_name() {
    let nodes = group_of(Later { version: VERSION + 1, oldest: VERSION + 1 }).await;
    let why = trouble(&nodes[0], "version").await;
    assert!(!why.contains('\n') && why.contains(&(VERSION + 1).to_string()), "{why}");
    println!("{why}");
    assert!(nodes.iter().all(|node| !node.status().complete));
}
