use std::collections::VecDeque;

use crate::wire::{Frame, Header, Outgoing, write};
use hallpass_core::NodeId;
use hallpass_core::codec::DecodeError;

/// One pair's link, seen from one end: frames are numbered, acknowledged in passing, kept until acknowledged, sent again
/// after a reconnect and delivered once.
///
/// A connection keeps order and loses nothing while it stands; when it breaks, any number of the last frames may be lost.
/// That is all a link needs: no timer, and no word when all goes well.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: NodeId,
    /// The peer's incarnation; 0 until it has been met.
    pub(crate) incarnation: u32,
    /// The peer's life, drawn at its start.
    pub(crate) life: u64,
    pub(crate) connected: bool,
    /// Frames that have not been acknowledged, from `start`; what is before has been.
    out: Vec<u8>,
    start: usize,
    /// What is before has been given to the connection.
    written: usize,
    /// The lengths of the frames from `start` on.
    lengths: VecDeque<u32>,
    /// The number of the next new frame.
    next: u64,
    /// The last frame that was received, and the last that was acknowledged.
    received: u64,
    acknowledged: u64,
    /// What has arrived before it can be handled: a part of a frame, or everything while the group is not complete.
    pub(crate) inbound: Vec<u8>,
}

/// After so many frames without one to carry the news, an acknowledgement goes by itself. It bounds what the other end keeps.
const ACKNOWLEDGE_EVERY: u64 = 32;
/// Acknowledged bytes are moved out of the way when there are this many.
const COMPACT_BYTES: usize = 64 * 1024;

/// Whose link it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) me: NodeId,
    pub(crate) incarnation: u32,
    pub(crate) epoch: u64,
}

/// Why a connection must be closed. The link itself is as before and goes on with the next connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// Bytes that are no frame.
    Decode(DecodeError),
    /// A frame is missing before this one.
    Gap,
    /// A frame for another view, life or node.
    Stranger,
    /// Something was acknowledged that was never sent.
    Acknowledgement,
    /// More has arrived than can be kept until the group is complete.
    Flooded,
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decode(error) => error.fmt(f),
            Self::Gap => f.write_str("a message is missing before this one"),
            Self::Stranger => f.write_str("a message is for another view, another life or another node"),
            Self::Acknowledgement => f.write_str("a message was acknowledged that was never sent"),
            Self::Flooded => f.write_str("more has arrived than can wait until the group is complete"),
        }
    }
}

impl std::error::Error for LinkError {}

impl From<DecodeError> for LinkError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl Link {
    pub(crate) fn new(peer: NodeId) -> Self {
        Self {
            peer,
            incarnation: 0,
            life: 0,
            connected: false,
            out: Vec::new(),
            start: 0,
            written: 0,
            lengths: VecDeque::new(),
            next: 1,
            received: 0,
            acknowledged: 0,
            inbound: Vec::new(),
        }
    }

    /// Bytes that the peer has not acknowledged.
    #[inline]
    pub(crate) fn backlog(&self) -> usize {
        self.out.len() - self.start
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// How many frames there have been for the peer.
    pub(crate) fn sent(&self) -> u64 {
        self.next - 1
    }

    /// Appends a frame. It cannot fail for what nodes say to each other: names and messages are bounded.
    pub(crate) fn push(&mut self, sender: Sender, body: &Outgoing<'_>, message: impl FnOnce(&mut Vec<u8>)) {
        let header = Header {
            sequence: self.next,
            acknowledges: self.received,
            epoch: sender.epoch,
            from: sender.me,
            incarnation: sender.incarnation,
            to_incarnation: self.incarnation,
        };
        let written = write(&mut self.out, &header, body, message);
        let Ok(length) = written else { return debug_assert!(false, "a message longer than a frame") };
        self.lengths.push_back(length as u32);
        self.next += 1;
        self.acknowledged = self.received;
    }

    /// What to give to the connection now.
    #[inline]
    pub(crate) fn transmit(&self) -> &[u8] {
        if self.connected { &self.out[self.written..] } else { &[] }
    }

    /// The connection has taken this many bytes.
    #[inline]
    pub(crate) fn transmitted(&mut self, bytes: usize) {
        self.written = (self.written + bytes).min(self.out.len());
    }

    /// A new connection: the other end has received up to here, everything else goes again.
    pub(crate) fn connect(&mut self, received: u64) -> Result<(), LinkError> {
        if received >= self.next {
            return Err(LinkError::Acknowledgement);
        }
        self.inbound.clear();
        // Nothing is half written on a new connection.
        self.written = self.start;
        self.connected = true;
        self.acknowledge(received)
    }

    pub(crate) fn disconnect(&mut self) {
        self.connected = false;
        // A part of a frame will come again as a whole one; whole ones that wait for the group do too.
        self.inbound.clear();
    }

    /// Takes a frame in; false if it has been here before.
    pub(crate) fn receive(&mut self, sender: Sender, frame: &Frame<'_>) -> Result<bool, LinkError> {
        let header = &frame.header;
        let known = header.from == self.peer
            && header.incarnation == self.incarnation
            && header.to_incarnation == sender.incarnation
            && header.epoch == sender.epoch;
        if !known {
            return Err(LinkError::Stranger);
        }
        if header.sequence > self.received + 1 {
            return Err(LinkError::Gap);
        }
        self.acknowledge(header.acknowledges)?;
        let new = header.sequence == self.received + 1;
        self.received += u64::from(new);
        Ok(new)
    }

    /// Sends an acknowledgement by itself if it is due.
    pub(crate) fn acknowledge_if_due(&mut self, sender: Sender) {
        if self.received - self.acknowledged >= ACKNOWLEDGE_EVERY {
            self.push(sender, &Outgoing::Acknowledgement, |_| {});
        }
    }

    /// The other end has everything up to here: it need not be kept.
    fn acknowledge(&mut self, sequence: u64) -> Result<(), LinkError> {
        if sequence >= self.next {
            return Err(LinkError::Acknowledgement);
        }
        let first = self.next - self.lengths.len() as u64;
        for _ in first..=sequence {
            let end = self.start + self.lengths.front().map_or(0, |length| *length as usize);
            // A frame of which a part has been written is finished, or the other end could make nothing of what follows. It can
            // be acknowledged already: it may be there by the connection before, since the greeting of this one was written.
            if (self.start + 1..end).contains(&self.written) {
                break;
            }
            self.lengths.pop_front();
            self.start = end;
        }
        self.written = self.written.max(self.start);
        if self.start == self.out.len() {
            self.out.clear();
            (self.start, self.written) = (0, 0);
        } else if self.start > COMPACT_BYTES && self.start > self.out.len() / 2 {
            self.out.drain(..self.start);
            self.written -= self.start;
            self.start = 0;
        }
        Ok(())
    }
}
