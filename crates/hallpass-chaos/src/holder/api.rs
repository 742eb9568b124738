//! Just enough HTTP for an agent's API at its Unix socket. It uses no code of the agent, as a program in another language would not.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::Gone;

/// A connection with one request at a time.
pub(super) struct Api {
    stream: UnixStream,
    /// The bytes of the answer so far.
    read: Vec<u8>,
}

/// A status and a body.
pub(super) type Answer = (u16, Value);

impl Api {
    pub(super) fn open(socket: &Path) -> Result<Self, Gone> {
        let stream = UnixStream::connect(socket).map_err(|_| Gone::Agent)?;
        Ok(Self { stream, read: Vec::new() })
    }

    pub(super) fn send(&mut self, method: &str, path: &str, body: &Value) -> Result<(), Gone> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).map_err(|_| Gone::Agent)
    }

    /// Waits for the answer. None if it does not come in time.
    pub(super) fn poll(&mut self, limit: Option<Duration>) -> Result<Option<Answer>, Gone> {
        let limit = limit.map(|limit| limit.max(Duration::from_micros(1)));
        self.stream.set_read_timeout(limit).map_err(Gone::Harness)?;
        loop {
            if let Some((length, answer)) = parse(&self.read)? {
                self.read.drain(..length);
                return Ok(Some(answer));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Gone::Agent),
                Ok(count) => self.read.extend_from_slice(&bytes[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Gone::Agent),
            }
        }
    }

    /// Sends a request and waits for its answer, without a limit.
    pub(super) fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Answer, Gone> {
        self.send(method, path, body)?;
        self.poll(None)?.ok_or(Gone::Agent)
    }
}

/// The answer at the front of these bytes, with its length. None if more has to be read.
fn parse(bytes: &[u8]) -> Result<Option<(usize, Answer)>, Gone> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or(Gone::Agent)?;
    let mut length = 0;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match name {
            "content-length" => length = value.trim().parse().map_err(|_| Gone::Agent)?,
            "transfer-encoding" => return Err(Gone::Agent),
            _ => {}
        }
    }
    let (start, end) = (end + 4, end + 4 + length);
    let Some(body) = bytes.get(start..end) else { return Ok(None) };
    Ok(Some((end, (status, serde_json::from_slice(body).unwrap_or(Value::Null)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_when_it_is_whole() {
        let whole =
            b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}HTTP";
        let length = whole.len() - b"HTTP".len();
        for part in 0..length {
            assert!(matches!(parse(&whole[..part]), Ok(None)), "{part} bytes");
        }
        let Ok(Some((taken, (status, body)))) = parse(whole) else { panic!("it is whole") };
        assert_eq!((taken, status, body), (length, 404, serde_json::json!({"a": 1})));
    }

    #[test]
    fn an_answer_without_a_body_is_whole_at_once() {
        let Ok(Some((_, (status, body)))) = parse(b"HTTP/1.1 204 No Content\r\n\r\n") else { panic!("it is whole") };
        assert_eq!((status, body), (204, Value::Null));
    }

    #[test]
    fn what_is_not_an_answer_ends_the_connection() {
        assert!(parse(b"nonsense\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}
