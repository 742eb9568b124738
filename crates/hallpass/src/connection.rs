//! One connection to a peer: how it begins, how bytes are written to it, and the tasks that read from it.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hallpass_core::codec::DecodeError;
use hallpass_node::wire::Hello;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::connect::{connect, resolve};
use crate::data::is_plausible;
use crate::driver::{Driver, ReceiveError, printable};
use crate::os;
use crate::strangers::Place;
use crate::tls::{Tls, is_named};

/// No greeting may take longer than this.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// No greeting, and no rejection of one, is longer.
const GREETING_BYTES: usize = 1024;
/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;
/// Begins a rejection, which takes the place of a greeting.
const REJECTION: &[u8; 4] = b"deny";

/// The writing side, used under the node's lock.
pub(crate) struct Connection {
    socket: Arc<OwnedWriteHalf>,
    tls: Option<Box<rustls::Connection>>,
    /// Encrypted bytes that the socket did not take.
    encrypted: Vec<u8>,
    /// Decrypted bytes, between two calls only a buffer.
    plain: Vec<u8>,
    signals: Arc<Signals>,
    pub(crate) generation: u64,
    /// Nothing was received but the greeting.
    is_new: bool,
}

/// What a connection's tasks wait for.
#[derive(Default)]
struct Signals {
    blocked: Notify,
    closed: Notify,
}

impl Connection {
    pub(crate) fn close(&self) {
        self.signals.closed.notify_one();
    }

    /// Gives bytes to the socket, as many as it takes now, and returns how many it took. What is left is
    /// asked for again when the socket takes more.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let Some(tls) = &mut self.tls else {
            return if bytes.is_empty() { 0 } else { try_write(&self.socket, bytes, &self.signals) };
        };
        let mut taken = 0;
        loop {
            while tls.wants_write() && tls.write_tls(&mut self.encrypted).is_ok() {}
            if !self.encrypted.is_empty() {
                let written = try_write(&self.socket, &self.encrypted, &self.signals);
                self.encrypted.drain(..written);
                // What is encrypted cannot be taken back: nothing more is encrypted while some is left.
                if !self.encrypted.is_empty() {
                    return taken;
                }
            }
            // One record at a time.
            let record = &bytes[taken..bytes.len().min(taken + 16 * 1024)];
            match tls.writer().write(record) {
                Ok(accepted) if accepted > 0 => taken += accepted,
                _ => return taken,
            }
        }
    }

    /// Decrypts what has arrived, if it is encrypted: the plain bytes, up to an error if there is one.
    pub(crate) fn decrypt<'a>(&'a mut self, bytes: &'a [u8]) -> (&'a [u8], Result<(), ReceiveError>) {
        let (plain, decrypted) = match &mut self.tls {
            None => (bytes, Ok(())),
            Some(tls) => {
                self.plain.clear();
                let decrypted = decrypt(tls, bytes, &mut self.plain);
                (self.plain.as_slice(), decrypted)
            }
        };
        // A node that was called may be rejected after its greeting, in place of a first frame: no frame begins so.
        if self.is_new
            && let Some(why) = rejection(plain)
        {
            return (&[], Err(ReceiveError::Rejected(why)));
        }
        self.is_new &= plain.is_empty();
        (plain, decrypted)
    }
}

fn decrypt(tls: &mut rustls::Connection, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), ReceiveError> {
    while !bytes.is_empty() {
        // After a close alert nothing more is read.
        if tls.read_tls(&mut bytes)? == 0 {
            return Err(ReceiveError::Io(ErrorKind::UnexpectedEof.into()));
        }
        let state = tls.process_new_packets()?;
        let start = plain.len();
        plain.resize(start + state.plaintext_bytes_to_read(), 0);
        tls.reader().read_exact(&mut plain[start..])?;
        if state.peer_has_closed() {
            return Err(ReceiveError::Io(ErrorKind::UnexpectedEof.into()));
        }
    }
    Ok(())
}

/// Writes what the socket takes. What it does not take now it will later; what it never takes, the reader finds out.
fn try_write(socket: &OwnedWriteHalf, mut bytes: &[u8], signals: &Signals) -> usize {
    let all = bytes.len();
    while !bytes.is_empty() {
        match socket.try_write(bytes) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                signals.blocked.notify_one();
                break;
            }
            Err(_) => {
                signals.closed.notify_one();
                break;
            }
        }
    }
    all - bytes.len()
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetError {
    #[error("{}", os::explain(.0))]
    Io(#[from] std::io::Error),
    #[error("{}", crate::tls::explain(.0))]
    Tls(#[from] rustls::Error),
    #[error("it has keys, and this node has none: give all members keys of the same 'hallpass init'")]
    NoKeysHere,
    #[error("{0} is on another machine, and there are no keys: make some with 'hallpass init'")]
    Exposed(SocketAddr),
    #[error("it sent no greeting within {GREETING_TIME:?}")]
    Silent,
    #[error("it closed the connection before its greeting")]
    Closed,
    #[error("it is not a hallpass node: {0}")]
    Decode(#[from] DecodeError),
    #[error("this node rejects it: {0}")]
    Reject(String),
    #[error("it rejects this node: {0}")]
    RejectedByPeer(String),
}

impl From<ReceiveError> for GreetError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Io(error) if error.kind() == ErrorKind::UnexpectedEof => Self::Closed,
            ReceiveError::Io(error) => Self::Io(error),
            ReceiveError::Tls(error) => Self::Tls(error),
            ReceiveError::Rejected(why) => Self::RejectedByPeer(why),
            other @ (ReceiveError::Replaced | ReceiveError::Link(_)) => Self::Reject(other.to_string()),
        }
    }
}

/// A fresh socket with what was read from it but not yet understood.
struct Fresh {
    stream: TcpStream,
    tls: Option<Box<rustls::Connection>>,
    received: Vec<u8>,
}

/// Connects to a peer and serves the connection as long as it stands. An error means that it never stood.
pub(crate) async fn dial(driver: &Arc<Driver>, index: usize, tls: Option<&Tls>) -> Result<(), GreetError> {
    let peer = &driver.peers[index];
    let mut addresses = resolve(&peer.address).await?;
    if tls.is_none()
        && let Some(first) = addresses.first().copied()
    {
        addresses.retain(|address| address.ip().is_loopback());
        if addresses.is_empty() {
            return Err(GreetError::Exposed(first));
        }
    }
    let stream = connect(addresses).await?;
    let call = async {
        let tls = tls.map(Tls::dial).transpose()?.map(Box::new);
        let mut fresh = Fresh::begin(stream, tls).await?;
        fresh.send_hello(driver, index).await?;
        let hello = fresh.receive_hello().await?;
        let checked = if hello.from == peer.id {
            driver.check(&hello).map_err(GreetError::Reject).and_then(|()| fresh.verify(&hello, driver, index))
        } else {
            let found = driver.describe(&hello);
            let why = format!("{found} is member {}, not {}: give all members the same list", hello.from, peer.id);
            Err(GreetError::Reject(why))
        };
        if let Err(GreetError::Reject(why)) = &checked {
            fresh.reject(why).await;
        }
        checked.map(|()| (fresh, hello))
    };
    let (fresh, hello) = timeout(GREETING_TIME, call).await.map_err(|_| GreetError::Silent)??;
    fresh.run(driver, index, &hello).await
}

/// Answers an incoming connection and serves it as long as it stands. It has a place among the strangers until its peer is
/// known. An error means that it never stood; where it is about a known peer it has been reported.
pub(crate) async fn answer(
    driver: &Arc<Driver>,
    stream: TcpStream,
    tls: Option<&Tls>,
    place: Place,
) -> Result<(), GreetError> {
    let listen = async {
        stream.readable().await?;
        place.has_spoken();
        let tls = tls.map(Tls::accept).transpose()?.map(Box::new);
        let mut fresh = Fresh::begin(stream, tls).await?;
        let hello = fresh.receive_hello().await;
        if let Err(error @ GreetError::NoKeysHere) = &hello {
            // The peer cannot read it, but sees that it is not encrypted.
            fresh.reject(&error.to_string()).await;
        }
        let hello = hello?;
        let known = driver.peers.iter().position(|peer| peer.id == hello.from);
        let checked = driver.check(&hello).map_err(GreetError::Reject);
        let checked = checked.and_then(|()| known.ok_or_else(|| GreetError::Reject("it is no member".to_owned())));
        let checked = checked.and_then(|index| fresh.verify(&hello, driver, index).map(|()| index));
        match checked {
            Ok(index) => {
                fresh.send_hello(driver, index).await?;
                Ok(Some((fresh, hello, index)))
            }
            Err(error) => {
                if let GreetError::Reject(why) = &error {
                    fresh.reject(why).await;
                }
                let Some(index) = known else { return Err(error) };
                driver.report_trouble(index, error.to_string());
                Ok(None)
            }
        }
    };
    let greeted = timeout(GREETING_TIME, listen).await.map_err(|_| GreetError::Silent)??;
    match greeted {
        Some((fresh, hello, index)) if place.leave() => fresh.run(driver, index, &hello).await,
        _ => Ok(()),
    }
}

impl Fresh {
    async fn begin(stream: TcpStream, tls: Option<Box<rustls::Connection>>) -> Result<Self, GreetError> {
        stream.set_nodelay(true)?;
        os::notice_silence(&stream)?;
        let mut fresh = Self { stream, tls, received: Vec::new() };
        while fresh.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            fresh.send_encrypted().await?;
            if fresh.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                let done = fresh.read().await;
                // The alert that says what went wrong is sent before this side gives up.
                let _ = fresh.send_encrypted().await;
                done?;
            }
        }
        fresh.send_encrypted().await?;
        Ok(fresh)
    }

    async fn send_encrypted(&mut self) -> Result<(), GreetError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let mut encrypted = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut encrypted)?;
        }
        self.stream.write_all(&encrypted).await?;
        Ok(())
    }

    async fn read(&mut self) -> Result<(), GreetError> {
        let mut buffer = [0; 4096];
        let length = self.stream.read(&mut buffer).await?;
        if length == 0 {
            return Err(GreetError::Closed);
        }
        match &mut self.tls {
            None => self.received.extend_from_slice(&buffer[..length]),
            Some(tls) => decrypt(tls, &buffer[..length], &mut self.received)?,
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), GreetError> {
        match &mut self.tls {
            None => Ok(self.stream.write_all(bytes).await?),
            Some(tls) => {
                tls.writer().write_all(bytes)?;
                self.send_encrypted().await
            }
        }
    }

    async fn send_hello(&mut self, driver: &Driver, index: usize) -> Result<(), GreetError> {
        let mut bytes = Vec::new();
        if let Some(hello) = driver.hello(index) {
            hello.encode(&mut bytes);
        }
        self.write(&bytes).await
    }

    async fn reject(&mut self, why: &str) {
        let why = &why.as_bytes()[..why.len().min(GREETING_BYTES / 2)];
        let length = (why.len() as u16).to_be_bytes();
        let _ = self.write(&[REJECTION.as_slice(), &length, why].concat()).await;
    }

    async fn receive_hello(&mut self) -> Result<Hello, GreetError> {
        loop {
            if self.received.starts_with(REJECTION) {
                if let Some(why) = rejection(&self.received) {
                    return Err(GreetError::RejectedByPeer(why));
                }
            } else {
                match Hello::decode(&self.received) {
                    Ok((hello, length)) => {
                        self.received.drain(..length);
                        return Ok(hello);
                    }
                    Err(DecodeError::Truncated) => {}
                    Err(_) if self.tls.is_none() && is_tls(&self.received) => return Err(GreetError::NoKeysHere),
                    Err(error) => return Err(error.into()),
                }
            }
            if self.received.len() > GREETING_BYTES {
                return Err(GreetError::Decode(DecodeError::TooLong));
            }
            self.read().await?;
        }
    }

    /// A certificate is for one node: nobody can pass for another. And nobody can drag the group's epoch to its end.
    fn verify(&self, hello: &Hello, driver: &Driver, index: usize) -> Result<(), GreetError> {
        let peer = &driver.peers[index];
        let reject = |why: String| Err(GreetError::Reject(why));
        let found = driver.describe(hello);
        if let Some(tls) = &self.tls
            && !is_named(tls, &hello.name)
        {
            return reject(format!("the certificate of {found} is not for that name: give it its own keys"));
        }
        if let Some(name) = &peer.name
            && *name != hello.name
        {
            return reject(format!(
                "{found} is called '{name}' in the list of members of {}: correct the list or its name",
                driver.me
            ));
        }
        if driver.hello(index).is_some_and(|own| !is_plausible(own.incarnation, hello.incarnation)) {
            return reject(format!(
                "the incarnation of {found}, {}, is far above what clocks and starts can give: stop it, remove the file \
                 'incarnation' from its data directory, set its clock, and start it again",
                hello.incarnation
            ));
        }
        Ok(())
    }

    /// The connection stands: reads until it ends.
    async fn run(self, driver: &Arc<Driver>, index: usize, hello: &Hello) -> Result<(), GreetError> {
        let Self { stream, tls, received } = self;
        let (mut reading, writing) = stream.into_split();
        let writing = Arc::new(writing);
        let signals = Arc::new(Signals::default());
        let connection = Connection {
            socket: Arc::clone(&writing),
            tls,
            encrypted: Vec::new(),
            plain: Vec::new(),
            signals: Arc::clone(&signals),
            generation: 0,
            is_new: received.is_empty(),
        };
        let generation = driver.connect(index, hello, connection).map_err(GreetError::Reject)?;
        let peer = &driver.peers[index];
        if let Some(left_out) = driver.limits.peers[index].pass_change() {
            tracing::info!(peer = %peer.address, name = %hello.name, left_out, "connected");
        }
        let ended = tokio::select! {
            ended = read_all(driver, index, generation, &mut reading, received) => ended,
            () = write_when_blocked(driver, index, &writing, &signals) => Ok(()),
            () = signals.closed.notified() => Ok(()),
        };
        driver.disconnect(index, generation);
        match ended {
            Err(ReceiveError::Rejected(why)) => {
                driver.report_trouble(index, GreetError::RejectedByPeer(why).to_string());
            }
            Ok(()) => {
                if let Some(left_out) = driver.limits.peers[index].pass_change() {
                    tracing::info!(%peer, left_out, "disconnected");
                }
            }
            Err(error) => {
                if let Some(left_out) = driver.limits.peers[index].pass(&error.to_string()) {
                    tracing::warn!(%peer, %error, left_out, "connection closed");
                }
            }
        }
        Ok(())
    }
}

/// Why the peer rejects this node, if that is all here.
fn rejection(bytes: &[u8]) -> Option<String> {
    let length = bytes.strip_prefix(REJECTION)?.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))?;
    bytes.get(6..6 + length).map(|why| printable(&String::from_utf8_lossy(why)))
}

/// Bytes of a peer that encrypts: a handshake, or an alert that it was not answered with one.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, ..])
}

async fn read_all(
    driver: &Driver,
    index: usize,
    generation: u64,
    socket: &mut OwnedReadHalf,
    received: Vec<u8>,
) -> Result<(), ReceiveError> {
    if !received.is_empty() {
        driver.receive_plain(index, generation, &received)?;
    }
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = socket.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        driver.receive(index, generation, &buffer[..length])?;
    }
}

/// The socket was full: waits until it takes bytes again.
async fn write_when_blocked(driver: &Driver, index: usize, socket: &OwnedWriteHalf, signals: &Signals) {
    loop {
        signals.blocked.notified().await;
        let _ = socket.writable().await;
        driver.writable(index);
    }
}
