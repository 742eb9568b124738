//! `hallpass agent`: serves the processes of this machine until it is asked to end.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use hallpass::{Builder, DataDirectory, Keys, Node, StartError};
use hallpass_agent::config::{Config, NO_SOCKET, check_socket, default_api_socket};
use hallpass_agent::{Agent, AgentOptions, AgentPaths, ApiOptions, ServeError};

use super::args::AgentArgs;
use super::log::Log;
use super::{certificates, config, paths, private_agent, runtime};
use crate::exit::{Fault, Outcome, TEMPORARY};
use crate::os;

/// How often to look whether a private agent has ended.
const PRIVATE_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) fn agent(args: &AgentArgs) -> Result<Outcome, Fault> {
    if let Some(directory) = args.private.as_deref().filter(|_| !args.detached) {
        return private_agent::detach(directory);
    }
    let log = Log::start()?;
    let (builder, options) = match &args.private {
        Some(directory) => private_agent::settings(directory)?,
        None => settings(args)?,
    };
    // Every client takes a descriptor.
    os::raise_descriptor_limit();
    let ended = runtime()?.block_on(serve(builder, options));
    log.end();
    ended
}

async fn serve(builder: Builder, options: AgentOptions) -> Result<Outcome, Fault> {
    let socket = options.socket.clone();
    let failed = |error: std::io::Error| Fault::Failed(format!("cannot watch for signals: {error}"));
    let mut shutdown = Box::pin(os::shutdown_requested().map_err(failed)?);
    let agent = tokio::select! {
        started = Agent::start(builder, options) => started.map_err(fault)?,
        // The agent may be waiting for old sessions to end, and has granted nothing yet.
        () = &mut shutdown => return Ok(Outcome::Fine),
    };
    let node = agent.node();
    let status = node.status();
    tracing::info!(
        group = status.group,
        name = status.name,
        listen = Some(node.address()).filter(|address| address.port() != 0).map(|address| address.to_string()),
        members = status.members.len(),
        encrypted = status.encrypted,
        socket = %socket.display(),
        api = agent.api_address().map(|address| address.to_string()),
        "the agent is ready"
    );
    let stop = agent.stopper();
    tokio::spawn(async move {
        shutdown.await;
        stop();
    });
    agent.serve().await.map_err(fault)?;
    tracing::info!("the agent has ended");
    Ok(Outcome::Fine)
}

/// A wrong setting is a usage error. An exit code of its own tells `run` that another agent runs already.
fn fault(error: ServeError) -> Fault {
    let why = error.to_string();
    match error {
        ServeError::Start(StartError::Address(_) | StartError::Exposed(_) | StartError::Setting(_)) => {
            Fault::Usage(why)
        }
        ServeError::Start(StartError::InUse(_)) | ServeError::Taken(_) | ServeError::Claimed(_) => {
            Fault::Code(TEMPORARY, why)
        }
        ServeError::Group(_) | ServeError::Api(_) => Fault::Usage(why),
        _ => Fault::Failed(why),
    }
}

/// An agent's settings: flags and environment take precedence over the file, the file over the defaults.
fn settings(args: &AgentArgs) -> Result<(Builder, AgentOptions), Fault> {
    let file = args.config.clone().or_else(paths::system_config);
    let config = file.as_deref().map(config::read).transpose()?.unwrap_or_default();
    let config_api = config.clone();
    let (peers, join) = members(args, &config);
    let is_member = !peers.is_empty() || !join.is_empty();
    let mut builder =
        Node::builder().name(args.name.clone().or(config.name).unwrap_or_else(os::host_name)).peers(peers);
    for address in join {
        builder = builder.join(address);
    }
    if let Some(nodes) = args.expect.or(config.expect.map(NonZeroU32::get)) {
        builder = builder.expect(nodes as usize);
    }
    if let Some(voters) = args.voters.or(config.voters) {
        builder = builder.voters_max(voters);
    }
    if let Some(away) = args.replace_after.or(config.replace_after) {
        builder = builder.replace_after(away);
    }
    if let Some(group) = args.group.clone().or(config.group) {
        builder = builder.group(group);
    }
    if let Some(listen) = args.listen.clone().or(config.listen) {
        builder = builder.listen(existing_addresses(listen, has_ipv6));
    }
    if let Some(advertise) = args.advertise.clone().or(config.advertise) {
        builder = builder.advertise(advertise);
    }
    if let Some(keys) = args.keys.clone().or(config.keys) {
        let keys = Keys::in_directory(keys);
        certificates::check_end(&keys.certificate)?;
        os::protect_memory();
        builder = builder.keys(keys);
    }
    if let Some(streak) = config.local_streak {
        builder = builder.local_streak(streak.get());
    }
    for class in &config.classes {
        let options: Vec<&str> = class.options.iter().map(String::as_str).collect();
        builder = builder.class(&class.prefix, &class.protocol, &options);
    }
    let (socket, data) = (args.socket.clone().or(config.socket), args.data.clone().or(config.data));
    // A private agent cannot replace an agent with other data: its fences would not continue those of that agent.
    let is_irreplaceable = is_member || data.is_some();
    let agent_paths = paths::of_agent(socket, data, config.state.as_deref())?;
    check_socket(&agent_paths.socket).map_err(Fault::Usage)?;
    paths::create_parents(&agent_paths)?;
    prepare_data(&agent_paths, is_member)?;
    let api = api(args, &config_api, &agent_paths.socket)?;
    let mut options = AgentOptions::at(agent_paths);
    options.api = api;
    options.is_member = is_irreplaceable;
    options.ttl = args.ttl.or(config.ttl).unwrap_or(AgentOptions::TTL_DEFAULT);
    options.socket_group = args.socket_group.clone().or(config.socket_group);
    Ok((builder, options))
}

/// Root's private agent uses the machine's data, too. While the private agent runs, the machine's agent waits. Data that the private
/// agent left does not keep this agent out of its group: the private group never had another member.
fn prepare_data(agent_paths: &AgentPaths, is_member: bool) -> Result<(), Fault> {
    let mut is_told = false;
    while paths::are_machines(agent_paths) && agent_paths.is_private() && agent_paths.is_in_use() {
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(data = %agent_paths.data.display(), "root's private agent is running; waiting for it to end");
        }
        std::thread::sleep(PRIVATE_INTERVAL);
    }
    paths::take_over_former(agent_paths)?;
    if is_member && agent_paths.is_private() {
        let forgotten = DataDirectory::forget(&agent_paths.data);
        forgotten.map_err(|error| Fault::Failed(error.to_string()))?;
    }
    Ok(())
}

/// The addresses and keys of the API.
fn api(args: &AgentArgs, config: &Config, socket: &Path) -> Result<ApiOptions, Fault> {
    let named = args.api_socket.clone().or_else(|| config.api_socket.clone());
    let mut api = ApiOptions::default();
    api.socket = match named {
        Some(path) if path.as_os_str() == NO_SOCKET => None,
        Some(path) => {
            check_socket(&path).map_err(Fault::Usage)?;
            Some(path)
        }
        // The socket of the API must not keep the agent from starting because its path is too long.
        None => Some(default_api_socket(socket)).filter(|path| check_socket(path).is_ok()),
    };
    api.listen = args.api.clone().or_else(|| config.api.clone()).map(|listen| existing_addresses(listen, has_ipv6));
    api.tokens = args.api_tokens.clone().or_else(|| config.api_tokens.clone());
    let named = (
        args.api_cert.clone().or_else(|| config.api_cert.clone()),
        args.api_key.clone().or_else(|| config.api_key.clone()),
    );
    let keys = args.keys.clone().or_else(|| config.keys.clone()).map(Keys::in_directory);
    api.tls_on_loopback = named.0.is_some();
    if named.1.is_some() {
        os::protect_memory();
    }
    api.tls = match named {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => keys.map(|keys| (keys.certificate, keys.key)).filter(|_| api.listen.is_some()),
        _ => return Err(Fault::Usage("api_cert and api_key belong together: give both, or none".to_owned())),
    };
    Ok(api)
}

/// The members with which the node founds a group, or through which it joins one. A flag replaces both lists of the file.
fn members(args: &AgentArgs, config: &Config) -> (Vec<String>, Vec<String>) {
    match (&args.peers, &args.join) {
        (None, None) => (config.peers.clone().unwrap_or_default(), config.join.clone().unwrap_or_default()),
        (peers, join) => (peers.clone().unwrap_or_default(), join.clone().unwrap_or_default()),
    }
}

/// On a machine without IPv6, `[::]` means all IPv4 addresses.
fn existing_addresses(listen: String, has_ipv6: impl Fn() -> bool) -> String {
    match listen.strip_prefix("[::]:") {
        Some(port) if !has_ipv6() => format!("0.0.0.0:{port}"),
        _ => listen,
    }
}

fn has_ipv6() -> bool {
    std::net::TcpListener::bind("[::]:0").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_ipv6_all_addresses_are_those_of_ipv4() {
        let without = |listen: &str| existing_addresses(listen.to_owned(), || false);
        assert_eq!(without("[::]:7400"), "0.0.0.0:7400");
        assert_eq!(without("[::1]:7400"), "[::1]:7400");
        assert_eq!(without("10.0.0.1:7400"), "10.0.0.1:7400");
        assert_eq!(existing_addresses("[::]:7400".to_owned(), || true), "[::]:7400");
    }
}
