//! A client of the API, as small as it can be: one request, one connection.

use hallpass_testkit::LIMIT;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::http::agent::TestAgent;
use crate::waiting::within;

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The document, which must be one of JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// The one line of an error with this status.
    #[track_caller]
    pub(crate) fn error(self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let text = self.json()["error"].as_str().unwrap_or_else(|| panic!("no error: {self:?}")).to_owned();
        assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
        text
    }

    pub(crate) fn text(self) -> String {
        String::from_utf8(self.body).expect("text")
    }
}

/// A request, made up step by step.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: String,
    target: String,
    host: Option<String>,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

pub(crate) fn get(target: &str) -> Ask {
    Ask::new("GET", target)
}

pub(crate) fn post(target: &str) -> Ask {
    Ask::new("POST", target)
}

pub(crate) fn delete(target: &str) -> Ask {
    Ask::new("DELETE", target)
}

impl Ask {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self { method: method.to_owned(), target: target.to_owned(), host: None, headers: Vec::new(), body: None }
    }

    pub(crate) fn host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body(body.to_string().as_bytes())
    }

    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.body = Some(body.to_vec());
        self
    }

    pub(crate) fn bytes(&self, host: &str) -> Vec<u8> {
        let host = self.host.as_deref().unwrap_or(host);
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {host}\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let body = self.body.as_deref().unwrap_or_default();
        if self.body.is_some() {
            head += &format!("content-length: {}\r\n", body.len());
        }
        [head.as_bytes(), b"\r\n", body].concat()
    }

    /// Sends it over TCP, and reads the whole answer.
    pub(crate) async fn to(&self, agent: &TestAgent) -> Answer {
        let stream = within(TcpStream::connect(agent.address())).await.expect("it connects");
        self.over(stream, &agent.address().to_string()).await
    }

    /// Sends it over the Unix socket.
    pub(crate) async fn to_socket(&self, agent: &TestAgent) -> Answer {
        let stream = within(UnixStream::connect(agent.api_socket())).await.expect("it connects");
        self.over(stream, "localhost").await
    }

    pub(crate) async fn over(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str) -> Answer {
        let request = self.clone().header("connection", "close").bytes(host);
        // Who is refused may be so before all is written.
        let _ = stream.write_all(&request).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("it is answered");
        if answer.is_empty() {
            panic!("no answer: {read:?}");
        }
        parse(&answer)
    }

    /// Sends it, and leaves the connection open.
    pub(crate) async fn begin(&self, agent: &TestAgent) -> TcpStream {
        let mut stream = within(TcpStream::connect(agent.address())).await.expect("it connects");
        within(stream.write_all(&self.bytes(&agent.address().to_string()))).await.expect("it is sent");
        stream
    }
}

fn parse(answer: &[u8]) -> Answer {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
    let head = String::from_utf8(answer[..end].to_vec()).expect("a head is text").to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = &answer[end..];
    let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_vec() };
    Answer { status, head, body }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let length = std::str::from_utf8(&body[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(length) = length.filter(|length| *length > 0) else { break };
        whole.extend_from_slice(&body[end + 2..end + 2 + length]);
        body = &body[end + 4 + length..];
    }
    whole
}

/// Reads what has arrived until it contains this text.
pub(crate) async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = tokio::time::timeout(LIMIT, stream.read(&mut buffer)).await;
        let length =
            read.unwrap_or_else(|_| panic!("never {wanted:?}: {}", String::from_utf8_lossy(&all))).expect("it is open");
        assert!(length > 0, "closed before {wanted:?}: {}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&buffer[..length]);
        if String::from_utf8_lossy(&all).contains(wanted) {
            return String::from_utf8_lossy(&all).into_owned();
        }
    }
}
