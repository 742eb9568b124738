use std::collections::VecDeque;

use hallpass_core::{NodeId, Ticks};

/// How many may watch at a time: each is a page that somebody looks at.
const TAPS_MAX: usize = 16;
/// How many messages wait for one who watches: some rounds of a large group. Of more only the newest are kept.
const KEPT_MAX: usize = 1024;

/// A message of a watched lock's protocol, as this node has sent or received it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedMessage {
    /// When.
    pub at: Ticks,
    /// The other node.
    pub peer: NodeId,
    /// It was sent to that node; else it came from there.
    pub is_sent: bool,
    /// The paper's name for it, such as `REQUEST`.
    pub kind: &'static str,
    /// All of it, for people.
    pub text: String,
}

/// What one who watches knows its lock's messages by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapId(u64);

/// Those who watch the messages of a lock. While there are none, a message costs a look at the length of an empty list.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    next: u64,
    taps: Vec<Tap>,
}

#[derive(Debug)]
struct Tap {
    id: TapId,
    lock: Box<str>,
    kept: VecDeque<TracedMessage>,
    missed: u64,
}

impl Taps {
    /// Begins to watch a lock, whether it exists or not; none if too many watch.
    pub(crate) fn open(&mut self, lock: &str) -> Option<TapId> {
        if self.taps.len() >= TAPS_MAX {
            return None;
        }
        let id = TapId(self.next);
        self.next += 1;
        self.taps.push(Tap { id, lock: lock.into(), kept: VecDeque::new(), missed: 0 });
        Some(id)
    }

    pub(crate) fn close(&mut self, id: TapId) {
        self.taps.retain(|tap| tap.id != id);
        if self.taps.is_empty() {
            self.taps = Vec::new();
        }
    }

    /// What has come since it was last asked, and how many are missing before that.
    pub(crate) fn take(&mut self, id: TapId) -> (Vec<TracedMessage>, u64) {
        let Some(tap) = self.taps.iter_mut().find(|tap| tap.id == id) else { return (Vec::new(), 0) };
        (std::mem::take(&mut tap.kept).into(), std::mem::take(&mut tap.missed))
    }

    #[inline]
    pub(crate) fn note(&mut self, lock: &str, message: impl FnOnce() -> TracedMessage) {
        if !self.taps.is_empty() {
            self.note_for(lock, message);
        }
    }

    #[cold]
    fn note_for(&mut self, lock: &str, message: impl FnOnce() -> TracedMessage) {
        let mut watching = self.taps.iter_mut().filter(|tap| *tap.lock == *lock).peekable();
        if watching.peek().is_none() {
            return;
        }
        let message = message();
        for tap in watching {
            if tap.kept.len() == KEPT_MAX {
                tap.kept.pop_front();
                tap.missed += 1;
            }
            tap.kept.push_back(message.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(at: Ticks) -> TracedMessage {
        TracedMessage { at, peer: NodeId(2), is_sent: true, kind: "REQUEST", text: String::new() }
    }

    #[test]
    fn only_watched_locks_are_noted() {
        let mut taps = Taps::default();
        taps.note("a", || unreachable!("nobody watches"));
        let (one, other) = (taps.open("a").unwrap(), taps.open("a").unwrap());
        taps.note("b", || unreachable!("nobody watches b"));
        taps.note("a", || message(1));
        assert_eq!(taps.take(one), (vec![message(1)], 0));
        taps.close(one);
        taps.note("a", || message(2));
        assert_eq!(taps.take(one), (vec![], 0));
        assert_eq!(taps.take(other), (vec![message(1), message(2)], 0));
        taps.close(other);
        taps.note("a", || unreachable!("nobody watches any more"));
    }

    #[test]
    fn who_does_not_look_misses_the_oldest() {
        let mut taps = Taps::default();
        let tap = taps.open("a").unwrap();
        let all = KEPT_MAX as u64 + 5;
        (0..all).for_each(|at| taps.note("a", || message(at)));
        let (kept, missed) = taps.take(tap);
        assert_eq!((kept.len(), kept[0].at, missed), (KEPT_MAX, 5, 5));
        assert_eq!(taps.take(tap), (vec![], 0));
    }

    #[test]
    fn so_many_may_watch() {
        let mut taps = Taps::default();
        let all: Vec<Option<TapId>> = (0..=TAPS_MAX).map(|_| taps.open("a")).collect();
        assert!(all[..TAPS_MAX].iter().all(Option::is_some) && all[TAPS_MAX].is_none());
        taps.close(all[3].unwrap());
        assert!(taps.open("b").is_some());
    }
}
