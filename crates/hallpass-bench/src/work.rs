//! What a worker process does, by its arguments.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::BenchError;
use crate::systems::agent::{Clients, agent};
use crate::systems::changes::changes;
use crate::systems::hallpass::Embedded;
use crate::systems::locker::Locker;
use crate::systems::ping::{Ping, Woken, echo};
use crate::task::{Ready, Reply};
use crate::worker::{send, serve};

/// Runs the worker that these arguments of [`run`](crate::run) ask for, until stdin is closed.
pub fn work(args: &[String]) -> Result<(), BenchError> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["echo", keys] => echo(Path::new(keys)),
        ["ping", keys, addresses @ ..] => {
            let keys = Some(Path::new(keys)).filter(|keys| *keys != Path::new("-"));
            serve(|| async { Ping::new(addresses, keys) })
        }
        ["ping-woken", address] => serve(|| async { Ok(Woken { address: (*address).to_owned() }) }),
        ["locker"] => serve(|| async { Ok(Locker::default()) }),
        ["hallpass", name, listen, peers, protocol, keys @ ..] => {
            let peers: Vec<&str> = peers.split(',').collect();
            serve(|| async { Embedded::start(name, listen, &peers, protocol, keys.first().copied()).await })
        }
        ["change", change, scale, directory] => changes(change, scale, Path::new(directory)),
        ["agent", name, listen, peers, socket, api @ ..] => {
            let peers: Vec<&str> = peers.split(',').collect();
            agent(name, listen, &peers, Path::new(socket), api.first().copied())
        }
        ["clients", socket] => serve(|| async { Ok(Clients { socket: (*socket).to_owned() }) }),
        ["guard", user, log, program, args @ ..] => guard(user, log, program, args),
        ["scratch", path] => scratch(Path::new(path)),
        _ => Err(BenchError::new("workers are started by the benchmark: call 'hallpass bench'")),
    }
}

/// How long a server may take to end before it is killed.
const END_WAIT_MAX: Duration = Duration::from_secs(4);

/// Runs a server and ends it when stdin is closed, since servers do not read their own.
fn guard(user: &str, log: &str, program: &str, args: &[&str]) -> Result<(), BenchError> {
    let log = File::create(log).map_err(BenchError::new)?;
    let mut command = Command::new(program);
    let output = log.try_clone().map_err(BenchError::new)?;
    command.args(args).stdin(Stdio::null()).stdout(output).stderr(log).current_dir("/");
    if let Some((user, group)) = user.split_once(':') {
        let number = |text: &str| text.parse().map_err(BenchError::new);
        command.uid(number(user)?).gid(number(group)?);
    }
    let mut server = command.spawn().map_err(|error| BenchError::new(format!("cannot start {program}: {error}")))?;
    send(&Reply::Ready(Ready::default()));
    until_stdin_is_closed();
    // PostgreSQL ends at once and cleanly on an interrupt; the others end on it too.
    if let Some(id) = i32::try_from(server.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(id, Signal::INT);
    }
    let until = Instant::now() + END_WAIT_MAX;
    while Instant::now() < until {
        if !matches!(server.try_wait(), Ok(None)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = server.kill();
    let _ = server.wait();
    Ok(())
}

/// Removes a directory when stdin is closed, and again while servers that are ending still write into it.
fn scratch(path: &Path) -> Result<(), BenchError> {
    send(&Reply::Ready(Ready::default()));
    until_stdin_is_closed();
    let until = Instant::now() + END_WAIT_MAX + Duration::from_secs(2);
    while path.exists() && Instant::now() < until {
        if std::fs::remove_dir_all(path).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

fn until_stdin_is_closed() {
    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
}
