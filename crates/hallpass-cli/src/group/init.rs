//! `hallpass init`: keys and configurations for a group, ready to copy to its hosts.

use std::io::Write;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::args::InitArgs;
use crate::exit::{Fault, Outcome};
use crate::{os, terminal};

/// Every certificate of a group is valid for this name, beside the node's own.
const MEMBER: &str = "member.hallpass";

type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn init(args: &InitArgs) -> Result<Outcome, Fault> {
    check(args)?;
    let authority = create_authority(&args.group).map_err(no_keys)?;
    create_directory(&args.out)?;
    write_private(&args.out.join("authority.key"), &authority.key().serialize_pem())?;
    for (index, name) in args.names.iter().enumerate() {
        let directory = args.out.join(name);
        create_directory(&directory)?;
        write_keys(&directory, name, &authority)?;
        write_private(&directory.join("hallpass.toml"), &config(args, index))?;
    }
    let out = args.out.display();
    let first = &args.names[0];
    terminal::print(&format!(
        "created keys and configurations for {} members of group {} in {out}\n\
         \n  copy {out}/NAME to each host, then run there: hallpass agent --config NAME/hallpass.toml\
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
    if let Some((_, name)) = args.names.iter().enumerate().find(|(index, name)| args.names[..*index].contains(name)) {
        return Err(Fault::Usage(format!("member '{name}' is named twice")));
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

fn create_authority(group: &str) -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, format!("hallpass group {group}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn write_keys(directory: &Path, name: &str, authority: &Authority) -> Result<(), Fault> {
    let key = KeyPair::generate().map_err(no_keys)?;
    let mut params = CertificateParams::new(vec![name.to_owned(), MEMBER.to_owned()]).map_err(no_keys)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, authority).map_err(no_keys)?;
    write_private(&directory.join("node.key"), &key.serialize_pem())?;
    write_private(&directory.join("node.pem"), &certificate.pem())?;
    write_private(&directory.join("authority.pem"), &authority.pem())
}

fn no_keys(error: rcgen::Error) -> Fault {
    Fault::Failed(format!("cannot create keys: {error}"))
}

/// The configuration file of one member.
fn config(args: &InitArgs, index: usize) -> String {
    let address = |index: usize| {
        if args.loopback {
            format!("127.0.0.1:{}", args.port + index as u16)
        } else {
            format!("{}:{}", args.names[index], args.port)
        }
    };
    let peer = |(index, name): (usize, &String)| format!("\"{name}@{}\"", address(index));
    let peers: Vec<String> = args.names.iter().enumerate().map(peer).collect();
    let listen = if args.loopback { address(index) } else { format!("0.0.0.0:{}", args.port) };
    format!(
        "# Created by 'hallpass init'. Paths are relative to this file.\n\
         group = \"{}\"\nname = \"{}\"\nlisten = \"{listen}\"\nadvertise = \"{}\"\n\
         peers = [{}]\nkeys = \".\"\ndata = \"data\"\nsocket = \"agent.sock\"\n",
        args.group,
        args.names[index],
        address(index),
        peers.join(", ")
    )
}

fn create_directory(path: &Path) -> Result<(), Fault> {
    os::create_private_directory(path).map_err(|error| cannot_write(path, error))
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> Result<(), Fault> {
    let written = os::create_private_file(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| cannot_write(path, error))
}

fn cannot_write(path: &Path, error: std::io::Error) -> Fault {
    Fault::Write { target: path.display().to_string(), error }
}
