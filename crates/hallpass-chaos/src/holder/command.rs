//! The command that `hallpass run` runs.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::SIGTERM;

use super::{Holder, Holding, Identity};
use crate::random::Random;

/// Works until it is done or told to end. One in four is stubborn, and goes on until it is killed.
pub(crate) fn work_under_run(identity: &Identity, shared: bool, seed: u64, ttl: Duration) -> std::io::Result<()> {
    let variable = |name: &str| env::var(name).map_err(|_| std::io::Error::other(format!("there is no {name}")));
    let lock = variable("HALLPASS_LOCK")?;
    let fence = variable("HALLPASS_FENCE")?.parse().map_err(std::io::Error::other)?;
    let mut random = Random::new(seed);
    let told = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&told))?;
    let stubborn = random.once_in(4);
    let hold = Duration::from_millis(random.between(1, 30));
    let in_storm = if random.once_in(2) { ttl * 3 } else { hold };
    Holder::new(identity)?.work(&lock, shared, fence, [hold, in_storm], |wait| {
        thread::sleep(wait);
        if told.load(Ordering::SeqCst) && !stubborn { Holding::AtRisk } else { Holding::Yes }
    })?;
    Ok(())
}
