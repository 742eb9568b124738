//! Requests to a running agent: `locks`, `members`, `status`, `leave`.

use hallpass_agent::api::{LockLine, MemberLine, Request, Response, StatusLine};
use hallpass_agent::{Client, ClientError};

use super::args::ClientArgs;
use super::paths;
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, Facts, Paint, grouped};

pub(crate) fn locks(args: &ClientArgs) -> Result<Outcome, Fault> {
    let locks = match request(args, &Request::Locks)? {
        Response::Locks { locks } => locks,
        other => return Err(unexpected(&other)),
    };
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&locks))?;
    } else if locks.is_empty() {
        terminal::print("no lock is held, waited for or cached on this node\n")?;
    } else {
        let header = ["lock", "held here", "waiting here", "last fence here", "protocol"];
        table(&header, locks.into_iter().map(lock_row))?;
    }
    Ok(Outcome::Fine)
}

fn lock_row(lock: LockLine) -> Vec<String> {
    let held = match (lock.held, lock.holders, lock.waiters) {
        (Some(mode), 1, _) => mode,
        (Some(mode), holders, _) => format!("{mode} x{holders}"),
        (None, _, 0) => "cached".to_owned(),
        (None, ..) => "elsewhere".to_owned(),
    };
    vec![lock.name.escape_debug().to_string(), held, lock.waiters.to_string(), lock.fence, lock.protocol]
}

pub(crate) fn members(args: &ClientArgs) -> Result<Outcome, Fault> {
    let members = match request(args, &Request::Members)? {
        Response::Members { members } => members,
        other => return Err(unexpected(&other)),
    };
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&members))?;
    } else {
        table(&["id", "name", "address", "incarnation", "state"], members.into_iter().map(member_row))?;
    }
    Ok(Outcome::Fine)
}

fn member_row(member: MemberLine) -> Vec<String> {
    let state = match (member.this, member.connected, member.incarnation) {
        (true, ..) => "this node",
        (_, true, _) => "connected",
        (_, false, 0) => "not connected yet",
        _ => "not connected",
    };
    let state = member.trouble.map_or(state.to_owned(), |why| format!("{state}: {why}"));
    let name = member.name.unwrap_or_else(|| "?".to_owned());
    vec![member.id.to_string(), name, member.address, member.incarnation.to_string(), state]
}

pub(crate) fn status(args: &ClientArgs) -> Result<Outcome, Fault> {
    let status = match request(args, &Request::Status)? {
        Response::Status(status) => status,
        other => return Err(unexpected(&other)),
    };
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&status))?;
    } else {
        terminal::print(&status_facts(&status).render())?;
    }
    Ok(Outcome::Fine)
}

fn status_facts(status: &StatusLine) -> Facts {
    let paint = Paint::stdout();
    let others = status.members - 1;
    let state = match (status.complete, status.connected == others) {
        (true, true) => paint.green("grants locks"),
        (true, false) => paint.yellow("grants only locks that need no missing member ('hallpass members' lists them)"),
        (false, _) => paint.yellow("waits for the other members ('hallpass members' lists them)"),
    };
    let mut facts = Facts::new();
    facts.add("node", format!("{} of group {}", status.node, status.group));
    facts.add("state", state);
    facts.add("members", format!("{}, {} of {others} others connected", status.members, status.connected));
    facts.add("encrypted", if status.encrypted { "yes" } else { "no, loopback only" });
    facts.add("epoch", status.epoch.map_or("none yet".to_owned(), |epoch| epoch.to_string()));
    facts.add("clients", grouped(status.clients as u64));
    facts.add("locks", format!("{} held, waited for or cached here", grouped(status.locks as u64)));
    facts.add("grants", grouped(status.grants));
    facts.add("messages", grouped(status.messages));
    facts
}

pub(crate) fn leave(args: &ClientArgs) -> Result<Outcome, Fault> {
    match request(args, &Request::Leave)? {
        Response::Leaving => {}
        other => return Err(unexpected(&other)),
    }
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&serde_json::json!({"left": true})))?;
    } else {
        terminal::print(
            "the agent has ended; what needs its node's permission waits until all members have been restarted\n",
        )?;
    }
    Ok(Outcome::Fine)
}

fn request(args: &ClientArgs, request: &Request) -> Result<Response, Fault> {
    connect(args)?.request(request).map_err(|error| match error {
        ClientError::Refused(why) => Fault::Failed(why),
        other => Fault::Unavailable(other.to_string()),
    })
}

/// The agent that was named, else one that listens at a default socket, else the private one if it runs.
fn connect(args: &ClientArgs) -> Result<Client, Fault> {
    if let Some(client) = paths::connect(args.socket.as_deref())? {
        return Ok(client);
    }
    let socket = paths::private_agent_socket(&paths::private_agent_directory());
    Client::connect(&socket).map_err(|error| match error {
        ClientError::Absent { .. } => {
            Fault::Unavailable("no agent runs here; start one with 'hallpass agent', or name its --socket".to_owned())
        }
        other => Fault::Unavailable(other.to_string()),
    })
}

/// A response that does not belong to the request.
pub(super) fn unexpected(response: &Response) -> Fault {
    Fault::Failed(format!("unexpected answer from the agent: {response:?}"))
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Result<(), Fault> {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new()).set_header(header);
    table.add_rows(rows);
    terminal::print(&format!("{}\n", table.trim_fmt()))
}
