//! What a worker process is, by its arguments.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::BenchError;
use crate::systems::agent::{Clients, agent};
use crate::systems::hallpass::Embedded;
use crate::systems::locker::Locker;
use crate::systems::ping::{Ping, Woken, echo};
use crate::task::{Ready, Reply};
use crate::worker::{say, serve};

/// Is a worker, as [`run`](crate::run) asks for it, until stdin is closed.
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
        ["hallpass", name, listen, peers, keys @ ..] => {
            let peers: Vec<&str> = peers.split(',').collect();
            serve(|| async { Embedded::start(name, listen, &peers, keys.first().copied()).await })
        }
        ["agent", name, listen, peers, socket] => {
            let peers: Vec<&str> = peers.split(',').collect();
            agent(name, listen, &peers, Path::new(socket))
        }
        ["clients", socket] => serve(|| async { Ok(Clients { socket: (*socket).to_owned() }) }),
        ["guard", user, log, program, args @ ..] => guard(user, log, program, args),
        ["scratch", path] => scratch(Path::new(path)),
        _ => Err(BenchError::new("this is for the benchmark's own use: call 'hallpass bench'")),
    }
}

/// How long a server may take to end before it is killed.
const ENDING: Duration = Duration::from_secs(4);

/// Runs a server, and ends it when stdin is closed: servers do not look at theirs.
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
    say(&Reply::Ready(Ready::default()));
    until_stdin_is_closed();
    // An interrupt is what PostgreSQL takes for 'now, but properly'; the others end on it too.
    if let Some(id) = i32::try_from(server.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(id, Signal::INT);
    }
    let until = Instant::now() + ENDING;
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

/// Removes a folder when stdin is closed, again until whoever still writes there has ended.
fn scratch(path: &Path) -> Result<(), BenchError> {
    say(&Reply::Ready(Ready::default()));
    until_stdin_is_closed();
    let until = Instant::now() + ENDING + Duration::from_secs(2);
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
