use std::collections::VecDeque;

use hallpass_core::codec::DecodeError;
use hallpass_core::{NodeId, Ticks};

use crate::Incarnation;
use crate::wire::{Frame, Header, Outgoing, write};

/// One pair's link, seen from one end: frames are numbered, acknowledged by later frames of the other direction, kept
/// until acknowledged, sent again after a reconnect and delivered once.
///
/// A connection keeps order and loses nothing while it stands; when it breaks, any number of the last frames may be lost.
/// So a link needs no timer, and no frames of its own while the connection stands.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: NodeId,
    /// The peer's process, once a connection with it was made.
    pub(crate) process: Option<Process>,
    pub(crate) connected: bool,
    /// When the last connection ended, or the link was made.
    pub(crate) disconnected_at: Ticks,
    /// The peer is a member of the view: only then it takes part in the locks.
    pub(crate) in_view: bool,
    /// The peer's incarnation in the view, if that counts: frames are for no other. So an incarnation with which frames were
    /// exchanged has been in a view, and never comes back after it was removed: its link can be forgotten then.
    pub(crate) in_view_as: Option<Incarnation>,
    /// The peer wants to join, and is no member yet: nothing is kept for it, and hardly anything of what it sends.
    pub(crate) joins: bool,
    /// Frames that have not been acknowledged, from `start`; what is before has been.
    out: Vec<u8>,
    start: usize,
    /// What is before has been given to the connection.
    written: usize,
    /// The frames from `start` on.
    frames: VecDeque<Kept>,
    /// How many of their bytes are answers to what the peer has sent.
    unread: usize,
    /// The number of the next new frame.
    next: u64,
    /// The last frame that was received, and the last that was acknowledged.
    received: u64,
    acknowledged: u64,
    /// It is among those that may have something to transmit.
    pub(crate) is_offered: bool,
    /// What has arrived before it can be handled: a part of a frame, or everything until the group is complete.
    pub(crate) inbound: Vec<u8>,
}

/// A frame that has not been acknowledged.
#[derive(Clone, Copy, Debug)]
struct Kept {
    length: u32,
    is_answer: bool,
}

/// One start of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Process {
    pub(crate) incarnation: Incarnation,
    pub(crate) boot_id: u64,
}

/// After this number of frames without one to carry it, an acknowledgement gets a frame of its own. It bounds what the other end keeps.
const ACKNOWLEDGE_EVERY: u64 = 32;
/// Acknowledged bytes are moved out of the way when there are this many.
const COMPACT_BYTES: usize = 64 * 1024;

/// What every frame of this node says of its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) me: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) epoch: u64,
}

/// Why a connection must be closed. The link keeps its state and goes on with the next connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// Bytes that are no frame.
    Decode(DecodeError),
    /// A frame is missing before this one.
    Gap,
    /// A frame for another incarnation or node.
    Misaddressed,
    /// A frame was acknowledged that was never sent.
    Acknowledgement,
    /// The node has given this connection up, and keeps nothing that arrives on it.
    GivenUp,
    /// More has arrived than is kept until the group is complete.
    Flooded,
    /// The peer asks and asks, and does not read the answers.
    Unread,
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decode(error) => error.fmt(f),
            Self::Gap => f.write_str("a message is missing before this one"),
            Self::Misaddressed => f.write_str("a message is for another incarnation or another node"),
            Self::Acknowledgement => f.write_str("a message was acknowledged that was never sent"),
            Self::GivenUp => f.write_str("this node has given the connection up"),
            Self::Flooded => f.write_str("more has arrived than is kept until the group is complete"),
            Self::Unread => f.write_str("it sends without reading the answers, and no more of those are kept for it"),
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
            process: None,
            connected: false,
            disconnected_at: 0,
            in_view: true,
            in_view_as: None,
            joins: false,
            out: Vec::new(),
            start: 0,
            written: 0,
            frames: VecDeque::new(),
            unread: 0,
            next: 1,
            received: 0,
            acknowledged: 0,
            is_offered: false,
            inbound: Vec::new(),
        }
    }

    /// Bytes that the peer has not acknowledged.
    #[inline]
    pub(crate) fn backlog(&self) -> usize {
        self.out.len() - self.start
    }

    /// More bytes wait for the peer than may. It may have received fewer frames than [`ACKNOWLEDGE_EVERY`] without saying so,
    /// however long they are: those do not count.
    pub(crate) fn is_congested(&self, backlog_max: usize) -> bool {
        self.backlog() > backlog_max && self.frames.len() as u64 >= ACKNOWLEDGE_EVERY
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// How many frames there have been for the peer so far.
    pub(crate) fn sent(&self) -> u64 {
        self.next - 1
    }

    /// Appends a frame. Every peer's process is known before there is a view, and no frame is sent before that; names and
    /// messages are bounded.
    pub(crate) fn push(&mut self, sender: Sender, body: &Outgoing<'_>, message: impl FnOnce(&mut Vec<u8>)) {
        let Some(process) = self.process else { return debug_assert!(false, "a frame for an unknown process") };
        if self.in_view_as.is_some_and(|incarnation| incarnation != process.incarnation) {
            return;
        }
        let header = Header {
            sequence: self.next,
            acknowledges: self.received,
            epoch: sender.epoch,
            from: sender.me,
            incarnation: sender.incarnation,
            to_incarnation: process.incarnation,
        };
        let written = write(&mut self.out, &header, body, message);
        let Ok(length) = written else { return debug_assert!(false, "a message longer than a frame") };
        self.frames.push_back(Kept { length: length as u32, is_answer: false });
        self.next += 1;
        self.acknowledged = self.received;
    }

    /// All frames after this one are answers to what the peer has sent.
    pub(crate) fn count_answers(&mut self, sent: u64) {
        let new = (self.sent() - sent) as usize;
        for frame in self.frames.iter_mut().rev().take(new) {
            frame.is_answer = true;
            self.unread += frame.length as usize;
        }
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

    /// A new connection: the other end has received up to here, everything after it is sent again.
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

    pub(crate) fn disconnect(&mut self, now: Ticks) {
        if self.connected {
            self.disconnected_at = now;
        }
        self.connected = false;
        // The peer sends a part of a frame again as a whole one, and so the whole ones that wait for the group.
        self.inbound.clear();
    }

    /// This process of the peer counts from now on: if it is another one, everything begins again.
    pub(crate) fn meet(&mut self, process: Process) {
        if self.process != Some(process) {
            self.reset();
            self.process = Some(process);
        }
    }

    /// Begins again, without a connection: the link is between two processes, and one of them is gone.
    pub(crate) fn reset(&mut self) {
        let Self { peer, in_view, in_view_as, joins, disconnected_at, .. } = *self;
        *self = Self { in_view, in_view_as, joins, disconnected_at, ..Self::new(peer) };
    }

    /// Checks a frame against the link; false if it was received before. A new one is refused while the peer leaves more than
    /// `unread_max` bytes of answers unread.
    pub(crate) fn receive(&mut self, sender: Sender, frame: &Frame<'_>, unread_max: usize) -> Result<bool, LinkError> {
        let header = &frame.header;
        let known = header.from == self.peer
            && self.process.is_some_and(|process| process.incarnation == header.incarnation)
            && header.to_incarnation == sender.incarnation;
        if !known {
            return Err(LinkError::Misaddressed);
        }
        if header.sequence > self.received + 1 {
            return Err(LinkError::Gap);
        }
        self.acknowledge(header.acknowledges)?;
        let new = header.sequence == self.received + 1;
        if new && self.unread > unread_max {
            return Err(LinkError::Unread);
        }
        self.received += u64::from(new);
        Ok(new)
    }

    /// The last frame could not be handled, and nothing was sent since: it counts as not received.
    pub(crate) fn take_back(&mut self) {
        self.received -= 1;
    }

    /// Gives back the memory of buffers that are empty and were large.
    pub(crate) fn shrink(&mut self) {
        if self.out.is_empty() && self.out.capacity() > COMPACT_BYTES {
            (self.out, self.frames) = (Vec::new(), VecDeque::new());
        }
        if self.inbound.is_empty() && self.inbound.capacity() > COMPACT_BYTES {
            self.inbound = Vec::new();
        }
    }

    /// What its buffers have room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.out.capacity() + self.frames.capacity() + self.inbound.capacity()
    }

    /// Enough was received since the last frame was sent that an acknowledgement needs a frame of its own.
    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.received - self.acknowledged >= ACKNOWLEDGE_EVERY
    }

    /// The other end has everything up to here: it need not be kept.
    fn acknowledge(&mut self, sequence: u64) -> Result<(), LinkError> {
        if sequence >= self.next {
            return Err(LinkError::Acknowledgement);
        }
        let first = self.next - self.frames.len() as u64;
        for _ in first..=sequence {
            let Some(Kept { length, is_answer }) = self.frames.front().copied() else { break };
            let end = self.start + length as usize;
            // A frame of which a part has been written must be finished, or the other end could not decode what follows. It can be
            // acknowledged already: it may have arrived by the connection before, after the greeting of this one was written.
            if (self.start + 1..end).contains(&self.written) {
                break;
            }
            self.frames.pop_front();
            self.start = end;
            self.unread -= if is_answer { length as usize } else { 0 };
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
