use hallpass_core::NodeId;

use super::Violation;

/// How often a request is overtaken: entries by other nodes between the request and its own entry.
#[derive(Clone, Debug)]
pub struct Overtaking {
    entries: u64,
    bound: Option<u64>,
    worst: u64,
}

impl Overtaking {
    /// With the most overtakes that are allowed, if there is a bound.
    pub fn new(bound: Option<u64>) -> Self {
        Self { entries: 0, bound, worst: 0 }
    }

    /// A request is made. Returns what [`on_enter`](Self::on_enter) needs to know of it.
    pub fn on_request(&self) -> u64 {
        self.entries
    }

    /// A request enters. `issued` is what [`on_request`](Self::on_request) returned for it, `own` how often its own node has
    /// entered since.
    pub fn on_enter(&mut self, node: NodeId, issued: u64, own: u64) -> Option<Violation> {
        let overtakes = self.entries - issued - own;
        self.entries += 1;
        self.worst = self.worst.max(overtakes);
        let bound = self.bound.filter(|bound| overtakes > *bound)?;
        let text = format!("node {node} was overtaken {overtakes} times, at most {bound} are allowed");
        Some(Violation { property: "overtaking", text })
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How often the most overtaken request was overtaken.
    pub fn worst(&self) -> u64 {
        self.worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_overtake_too_many_is_caught() {
        let mut oracle = Overtaking::new(Some(1));
        let waits = oracle.on_request();
        for node in [2, 3] {
            let issued = oracle.on_request();
            assert_eq!(oracle.on_enter(NodeId(node), issued, 0), None);
        }
        let violation = oracle.on_enter(NodeId(1), waits, 0).unwrap();
        assert_eq!(violation.to_string(), "overtaking: node 1 was overtaken 2 times, at most 1 are allowed");
        assert_eq!(oracle.worst(), 2);
    }
}
