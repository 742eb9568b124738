//! The tasks of a running node: they accept and make connections, and watch the clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::{answer, dial};
use crate::driver::{Driver, TICK};
use crate::os::now;
use crate::tls::Tls;

/// At most so many connections may be waiting for their greeting.
const UNKNOWN_PEERS_MAX: usize = 64;

pub(crate) async fn listen(driver: Arc<Driver>, listener: TcpListener, tls: Option<Tls>) {
    let unknown = Arc::new(Semaphore::new(UNKNOWN_PEERS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = driver.when_stopped() => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: it passes.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&unknown).try_acquire_owned() else {
            tracing::warn!(%from, "refused: too many unknown peers at once");
            continue;
        };
        tokio::spawn(serve(Arc::clone(&driver), stream, from, tls.clone(), permit));
    }
}

async fn serve(
    driver: Arc<Driver>,
    stream: TcpStream,
    from: SocketAddr,
    tls: Option<Tls>,
    permit: OwnedSemaphorePermit,
) {
    let served = answer(&driver, stream, tls.as_ref(), permit);
    tokio::select! {
        result = served => if let Err(error) = result {
            tracing::warn!(%from, %error, "refused a connection");
        },
        () = driver.when_stopped() => {}
    }
}

/// The pause before a peer is dialed again grows from one to the other.
const RETRY: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

pub(crate) async fn keep_connected(driver: Arc<Driver>, index: usize, tls: Option<Tls>) {
    let mut pause = RETRY[0];
    let mut logged = String::new();
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
                logged.clear();
            }
            Err(error) => {
                // The same error again is not logged.
                let text = error.to_string();
                driver.note_trouble(index, Some(text.clone()));
                if text != logged {
                    tracing::warn!(peer = %driver.peers[index].address, error = %text, "cannot connect; trying again");
                    logged = text;
                }
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
    }
}
