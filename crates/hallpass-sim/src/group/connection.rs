use hallpass_core::Ticks;
use hallpass_core::codec::{Reader, put_number};

/// One connection between two nodes: bytes in order each way, until it breaks.
#[derive(Debug)]
pub(super) struct Connection {
    /// the two nodes, by position.
    pub(super) nodes: [usize; 2],
    /// What is written from now on arrives nowhere.
    pub(super) broken: bool,
    pub(super) ends: [End; 2],
}

/// One node's end of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub(super) state: State,
    /// When the last of what is on its way to this end arrives.
    pub(super) arrives: Ticks,
    /// What would arrive later is lost.
    pub(super) cutoff: Ticks,
    /// The beginning of a frame that this end has not yet written to its end.
    pub(super) unfinished: Vec<u8>,
    /// How many bytes of frames this end has put on their way, and how many have arrived here.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// A frame that this end has written is lost, until the connection breaks and the next one carries it.
    pub(super) has_lost: bool,
    /// The last frame that this end has written.
    pub(super) last: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum State {
    /// The other's greeting has not arrived, or not all of it.
    Greeting(Vec<u8>),
    Standing,
    Closed,
}

impl Connection {
    pub(super) fn new(nodes: [usize; 2], now: Ticks) -> Self {
        let end = || End {
            state: State::Greeting(Vec::new()),
            arrives: now,
            cutoff: Ticks::MAX,
            unfinished: Vec::new(),
            sent: 0,
            received: 0,
            has_lost: false,
            last: Vec::new(),
        };
        Self { nodes, broken: false, ends: [end(), end()] }
    }
}

impl End {
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Adds what was written and gives the next frame that is whole by now.
    pub(super) fn next_frame(&mut self) -> Option<Vec<u8>> {
        let length = usize::from(u16::from_be_bytes(*self.unfinished.first_chunk::<2>()?)) + 2;
        (self.unfinished.len() >= length).then(|| self.unfinished.drain(..length).collect())
    }
}

/// The same frame with other numbers: `ahead` frames have been added before it, and as many more in the other direction
/// as `behind` says. For planted bugs: no network does that.
pub(super) fn renumber(frame: &[u8], ahead: i64, behind: i64) -> Vec<u8> {
    const FIXED: usize = 4;
    let mut reader = Reader::new(&frame[FIXED..]);
    let numbers = [reader.number(), reader.number()].map(|number| number.expect("nodes write frames"));
    let mut head = Vec::new();
    numbers.iter().for_each(|number| put_number(&mut head, *number));
    let rest = &frame[FIXED + head.len()..];
    let mut out = frame[..FIXED].to_vec();
    put_number(&mut out, numbers[0].saturating_add_signed(ahead));
    put_number(&mut out, numbers[1].saturating_add_signed(-behind));
    out.extend_from_slice(rest);
    let length = (out.len() - 2) as u16;
    out[..2].copy_from_slice(&length.to_be_bytes());
    out
}
