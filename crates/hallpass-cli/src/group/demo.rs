//! Real nodes on loopback inside one process, workers that contend, and an observer outside the protocol.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hallpass::{Guard, Node};
use serde_json::json;

use super::args::DemoArgs;
use super::runtime;
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, Facts, Paint, grouped};

/// A lock that every node wants, and some that not everybody wants at the same time.
const LOCKS: [&str; 4] = ["everyone", "invoices", "backups", "reports"];
/// Workers on each node.
const WORKERS: usize = 2;

/// Watches one lock from outside: who is inside, and which fence came last.
#[derive(Default)]
struct Observed {
    inside: u32,
    fence: u64,
}

#[derive(Default)]
struct Observer {
    locks: [Mutex<Observed>; LOCKS.len()],
    violations: AtomicU64,
}

impl Observer {
    fn entered(&self, lock: usize, guard: &Guard) {
        let mut seen = self.locks[lock].lock().unwrap_or_else(PoisonError::into_inner);
        if seen.inside > 0 || guard.fence() <= seen.fence {
            self.violations.fetch_add(1, Ordering::Relaxed);
        }
        seen.inside += 1;
        seen.fence = guard.fence();
    }

    fn leaves(&self, lock: usize) {
        self.locks[lock].lock().unwrap_or_else(PoisonError::into_inner).inside -= 1;
    }
}

pub(super) fn demo(args: &DemoArgs) -> Result<Outcome, Fault> {
    runtime()?.block_on(show(args))
}

async fn show(args: &DemoArgs) -> Result<Outcome, Fault> {
    let nodes = start(args).await?;
    let paint = Paint::stdout();
    if !args.json {
        terminal::print(&format!(
            "{} nodes on loopback, {} workers each, {} locks, {}; nobody is in charge\n",
            paint.bold(&args.nodes.to_string()),
            WORKERS,
            LOCKS.len(),
            args.protocol,
        ))?;
    }
    let (observer, stop) = (Arc::new(Observer::default()), Arc::new(AtomicBool::new(false)));
    let begun = Instant::now();
    let mut workers = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        for worker in 0..WORKERS {
            let (node, observer, stop) = (node.clone(), Arc::clone(&observer), Arc::clone(&stop));
            workers.push(tokio::spawn(work(node, at * WORKERS + worker, observer, stop)));
        }
    }
    let end = begun + Duration::from_secs(args.seconds.into());
    let live = !args.json && std::io::stderr().is_terminal();
    while Instant::now() < end {
        tokio::time::sleep((end - Instant::now()).min(Duration::from_millis(200))).await;
        if live {
            let grants: Vec<u64> = nodes.iter().map(|node| node.status().grants).collect();
            let each: Vec<String> = nodes
                .iter()
                .zip(&grants)
                .map(|(node, grants)| format!("{} {}", node.name(), grouped(*grants)))
                .collect();
            let left = end.saturating_duration_since(Instant::now()).as_secs_f32().ceil();
            let violations = observer.violations.load(Ordering::Relaxed);
            eprint!("\r\x1b[K  {}  violations {violations}  {left:.0} s left", each.join("  "));
        }
    }
    if live {
        eprint!("\r\x1b[K");
    }
    let seconds = begun.elapsed().as_secs_f64();
    let status: Vec<hallpass::Status> = nodes.iter().map(Node::status).collect();
    stop.store(true, Ordering::Relaxed);
    let mut stuck = 0;
    for worker in workers {
        // A worker that cannot end waits for a lock that nobody gives it: that is no exclusion either.
        let ended = tokio::time::timeout(Duration::from_secs(3), worker).await;
        stuck += u64::from(!matches!(ended, Ok(Ok(true))));
    }
    let violations = observer.violations.load(Ordering::Relaxed) + stuck;
    let grants: u64 = status.iter().map(|status| status.grants).sum();
    let messages: u64 = status.iter().map(|status| status.messages).sum();
    let per_grant = messages as f64 / grants.max(1) as f64;
    if args.json {
        let document = json!({
            "nodes": args.nodes, "protocol": args.protocol, "seconds": seconds, "grants": grants, "messages": messages,
            "messages_per_grant": per_grant, "grants_per_second": grants as f64 / seconds, "violations": violations,
        });
        terminal::print_json(serde_json::to_string_pretty(&document))?;
    } else {
        let mut facts = Facts::new();
        for (node, status) in nodes.iter().zip(&status) {
            facts.add(node.name(), format!("{} grants at {}", grouped(status.grants), node.address()));
        }
        let rate = grouped((grants as f64 / seconds) as u64);
        facts.add("grants", format!("{} in {seconds:.1} s, {rate} a second", grouped(grants)));
        facts.add("messages", format!("{}, {per_grant:.2} a grant", grouped(messages)));
        facts.add("violations", if violations == 0 { paint.green("none") } else { paint.red(&violations.to_string()) });
        terminal::print(&facts.render())?;
    }
    Ok(if violations == 0 && grants > 0 { Outcome::Fine } else { Outcome::Violated })
}

/// Nodes that have all met. Ports are found by binding them all at once; somebody could take one in between, and then
/// there are others.
async fn start(args: &DemoArgs) -> Result<Vec<Node>, Fault> {
    let failed = |error: &dyn std::fmt::Display| Fault::Failed(error.to_string());
    let holders: Result<Vec<_>, _> = (0..args.nodes).map(|_| std::net::TcpListener::bind("127.0.0.1:0")).collect();
    let holders = holders.map_err(|error| failed(&error))?;
    let addresses: Result<Vec<String>, _> =
        holders.iter().map(|holder| holder.local_addr().map(|address| address.to_string())).collect();
    let addresses = addresses.map_err(|error| failed(&error))?;
    drop(holders);
    let mut nodes = Vec::new();
    for (at, address) in addresses.iter().enumerate() {
        let builder = Node::builder().name(format!("node-{}", at + 1)).listen(address).peers(&addresses);
        let started = builder.class("", &args.protocol, &[]).start().await;
        nodes.push(started.map_err(|error| match error {
            hallpass::StartError::Setting(why) => Fault::Usage(why.trim_start_matches("lock class '': ").to_owned()),
            other => failed(&other),
        })?);
    }
    let all_met = async {
        for node in &nodes {
            node.ready().await;
        }
    };
    let met = tokio::time::timeout(Duration::from_secs(5), all_met).await;
    met.map_err(|_| Fault::Failed("the nodes did not find each other on loopback within 5 seconds".to_owned()))?;
    Ok(nodes)
}

/// Takes turns at the locks until it is told to stop; false if a lock could not be had.
async fn work(node: Node, worker: usize, observer: Arc<Observer>, stop: Arc<AtomicBool>) -> bool {
    for round in worker.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // Every other turn is for the lock that everybody wants.
        let lock = if round % 2 == 0 { 0 } else { 1 + round / 2 % (LOCKS.len() - 1) };
        let Ok(guard) = node.lock(LOCKS[lock]).acquire().await else { return false };
        observer.entered(lock, &guard);
        tokio::task::yield_now().await;
        observer.leaves(lock);
        if guard.release().await.is_err() {
            return false;
        }
    }
    true
}
