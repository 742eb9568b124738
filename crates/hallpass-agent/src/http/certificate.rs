//! The API's certificate. It is read again when its files change, and shown to nobody who would accept that of another agent.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

use crate::os;

/// The certificates of all members are valid for this name: a client that asks for it takes any member for this agent.
const MEMBER: &str = "member.hallpass";

/// No key is longer.
const KEY_BYTES_MAX: u64 = 64 * 1024;

/// The files of a certificate and its key, and what was read from them.
#[derive(Debug)]
struct ApiCertificate {
    certificate: PathBuf,
    key: PathBuf,
    read: Mutex<LastRead>,
}

#[derive(Debug)]
struct LastRead {
    stamps: Stamps,
    in_use: Arc<CertifiedKey>,
    /// Why the files could not be read since.
    error: Option<String>,
}

/// What tells a version of each file from others: when it was written, and its length.
type Stamps = [Option<(SystemTime, u64)>; 2];

pub(super) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let read = LastRead { stamps: stamps(certificate, key), in_use: Arc::new(load(certificate, key)?), error: None };
    let resolver = ApiCertificate { certificate: certificate.to_owned(), key: key.to_owned(), read: Mutex::new(read) };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.with_no_client_auth();
    let mut config = config.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn load(certificate: &Path, key: &Path) -> Result<CertifiedKey, String> {
    let fail = |path: &Path, why: String| format!("cannot use {} for the API: {why}", path.display());
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(certificate).map_err(|error| fail(certificate, error.to_string()))?.collect();
    let chain = chain.map_err(|error| fail(certificate, error.to_string()))?;
    let private = File::open(key).map_err(|error| error.to_string()).and_then(read_key);
    let private = private.map_err(|why| fail(key, why))?;
    // It is made from the key in place: no copy of that is left.
    let unfit = |error: rustls::Error| fail(certificate, error.to_string());
    let certified = CertifiedKey::new(chain, any_supported_type(&private).map_err(unfit)?);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(error) => Err(unfit(error)),
    }
}

/// Reads a key in PEM, whose memory is overwritten when it is dropped. The file that is looked at is the one that is read, whatever its path
/// leads to by now.
fn read_key(file: File) -> Result<Zeroizing<PrivateKeyDer<'static>>, String> {
    let found = file.metadata().map_err(|error| error.to_string())?;
    if os::is_public(&found) {
        let why =
            "other users of this machine can use it, so others may have it: keep such a file to yourself (mode 600)";
        return Err(why.to_owned());
    }
    // With room for all of it: what grows leaves copies behind.
    let mut pem = Zeroizing::new(Vec::with_capacity(KEY_BYTES_MAX as usize));
    file.take(KEY_BYTES_MAX).read_to_end(&mut pem).map_err(|error| error.to_string())?;
    PrivateKeyDer::from_pem_slice(&pem).map(Zeroizing::new).map_err(|error| error.to_string())
}

fn stamps(certificate: &Path, key: &Path) -> Stamps {
    [certificate, key].map(|path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    })
}

impl ApiCertificate {
    /// The certificate in the files, or the last one that could be read, as while they are being replaced.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut last = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.certificate, &self.key);
        if last.stamps != stamps {
            match load(&self.certificate, &self.key) {
                Ok(new) => *last = LastRead { stamps, in_use: Arc::new(new), error: None },
                Err(error) => {
                    if last.error.as_ref() != Some(&error) {
                        tracing::warn!(
                            error,
                            "the API's certificate has changed, and cannot be used: it goes on with the last one"
                        );
                    }
                    last.error = Some(error);
                }
            }
        }
        Arc::clone(&last.in_use)
    }
}

impl ResolvesServerCert for ApiCertificate {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_for_any_member =
            client.server_name().is_some_and(|name| name.trim_end_matches('.').eq_ignore_ascii_case(MEMBER));
        if is_for_any_member {
            tracing::debug!("a client of the API asks for any member: it must ask for this one by its name");
            return None;
        }
        Some(self.current())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use hallpass_testkit::Scratch;
    use zeroize::Zeroize;

    use super::*;

    #[test]
    fn the_key_that_was_checked_is_the_one_that_is_read_and_is_overwritten() {
        let scratch = Scratch::new("api-key");
        let (path, other) = (scratch.join("api.key"), scratch.join("other.key"));
        let [ours, theirs] = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
        for (path, key, mode) in [(&path, &ours, 0o600), (&other, &theirs, 0o644)] {
            std::fs::write(path, key.serialize_pem()).unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let open = File::open(&path).unwrap();
        std::fs::rename(&other, &path).unwrap();
        let mut key = read_key(open).unwrap();
        assert_eq!(key.secret_der(), ours.serialize_der());
        // As when it is dropped.
        key.zeroize();
        assert!(key.secret_der().iter().all(|byte| *byte == 0));
        assert!(read_key(File::open(&path).unwrap()).unwrap_err().contains("other users"));
    }
}
