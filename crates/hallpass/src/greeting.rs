//! How a connection begins: both sides say who they are, and check each other.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hallpass_core::NodeId;
use hallpass_core::codec::DecodeError;
use hallpass_node::wire::{Hello, Plane};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connect::{connect, resolve};
use crate::connection::decrypt;
use crate::driver::{Driver, ReceiveError};
use crate::peer::Peer;
use crate::strangers::ConnectionPermit;
use crate::text::printable;
use crate::tls::{Handshake, PeerCertificate, Tls};
use crate::{connection, control, os};

/// No greeting may take longer than this.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// How long a peer may acknowledge nothing, where no session says how long that may be.
const SILENCE: Duration = Duration::from_secs(10);
/// No greeting, and no rejection of one, is longer.
pub(crate) const GREETING_BYTES: usize = 1024;
/// Begins a rejection, which takes the place of a greeting.
pub(crate) const REJECTION: &[u8; 4] = b"deny";

/// How the trouble with a peer begins that answers, and will not have this node.
pub(crate) const REJECTS: &str = "it rejects this node";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetError {
    #[error("{}", os::explain(.0))]
    Io(#[from] std::io::Error),
    #[error("{}", crate::tls::explain(.0))]
    Tls(#[from] rustls::Error),
    #[error("it has keys, and this node has none: give all members keys of the same 'hallpass init'")]
    NoKeysHere,
    #[error("{0} is on another machine, and there are no keys: make some with 'hallpass init'")]
    Exposed(SocketAddr),
    #[error("it sent no greeting within {GREETING_TIME:?}")]
    Silent,
    #[error("it closed the connection before its greeting")]
    Closed,
    #[error("it is not a hallpass node: {0}")]
    Decode(#[from] DecodeError),
    #[error("this node rejects it: {0}")]
    Reject(String),
    #[error("it is no member any more")]
    Stranger,
    #[error("it is this node itself")]
    Own,
    #[error("{REJECTS}: {0}")]
    RejectedByPeer(String),
}

impl From<ReceiveError> for GreetError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Io(error) if error.kind() == ErrorKind::UnexpectedEof => Self::Closed,
            ReceiveError::Io(error) => Self::Io(error),
            ReceiveError::Tls(error) => Self::Tls(error),
            ReceiveError::Rejected(why) => Self::RejectedByPeer(why),
            other @ (ReceiveError::Replaced | ReceiveError::Link(_) | ReceiveError::Control(_)) => {
                Self::Reject(other.to_string())
            }
        }
    }
}

/// A fresh socket with what was read from it but not yet understood.
pub(crate) struct Fresh {
    pub(crate) stream: TcpStream,
    pub(crate) tls: Option<Box<rustls::Connection>>,
    /// What the peer has shown, or why that is not a member's certificate.
    pub(crate) certificate: Option<Result<PeerCertificate, String>>,
    pub(crate) received: Vec<u8>,
}

/// Whom to dial.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A contact, by its id.
    Contact(NodeId),
    /// Any node that is found there.
    Seed,
    /// The same, at this one of the addresses of a name.
    SeedAt(SocketAddr),
}

/// Connects to a peer and serves the connection as long as it stands. An error means that it never stood. Returns who was there.
pub(crate) async fn dial(
    driver: &Arc<Driver>,
    peer: &Peer,
    plane: Plane,
    target: Target,
) -> Result<NodeId, GreetError> {
    let mut addresses = match target {
        Target::SeedAt(address) => vec![address],
        _ => resolve(&peer.address).await?,
    };
    if driver.tls.is_none()
        && let Some(first) = addresses.first().copied()
    {
        addresses.retain(|address| address.ip().is_loopback());
        if addresses.is_empty() {
            return Err(GreetError::Exposed(first));
        }
    }
    let stream = connect(addresses).await?;
    let expected = if let Target::Contact(id) = target { Some(id) } else { None };
    let call = async {
        let tls = driver.tls.as_deref().map(Tls::dial).transpose()?;
        let mut fresh = Fresh::begin(stream, tls).await?;
        fresh.send_hello(driver, plane, expected).await?;
        let hello = fresh.receive_hello().await?;
        if driver.is_self(&hello) {
            return Err(GreetError::Own);
        }
        let checked = fresh.check_answer(driver, peer, &hello, expected);
        if let Err(GreetError::Reject(why)) = &checked {
            fresh.reject(why).await;
            if fresh.prove(&hello, driver).is_ok() {
                driver.look_at_other_group(&hello);
            }
        }
        checked?;
        if expected.is_none() {
            driver.find_seed(&hello);
        }
        Ok::<_, GreetError>((fresh, hello))
    };
    let (fresh, hello) = timeout(GREETING_TIME, call).await.map_err(|_| GreetError::Silent)??;
    driver.limit_silence(&fresh.stream)?;
    match plane {
        Plane::Locks => connection::run(fresh, driver, peer, &hello).await?,
        Plane::Control => drop(control::run(fresh, driver, Some(peer), &hello, true).await?),
    }
    Ok(hello.from)
}

/// Answers an incoming connection and serves it as long as it stands. It has a place among the strangers until its peer is
/// known. An error means that it never stood; where it is about a known peer it has been reported.
pub(crate) async fn answer(
    driver: &Arc<Driver>,
    stream: TcpStream,
    permit: ConnectionPermit,
) -> Result<(), GreetError> {
    let listen = async {
        stream.readable().await?;
        permit.mark_spoken();
        let tls = driver.tls.as_deref().map(Tls::accept).transpose()?;
        let mut fresh = Fresh::begin(stream, tls).await?;
        let hello = fresh.receive_hello().await;
        if let Err(error @ GreetError::NoKeysHere) = &hello {
            // The peer cannot read it, but sees that it is not encrypted.
            fresh.reject(&error.to_string()).await;
        }
        let hello = hello?;
        if driver.is_self(&hello) {
            // It recognizes itself by the answer.
            fresh.send_hello(driver, Plane::Control, Some(driver.id)).await?;
            return Ok(None);
        }
        let peer = driver.peer(hello.from);
        match fresh.check_caller(driver, peer.as_deref(), &hello) {
            Ok(()) => {
                fresh.send_hello(driver, hello.plane, Some(hello.from)).await?;
                Ok(Some((fresh, hello, peer)))
            }
            Err(error) => {
                if let GreetError::Reject(why) = &error {
                    fresh.reject(why).await;
                }
                // With keys nobody without a certificate of the group's authority can say so; without, anybody on this machine can.
                if fresh.prove(&hello, driver).is_ok() {
                    driver.look_at_other_group(&hello);
                }
                let at_its_address = || driver.seeds().into_iter().find(|seed| seed.address == hello.address);
                let Some(peer) = peer.or_else(at_its_address) else { return Err(error) };
                peer.report_trouble(error.to_string());
                Ok(None)
            }
        }
    };
    let greeted = timeout(GREETING_TIME, listen).await.map_err(|_| GreetError::Silent)??;
    let Some((fresh, hello, peer)) = greeted.filter(|_| permit.leave()) else { return Ok(()) };
    driver.limit_silence(&fresh.stream)?;
    match (hello.plane, peer) {
        (Plane::Locks, Some(peer)) => connection::run(fresh, driver, &peer, &hello).await,
        (Plane::Locks, None) => Err(GreetError::Stranger),
        (Plane::Control, peer) => control::run(fresh, driver, peer.as_deref(), &hello, false).await.map(drop),
    }
}

impl Fresh {
    async fn begin(stream: TcpStream, handshake: Option<Handshake>) -> Result<Self, GreetError> {
        stream.set_nodelay(true)?;
        os::give_up_after(&stream, SILENCE)?;
        let keys = handshake.as_ref().map_or(0, |handshake| handshake.keys);
        let tls = handshake.map(|handshake| handshake.connection);
        let mut fresh = Self { stream, tls, certificate: None, received: Vec::new() };
        while fresh.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            fresh.send_encrypted().await?;
            if fresh.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                let done = fresh.read().await;
                // The alert that says what went wrong is sent before this side gives up.
                let _ = fresh.send_encrypted().await;
                done?;
            }
        }
        fresh.send_encrypted().await?;
        fresh.certificate = fresh.tls.as_ref().map(|tls| PeerCertificate::of(tls, keys));
        Ok(fresh)
    }

    async fn send_encrypted(&mut self) -> Result<(), GreetError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let mut encrypted = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut encrypted)?;
        }
        self.stream.write_all(&encrypted).await?;
        Ok(())
    }

    async fn read(&mut self) -> Result<(), GreetError> {
        let mut buffer = [0; 4096];
        let length = self.stream.read(&mut buffer).await?;
        if length == 0 {
            return Err(GreetError::Closed);
        }
        match &mut self.tls {
            None => self.received.extend_from_slice(&buffer[..length]),
            Some(tls) => decrypt(tls, &buffer[..length], &mut self.received)?,
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), GreetError> {
        match &mut self.tls {
            None => Ok(self.stream.write_all(bytes).await?),
            Some(tls) => {
                tls.writer().write_all(bytes)?;
                self.send_encrypted().await
            }
        }
    }

    async fn send_hello(&mut self, driver: &Driver, plane: Plane, to: Option<NodeId>) -> Result<(), GreetError> {
        let hello = driver.hello(plane, to).ok_or(GreetError::Stranger)?;
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        self.write(&bytes).await
    }

    async fn reject(&mut self, why: &str) {
        let why = &why.as_bytes()[..why.len().min(GREETING_BYTES / 2)];
        let length = (why.len() as u16).to_be_bytes();
        let _ = self.write(&[REJECTION.as_slice(), &length, why].concat()).await;
    }

    async fn receive_hello(&mut self) -> Result<Hello, GreetError> {
        loop {
            if self.received.starts_with(REJECTION) {
                if let Some(why) = rejection(&self.received) {
                    return Err(GreetError::RejectedByPeer(why));
                }
            } else {
                match Hello::decode(&self.received) {
                    Ok((hello, length)) => {
                        self.received.drain(..length);
                        return Ok(hello);
                    }
                    Err(DecodeError::Truncated) => {}
                    Err(_) if self.tls.is_none() && is_tls(&self.received) => return Err(GreetError::NoKeysHere),
                    Err(error) => return Err(error.into()),
                }
            }
            if self.received.len() > GREETING_BYTES {
                return Err(GreetError::Decode(DecodeError::TooLong));
            }
            self.read().await?;
        }
    }

    /// Checks that the dialed node is the expected one.
    fn check_answer(
        &self,
        driver: &Driver,
        peer: &Peer,
        hello: &Hello,
        expected: Option<NodeId>,
    ) -> Result<(), GreetError> {
        if let Some(id) = expected.filter(|id| *id != hello.from) {
            let (found, address) = (driver.describe(hello), &peer.address);
            return Err(GreetError::Reject(format!(
                "{address} is the address of member {id}, and {found} is there, which is {}",
                hello.from
            )));
        }
        self.prove(hello, driver)?;
        driver.check_hello(hello).map_err(GreetError::Reject)?;
        check_listed(hello, driver, peer.name.as_deref())
    }

    fn check_caller(&self, driver: &Driver, peer: Option<&Peer>, hello: &Hello) -> Result<(), GreetError> {
        self.prove(hello, driver)?;
        driver.check_hello(hello).map_err(GreetError::Reject)?;
        if hello.plane == Plane::Locks && peer.is_none() {
            return Err(GreetError::Reject("it is no member".to_owned()));
        }
        // A node that is not a member yet may be listed with its address.
        let listed = || driver.seeds().into_iter().find(|seed| seed.address == hello.address)?.name.clone();
        let name = peer.and_then(|peer| peer.name.clone()).or_else(listed);
        check_listed(hello, driver, name.as_deref())
    }

    /// A certificate is for one node, byte for byte: nobody can pass for another.
    fn prove(&self, hello: &Hello, driver: &Driver) -> Result<(), GreetError> {
        let Some(shown) = &self.certificate else { return Ok(()) };
        let found = driver.describe(hello);
        match shown {
            Err(why) => {
                Err(GreetError::Reject(format!("the certificate of {found} is not a member's: {}", printable(why))))
            }
            Ok(certificate) if certificate.identity.name != hello.name => {
                let why = format!("the certificate of {found} is not for that name: give it its own keys");
                Err(GreetError::Reject(why))
            }
            Ok(certificate) => driver.check_certificate(certificate, hello).map_err(GreetError::Reject),
        }
    }
}

/// Checks that a node has the name that the list of members has at its address.
fn check_listed(hello: &Hello, driver: &Driver, name: Option<&str>) -> Result<(), GreetError> {
    let Some(name) = name.filter(|name| *name != hello.name) else { return Ok(()) };
    let (found, name, me) = (driver.describe(hello), printable(name), &driver.me);
    Err(GreetError::Reject(format!(
        "{found} is called '{name}' in the list of members of {me}: correct the list or its name"
    )))
}

/// Why the peer rejects this node, if that is all here.
pub(crate) fn rejection(bytes: &[u8]) -> Option<String> {
    let length = bytes.strip_prefix(REJECTION)?.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))?;
    bytes.get(6..6 + length).map(|why| printable(&String::from_utf8_lossy(why)))
}

/// Bytes of a peer that encrypts: a handshake, or an alert that it was not answered with one.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, ..])
}
