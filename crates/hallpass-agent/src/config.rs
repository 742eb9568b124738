//! The agent's configuration file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A configuration as it is written, in TOML. Every key is optional; an unknown key is an error, since it is most likely a typo.
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
    pub listen: Option<String>,
    /// The address that other members reach this node at, if it is not the one it listens on.
    pub advertise: Option<String>,
    /// All members' addresses.
    pub peers: Option<Vec<String>>,
    /// Where the agent keeps its socket and its data unless they are named, in place of the directory that follows from its user.
    /// A configuration with this key alone lets `run` start a private agent there.
    pub state: Option<PathBuf>,
    /// The node's data directory.
    pub data: Option<PathBuf>,
    /// The directory with the node's keys.
    pub keys: Option<PathBuf>,
    /// The socket for clients.
    pub socket: Option<PathBuf>,
    /// How long a client's session lasts, such as `5s`.
    pub ttl: Option<String>,
    /// How many callers of this node may hold a lock in a row while another node waits for it.
    pub local_streak: Option<u32>,
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

/// What is wrong with a configuration. Displayed as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The line of the text, from 1 on.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

impl Config {
    /// Parses the text of a configuration file. Its values are not checked further here.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let before = text.bytes().take(start);
            ConfigError {
                line: before.filter(|byte| *byte == b'\n').count() + 1,
                message: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
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
        for path in [&mut self.state, &mut self.data, &mut self.keys, &mut self.socket].into_iter().flatten() {
            *path = directory.join(&*path);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let text = "group = 'g'\nname = 'n'\nlisten = 'l'\nadvertise = 'a'\npeers = ['p', 'q']\nstate = 'st'\ndata = 'd'\nkeys = '/k'\n\
                    socket = 's'\nttl = '5s'\nlocal_streak = 2\n\
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
            listen: some("l"),
            advertise: some("a"),
            peers: Some(vec!["p".to_owned(), "q".to_owned()]),
            state: Some("dir/st".into()),
            data: Some("dir/d".into()),
            keys: Some("/k".into()),
            socket: Some("dir/s".into()),
            ttl: some("5s"),
            local_streak: Some(2),
            classes: vec![class("x/", "raymond", &["tree=line"]), class("", "token", &[])],
        };
        assert_eq!(Config::parse(text).unwrap().relative_to(Path::new("dir")), expected);
        assert_eq!(Config::parse("").unwrap(), Config::default());
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
        ] {
            let error = Config::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            let shown = error.to_string();
            assert!(shown.starts_with(&format!("line {line}: ")) && shown.lines().count() == 1, "{text:?}: {shown:?}");
        }
        assert!(Config::parse("lisen = 3").unwrap_err().message.contains("lisen"));
    }
}
