use std::thread::sleep;
use std::time::{Duration, Instant};

/// Much longer than anything takes that must happen. It measures nothing.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits for something that must happen.
#[track_caller]
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < end, "it never happened that {what}");
        sleep(Duration::from_millis(5));
    }
}
