use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use hallpass::{Builder, Keys, Node, StartError};
use hallpass_agent::{Agent, ServeError};

use super::args::AgentArgs;
use super::config::Config;
use super::{paths, runtime};
use crate::exit::{Fault, Outcome};
use crate::os;

const TTL: Duration = Duration::from_secs(5);
/// The arguments that a private agent is started with, and recognised by.
pub(super) const PRIVATE_AGENT: [&str; 2] = ["agent", "--private"];
/// Exit code of an agent whose place is taken: a temporary failure, as in sysexits.h.
pub(super) const TAKEN: u8 = 75;
/// The private agent ends after so long without clients.
const PRIVATE_IDLE: Duration = Duration::from_secs(60);

/// What an agent is started with: flags and environment before the file, the file before the defaults.
struct Settings {
    builder: Builder,
    socket: PathBuf,
    data: Option<PathBuf>,
    ttl: Duration,
    idle: Option<Duration>,
}

pub(super) fn agent(args: &AgentArgs) -> Result<Outcome, Fault> {
    if args.private && !args.detached {
        return detach();
    }
    let filter = std::env::var("HALLPASS_LOG").unwrap_or_else(|_| "info".to_owned());
    let level: tracing::Level = filter
        .parse()
        .map_err(|_| Fault::Usage(format!("HALLPASS_LOG '{filter}' is none of error, warn, info, debug, trace")))?;
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let Settings { builder, socket, data, ttl, idle } = if args.private { private()? } else { settings(args)? };
    // Every client is a descriptor.
    os::raise_descriptor_limit();
    runtime()?.block_on(async {
        let agent = Agent::start(builder, &socket, data.as_deref(), ttl, idle).await.map_err(fault)?;
        let node = agent.node();
        let status = node.status();
        tracing::info!(
            group = status.group,
            name = status.name,
            listen = %node.address(),
            members = status.members.len(),
            encrypted = status.encrypted,
            socket = %socket.display(),
            "the agent is ready"
        );
        if !status.encrypted && status.members.len() > 1 {
            tracing::info!("there are no keys: members are reached on this machine only ('hallpass init' makes keys)");
        }
        let stop = agent.stopper();
        let failed = |error: std::io::Error| Fault::Failed(format!("cannot watch for signals: {error}"));
        let shutdown = os::shutdown_requested().map_err(failed)?;
        tokio::spawn(async move {
            shutdown.await;
            stop();
        });
        agent.serve().await.map_err(fault)?;
        tracing::info!("the agent has ended");
        Ok(Outcome::Fine)
    })
}

/// What somebody typed is a usage error; another agent in this one's place has an exit code of its own, for `run` to know.
fn fault(error: ServeError) -> Fault {
    let why = error.to_string();
    match error {
        ServeError::Start(StartError::Address(_) | StartError::Exposed(_) | StartError::Setting(_)) => {
            Fault::Usage(why)
        }
        ServeError::Start(StartError::InUse(_)) | ServeError::Taken(_) => Fault::Code(TAKEN, why),
        _ => Fault::Failed(why),
    }
}

/// Starts this program again without the session and the open files of its parent.
fn detach() -> Result<Outcome, Fault> {
    os::leave_session();
    let restart = |program| os::exec(Command::new(program).args(PRIVATE_AGENT).arg("--detached"));
    let error = os::this_program().map_or_else(|error| error, restart);
    Err(Fault::Failed(format!("cannot start again: {error}")))
}

fn private() -> Result<Settings, Fault> {
    let directory = paths::make_private_directory()?;
    let data = directory.join("data");
    Ok(Settings {
        builder: Node::builder().group("private").name("private"),
        socket: paths::private_socket(&directory),
        data: Some(data),
        ttl: TTL,
        idle: Some(PRIVATE_IDLE),
    })
}

fn settings(args: &AgentArgs) -> Result<Settings, Fault> {
    let file = args.config.clone().or_else(paths::system_config);
    let config = file.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let ttl = match (&args.ttl, &config.ttl) {
        (Some(ttl), _) => *ttl,
        (None, Some(text)) => hallpass_sim::parse_duration(text)
            .map(Duration::from_nanos)
            .ok_or_else(|| Fault::Failed(format!("ttl '{text}' in the configuration is not a duration such as 5s")))?,
        (None, None) => TTL,
    };
    if !(Duration::from_millis(500)..=Duration::from_secs(3600)).contains(&ttl) {
        return Err(Fault::Usage(format!("a session of {ttl:?} is too short or too long; take 500ms to 60m")));
    }
    let mut builder = Node::builder()
        .name(args.name.clone().or(config.name).unwrap_or_else(os::host_name))
        .peers(args.peers.clone().or(config.peers).unwrap_or_default());
    if let Some(group) = args.group.clone().or(config.group) {
        builder = builder.group(group);
    }
    if let Some(listen) = args.listen.clone().or(config.listen) {
        builder = builder.listen(listen);
    }
    if let Some(advertise) = args.advertise.clone().or(config.advertise) {
        builder = builder.advertise(advertise);
    }
    if let Some(keys) = args.keys.clone().or(config.keys) {
        builder = builder.keys(Keys::in_directory(keys));
    }
    if let Some(streak) = config.local_streak {
        builder = builder.local_streak(streak);
    }
    for class in &config.class {
        let options: Vec<&str> = class.options.iter().map(String::as_str).collect();
        builder = builder.class(&class.prefix, &class.protocol, &options);
    }
    let data = args.data.clone().or(config.data);
    let socket = args.socket.clone().or(config.socket).unwrap_or_else(paths::own_socket);
    paths::check_own(&socket)?;
    Ok(Settings { builder, socket, data, ttl, idle: None })
}
