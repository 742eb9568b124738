//! How an agent starts and ends, what it leaves for the next one, and what it does when its files are taken away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use hallpass::{Builder, Node};
use hallpass_agent::line_protocol::{Request, Response, StatusLine};
use hallpass_agent::{AgentOptions, AgentPaths, Client, ClientError, Ended, ServeError};
use hallpass_testkit::{LIMIT, Scratch, free_addresses, wait_until};

use crate::agent_thread::{AWHILE, Serving, Starting};

/// Sessions that end in none of these tests.
const LONG: Duration = Duration::from_secs(30);

/// A directory for an agent's files.
struct AgentFiles(Scratch);

impl AgentFiles {
    fn new(name: &str) -> Self {
        Self(Scratch::new(name))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("run/agent.sock")
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// It exists from when others have been in the agent's group.
    fn shared_mark(&self) -> PathBuf {
        AgentPaths::new(self.socket(), self.data()).shared_mark()
    }

    fn member_file(&self) -> PathBuf {
        self.0.join("member")
    }

    /// It exists while an agent runs, and after one whose clients may still hold locks.
    fn running_file(&self) -> PathBuf {
        self.data().join("running")
    }

    fn options(&self, ttl: Duration) -> AgentOptions {
        let mut options = AgentOptions::new(self.socket(), self.data());
        options.ttl = ttl;
        options.member_file = Some(self.member_file());
        options.is_member = true;
        options
    }

    fn start(&self) -> Serving {
        Starting::new(self.options(LONG)).wait().expect("the agent starts")
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket()).expect("the agent answers")
    }
}

fn acquire(client: &mut Client) -> u64 {
    let request = r#"{"do":"acquire","lock":"x"}"#;
    let request: Request = serde_json::from_str(request).unwrap();
    match client.request(&request) {
        Ok(Response::Granted { fence, .. }) => fence,
        other => panic!("{other:?}"),
    }
}

/// An address at which nobody listens.
fn free_address() -> String {
    free_addresses(1).remove(0)
}

fn leave_stale_socket(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    drop(UnixListener::bind(path).unwrap());
}

/// Its client is told, although it asks nothing. The next agent waits all the same: another client may have heard nothing.
#[test]
fn an_agent_whose_node_panics_tells_its_holders_and_ends() {
    let files = AgentFiles::new("panics");
    let agent = files.start();
    let mut client = files.client();
    let held = acquire(&mut client);
    agent.node.fail();
    let lost = loop {
        if let Response::Lost { lock, fence } = client.receive_within(Some(LIMIT)).expect("a message") {
            break (lock, fence);
        }
    };
    assert_eq!(lost, ("x".to_owned(), held));
    drop(client);
    let ended = agent.ended();
    assert!(matches!(ended, Err(ServeError::Failed)), "{ended:?}");
    assert!(files.running_file().exists());
}

/// An agent that did not end in order may have left clients at work: its mark, or its socket, says so.
#[test]
fn the_next_agent_waits_for_the_sessions_of_one_that_did_not_end_in_order() {
    let with_mark = |files: &AgentFiles, ttl_ms: &str| {
        fs::create_dir(files.data()).unwrap();
        fs::set_permissions(files.data(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(files.running_file(), ttl_ms).unwrap();
    };
    let short = Duration::from_millis(100);

    let fresh = AgentFiles::new("fresh");
    Starting::new(fresh.options(2 * LONG)).wait().expect("there is nothing to wait for").stop();

    let mark = AgentFiles::new("mark");
    with_mark(&mark, "20");
    assert!(Starting::new(mark.options(2 * LONG)).waits(), "its own sessions are long");

    let longer = AgentFiles::new("longer");
    with_mark(&longer, "60000");
    assert!(Starting::new(longer.options(short)).waits(), "the last agent's sessions were long");

    let socket = AgentFiles::new("socket");
    leave_stale_socket(&socket.socket());
    assert!(Starting::new(socket.options(2 * LONG)).waits(), "the mark is gone, the socket is there");

    let over = AgentFiles::new("over");
    with_mark(&over, "20");
    leave_stale_socket(&over.socket());
    Starting::new(over.options(short)).wait().expect("the sessions are over").stop();
}

#[test]
fn an_agent_that_nobody_uses_leaves_nothing_but_the_mark_of_a_member() {
    let files = AgentFiles::new("nothing");
    let agent = files.start();
    let ttl_ms = LONG.as_millis().to_string();
    assert_eq!(fs::read_to_string(files.running_file()).unwrap(), ttl_ms, "while it runs");
    let client = files.client();
    assert_eq!((client.node.as_str(), client.ttl), ("n", LONG));
    agent.stop();
    assert!(!files.running_file().exists() && !files.socket().exists());
    assert!(!files.socket().parent().unwrap().exists(), "the directory was made for it");
    assert_eq!(fs::read_to_string(files.member_file()).unwrap(), "g");

    // One that leaves gives its paths up. A directory that was there before stays.
    fs::create_dir(files.socket().parent().unwrap()).unwrap();
    let agent = files.start();
    assert!(matches!(files.client().request(&Request::Leave { timeout_ms: None }), Ok(Response::Leaving)));
    assert_eq!(agent.ended().unwrap(), Ended::Left);
    assert!(!files.member_file().exists());
    assert!(files.socket().parent().unwrap().exists());
}

#[test]
fn an_agent_whose_holder_stays_leaves_its_mark_when_the_session_is_over() {
    let files = AgentFiles::new("stays");
    let start = || Starting::new(files.options(Duration::from_millis(300))).wait().unwrap();
    let agent = start();
    let mut holder = files.client();
    let fence = acquire(&mut holder);
    agent.stop();
    assert!(files.running_file().exists(), "the next agent must wait");
    let next = start();
    assert!(acquire(&mut files.client()) > fence);
    next.stop();
}

#[test]
fn nobody_is_let_in_while_a_holder_of_an_ending_agent_is_inside() {
    let files = AgentFiles::new("inside");
    let agent = files.start();
    let mut holder = files.client();
    acquire(&mut holder);
    agent.ask_to_end();
    assert!(matches!(holder.receive_within(Some(LIMIT)), Ok(Response::Ending { .. })));
    assert!(matches!(Client::connect(&files.socket()), Err(ClientError::Closed)), "new clients are sent away");
    let beside = Starting::new(files.options(LONG)).fails();
    assert!(matches!(beside, ServeError::Taken(_)), "{beside}");
    thread::sleep(AWHILE);
    assert!(!agent.thread.is_finished() && files.socket().exists(), "it waits for the holder");
    drop(holder);
    assert_eq!(agent.ended().unwrap(), Ended::Stopped);
    assert!(!files.running_file().exists(), "the next agent need not wait");
}

/// Without its files an agent is not found until it has made them again, but it still grants.
#[test]
fn an_agent_whose_files_were_removed_keeps_others_from_its_place() {
    let files = AgentFiles::new("claims");
    let agent = files.start();
    let mut holder = files.client();
    acquire(&mut holder);
    // The agent may be making its files again at this moment.
    while fs::remove_dir_all(files.0.path()).is_err() {}
    let mut same_data = files.options(LONG);
    same_data.socket = files.0.join("run/b.sock");
    let mut same_socket = files.options(LONG);
    same_socket.data = files.0.join("b.data");
    for options in [same_data, same_socket] {
        let error = Starting::new(options).fails();
        assert!(matches!(error, ServeError::Claimed(_)), "{error}");
    }
    // Nobody else can have used the paths meanwhile, so it makes its files again, and the holder holds.
    wait_until("the files are there again", || {
        files.running_file().exists() && Client::connect(&files.socket()).is_ok()
    });
    drop(holder);
    agent.stop();
}

#[test]
fn a_socket_that_was_removed_is_made_again_for_this_user_alone() {
    let files = AgentFiles::new("again");
    let agent = files.start();
    let mode = || fs::metadata(files.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    fs::remove_file(files.socket()).unwrap();
    wait_until("the socket is there again", || Client::connect(&files.socket()).is_ok());
    assert_eq!(mode(), 0o600);
    // What is not ours is left alone, also at the end.
    fs::remove_file(files.socket()).unwrap();
    fs::write(files.socket(), "a file").unwrap();
    thread::sleep(AWHILE);
    agent.stop();
    assert_eq!(fs::read_to_string(files.socket()).unwrap(), "a file");
    let error = Starting::new(files.options(LONG)).fails();
    assert!(error.to_string().contains("not a socket"), "{error}");
}

#[test]
fn an_agent_is_idle_only_without_clients() {
    let files = AgentFiles::new("idle");
    let mut options = files.options(LONG);
    options.idle_limit = Some(2 * AWHILE);
    let agent = Starting::new(options).wait().unwrap();
    let client = files.client();
    thread::sleep(3 * AWHILE);
    assert!(!agent.thread.is_finished(), "it has a client");
    drop(client);
    assert_eq!(agent.ended().unwrap(), Ended::Idle);
    assert!(files.member_file().exists());
}

/// Alone in its group it has told no deadline until then: nothing could take the lock away.
#[test]
fn an_agent_that_ends_tells_its_holders_until_when() {
    let files = AgentFiles::new("until");
    let agent = files.start();
    let mut holder = files.client();
    let fence = acquire(&mut holder);
    assert_eq!(holder.holding("x", fence).unwrap().valid_until_ns(), None);
    agent.ask_to_end();
    assert!(matches!(holder.receive_within(Some(LIMIT)), Ok(Response::Ending { .. })));
    let told = holder.receive_within(Some(LIMIT));
    let Ok(Response::Session { valid_until_ns: Some(until) }) = told else { panic!("{told:?}") };
    assert!(until <= hallpass_agent::now() + LONG.as_nanos() as u64, "{until}");
    drop(holder);
    assert_eq!(agent.ended().unwrap(), Ended::Stopped);
}

/// The holder does not release: it goes by what it is told, and the next one waits on another member.
#[test]
fn whatever_an_agent_that_ends_has_told_is_over_before_the_next_one_is_in() {
    let files = AgentFiles::new("told");
    let mut options = files.options(Duration::from_secs(2));
    options.is_member = false;
    let agent = Starting::new(options).wait().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let others = ["m", "o"].map(|name| {
        let builder = Node::builder().group("g").name(name).join(agent.address.clone());
        runtime.block_on(builder.data(files.0.join(name)).start()).unwrap()
    });
    wait_until("all vote", || others.iter().all(|other| other.status().voters.len() == 3));
    let mut holder = files.client();
    let fence = acquire(&mut holder);
    let lock = others[0].lock("x");
    let next = runtime.spawn(async move {
        let guard = lock.acquire().await;
        (hallpass_agent::now(), guard.expect("it is granted").fence())
    });
    agent.ask_to_end();
    // Everything that is said until the agent is gone.
    let told = |holder: &Client| holder.holding("x", fence).and_then(|holding| holding.valid_until_ns());
    let mut longest = told(&holder).expect("another member could take it");
    let mut lost = false;
    while let Ok(said) = holder.receive_within(Some(LIMIT)) {
        longest = longest.max(told(&holder).unwrap());
        lost |= matches!(said, Response::Lost { .. });
    }
    let (granted, newer) = runtime.block_on(async { tokio::time::timeout(LIMIT, next).await }).unwrap().unwrap();
    assert!(newer > fence && lost);
    assert!(granted >= longest, "the next one was in {:?} too soon", Duration::from_nanos(longest - granted));
    assert_eq!(agent.ended().unwrap(), Ended::Stopped);
    others.iter().for_each(|other| runtime.block_on(other.stop()));
}

/// What is answered to a client that asks the agent to leave, once it has ended.
fn leave(files: &AgentFiles, agent: Serving) -> Result<Response, ClientError> {
    let mut client = files.client();
    let leaving = client.request(&Request::Leave { timeout_ms: Some(200) });
    assert!(matches!(leaving, Ok(Response::Leaving)), "{leaving:?}");
    let mut answer = client.receive_within(Some(LIMIT));
    while matches!(answer, Ok(Response::Ending { .. })) {
        answer = client.receive_within(Some(LIMIT));
    }
    assert_eq!(agent.ended().unwrap(), Ended::Left);
    answer
}

/// The others vote: they cannot be asked to let it go, and count on it when they are back.
#[test]
fn an_agent_that_is_cut_off_cannot_leave_and_says_so() {
    let files = AgentFiles::new("cut-off");
    let agent = Starting::new(files.options(Duration::from_secs(1))).wait().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let others = ["m", "o"].map(|name| {
        let builder = Node::builder().group("g").name(name).join(agent.address.clone());
        runtime.block_on(builder.data(files.0.join(name)).start()).unwrap()
    });
    wait_until("all vote", || others.iter().all(|other| other.status().voters.len() == 3));
    wait_until("it is written down", || files.shared_mark().exists());
    others.iter().for_each(|other| runtime.block_on(other.crash()));
    let mut client = files.client();
    wait_until("its session is over", || match client.request(&Request::Status) {
        Ok(Response::Status(status)) => status.epoch.is_none(),
        other => panic!("{other:?}"),
    });
    let answer = leave(&files, agent);
    assert!(matches!(answer, Ok(Response::Late { .. })), "{answer:?}");
    assert!(files.shared_mark().exists() && files.member_file().exists());
}

/// Its node is a new one in no group, and the lost one is still in its own.
#[test]
fn an_agent_that_has_lost_its_directory_does_not_forget_that_by_leaving() {
    let files = AgentFiles::new("lost");
    fs::write(files.shared_mark(), "g").unwrap();
    let nobody = free_address();
    let builder = Node::builder().group("g").name("n").join(&nobody);
    let agent = Starting::with(builder, files.options(LONG)).wait().unwrap();
    let answer = leave(&files, agent);
    assert!(matches!(&answer, Err(ClientError::Refused(why)) if why.contains("data.shared")), "{answer:?}");
    assert!(files.shared_mark().exists() && files.member_file().exists());
    // Where no others ever were its paths are given up.
    fs::remove_file(files.shared_mark()).unwrap();
    let builder = Node::builder().group("g").name("n").join(&nobody);
    let agent = Starting::with(builder, files.options(LONG)).wait().unwrap();
    let answer = leave(&files, agent);
    assert!(matches!(answer, Ok(Response::Done)), "{answer:?}");
    assert!(!files.member_file().exists());
}

fn status(client: &mut Client) -> StatusLine {
    match client.request(&Request::Status) {
        Ok(Response::Status(status)) => *status,
        other => panic!("{other:?}"),
    }
}

/// A member of a group, and its address.
fn lone_member(files: &AgentFiles, runtime: &tokio::runtime::Runtime) -> (Node, String) {
    let member = Node::builder().group("g").name("m").data(files.0.join("m"));
    let member = runtime.block_on(member.start()).unwrap();
    wait_until("it has its group", || member.status().epoch.is_some());
    let address = member.address().to_string();
    (member, address)
}

/// What a node is made from that is to be joined to others: they must know where it listens.
fn joinable() -> Builder {
    Node::builder().group("g").name("n").listen(free_address())
}

fn has_two(member: &Node) -> bool {
    member.members().iter().filter(|member| member.in_view).count() == 2
}

/// Its peers may come at last: it is to be in the group of the member that it was told, and of no other.
#[test]
fn an_agent_that_is_told_to_join_waits_for_its_peers_no_more() {
    let files = AgentFiles::new("peers");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (member, address) = lone_member(&files, &runtime);
    let nobody = free_address();
    let agent = Starting::with(joinable().peers([nobody]), files.options(LONG)).wait().unwrap();
    let mut client = files.client();
    let id = |client: &mut Client| match client.request(&Request::Members) {
        Ok(Response::Members { members }) => members.iter().find(|member| member.this).map(|member| member.id),
        other => panic!("{other:?}"),
    };
    let waited = id(&mut client);
    let joined = client.request(&Request::Join { address, timeout_ms: Some(LIMIT.as_millis() as u64) });
    assert!(matches!(joined, Ok(Response::Done)), "{joined:?}");
    assert_ne!(id(&mut client), waited, "it is a new node, which has never been told of the peers");
    wait_until("it is in the group", || has_two(&member));
    agent.stop();
    runtime.block_on(member.stop());
}

#[test]
fn an_agent_answers_while_its_new_node_cannot_start() {
    let files = AgentFiles::new("no-node");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (member, address) = lone_member(&files, &runtime);
    let agent = Starting::with(joinable(), files.options(LONG)).wait().unwrap();
    let mut client = files.client();
    // What cannot be removed keeps the directory from being emptied.
    fs::create_dir(files.data().join("node.new")).unwrap();
    let mut joins = files.client();
    joins.send(&Request::Join { address, timeout_ms: Some(LIMIT.as_millis() as u64) }).unwrap();
    wait_until("it has no node", || status(&mut client).epoch.is_none());
    let socket = files.socket();
    let (sender, answered) = channel();
    thread::spawn(move || sender.send(Client::connect(&socket).map(|mut client| status(&mut client).view)));
    let view = answered.recv_timeout(LIMIT).expect("a new client is answered").unwrap();
    assert_eq!(view, "joining");
    fs::remove_dir(files.data().join("node.new")).unwrap();
    let joined = joins.receive_within(Some(LIMIT));
    assert!(matches!(joined, Ok(Response::Done)), "{joined:?}");
    wait_until("it is in the group", || has_two(&member));
    agent.stop();
    runtime.block_on(member.stop());
}
