//! PostgreSQL's advisory locks, over its simple query protocol.

use std::path::Path;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};

use crate::{BenchError, Caller, System};

/// Where the server is: `127.0.0.1:5432`, or the path of its socket.
pub(crate) struct Postgres {
    pub(crate) address: String,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl System for Postgres {
    type Caller = PostgresCaller;

    async fn caller(&self, _id: u32) -> Result<PostgresCaller, BenchError> {
        let stream: Box<dyn Stream> = if Path::new(&self.address).is_absolute() {
            Box::new(UnixStream::connect(&self.address).await.map_err(BenchError::new)?)
        } else {
            let stream = TcpStream::connect(&self.address).await.map_err(BenchError::new)?;
            stream.set_nodelay(true).map_err(BenchError::new)?;
            Box::new(stream)
        };
        let mut caller = PostgresCaller { stream: BufReader::new(stream), holds: 0 };
        let mut start = 196_608_u32.to_be_bytes().to_vec();
        start.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
        let length = (start.len() as u32 + 4).to_be_bytes();
        caller.send(&[&length, start.as_slice()].concat()).await?;
        caller.until_ready().await?;
        Ok(caller)
    }
}

pub(crate) struct PostgresCaller {
    stream: BufReader<Box<dyn Stream>>,
    holds: u32,
}

impl PostgresCaller {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        self.stream.get_mut().write_all(bytes).await.map_err(BenchError::new)
    }

    async fn ask(&mut self, function: &str, lock: u32) -> Result<(), BenchError> {
        let query = format!("SELECT {function}({lock})\0");
        let mut message = vec![b'Q'];
        message.extend_from_slice(&(query.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(query.as_bytes());
        self.send(&message).await?;
        self.until_ready().await
    }

    /// Reads until the server waits for the next query.
    async fn until_ready(&mut self) -> Result<(), BenchError> {
        let mut failed = None;
        let mut body = Vec::new();
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).await.map_err(BenchError::new)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]).saturating_sub(4);
            body.resize(length as usize, 0);
            self.stream.read_exact(&mut body).await.map_err(BenchError::new)?;
            match head[0] {
                b'E' => failed = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                b'R' if body != [0; 4] => failed = Some("it wants a password".to_owned()),
                b'Z' => {
                    return failed.map_or(Ok(()), |why| Err(BenchError::new(format!("PostgreSQL said: {why}"))));
                }
                _ => {}
            }
            if let (b'E', Some(why)) = (head[0], &failed)
                && why.starts_with("SFATAL")
            {
                return Err(BenchError::new(format!("PostgreSQL said: {why}")));
            }
        }
    }
}

impl Caller for PostgresCaller {
    async fn acquire(&mut self, lock: u32) -> Result<(), BenchError> {
        self.ask("pg_advisory_lock", lock).await?;
        self.holds = lock;
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        self.ask("pg_advisory_unlock", self.holds).await
    }
}
