//! The agent's configuration file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::exit::Fault;

/// As it is written. Every key is optional; a key that is not known is an error, since it is a typo.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) group: Option<String>,
    pub(super) name: Option<String>,
    pub(super) listen: Option<String>,
    pub(super) advertise: Option<String>,
    pub(super) peers: Option<Vec<String>>,
    pub(super) data: Option<PathBuf>,
    pub(super) keys: Option<PathBuf>,
    pub(super) socket: Option<PathBuf>,
    pub(super) ttl: Option<String>,
    pub(super) local_streak: Option<u32>,
    #[serde(default)]
    pub(super) class: Vec<Class>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    pub(super) prefix: String,
    pub(super) protocol: String,
    #[serde(default)]
    pub(super) options: Vec<String>,
}

impl Config {
    /// Reads a file. Paths in it are relative to it.
    pub(super) fn read(path: &Path) -> Result<Self, Fault> {
        let fail = |why: &str| Fault::Failed(format!("cannot use the configuration {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| fail(&error.to_string()))?;
        let mut config: Self = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            fail(&format!("line {line}: {}", error.message()))
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        for file in [&mut config.data, &mut config.keys, &mut config.socket].into_iter().flatten() {
            *file = directory.join(&*file);
        }
        Ok(config)
    }
}
