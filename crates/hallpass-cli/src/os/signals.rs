//! Signals to this process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::native::ignored_signals;

/// A signal that this process got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    pub(crate) number: i32,
    pub(crate) from_terminal: bool,
}

/// The signals that a user or a service manager sends to a command. Once this exists, they do not end this process.
pub(crate) struct ForwardedSignals(SignalsInfo<WithRawSiginfo>);

impl ForwardedSignals {
    /// Starts to collect signals. A signal that our parent ignores, as under `nohup`, stays ignored, here and by the command. If we
    /// handled it, the command would start with the signal's default action.
    pub(crate) fn collect() -> io::Result<Self> {
        let ignored = ignored_signals();
        let all = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
        SignalsInfo::new(all.into_iter().filter(|signal| !ignored.contains(signal))).map(Self)
    }

    /// Waits for signals and passes each to `handle`, until that returns false.
    pub(crate) fn for_each(mut self, mut handle: impl FnMut(ReceivedSignal) -> bool) {
        self.0.forever().all(|info| {
            handle(ReceivedSignal { number: info.si_signo, from_terminal: !was_sent_by_process(info.si_code) })
        });
    }
}

/// By POSIX, a signal that a process sent has the code SI_USER or SI_QUEUE. On Linux, NetBSD and OpenBSD these are zero and less, on
/// macOS and FreeBSD the two numbers here. Of the signals that we collect, the kernel sends only those of a terminal.
fn was_sent_by_process(code: i32) -> bool {
    code <= 0 || matches!(code, 0x1_0001 | 0x1_0002)
}

/// Resolves when a signal asks this process to end. Call it within a runtime. From then on these signals do not end the process
/// directly. A hangup or Ctrl-C that our parent ignores stays ignored: `nohup` and shells do that for background jobs.
pub(crate) fn shutdown_requested() -> io::Result<impl Future<Output = ()>> {
    let ignored = ignored_signals();
    let heard = |kind: SignalKind| (!ignored.contains(&kind.as_raw_value())).then(|| signal(kind)).transpose();
    let mut terminate = signal(SignalKind::terminate())?;
    let (mut interrupt, mut hangup) = (heard(SignalKind::interrupt())?, heard(SignalKind::hangup())?);
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {}, () = next(&mut interrupt) => {}, () = next(&mut hangup) => {} }
    })
}

/// Waits for the next signal of this kind; forever if it stays ignored.
async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns a flag that Ctrl-C sets, so that work can end in order. A second Ctrl-C ends this process at once. If our parent ignores
/// Ctrl-C, as a shell does for background jobs, it stays ignored.
pub(crate) fn interrupted() -> io::Result<Arc<AtomicBool>> {
    let set = Arc::new(AtomicBool::new(false));
    if !ignored_signals().contains(&SIGINT) {
        // In this order: the first signal finds the flag unset and sets it.
        flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&set))?;
        flag::register(SIGINT, Arc::clone(&set))?;
    }
    Ok(set)
}
