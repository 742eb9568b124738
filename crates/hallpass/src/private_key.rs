//! Private keys: read from files that nobody else can read, and not left in memory that is given back.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use zeroize::Zeroizing;

use crate::os;

/// No key is longer.
const BYTES_MAX: u64 = 64 * 1024;

/// A private key, whose memory is overwritten when it is dropped.
pub(crate) type PrivateKey = Zeroizing<PrivateKeyDer<'static>>;

/// Reads a key in PEM. The error says what is wrong with the file.
pub(crate) fn read(path: &Path) -> Result<PrivateKey, String> {
    read_open(File::open(path).map_err(|error| error.to_string())?)
}

/// The file that is looked at is the one that is read, whatever its path leads to by now.
fn read_open(file: File) -> Result<PrivateKey, String> {
    let found = file.metadata().map_err(|error| error.to_string())?;
    if os::is_public(&found) {
        let why = "other users of this machine can read it, so others may have a copy: only its owner may read a key (mode 600)";
        return Err(why.to_owned());
    }
    // With room for all of it: what grows leaves copies behind.
    let mut pem = Zeroizing::new(Vec::with_capacity(BYTES_MAX as usize));
    file.take(BYTES_MAX).read_to_end(&mut pem).map_err(|error| error.to_string())?;
    PrivateKeyDer::from_pem_slice(&pem).map(Zeroizing::new).map_err(|error| error.to_string())
}

/// A certificate with its key, for all connections. It is made from the key in place: no copy of that is left.
pub(crate) fn certify(chain: Vec<CertificateDer<'static>>, key: &PrivateKey) -> Result<Arc<CertifiedKey>, Error> {
    let certified = CertifiedKey::new(chain, any_supported_type(key)?);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
        Err(error) => Err(error),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use hallpass_testkit::Scratch;
    use zeroize::Zeroize;

    use super::*;

    fn write(path: &Path, key: &rcgen::KeyPair, mode: u32) {
        std::fs::write(path, key.serialize_pem()).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_file_that_was_checked_is_the_one_that_is_read() {
        let scratch = Scratch::new("private-key");
        let (path, other) = (scratch.join("node.key"), scratch.join("other.key"));
        let [ours, theirs] = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
        write(&path, &ours, 0o600);
        write(&other, &theirs, 0o644);
        let open = File::open(&path).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(read_open(open).unwrap().secret_der(), ours.serialize_der());
        assert!(read(&path).unwrap_err().contains("other users"), "the one that took its place is public");
    }

    #[test]
    fn a_key_that_is_not_needed_any_more_is_overwritten() {
        let scratch = Scratch::new("private-key-gone");
        let path = scratch.join("node.key");
        let pair = rcgen::KeyPair::generate().unwrap();
        write(&path, &pair, 0o600);
        let mut key = read(&path).unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&pair).unwrap();
        certify(vec![certificate.der().clone()], &key).unwrap();
        // As when it is dropped.
        key.zeroize();
        assert!(key.secret_der().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let scratch = Scratch::new("private-key-other");
        let path = scratch.join("node.key");
        let [ours, theirs] = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
        write(&path, &ours, 0o600);
        let certificate = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&theirs).unwrap();
        assert!(certify(vec![certificate.der().clone()], &read(&path).unwrap()).is_err());
    }
}
