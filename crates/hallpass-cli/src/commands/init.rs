//! `hallpass init`: keys and configurations for a group, ready to copy to its hosts.

use std::io::Write;
use std::path::Path;

use super::args::InitArgs;
use super::certificates::{self, Authority, Signed};
use crate::exit::{Fault, Outcome};
use crate::{os, terminal};

pub(crate) fn init(args: &InitArgs) -> Result<Outcome, Fault> {
    check_names(args)?;
    os::protect_memory();
    let text = match (&args.renew, &args.out) {
        (Some(directory), _) => renew(args, directory)?,
        (None, Some(out)) => create(args, out)?,
        (None, None) => return Err(Fault::Usage("name a directory with --out".to_owned())),
    };
    terminal::print(&text)?;
    Ok(Outcome::Fine)
}

fn create(args: &InitArgs, out: &Path) -> Result<String, Fault> {
    check_group(args, out)?;
    check_case(args, &args.names)?;
    let authority = Authority::create(&args.group)?;
    create_directory(out)?;
    write_private(&out.join("authority.key"), &authority.key())?;
    write_private(&out.join("authority.pem"), &authority.pem)?;
    let mut ends = String::new();
    for (index, name) in args.names.iter().enumerate() {
        let directory = out.join(name);
        create_directory(&directory)?;
        let signed = authority.sign(name, args.days)?;
        write_keys(&directory, &signed)?;
        write_private(&directory.join("authority.pem"), &authority.pem)?;
        write_private(&directory.join("hallpass.toml"), &config(args, index))?;
        ends = signed.ends.date().to_string();
    }
    let (out, first) = (out.display(), &args.names[0]);
    let start = if args.loopback {
        format!("run for each NAME: hallpass agent --config {out}/NAME/hallpass.toml")
    } else {
        format!("copy {out}/NAME to each host, then run there: hallpass agent --config NAME/hallpass.toml")
    };
    let socket = if args.loopback { format!("{out}/{first}") } else { first.clone() };
    Ok(format!(
        "created keys and configurations for {} members of group {} in {out}\n\
         \n  {start}\
         \n  clients on that host: hallpass run LOCK --socket {socket}/agent.sock -- COMMAND\
         \n  the certificates end on {ends}; before that: hallpass init --renew {out} --names {}\
         \n  {out}/authority.key signs certificates: keep it safe, no host needs it\n",
        args.names.len(),
        args.group,
        args.names.join(",")
    ))
}

/// Signs new certificates, also for names that are new. Configurations stay as they are.
fn renew(args: &InitArgs, directory: &Path) -> Result<String, Fault> {
    let authority = Authority::open(directory)?;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let existing: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    check_case(args, &existing)?;
    let mut lines = String::new();
    for name in &args.names {
        let directory = directory.join(name);
        create_directory(&directory)?;
        let signed = authority.sign(name, args.days)?;
        write_keys(&directory, &signed)?;
        // An existing file may have been changed on purpose: it has two certificates while the authority is replaced.
        if !directory.join("authority.pem").exists() {
            write_private(&directory.join("authority.pem"), &authority.pem)?;
        }
        lines += &format!("  {}: until {}\n", directory.display(), signed.ends.date());
    }
    Ok(format!(
        "signed new certificates\n{lines}\ncopy node.key and node.pem to each host, for a new member authority.pem too: \
         its agent reads them within seconds\n"
    ))
}

/// Refuses new names that differ from others only in case: they would be two members, and one directory on some systems.
fn check_case(args: &InitArgs, others: &[String]) -> Result<(), Fault> {
    let is_new = |name: &&String| args.renew.is_none() || !others.contains(name);
    for name in args.names.iter().filter(is_new) {
        let differs = |other: &&String| other.eq_ignore_ascii_case(name) && *other != name;
        if let Some(other) = others.iter().chain(&args.names).find(differs) {
            return Err(Fault::Usage(format!(
                "'{name}' and '{other}' differ only in upper and lower case: give one of the members another name"
            )));
        }
    }
    Ok(())
}

fn check_names(args: &InitArgs) -> Result<(), Fault> {
    let is_label = |name: &str| {
        (1..=63).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
            && name.as_bytes()[0].is_ascii_alphanumeric()
            && name.as_bytes()[name.len() - 1].is_ascii_alphanumeric()
    };
    if let Some(name) = args.names.iter().find(|name| !is_label(name)) {
        return Err(Fault::Usage(format!(
            "'{name}' is not a valid name of a member: letters, digits, hyphens and dots, as in host names"
        )));
    }
    if let Some(name) = args.names.iter().find(|name| name.eq_ignore_ascii_case(certificates::MEMBER)) {
        return Err(Fault::Usage(format!(
            "no member can have the name '{name}': certificates of all members are valid for it"
        )));
    }
    for (index, name) in args.names.iter().enumerate() {
        if args.names[..index].contains(name) {
            return Err(Fault::Usage(format!("member '{name}' is named twice")));
        }
    }
    Ok(())
}

fn check_group(args: &InitArgs, out: &Path) -> Result<(), Fault> {
    if !(1..=64).contains(&args.group.len())
        || !args.group.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        return Err(Fault::Usage(format!(
            "'{}' is not a valid name of a group: up to 64 letters, digits, '-', '_' and '.'",
            args.group
        )));
    }
    let last = usize::from(args.port) + if args.loopback { args.names.len() - 1 } else { 0 };
    if args.port == 0 || last > usize::from(u16::MAX) {
        return Err(Fault::Usage(format!("there are no ports from {} on for {} members", args.port, args.names.len())));
    }
    let used = std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if used {
        return Err(Fault::Usage(format!("{} exists and is not empty; name another --out", out.display())));
    }
    Ok(())
}

fn write_keys(directory: &Path, signed: &Signed) -> Result<(), Fault> {
    write_private(&directory.join("node.key"), &signed.key)?;
    write_private(&directory.join("node.pem"), &signed.certificate)
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
    // All addresses of the host, of IPv6 and IPv4.
    let listen = if args.loopback { address(index) } else { format!("[::]:{}", args.port) };
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

/// Writes a file that only its owner can read. It replaces one that is there, at once.
fn write_private(path: &Path, text: &str) -> Result<(), Fault> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let _ = std::fs::remove_file(&new);
    let written = os::create_private_file(new.as_ref()).and_then(|mut file| file.write_all(text.as_bytes()));
    written.and_then(|()| std::fs::rename(&new, path)).map_err(|error| cannot_write(path, error))
}

fn cannot_write(path: &Path, error: std::io::Error) -> Fault {
    Fault::Write { target: path.display().to_string(), error }
}
