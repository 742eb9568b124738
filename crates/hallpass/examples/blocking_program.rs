//! A program without async: two nodes append numbered lines to one file, each from a thread of its own.
//! `cargo run -p hallpass --example blocking_program`.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use hallpass::AcquireOptions;
use hallpass::blocking::Node;

const LINES: usize = 20;
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let addresses = free_addresses(2)?;
    let start = |name, address| Node::builder().name(name).listen(address).peers(&addresses).start_blocking();
    let nodes = [start("a", &addresses[0])?, start("b", &addresses[1])?];

    let file = std::env::temp_dir().join(format!("hallpass-blocking-program-{}", std::process::id()));
    fs::write(&file, "")?;
    thread::scope(|scope| {
        let writers = nodes.each_ref().map(|node| scope.spawn(|| append(node, &file).expect("lines to be written")));
        writers.into_iter().try_for_each(|writer| writer.join())
    })
    .map_err(|_| "a writer failed")?;

    // A reader shares the lock with other readers.
    let guard = nodes[0].lock("file").acquire_with(AcquireOptions::shared().timeout(LIMIT))?;
    let text = fs::read_to_string(&file)?;
    guard.release()?;
    fs::remove_file(&file)?;

    let wrong = text.lines().zip(1..).find(|(line, number)| !line.starts_with(&format!("{number} ")));
    println!("{} lines, the last one: {}", text.lines().count(), text.lines().last().unwrap_or_default());
    match wrong {
        Some((line, number)) => Err(format!("line {number} is '{line}'").into()),
        None if text.lines().count() != 2 * LINES => Err("lines are missing".into()),
        None => Ok(()),
    }
}

/// The number of a line follows from the lines before it, so nobody else may write meanwhile.
fn append(node: &Node, file: &Path) -> Result<(), Box<dyn Error>> {
    let lock = node.lock("file");
    for _ in 0..LINES {
        let guard = lock.acquire_timeout(LIMIT)?;
        let number = fs::read_to_string(file)?.lines().count() + 1;
        thread::sleep(Duration::from_millis(1));
        writeln!(OpenOptions::new().append(true).open(file)?, "{number} by {}", node.name())?;
        guard.release()?;
    }
    println!("{}: wrote {LINES} lines", node.name());
    Ok(())
}

fn free_addresses(count: usize) -> std::io::Result<Vec<String>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}
