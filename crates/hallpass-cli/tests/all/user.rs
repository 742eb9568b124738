//! A user of the command line, with directories of its own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use hallpass_testkit::wait_until;

/// The longest that a command may take.
const RUN_MAX: Duration = Duration::from_secs(300);

/// A user with directories of its own. The private agent that was started for it ends with it.
pub(crate) struct User {
    pub(crate) home: PathBuf,
    /// The number of another user than the one who runs the tests, and the program, copied to where that user can read it.
    other: Option<(u32, PathBuf)>,
}

impl User {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let home = std::env::temp_dir().join(format!("hallpass-cli-{name}-{unique}"));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("hallpass.toml"), "state = 'state'\n").unwrap();
        Self { home, other: None }
    }

    /// The same, but commands are run as a user that nobody else is, and that is not in the password database.
    pub(crate) fn of_somebody_else(mut self) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let uid = 1_000_000_000 + std::process::id() % 1_000_000 * 100 + COUNT.fetch_add(1, Ordering::Relaxed);
        // The directory of the program may be closed to others.
        let program = self.home.join("hallpass");
        copy_program(env!("CARGO_BIN_EXE_hallpass"), &program);
        std::os::unix::fs::chown(&self.home, Some(uid), Some(uid)).unwrap();
        self.other = Some((uid, program));
        self
    }

    /// A user whose agent is where it is by default, and who has no home directory. None unless the tests are run by root.
    pub(crate) fn without_a_home(name: &str) -> Option<Self> {
        if !is_root() {
            skipped("it needs root, to run commands as a user of its own");
            return None;
        }
        let user = Self::new(name).of_somebody_else();
        fs::remove_file(user.home.join("hallpass.toml")).unwrap();
        Some(user)
    }

    /// The default place of a user without a home directory.
    pub(crate) fn place(&self) -> PathBuf {
        PathBuf::from(format!("/var/tmp/hallpass-{}", self.other.as_ref().unwrap().0))
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let program =
            self.other.as_ref().map_or(env!("CARGO_BIN_EXE_hallpass").as_ref(), |(_, program)| program.as_path());
        let mut command = Command::new(program);
        if let Some((uid, _)) = self.other {
            command.uid(uid).gid(uid);
        }
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.settings(&mut command);
        command
    }

    pub(crate) fn settings(&self, command: &mut Command) {
        #[cfg(target_os = "linux")]
        reset_ignored_signals();
        command.current_dir(&self.home).env_remove("HALLPASS_CONFIG");
        let config = self.home.join("hallpass.toml");
        if config.exists() {
            command.env("HALLPASS_CONFIG", config);
        }
        command.env_remove("HALLPASS_SOCKET").env_remove("HALLPASS_LOCK");
    }

    pub(crate) fn run(&self, line: &str) -> Ran {
        let child = self.command(&words(line)).spawn().unwrap();
        let (id, (done, is_done)) = (child.id(), std::sync::mpsc::channel::<()>());
        std::thread::spawn(move || {
            // A command that waits forever is a failure, and must not keep its test waiting.
            if is_done.recv_timeout(RUN_MAX) == Err(RecvTimeoutError::Timeout) {
                kill(id, "-KILL");
            }
        });
        let output = child.wait_with_output().unwrap();
        drop(done);
        Ran::of(output)
    }

    pub(crate) fn start(&self, line: &str) -> Child {
        self.command(&words(line)).spawn().unwrap()
    }

    /// What a program wrote into a file, once it is there as a whole: programs rename it last.
    pub(crate) fn number_in(&self, file: &str) -> u32 {
        self.wait_for(file);
        fs::read_to_string(self.home.join(file)).unwrap().trim().parse().unwrap()
    }

    /// Waits until somebody waits for a lock, at the agent of these options.
    pub(crate) fn wait_for_waiter(&self, options: &str) {
        wait_until("somebody waits", || {
            let locks = self.run(&format!("locks --held --json {options}"));
            let locks: Vec<serde_json::Value> = serde_json::from_str(&locks.out).unwrap_or_default();
            locks.iter().any(|lock| lock["waiters"] != 0)
        });
    }

    /// Waits until a file exists.
    pub(crate) fn wait_for(&self, file: &str) {
        wait_until(&format!("{file} exists"), || self.home.join(file).exists());
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // What it says on the way is of no use to anybody.
        if let Ok(mut leave) = self.command(&["leave"]).spawn() {
            let _ = leave.wait();
        }
        if self.other.is_some() {
            let _ = fs::remove_dir_all(self.place());
        }
        let _ = fs::remove_dir_all(&self.home);
    }
}

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let code = output.status.code().unwrap_or_else(|| -output.status.signal().unwrap());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Asserts that it failed, and said why.
    pub(crate) fn failed_somehow(&self, text: &str) {
        assert!(self.code != 0 && self.err.contains(text), "{}: {}{}", self.code, self.out, self.err);
    }

    /// Asserts the exit code, nothing on stdout, and one line on stderr that contains this text.
    pub(crate) fn failed(&self, code: i32, text: &str) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("hallpass: ") && self.err.contains(text), "{}", self.err);
    }
}

/// The first line of an agent's log.
pub(crate) fn first_line(agent: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(agent.stderr.take().unwrap()).read_line(&mut line).unwrap();
    line
}

/// Splits at spaces, except within single quotes.
pub(crate) fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 { words.push(part) } else { words.extend(part.split_whitespace()) }
    }
    words
}

pub(crate) fn is_running(pid: u32) -> bool {
    if !cfg!(target_os = "linux") {
        return Command::new("kill").args(["-0", &pid.to_string()]).output().unwrap().status.success();
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Says that a part of a test is left out. The test harness does not hide it, unlike what is printed by macros.
pub(crate) fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}

/// Makes the programs that are started from now on get the default for signals, though our parent ignores some, as `nohup` and shells
/// do for what runs in the background. A handler here, which does nothing, is the default there.
#[cfg(target_os = "linux")]
fn reset_ignored_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            if ignores(std::process::id(), &[signal]) {
                signal_hook::flag::register(signal, std::sync::Arc::default()).unwrap();
            }
        }
    });
}

/// Whether a process ignores all of these signals.
#[cfg(target_os = "linux")]
pub(crate) fn ignores(pid: u32, signals: &[i32]) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    signals.iter().all(|signal| mask >> (signal - 1) & 1 == 1)
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}

/// Copies a program that is about to be run. Another process writes it: what another test starts meanwhile would inherit a file that this one
/// writes, and a program that anybody has open for writing cannot be run.
pub(crate) fn copy_program(from: &str, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

pub(crate) fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}
