//! What the system may refuse: disk, directories, descriptors; and what it may offer: IPv6.

mod common;

use std::fs::File;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use common::{Authority, Scratch, node_with_peer};
use hallpass::{AcquireError, Node};
use hallpass_node::Incarnation;
use hallpass_node::wire::Hello;

const PATIENCE: Duration = Duration::from_secs(60);

async fn fails(builder: hallpass::Builder) -> String {
    let text = builder.start().await.expect_err("an error").to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

/// From now on a file of this directory takes no byte, as on a full disk.
#[cfg(target_os = "linux")]
fn fill_disk(directory: &std::path::Path) {
    symlink("/dev/full", directory.join("incarnation.new")).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_an_error_and_loses_nothing() {
    let scratch = Scratch::new("full");
    let builder = || Node::builder().data(&scratch.0);
    let before = builder().start().await.unwrap().status().epoch.unwrap();
    fill_disk(&scratch.0);
    let text = fails(builder()).await;
    assert!(text.contains("cannot write 'incarnation': No space left"), "{text}");
    std::fs::remove_file(scratch.0.join("incarnation.new")).unwrap();
    assert!(builder().start().await.unwrap().status().epoch.unwrap() > before);
}

/// The epoch must be on disk before anything is granted under it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_that_is_full_later_stops_the_node() {
    let scratch = Scratch::new("full-later");
    let later = |hello: Hello| {
        fill_disk(&scratch.0);
        Hello { incarnation: Incarnation::new(hello.incarnation.get() + 10).unwrap(), ..hello }
    };
    let (node, _peer) = node_with_peer(|builder| builder.data(&scratch.0), later).await;
    let asked = tokio::time::timeout(PATIENCE, node.lock("x").acquire()).await.expect("an answer");
    assert_eq!(asked.map(drop).unwrap_err(), AcquireError::Stopped);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_directory_that_takes_no_file_is_named() {
    // The system creates no file here, not even for root.
    let read_only = fails(Node::builder().data("/proc/self/fdinfo")).await;
    assert!(read_only.contains("/proc/self/fdinfo: cannot write there"), "{read_only}");
    let missing = fails(Node::builder().data("/proc/hallpass")).await;
    assert!(missing.contains("/proc/hallpass: cannot create it"), "{missing}");
    let (scratch, file) = (Scratch::new("file"), "a-file");
    File::create(scratch.0.join(file)).unwrap();
    let text = fails(Node::builder().data(scratch.0.join(file))).await;
    assert!(text.contains("a-file: cannot create it"), "{text}");
}

#[tokio::test]
async fn a_directory_that_was_written_by_something_else_is_named() {
    let scratch = Scratch::new("garbage");
    std::fs::write(scratch.0.join("incarnation"), "seven").unwrap();
    let text = fails(Node::builder().data(&scratch.0)).await;
    assert!(text.contains("holds no number"), "{text}");
}

#[tokio::test]
async fn a_key_that_everybody_can_read_is_not_used() {
    let (scratch, authority) = (Scratch::new("public"), Authority::new());
    let keys = authority.keys(&scratch.0, "a");
    std::fs::set_permissions(&keys.key, PermissionsExt::from_mode(0o644)).unwrap();
    let text = fails(Node::builder().name("a").keys(keys)).await;
    assert!(text.contains("node.key") && text.contains("mode 600"), "{text}");
}

#[tokio::test]
async fn ipv6_alone_is_enough() {
    let (scratch, authority) = (Scratch::new("ipv6"), Authority::new());
    for encrypted in [false, true] {
        let listeners = [0, 0, 0].map(|port| std::net::TcpListener::bind(("::1", port)).expect("IPv6 on loopback"));
        let addresses = listeners.map(|listener| listener.local_addr().unwrap().to_string());
        let mut nodes = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            assert!(address.starts_with("[::1]:"), "{address}");
            let name = format!("n{index}");
            let mut builder = Node::builder().name(&name).listen(address).peers(common::named(&addresses));
            if encrypted {
                builder = builder.keys(authority.keys(&scratch.0, &name));
            }
            nodes.push(builder.start().await.unwrap());
        }
        for node in &nodes {
            let guard = tokio::time::timeout(PATIENCE, node.lock("x").acquire()).await.expect("a group");
            drop(guard.unwrap());
        }
    }
}
