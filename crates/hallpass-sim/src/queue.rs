use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hallpass_core::{Slab, Ticks};

/// Scheduled events, in order of time, and in order of scheduling at one instant.
///
/// The heap holds small keys only; the events stay in a slab, so that nothing large is moved and, once grown, nothing is
/// allocated.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    keys: BinaryHeap<Reverse<(Ticks, u64, u32)>>,
    events: Slab<E>,
    scheduled: u64,
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Self {
        Self { keys: BinaryHeap::new(), events: Slab::default(), scheduled: 0 }
    }

    pub(crate) fn push(&mut self, at: Ticks, event: E) {
        let key = self.events.insert(event);
        self.scheduled += 1;
        self.keys.push(Reverse((at, self.scheduled, key)));
    }

    pub(crate) fn pop(&mut self) -> Option<(Ticks, E)> {
        let Reverse((at, _, key)) = self.keys.pop()?;
        let event = self.events.remove(key).expect("a key has an event");
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_first_and_first_come_first_served_at_one_instant() {
        let mut queue = Queue::new();
        for (at, name) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'd')] {
            queue.push(at, name);
        }
        assert_eq!(queue.pop(), Some((3, 'a')));
        queue.push(5, 'e');
        assert_eq!(queue.events.vacant_key(), 4, "slots are used again");
        let rest: String = std::iter::from_fn(|| queue.pop()).map(|(_, name)| name).collect();
        assert_eq!(rest, "bced");
    }
}
