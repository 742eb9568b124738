//! Starting, signalling and reaping processes.

use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpgid, getpgrp, getrlimit, kill_process, setrlimit, wait,
};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT};

use super::ReceivedSignal;
use super::native::this_program;

/// A child of this process that has not been reaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(Pid);

impl Process {
    pub(crate) fn of(child: &Child) -> Self {
        Self(Pid::from_child(child))
    }

    /// Asks the process to end, by SIGTERM.
    pub(crate) fn terminate(self) {
        let _ = kill_process(self.0, Signal::TERM);
    }

    /// Ends the process, by SIGKILL.
    pub(crate) fn kill(self) {
        let _ = kill_process(self.0, Signal::KILL);
    }

    /// Passes a signal on that was sent to `run`, unless the other one got it too: a terminal sends Ctrl-C to every process
    /// of the group in the foreground, and that includes a command that has not left our group.
    pub(crate) fn forward(self, signal: ReceivedSignal) {
        let got_it_too = signal.from_terminal
            && matches!(signal.number, SIGINT | SIGQUIT)
            && getpgid(Some(self.0)).is_ok_and(|group| group == getpgrp());
        if let Some(signal) = Signal::from_named_raw(signal.number).filter(|_| !got_it_too) {
            let _ = kill_process(self.0, signal);
        }
    }
}

/// This program, to be started again under its own name.
pub(crate) fn this_program_again() -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    command.arg0("hallpass");
    Ok(command)
}

/// Replaces this process by the command. Returns only if that failed.
pub(crate) fn exec(command: &mut Command) -> io::Error {
    command.exec()
}

/// The exit code of a shell for this status: the process's own, or 128+n after signal n.
pub(crate) fn exit_code(status: ExitStatus) -> Option<u8> {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
}

/// Makes the system keep the exit statuses of children. It does not if our parent ignored SIGCHLD, since that is inherited;
/// a handler replaces it.
pub(crate) fn keep_exit_statuses() {
    let _ = signal_hook::flag::register(SIGCHLD, Arc::default());
}

/// Reaps children as they end, and reports the exit status of `command`: none if it cannot be known. Returns when there are no
/// children left, so it wants a thread of its own.
pub(crate) fn reap_children(command: Process, report: impl Fn(Option<ExitStatus>)) {
    let mut reported = false;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command.0 => {
                reported = true;
                report(Some(ExitStatus::from_raw(status.as_raw())));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) if reported => return,
            Err(_) => return report(None),
        }
    }
}

/// Reaps children as they end, until there are none left. Wants a thread of its own.
pub(crate) fn reap_all_children() {
    while matches!(wait(WaitOptions::empty()), Ok(_) | Err(Errno::INTR)) {}
}

/// Lets commands that are started from now on inherit the descriptor.
pub(crate) fn make_inheritable(descriptor: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfd(descriptor, FdFlags::empty())?)
}

/// The process's standard input, to be given to another one.
pub(crate) fn standard_input() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

/// The connection that this process was started with in place of its standard input.
pub(crate) fn control_connection() -> io::Result<UnixStream> {
    standard_input().map(UnixStream::from)
}

/// Sends descriptors to another process.
pub(crate) fn send_descriptors<const N: usize>(
    stream: &UnixStream,
    descriptors: [BorrowedFd<'_>; N],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    assert!(message.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for {DESCRIPTORS_MAX}");
    sendmsg(stream, &[IoSlice::new(b"\n")], &mut message, SendFlags::empty())?;
    Ok(())
}

/// Receives what [`send_descriptors`] sent; none of them is inherited by commands.
pub(crate) fn receive_descriptors(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut message, RecvFlags::CMSG_CLOEXEC)?;
    let received = message.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<_>>()),
        _ => None,
    });
    Ok(received.flatten().collect())
}

const DESCRIPTORS_MAX: usize = 4;

/// True if the other end of a connection is closed now.
pub(crate) fn is_closed(connection: &OwnedFd) -> bool {
    is_ready(connection, CLOSED)
}

/// True if there is something to read from a connection, if only its end.
pub(crate) fn is_readable(connection: &OwnedFd) -> bool {
    is_ready(connection, PollFlags::IN)
}

fn is_ready(connection: &OwnedFd, wanted: PollFlags) -> bool {
    let mut watched = [PollFd::new(connection, wanted)];
    match poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => !watched[0].revents().is_empty(),
        Err(error) => error != Errno::INTR,
    }
}

/// Closes this process's standard output and error. A reader that reads them to the end must not wait for this process.
pub(crate) fn close_standard_output() {
    if let Ok(nowhere) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&nowhere);
        let _ = rustix::stdio::dup2_stderr(&nowhere);
    }
}

/// The other end has closed, in one direction or in both.
#[cfg(target_os = "linux")]
const CLOSED: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const CLOSED: PollFlags = PollFlags::HUP;

/// Leaves the session of the parent, and closes what it had open at the next [`exec`]: neither a terminal that closes nor a pipe
/// that somebody reads from must depend on this process.
pub(crate) fn leave_session() {
    let _ = rustix::process::setsid();
    close_fds::set_fds_cloexec(3, &[]);
}

/// Allows as many open descriptors as the system lets this user have. The default is meant for programs with a few.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
