//! Keys that are replaced, banned or no longer trusted while nodes run.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hallpass::{KeyDigest, Keys, Node};
use hallpass_core::NodeId;
use hallpass_node::wire::{Hello, Plane};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::common::{Authority, Log, PATIENCE, Scratch, TTL, complete, group, soon, until};

type Stream = rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>;

/// Connects with a node, with these keys, and greets it.
fn call(keys: &Keys, to: &Node, name: &str, plane: Plane) -> Stream {
    let chain = CertificateDer::pem_file_iter(&keys.certificate).unwrap().collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(&keys.key).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(&keys.authority).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
    let tls = rustls::ClientConnection::new(Arc::new(config), "member.hallpass".try_into().unwrap()).unwrap();
    let socket = std::net::TcpStream::connect(to.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = rustls::StreamOwned::new(tls, socket);
    let hello = Hello {
        group: "hallpass".to_owned(),
        name: name.to_owned(),
        from: NodeId(77),
        to: NodeId(0),
        plane,
        address: "127.0.0.1:9".to_owned(),
        group_id: to.status().group_id.unwrap(),
        incarnation: hallpass_node::Incarnation::FIRST,
        boot_id: 1,
        to_incarnation: None,
        received: 0,
        config_digest: 0,
        incarnations_digest: None,
    };
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    stream.write_all(&bytes).unwrap();
    stream
}

/// The beginning of what the node answers, or why it answers nothing.
fn answer(stream: &mut Stream) -> String {
    let mut buffer = [0; 1024];
    match stream.read(&mut buffer) {
        Ok(length) => String::from_utf8_lossy(&buffer[..length]).into_owned(),
        Err(error) => error.to_string(),
    }
}

async fn blocking<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(what).await.unwrap()
}

fn digest(keys: &Keys) -> KeyDigest {
    let certificate = CertificateDer::from_pem_file(&keys.certificate).unwrap();
    let parsed = webpki::EndEntityCert::try_from(&certificate).unwrap();
    KeyDigest::of_public_key(&parsed.subject_public_key_info())
}

fn copy(keys: &Keys, to: &Path) -> Keys {
    std::fs::create_dir_all(to).unwrap();
    for file in [&keys.authority, &keys.certificate, &keys.key] {
        std::fs::copy(file, to.join(file.file_name().unwrap())).unwrap();
    }
    Keys::in_directory(to)
}

/// A group of three with keys, and short sessions.
async fn three(authority: &Authority, scratch: &Scratch) -> (Vec<Node>, Vec<Keys>) {
    let keys: Vec<Keys> = (0..3).map(|index| authority.keys(scratch, &format!("n{index}"))).collect();
    let nodes = group(3, |index, builder| builder.ttl(TTL).keys(keys[index].clone())).await;
    complete(&nodes.iter().collect::<Vec<_>>(), 3).await;
    (nodes, keys)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_banned_key_is_shut_out_and_its_member_goes_on_with_a_new_one() {
    let (scratch, authority) = (Scratch::new("banned-key"), Authority::new());
    let (nodes, keys) = three(&authority, &scratch).await;
    let stolen = copy(&keys[2], &scratch.join("stolen"));
    // The thief is connected before anybody knows.
    let (thief, to) = (stolen.clone(), nodes[0].clone());
    let mut open = blocking(move || {
        let mut stream = call(&thief, &to, "n2", Plane::Control);
        assert!(answer(&mut stream).starts_with("hall"));
        stream
    })
    .await;
    let key = digest(&stolen);
    let refused = nodes[2].ban_key(key, Duration::from_secs(1)).await.unwrap_err().to_string();
    assert!(refused.contains("the key of this node"), "{refused}");
    nodes[0].ban_key(key, PATIENCE).await.unwrap();
    let end = blocking(move || {
        let mut rest = Vec::new();
        open.read_to_end(&mut rest).err()
    });
    soon("the thief's connection ends", end).await;
    complete(&[&nodes[0], &nodes[1]], 2).await;
    for node in &nodes[..2] {
        assert_eq!(node.status().banned_keys, [key]);
        for plane in [Plane::Control, Plane::Locks] {
            let (thief, to) = (stolen.clone(), node.clone());
            let said = blocking(move || answer(&mut call(&thief, &to, "n2", plane))).await;
            assert!(said.starts_with("deny") && said.contains("is banned"), "{said}");
        }
    }
    assert!(!nodes[2].status().complete, "it still has the old key");
    // A new key for the same name, without a restart.
    authority.keys(&scratch, "n2");
    complete(&nodes.iter().collect::<Vec<_>>(), 3).await;
    assert!(nodes.iter().all(|node| node.status().banned_keys == [key] && node.status().banned.is_empty()));
    let new = Keys::in_directory(scratch.join("n2"));
    let uses = |node: &Node, name: &str, keys: &Keys| {
        let members = node.members();
        members.iter().any(|member| member.name.as_deref() == Some(name) && member.keys == [digest(keys)])
    };
    let all = [("n0", &keys[0]), ("n1", &keys[1]), ("n2", &new)];
    until("all see the keys of all", || nodes.iter().all(|node| all.iter().all(|(name, keys)| uses(node, name, keys))))
        .await;
    nodes[1].admit_key(key, PATIENCE).await.unwrap();
    until("the ban is lifted", || nodes.iter().all(|node| node.status().banned_keys.is_empty())).await;
    let (thief, to) = (stolen.clone(), nodes[1].clone());
    assert!(blocking(move || answer(&mut call(&thief, &to, "n2", Plane::Control))).await.starts_with("hall"));
}

/// A node that has lapsed knows who is banned, and so does one that is started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_of_a_key_outlives_restarts_of_everybody() {
    let (scratch, authority) = (Scratch::new("ban-kept"), Authority::new());
    let keys = authority.keys(&scratch, "n0");
    let address = crate::common::addresses(1).remove(0);
    let start = || {
        let builder = Node::builder().name("n0").listen(&address).peers([format!("n0@{address}")]);
        builder.keys(keys.clone()).data(scratch.join("data")).start()
    };
    let key = digest(&authority.keys(&scratch, "thief"));
    let node = start().await.unwrap();
    node.ready().await;
    node.ban_key(key, PATIENCE).await.unwrap();
    node.stop().await;
    drop(node);
    let node = start().await.unwrap();
    assert_eq!(node.status().banned_keys, [key]);
}

/// The drill 'Replace the authority' of docs/keys.md, without a restart. In between the files do not fit together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_authorities_are_read_again() {
    let log = Log::begin();
    let (scratch, old, new) = (Scratch::new("read-again"), Authority::new(), Authority::new());
    let (nodes, keys) = three(&old, &scratch).await;
    let former = copy(&keys[2], &scratch.join("former"));
    let next: Vec<Keys> = (0..3).map(|index| new.keys(&scratch.join("next"), &format!("n{index}"))).collect();
    for (old, new) in keys.iter().zip(&next) {
        let read = |keys: &Keys| std::fs::read_to_string(&keys.authority).unwrap();
        std::fs::write(&old.authority, read(old) + &read(new)).unwrap();
    }
    let loaded = |count: usize| move |log: &Log| log.with("new connections use the new ones").len() >= count;
    until("both authorities are trusted", || loaded(3)(&log)).await;
    let guard = nodes[0].lock("held").acquire().await.unwrap();
    // A half of a pair is kept out.
    std::fs::copy(&next[0].certificate, &keys[0].certificate).unwrap();
    until("it says so", || !log.with("it goes on with those from before").is_empty()).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(log.with("it goes on with those from before").len(), 1, "once");
    for (old, new) in keys.iter().zip(&next) {
        std::fs::copy(&new.certificate, &old.certificate).unwrap();
        std::fs::copy(&new.key, &old.key).unwrap();
    }
    until("all have new keys", || loaded(6)(&log)).await;
    assert!(!guard.is_lost());
    // Connections of the old authority end, and are made again with the new keys.
    for (old, new) in keys.iter().zip(&next) {
        std::fs::copy(&new.authority, &old.authority).unwrap();
    }
    until("connections are made again", || !log.with("its authority is not trusted any more").is_empty()).await;
    until("all have the new authority", || loaded(9)(&log)).await;
    complete(&nodes.iter().collect::<Vec<_>>(), 3).await;
    let to = nodes[0].clone();
    let said = blocking(move || {
        // The old keys, and what it takes to recognize the nodes.
        std::fs::copy(&next[0].authority, &former.authority).unwrap();
        answer(&mut call(&former, &to, "n2", Plane::Control))
    });
    let said = said.await;
    assert!(!said.starts_with("hall") && !said.starts_with("deny"), "{said}");
}

/// Shut out, the only voter would keep the group, and could lift its own ban.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_a_voter_that_the_group_needs_is_renewed_before_it_is_banned() {
    let (scratch, authority) = (Scratch::new("needed-key"), Authority::new());
    let keys: Vec<Keys> = (0..2).map(|index| authority.keys(&scratch, &format!("n{index}"))).collect();
    let nodes = group(2, |index, builder| builder.ttl(TTL).keys(keys[index].clone())).await;
    complete(&nodes.iter().collect::<Vec<_>>(), 2).await;
    let voters = nodes[0].status().voters;
    let voter = nodes.iter().position(|node| voters == [node.status().id]).expect("one of the two votes");
    let (key, other) = (digest(&keys[voter]), &nodes[1 - voter]);
    let refused = other.ban_key(key, Duration::from_secs(5)).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("key of 'n{voter}', without whose vote")), "{refused}");
    assert!(nodes.iter().all(|node| node.status().banned_keys.is_empty()));
    authority.keys(&scratch, &format!("n{voter}"));
    let banned = async {
        while let Err(error) = other.ban_key(key, PATIENCE).await {
            assert!(error.to_string().contains("without whose vote"), "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("the new key is in use", banned).await;
    complete(&nodes.iter().collect::<Vec<_>>(), 2).await;
    assert!(nodes.iter().all(|node| node.status().banned_keys == [key]));
}
