//! What the system may refuse: directories, keys; and what it may offer: IPv6.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use hallpass::Node;

use crate::common::{Authority, Scratch};

const PATIENCE: Duration = Duration::from_secs(60);

async fn fails(builder: hallpass::Builder) -> String {
    let text = builder.start().await.expect_err("an error").to_string();
    assert!(!text.contains('\n'), "{text}");
    text
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
    File::create(scratch.join(file)).unwrap();
    let text = fails(Node::builder().data(scratch.join(file))).await;
    assert!(text.contains("a-file: cannot create it"), "{text}");
}

#[tokio::test]
async fn a_directory_that_was_written_by_something_else_is_named() {
    let scratch = Scratch::new("garbage");
    std::fs::write(scratch.join("incarnation"), "seven").unwrap();
    let text = fails(Node::builder().data(scratch.path())).await;
    assert!(text.contains("does not contain a number"), "{text}");
}

#[tokio::test]
async fn a_key_that_everybody_can_read_is_not_used() {
    let (scratch, authority) = (Scratch::new("public"), Authority::new());
    let keys = authority.keys(&scratch, "a");
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
            let mut builder = Node::builder().name(&name).listen(address).peers(crate::common::named(&addresses));
            if encrypted {
                builder = builder.keys(authority.keys(&scratch, &name));
            }
            nodes.push(builder.start().await.unwrap());
        }
        for node in &nodes {
            let guard = tokio::time::timeout(PATIENCE, node.lock("x").acquire()).await.expect("a group");
            drop(guard.unwrap());
        }
    }
}
