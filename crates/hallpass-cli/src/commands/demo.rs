//! `hallpass demo`: real nodes on loopback inside one process, workers that contend, and an observer outside the protocol.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hallpass::{Guard, Node};
use serde_json::json;
use tokio::task::JoinHandle;

use super::args::DemoArgs;
use super::runtime;
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, Facts, Paint, grouped};

/// Every node always wants the first lock. The other locks are wanted by some nodes at a time.
const LOCKS: [&str; 4] = ["everyone", "invoices", "backups", "reports"];
const WORKERS_PER_NODE: usize = 2;
/// Loopback nodes connect within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a worker may take to finish its last turn.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The observer's view of one lock.
#[derive(Default)]
struct Observed {
    holders: u32,
    last_fence: u64,
}

/// Watches the locks from outside the protocol, and counts what must not happen.
#[derive(Default)]
struct Observer {
    locks: [Mutex<Observed>; LOCKS.len()],
    violations: AtomicU64,
}

impl Observer {
    fn entered(&self, lock: usize, guard: &Guard) {
        let mut observed = self.locks[lock].lock().unwrap_or_else(PoisonError::into_inner);
        if observed.holders > 0 || guard.fence() <= observed.last_fence {
            self.violations.fetch_add(1, Ordering::Relaxed);
        }
        observed.holders += 1;
        observed.last_fence = guard.fence();
    }

    fn leaves(&self, lock: usize) {
        self.locks[lock].lock().unwrap_or_else(PoisonError::into_inner).holders -= 1;
    }

    fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }
}

pub(crate) fn demo(args: &DemoArgs) -> Result<Outcome, Fault> {
    runtime()?.block_on(run(args))
}

async fn run(args: &DemoArgs) -> Result<Outcome, Fault> {
    let nodes = start(args).await?;
    if !args.json {
        terminal::print(&format!(
            "{} nodes on loopback, {WORKERS_PER_NODE} workers each, {} locks, {}; no server\n",
            Paint::stdout().bold(&args.nodes.to_string()),
            LOCKS.len(),
            args.protocol,
        ))?;
    }
    let (observer, stop) = (Arc::new(Observer::default()), Arc::new(AtomicBool::new(false)));
    let begin = Instant::now();
    let mut workers = Vec::new();
    for index in 0..nodes.len() * WORKERS_PER_NODE {
        let node = nodes[index / WORKERS_PER_NODE].clone();
        workers.push(tokio::spawn(work(node, index, Arc::clone(&observer), Arc::clone(&stop))));
    }
    let live = !args.json && std::io::stderr().is_terminal();
    wait(&nodes, &observer, begin + Duration::from_secs(args.seconds.into()), live).await;
    let seconds = begin.elapsed().as_secs_f64();
    let status: Vec<hallpass::Status> = nodes.iter().map(Node::status).collect();
    stop.store(true, Ordering::Relaxed);
    // A worker that does not end waits for a lock that nobody releases: that counts as a violation too.
    let violations = count_stuck(workers).await + observer.violations();
    let grants = status.iter().map(|status| status.grants).sum();
    let messages = status.iter().map(|status| status.messages).sum();
    let summary = Summary { seconds, grants, messages, violations };
    if args.json {
        summary.print_json(args)?;
    } else {
        let of_nodes = nodes.iter().zip(&status).map(|(node, status)| {
            (node.name().to_owned(), format!("{} grants at {}", grouped(status.grants), node.address()))
        });
        summary.print(of_nodes)?;
    }
    Ok(if violations == 0 && grants > 0 { Outcome::Fine } else { Outcome::Violated })
}

/// Starts nodes that are all connected. Free ports are found by binding all of them at once and letting them go: another program
/// could take one in between, and then the demo fails.
async fn start(args: &DemoArgs) -> Result<Vec<Node>, Fault> {
    let failed = |error: &dyn std::fmt::Display| Fault::Failed(error.to_string());
    let bound: Result<Vec<_>, _> = (0..args.nodes).map(|_| std::net::TcpListener::bind("127.0.0.1:0")).collect();
    let bound = bound.map_err(|error| failed(&error))?;
    let addresses: Result<Vec<String>, _> =
        bound.iter().map(|listener| listener.local_addr().map(|address| address.to_string())).collect();
    let addresses = addresses.map_err(|error| failed(&error))?;
    drop(bound);
    let mut nodes = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let builder = Node::builder().name(format!("node-{}", index + 1)).listen(address).peers(&addresses);
        let started = builder.class("", &args.protocol, &[]).start().await;
        nodes.push(started.map_err(|error| match error {
            hallpass::StartError::Setting(why) => Fault::Usage(why.trim_start_matches("lock class '': ").to_owned()),
            other => failed(&other),
        })?);
    }
    let all_ready = async {
        for node in &nodes {
            node.ready().await;
        }
    };
    let ready = tokio::time::timeout(CONNECT_TIMEOUT, all_ready).await;
    ready.map_err(|_| failed(&format!("the nodes did not connect on loopback within {CONNECT_TIMEOUT:?}")))?;
    Ok(nodes)
}

/// Takes turns at the locks until it is stopped; false if a lock could not be acquired or was lost.
async fn work(node: Node, worker: usize, observer: Arc<Observer>, stop: Arc<AtomicBool>) -> bool {
    for round in worker.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // Every other turn is for the lock that every node wants.
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

/// Waits for the end, and shows the state on stderr meanwhile if it is a terminal.
async fn wait(nodes: &[Node], observer: &Observer, end: Instant, live: bool) {
    while Instant::now() < end {
        tokio::time::sleep((end - Instant::now()).min(Duration::from_millis(200))).await;
        if live {
            let grants: Vec<String> =
                nodes.iter().map(|node| format!("{} {}", node.name(), grouped(node.status().grants))).collect();
            let remaining = end.saturating_duration_since(Instant::now()).as_secs_f32().ceil();
            let violations = observer.violations();
            eprint!("\r\x1b[K  {}  violations {violations}  {remaining:.0} s left", grants.join("  "));
        }
    }
    if live {
        eprint!("\r\x1b[K");
    }
}

/// Counts the workers that did not end in order.
async fn count_stuck(workers: Vec<JoinHandle<bool>>) -> u64 {
    let mut stuck = 0;
    for worker in workers {
        let ended = tokio::time::timeout(STOP_TIMEOUT, worker).await;
        stuck += u64::from(!matches!(ended, Ok(Ok(true))));
    }
    stuck
}

/// The results of all nodes together.
struct Summary {
    seconds: f64,
    grants: u64,
    messages: u64,
    violations: u64,
}

impl Summary {
    fn messages_per_grant(&self) -> f64 {
        self.messages as f64 / self.grants.max(1) as f64
    }

    fn grants_per_second(&self) -> f64 {
        self.grants as f64 / self.seconds
    }

    fn print_json(&self, args: &DemoArgs) -> Result<(), Fault> {
        let document = json!({
            "nodes": args.nodes, "protocol": args.protocol, "seconds": self.seconds, "grants": self.grants,
            "messages": self.messages, "messages_per_grant": self.messages_per_grant(),
            "grants_per_second": self.grants_per_second(), "violations": self.violations,
        });
        terminal::print_json(serde_json::to_string_pretty(&document))
    }

    fn print(&self, of_nodes: impl Iterator<Item = (String, String)>) -> Result<(), Fault> {
        let paint = Paint::stdout();
        let mut facts = Facts::new();
        for (node, grants) in of_nodes {
            facts.add(&node, grants);
        }
        let rate = grouped(self.grants_per_second() as u64);
        facts.add("grants", format!("{} in {:.1} s, {rate} a second", grouped(self.grants), self.seconds));
        facts.add("messages", format!("{}, {:.2} a grant", grouped(self.messages), self.messages_per_grant()));
        let violations = match self.violations {
            0 => paint.green("none"),
            count => paint.red(&count.to_string()),
        };
        facts.add("violations", violations);
        terminal::print(&facts.render())
    }
}
