//! Measures how long it takes to acquire and release a lock that is already here:
//! `cargo run --release -p hallpass --example hot`.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hallpass::Node;

/// Of many short batches the fastest one counts: it was not interrupted by other processes.
const BATCHES: u32 = 200;
const ROUNDS: u32 = 5_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addresses = free_addresses(3)?;
    let mut nodes = Vec::new();
    for address in &addresses {
        nodes.push(Node::builder().listen(address).peers(&addresses).start().await?);
    }

    let mutexes: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>> = Mutex::default();
    let named_mutex = fastest(async || {
        let mutex = Arc::clone(mutexes.lock().expect("no panic").entry("invoices/42".to_owned()).or_default());
        drop(mutex.lock_owned().await);
    });
    println!("named mutexes in this process: {:?}", named_mutex.await);

    let lock = nodes[0].lock("invoices/42");
    drop(lock.acquire().await?);
    let before = nodes[0].status().messages;
    println!(
        "hallpass, exclusive:           {:?}",
        fastest(async || drop(lock.acquire().await.expect("a guard"))).await
    );
    println!(
        "hallpass, shared:              {:?}",
        fastest(async || drop(lock.acquire_shared().await.expect("a guard"))).await
    );
    // The lock's home gives more entries at once each time that they are used up.
    let asked = nodes[0].status().messages - before;
    if asked < u64::from(BATCHES) { Ok(()) } else { Err(format!("it asked its home {asked} times").into()) }
}

async fn fastest(round: impl AsyncFn()) -> Duration {
    let mut fastest = Duration::MAX;
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            round().await;
        }
        fastest = fastest.min(begun.elapsed() / ROUNDS);
    }
    fastest
}

fn free_addresses(count: usize) -> std::io::Result<Vec<String>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}
