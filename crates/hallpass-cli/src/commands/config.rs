use std::path::Path;

use hallpass_agent::config::Config;

use crate::exit::Fault;

/// Reads a configuration file. Paths in it are relative to it.
pub(super) fn read(path: &Path) -> Result<Config, Fault> {
    let fail =
        |why: &dyn std::fmt::Display| Fault::Failed(format!("cannot use the configuration {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fail(&error))?;
    let config = Config::parse(&text).map_err(|error| fail(&error))?;
    Ok(config.relative_to(path.parent().unwrap_or(Path::new(""))))
}
