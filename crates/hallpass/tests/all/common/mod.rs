//! Groups on loopback for tests.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test program uses a part of it")]

pub mod relay;

use std::path::Path;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use hallpass::{Builder, Keys, Node};
use hallpass_core::NodeId;
use hallpass_node::wire::{Hello, Plane};
pub use hallpass_testkit::{Scratch, free_addresses as addresses};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Long enough for every machine: what takes longer never ends.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A session, short enough to be waited for.
pub const TTL: Duration = Duration::from_millis(400);

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    soon(what, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub fn quick(_: usize, builder: Builder) -> Builder {
    builder.ttl(TTL)
}

/// Every member's permission is needed, and stays until it is asked for.
pub fn by_permissions(_: usize, builder: Builder) -> Builder {
    builder.class("", "carvalho-roucairol", &[])
}

/// How many members take part, as a node sees it.
pub fn in_view(node: &Node) -> usize {
    node.members().iter().filter(|member| member.in_view).count()
}

pub async fn complete(nodes: &[&Node], members: usize) {
    let is_complete = || nodes.iter().all(|node| node.status().complete && in_view(node) == members);
    for _ in 0..PATIENCE.as_millis() / 10 {
        if is_complete() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no view of {members}: {:#?}", nodes.iter().map(|node| node.status()).collect::<Vec<_>>());
}

/// The list of members that are called n0, n1 and so on.
pub fn named(addresses: &[String]) -> Vec<String> {
    addresses.iter().enumerate().map(|(index, address)| format!("n{index}@{address}")).collect()
}

pub async fn group(count: usize, with: impl Fn(usize, Builder) -> Builder) -> Vec<Node> {
    let addresses = addresses(count);
    let peers = named(&addresses);
    let mut nodes = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let builder = Node::builder().name(format!("n{index}")).listen(address).peers(&peers);
        nodes.push(with(index, builder).start().await.unwrap());
    }
    for node in &nodes {
        node.ready().await;
    }
    nodes
}

/// A node in a complete group of two, and its connection for locks with a peer that never answers a request.
///
/// The peer is a node, too. Its control connections work; what comes for its locks is kept from it.
pub async fn node_with_silent_peer() -> (Node, Silence) {
    let (taken, mut streams) = unbounded_channel();
    let (fronts, backs) = (addresses(2), addresses(2));
    let mut nodes = Vec::new();
    for (index, name) in ["a", "b"].into_iter().enumerate() {
        let listener = TcpListener::bind(&fronts[index]).await.unwrap();
        tokio::spawn(relay_control(listener, backs[index].clone(), taken.clone()));
        let builder = Node::builder().name(name).listen(&backs[index]).advertise(&fronts[index]).peers(&fronts);
        // Nothing that these tests do is to be taken for a failure. Every lock is asked of the peer.
        nodes.push(by_permissions(index, builder).ttl(2 * PATIENCE).start().await.unwrap());
    }
    let (peer, node) = (nodes.pop().unwrap(), nodes.pop().unwrap());
    soon("a group of two", node.ready()).await;
    until("a connection for locks", || node.members().iter().all(|member| member.connected)).await;
    // One that was made before both knew each other as members was closed again.
    loop {
        let ([stream, far], greeting) = soon("a connection for locks", streams.recv()).await.unwrap();
        if !is_closed(&stream).await && !is_closed(&far).await {
            return (node, Silence { stream, greeting, peer, _far: far });
        }
    }
}

async fn is_closed(stream: &TcpStream) -> bool {
    let peeked = tokio::time::timeout(Duration::from_millis(50), stream.peek(&mut [0])).await;
    matches!(peeked, Ok(Ok(0) | Err(_)))
}

/// A connection for locks whose other end has only been greeted.
pub struct Silence {
    pub stream: TcpStream,
    /// What the peer greeted with.
    pub greeting: Hello,
    pub peer: Node,
    _far: TcpStream,
}

/// Passes everything on between a node and those who dial it. Of connections for locks it passes the greetings on, and then gives
/// both ends away, that of node `a` first, and the greeting of the other one.
async fn relay_control(listener: TcpListener, back: String, taken: UnboundedSender<([TcpStream; 2], Hello)>) {
    while let Ok((mut near, _)) = listener.accept().await {
        let (back, taken) = (back.clone(), taken.clone());
        tokio::spawn(async move {
            let mut far = TcpStream::connect(&back).await.ok()?;
            let hello = pass_greeting(&mut near, &mut far).await?;
            if hello.plane == Plane::Control {
                return tokio::io::copy_bidirectional(&mut near, &mut far).await.ok().map(drop);
            }
            let answer = pass_greeting(&mut far, &mut near).await?;
            taken.send(if hello.name == "a" { ([near, far], answer) } else { ([far, near], hello) }).ok()
        });
    }
}

async fn pass_greeting(from: &mut TcpStream, to: &mut TcpStream) -> Option<Hello> {
    let mut received = Vec::new();
    loop {
        if let Ok((hello, _)) = Hello::decode(&received) {
            to.write_all(&received).await.ok()?;
            return Some(hello);
        }
        let mut buffer = [0; 1024];
        let length = from.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
        received.extend_from_slice(&buffer[..length]);
    }
}

/// A node that looks for a group, and its connection with a peer that greets as it is told.
pub async fn node_with_peer(greet: impl Fn(Hello) -> Hello) -> (Node, TcpStream) {
    let addresses = addresses(2);
    let listener = TcpListener::bind(&addresses[1]).await.unwrap();
    let node = Node::builder().name("a").listen(&addresses[0]).peers(&addresses).start().await.unwrap();
    let mut stream = listener.accept().await.unwrap().0;
    let mut buffer = [0; 1024];
    let length = stream.read(&mut buffer).await.unwrap();
    let (theirs, _) = Hello::decode(&buffer[..length]).unwrap();
    let answer = Hello { name: "b".into(), from: NodeId(77), to: theirs.from, ..theirs };
    let mut bytes = Vec::new();
    greet(answer).encode(&mut bytes);
    stream.write_all(&bytes).await.unwrap();
    (node, stream)
}

/// Waits until the node says this about why it is not connected with a member.
pub async fn trouble(node: &Node, expected: &str) -> String {
    let trouble = || node.status().members.iter().find_map(|member| member.trouble.clone()).unwrap_or_default();
    for _ in 0..3000 {
        if trouble().contains(expected) {
            return trouble();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it says '{}', not '{expected}'", trouble());
}

/// A certificate authority.
pub struct Authority(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap())
    }

    /// Keys for a node of this name, in a directory of their own.
    pub fn keys(&self, directory: &Path, name: &str) -> Keys {
        self.keys_until(directory, name, 4000)
    }

    /// The same with a certificate that ends with this year.
    pub fn keys_until(&self, directory: &Path, name: &str, year: i32) -> Keys {
        self.sign(&directory.join(name), &[name, "member.hallpass"], year)
    }

    /// Keys with a certificate for these names alone.
    pub fn keys_for(&self, directory: &Path, names: &[&str]) -> Keys {
        self.sign(directory, names, 4000)
    }

    fn sign(&self, directory: &Path, names: &[&str], year: i32) -> Keys {
        std::fs::create_dir_all(directory).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        std::fs::write(directory.join("authority.pem"), self.0.pem()).unwrap();
        std::fs::write(directory.join("node.pem"), certificate.pem()).unwrap();
        let path = directory.join("node.key");
        std::fs::write(&path, key.serialize_pem()).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Keys::in_directory(directory)
    }
}

/// Every line that is logged on this thread, and by nodes that were started here, until this is dropped.
///
/// There is also a collector for the whole process: if tests came and went with their own alone, a line could be taken for one
/// that nobody wants because another test was just ending.
pub struct Log {
    lines: Lines,
    _here: tracing::subscriber::DefaultGuard,
}

type Lines = Arc<Mutex<Vec<String>>>;

impl Log {
    pub fn begin() -> Self {
        static START: Once = Once::new();
        START.call_once(|| tracing::subscriber::set_global_default(Collector(None)).unwrap());
        let lines = Lines::default();
        let here = tracing::subscriber::set_default(Collector(Some(Arc::clone(&lines))));
        Self { lines, _here: here }
    }

    pub fn len(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    pub fn first(&self, count: usize) -> Vec<String> {
        self.lines.lock().unwrap().iter().take(count).cloned().collect()
    }

    /// The lines that contain this text.
    pub fn with(&self, text: &str) -> Vec<String> {
        self.lines.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

struct Collector(Option<Lines>);

impl tracing::Subscriber for Collector {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("hallpass")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!(" {field}={value:?}");
            }
        }
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        self.0.iter().for_each(|lines| lines.lock().unwrap().push(fields.0.clone()));
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
