use std::io::ErrorKind;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::line_protocol::{Request, RequestError, Response};
use crate::os::{self, Connection, ReadHalf, WriteHalf};

/// The lines between the agent and one client.
pub(crate) struct Lines {
    reading: BufReader<ReadHalf>,
    writing: WriteHalf,
    /// The part of the current line that has been read. It is kept when [`receive`](Self::receive) is cancelled.
    line: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(connection: Connection) -> Self {
        let (reading, writing) = connection.into_split();
        Self { reading: BufReader::new(reading), writing, line: Vec::new() }
    }

    /// Reads the next request; none when the client has closed its connection. Can be cancelled without losing anything.
    pub(crate) async fn receive(&mut self) -> std::io::Result<Option<Result<Request, RequestError>>> {
        if self.line.last() == Some(&b'\n') {
            self.line.clear();
        }
        let room = (Request::BYTES_MAX + 1 - self.line.len()) as u64;
        (&mut self.reading).take(room).read_until(b'\n', &mut self.line).await?;
        if self.line.last() != Some(&b'\n') {
            let too_long = self.line.len() > Request::BYTES_MAX;
            return if too_long { Err(ErrorKind::InvalidData.into()) } else { Ok(None) };
        }
        Ok(Some(Request::parse(&self.line)))
    }

    pub(crate) async fn send(&mut self, response: &Response) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(&response.clone().with_deadlines(os::to_boot_time))?;
        line.push(b'\n');
        self.writing.write_all(&line).await
    }
}
