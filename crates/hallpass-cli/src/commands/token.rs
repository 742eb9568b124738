//! `hallpass token`: who may use the agent's API.

use std::io::Write;
use std::path::{Path, PathBuf};

use hallpass_agent::tokens::{Quotas, Token, Tokens};
use serde_json::json;

use super::args::{TokenArgs, TokenCommand};
use super::{config, paths};
use crate::exit::{Fault, Outcome};
use crate::{os, terminal};

pub(crate) fn token(command: &TokenCommand) -> Result<Outcome, Fault> {
    match command {
        TokenCommand::New(args) => new(args),
    }
}

fn new(args: &TokenArgs) -> Result<Outcome, Fault> {
    os::protect_memory();
    let file = file(args)?;
    let fail = |error: std::io::Error| Fault::Failed(format!("cannot write to {}: {error}", file.display()));
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(fail(error)),
    };
    let tokens = Tokens::parse(&before)
        .map_err(|error| Fault::Failed(format!("{} is not a file of tokens: {error}", file.display())))?;
    if tokens.has(&args.name) {
        return Err(Fault::Usage(format!("there is a token '{}' already; name another one", args.name.escape_debug())));
    }
    let prefixes = args.prefix.iter().map(String::as_str);
    let (secret, token) = Token::new(&args.name, args.rights.iter().copied(), prefixes)
        .map_err(|error| Fault::Usage(error.to_string()))?;
    let TokenArgs { leases_max, waits_max, watches_max, rate_max, .. } = *args;
    let quotas = Quotas { leases_max, waits_max, watches_max, rate_max };
    write(&file, &before, &token.with_quotas(quotas)).map_err(fail)?;
    let text = if args.json {
        json!({"name": args.name, "token": secret, "file": file.display().to_string()}).to_string()
    } else {
        secret
    };
    terminal::print(&format!("{text}\n"))?;
    Ok(Outcome::Fine)
}

/// The file that is named, else the one of the configuration.
fn file(args: &TokenArgs) -> Result<PathBuf, Fault> {
    if let Some(file) = &args.file {
        return Ok(file.clone());
    }
    let file = std::env::var_os("HALLPASS_CONFIG").map(PathBuf::from).or_else(paths::system_config);
    let config = file.as_deref().map(config::read).transpose()?.unwrap_or_default();
    config.api_tokens.ok_or_else(|| {
        Fault::Usage("name the file of tokens with --file, or with api_tokens in the configuration".to_owned())
    })
}

/// Replaces the file by one with the token at its end, which has the same owner and mode. A concurrent reader reads a complete file.
fn write(file: &Path, before: &str, token: &Token) -> std::io::Result<()> {
    let gap = if before.is_empty() || before.ends_with("\n\n") { "" } else { "\n" };
    // A link stays a link.
    let file = &file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let draft = file.with_extension("new");
    let _ = std::fs::remove_file(&draft);
    let mut new = os::create_private_file(&draft)?;
    let written = os::copy_ownership(file, &new)
        .and_then(|()| new.write_all(format!("{before}{gap}{}", token.to_toml()).as_bytes()))
        .and_then(|()| new.sync_all())
        .and_then(|()| std::fs::rename(&draft, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}
