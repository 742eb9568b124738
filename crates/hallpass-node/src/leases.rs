//! Until when clients of an agent may be told that they hold what they were granted: the rules, without a clock.
//!
//! A client goes by what it was told, whatever becomes of its agent. So nothing that it holds may pass to another before that is over:
//!
//! **Whatever is told, by any door, is bounded by what the node holds for certain, by the agent's end, by what the next agent waits if
//! this one is killed, and for a client with a lease by the lease.**
//!
//! [`Bounds`] are the first three. A client that shares the agent's clock is told [`Bounds::deadline`]. One that counts by its own clock
//! is told a [`Promise`], which [`LeaseTerm::promise`] alone can make: so nobody forgets the lease. The agent and the model `leases` of
//! the laboratory use these same types.

use hallpass_core::Ticks;

/// What bounds everything that a client is told, by the agent's clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// Until when the node holds for certain what the client holds; none if nothing could take it away.
    pub held_until: Option<Ticks>,
    /// When the agent gives everything up, once it ends.
    pub end: Option<Ticks>,
    /// How long the next agent waits at least, from when this one is killed.
    pub covered: Ticks,
    /// How long a session lasts. A client that cannot be reached is never told more: another member may join meanwhile.
    pub session: Ticks,
    /// By how much clocks may differ in their rates, in millionths.
    pub drift_ppm: u32,
}

impl Bounds {
    /// The deadline of a client that shares the agent's clock, and that the agent can reach at any time; none if nothing bounds it.
    pub fn deadline(&self, now: Ticks) -> Option<Ticks> {
        let until = [self.held_until, self.end].into_iter().flatten().min()?;
        Some(until.min(now.saturating_add(self.covered)))
    }
}

/// What a client is told that counts by its own clock, from when it sent the request that this answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Promise {
    ttl: Ticks,
    until: Ticks,
}

impl Promise {
    /// How long the client may count on what it holds.
    pub fn ttl(&self) -> Ticks {
        self.ttl
    }

    /// When it has stopped counting on it, however slow its clock, by the agent's.
    pub fn until(&self) -> Ticks {
        self.until
    }
}

/// The time of a lease, by the agent's clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeaseTerm {
    granted: Ticks,
    /// When it ends, unless it is kept alive.
    deadline: Ticks,
    /// When everything that its client was told is over.
    told_until: Ticks,
}

impl LeaseTerm {
    /// A lease that begins now.
    pub fn new(granted: Ticks, now: Ticks, drift_ppm: u32) -> Self {
        Self { granted, deadline: 0, told_until: 0 }.renewed(now, drift_ppm)
    }

    /// The same, kept alive by a request that came in now. Its client counts from when it sent that, by a clock that may be slower.
    pub fn renewed(self, now: Ticks, drift_ppm: u32) -> Self {
        let drift = u128::from(self.granted) * u128::from(drift_ppm) / 1_000_000;
        let room = self.granted.saturating_add(Ticks::try_from(drift).unwrap_or(Ticks::MAX));
        Self { deadline: now.saturating_add(room), ..self }
    }

    /// How long it lasts from keepalive to keepalive.
    pub fn granted(&self) -> Ticks {
        self.granted
    }

    /// When it ends, unless it is kept alive.
    pub fn deadline(&self) -> Ticks {
        self.deadline
    }

    /// Its locks may pass on. An agent that ends keeps them no longer than it has told.
    pub fn is_over(&self, now: Ticks, ending: bool) -> bool {
        now >= self.deadline || ending && now >= self.told_until
    }

    /// What its client may be told now, and is from here on. None if that is nothing.
    pub fn promise(&mut self, now: Ticks, bounds: &Bounds) -> Option<Promise> {
        let longest = now.saturating_add(bounds.covered.min(bounds.session));
        let until = [bounds.held_until, bounds.end].into_iter().flatten().fold(self.deadline.min(longest), Ticks::min);
        let ttl = less_drift(until.saturating_sub(now), bounds.drift_ppm);
        let promise = (ttl > 0).then_some(Promise { ttl, until })?;
        self.told_until = self.told_until.max(until);
        Some(promise)
    }
}

/// What a client with a slower clock may count, so that it ends no later than this.
fn less_drift(left: Ticks, drift_ppm: u32) -> Ticks {
    let ticks = u128::from(left) * 1_000_000 / (1_000_000 + u128::from(drift_ppm));
    Ticks::try_from(ticks).unwrap_or(Ticks::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIFT_PPM: u32 = 10_000;
    const FREE: Bounds = Bounds { held_until: None, end: None, covered: 5050, session: 5050, drift_ppm: DRIFT_PPM };

    fn told(bounds: Bounds) -> Option<Ticks> {
        let mut term = LeaseTerm::new(1_000_000, 0, DRIFT_PPM);
        term.promise(1000, &bounds).map(|promise| promise.ttl())
    }

    #[test]
    fn each_bound_bounds_a_promise() {
        assert_eq!(told(FREE), Some(5000));
        assert_eq!(told(Bounds { held_until: Some(2010), ..FREE }), Some(1000));
        assert_eq!(told(Bounds { end: Some(2010), ..FREE }), Some(1000));
        assert_eq!(told(Bounds { covered: 1010, ..FREE }), Some(1000));
        assert_eq!(told(Bounds { session: 1010, ..FREE }), Some(1000));
        assert_eq!(told(Bounds { end: Some(900), ..FREE }), None, "it has ended");
    }

    #[test]
    fn a_promise_ends_with_its_lease() {
        let mut term = LeaseTerm::new(1000, 0, DRIFT_PPM);
        assert_eq!((term.deadline(), term.promise(0, &FREE).map(|told| told.ttl())), (1010, Some(1000)));
        assert_eq!(term.promise(505, &FREE).map(|told| (told.ttl(), told.until())), Some((500, 1010)));
        let mut kept = term.renewed(505, DRIFT_PPM);
        assert_eq!(kept.promise(505, &FREE).map(|told| told.ttl()), Some(1000));
        assert!(term.promise(1010, &FREE).is_none() && term.is_over(1010, false) && !kept.is_over(1010, false));
    }

    #[test]
    fn an_agent_that_ends_keeps_a_lease_for_what_it_has_told() {
        let mut term = LeaseTerm::new(1_000_000, 0, DRIFT_PPM);
        let until = term.promise(0, &FREE).map_or(0, |told| told.until());
        let _ = term.promise(1, &Bounds { end: Some(100), ..FREE });
        assert!(!term.is_over(until - 1, true) && term.is_over(until, true) && !term.is_over(until, false));
    }

    #[test]
    fn a_deadline_is_bounded_once_anything_bounds_it() {
        assert_eq!(FREE.deadline(1000), None);
        assert_eq!(Bounds { end: Some(3000), ..FREE }.deadline(1000), Some(3000));
        assert_eq!(Bounds { end: Some(3000), held_until: Some(2000), ..FREE }.deadline(1000), Some(2000));
        assert_eq!(Bounds { held_until: Some(2000), covered: 10, ..FREE }.deadline(1000), Some(1010));
    }
}
