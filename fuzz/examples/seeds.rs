//! Writes the seeds of the targets that read bytes, from two nodes that contend for a lock of every class.

use std::collections::BTreeMap;
use std::path::Path;

use hallpass_core::codec::{Reader, put_number};
use hallpass_core::protocol::ProtocolKind;
use hallpass_core::{Mode, NodeId};
use hallpass_fuzz::{CLASSES, Net, PHASES, connected_pair, drain, tag};
use hallpass_node::wire::{Body, Frame};
use hallpass_node::{Answer, Patience};

fn main() -> std::io::Result<()> {
    let mut seeds: BTreeMap<(&str, String), Vec<u8>> = BTreeMap::new();
    for (prefix, protocol) in CLASSES.into_iter().chain([("", "carvalho-roucairol")]) {
        let (name, stream) = (format!("{prefix}x"), contend(&format!("{prefix}x")));
        let kind = ProtocolKind::ALL.iter().position(|kind| kind.name() == protocol).expect("it exists") as u8;
        for (number, frame) in stream.iter().enumerate() {
            seeds.insert(("frame", format!("{protocol}-{number}")), frame.clone());
            let (decoded, _) = Frame::decode(frame).expect("nodes write frames");
            if let Body::Message { lock, bytes, .. } = decoded.body {
                assert_eq!(lock, name);
                let mut bytes = bytes.clone();
                let mut message = vec![kind];
                while let Ok(byte) = bytes.byte() {
                    message.push(byte);
                }
                seeds.insert(("message", format!("{protocol}-{number}")), message);
            }
        }
        seeds.insert(("node", protocol.to_owned()), [&[40][..], &stream.concat()].concat());
    }
    for phase in 0..PHASES {
        seeds.insert(("node", format!("control-{phase}")), said_in(phase as u8));
    }
    let [node, other] = connected_pair();
    for (name, hello) in [("one", node.hello(NodeId(2))), ("two", other.hello(NodeId(1)))] {
        let mut bytes = Vec::new();
        hello.expect("a member").encode(&mut bytes);
        seeds.insert(("greeting", name.to_owned()), bytes);
    }
    for ((target, name), bytes) in seeds {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

/// What two founders say to each other, to a node in this phase: of each message and sender the first two.
fn said_in(phase: u8) -> Vec<u8> {
    let mut bytes = vec![phase << 1 | 1];
    let mut count: BTreeMap<(NodeId, Option<u8>), usize> = BTreeMap::new();
    for (from, _, message) in Net::founded().heard {
        let count = count.entry((from, tag(&message))).or_default();
        *count += 1;
        // Behind the version and the group's id.
        let mut reader = Reader::new(&message[1..]);
        let id = reader.number().expect("the group's id");
        let mut head = Vec::new();
        put_number(&mut head, id);
        let content = &message[1 + head.len()..];
        if *count <= 2 {
            bytes.push((from.0 - 1) as u8 | if id == 0 { 8 } else { 0 });
            bytes.extend_from_slice(&(content.len() as u16).to_be_bytes());
            bytes.extend_from_slice(content);
        }
    }
    bytes
}

/// The frames that node 2 sends while both want a lock, wait for it, try it and release it.
fn contend(lock: &str) -> Vec<Vec<u8>> {
    let mut nodes = connected_pair();
    let mut frames = Vec::new();
    for round in 0..6 {
        for index in [0, 1] {
            let patience = if round % 3 == 2 { Patience::Try } else { Patience::Wait };
            let answer = nodes[index].handle_acquire(lock, Mode::Exclusive, patience, 0, || ());
            exchange(&mut nodes, &mut frames);
            if let Ok(Answer::Granted(grant)) = answer {
                nodes[index].handle_release(grant.ticket, 0);
            } else if let Ok(Answer::Waiting(ticket)) = answer {
                nodes[index].handle_cancel(ticket, 0);
            }
            exchange(&mut nodes, &mut frames);
        }
    }
    frames.truncate(6);
    frames
}

fn exchange(nodes: &mut [hallpass_node::Node<()>; 2], frames: &mut Vec<Vec<u8>>) {
    loop {
        let [there, back] = [0, 1].map(|index| drain(&mut nodes[index]));
        if there.is_empty() && back.is_empty() {
            return;
        }
        let mut rest = back.as_slice();
        while let Ok((_, length)) = Frame::decode(rest) {
            frames.push(rest[..length].to_vec());
            rest = &rest[length..];
        }
        nodes[1].handle_bytes(NodeId(1), &there, 0).expect("an honest member");
        nodes[0].handle_bytes(NodeId(2), &back, 0).expect("an honest member");
    }
}
