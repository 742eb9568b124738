//! The certificates of a group: its authority's, and one for each member.

use std::path::Path;

use hallpass::KeyDigest;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};
use yasna::{ASN1Result, BERReader, tags};
use zeroize::Zeroizing;

use crate::exit::Fault;
use crate::os;

/// Every certificate of a group is valid for this name, beside the node's own.
pub(super) const MEMBER: &str = "member.hallpass";
/// Certificates are valid from the day before on: clocks differ.
const CLOCK_SKEW: Duration = Duration::DAY;
/// How long an authority lasts. No certificate that it signs lasts longer.
const AUTHORITY_LIFE: Duration = Duration::days(3653);
/// How long before the end of its certificate an agent warns.
const WARNING: Duration = Duration::days(30);

/// The authority that signs the certificates of a group's members.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub(super) pem: String,
    ends: OffsetDateTime,
}

/// A member's new key, and a certificate for it.
pub(super) struct Signed {
    pub(super) key: Zeroizing<String>,
    pub(super) certificate: String,
    pub(super) ends: OffsetDateTime,
}

impl Authority {
    pub(super) fn create(group: &str) -> Result<Self, Fault> {
        let key = KeyPair::generate().map_err(no_keys)?;
        let ends = OffsetDateTime::now_utc() + AUTHORITY_LIFE;
        let params = authority_params(&format!("hallpass group {group}"), ends).map_err(no_keys)?;
        let pem = params.self_signed(&key).map_err(no_keys)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem, ends })
    }

    /// The authority of a group, from the directory where `init` has created it.
    pub(super) fn open(directory: &Path) -> Result<Self, Fault> {
        let read = |name: &str| {
            let path = directory.join(name);
            let text = std::fs::read_to_string(&path);
            text.map_err(|error| unusable(&path, &format!("{error}; 'hallpass init --out' has created it")))
        };
        let (pem, key) = (read("authority.pem")?, Zeroizing::new(read("authority.key")?));
        let (pem_path, key_path) = (directory.join("authority.pem"), directory.join("authority.key"));
        if std::fs::metadata(&key_path).is_ok_and(|found| os::is_shared(&found)) {
            let why = "other users of this machine can read it, so others may be able to make members: only its owner may read it \
                       (mode 600); if others have it, make a new authority, see docs/keys.md";
            return Err(unusable(&key_path, why));
        }
        let own = Facts::read(&pem).ok_or_else(|| unusable(&pem_path, "there is no certificate in it"))?;
        let key = KeyPair::from_pem(&key).map_err(|_| unusable(&key_path, "there is no private key in it"))?;
        if key.subject_public_key_info() != own.public_key {
            return Err(unusable(&key_path, "it is not the key of the certificate in authority.pem"));
        }
        if own.ends <= OffsetDateTime::now_utc() {
            let why = format!("it ended on {}; make a new authority, see docs/keys.md", own.ends.date());
            return Err(unusable(&pem_path, &why));
        }
        let params = authority_params(&own.name, own.ends).map_err(no_keys)?;
        Ok(Self { issuer: Issuer::new(params, key), pem, ends: own.ends })
    }

    /// The private key, in PEM.
    pub(super) fn key(&self) -> Zeroizing<String> {
        Zeroizing::new(self.issuer.key().serialize_pem())
    }

    /// Makes a key for a member, and a certificate that lasts this many days.
    pub(super) fn sign(&self, member: &str, days: u32) -> Result<Signed, Fault> {
        let key = KeyPair::generate().map_err(no_keys)?;
        let mut params = CertificateParams::new(vec![member.to_owned(), MEMBER.to_owned()]).map_err(no_keys)?;
        params.distinguished_name.push(DnType::CommonName, member);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = OffsetDateTime::now_utc() - CLOCK_SKEW;
        params.not_after = self.ends.min(OffsetDateTime::now_utc() + Duration::days(days.into()));
        let ends = params.not_after;
        let certificate = params.signed_by(&key, &self.issuer).map_err(no_keys)?;
        Ok(Signed { key: Zeroizing::new(key.serialize_pem()), certificate: certificate.pem(), ends })
    }
}

/// Refuses a node's certificate that has ended, and warns of one that ends soon. A file that cannot be read is left to the node's
/// start.
pub(super) fn check_end(certificate: &Path) -> Result<(), Fault> {
    let Some(facts) = std::fs::read_to_string(certificate).ok().and_then(|pem| Facts::read(&pem)) else {
        return Ok(());
    };
    let (now, ends) = (OffsetDateTime::now_utc(), facts.ends.date());
    if facts.ends <= now {
        let why = format!("it ended on {ends}; sign a new one with 'hallpass init --renew'");
        return Err(unusable(certificate, &why));
    }
    if facts.ends - now < WARNING {
        let file = certificate.display();
        tracing::warn!("the certificate {file} ends on {ends}; sign a new one with 'hallpass init --renew'");
    }
    Ok(())
}

/// The key that an operator names: by a file with its certificate, or by its digest.
pub(super) fn key_digest(named: &str) -> Result<KeyDigest, Fault> {
    if let Ok(digest) = named.parse() {
        return Ok(digest);
    }
    let path = Path::new(named);
    let pem = std::fs::read_to_string(path).map_err(|error| {
        Fault::Usage(format!("'{}' is neither sha256:HEX nor a file: {error}", named.escape_debug()))
    })?;
    let facts = Facts::read(&pem).ok_or_else(|| unusable(path, "there is no certificate in it"))?;
    Ok(KeyDigest::of_public_key(&facts.public_key))
}

fn authority_params(name: &str, ends: OffsetDateTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = OffsetDateTime::now_utc() - CLOCK_SKEW;
    params.not_after = ends;
    Ok(params)
}

/// The facts in a certificate that matter here.
struct Facts {
    /// The last part of its subject's name.
    name: String,
    ends: OffsetDateTime,
    /// With its algorithm, in DER.
    public_key: Vec<u8>,
}

impl Facts {
    /// Reads the first certificate of a PEM file.
    fn read(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        yasna::parse_der(&der, read_certificate).ok()
    }
}

/// Reads as much of a certificate as is needed here, in the order of RFC 5280, section 4.1.
fn read_certificate(reader: BERReader<'_, '_>) -> ASN1Result<Facts> {
    reader.read_sequence(|certificate| {
        let facts = certificate.next().read_sequence(|fields| {
            for _ in ["version", "serial number", "signature", "issuer"] {
                fields.next().read_der()?;
            }
            let ends = fields.next().read_sequence(|validity| {
                validity.next().read_der()?;
                read_time(validity.next())
            })?;
            let name = read_name(fields.next())?;
            let public_key = fields.next().read_der()?;
            while fields.read_optional(|extension| extension.read_der())?.is_some() {}
            Ok(Facts { name, ends, public_key })
        })?;
        for _ in ["signature algorithm", "signature"] {
            certificate.next().read_der()?;
        }
        Ok(facts)
    })
}

/// Years before 2050 are written in another way than later ones.
fn read_time(reader: BERReader<'_, '_>) -> ASN1Result<OffsetDateTime> {
    if reader.lookahead_tag()? == tags::TAG_UTCTIME {
        reader.read_utctime().map(|time| *time.datetime())
    } else {
        reader.read_generalized_time().map(|time| *time.datetime())
    }
}

fn read_name(reader: BERReader<'_, '_>) -> ASN1Result<String> {
    let mut name = String::new();
    reader.read_sequence_of(|part| {
        part.read_set_of(|attribute| {
            attribute.read_sequence(|pair| {
                pair.next().read_oid()?;
                name = pair.next().read_utf8string()?;
                Ok(())
            })
        })
    })?;
    Ok(name)
}

fn unusable(path: &Path, why: &str) -> Fault {
    Fault::Failed(format!("cannot use {}: {why}", path.display()))
}

fn no_keys(error: rcgen::Error) -> Fault {
    Fault::Failed(format!("cannot create keys: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_read_back() {
        let authority = Authority::create("billing").unwrap();
        let own = Facts::read(&authority.pem).unwrap();
        assert_eq!(
            (own.name.as_str(), own.ends),
            ("hallpass group billing", authority.ends.replace_nanosecond(0).unwrap())
        );
        assert_eq!(own.public_key, authority.issuer.key().subject_public_key_info());
        let member = Facts::read(&authority.sign("a", 30).unwrap().certificate).unwrap();
        assert_eq!(member.name, "a");
        let days = (member.ends - OffsetDateTime::now_utc()).whole_hours();
        assert!((29 * 24..=30 * 24).contains(&days), "{days}");
        // Years from 2050 on are written in another way. Nothing lasts longer than its authority.
        let mut old = Authority::create("billing").unwrap();
        old.ends = OffsetDateTime::now_utc() + Duration::days(40 * 365);
        assert!(Facts::read(&old.sign("a", 36_000).unwrap().certificate).unwrap().ends.year() >= 2060);
        assert_eq!(authority.sign("a", 36_000).unwrap().ends, authority.ends);
    }

    #[test]
    fn what_is_no_certificate_has_no_facts() {
        let key = KeyPair::generate().unwrap().serialize_pem();
        let cut = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
        for text in ["", "x", &key, cut] {
            assert!(Facts::read(text).is_none(), "{text}");
        }
    }
}
