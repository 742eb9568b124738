//! Waits without blocking the runtime, as `hallpass_testkit` waits in tests that have none.

use std::time::{Duration, Instant};

use hallpass_testkit::LIMIT;

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it takes no longer")
}

/// Waits for something that must happen.
pub(crate) async fn until(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !happened().await {
        assert!(Instant::now() < end, "it never happened that {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
