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

    /// Passes on a signal that `run` got, unless this process got it, too. A terminal sends Ctrl-C to every process of the
    /// foreground process group, which includes a command that has not left our process group.
    pub(crate) fn forward(self, signal: ReceivedSignal) {
        let got_it_too = signal.from_terminal
            && matches!(signal.number, SIGINT | SIGQUIT)
            && getpgid(Some(self.0)).is_ok_and(|group| group == getpgrp());
        if let Some(signal) = Signal::from_named_raw(signal.number).filter(|_| !got_it_too) {
            let _ = kill_process(self.0, signal);
        }
    }
}

/// A command that starts this program again, under its own name.
pub(crate) fn this_program_again() -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    command.arg0("hallpass");
    Ok(command)
}

/// Replaces this process by the command. Returns only if that failed.
pub(crate) fn exec(command: &mut Command) -> io::Error {
    command.exec()
}

/// The exit code that a shell would report: the process's own, or 128+n after signal n.
pub(crate) fn exit_code(status: ExitStatus) -> Option<u8> {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
}

/// Makes the system keep the exit statuses of children. If our parent ignored SIGCHLD, we inherit that, and the system drops them. A
/// handler for SIGCHLD replaces it.
pub(crate) fn keep_exit_statuses() {
    let _ = signal_hook::flag::register(SIGCHLD, Arc::default());
}

/// Reaps children as they end, and reports the exit status of `command`, or `None` if it is lost. It returns when no children are
/// left, so call it on a separate thread.
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

/// Reaps children as they end, until none are left. Call it on a separate thread.
pub(crate) fn reap_all_children() {
    while matches!(wait(WaitOptions::empty()), Ok(_) | Err(Errno::INTR)) {}
}

/// Lets commands that are started from now on inherit the descriptor.
pub(crate) fn make_inheritable(descriptor: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfd(descriptor, FdFlags::empty())?)
}

/// A copy of this process's standard input, to pass to another process.
pub(crate) fn standard_input() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

/// The connection that this process got as its standard input.
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

/// True if the other end of a connection is closed.
pub(crate) fn is_closed(connection: &OwnedFd) -> bool {
    is_ready(connection, CLOSED)
}

/// True if a connection has something to read, or has ended.
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

/// The poll event for: the other end has closed one direction or both.
#[cfg(target_os = "linux")]
const CLOSED: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const CLOSED: PollFlags = PollFlags::HUP;

/// Leaves the parent's session, and closes inherited descriptors at the next [`exec`]. A closing terminal must not end this process,
/// and the reader of an inherited pipe must not wait for it.
pub(crate) fn leave_session() {
    let _ = rustix::process::setsid();
    close_fds::set_fds_cloexec(3, &[]);
}

/// Raises the limit of open descriptors as far as the system lets this user. The default is meant for programs that need few.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

pub(super) fn forbid_core_files() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}
