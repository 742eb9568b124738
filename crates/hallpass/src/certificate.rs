//! What a member's certificate says: which member it is for, and with which key.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use rustls::pki_types::CertificateDer;

/// Every certificate of a group is valid for this name, beside the node's own. No member has it.
pub(crate) const MEMBER: &str = "member.hallpass";

/// True if a certificate library could take this name for the one that all certificates of a group have.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.trim_end_matches('.').eq_ignore_ascii_case(MEMBER)
}

/// Identifies a key: the SHA-256 digest of a public key with its algorithm, as certificates have it.
///
/// It is written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest of a public key in DER: a certificate's `SubjectPublicKeyInfo`.
    pub fn of_public_key(der: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, der);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// The name under which a group bans this key: no longer than a member's name, as earlier versions expect of a ban.
    pub(crate) fn label(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The key that a group bans under this name, if it bans a key.
    pub(crate) fn of_label(label: &str) -> Option<Self> {
        if label.len() != 64 || !label.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let mut digest = [0; 32];
        for (byte, digits) in digest.iter_mut().zip(label.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(digest))
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.label())
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for KeyDigest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("sha256:").map(str::to_ascii_lowercase);
        digits.and_then(|digits| Self::of_label(&digits)).ok_or("a key is given as sha256: and 64 hexadecimal digits")
    }
}

/// Whose certificate it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) key: KeyDigest,
}

impl Identity {
    /// Reads a certificate. A member's is valid for exactly two names: the member's own and [`MEMBER`]. The error says what it is valid for
    /// instead.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
        let names = alternative_names(certificate).ok_or("its names cannot be read")?;
        let (reserved, mut own): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| name == MEMBER);
        match (own.pop(), own.is_empty(), reserved.len()) {
            (Some(name), true, 1) if !is_reserved(&name) => {
                Ok(Self { name, key: KeyDigest::of_public_key(&parsed.subject_public_key_info()) })
            }
            (Some(_), true, 0) => Err(format!("it is not valid for '{MEMBER}', as a member's is")),
            (Some(_), false, _) => Err("it is valid for the names of several members".to_owned()),
            _ => Err("it is not valid for the name of any member".to_owned()),
        }
    }
}

const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
/// Extensions, in RFC 5280's `TBSCertificate`.
const EXTENSIONS: u8 = 0xa3;
/// `id-ce-subjectAltName`.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// The subject's alternative names, byte for byte: TLS libraries compare names without regard to case and trailing dots. A name of a kind
/// that no member has counts as one.
fn alternative_names(certificate: &[u8]) -> Option<Vec<String>> {
    let mut to_be_signed = Elements(Elements(certificate).sequence()?).sequence().map(Elements)?;
    let extensions = to_be_signed.find_map(|(tag, value)| (tag == EXTENSIONS).then_some(value));
    let Some(extensions) = extensions else { return Some(Vec::new()) };
    for (_, extension) in Elements(Elements(extensions).sequence()?) {
        let mut parts = Elements(extension);
        if parts.next()?.1 != ALTERNATIVE_NAMES {
            continue;
        }
        let names = parts.find_map(|(tag, value)| (tag == OCTET_STRING).then_some(value))?;
        return Elements(Elements(names).sequence()?).map(|(tag, value)| name(tag, value)).collect();
    }
    Some(Vec::new())
}

fn name(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        DNS_NAME => std::str::from_utf8(value).ok().map(str::to_owned),
        IP_ADDRESS if value.len() == 4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).to_string()),
        IP_ADDRESS => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).to_string()),
        _ => Some(format!("a name of kind {tag}")),
    }
}

/// The elements of a value in DER, one after the other: the tag and the value of each. It ends at what cannot be read.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// The value of the first element, if that is a sequence.
    fn sequence(mut self) -> Option<&'a [u8]> {
        self.next().filter(|(tag, _)| *tag == SEQUENCE).map(|(_, value)| value)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            ..=0x7f => (usize::from(*first), rest),
            0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, value))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PublicKeyData as _, SanType};

    use super::*;

    fn certificate(names: &[&str], more: Vec<SanType>) -> (CertificateDer<'static>, KeyDigest) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.subject_alt_names.extend(more);
        let digest = KeyDigest::of_public_key(&key.subject_public_key_info());
        (params.self_signed(&key).unwrap().der().clone(), digest)
    }

    #[test]
    fn a_member_has_exactly_one_name_of_its_own() {
        for name in ["b", "B", "b.example", "10.0.0.7", "0123456789"] {
            let (certificate, key) = certificate(&[name, MEMBER], Vec::new());
            assert_eq!(Identity::of(&certificate), Ok(Identity { name: name.to_owned(), key }));
        }
        let long = vec!["b".repeat(63); 4].join(".");
        assert_eq!(Identity::of(&certificate(&[MEMBER, &long], Vec::new()).0).unwrap().name, long);
        let mail = SanType::Rfc822Name("b@example".try_into().unwrap());
        let others: [(&[&str], Vec<SanType>); 8] = [
            (&[], vec![]),
            (&["b"], vec![]),
            (&[MEMBER], vec![]),
            (&[MEMBER, MEMBER], vec![]),
            (&["Member.Hallpass", MEMBER], vec![]),
            (&["b", "c", MEMBER], vec![]),
            (&["b", MEMBER], vec![mail.clone()]),
            (&[MEMBER, "b", MEMBER], vec![]),
        ];
        for (names, more) in others {
            assert!(Identity::of(&certificate(names, more).0).is_err(), "{names:?}");
        }
    }

    #[test]
    fn a_certificate_that_is_cut_has_no_names() {
        let whole = certificate(&["b", MEMBER], Vec::new()).0;
        for length in 0..whole.len() {
            let names = alternative_names(&whole[..length]);
            assert!(names.is_none_or(|names| names.is_empty()), "{length}");
        }
    }

    #[test]
    fn a_key_is_written_as_it_is_read() {
        let key = KeyDigest::of_public_key(b"a key");
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(key.to_string().to_ascii_uppercase().replace("SHA256", "sha256").parse(), Ok(key));
        assert_eq!(KeyDigest::of_label(&key.label()), Some(key));
        for text in ["", "sha256:", "sha256:12", &key.label(), &format!("{key}0"), &key.to_string().replace(':', "")] {
            assert!(text.parse::<KeyDigest>().is_err(), "{text}");
        }
        for label in ["b", &"B".repeat(64), &"g".repeat(64)] {
            assert_eq!(KeyDigest::of_label(label), None, "{label}");
        }
    }

    #[test]
    fn the_reserved_name_is_known_in_every_spelling() {
        assert!(["member.hallpass", "Member.Hallpass", "member.hallpass."].into_iter().all(is_reserved));
        assert!(!["member", "a.member.hallpass", "member.hallpass.a"].into_iter().any(is_reserved));
    }
}
