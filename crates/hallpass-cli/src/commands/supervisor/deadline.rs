//! When the command must end, by what is known about the lock.

use std::time::Duration;

use hallpass_agent::Holding;

/// What must happen to the command now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// SIGTERM, and SIGKILL at this time.
    Terminate(u64),
    Kill,
}

/// Says what must happen to the command now. `kill_at` is when it gets SIGKILL in any case.
pub(super) fn due(holding: &Holding, kill_at: Option<u64>, grace_ns: u64, now: u64) -> Due {
    let until = dead_by(holding);
    match kill_at {
        _ if holding.is_over(now) || until.into_iter().chain(kill_at).any(|at| now >= at) => Due::Kill,
        Some(_) => Due::Nothing,
        None => match until.filter(|until| now >= until.saturating_sub(grace_ns)) {
            Some(until) => Due::Terminate(until),
            None => Due::Nothing,
        },
    }
}

/// When the command gets SIGKILL: a tenth of the session before its end. On a busy machine the supervisor waits for a processor before it
/// notices that the time has come.
pub(super) fn dead_by(holding: &Holding) -> Option<u64> {
    let margin_ns = Duration::from_millis(holding.ttl_ms).as_nanos() as u64 / 10;
    holding.valid_until_ns().map(|until| until.saturating_sub(margin_ns))
}

#[cfg(test)]
mod tests {
    use hallpass_agent::line_protocol::Response;

    use super::*;

    #[test]
    fn sigterm_comes_a_grace_before_the_end_and_sigkill_before_the_session_does() {
        let granted =
            |valid_until_ns| Response::Granted { lock: "x".to_owned(), fence: 1, valid_until_ns, ttl_ms: 1000 };
        let holding = Holding::of(&granted(Some(2_000_000_000))).unwrap();
        let (grace, kill_at) = (300_000_000, 1_900_000_000);
        assert_eq!(due(&holding, None, grace, 1_599_999_999), Due::Nothing);
        assert_eq!(due(&holding, None, grace, 1_600_000_000), Due::Terminate(kill_at));
        assert_eq!(due(&holding, Some(kill_at), grace, 1_899_999_999), Due::Nothing, "SIGTERM comes once");
        assert_eq!(due(&holding, Some(kill_at), grace, kill_at), Due::Kill);
        assert_eq!(due(&holding, Some(1_000), grace, 1_000), Due::Kill, "the agent ends");
        assert_eq!(due(&holding, Some(u64::MAX), grace, kill_at), Due::Kill, "the session ends first");
        let endless = Holding::of(&granted(None)).unwrap();
        assert_eq!(due(&endless, None, grace, u64::MAX), Due::Nothing);
    }
}
