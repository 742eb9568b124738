//! ZooKeeper's lock recipe: an ephemeral node in sequence, and a watch on the one before it.

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::{BenchError, Caller, System};

pub(crate) struct ZooKeeper {
    pub(crate) addresses: Vec<String>,
}

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const CHILDREN: i32 = 8;
/// What the server answers where there is no such node, and where there is one already.
const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;
/// A watched node has changed.
const EVENT: i32 = -1;
/// Longer than any run: nobody has to keep the session alive.
const SESSION_MS: i32 = 3_600_000;
/// No answer is longer.
const ANSWER_MAX: usize = 1 << 20;

impl System for ZooKeeper {
    type Caller = ZooKeeperCaller;

    async fn caller(&self, id: u32) -> Result<ZooKeeperCaller, BenchError> {
        let address = &self.addresses[id as usize % self.addresses.len()];
        let stream = TcpStream::connect(address).await.map_err(BenchError::new)?;
        stream.set_nodelay(true).map_err(BenchError::new)?;
        let mut caller = ZooKeeperCaller { stream: BufReader::new(stream), xid: 0, told: false, holds: None };
        let mut hello = Vec::new();
        hello.extend_from_slice(&0_i32.to_be_bytes());
        hello.extend_from_slice(&0_i64.to_be_bytes());
        hello.extend_from_slice(&SESSION_MS.to_be_bytes());
        hello.extend_from_slice(&0_i64.to_be_bytes());
        put_bytes(&mut hello, &[0; 16]);
        hello.push(0);
        caller.send(&hello).await?;
        caller.frame().await?;
        Ok(caller)
    }
}

pub(crate) struct ZooKeeperCaller {
    stream: BufReader<TcpStream>,
    xid: i32,
    /// A watch has fired.
    told: bool,
    holds: Option<String>,
}

impl ZooKeeperCaller {
    async fn send(&mut self, body: &[u8]) -> Result<(), BenchError> {
        let length = (body.len() as i32).to_be_bytes();
        self.stream.get_mut().write_all(&[&length, body].concat()).await.map_err(BenchError::new)
    }

    async fn frame(&mut self) -> Result<Vec<u8>, BenchError> {
        let length = self.stream.read_i32().await.map_err(BenchError::new)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= ANSWER_MAX);
        let mut frame = vec![0; length.ok_or_else(|| BenchError::new("ZooKeeper answers with nonsense"))?];
        self.stream.read_exact(&mut frame).await.map_err(BenchError::new)?;
        Ok(frame)
    }

    /// Asks, and gives the error and the answer; events that come in between are noted.
    async fn ask(&mut self, operation: i32, body: &[u8]) -> Result<(i32, Vec<u8>), BenchError> {
        self.xid += 1;
        let request = [&self.xid.to_be_bytes(), &operation.to_be_bytes(), body].concat();
        self.send(&request).await?;
        loop {
            let mut frame = self.frame().await?;
            let short = || BenchError::new("ZooKeeper's answer is cut off");
            let xid = frame.get(..4).map(number).ok_or_else(short)?;
            let error = frame.get(12..16).map(number).ok_or_else(short)?;
            if xid == EVENT {
                self.told = true;
            } else {
                frame.drain(..16);
                return Ok((error, frame));
            }
        }
    }

    async fn create(&mut self, path: &str, flags: i32) -> Result<(i32, Vec<u8>), BenchError> {
        let mut body = Vec::new();
        put_bytes(&mut body, path.as_bytes());
        put_bytes(&mut body, &[]);
        // Everybody may do everything.
        body.extend_from_slice(&1_i32.to_be_bytes());
        body.extend_from_slice(&31_i32.to_be_bytes());
        put_bytes(&mut body, b"world");
        put_bytes(&mut body, b"anyone");
        body.extend_from_slice(&flags.to_be_bytes());
        self.ask(CREATE, &body).await
    }

    /// The name right before this one, if there is one.
    async fn before(&mut self, parent: &str, own: &str) -> Result<Option<String>, BenchError> {
        let mut body = Vec::new();
        put_bytes(&mut body, parent.as_bytes());
        body.push(0);
        let (error, answer) = self.ask(CHILDREN, &body).await?;
        check(error)?;
        let mut names = Vec::new();
        let mut rest = answer.get(4..).unwrap_or_default();
        while let Some((name, more)) = take_text(rest) {
            names.push(name);
            rest = more;
        }
        Ok(names.into_iter().filter(|name| name.as_str() < own).max())
    }
}

impl Caller for ZooKeeperCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        let parent = format!("/bench-{lock}");
        let mut created = self.create(&format!("{parent}/l-"), 3).await?;
        if created.0 == NO_NODE {
            let (error, _) = self.create(&parent, 0).await?;
            if error != NODE_EXISTS {
                check(error)?;
            }
            created = self.create(&format!("{parent}/l-"), 3).await?;
        }
        check(created.0)?;
        let (path, _) = take_text(&created.1).ok_or_else(|| BenchError::new("ZooKeeper's answer is cut off"))?;
        let own = path[parent.len() + 1..].to_owned();
        self.holds = Some(path);
        while let Some(before) = self.before(&parent, &own).await? {
            self.told = false;
            let mut body = Vec::new();
            put_bytes(&mut body, format!("{parent}/{before}").as_bytes());
            body.push(1);
            let (error, _) = self.ask(EXISTS, &body).await?;
            if error == NO_NODE {
                continue;
            }
            check(error)?;
            while !self.told {
                let frame = self.frame().await?;
                self.told = frame.get(..4).map(number) == Some(EVENT);
            }
        }
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        let Some(path) = self.holds.take() else { return Ok(()) };
        let mut body = Vec::new();
        put_bytes(&mut body, path.as_bytes());
        body.extend_from_slice(&(-1_i32).to_be_bytes());
        check(self.ask(DELETE, &body).await?.0)
    }
}

fn check(error: i32) -> Result<(), BenchError> {
    if error == 0 { Ok(()) } else { Err(BenchError::new(format!("ZooKeeper refuses: error {error}"))) }
}

fn number(bytes: &[u8]) -> i32 {
    bytes.iter().fold(0, |number, byte| number << 8 | i32::from(*byte))
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn take_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let length = usize::try_from(number(bytes.get(..4)?)).ok()?;
    let text = bytes.get(4..4 + length)?;
    Some((String::from_utf8_lossy(text).into_owned(), &bytes[4 + length..]))
}
