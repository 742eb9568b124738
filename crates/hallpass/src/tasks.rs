//! The tasks of a running node: they accept and make connections, and watch the clock.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use crate::connect::resolve;
use crate::connection::{GreetError, answer, dial};
use crate::driver::{Driver, TICK};
use crate::os::{explain, now};
use crate::strangers::Strangers;
use crate::tls::Tls;

pub(crate) async fn listen(driver: Arc<Driver>, listener: TcpListener, tls: Option<Tls>) {
    let strangers = Arc::new(Strangers::default());
    let members = keep_places_for_members(&driver, &strangers);
    tokio::pin!(members);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            never = &mut members => never,
            () = driver.when_stopped() => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: it passes.
                let error = explain(&error);
                if let Some(left_out) = driver.limits.accepting.pass(&error) {
                    tracing::warn!(error, left_out, "cannot accept a connection; trying again");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let crowded = strangers.admit(from.ip(), |place| {
            let (driver, strangers, tls) = (Arc::clone(&driver), Arc::clone(&strangers), tls.clone());
            tokio::spawn(async move {
                tokio::select! {
                    served = answer(&driver, stream, tls.as_ref(), place) => if let Err(error) = served {
                        report(&driver, &strangers, from, &error);
                    },
                    () = driver.when_stopped() => {}
                }
            })
            .abort_handle()
        });
        if crowded && let Some(left_out) = driver.limits.places.pass("") {
            tracing::warn!(%from, left_out, "too many connections without a greeting; the oldest was closed");
        }
        // The newcomer's task can see what has arrived before the next newcomer may end it.
        tokio::task::yield_now().await;
    }
}

/// Whose addresses are names may move: they are looked up again now and then.
const LOOK_UP_EVERY: Duration = Duration::from_secs(60);

async fn keep_places_for_members(driver: &Driver, strangers: &Strangers) -> ! {
    loop {
        let mut addresses: Vec<(usize, IpAddr)> = Vec::new();
        for (index, peer) in driver.peers.iter().enumerate() {
            if let Ok(found) = resolve(&peer.address).await {
                addresses.extend(found.iter().map(|address| (index, address.ip())));
            }
        }
        strangers.set_members(addresses);
        tokio::time::sleep(LOOK_UP_EVERY).await;
    }
}

/// A connection has failed before its peer was known. If it came from where a member is expected to call from, that is most likely
/// why this one is missing.
fn report(driver: &Driver, strangers: &Strangers, from: SocketAddr, error: &GreetError) {
    if let Some(index) = strangers.only_member_at(from.ip()).filter(|index| driver.waits_for(*index)) {
        return driver.report_trouble(index, format!("a connection from its address has failed: {error}"));
    }
    if let Some(left_out) = driver.limits.strangers.pass(&error.to_string()) {
        tracing::warn!(%from, %error, left_out, "refused a connection");
    }
}

/// The pause before a peer is dialed again grows from one to the other.
const RETRY: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

pub(crate) async fn keep_connected(driver: Arc<Driver>, index: usize, tls: Option<Tls>) {
    let mut pause = RETRY[0];
    while !driver.is_stopped() {
        let begun = Instant::now();
        let result = tokio::select! {
            result = dial(&driver, index, tls.as_ref()) => result,
            () = driver.when_stopped() => return,
        };
        match result {
            Ok(()) => {
                // A peer that closes each connection at once is not dialed as often as one whose connection broke.
                let lasted = begun.elapsed() > 10 * RETRY[0];
                pause = if lasted { RETRY[0] } else { (pause * 2).min(10 * RETRY[0]) };
            }
            Err(error) => {
                driver.report_trouble(index, error.to_string());
                pause = (pause * 2).min(RETRY[1]);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

pub(crate) async fn keep_time(driver: Arc<Driver>) {
    while !driver.is_stopped() {
        let next = driver.state().node.poll_timeout();
        let until = next.map_or(TICK, |at| Duration::from_nanos(at.saturating_sub(now())).min(TICK));
        tokio::select! {
            () = tokio::time::sleep(until.max(Duration::from_millis(1))) => {}
            () = driver.when_stopped() => return,
        }
        driver.tick();
        driver.limits.log_left_out();
    }
}
