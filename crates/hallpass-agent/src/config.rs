//! The agent's configuration file.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hallpass_core::duration;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A shorter session leaves a command no time to end when its agent is gone; a longer one keeps everybody waiting for the next
/// agent.
const TTL_RANGE: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(3600);

/// The longest path of a socket in bytes: the system's structure has room for a few more, and for a zero.
const SOCKET_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// How alike two keys must be for one to be taken for a misspelling of the other.
const SIMILARITY: f64 = 0.7;

/// A configuration as it is written, in TOML. Every key is optional; an unknown key is an error, since it is most likely a typo.
/// `docs/configuration.md` says what each one is for, and what can go wrong with it.
///
/// ```
/// let config = hallpass_agent::config::Config::parse("group = 'billing'\nttl = '5s'")?;
/// assert_eq!(config.group.as_deref(), Some("billing"));
/// # Ok::<(), hallpass_agent::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The group's name.
    pub group: Option<String>,
    /// This node's name.
    pub name: Option<String>,
    /// Where to listen for other members.
    #[serde(default, deserialize_with = "read_listen")]
    pub listen: Option<String>,
    /// The address that other members reach this node at, if it is not the one it listens on.
    #[serde(default, deserialize_with = "read_advertise")]
    pub advertise: Option<String>,
    /// The addresses of those that found the group.
    #[serde(default, deserialize_with = "read_peers")]
    pub peers: Option<Vec<String>>,
    /// Addresses of members of a group to join.
    #[serde(default, deserialize_with = "read_peers")]
    pub join: Option<Vec<String>>,
    /// How many nodes found the group.
    pub expect: Option<NonZeroU32>,
    /// How many members vote at most: 1, 3 or 5.
    #[serde(default, deserialize_with = "read_voters")]
    pub voters: Option<usize>,
    /// A member that votes and is away for longer is replaced, written as `10m`.
    #[serde(default, deserialize_with = "read_duration")]
    pub replace_after: Option<Duration>,
    /// Where the agent keeps its socket and its data unless they are named, in place of the directory that follows from its user.
    /// A configuration with this key alone lets `run` start a private agent there.
    #[serde(default, deserialize_with = "read_path")]
    pub state: Option<PathBuf>,
    /// The node's data directory.
    #[serde(default, deserialize_with = "read_path")]
    pub data: Option<PathBuf>,
    /// The directory with the node's keys.
    #[serde(default, deserialize_with = "read_path")]
    pub keys: Option<PathBuf>,
    /// The socket for clients.
    #[serde(default, deserialize_with = "read_path")]
    pub socket: Option<PathBuf>,
    /// The members of this group of users may use the socket too: its name or number.
    #[serde(default, deserialize_with = "read_socket_group")]
    pub socket_group: Option<String>,
    /// Where the API listens on TCP.
    #[serde(default, deserialize_with = "read_listen")]
    pub api: Option<String>,
    /// The Unix socket of the API; `off` for none.
    #[serde(default, deserialize_with = "read_path")]
    pub api_socket: Option<PathBuf>,
    /// The certificate of the API, if it is not the one of `keys`.
    #[serde(default, deserialize_with = "read_path")]
    pub api_cert: Option<PathBuf>,
    /// Its private key.
    #[serde(default, deserialize_with = "read_path")]
    pub api_key: Option<PathBuf>,
    /// The tokens that clients of the API need over TCP.
    #[serde(default, deserialize_with = "read_path")]
    pub api_tokens: Option<PathBuf>,
    /// How long a session lasts in a group that this node founds, written as `5s`.
    #[serde(default, deserialize_with = "read_ttl")]
    pub ttl: Option<Duration>,
    /// How many callers of this node may hold a lock in a row while another node waits for it.
    pub local_streak: Option<NonZeroU32>,
    /// The protocols of locks, by prefixes of their names.
    #[serde(default, rename = "class")]
    pub classes: Vec<LockClass>,
}

/// The protocol of all locks with a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LockClass {
    /// The prefix of the locks' names.
    pub prefix: String,
    /// The protocol's name.
    pub protocol: String,
    /// Options of the protocol, as `key=value`.
    #[serde(default)]
    pub options: Vec<String>,
}

/// A mistake in a configuration. Displayed as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The line of the text, from 1 on.
    pub line: usize,
    /// The mistake.
    pub message: String,
}

impl Config {
    /// Parses the text of a configuration file. What needs more than the text is checked when a node starts.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let before = text.bytes().take(start);
            let message = unknown_key(error.message()).unwrap_or_else(|| error.message().to_owned());
            ConfigError {
                line: before.filter(|byte| *byte == b'\n').count() + 1,
                message: message.split_whitespace().collect::<Vec<_>>().join(" "),
            }
        })
    }

    /// True if it is the configuration of a member of a group.
    pub fn is_member(&self) -> bool {
        *self != Self { state: self.state.clone(), ..Self::default() }
    }

    /// Makes paths in the configuration relative to this directory, usually that of its file.
    #[must_use]
    pub fn relative_to(mut self, directory: &Path) -> Self {
        let api = [&mut self.api_socket, &mut self.api_cert, &mut self.api_key, &mut self.api_tokens];
        let others = [&mut self.state, &mut self.data, &mut self.keys, &mut self.socket];
        for path in others.into_iter().chain(api).flatten().filter(|path| path.as_os_str() != NO_SOCKET) {
            *path = directory.join(&*path);
        }
        self
    }
}

/// In place of the path of the API's socket: there is to be none.
pub const NO_SOCKET: &str = "off";

/// The path of the API's socket where none is named: beside the socket for lines, with `-api` in its name.
pub fn default_api_socket(socket: &Path) -> PathBuf {
    let name = socket.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".sock").unwrap_or(&name);
    socket.with_file_name(format!("{stem}-api.sock"))
}

/// Checks an address to listen on, `host:port`. Port 0 is any that is free.
pub fn listen_address(text: &str) -> Result<String, String> {
    check_address(text, 0)
}

/// Checks this node's address for other members, `host:port`.
pub fn advertised_address(text: &str) -> Result<String, String> {
    check_address(text, 1)
}

/// Checks a member's address, `host:port` or `name@host:port`.
pub fn member_address(text: &str) -> Result<String, String> {
    let address = match text.split_once('@') {
        Some(("", _)) => return Err(format!("'{text}' has no name before '@'")),
        Some((_, address)) => address,
        None => text,
    };
    check_address(address, 1).map(|_| text.to_owned())
}

fn check_address(text: &str, port_min: u16) -> Result<String, String> {
    let Some((host, port)) = text.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) else {
        return Err(format!("'{text}' has no port; write an address as host:port"));
    };
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(format!("'{text}' is ambiguous; write an IPv6 address as [{host}]:{port}"));
    }
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/@".contains(c)) {
        return Err(format!("'{text}' has no valid host; write an address as host:port"));
    }
    match port.parse::<u16>() {
        Ok(number) if number >= port_min => Ok(text.to_owned()),
        _ => Err(format!("the port of '{text}' is not a number from {port_min} to 65535")),
    }
}

/// Reads how long a session lasts, such as `5s`.
pub fn session_ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration::parse(text).map(Duration::from_nanos);
    let ttl = ttl.ok_or_else(|| format!("'{text}' is not a duration such as 500ms, 10s or 2m"))?;
    let allowed = TTL_RANGE.contains(&ttl);
    allowed.then_some(ttl).ok_or_else(|| format!("a session of {text} is too short or too long; take 500ms to 60m"))
}

/// Reads how many members may vote.
pub fn voters_max(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| [1, 3, 5].contains(number));
    number.ok_or_else(|| format!("'{text}' is not possible: 1, 3 or 5 members can vote"))
}

/// Checks the name or number of a group of users. Whether it exists is seen when the agent starts.
pub fn socket_group(text: &str) -> Result<String, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    // The largest number means 'no change' to the system.
    let is_valid =
        if is_number { text.parse().is_ok_and(|number: u32| number < u32::MAX) } else { text.trim() == text };
    let is_valid = is_valid && !text.contains(|c: char| c.is_control() || ":/,".contains(c));
    is_valid.then(|| text.to_owned()).ok_or_else(|| format!("'{text}' is not the name or number of a group of users"))
}

/// Checks that the system can listen at a socket of this path, which must be the whole one.
pub fn check_socket(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.contains(&0) {
        return Err("the socket's path contains a zero byte".to_owned());
    }
    if bytes.len() > SOCKET_BYTES_MAX {
        let (path, length) = (path.display(), bytes.len());
        return Err(format!(
            "the socket's path has {length} bytes, and the system takes {SOCKET_BYTES_MAX}: name a shorter one than {path}"
        ));
    }
    Ok(())
}

fn whole_path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("the path is empty".to_owned()),
        _ if text.starts_with('~') => Err(format!("'~' means nothing here: write the whole path instead of '{text}'")),
        _ => Ok(text.into()),
    }
}

/// A string of the file, checked where its line is known.
fn checked<'de, D: Deserializer<'de>, T>(from: D, check: fn(&str) -> Result<T, String>) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    check(&text).map(Some).map_err(Error::custom)
}

fn read_listen<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, listen_address)
}

fn read_advertise<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, advertised_address)
}

fn read_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    checked(from, whole_path)
}

fn read_socket_group<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, socket_group)
}

fn read_ttl<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    checked(from, session_ttl)
}

fn read_voters<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let number = u64::deserialize(from)?;
    voters_max(&number.to_string()).map(Some).map_err(Error::custom)
}

fn read_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    checked(from, |text| {
        let read = duration::parse(text).map(Duration::from_nanos);
        read.ok_or_else(|| format!("'{text}' is not a duration such as 500ms, 10s or 2m"))
    })
}

fn read_peers<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    let members = Vec::<String>::deserialize(from)?;
    members.iter().try_for_each(|member| member_address(member).map(drop)).map_err(Error::custom)?;
    Ok(Some(members))
}

/// The parser's message about an unknown key, with the key that was probably meant; none if it is about something else.
fn unknown_key(message: &str) -> Option<String> {
    let (key, known) = message.strip_prefix("unknown field `")?.rsplit_once("`, expected one of ")?;
    let known: Vec<&str> = known.split(", ").map(|name| name.trim_matches('`')).collect();
    let similar = known.iter().map(|name| (strsim::jaro(key, name), *name)).filter(|(alike, _)| *alike > SIMILARITY);
    Some(match similar.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, meant)) => format!("there is no key '{key}'; did you mean '{meant}'?"),
        None => format!("there is no key '{key}'; there are {}", known.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let text = "group = 'g'\nname = 'n'\nlisten = 'l:0'\nadvertise = 'a:1'\npeers = ['p:1', 'n@q:2']\njoin = ['j:3']\nexpect = 4\nvoters = 3\nreplace_after = '2m'\nstate = 'st'\ndata = 'd'\nkeys = '/k'\n\
                    socket = 's'\nsocket_group = 'u'\nttl = '5s'\nlocal_streak = 2\n\
                    api = '127.0.0.1:7500'\napi_socket = 'x'\napi_cert = 'c'\napi_key = '/k'\napi_tokens = 't'\n\
                    [[class]]\nprefix = 'x/'\nprotocol = 'raymond'\noptions = ['tree=line']\n\
                    [[class]]\nprefix = ''\nprotocol = 'token'\n";
        let class = |prefix: &str, protocol: &str, options: &[&str]| LockClass {
            prefix: prefix.to_owned(),
            protocol: protocol.to_owned(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        let some = |text: &str| Some(text.to_owned());
        let expected = Config {
            group: some("g"),
            name: some("n"),
            listen: some("l:0"),
            advertise: some("a:1"),
            peers: Some(vec!["p:1".to_owned(), "n@q:2".to_owned()]),
            join: Some(vec!["j:3".to_owned()]),
            expect: NonZeroU32::new(4),
            voters: Some(3),
            replace_after: Some(Duration::from_secs(120)),
            state: Some("dir/st".into()),
            data: Some("dir/d".into()),
            keys: Some("/k".into()),
            socket: Some("dir/s".into()),
            socket_group: some("u"),
            api: some("127.0.0.1:7500"),
            api_socket: Some("dir/x".into()),
            api_cert: Some("dir/c".into()),
            api_key: Some("/k".into()),
            api_tokens: Some("dir/t".into()),
            ttl: Some(Duration::from_secs(5)),
            local_streak: NonZeroU32::new(2),
            classes: vec![class("x/", "raymond", &["tree=line"]), class("", "token", &[])],
        };
        assert_eq!(Config::parse(text).unwrap().relative_to(Path::new("dir")), expected);
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn the_socket_of_the_api_is_beside_the_other() {
        assert_eq!(
            default_api_socket(Path::new("/run/hallpass/agent.sock")),
            Path::new("/run/hallpass/agent-api.sock")
        );
        assert_eq!(default_api_socket(Path::new("s")), Path::new("s-api.sock"));
        let off = Config::parse("api_socket = 'off'").unwrap().relative_to(Path::new("dir"));
        assert_eq!(off.api_socket.as_deref(), Some(Path::new(NO_SOCKET)));
    }

    #[test]
    fn errors_are_one_line_and_name_the_place() {
        for (text, line) in [
            ("group = 'g'\nlisen = 3\n", 2),
            ("peers = 'one'", 1),
            ("\n\nname = 'é", 3),
            ("group = \"\"\"a\n\nb", 3),
            ("'a\nb' = 1", 1),
            ("\"a\\nb\" = 1", 1),
            ("[[class]]\nprefix = 'x'\n", 1),
            ("local_streak = -1", 1),
            ("voters = 2", 1),
            ("expect = 0", 1),
            ("replace_after = 'soon'", 1),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            let shown = error.to_string();
            assert!(shown.starts_with(&format!("line {line}: ")) && shown.lines().count() == 1, "{text:?}: {shown:?}");
        }
        assert!(Config::parse("lisen = 3").unwrap_err().message.contains("lisen"));
    }
}
