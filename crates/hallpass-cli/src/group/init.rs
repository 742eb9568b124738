//! Keys and configurations for a group, ready to copy to its hosts.

use std::io::Write;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::args::InitArgs;
use crate::exit::{Fault, Outcome};
use crate::{os, terminal};

/// What every certificate of a group is valid for, beside the node's own name.
const MEMBER: &str = "member.hallpass";

pub(super) fn init(args: &InitArgs) -> Result<Outcome, Fault> {
    check(args)?;
    let failed = |error: rcgen::Error| Fault::Failed(format!("cannot make keys: {error}"));
    let mut params = CertificateParams::new(Vec::<String>::new()).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, format!("hallpass group {}", args.group));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?).map_err(failed)?;
    make_directory(&args.out)?;
    secret(&args.out.join("authority.key"), &authority.key().serialize_pem())?;
    let address = |at: usize, name: &str| {
        if args.loopback { format!("127.0.0.1:{}", args.port + at as u16) } else { format!("{name}:{}", args.port) }
    };
    let peers: Vec<String> =
        args.names.iter().enumerate().map(|(at, name)| format!("\"{name}@{}\"", address(at, name))).collect();
    for (at, name) in args.names.iter().enumerate() {
        let directory = args.out.join(name);
        make_directory(&directory)?;
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(vec![name.clone(), MEMBER.to_owned()]).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, name.as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &authority).map_err(failed)?;
        secret(&directory.join("node.key"), &key.serialize_pem())?;
        secret(&directory.join("node.pem"), &certificate.pem())?;
        secret(&directory.join("authority.pem"), &authority.pem())?;
        let address = address(at, name);
        let listen = if args.loopback { address.clone() } else { format!("0.0.0.0:{}", args.port) };
        let config = format!(
            "# Made by 'hallpass init'. Paths are relative to this file.\n\
             group = \"{}\"\nname = \"{name}\"\nlisten = \"{listen}\"\nadvertise = \"{address}\"\n\
             peers = [{}]\nkeys = \".\"\ndata = \"data\"\nsocket = \"agent.sock\"\n",
            args.group,
            peers.join(", ")
        );
        secret(&directory.join("hallpass.toml"), &config)?;
    }
    let out = args.out.display();
    let first = &args.names[0];
    terminal::print(&format!(
        "made keys and configurations for {} members of group {} in {out}\n\
         \n  copy {out}/NAME to each host, then there: hallpass agent --config NAME/hallpass.toml\
         \n  clients on that host: hallpass run LOCK --socket {first}/agent.sock -- COMMAND\
         \n  {out}/authority.key signs certificates of new members: keep it safe, no host needs it\n",
        args.names.len(),
        args.group,
    ))?;
    Ok(Outcome::Fine)
}

fn check(args: &InitArgs) -> Result<(), Fault> {
    let is_label = |name: &str| {
        (1..=63).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
            && name.as_bytes()[0].is_ascii_alphanumeric()
            && name.as_bytes()[name.len() - 1].is_ascii_alphanumeric()
    };
    if let Some(name) = args.names.iter().find(|name| !is_label(name)) {
        return Err(Fault::Usage(format!(
            "'{name}' is no name for a member: letters, digits, hyphens and dots, as in host names"
        )));
    }
    if let Some(name) = args.names.iter().enumerate().find(|(at, name)| args.names[..*at].contains(name)) {
        return Err(Fault::Usage(format!("member '{}' is named twice", name.1)));
    }
    if !(1..=64).contains(&args.group.len())
        || !args.group.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        return Err(Fault::Usage(format!(
            "'{}' is no name for a group: up to 64 letters, digits, '-', '_' and '.'",
            args.group
        )));
    }
    let last = usize::from(args.port) + if args.loopback { args.names.len() - 1 } else { 0 };
    if args.port == 0 || last > usize::from(u16::MAX) {
        return Err(Fault::Usage(format!("there are no ports from {} on for {} members", args.port, args.names.len())));
    }
    let used = std::fs::read_dir(&args.out).is_ok_and(|mut entries| entries.next().is_some());
    if used {
        return Err(Fault::Usage(format!("{} exists and is not empty; name another --out", args.out.display())));
    }
    Ok(())
}

fn make_directory(path: &Path) -> Result<(), Fault> {
    os::create_private_directory(path).map_err(|error| Fault::Write { target: path.display().to_string(), error })
}

/// A file that only its owner can read.
fn secret(path: &Path, text: &str) -> Result<(), Fault> {
    let written = os::create_private_file(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Fault::Write { target: path.display().to_string(), error })
}
