//! One connection to a peer: how it begins, how bytes are written to it, and the tasks that read from it.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use hallpass_core::codec::DecodeError;
use hallpass_node::wire::Hello;
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::timeout;

use crate::shared::{Peer, ReceiveError, Shared};
use crate::tls::{Tls, is_named};

/// No stranger takes longer than this to say who it is.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// No greeting, and no refusal of one, is longer.
const GREETING_BYTES: usize = 1024;
/// What a read takes at once.
const READ_BYTES: usize = 64 * 1024;
/// What begins a refusal in place of a greeting.
const REFUSAL: &[u8; 4] = b"deny";

/// The writing side, in the hands of whoever has the node.
pub(crate) struct Connection {
    socket: Arc<OwnedWriteHalf>,
    tls: Option<Box<rustls::Connection>>,
    /// Encrypted bytes that the socket did not take.
    sealed: Vec<u8>,
    signals: Arc<Signals>,
    pub(crate) generation: u64,
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

    /// Gives bytes to the socket, as many as it takes now, and tells how many of them are on their way. What is left is
    /// asked for again when the socket takes more.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let Some(tls) = &mut self.tls else {
            return if bytes.is_empty() { 0 } else { try_write(&self.socket, bytes, &self.signals) };
        };
        let mut taken = 0;
        loop {
            while tls.wants_write() && tls.write_tls(&mut self.sealed).is_ok() {}
            if !self.sealed.is_empty() {
                let written = try_write(&self.socket, &self.sealed, &self.signals);
                self.sealed.drain(..written);
                // What is sealed cannot be taken back: nothing more is while some is left.
                if !self.sealed.is_empty() {
                    return taken;
                }
            }
            // One record at a time.
            let record = &bytes[taken..bytes.len().min(taken + 16 * 1024)];
            match tls.writer().write(record) {
                Ok(sealed) if sealed > 0 => taken += sealed,
                _ => return taken,
            }
        }
    }

    /// Decrypts what has arrived, if it is encrypted, and hands it on.
    pub(crate) fn open(&mut self, mut bytes: &[u8], mut then: impl FnMut(&[u8])) -> Result<(), ReceiveError> {
        let Some(tls) = &mut self.tls else {
            then(bytes);
            return Ok(());
        };
        let mut plain = [0; 4096];
        while !bytes.is_empty() {
            if tls.read_tls(&mut bytes)? == 0 {
                return Err(ReceiveError::Io(ErrorKind::UnexpectedEof.into()));
            }
            tls.process_new_packets()?;
            loop {
                match tls.reader().read(&mut plain) {
                    Ok(0) => return Err(ReceiveError::Io(ErrorKind::UnexpectedEof.into())),
                    Ok(length) => then(&plain[..length]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
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

/// A peer whose machine is gone says nothing, not even goodbye: the system asks it now and then.
fn notice_silence(stream: &TcpStream) -> std::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    // In milliseconds; as long as the questions above take.
    Ok(sockopt::set_tcp_user_timeout(stream, 11_000)?)
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("no trust: {0}")]
    Tls(#[from] rustls::Error),
    #[error("it did not say who it is within {GREETING_TIME:?}")]
    Silent,
    #[error("it closed the connection before it said who it is")]
    Closed,
    #[error("it speaks no hallpass: {0}")]
    Garbage(#[from] DecodeError),
    #[error("it was refused: {0}")]
    Refuse(String),
    #[error("it refuses this node: {0}")]
    Refused(String),
}

/// A fresh socket with what was read from it but not yet understood.
struct Fresh {
    stream: TcpStream,
    tls: Option<Box<rustls::Connection>>,
    received: Vec<u8>,
}

/// Calls a peer, and stays as long as the connection stands. Tells whether it ever stood.
pub(crate) async fn dial(shared: &Arc<Shared>, at: usize, tls: Option<&Tls>) -> Result<(), GreetError> {
    let peer = &shared.peers[at];
    let call = async {
        let stream = TcpStream::connect(&peer.address).await?;
        let tls = tls.map(Tls::dial).transpose()?.map(Box::new);
        let mut fresh = Fresh::begin(stream, tls).await?;
        fresh.say(shared, at).await?;
        let hello = fresh.hear().await?;
        if hello.from != peer.id {
            return Err(GreetError::Refuse(format!("it is member {}, not {}", hello.from, peer.id)));
        }
        fresh.is_who_it_says(&hello, peer)?;
        Ok((fresh, hello))
    };
    let (fresh, hello) = timeout(GREETING_TIME, call).await.map_err(|_| GreetError::Silent)??;
    fresh.run(shared, at, &hello).await
}

/// Answers a caller, and stays as long as the connection stands.
/// `place` is a stranger's; it is free for the next one when this one has said who it is.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    stream: TcpStream,
    tls: Option<&Tls>,
    place: OwnedSemaphorePermit,
) -> Result<(), GreetError> {
    let listen = async {
        let tls = tls.map(Tls::accept).transpose()?.map(Box::new);
        let mut fresh = Fresh::begin(stream, tls).await?;
        let hello = fresh.hear().await?;
        let known = shared.peers.iter().position(|peer| peer.id == hello.from);
        let checked = shared.check(&hello).map_err(|error| GreetError::Refuse(error.to_string()));
        let checked = checked.and_then(|()| known.ok_or_else(|| GreetError::Refuse("it is no member".to_owned())));
        let checked = checked.and_then(|at| fresh.is_who_it_says(&hello, &shared.peers[at]).map(|()| at));
        let at = match checked {
            Ok(at) => at,
            Err(error) => {
                if let Some(at) = known {
                    shared.note_trouble(at, Some(error.to_string()));
                }
                fresh.deny(&error).await;
                return Err(error);
            }
        };
        fresh.say(shared, at).await?;
        Ok((fresh, hello, at))
    };
    let (fresh, hello, at) = timeout(GREETING_TIME, listen).await.map_err(|_| GreetError::Silent)??;
    drop(place);
    fresh.run(shared, at, &hello).await
}

impl Fresh {
    async fn begin(stream: TcpStream, tls: Option<Box<rustls::Connection>>) -> Result<Self, GreetError> {
        stream.set_nodelay(true)?;
        notice_silence(&stream)?;
        let mut fresh = Self { stream, tls, received: Vec::new() };
        while fresh.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            fresh.send_sealed().await?;
            if fresh.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                let done = fresh.read().await;
                // What went wrong is told to the other side before this one gives up.
                let _ = fresh.send_sealed().await;
                done?;
            }
        }
        fresh.send_sealed().await?;
        Ok(fresh)
    }

    async fn send_sealed(&mut self) -> Result<(), GreetError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let mut sealed = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut sealed)?;
        }
        self.stream.write_all(&sealed).await?;
        Ok(())
    }

    async fn read(&mut self) -> Result<(), GreetError> {
        let mut buffer = [0; 4096];
        let length = self.stream.read(&mut buffer).await?;
        if length == 0 {
            return Err(GreetError::Closed);
        }
        let mut bytes = &buffer[..length];
        let Some(tls) = &mut self.tls else {
            self.received.extend_from_slice(bytes);
            return Ok(());
        };
        while !bytes.is_empty() {
            // After a goodbye nothing more is read, whatever comes.
            if tls.read_tls(&mut bytes)? == 0 {
                return Err(GreetError::Closed);
            }
            let state = tls.process_new_packets()?;
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            if !plain.is_empty() {
                tls.reader().read_exact(&mut plain)?;
                self.received.extend_from_slice(&plain);
            }
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), GreetError> {
        match &mut self.tls {
            None => Ok(self.stream.write_all(bytes).await?),
            Some(tls) => {
                tls.writer().write_all(bytes)?;
                self.send_sealed().await
            }
        }
    }

    async fn say(&mut self, shared: &Shared, at: usize) -> Result<(), GreetError> {
        let mut bytes = Vec::new();
        if let Some(hello) = shared.hello(at) {
            hello.encode(&mut bytes);
        }
        self.write(&bytes).await
    }

    async fn deny(&mut self, why: &GreetError) {
        let GreetError::Refuse(why) = why else { return };
        let why = &why.as_bytes()[..why.len().min(GREETING_BYTES / 2)];
        let length = (why.len() as u16).to_be_bytes();
        let _ = self.write(&[REFUSAL.as_slice(), &length, why].concat()).await;
    }

    async fn hear(&mut self) -> Result<Hello, GreetError> {
        loop {
            if self.received.starts_with(REFUSAL) {
                let length =
                    self.received.get(4..6).map(|length| usize::from(u16::from_be_bytes([length[0], length[1]])));
                if let Some(why) = length.and_then(|length| self.received.get(6..6 + length)) {
                    return Err(GreetError::Refused(String::from_utf8_lossy(why).escape_debug().to_string()));
                }
            } else {
                match Hello::decode(&self.received) {
                    Ok((hello, length)) => {
                        self.received.drain(..length);
                        return Ok(hello);
                    }
                    Err(DecodeError::Truncated) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if self.received.len() > GREETING_BYTES {
                return Err(GreetError::Garbage(DecodeError::TooLong));
            }
            self.read().await?;
        }
    }

    /// A certificate is for one node: nobody speaks for another.
    fn is_who_it_says(&self, hello: &Hello, peer: &Peer) -> Result<(), GreetError> {
        if let Some(tls) = &self.tls
            && !is_named(tls, &hello.name)
        {
            return Err(GreetError::Refuse(format!("its certificate is not that of '{}'", hello.name.escape_debug())));
        }
        if let Some(name) = &peer.name
            && *name != hello.name
        {
            let found = hello.name.escape_debug();
            return Err(GreetError::Refuse(format!("it calls itself '{found}', not '{name}'")));
        }
        Ok(())
    }

    /// The connection stands: reads until it ends.
    async fn run(self, shared: &Arc<Shared>, at: usize, hello: &Hello) -> Result<(), GreetError> {
        let Self { stream, tls, received } = self;
        let (mut reading, writing) = stream.into_split();
        let writing = Arc::new(writing);
        let signals = Arc::new(Signals::default());
        let connection = Connection {
            socket: Arc::clone(&writing),
            tls,
            sealed: Vec::new(),
            signals: Arc::clone(&signals),
            generation: 0,
        };
        let generation = shared.connect(at, hello, connection).map_err(GreetError::Refuse)?;
        let peer = &shared.peers[at];
        tracing::info!(peer = %peer.address, name = %hello.name, "connected");
        let ended = tokio::select! {
            ended = read_all(shared, at, generation, &mut reading, received) => ended,
            () = write_when_blocked(shared, at, &writing, &signals) => Ok(()),
            () = signals.closed.notified() => Ok(()),
        };
        shared.disconnect(at, generation);
        match ended {
            Ok(()) => tracing::info!(peer = %peer.address, "disconnected"),
            Err(error) => tracing::warn!(peer = %peer.address, %error, "connection closed"),
        }
        Ok(())
    }
}

async fn read_all(
    shared: &Shared,
    at: usize,
    generation: u64,
    socket: &mut OwnedReadHalf,
    received: Vec<u8>,
) -> Result<(), ReceiveError> {
    if !received.is_empty() {
        shared.receive_plain(at, generation, &received)?;
    }
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = socket.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        shared.receive(at, generation, &buffer[..length])?;
    }
}

/// The socket was full: waits until it takes bytes again.
async fn write_when_blocked(shared: &Shared, at: usize, socket: &OwnedWriteHalf, signals: &Signals) {
    loop {
        signals.blocked.notified().await;
        let _ = socket.writable().await;
        shared.flush(at);
    }
}
