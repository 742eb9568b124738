//! Redis as its documentation recommends: `SET NX` with a token, released by a script that checks the token.

use std::time::Duration;

use combine::parser::combinator::AnySendSyncPartialState;
use combine::stream::Decoder;
use combine::stream::PointerOffset;
use hallpass_bench::{BenchError, Caller, System, lock_name};
use redis::{Cmd, FromRedisValue, cmd, from_redis_value, parse_redis_value_async};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const POLL: Duration = Duration::from_millis(1);
/// A lock expires after so long even if its holder is gone: longer than any measurement.
const EXPIRY_MS: u32 = 60_000;
/// A message may have gone to another waiter, which did not need it.
const MESSAGE_WAIT_MAX: Duration = Duration::from_millis(100);

pub(crate) const RELEASE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const RELEASE_AND_PUBLISH: &str = "if redis.call('get',KEYS[1])==ARGV[1] then redis.call('del',KEYS[1]) \
    redis.call('publish',KEYS[1],'free') return 1 else return 0 end";

pub(crate) struct Redis {
    address: String,
    subscribes: bool,
}

impl Redis {
    /// Waiters try again after a pause.
    pub(crate) fn polling(address: &str) -> Self {
        Self { address: address.to_owned(), subscribes: false }
    }

    /// Waiters try again when a holder publishes that it has released the lock.
    pub(crate) fn subscribing(address: &str) -> Self {
        Self { address: address.to_owned(), subscribes: true }
    }
}

impl System for Redis {
    type Caller = RedisCaller;

    async fn caller(&self, id: u32) -> Result<RedisCaller, BenchError> {
        let mut commands = Connection::open(&self.address).await?;
        let (script, messages) = if self.subscribes {
            (RELEASE_AND_PUBLISH, Some(Connection::open(&self.address).await?))
        } else {
            (RELEASE, None)
        };
        let script = commands.load(script).await?;
        Ok(RedisCaller { commands, messages, script, id, attempts: 0, is_subscribed: false, holds: 0 })
    }
}

pub(crate) struct RedisCaller {
    commands: Connection,
    /// Redis sends nothing but messages over a connection that has subscribed.
    messages: Option<Connection>,
    script: String,
    id: u32,
    attempts: u64,
    /// To the lock that it waits for.
    is_subscribed: bool,
    holds: u32,
}

impl RedisCaller {
    /// Returns when it is worth trying again.
    async fn wait(&mut self, lock: u32) -> Result<(), BenchError> {
        let Some(messages) = &mut self.messages else {
            sleep(POLL).await;
            return Ok(());
        };
        if self.is_subscribed {
            return timeout(MESSAGE_WAIT_MAX, messages.message_about(lock)).await.unwrap_or(Ok(()));
        }
        messages.send(cmd("SUBSCRIBE").arg(lock_name(lock))).await?;
        while messages.receive::<Push>().await?.0 != "subscribe" {}
        self.is_subscribed = true;
        // The lock may have been released before the subscription began: try once more before waiting.
        Ok(())
    }
}

impl Caller for RedisCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        self.attempts += 1;
        let set = set(lock, &token(self.id, self.attempts));
        while !self.commands.ask(&set).await? {
            self.wait(lock).await?;
        }
        if let Some(messages) = &mut self.messages
            && std::mem::take(&mut self.is_subscribed)
        {
            // A holder is not to be woken. The confirmation is read before the next wait.
            messages.send(cmd("UNSUBSCRIBE").arg(lock_name(lock))).await?;
        }
        self.holds = lock;
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        let release = release(&self.script, self.holds, &token(self.id, self.attempts));
        if self.commands.ask(&release).await? { Ok(()) } else { Err(BenchError::new("Redis lost a lock")) }
    }
}

/// Different for every attempt of every caller in every process.
pub(crate) fn token(caller: u32, attempts: u64) -> String {
    format!("{}-{caller}-{attempts}", std::process::id())
}

/// Answered with true if the lock was free.
pub(crate) fn set(lock: u32, token: &str) -> Cmd {
    cmd("SET").arg(lock_name(lock)).arg(token).arg("NX").arg("PX").arg(EXPIRY_MS).take()
}

/// Answered with true if the lock was held with this token.
pub(crate) fn release(script: &str, lock: u32, token: &str) -> Cmd {
    cmd("EVALSHA").arg(script).arg(1).arg(lock_name(lock)).arg(token).take()
}

/// What arrives over a connection that has subscribed: a kind, a channel, and a message or a count.
type Push = (String, String, redis::Value);

/// A connection without the task that the client spawns for one: with it every command would cost two more wake-ups.
pub(crate) struct Connection {
    stream: TcpStream,
    decoder: Decoder<AnySendSyncPartialState, PointerOffset<[u8]>>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self, BenchError> {
        let stream = TcpStream::connect(address).await.map_err(BenchError::new)?;
        stream.set_nodelay(true).map_err(BenchError::new)?;
        Ok(Self { stream, decoder: Decoder::new() })
    }

    /// Returns the name under which the script is called.
    pub(crate) async fn load(&mut self, script: &str) -> Result<String, BenchError> {
        self.ask(cmd("SCRIPT").arg("LOAD").arg(script)).await
    }

    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, BenchError> {
        self.send(command).await?;
        self.receive().await
    }

    pub(crate) async fn send(&mut self, command: &Cmd) -> Result<(), BenchError> {
        self.stream.write_all(&command.get_packed_command()).await.map_err(BenchError::new)
    }

    pub(crate) async fn receive<T: FromRedisValue>(&mut self) -> Result<T, BenchError> {
        let value = parse_redis_value_async(&mut self.decoder, &mut self.stream).await.map_err(BenchError::new)?;
        from_redis_value(value).map_err(BenchError::new)
    }

    async fn message_about(&mut self, lock: u32) -> Result<(), BenchError> {
        let wanted = lock_name(lock);
        loop {
            let (kind, channel, _) = self.receive::<Push>().await?;
            if kind == "message" && channel == wanted {
                return Ok(());
            }
        }
    }
}
