//! Raw round trips: 32 bytes to one peer or to several at once and back, with and without encryption.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::task::{Ready, Reply};
use crate::worker::{lines_until_closed, runtime, send};
use crate::{BenchError, Caller, System};

/// As long as a small message.
const BYTES: usize = 32;
/// What every certificate of the benchmark is valid for.
const MEMBER: &str = "member.hallpass";

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Runs a worker that sends back what it receives, on one port unencrypted and on another encrypted.
pub(crate) fn echo(keys: &Path) -> Result<(), BenchError> {
    let runtime = runtime()?;
    let mut lines = lines_until_closed();
    runtime.block_on(async {
        let acceptor = acceptor(keys)?;
        let plain = TcpListener::bind("127.0.0.1:0").await.map_err(BenchError::new)?;
        let encrypted = TcpListener::bind("127.0.0.1:0").await.map_err(BenchError::new)?;
        let address =
            |listener: &TcpListener| listener.local_addr().map(|address| address.to_string()).map_err(BenchError::new);
        send(&Reply::Ready(Ready { addresses: vec![address(&plain)?, address(&encrypted)?] }));
        tokio::spawn(accept(plain, None));
        tokio::spawn(accept(encrypted, Some(acceptor)));
        while lines.recv().await.is_some() {}
        Ok(())
    })
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>) {
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            stream.set_nodelay(true)?;
            match acceptor {
                None => send_back(stream).await,
                Some(acceptor) => send_back(acceptor.accept(stream).await?).await,
            }
        });
    }
}

async fn send_back(mut stream: impl Stream) -> std::io::Result<()> {
    let mut buffer = [0; BYTES];
    loop {
        stream.read_exact(&mut buffer).await?;
        stream.write_all(&buffer).await?;
        stream.flush().await?;
    }
}

/// Round trips to all of these, as if they were a lock.
pub(crate) struct Ping {
    addresses: Vec<String>,
    connector: Option<TlsConnector>,
}

impl Ping {
    pub(crate) fn new(addresses: &[&str], keys: Option<&Path>) -> Result<Self, BenchError> {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        Ok(Self { addresses, connector: keys.map(connector).transpose()? })
    }
}

impl System for Ping {
    type Caller = Pinger;

    async fn caller(&self, _id: u32) -> Result<Pinger, BenchError> {
        let mut streams: Vec<Box<dyn Stream>> = Vec::new();
        for address in &self.addresses {
            let stream = TcpStream::connect(address).await.map_err(BenchError::new)?;
            stream.set_nodelay(true).map_err(BenchError::new)?;
            match &self.connector {
                None => streams.push(Box::new(stream)),
                Some(connector) => {
                    let name = ServerName::try_from(MEMBER).expect("a constant name");
                    streams.push(Box::new(connector.connect(name, stream).await.map_err(BenchError::new)?));
                }
            }
        }
        Ok(Pinger { streams })
    }
}

pub(crate) struct Pinger {
    streams: Vec<Box<dyn Stream>>,
}

impl Caller for Pinger {
    async fn acquire(&mut self, _lock: u32) -> Result<(), BenchError> {
        let mut buffer = [7; BYTES];
        let trip = async {
            for stream in &mut self.streams {
                stream.write_all(&buffer).await?;
                stream.flush().await?;
            }
            for stream in &mut self.streams {
                stream.read_exact(&mut buffer).await?;
            }
            Ok::<(), std::io::Error>(())
        };
        trip.await.map_err(BenchError::new)
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
}

/// The same to one peer, unencrypted, where another task reads the socket and wakes the caller, as in hallpass.
pub(crate) struct Woken {
    pub(crate) address: String,
}

impl System for Woken {
    type Caller = WokenCaller;

    async fn caller(&self, _id: u32) -> Result<WokenCaller, BenchError> {
        let stream = TcpStream::connect(&self.address).await.map_err(BenchError::new)?;
        stream.set_nodelay(true).map_err(BenchError::new)?;
        let (mut reads, writes) = stream.into_split();
        let arrived = Arc::new(Notify::new());
        let notify = Arc::clone(&arrived);
        tokio::spawn(async move {
            let mut buffer = [0; BYTES];
            while reads.read_exact(&mut buffer).await.is_ok() {
                notify.notify_one();
            }
        });
        Ok(WokenCaller { writes, arrived })
    }
}

pub(crate) struct WokenCaller {
    writes: OwnedWriteHalf,
    arrived: Arc<Notify>,
}

impl Caller for WokenCaller {
    async fn acquire(&mut self, _lock: u32) -> Result<(), BenchError> {
        self.writes.write_all(&[7; BYTES]).await.map_err(BenchError::new)?;
        self.arrived.notified().await;
        Ok(())
    }

    async fn release(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
}

fn acceptor(keys: &Path) -> Result<TlsAcceptor, BenchError> {
    let chain = CertificateDer::pem_file_iter(keys.join("node.pem")).map_err(BenchError::new)?;
    let chain: Result<Vec<_>, _> = chain.collect();
    let key = PrivateKeyDer::from_pem_file(keys.join("node.key")).map_err(BenchError::new)?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(BenchError::new)?
        .with_no_client_auth()
        .with_single_cert(chain.map_err(BenchError::new)?, key)
        .map_err(BenchError::new)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn connector(keys: &Path) -> Result<TlsConnector, BenchError> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(keys.join("authority.pem")).map_err(BenchError::new)?;
    roots.add(authority).map_err(BenchError::new)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(BenchError::new)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
