//! Keys for one run: an authority, and a certificate and a key for each member.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::BenchError;

/// Makes a directory of keys for each name, as `hallpass::Keys::in_directory` takes them.
pub(crate) fn make(directory: &Path, names: &[&str]) -> Result<(), BenchError> {
    let mut params = CertificateParams::new(Vec::<String>::new()).map_err(BenchError::new)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().map_err(BenchError::new)?;
    let authority = CertifiedIssuer::self_signed(params, key).map_err(BenchError::new)?;
    for name in names {
        let own = directory.join(name);
        let key = KeyPair::generate().map_err(BenchError::new)?;
        let valid_for = vec![(*name).to_owned(), "member.hallpass".to_owned()];
        let certificate = CertificateParams::new(valid_for)
            .and_then(|params| params.signed_by(&key, &authority))
            .map_err(BenchError::new)?;
        let write = |file: &str, text: String| std::fs::write(own.join(file), text);
        std::fs::create_dir_all(&own)
            .and_then(|()| write("authority.pem", authority.pem()))
            .and_then(|()| write("node.pem", certificate.pem()))
            .and_then(|()| write("node.key", key.serialize_pem()))
            .map_err(BenchError::new)?;
        // A node takes no key that others can read.
        #[cfg(unix)]
        std::fs::set_permissions(own.join("node.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .map_err(BenchError::new)?;
    }
    Ok(())
}
