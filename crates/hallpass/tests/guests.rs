//! What nodes that have greeted and are no members can make a node keep. It looks at the memory of the whole process: this program has one
//! test.

#![cfg(target_os = "linux")]

#[path = "all/common/mod.rs"]
mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{addresses, complete, named};
use hallpass::Node;
use hallpass_core::NodeId;
use hallpass_core::codec::{put_number, put_numbers};
use hallpass_node::wire::{Hello, Plane, VERSION};

const GUESTS: u32 = 150;
/// How much they may make it keep together.
const KIB_MAX: u64 = 64 * 1024;

/// The most memory that this process has ever had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A node that greets as it should, and perhaps asks to join again and again, without reading an answer. In the end it sends most of a
/// message of 4 MiB.
struct Guest {
    stream: TcpStream,
    join: Vec<u8>,
    /// How much of all that it says it has said.
    said: usize,
    is_closed: bool,
}

/// How often it asks to join.
const JOINS: usize = 400;
/// How much of the long message it sends.
static PART: [u8; 7 << 19] = [7; 7 << 19];

impl Guest {
    fn greet(address: &str, id: u32) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        let hello = Hello {
            group: "hallpass".to_owned(),
            name: format!("guest-{id}"),
            from: NodeId(id),
            to: NodeId(0),
            plane: Plane::Control,
            address: format!("127.0.0.1:{}", 1 + id % 1000),
            group_id: 0,
            incarnation: hallpass_node::Incarnation::FIRST,
            boot_id: id.into(),
            to_incarnation: None,
            received: 0,
            config_digest: 0,
            incarnations_digest: None,
        };
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        let theirs = loop {
            let mut part = [0; 1024];
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "it is refused");
            answer.extend_from_slice(&part[..length]);
            if let Ok((theirs, _)) = Hello::decode(&answer) {
                break theirs;
            }
        };
        stream.set_nonblocking(true).unwrap();
        let join = if id.is_multiple_of(2) { join(&hello, theirs.group_id) } else { Vec::new() };
        Self { stream, join, said: 0, is_closed: false }
    }

    /// Says as much as the system takes. False if that is nothing.
    fn say(&mut self) -> bool {
        let head = (4_u32 << 20).to_be_bytes();
        let (asked, all) = (JOINS * self.join.len(), JOINS * self.join.len() + head.len() + PART.len());
        let next = match self.said {
            said if said < asked => &self.join[said % self.join.len()..],
            said if said < asked + head.len() => &head[said - asked..],
            said if said < all => &PART[said - asked - head.len()..],
            _ => return false,
        };
        let taken = if self.is_closed { Ok(0) } else { self.stream.write(next) };
        self.said += *taken.as_ref().unwrap_or(&0);
        self.is_closed |= taken.as_ref().is_err_and(|error| error.kind() != ErrorKind::WouldBlock);
        taken.is_ok_and(|taken| taken > 0)
    }
}

/// What a node says that wants to be a member.
fn join(hello: &Hello, group_id: u64) -> Vec<u8> {
    const JOIN: u8 = 6;
    let mut bytes = vec![VERSION];
    put_number(&mut bytes, group_id);
    bytes.push(JOIN);
    put_numbers(&mut bytes, [hello.from.0.into(), 1, 0]);
    for text in [&hello.name, &hello.address] {
        put_number(&mut bytes, text.len() as u64);
        bytes.extend_from_slice(text.as_bytes());
    }
    put_number(&mut bytes, 0);
    [&(bytes.len() as u32).to_be_bytes(), &bytes[..]].concat()
}

/// They ask to join, and are candidates then. Half of them only greet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_no_members_are_kept_little_of() {
    let pair = addresses(2);
    let start =
        |index: usize| Node::builder().name(format!("n{index}")).listen(&pair[index]).peers(named(&pair)).start();
    let nodes = [start(0).await.unwrap(), start(1).await.unwrap()];
    complete(&[&nodes[0], &nodes[1]], 2).await;
    let before = peak_kib();
    let address = pair[0].clone();
    let guests = tokio::task::spawn_blocking(move || {
        let mut guests: Vec<Guest> = (0..GUESTS).map(|index| Guest::greet(&address, 1000 + index)).collect();
        // Until the node takes nothing more from any of them, or has closed their connections.
        let mut rests = 0;
        while rests < 20 {
            let talks = guests.iter_mut().map(Guest::say).filter(|says| *says).count() > 0;
            rests = if talks { 0 } else { rests + 1 };
            std::thread::sleep(Duration::from_millis(if talks { 0 } else { 50 }));
        }
        guests
    })
    .await
    .unwrap();
    let grown = peak_kib() - before;
    println!("{grown} KiB");
    assert!(grown < KIB_MAX, "it grew from {before} KiB by {grown} KiB");
    assert!(nodes.iter().all(|node| node.status().complete));
    drop(guests);
}
