//! Bearer tokens: who may do what through the agent's API.
//!
//! A token is 256 random bits that its owner keeps; the file has only its SHA-256, which is enough since nobody guesses 256 bits.
//! The file is read again when it changes. A token that is removed from it is refused a second later; its leases end a second after that.
//!
//! ```
//! use hallpass_agent::tokens::{Right, Token, Tokens};
//!
//! let (secret, token) = Token::new("ci", [Right::Acquire, Right::Inspect], ["ci/"])?;
//! let tokens = Tokens::parse(&token.to_toml())?;
//! let found = tokens.find(&secret).expect("it is in the file");
//! assert!(found.may(Right::Acquire, "ci/deploy") && !found.may(Right::Acquire, "billing"));
//! assert!(tokens.find("guess").is_none());
//! # Ok::<(), hallpass_agent::tokens::TokenError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::account::Account;
use crate::{audit, os};

/// The prefix of all tokens: people and scanners of repositories recognise one by it.
const PREFIX: &str = "hallpass_";
/// How often to look whether the file has changed.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Every request with a token compares all of them.
const TOKENS_MAX: usize = 1000;

/// A right of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// To acquire locks, keep leases alive and release them.
    Acquire,
    /// To see locks, members, status, events and metrics.
    Inspect,
    /// To take locks from their holders.
    Break,
    /// To remove members, and to use other tokens' leases.
    Administer,
}

impl Right {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Acquire, "acquire"),
        (Self::Inspect, "inspect"),
        (Self::Break, "break"),
        (Self::Administer, "administer"),
    ];

    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(right, _)| *right).ok_or_else(|| {
            format!("unknown right '{}'; expected acquire, inspect, break or administer", text.escape_debug())
        })
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(right, _)| right == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// A mistake in a file of tokens, or why a token could not be made. Displayed as one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(String);

impl TokenError {
    fn new(text: impl fmt::Display) -> Self {
        Self(text.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// A token as the file has it: without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Its name in the audit log, which owns the leases that it makes.
    pub name: String,
    /// The SHA-256 of the secret, in hexadecimal.
    sha256: String,
    rights: BTreeSet<Right>,
    /// The rights are for locks whose names begin with one of these; the empty prefix is that of all locks.
    prefixes: Vec<String>,
    #[serde(default)]
    leases_max: Option<NonZeroU32>,
    #[serde(default)]
    waits_max: Option<NonZeroU32>,
    #[serde(default)]
    watches_max: Option<NonZeroU32>,
    #[serde(default)]
    rate_max: Option<NonZeroU32>,
}

/// How much all clients with a token may use together. None: no limit but those of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Leases at a time.
    pub leases_max: Option<NonZeroU32>,
    /// Requests that wait for locks at a time.
    pub waits_max: Option<NonZeroU32>,
    /// Watches of etcd's API, and streams of events and of locks' messages, at a time.
    pub watches_max: Option<NonZeroU32>,
    /// Requests a second. After a pause, a second's worth may come at once.
    pub rate_max: Option<NonZeroU32>,
}

impl Token {
    /// Makes a token, and the secret that it is used with. The secret is nowhere else.
    pub fn new<'a>(
        name: &str,
        rights: impl IntoIterator<Item = Right>,
        prefixes: impl IntoIterator<Item = &'a str>,
    ) -> Result<(String, Self), TokenError> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::new("the system gives no random numbers"))?;
        let secret = format!("{PREFIX}{}", hex(&bytes));
        let mut prefixes: Vec<String> = prefixes.into_iter().map(str::to_owned).collect();
        if prefixes.is_empty() {
            prefixes.push(String::new());
        }
        let sha256 = hex(digest(&SHA256, secret.as_bytes()).as_ref());
        let (name, rights) = (name.to_owned(), rights.into_iter().collect());
        let Quotas { leases_max, waits_max, watches_max, rate_max } = Quotas::default();
        let token = Self { name, sha256, rights, prefixes, leases_max, waits_max, watches_max, rate_max };
        token.check().map_err(TokenError::new)?;
        Ok((secret, token))
    }

    /// The same with quotas.
    #[must_use]
    pub fn with_quotas(self, quotas: Quotas) -> Self {
        let Quotas { leases_max, waits_max, watches_max, rate_max } = quotas;
        Self { leases_max, waits_max, watches_max, rate_max, ..self }
    }

    /// How much it may use.
    pub fn quotas(&self) -> Quotas {
        let Self { leases_max, waits_max, watches_max, rate_max, .. } = *self;
        Quotas { leases_max, waits_max, watches_max, rate_max }
    }

    /// Its lines of the file.
    pub fn to_toml(&self) -> String {
        // What JSON writes TOML takes as a basic string, but for one character.
        let quoted = |text: &String| serde_json::to_string(text).unwrap_or_default().replace('\u{7f}', "\\u007f");
        let rights: Vec<String> = self.rights.iter().map(|right| format!("\"{right}\"")).collect();
        let prefixes: Vec<String> = self.prefixes.iter().map(quoted).collect();
        let quotas = [
            ("leases_max", self.leases_max),
            ("waits_max", self.waits_max),
            ("watches_max", self.watches_max),
            ("rate_max", self.rate_max),
        ];
        let quotas = quotas.into_iter().filter_map(|(name, max)| Some(format!("{name} = {}\n", max?)));
        format!(
            "[[token]]\nname = {}\nsha256 = \"{}\"\nrights = [{}]\nprefixes = [{}]\n{}",
            quoted(&self.name),
            self.sha256,
            rights.join(", "),
            prefixes.join(", "),
            quotas.collect::<String>()
        )
    }

    /// True if another one is the same with perhaps other rights and quotas.
    fn has_secret_of(&self, other: &Self) -> bool {
        self.name == other.name && self.sha256 == other.sha256
    }

    /// True if it allows this for this lock. To administer concerns no lock.
    pub fn may(&self, right: Right, lock: &str) -> bool {
        let is_meant = right == Right::Administer || self.prefixes.iter().any(|prefix| lock.starts_with(prefix));
        is_meant && self.rights.contains(&right)
    }

    /// True if it allows this for some locks.
    pub fn may_some(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }

    fn check(&self) -> Result<(), String> {
        let name = self.name.escape_debug();
        if self.name.is_empty()
            || self.name.len() > 64
            || self.name.contains(|c: char| c.is_control() || c.is_whitespace())
        {
            return Err(format!("a token's name has 1 to 64 bytes and no spaces, not '{name}'"));
        }
        if self.sha256.len() != 64
            || !self.sha256.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        {
            return Err(format!("the sha256 of token '{name}' is not 64 digits of lower-case hexadecimal"));
        }
        if self.rights.is_empty() {
            return Err(format!("token '{name}' has no rights"));
        }
        if self.prefixes.is_empty() {
            return Err(format!("token '{name}' has no prefixes; \"\" is that of all locks"));
        }
        Ok(())
    }
}

/// The tokens of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    #[serde(default, rename = "token", deserialize_with = "shared")]
    tokens: Vec<Arc<Token>>,
}

fn shared<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Arc<Token>>, D::Error> {
    Vec::<Token>::deserialize(from).map(|tokens| tokens.into_iter().map(Arc::new).collect())
}

impl Tokens {
    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let tokens: Self = toml::from_str(text).map_err(|error: toml::de::Error| TokenError::new(error.message()))?;
        if tokens.tokens.len() > TOKENS_MAX {
            return Err(TokenError::new(format!("there are more than {TOKENS_MAX} tokens")));
        }
        let mut names = BTreeSet::new();
        for token in &tokens.tokens {
            token.check().map_err(TokenError::new)?;
            if !names.insert(token.name.as_str()) {
                return Err(TokenError::new(format!("there are two tokens '{}'", token.name)));
            }
        }
        Ok(tokens)
    }

    /// The token with this secret. How long it takes tells nothing about the secrets of others.
    pub fn find(&self, secret: &str) -> Option<Arc<Token>> {
        self.position(secret).map(|at| Arc::clone(&self.tokens[at]))
    }

    fn position(&self, secret: &str) -> Option<usize> {
        let given = hex(digest(&SHA256, secret.as_bytes()).as_ref());
        let mut found = None;
        for (at, token) in self.tokens.iter().enumerate() {
            if bool::from(token.sha256.as_bytes().ct_eq(given.as_bytes())) {
                found = Some(at);
            }
        }
        found
    }

    /// True if this one is among them, with the same rights. Its quotas may be others.
    pub(crate) fn contains(&self, token: &Token) -> bool {
        let is_same = |one: &Token| one.rights == token.rights && one.prefixes == token.prefixes;
        self.tokens.iter().any(|one| one.has_secret_of(token) && is_same(one))
    }

    /// True if one has this name.
    pub fn has(&self, name: &str) -> bool {
        self.tokens.iter().any(|token| token.name == name)
    }
}

/// A file of tokens that may change.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    /// None if it could not be read: it is tried again each time.
    stamp: Option<os::FileStamp>,
    tokens: Arc<Tokens>,
    /// Those of the tokens that the file had when it could be read last, in its order.
    accounts: Arc<[Arc<Account>]>,
    /// Those of tokens that have left the file, and since when.
    leaving: Vec<(Arc<Account>, Instant)>,
    /// Leases may have lost their token, or its rights, since [`TokenFile::take_changed`].
    changed: bool,
    /// The last logged reason why the file cannot be read.
    trouble: Option<String>,
}

impl TokenFile {
    pub(crate) fn open(path: &Path) -> Result<Self, TokenError> {
        let (at, stamp) = (Instant::now(), stamp(path));
        let tokens = Arc::new(read(path)?);
        let accounts = tokens.tokens.iter().map(|token| Account::new(Arc::clone(token))).collect();
        let seen = Seen { at, stamp, tokens, accounts, leaving: Vec::new(), changed: false, trouble: None };
        Ok(Self { path: path.to_owned(), seen: Mutex::new(seen) })
    }

    /// The tokens as the file has them now. A file that cannot be read allows nothing: it was taken away on purpose.
    pub(crate) fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.look().tokens)
    }

    /// The token with this secret, and its account.
    pub(crate) fn find(&self, secret: &str) -> Option<(Arc<Token>, Arc<Account>)> {
        let (tokens, accounts) = {
            let seen = self.look();
            (Arc::clone(&seen.tokens), Arc::clone(&seen.accounts))
        };
        let at = tokens.position(secret)?;
        Some((Arc::clone(&tokens.tokens[at]), Arc::clone(&accounts[at])))
    }

    /// The accounts of all tokens, in the file's order.
    pub(crate) fn accounts(&self) -> Arc<[Arc<Account>]> {
        Arc::clone(&self.look().accounts)
    }

    /// True if leases may have lost their token, or its rights, since the last time.
    pub(crate) fn take_changed(&self) -> bool {
        std::mem::take(&mut self.look().changed)
    }

    /// Reads the file again if it has changed.
    fn look(&self) -> MutexGuard<'_, Seen> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.at.elapsed() < CHECK_INTERVAL {
            return seen;
        }
        seen.at = Instant::now();
        let now = stamp(&self.path);
        if now.is_none() || now != seen.stamp {
            match read(&self.path) {
                Ok(tokens) => {
                    seen.replace(Arc::new(tokens));
                    (seen.stamp, seen.trouble) = (now, None);
                    audit::token_file(&self.path, &Ok::<_, TokenError>(seen.tokens.tokens.len()));
                }
                Err(error) => {
                    let trouble = Some(error.to_string());
                    if trouble != seen.trouble {
                        audit::token_file(&self.path, &Err(error));
                    }
                    // Nothing tells which of them was taken back. Their leases end as they are not kept alive.
                    (seen.tokens, seen.stamp, seen.trouble) = (Arc::default(), None, trouble);
                }
            }
        }
        seen.close_accounts();
        seen
    }
}

impl Seen {
    /// Takes over what the file has now.
    fn replace(&mut self, tokens: Arc<Tokens>) {
        let leaving = std::mem::take(&mut self.leaving);
        let before = self.accounts.iter().map(|account| (Arc::clone(account), self.at));
        let mut old: BTreeMap<_, _> = before.chain(leaving).map(keyed).collect();
        let account_of = |token: &Arc<Token>| match old.remove(&(token.name.clone(), token.sha256.clone())) {
            Some((account, _)) => {
                account.set_token(Arc::clone(token));
                account
            }
            None => Account::new(Arc::clone(token)),
        };
        self.accounts = tokens.tokens.iter().map(account_of).collect();
        self.leaving = old.into_values().collect();
        (self.tokens, self.changed) = (tokens, true);
    }

    /// Takes tokens back for good that are still missing a moment after they were missed: an editor may have been writing the file.
    fn close_accounts(&mut self) {
        let now = self.at;
        if self.trouble.is_some() {
            return;
        }
        for (account, _) in self.leaving.extract_if(.., |(_, since)| now.duration_since(*since) >= CHECK_INTERVAL) {
            account.close();
            self.changed = true;
            audit::token_taken_back(&account.token().name);
        }
    }
}

/// An account with the name and the hash of its token.
fn keyed((account, since): (Arc<Account>, Instant)) -> ((String, String), (Arc<Account>, Instant)) {
    let token = account.token();
    ((token.name.clone(), token.sha256.clone()), (account, since))
}

fn stamp(path: &Path) -> Option<os::FileStamp> {
    std::fs::metadata(path).ok().map(|found| os::file_stamp(&found))
}

fn read(path: &Path) -> Result<Tokens, TokenError> {
    let fail = |why: String| TokenError::new(format!("cannot use the tokens in {}: {why}", path.display()));
    let missing = |error| fail(format!("{error}; 'hallpass token new' makes some"));
    let mut file = std::fs::File::open(path).map_err(missing)?;
    // Of the file that is read, which another one may replace meanwhile.
    let found = file.metadata().map_err(missing)?;
    if !os::is_owner_trusted(&found) {
        return Err(fail(
            "it belongs to another user, who could add tokens: give it to root or to the agent's user".to_owned(),
        ));
    }
    if os::others_may_write(&found) {
        return Err(fail("other users may write to it: keep them from it (mode 600 or 640)".to_owned()));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| fail(error.to_string()))?;
    Tokens::parse(&text).map_err(|error| fail(error.to_string()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_written_as_it_is_read() {
        let (secret, token) = Token::new("a\"b", [Right::Break, Right::Acquire], ["x/", "\u{7f}\"\\"]).unwrap();
        let (_, other) = Token::new("other", [Right::Inspect], []).unwrap();
        let quotas = Quotas { waits_max: NonZeroU32::new(3), watches_max: NonZeroU32::new(4), ..Quotas::default() };
        let other = other.with_quotas(quotas);
        let tokens = Tokens::parse(&format!("{}\n{}", token.to_toml(), other.to_toml())).unwrap();
        assert_eq!(*tokens.find(&secret).unwrap(), token);
        assert!(token.may(Right::Break, "x/1") && !token.may(Right::Break, "y") && !token.may(Right::Inspect, "x/1"));
        assert!(other.may(Right::Inspect, "anything") && !other.may(Right::Administer, ""));
        assert_eq!(tokens.tokens[1].quotas(), quotas);
        assert!(tokens.has("other") && !tokens.has("x"));
        assert!(!token.to_toml().contains(&secret[PREFIX.len()..]), "the secret is not stored");
        for guess in ["", "x", PREFIX, &secret[..secret.len() - 1], &token.sha256] {
            assert!(tokens.find(guess).is_none());
        }
    }

    #[test]
    fn a_wrong_file_is_refused_in_one_line() {
        let hash = "0".repeat(64);
        for text in [
            "[[token]]\nname = 'a'".to_owned(),
            format!("[[token]]\nname = ''\nsha256 = '{hash}'\nrights = ['acquire']\nprefixes = ['']"),
            format!("[[token]]\nname = 'a b'\nsha256 = '{hash}'\nrights = ['acquire']\nprefixes = ['']"),
            "[[token]]\nname = 'a'\nsha256 = 'abc'\nrights = ['acquire']\nprefixes = ['']".to_owned(),
            format!("[[token]]\nname = 'a'\nsha256 = '{hash}'\nrights = ['fly']\nprefixes = ['']"),
            format!("[[token]]\nname = 'a'\nsha256 = '{hash}'\nrights = []\nprefixes = ['']"),
            format!("[[token]]\nname = 'a'\nsha256 = '{hash}'\nrights = ['break']\nprefixes = []"),
            format!("[[token]]\nname = 'a'\nsha256 = '{hash}'\nrights = ['break']\nprefixes = ['']\nx = 1"),
            format!("[[token]]\nname = 'a'\nsha256 = '{hash}'\nrights = ['break']\nprefixes = ['']\n").repeat(2),
        ] {
            let error = Tokens::parse(&text).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert_eq!(Tokens::parse("").unwrap(), Tokens::default());
        assert!(Right::parse("fly").unwrap_err().contains("acquire, inspect"));
    }
}
