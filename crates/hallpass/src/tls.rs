//! Mutual TLS: a member proves itself by a certificate that the group's own authority has signed. The keys are read again when their files
//! change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, Error, RootCertStore, ServerConfig,
    ServerConnection,
};

use crate::certificate::{Identity, KeyDigest, MEMBER};
use crate::text::printable;
use crate::{StartError, os, private_key};

/// The files of a node's keys, in PEM, as `hallpass init` makes them. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The certificate of the group's authority.
    pub authority: PathBuf,
    /// This node's certificate, signed by the authority. It names the node and `member.hallpass`.
    pub certificate: PathBuf,
    /// This node's private key.
    pub key: PathBuf,
}

impl Keys {
    /// The three files in a directory: `authority.pem`, `node.pem` and `node.key`.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        let file = |name| directory.as_ref().join(name);
        Self { authority: file("authority.pem"), certificate: file("node.pem"), key: file("node.key") }
    }

    fn stamps(&self) -> Stamps {
        [&self.authority, &self.certificate, &self.key].map(|path| os::stamp(path))
    }
}

/// What tells a version of each file from others.
type Stamps = [Option<(SystemTime, u64, u64)>; 3];

/// A node's keys, and the configurations of both sides of the handshake.
pub(crate) struct Tls {
    keys: Keys,
    /// The node's name.
    name: String,
    current: RwLock<Arc<Loaded>>,
    read: Mutex<LastRead>,
}

struct LastRead {
    /// The files as they were when the keys in use were read.
    stamps: Stamps,
    /// Why they could not be read since.
    error: Option<String>,
}

/// Keys as they were read from their files.
struct Loaded {
    /// How often keys were read before.
    number: u64,
    own: KeyDigest,
    /// How often keys were read before this node had its own one.
    own_since: u64,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    servers: Arc<WebPkiServerVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
}

/// What a look at the files has found.
pub(crate) enum Refreshed {
    /// Nothing that was not known.
    Same,
    /// Other keys, with this one of the node's own.
    New(KeyDigest),
    /// They have changed, and cannot be used.
    Unusable(String),
}

/// A handshake, and with which keys.
pub(crate) struct Handshake {
    pub(crate) connection: Box<Connection>,
    pub(crate) keys: u64,
}

impl Tls {
    /// Loads the keys of a node of this name.
    pub(crate) fn load(keys: &Keys, name: &str) -> Result<Self, StartError> {
        let read = Mutex::new(LastRead { stamps: keys.stamps(), error: None });
        let current = RwLock::new(Arc::new(Loaded::read(keys, name, 0)?));
        Ok(Self { keys: keys.clone(), name: name.to_owned(), current, read })
    }

    /// Reads the files again if they have changed. Where they do not fit together, as while they are being replaced, the keys that were
    /// read before stay in use.
    pub(crate) fn refresh(&self) -> Refreshed {
        let mut last = self.last_read();
        let stamps = self.keys.stamps();
        if last.stamps == stamps {
            last.error = None;
            return Refreshed::Same;
        }
        match Loaded::read(&self.keys, &self.name, self.current().number + 1) {
            Ok(mut loaded) => {
                let (own, former) = (loaded.own, self.current());
                if own == former.own {
                    loaded.own_since = former.own_since;
                }
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                *last = LastRead { stamps, error: None };
                Refreshed::New(own)
            }
            Err(error) => {
                let error = error.to_string();
                let is_known = last.error.replace(error.clone()) == Some(error.clone());
                if is_known { Refreshed::Same } else { Refreshed::Unusable(error) }
            }
        }
    }

    fn last_read(&self) -> MutexGuard<'_, LastRead> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key that this node uses now.
    pub(crate) fn own_key(&self) -> KeyDigest {
        self.current().own
    }

    /// True if this node has shown the peer another key than the one that it uses now.
    pub(crate) fn has_shown_former_key(&self, peer: &PeerCertificate) -> bool {
        peer.keys < self.current().own_since
    }

    pub(crate) fn dial(&self) -> Result<Handshake, rustls::Error> {
        let loaded = self.current();
        let connection = ClientConnection::new(Arc::clone(&loaded.client), member())?;
        Ok(Handshake { connection: Box::new(Connection::Client(connection)), keys: loaded.number })
    }

    pub(crate) fn accept(&self) -> Result<Handshake, rustls::Error> {
        let loaded = self.current();
        let connection = ServerConnection::new(Arc::clone(&loaded.server))?;
        Ok(Handshake { connection: Box::new(Connection::Server(connection)), keys: loaded.number })
    }

    /// True if an authority that this node trusts now has signed this certificate. It may have ended meanwhile.
    pub(crate) fn vouches_for(&self, peer: &PeerCertificate) -> bool {
        let loaded = self.current();
        loaded.number == peer.keys || loaded.verify(peer).is_ok()
    }
}

impl Loaded {
    fn read(keys: &Keys, name: &str, number: u64) -> Result<Self, StartError> {
        let fail = |path: &Path, why: String| StartError::Keys { path: path.to_owned(), why };
        let certificates = |path: &Path| {
            let all: Result<Vec<CertificateDer<'static>>, _> =
                CertificateDer::pem_file_iter(path).map_err(|error| fail(path, error.to_string()))?.collect();
            all.map_err(|error| fail(path, error.to_string()))
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&keys.authority)? {
            roots.add(certificate).map_err(|error| fail(&keys.authority, error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(fail(&keys.authority, "it contains no certificate".to_owned()));
        }
        let roots = Arc::new(roots);
        let chain = certificates(&keys.certificate)?;
        // The other members would reject it at every connection.
        let first = chain.first().ok_or_else(|| fail(&keys.certificate, "it contains no certificate".to_owned()))?;
        let own = Identity::of(first).map_err(|why| fail(&keys.certificate, why))?;
        if own.name != name {
            return Err(fail(&keys.certificate, format!("it is not a certificate of '{}'", printable(name))));
        }
        let key = private_key::read(&keys.key).map_err(|why| fail(&keys.key, why))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unfit = |error: rustls::Error| fail(&keys.certificate, error.to_string());
        let certified = private_key::certify(chain, &key).map_err(unfit)?;
        drop(key);
        let identity = Arc::new(SingleCertAndKey::from(certified));
        let untrusted = |error: rustls::server::VerifierBuilderError| fail(&keys.authority, error.to_string());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let clients = clients.build().map_err(untrusted)?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let servers = servers.build().map_err(untrusted)?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unfit)?
            .with_client_cert_verifier(Arc::clone(&clients))
            .with_cert_resolver(Arc::clone(&identity) as _);
        // Peers stay connected, so tickets to resume a session would never be used.
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unfit)?
            .with_webpki_verifier(Arc::clone(&servers))
            .with_client_cert_resolver(identity);
        let own_since = number;
        Ok(Self {
            number,
            own: own.key,
            own_since,
            client: Arc::new(client),
            server: Arc::new(server),
            servers,
            clients,
        })
    }

    /// Checks a certificate as it was when the connection was made.
    fn verify(&self, peer: &PeerCertificate) -> Result<(), Error> {
        let (first, rest) = peer.chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        if peer.is_dialed {
            self.servers.verify_server_cert(first, rest, &member(), &[], peer.since).map(drop)
        } else {
            self.clients.verify_client_cert(first, rest, peer.since).map(drop)
        }
    }
}

fn member() -> ServerName<'static> {
    ServerName::try_from(MEMBER).expect("a constant name")
}

/// The certificate that a connected peer has shown.
pub(crate) struct PeerCertificate {
    pub(crate) identity: Identity,
    chain: Vec<CertificateDer<'static>>,
    /// This node has made the connection.
    is_dialed: bool,
    since: UnixTime,
    /// With which of this node's keys it was checked.
    keys: u64,
}

impl PeerCertificate {
    /// Of a connection that was made with these keys of this node's. The error says why it is not a member's.
    pub(crate) fn of(connection: &Connection, keys: u64) -> Result<Self, String> {
        let chain: Vec<CertificateDer<'static>> =
            connection.peer_certificates().into_iter().flatten().cloned().collect();
        let identity = Identity::of(chain.first().ok_or("there is none")?)?;
        let is_dialed = matches!(connection, Connection::Client(_));
        Ok(Self { identity, chain, is_dialed, since: UnixTime::now(), keys })
    }
}

/// Why a peer and this node cannot authenticate each other, and what to do.
pub(crate) fn explain(error: &rustls::Error) -> String {
    const SAME_KEYS: &str = "give all members keys of the same 'hallpass init'";
    const CLOCKS: &str = "make new keys with 'hallpass init', or set the clock that is wrong";
    match error {
        Error::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("its keys come from another 'hallpass init' than this node's: {SAME_KEYS}")
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("its certificate has expired: {CLOCKS}")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("its certificate is not valid yet: {CLOCKS}")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is not valid for '{MEMBER}', as a member's must be: {SAME_KEYS}")
            }
            other => format!("its certificate cannot be used: {other}; {SAME_KEYS}"),
        },
        Error::NoCertificatesPresented => format!("it has no certificate: {SAME_KEYS}"),
        Error::AlertReceived(alert) => match alert {
            // A signature that does not match is reported as a decryption error.
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                format!("this node's keys come from another 'hallpass init' than its own: {SAME_KEYS}")
            }
            AlertDescription::CertificateExpired => format!("this node's certificate has expired: {CLOCKS}"),
            AlertDescription::CertificateRequired => format!("this node has no certificate: {SAME_KEYS}"),
            other => format!("it does not accept this node's certificate: {other:?}; {SAME_KEYS}"),
        },
        Error::InvalidMessage(_) => format!("it does not use TLS, so it may be a node without keys: {SAME_KEYS}"),
        other => format!("the TLS handshake failed: {other}"),
    }
}
