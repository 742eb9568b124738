//! Redis as its documentation tells it: `SET NX` with a token, released by a script that checks the token.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{LOCKS_MAX, lock_name};
use crate::{BenchError, Caller, System};

const POLL: Duration = Duration::from_millis(1);
/// A lock is gone after so long even if its holder is: long enough for any cell.
pub(crate) const EXPIRY_MS: &str = "60000";
/// A wake-up may have gone to somebody who did not need it.
const WAKE_UP_MAX: Duration = Duration::from_millis(100);

pub(crate) const RELEASE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const RELEASE_AND_TELL: &str = "if redis.call('get',KEYS[1])==ARGV[1] then redis.call('del',KEYS[1]) \
    redis.call('publish',KEYS[1],'free') return 1 else return 0 end";

/// How a waiting caller learns that it may try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Poll,
    WakeUp,
}

pub(crate) struct Redis {
    pub(crate) address: String,
    pub(crate) patience: Patience,
}

impl System for Redis {
    type Caller = RedisCaller;

    async fn caller(&self, id: u32) -> Result<RedisCaller, BenchError> {
        let mut commands = Resp::connect(&self.address).await?;
        let (script, wake_ups) = match self.patience {
            Patience::Poll => (RELEASE, None),
            Patience::WakeUp => (RELEASE_AND_TELL, Some(Resp::connect(&self.address).await?)),
        };
        let script = commands.ask(&["SCRIPT", "LOAD", script]).await?.text()?;
        let names = (0..LOCKS_MAX).map(lock_name).collect();
        let subscribed = vec![false; LOCKS_MAX as usize];
        Ok(RedisCaller { commands, wake_ups, subscribed, script, names, id, grants: 0, holds: 0 })
    }
}

pub(crate) struct RedisCaller {
    commands: Resp,
    wake_ups: Option<Resp>,
    subscribed: Vec<bool>,
    script: String,
    names: Vec<String>,
    id: u32,
    grants: u64,
    holds: u32,
}

impl RedisCaller {
    fn token(&self) -> String {
        format!("{}-{}-{}", std::process::id(), self.id, self.grants)
    }

    async fn try_acquire(&mut self, lock: u32) -> Result<bool, BenchError> {
        let token = self.token();
        let name = &self.names[lock as usize];
        let answer = self.commands.ask(&["SET", name, &token, "NX", "PX", EXPIRY_MS]).await?;
        Ok(answer != Value::Nothing)
    }

    /// Waits until it is worth to try again.
    async fn wait(&mut self, lock: u32) -> Result<(), BenchError> {
        let Some(wake_ups) = &mut self.wake_ups else {
            sleep(POLL).await;
            return Ok(());
        };
        let name = &self.names[lock as usize];
        if !std::mem::replace(&mut self.subscribed[lock as usize], true) {
            // It may have become free before this: try once more.
            wake_ups.send(&["SUBSCRIBE", name]).await?;
            while wake_ups.receive().await?.list_head() != "subscribe" {}
            return Ok(());
        }
        loop {
            match timeout(WAKE_UP_MAX, wake_ups.receive()).await {
                Ok(told) if !told.as_ref().is_ok_and(|told| told.is_about(name)) => {
                    told?;
                }
                Ok(told) => return told.map(|_| ()),
                Err(_) => return Ok(()),
            }
        }
    }
}

impl Caller for RedisCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        self.grants += 1;
        while !self.try_acquire(lock).await? {
            self.wait(lock).await?;
        }
        // Who does not wait any more is not to be woken; the answer is read before the next wait.
        if let Some(wake_ups) = &mut self.wake_ups
            && std::mem::take(&mut self.subscribed[lock as usize])
        {
            wake_ups.send(&["UNSUBSCRIBE", &self.names[lock as usize]]).await?;
        }
        self.holds = lock;
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        let token = self.token();
        let name = &self.names[self.holds as usize];
        let answer = self.commands.ask(&["EVALSHA", &self.script, "1", name, &token]).await?;
        if answer == Value::Number(1) { Ok(()) } else { Err(BenchError::new("Redis lost a lock")) }
    }
}

/// What Redis answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nothing,
    Number(i64),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    pub(crate) fn text(self) -> Result<String, BenchError> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(BenchError::new(format!("Redis answered {other:?} in place of a text"))),
        }
    }

    fn list_head(&self) -> &str {
        match self {
            Self::List(list) => match list.first() {
                Some(Self::Text(text)) => text,
                _ => "",
            },
            _ => "",
        }
    }

    fn is_about(&self, channel: &str) -> bool {
        matches!(self, Self::List(list) if list.get(1) == Some(&Self::Text(channel.to_owned())))
    }
}

/// A connection that speaks Redis's protocol.
pub(crate) struct Resp {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

impl Resp {
    pub(crate) async fn connect(address: &str) -> Result<Self, BenchError> {
        let stream = TcpStream::connect(address).await.map_err(BenchError::new)?;
        stream.set_nodelay(true).map_err(BenchError::new)?;
        Ok(Self { stream: BufReader::new(stream), out: Vec::new() })
    }

    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<Value, BenchError> {
        self.send(words).await?;
        self.receive().await
    }

    pub(crate) async fn send(&mut self, words: &[&str]) -> Result<(), BenchError> {
        self.out.clear();
        self.out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        self.stream.get_mut().write_all(&self.out).await.map_err(BenchError::new)
    }

    pub(crate) async fn receive(&mut self) -> Result<Value, BenchError> {
        let mut left = 1;
        let mut items = Vec::new();
        let mut is_list = false;
        // Lists of lists are not among what is asked for.
        while left > 0 {
            left -= 1;
            match self.receive_one().await? {
                Part::Value(value) => items.push(value),
                Part::List(length) => (left, is_list) = (length, true),
            }
        }
        Ok(if is_list { Value::List(items) } else { items.pop().unwrap_or(Value::Nothing) })
    }

    async fn receive_one(&mut self) -> Result<Part, BenchError> {
        let mut line = String::new();
        let length = self.stream.read_line(&mut line).await.map_err(BenchError::new)?;
        if length == 0 {
            return Err(BenchError::new("Redis closed the connection"));
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at(line.len().min(1));
        let number = || rest.parse::<i64>().map_err(|_| BenchError::new(format!("Redis said '{line}'")));
        match kind {
            "+" => Ok(Part::Value(Value::Text(rest.to_owned()))),
            ":" => Ok(Part::Value(Value::Number(number()?))),
            "*" => Ok(Part::List(usize::try_from(number()?).unwrap_or(0))),
            "$" => match usize::try_from(number()?) {
                Err(_) => Ok(Part::Value(Value::Nothing)),
                Ok(length) => {
                    let mut text = vec![0; length + 2];
                    self.stream.read_exact(&mut text).await.map_err(BenchError::new)?;
                    text.truncate(length);
                    Ok(Part::Value(Value::Text(String::from_utf8_lossy(&text).into_owned())))
                }
            },
            _ => Err(BenchError::new(format!("Redis said '{line}'"))),
        }
    }
}

enum Part {
    Value(Value),
    List(usize),
}
