//! A node's own thread: it accepts and makes connections, serves those that carry no locks, and watches the clock. Nothing here
//! waits for the program's own runtime, which may be blocked for seconds: the node's session goes on.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hallpass_core::NodeId;
use hallpass_node::wire::Plane;
use hallpass_node::{Contact, ViewState};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::connect::resolve;
use crate::driver::{Driver, ViewSummary};
use crate::greeting::{GreetError, Target, answer, dial};
use crate::os::explain;
use crate::peer::Peer;
use crate::strangers::Strangers;
use crate::text::printable;

/// How to read the addresses by which a group is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Seeds {
    /// Each is one node.
    #[default]
    One,
    /// Each is as many nodes as its name has addresses.
    Every,
}

/// Starts the thread. It ends when the node is closed, and the thread that writes with it.
pub(crate) fn start(
    driver: Arc<Driver>,
    listener: Option<std::net::TcpListener>,
    seeds: Seeds,
    disk: Option<JoinHandle<()>>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _in_runtime = runtime.enter();
        listener.map(TcpListener::from_std).transpose()?
    };
    // Who listens to the log here listens there, too.
    let log = tracing::dispatcher::get_default(Clone::clone);
    std::thread::Builder::new().name("hallpass-node".to_owned()).spawn(move || {
        let _log = tracing::dispatcher::set_default(&log);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(run(&driver, listener, seeds));
        }));
        if failed.is_err() {
            tracing::error!(
                "the node's thread has failed and it stops; this is a bug: please report what was printed before"
            );
        }
        driver.close_now();
        // Its tasks have sockets. A lookup that hangs is not waited for.
        runtime.shutdown_background();
        if let Some(disk) = disk {
            let _ = disk.join();
        }
        driver.set_ended();
    })?;
    Ok(())
}

async fn run(driver: &Arc<Driver>, listener: Option<TcpListener>, seeds: Seeds) {
    let listening = listener.map(|listener| tokio::spawn(listen(Arc::clone(driver), listener)).abort_handle());
    tokio::spawn(take_leave(Arc::clone(driver), listening));
    tokio::spawn(watch_keys(Arc::clone(driver)));
    let mut dialed = Dialed { seeds_are: seeds, ..Dialed::default() };
    let mut logged = None;
    while !driver.is_closed() {
        if let Some(contacts) = driver.take_contacts() {
            driver.end_unfit();
            dialed.update(driver, &contacts);
            log_view(driver, &mut logged);
        }
        dialed.update_seeds(driver);
        tokio::select! {
            () = tokio::time::sleep(driver.sleep_for()) => driver.tick(),
            () = driver.wake.notified() => {}
            () = driver.when_closed() => {}
        }
        let peers = driver.peers();
        driver.limits.log_left_out(peers.values().map(|peer| &peer.limit));
    }
}

/// How often to look whether the files of the keys have changed.
const KEYS_EVERY: Duration = Duration::from_secs(1);

async fn watch_keys(driver: Arc<Driver>) {
    while driver.tls.is_some() && !driver.is_closed() {
        tokio::time::sleep(KEYS_EVERY).await;
        driver.refresh_keys().await;
    }
}

/// Says in the log what has become of the view and of the steward, if that is new.
fn log_view(driver: &Driver, logged: &mut Option<ViewSummary>) {
    let view = driver.view();
    let before = logged.replace(view);
    if before == Some(view) {
        return;
    }
    let name = |id: NodeId| match driver.peers().get(&id).and_then(|peer| peer.name.clone()) {
        Some(name) => printable(&name),
        None if id == driver.id => "this node".to_owned(),
        None => id.to_string(),
    };
    let was = |state: ViewState| before.is_some_and(|before| before.state == state);
    let ViewSummary { state, epoch, members, steward } = view;
    let epoch = epoch.unwrap_or(0);
    match state {
        ViewState::Open if !was(ViewState::Open) || before.is_some_and(|before| before.epoch != view.epoch) => {
            let steward = steward.map(name);
            tracing::info!(epoch, members, steward, "the view is open: locks are granted");
        }
        ViewState::Lapsed if was(ViewState::Open) || was(ViewState::Changing) => {
            tracing::warn!(epoch, "the session could not be renewed: locks that were held are lost; joining again");
        }
        _ if before.is_some_and(|before| before.steward != steward) => match steward {
            Some(steward) => tracing::info!(steward = name(steward), "there is a steward"),
            None => tracing::info!("no steward is known"),
        },
        _ => tracing::debug!(?state, epoch, "the view changes"),
    }
}

/// When the node is stopped, it is closed as soon as the group knows, or its time is over.
async fn take_leave(driver: Arc<Driver>, listening: Option<AbortHandle>) {
    driver.when_stopped().await;
    if let Some(listening) = listening {
        listening.abort();
    }
    if let Some((done, limit)) = driver.take_stop() {
        tokio::select! {
            _ = tokio::time::timeout(limit, done) => {}
            () = driver.when_closed() => {}
        }
        // The last messages are sent meanwhile.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    driver.close_now();
}

/// The tasks that make connections.
#[derive(Default)]
struct Dialed {
    contacts: BTreeMap<NodeId, (Arc<Peer>, Vec<AbortHandle>)>,
    seeds: Vec<(Arc<Peer>, AbortHandle)>,
    seeds_are: Seeds,
}

impl Dialed {
    /// Of two members the one with the lower id makes the connections. As long as it does not know the other one, that one makes
    /// a control connection, as with a seed.
    fn dial(&mut self, driver: &Arc<Driver>, id: NodeId, peer: Arc<Peer>) {
        let task =
            |plane| tokio::spawn(keep_connected(Arc::clone(driver), id, Arc::clone(&peer), plane)).abort_handle();
        let tasks = if id > driver.id {
            vec![task(Plane::Locks), task(Plane::Control)]
        } else {
            vec![tokio::spawn(keep_seed(Arc::clone(driver), Arc::clone(&peer), None, Some(id))).abort_handle()]
        };
        self.contacts.insert(id, (peer, tasks));
    }

    /// Dials new peers, and stops dialing those that are gone.
    fn update(&mut self, driver: &Arc<Driver>, contacts: &[Contact]) {
        let peers = driver.peers();
        self.contacts.retain(|id, (dialed, tasks)| {
            let stays = peers.get(id).is_some_and(|peer| Arc::ptr_eq(peer, dialed));
            if !stays {
                tasks.iter().for_each(AbortHandle::abort);
            }
            stays
        });
        for Contact { id, .. } in contacts {
            if let Some(peer) = peers.get(id).filter(|_| !self.contacts.contains_key(id)) {
                self.dial(driver, *id, Arc::clone(peer));
            }
        }
    }

    fn update_seeds(&mut self, driver: &Arc<Driver>) {
        let seeds = driver.seeds();
        for seed in seeds.into_iter().skip(self.seeds.len()) {
            let task = match self.seeds_are {
                Seeds::One => tokio::spawn(keep_seed(Arc::clone(driver), Arc::clone(&seed), None, None)),
                Seeds::Every => tokio::spawn(keep_every_seed(Arc::clone(driver), Arc::clone(&seed))),
            };
            self.seeds.push((seed, task.abort_handle()));
        }
    }
}

/// The pause before a peer is dialed again grows from one to the other.
const RETRY: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(400)];
/// How often the names of seeds are looked up, and whether a group is still looked for.
const SEEDS_EVERY: Duration = Duration::from_millis(250);

async fn keep_connected(driver: Arc<Driver>, id: NodeId, peer: Arc<Peer>, plane: Plane) {
    let mut pause = RETRY[0];
    while !driver.is_closed() {
        let begun = Instant::now();
        match dial(&driver, &peer, plane, Target::Contact(id)).await {
            Ok(_) => {
                // A peer that closes each connection at once is not dialed as often as one whose connection broke.
                let lasted = begun.elapsed() > 10 * RETRY[0];
                pause = if lasted { RETRY[0] } else { (pause * 2).min(10 * RETRY[0]) };
            }
            // It is about to join, or has just left: the next look at the contacts tells.
            Err(GreetError::Stranger) => pause = 5 * RETRY[0],
            Err(error) => {
                peer.report_trouble(error.to_string());
                pause = (pause * 2).min(RETRY[1]);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// How often a member looks whether a node that has lost its directory has founded another group where one of its own was: it tells that one.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Dials one address while the node looks for a group and has no connection with the node that was found there. Later it dials now and
/// then, if no member of the group is there.
async fn keep_seed(driver: Arc<Driver>, seed: Arc<Peer>, address: Option<SocketAddr>, mut found: Option<NodeId>) {
    let mut pause = RETRY[0];
    let mut watched = Instant::now();
    let target = address.map_or(Target::Seed, Target::SeedAt);
    while !driver.is_closed() {
        if !driver.needs_seeds() || found.is_some_and(|id| driver.has_control(id)) {
            if watched.elapsed() > WATCH_EVERY && driver.watches_others() && driver.lacks(&seed) {
                // A node that does not answer there is most likely gone, and its trouble is known.
                let _ = dial(&driver, &seed, Plane::Control, target).await;
                watched = Instant::now();
            }
            tokio::time::sleep(SEEDS_EVERY).await;
            continue;
        }
        match dial(&driver, &seed, Plane::Control, target).await {
            Ok(id) => {
                found = Some(id);
                pause = (pause * 2).min(10 * RETRY[0]);
            }
            Err(GreetError::Own) => {
                // A name may move.
                tokio::time::sleep(LOOK_UP_EVERY).await;
            }
            Err(error) => {
                seed.report_trouble(error.to_string());
                pause = (pause * 2).min(RETRY[1]);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// A name with several addresses is several nodes, which come and go.
async fn keep_every_seed(driver: Arc<Driver>, seed: Arc<Peer>) {
    let mut tasks: BTreeMap<SocketAddr, AbortHandle> = BTreeMap::new();
    while !driver.is_closed() {
        if driver.needs_seeds() {
            match resolve(&seed.address).await {
                Ok(found) => {
                    tasks.retain(|address, task| {
                        let stays = found.contains(address);
                        if !stays {
                            task.abort();
                        }
                        stays
                    });
                    for address in found {
                        tasks.entry(address).or_insert_with(|| {
                            tokio::spawn(keep_seed(Arc::clone(&driver), Arc::clone(&seed), Some(address), None))
                                .abort_handle()
                        });
                    }
                }
                Err(error) => seed.report_trouble(explain(&error)),
            }
        }
        tokio::time::sleep(4 * SEEDS_EVERY).await;
    }
}

// ---- incoming connections ----

async fn listen(driver: Arc<Driver>, listener: TcpListener) {
    let strangers = Arc::new(Strangers::default());
    let members = Members::default();
    let keep_places = members.keep_places(&driver, &strangers);
    tokio::pin!(keep_places);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            never = &mut keep_places => never,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: it passes.
                let error = explain(&error);
                if let Some(left_out) = driver.limits.accepting.pass(&error) {
                    tracing::warn!(error, left_out, "cannot accept a connection; trying again");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let crowded = strangers.admit(from.ip(), |place| {
            let (driver, strangers, members) = (Arc::clone(&driver), Arc::clone(&strangers), members.clone());
            tokio::spawn(async move {
                if let Err(error) = answer(&driver, stream, place).await {
                    members.report(&driver, &strangers, from, &error);
                }
            })
            .abort_handle()
        });
        if crowded && let Some(left_out) = driver.limits.places.pass("") {
            tracing::warn!(%from, left_out, "too many connections without a greeting; the oldest was closed");
        }
        // The newcomer's task can see what has arrived before the next newcomer may end it.
        tokio::task::yield_now().await;
    }
}

/// Whose addresses are names may move: they are looked up again now and then.
const LOOK_UP_EVERY: Duration = Duration::from_secs(60);

/// Those whose addresses are known, as they were last looked up.
#[derive(Clone, Default)]
struct Members(Arc<Mutex<Vec<Arc<Peer>>>>);

impl Members {
    async fn keep_places(&self, driver: &Driver, strangers: &Strangers) -> ! {
        let mut looked_up: Option<Instant> = None;
        loop {
            let mut known: Vec<Arc<Peer>> = driver.peers().into_values().chain(driver.seeds()).collect();
            known.sort_by(|a, b| a.address.cmp(&b.address));
            known.dedup_by(|a, b| a.address == b.address);
            let same = {
                let before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                before.len() == known.len() && before.iter().zip(&known).all(|(a, b)| Arc::ptr_eq(a, b))
            };
            if !same || looked_up.is_none_or(|at| at.elapsed() > LOOK_UP_EVERY) {
                let mut addresses: Vec<(usize, IpAddr)> = Vec::new();
                for (index, peer) in known.iter().enumerate() {
                    if let Ok(found) = resolve(&peer.address).await {
                        addresses.extend(found.iter().map(|address| (index, address.ip())));
                    }
                }
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
                strangers.set_members(addresses);
                looked_up = Some(Instant::now());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// A connection has failed before its peer was known. If it came from where a member is expected to call from, that is most
    /// likely why this one is missing.
    fn report(&self, driver: &Driver, strangers: &Strangers, from: SocketAddr, error: &GreetError) {
        let at = strangers.only_member_at(from.ip());
        let at = at.and_then(|index| self.0.lock().unwrap_or_else(PoisonError::into_inner).get(index).map(Arc::clone));
        if let Some(peer) = at.filter(|peer| driver.lacks(peer)) {
            return peer.report_trouble(format!("a connection from its address has failed: {error}"));
        }
        if let Some(left_out) = driver.limits.strangers.pass(&error.to_string()) {
            tracing::warn!(%from, %error, left_out, "refused a connection");
        }
    }
}
