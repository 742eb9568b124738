//! The supervisor as `run` sees it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use hallpass_agent::{Client, Holding};

use super::wire::{Order, Report};
use crate::commands::args::RunArgs;
use crate::os::{self, ReceivedSignal};

/// A running supervisor.
pub(in crate::commands) struct Supervisor {
    control: UnixStream,
    process: Child,
    /// Keeps the lock, should the supervisor be killed, until everything that it watched is dead.
    _connection: OwnedFd,
}

impl Supervisor {
    /// Starts a supervisor, which takes over the connection and starts the command.
    pub(in crate::commands) fn start(
        args: &RunArgs,
        client: Client,
        holding: &Holding,
        grace: Duration,
    ) -> std::io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let process = os::this_program_again()?
            .args(["__supervisor", &grace.as_millis().to_string(), "--"])
            .args(&args.command)
            .env("HALLPASS_LOCK", args.lock())
            .env("HALLPASS_OUTER_LOCKS", serde_json::json!(args.outer_locks()).to_string())
            .env("HALLPASS_FENCE", holding.fence.to_string())
            .env("HALLPASS_NODE", &client.node)
            .stdin(OwnedFd::from(theirs))
            .spawn()?;
        let (handover, connection) = client.hand_over();
        let input = os::standard_input()?;
        // A supervisor that has ended already, by an early Ctrl-C for example, is noticed by its missing report.
        let _ = os::send_descriptors(&control, [input.as_fd(), connection.as_fd()]);
        let _ = writeln!(&control, "{}", serde_json::to_string(&handover)?);
        Ok(Self { control, process, _connection: connection })
    }

    /// Waits for the process to end, which it does right after its last report, and returns its exit code as a shell would.
    pub(in crate::commands) fn wait(mut self) -> Option<u8> {
        self.process.wait().ok().and_then(os::exit_code)
    }

    /// Passes a signal on to the command.
    pub(in crate::commands) fn forward(&self, signal: ReceivedSignal) {
        self.order(Order::Signal(signal));
    }

    /// Kills the command and everything that it started.
    pub(in crate::commands) fn kill_command(&self) {
        self.order(Order::Kill);
    }

    /// Sends an order. A supervisor that has ended is noticed by its [reports](Self::reports).
    fn order(&self, order: Order) {
        let _ = writeln!(&self.control, "{order}");
    }

    /// Yields what the supervisor says, until it has ended.
    pub(in crate::commands) fn reports(&self) -> std::io::Result<impl Iterator<Item = Report> + Send + use<>> {
        let lines = BufReader::new(self.control.try_clone()?).lines();
        Ok(lines.map_while(Result::ok).filter_map(|line| line.parse().ok()))
    }
}
