//! Mutual TLS: a member proves itself by a certificate that the group's own authority has signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, Error, RootCertStore, ServerConfig,
    ServerConnection,
};

use crate::certificate::{Identity, MEMBER};
use crate::text::printable;
use crate::{StartError, os};

/// The files of a node's keys, in PEM, as `hallpass init` makes them.
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
}

/// The configurations of both sides of the handshake.
#[derive(Clone)]
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// Loads the keys of a node of this name.
    pub(crate) fn load(keys: &Keys, name: &str) -> Result<Self, StartError> {
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
        let identity = Identity::of(first).map_err(|why| fail(&keys.certificate, why))?;
        if identity.name != name {
            return Err(fail(&keys.certificate, format!("it is not a certificate of '{}'", printable(name))));
        }
        if std::fs::metadata(&keys.key).is_ok_and(|found| os::is_public(&found)) {
            let why = "all users of this machine can read it, so others may have a copy: only its owner may read a key (mode 600)";
            return Err(fail(&keys.key, why.to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(&keys.key).map_err(|error| fail(&keys.key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unfit = |error: rustls::Error| fail(&keys.certificate, error.to_string());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| fail(&keys.authority, error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unfit)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unfit)?;
        // Peers stay connected, so tickets to resume a session would never be used.
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unfit)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(unfit)?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    pub(crate) fn dial(&self) -> Result<Connection, rustls::Error> {
        let name = ServerName::try_from(MEMBER).expect("a constant name").to_owned();
        ClientConnection::new(Arc::clone(&self.client), name).map(Connection::Client)
    }

    pub(crate) fn accept(&self) -> Result<Connection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.server)).map(Connection::Server)
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

/// Whose certificate the peer has shown. The error says why it is not a member's.
pub(crate) fn identity(connection: &Connection) -> Result<Identity, String> {
    let first = connection.peer_certificates().and_then(|chain| chain.first());
    Identity::of(first.ok_or("there is none")?)
}
