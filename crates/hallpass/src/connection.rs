//! A connection that carries locks: how bytes are written to it, and who reads from it.
//!
//! It is read where callers run, since a grant that is read there wakes no other thread. Should their runtime be busy with something
//! else, the node's own thread reads it: other members do not wait for a caller who blocks.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use hallpass_core::NodeId;
use hallpass_node::wire::Hello;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::Notify;

use crate::driver::{Driver, ReceiveError};
use crate::greeting::{Fresh, GreetError, rejection};
use crate::os;
use crate::peer::Peer;
use crate::tls::PeerCertificate;

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;
/// A caller's runtime that has not looked at a readable socket for this time is busy with something else.
const UNREAD_FOR: Duration = Duration::from_millis(5);

/// The writing side, used under the node's lock.
pub(crate) struct Connection {
    socket: Arc<TcpStream>,
    tls: Option<Box<rustls::Connection>>,
    /// Encrypted bytes that the socket did not take.
    encrypted: Vec<u8>,
    /// Decrypted bytes, between two calls only a buffer.
    plain: Vec<u8>,
    signals: Arc<Signals>,
    /// What the peer has shown, if the connection is encrypted.
    pub(crate) certificate: Option<PeerCertificate>,
    /// Tells this connection from others with the same peer.
    pub(crate) number: u64,
    /// Nothing was received but the greeting.
    is_new: bool,
}

/// What a connection's tasks wait for.
#[derive(Default)]
struct Signals {
    blocked: Notify,
    closed: Notify,
    /// Why it is closed, if that is for the log.
    error: Mutex<Option<ReceiveError>>,
}

impl Signals {
    fn close(&self, why: Option<ReceiveError>) {
        if let Some(why) = why {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        }
        self.closed.notify_one();
    }
}

impl Connection {
    pub(crate) fn close(&self) {
        // The peer and our own reader learn of it at once.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.signals.close(None);
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

pub(crate) fn decrypt(tls: &mut rustls::Connection, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), ReceiveError> {
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
fn try_write(mut socket: &TcpStream, mut bytes: &[u8], signals: &Signals) -> usize {
    let all = bytes.len();
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                signals.blocked.notify_one();
                break;
            }
            Err(_) => {
                signals.close(None);
                break;
            }
        }
    }
    all - bytes.len()
}

/// The reading side. The owner of the buffer reads, and gives the node what it has read before another reader can get the buffer.
struct Reading {
    driver: Arc<Driver>,
    peer: NodeId,
    number: u64,
    buffer: Mutex<Vec<u8>>,
    /// How often the callers' runtime has looked at the socket.
    visits: AtomicU64,
}

/// The connection stands: serves it until it ends. Runs on the node's own thread.
pub(crate) async fn run(fresh: Fresh, driver: &Arc<Driver>, peer: &Peer, hello: &Hello) -> Result<(), GreetError> {
    let Fresh { stream, tls, certificate, received } = fresh;
    let socket = Arc::new(stream.into_std()?);
    os::send_without_pacing(&socket);
    // Where callers run it is registered on its own. Without descriptors there is no connection, rather than half of one.
    let for_callers = socket.try_clone()?;
    let signals = Arc::new(Signals::default());
    let connection = Connection {
        socket: Arc::clone(&socket),
        tls,
        encrypted: Vec::new(),
        plain: Vec::new(),
        signals: Arc::clone(&signals),
        certificate: certificate.and_then(Result::ok),
        number: 0,
        is_new: received.is_empty(),
    };
    let number = driver.connect(hello, connection).map_err(GreetError::Reject)?;
    let standing = Standing { driver, peer: hello.from, number, socket: &socket };
    peer.set_trouble(None);
    if let Some(left_out) = peer.limit.pass_change() {
        tracing::info!(peer = %peer.address, name = %crate::text::printable(&hello.name), left_out, "connected");
    }
    let reading = Arc::new(Reading {
        driver: Arc::clone(driver),
        peer: hello.from,
        number,
        buffer: Mutex::new(vec![0; READ_BYTES]),
        visits: AtomicU64::new(0),
    });
    let first = if received.is_empty() { Ok(()) } else { driver.receive_plain(hello.from, number, &received) };
    let ended = match first {
        Err(error) => Err(error),
        Ok(()) => {
            driver.readers.add(read_where_callers_run(Arc::clone(&reading), for_callers, Arc::clone(&signals)));
            let ended = tokio::select! {
                ended = read_what_is_left(&reading, &socket) => ended,
                () = write_when_blocked(&reading, &socket, &signals) => Ok(()),
                () = signals.closed.notified() => Ok(()),
            };
            ended
        }
    };
    // The reader where callers run finds the end of the connection.
    drop(standing);
    let noted = signals.error.lock().unwrap_or_else(PoisonError::into_inner).take();
    match noted.map_or(ended, Err) {
        Err(ReceiveError::Rejected(why)) => peer.report_trouble(GreetError::RejectedByPeer(why).to_string()),
        Ok(()) | Err(ReceiveError::Replaced) => {
            if let Some(left_out) = peer.limit.pass_change() {
                tracing::info!(%peer, left_out, "disconnected");
            }
        }
        Err(error) => {
            if let Some(left_out) = peer.limit.pass(&error.to_string()) {
                tracing::warn!(%peer, %error, left_out, "connection closed");
            }
        }
    }
    Ok(())
}

/// A connection that the node knows of. Also when the task is ended that serves it, the node learns that it is gone.
struct Standing<'a> {
    driver: &'a Driver,
    peer: NodeId,
    number: u64,
    socket: &'a TcpStream,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.driver.disconnect(self.peer, self.number);
    }
}

/// Ends the connection when it is over. If the callers' runtime itself is, the node's own thread goes on reading.
async fn read_where_callers_run(reading: Arc<Reading>, socket: TcpStream, signals: Arc<Signals>) {
    let Ok(mut stream) = tokio::net::TcpStream::from_std(socket) else { return };
    let ended = loop {
        match std::future::poll_fn(|cx| reading.poll(cx, &mut stream)).await {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(error),
        }
    };
    signals.close(ended);
}

impl Reading {
    /// Reads once and hands over what was read, without a wait between the two.
    fn poll(
        &self,
        cx: &mut std::task::Context<'_>,
        stream: &mut tokio::net::TcpStream,
    ) -> Poll<Result<usize, ReceiveError>> {
        self.visits.fetch_add(1, Ordering::Relaxed);
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut read = ReadBuf::new(&mut buffer);
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        let bytes = read.filled();
        if !bytes.is_empty() {
            self.driver.receive(self.peer, self.number, bytes)?;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    /// The same past the callers' runtime, until nothing is left. False at the end of the connection.
    fn read(&self, mut socket: &TcpStream) -> Result<bool, ReceiveError> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match socket.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => self.driver.receive(self.peer, self.number, &buffer[..length])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Watches over the socket from the node's own thread, and reads what the callers' runtime leaves lying.
///
/// It is told of the first bytes only, then looks again after a while: else every message would wake a second thread.
async fn read_what_is_left(reading: &Reading, socket: &TcpStream) -> Result<(), ReceiveError> {
    // The visits when it was last found busy, while it is.
    let mut busy = None;
    loop {
        if !registered(socket, async |stream| stream.readable().await).await {
            tokio::time::sleep(UNREAD_FOR * 10).await;
            continue;
        }
        let visits = reading.visits.load(Ordering::Relaxed);
        if busy != Some(visits) {
            tokio::time::sleep(UNREAD_FOR).await;
            if reading.visits.load(Ordering::Relaxed) != visits {
                busy = None;
                continue;
            }
        }
        if !reading.read(socket)? {
            return Ok(());
        }
        busy = Some(visits);
    }
}

/// The socket was full: waits until it takes bytes again.
async fn write_when_blocked(reading: &Reading, socket: &TcpStream, signals: &Signals) {
    loop {
        signals.blocked.notified().await;
        if !registered(socket, async |stream| stream.writable().await).await {
            tokio::time::sleep(UNREAD_FOR * 10).await;
        }
        reading.driver.writable(reading.peer);
    }
}

/// Waits for something about a socket on this thread. It is registered here only meanwhile. False if that failed: for want of
/// descriptors, most likely, which passes.
async fn registered(socket: &TcpStream, wait: impl AsyncFnOnce(&tokio::net::TcpStream) -> std::io::Result<()>) -> bool {
    let Ok(stream) = socket.try_clone().and_then(tokio::net::TcpStream::from_std) else { return false };
    wait(&stream).await.is_ok()
}
