//! A control connection: whole messages in both directions, each with its length in four bytes in front. It runs on the node's own
//! thread, so that no caller can keep a session from being renewed.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hallpass_core::NodeId;
use hallpass_core::codec::DecodeError;
use hallpass_node::wire::{CONTROL_MAX, Hello};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::allowance::{Allowance, PAUSE};
use crate::connection::decrypt;
use crate::driver::{Driver, ReceiveError};
use crate::greeting::{Fresh, GREETING_BYTES, GreetError, REJECTION, rejection};
use crate::os::now;
use crate::peer::Peer;
use crate::text::printable;
use crate::tls::PeerCertificate;

/// How many bytes wait for a peer that does not read. Beyond that the oldest messages are dropped: their senders repeat them.
const WAITING_MAX: usize = 4 * CONTROL_MAX;
/// The same for a guest and for a candidate, and how long their messages may be.
const GUEST_BYTES: usize = 128 * 1024;
/// How much is given to the socket at once.
const WRITE_BYTES: usize = 64 * 1024;
/// How many messages of one peer are handled before those of others, and sessions, have their turn.
const BATCH: usize = 16;

/// The messages to be sent over one connection.
pub(crate) struct Outbox {
    /// This node has made the connection.
    pub(crate) is_dialed: bool,
    /// What the peer has shown, if the connection is encrypted.
    pub(crate) certificate: Option<PeerCertificate>,
    /// Which of this node's control connections it is.
    pub(crate) number: u64,
    /// The peer has dialed, and is none that this node would dial: it is no member, no voter, and none that is known to be about to join.
    is_guest: AtomicBool,
    /// It is a guest, or a candidate, which wants to join and is no member yet.
    has_little_room: AtomicBool,
    queue: Mutex<Queue>,
    filled: Notify,
    closed: Notify,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Outbox {
    pub(crate) fn new(is_dialed: bool, certificate: Option<PeerCertificate>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self {
            is_dialed,
            certificate,
            number: NUMBERS.fetch_add(1, Relaxed),
            is_guest: AtomicBool::new(!is_dialed),
            has_little_room: AtomicBool::new(!is_dialed),
            queue: Mutex::default(),
            filled: Notify::new(),
            closed: Notify::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        use std::future::Future;
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};
        let closed = pin!(self.closed.notified());
        // To look takes the notice away: it is given again.
        let is_closed = closed.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(());
        if is_closed {
            self.close();
        }
        is_closed
    }

    pub(crate) fn is_guest(&self) -> bool {
        self.is_guest.load(Relaxed)
    }

    /// Notes what this node knows of the peer: nothing, if it is none that this node would dial.
    pub(crate) fn set_peer(&self, peer: Option<&Peer>) {
        let is_guest = peer.is_none() && !self.is_dialed;
        self.is_guest.store(is_guest, Relaxed);
        // Everybody who asks to join is a candidate, and is dialed.
        self.has_little_room.store(is_guest || peer.is_some_and(Peer::joins), Relaxed);
    }

    pub(crate) fn push(&self, message: Vec<u8>) {
        let bytes_max = if self.has_little_room.load(Relaxed) { GUEST_BYTES } else { WAITING_MAX };
        let mut queue = self.queue();
        queue.bytes += message.len();
        queue.messages.push_back(message);
        // The last one stays, however long it is.
        while queue.bytes > bytes_max
            && queue.messages.len() > 1
            && let Some(dropped) = queue.messages.pop_front()
        {
            queue.bytes -= dropped.len();
        }
        drop(queue);
        self.filled.notify_one();
    }

    pub(crate) fn close(&self) {
        self.closed.notify_one();
    }

    /// Appends messages with their lengths, until there are enough.
    fn take(&self, out: &mut Vec<u8>) {
        let mut queue = self.queue();
        while out.len() < WRITE_BYTES
            && let Some(message) = queue.messages.pop_front()
        {
            queue.bytes -= message.len();
            out.extend_from_slice(&(message.len() as u32).to_be_bytes());
            out.extend_from_slice(&message);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection stands: serves it until it ends. False if it was not needed beside another one with the same peer.
pub(crate) async fn run(
    mut fresh: Fresh,
    driver: &Arc<Driver>,
    peer: Option<&Peer>,
    hello: &Hello,
    is_dialed: bool,
) -> Result<bool, GreetError> {
    let certificate = fresh.certificate.take().and_then(Result::ok);
    let outbox = Arc::new(Outbox::new(is_dialed, certificate));
    let is_needed = driver.connect_control(hello, &outbox).map_err(GreetError::Reject)?;
    peer.into_iter().for_each(|peer| peer.set_trouble(None));
    if !is_needed {
        return Ok(false);
    }
    let standing = Standing { driver, peer: hello.from, outbox: &outbox };
    tracing::debug!(name = %printable(&hello.name), node = %hello.from, "control connection made");
    let ended = tokio::select! {
        ended = serve(fresh, driver, hello, &outbox) => ended,
        () = outbox.closed.notified() => Ok(()),
    };
    drop(standing);
    if let Err(error) = ended {
        let known = peer.map(|peer| &peer.limit).unwrap_or(&driver.limits.strangers);
        match (error, peer) {
            (ReceiveError::Rejected(why), Some(peer)) => {
                peer.report_trouble(GreetError::RejectedByPeer(why).to_string());
            }
            (error, _) => {
                let error = error.to_string();
                if let Some(left_out) = known.pass(&error) {
                    tracing::warn!(name = %printable(&hello.name), error, left_out, "control connection closed");
                }
            }
        }
    }
    Ok(true)
}

/// A connection that the node knows of. Also when the task is ended that serves it, the node learns that it is gone.
struct Standing<'a> {
    driver: &'a Driver,
    peer: NodeId,
    outbox: &'a Arc<Outbox>,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.driver.disconnect_control(self.peer, self.outbox);
    }
}

async fn serve(fresh: Fresh, driver: &Driver, hello: &Hello, outbox: &Arc<Outbox>) -> Result<(), ReceiveError> {
    let Fresh { stream, mut tls, received: mut plain, .. } = fresh;
    let (mut reading, mut writing) = stream.into_split();
    let mut buffer = vec![0; WRITE_BYTES];
    let mut is_new = plain.is_empty();
    let mut out = Vec::new();
    let mut written = 0;
    let mut allowance = Allowance::new(now());
    // Until when nothing is read.
    let mut pause = handle(driver, hello, outbox, &mut allowance, &mut plain).await?;
    loop {
        if written == out.len() {
            out.clear();
            written = 0;
            match &mut tls {
                None => outbox.take(&mut out),
                Some(tls) => {
                    let mut messages = Vec::new();
                    outbox.take(&mut messages);
                    encrypt(tls, &messages, &mut out)?;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {
                pause = handle(driver, hello, outbox, &mut allowance, &mut plain).await?;
            }
            read = reading.read(&mut buffer), if pause.is_none() => {
                let length = read?;
                if length == 0 {
                    return Ok(());
                }
                match &mut tls {
                    None => plain.extend_from_slice(&buffer[..length]),
                    Some(tls) => decrypt(tls, &buffer[..length], &mut plain)?,
                }
                if is_new && let Some(why) = rejection(&plain) {
                    return Err(ReceiveError::Rejected(why));
                }
                is_new &= plain.is_empty();
                pause = handle(driver, hello, outbox, &mut allowance, &mut plain).await?;
            }
            taken = writing.write(&out[written..]), if written < out.len() => {
                let taken = taken?;
                if taken == 0 {
                    return Ok(());
                }
                written += taken;
            }
            () = outbox.filled.notified(), if out.is_empty() => {}
        }
    }
}

fn encrypt(tls: &mut rustls::Connection, plain: &[u8], out: &mut Vec<u8>) -> Result<(), ReceiveError> {
    // One record at a time: what TLS keeps itself is bounded.
    for record in plain.chunks(16 * 1024) {
        tls.writer().write_all(record)?;
        while tls.wants_write() {
            tls.write_tls(out)?;
        }
    }
    while tls.wants_write() {
        tls.write_tls(out)?;
    }
    Ok(())
}

/// Hands over whole messages: all of them, unless the peer could be anybody and has sent too many. Then it says until when the rest waits.
async fn handle(
    driver: &Driver,
    hello: &Hello,
    outbox: &Arc<Outbox>,
    allowance: &mut Allowance,
    plain: &mut Vec<u8>,
) -> Result<Option<Instant>, ReceiveError> {
    loop {
        outbox.set_peer(driver.peer(hello.from).as_deref());
        let batch = handle_batch(driver, hello, outbox, allowance, plain)?;
        match batch {
            Batch::All => return Ok(None),
            Batch::TooMany => return Ok(Some(Instant::now() + PAUSE)),
            Batch::Some => tokio::task::yield_now().await,
        }
    }
}

/// How much was handed over.
enum Batch {
    All,
    Some,
    /// All that the peer may say now.
    TooMany,
}

fn handle_batch(
    driver: &Driver,
    hello: &Hello,
    outbox: &Arc<Outbox>,
    allowance: &mut Allowance,
    plain: &mut Vec<u8>,
) -> Result<Batch, ReceiveError> {
    let has_little_room = outbox.has_little_room.load(Relaxed);
    let length_max = if has_little_room { GUEST_BYTES } else { CONTROL_MAX };
    let (mut taken, mut count, mut batch) = (0, 0, Batch::All);
    while let Some((length, rest)) = plain[taken..].split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        // A rejection may come in place of a first message, and in parts. Read as a length it is too long for a message.
        let may_be_rejection = plain.starts_with(REJECTION) && plain.len() <= GREETING_BYTES;
        if length > length_max && !may_be_rejection {
            return Err(DecodeError::TooLong.into());
        }
        let Some(message) = rest.get(..length) else { break };
        if count == BATCH {
            batch = Batch::Some;
            break;
        }
        if has_little_room && !allowance.take(now()) {
            batch = Batch::TooMany;
            break;
        }
        driver.receive_control(hello.from, outbox, message)?;
        taken += 4 + length;
        count += 1;
    }
    plain.drain(..taken);
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_less_room_until_it_is_a_member_and_always_gets_the_last_message() {
        let outbox = Outbox::new(false, None);
        let held = |outbox: &Outbox| {
            let queue = outbox.queue();
            (queue.messages.len(), queue.bytes)
        };
        (0..10).for_each(|_| outbox.push(vec![0; GUEST_BYTES / 4]));
        assert_eq!(held(&outbox), (4, GUEST_BYTES));
        outbox.push(vec![0; 2 * GUEST_BYTES]);
        assert_eq!(held(&outbox), (1, 2 * GUEST_BYTES));
        // One that wants to join is known, and may be anybody.
        let peer = Peer::new(None, "host:1".to_owned());
        peer.set_joins(true);
        outbox.set_peer(Some(&peer));
        assert!(!outbox.is_guest());
        outbox.push(vec![0; GUEST_BYTES]);
        assert_eq!(held(&outbox), (1, GUEST_BYTES));
        peer.set_joins(false);
        outbox.set_peer(Some(&peer));
        outbox.push(vec![0; GUEST_BYTES]);
        assert_eq!(held(&outbox), (2, 2 * GUEST_BYTES));
        let dialed = Outbox::new(true, None);
        let has_room = |peer| {
            dialed.set_peer(peer);
            assert!(!dialed.is_guest(), "this node has chosen whom to dial");
            !dialed.has_little_room.load(Relaxed)
        };
        assert!(has_room(None) && has_room(Some(&peer)));
        peer.set_joins(true);
        assert!(!has_room(Some(&peer)));
    }

    #[test]
    fn a_peer_that_does_not_read_loses_the_oldest_messages() {
        let outbox = Outbox::new(true, None);
        for number in 0..100_u8 {
            outbox.push(vec![number; CONTROL_MAX / 8]);
        }
        let (mut out, mut first) = (Vec::new(), Vec::<u8>::new());
        outbox.take(&mut out);
        first.extend(out.get(4));
        while !out.is_empty() {
            out.clear();
            outbox.take(&mut out);
            first.extend(out.get(4));
        }
        assert_eq!(first, (100 - 32..100).collect::<Vec<u8>>());
    }
}
