//! Clients without a token, from two addresses of the loopback. Only Linux has them all.

use std::future::poll_fn;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::http::agent::TestAgent;
use crate::http::client::read_until;
use crate::http::rights::{token, write};
use crate::waiting::{until, within};

/// More bodies than strangers may have incomplete at a time.
const BODIES: usize = 64;

async fn connect(agent: &TestAgent, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
    within(socket.connect(agent.address())).await.unwrap()
}

/// What is answered to a body that does not come: 100, to send it, or why it is not wanted.
async fn status_of_a_slow_body(agent: &TestAgent, last: u8) -> (String, TcpStream) {
    let mut stream = connect(agent, last).await;
    let head = format!(
        "POST /v3/auth/authenticate HTTP/1.1\r\nhost: {}\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n",
        agent.address()
    );
    within(stream.write_all(head.as_bytes())).await.unwrap();
    let mut line = [0; 12];
    within(stream.read_exact(&mut line)).await.unwrap();
    (String::from_utf8_lossy(&line[9..]).into_owned(), stream)
}

/// A name and a password is all that a stranger may send, and it may send it slowly.
#[tokio::test(flavor = "multi_thread")]
async fn the_slow_bodies_of_one_address_leave_room_for_those_of_another() {
    let (_, text) = token("t", &[hallpass_agent::tokens::Right::Inspect], &[]);
    let agent =
        TestAgent::start_with(|directory, options| options.api.tokens = Some(write(directory, "tokens", &text))).await;
    let (mut client, connection) = within(h2::client::handshake(connect(&agent, 1).await)).await.unwrap();
    let driving = tokio::spawn(async move { drop(connection.await) });
    let mut bodies = Vec::new();
    for _ in 0..BODIES {
        within(poll_fn(|cx| client.poll_ready(cx))).await.unwrap();
        let target = format!("http://{}/v3/auth/authenticate", agent.address());
        let (answer, mut body) = client.send_request(http::Request::post(target).body(()).unwrap(), false).unwrap();
        body.send_data("{".into(), false).unwrap();
        bodies.push((answer, body));
    }
    until("it has no more room", async || status_of_a_slow_body(&agent, 1).await.0 == "429").await;
    let (status, mut stream) = status_of_a_slow_body(&agent, 2).await;
    assert_eq!(status, "100");
    within(stream.write_all(b"{}")).await.unwrap();
    read_until(&mut stream, "invalid user ID or password").await;
    drop((bodies, client));
    within(driving).await.unwrap();
    agent.end().await;
}
