use serde::{Deserialize, Serialize};

use crate::line_protocol::Response;

/// A lock that a client holds, and until when, as far as its agent has said.
///
/// Give it everything that the agent says, and look at it by the [clock](crate::now) before and during every piece of work.
///
/// ```
/// use hallpass_agent::{Holding, line_protocol::Response};
///
/// let granted = Response::Granted { lock: "x".to_owned(), fence: 7, valid_until_ns: Some(100), ttl_ms: 5000 };
/// let mut holding = Holding::of(&granted).unwrap();
/// assert!(!holding.is_over(99) && holding.is_over(100));
/// holding.handle(&Response::Session { valid_until_ns: Some(200) });
/// assert!(!holding.is_over(199));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The lock's name.
    pub lock: String,
    /// Its fence.
    pub fence: u64,
    /// How long a session lasts, in milliseconds.
    pub ttl_ms: u64,
    session_until_ns: Option<u64>,
    broken_at_ns: Option<u64>,
    lost: bool,
}

impl Holding {
    /// Begins with this response, if it is a grant.
    pub fn of(response: &Response) -> Option<Self> {
        let Response::Granted { lock, fence, valid_until_ns, ttl_ms } = response else { return None };
        Some(Self {
            lock: lock.clone(),
            fence: *fence,
            ttl_ms: *ttl_ms,
            session_until_ns: *valid_until_ns,
            broken_at_ns: None,
            lost: false,
        })
    }

    /// Notes a response of the agent.
    pub fn handle(&mut self, response: &Response) {
        let is_mine = |lock: &str, fence: u64| lock == self.lock && fence == self.fence;
        match response {
            Response::Session { valid_until_ns } => self.session_until_ns = *valid_until_ns,
            Response::AtRisk { lock, fence, valid_until_ns, broken } if is_mine(lock, *fence) => {
                if *broken {
                    self.broken_at_ns = Some(*valid_until_ns);
                } else {
                    self.session_until_ns = Some(*valid_until_ns);
                }
            }
            Response::Lost { lock, fence } if is_mine(lock, *fence) => self.lost = true,
            _ => {}
        }
    }

    /// Until when the lock is held for certain; none if nothing can take it away.
    pub fn valid_until_ns(&self) -> Option<u64> {
        [self.session_until_ns, self.broken_at_ns].into_iter().flatten().min()
    }

    /// An operator has broken the lock: no session saves it.
    pub fn is_broken(&self) -> bool {
        self.broken_at_ns.is_some()
    }

    /// True if the lock is not held any more, or not for certain.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.lost || self.valid_until_ns().is_some_and(|until| now_ns >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(valid_until_ns: Option<u64>) -> Holding {
        let lock = "x".to_owned();
        Holding::of(&Response::Granted { lock, fence: 7, valid_until_ns, ttl_ms: 5000 }).unwrap()
    }

    #[test]
    fn the_session_moves_the_deadline_both_ways() {
        let mut holding = held(None);
        assert!(!holding.is_over(u64::MAX), "nothing can take it away");
        for (valid_until_ns, over, not_over) in [(Some(50), 50, 49), (Some(90), 90, 89), (Some(60), 60, 59)] {
            holding.handle(&Response::Session { valid_until_ns });
            assert!(holding.is_over(over) && !holding.is_over(not_over));
        }
    }

    #[test]
    fn a_session_does_not_save_a_broken_lock() {
        let mut holding = held(Some(100));
        let risk = |fence, broken| Response::AtRisk { lock: "x".to_owned(), fence, valid_until_ns: 70, broken };
        holding.handle(&risk(8, true));
        assert!(!holding.is_broken(), "it is about another grant");
        holding.handle(&risk(7, true));
        holding.handle(&Response::Session { valid_until_ns: Some(200) });
        assert!(holding.is_broken() && holding.is_over(70) && !holding.is_over(69));
        let mut holding = held(Some(100));
        holding.handle(&risk(7, false));
        holding.handle(&Response::Session { valid_until_ns: Some(200) });
        assert!(!holding.is_broken() && !holding.is_over(199));
    }

    #[test]
    fn what_is_lost_stays_lost() {
        let mut holding = held(None);
        holding.handle(&Response::Lost { lock: "y".to_owned(), fence: 7 });
        assert!(!holding.is_over(0));
        holding.handle(&Response::Lost { lock: "x".to_owned(), fence: 7 });
        holding.handle(&Response::Session { valid_until_ns: None });
        assert!(holding.is_over(0));
    }
}
