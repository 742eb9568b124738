use super::Violation;

/// How many messages per entry are allowed, on average over a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerEntry {
    /// At least.
    pub min: f64,
    /// At most.
    pub max: f64,
}

/// Counts protocol messages by kind, under the papers' names.
#[derive(Clone, Debug, Default)]
pub struct MessageCount {
    kinds: Vec<(&'static str, u64)>,
}

impl MessageCount {
    /// This many messages of a kind were sent.
    pub fn on_send(&mut self, kind: &'static str, count: u64) {
        // A protocol has a handful of kinds: a scan beats any map, and nothing is allocated after the first of each.
        match self.kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += count,
            None => self.kinds.push((kind, count)),
        }
    }

    /// How many messages were sent in all.
    pub fn total(&self) -> u64 {
        self.kinds.iter().map(|(_, count)| count).sum()
    }

    /// Each kind with its count, in the order of their first appearance.
    pub fn by_kind(&self) -> &[(&'static str, u64)] {
        &self.kinds
    }

    /// Checks that the average is within what the paper allows.
    pub fn check(&self, entries: u64, allowed: PerEntry) -> Option<Violation> {
        let measured = self.total() as f64 / entries.max(1) as f64;
        let wrong = measured < allowed.min - 1e-9 || measured > allowed.max + 1e-9;
        wrong.then(|| Violation {
            property: "messages",
            text: format!("{measured:.3} messages an entry, allowed are {} to {}", allowed.min, allowed.max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_too_many_or_too_few_is_caught() {
        let mut oracle = MessageCount::default();
        oracle.on_send("REQUEST", 4);
        oracle.on_send("REPLY", 4);
        let exactly = |count| PerEntry { min: count, max: count };
        assert_eq!(oracle.check(2, exactly(4.0)), None);
        assert!(oracle.check(2, exactly(3.0)).is_some());
        oracle.on_send("REPLY", 1);
        assert_eq!(
            oracle.check(2, exactly(4.0)).unwrap().to_string(),
            "messages: 4.500 messages an entry, allowed are 4 to 4"
        );
    }
}
