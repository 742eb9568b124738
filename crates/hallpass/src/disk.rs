//! The thread that writes: nothing is synced under the node's lock, and changes are carried out in order.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use hallpass_node::Write;

use crate::DataDirectory;
use crate::driver::Driver;

/// Something to be written.
pub(crate) enum Job {
    Write(Write),
    /// The node takes part in its group: see [`DataDirectory::settle`].
    Settle,
}

/// Ends when the sender is dropped and everything is written. Then the directory is free.
pub(crate) fn start(data: Arc<DataDirectory>, driver: Weak<Driver>) -> std::io::Result<(Sender<Job>, JoinHandle<()>)> {
    let (sender, jobs) = channel();
    let thread = std::thread::Builder::new().name("hallpass-disk".to_owned());
    let log = tracing::dispatcher::get_default(Clone::clone);
    let work =
        move || tracing::dispatcher::with_default(&log, || close_on_panic(&driver, || run(&data, &jobs, &driver)));
    Ok((sender, thread.spawn(work)?))
}

/// A node that waits for a write forever would keep its session, and hold up the next view of its group.
pub(crate) fn close_on_panic(driver: &Weak<Driver>, work: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
        tracing::error!(
            "the thread that writes has failed and the node stops; this is a bug: please report what was printed before"
        );
        driver.upgrade().into_iter().for_each(|driver| driver.close_now());
    }
}

fn run(data: &DataDirectory, jobs: &Receiver<Job>, driver: &Weak<Driver>) {
    while let Ok(first) = jobs.recv() {
        // What has come together is synced together.
        let mut writes = Vec::new();
        let mut settle = false;
        for job in std::iter::once(first).chain(jobs.try_iter()) {
            match job {
                Job::Write(write) => writes.push(write),
                Job::Settle => settle = true,
            }
        }
        let written = if writes.is_empty() { Ok(()) } else { data.write(&writes) };
        let written = written.and_then(|()| if settle { data.settle() } else { Ok(()) });
        match (written, driver.upgrade()) {
            (Ok(()), Some(driver)) => driver.persisted(writes),
            (Ok(()), None) => {}
            (Err(error), driver) => {
                tracing::error!(
                    %error, directory = %data.path().display(),
                    "cannot write to the data directory, and the node stops; what was stored before is kept: \
                     make room and start it again"
                );
                driver.into_iter().for_each(|driver| driver.close_now());
                return;
            }
        }
    }
}
