//! Questions to an agent.

use hallpass_agent::talk::{Request, Response};
use hallpass_agent::{Client, ClientError};

use super::args::AskArgs;
use super::paths;
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, Facts, Paint, grouped};

fn ask(args: &AskArgs, request: &Request) -> Result<Response, Fault> {
    let mut client = connect(args)?;
    client.ask(request).map_err(|error| match error {
        ClientError::Refused(why) => Fault::Failed(why),
        other => Fault::Unavailable(other.to_string()),
    })
}

/// The agent that was named, or one that listens where agents do, or the private one if it runs.
fn connect(args: &AskArgs) -> Result<Client, Fault> {
    if let Some(client) = paths::connect(args.socket.as_deref())? {
        return Ok(client);
    }
    Client::connect(&paths::private_socket(&paths::private_directory())).map_err(|error| match error {
        ClientError::Absent { .. } => {
            Fault::Unavailable("no agent runs here; start one with 'hallpass agent', or name its --socket".to_owned())
        }
        other => Fault::Unavailable(other.to_string()),
    })
}

fn nonsense(response: &Response) -> Fault {
    Fault::Failed(format!("the agent answers with nonsense: {response:?}"))
}

pub(super) fn locks(args: &AskArgs) -> Result<Outcome, Fault> {
    let locks = match ask(args, &Request::Locks)? {
        Response::Locks { locks } => locks,
        other => return Err(nonsense(&other)),
    };
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&locks))?;
        return Ok(Outcome::Fine);
    }
    if locks.is_empty() {
        terminal::print("no lock is held, waited for or cached on this node\n")?;
        return Ok(Outcome::Fine);
    }
    let rows = locks.iter().map(|lock| {
        let held = lock.held.as_deref().map_or("cached".to_owned(), |mode| match lock.holders {
            1 => mode.to_owned(),
            holders => format!("{mode} x{holders}"),
        });
        let held = if lock.held.is_none() && lock.waiters > 0 { "elsewhere".to_owned() } else { held };
        vec![
            lock.name.escape_debug().to_string(),
            held,
            lock.waiters.to_string(),
            lock.fence.clone(),
            lock.protocol.clone(),
        ]
    });
    table(&["lock", "held here", "waiting here", "last fence here", "protocol"], rows)?;
    Ok(Outcome::Fine)
}

pub(super) fn members(args: &AskArgs) -> Result<Outcome, Fault> {
    let members = match ask(args, &Request::Members)? {
        Response::Members { members } => members,
        other => return Err(nonsense(&other)),
    };
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&members))?;
        return Ok(Outcome::Fine);
    }
    let rows = members.iter().map(|member| {
        let state = match (member.this, member.connected, member.incarnation) {
            (true, ..) => "this node",
            (_, true, _) => "connected",
            (_, false, 0) => "not met yet",
            _ => "not connected",
        };
        let state = member.trouble.as_ref().map_or(state.to_owned(), |why| format!("{state}: {why}"));
        let name = member.name.clone().unwrap_or_else(|| "?".to_owned());
        vec![member.id.to_string(), name, member.address.clone(), member.incarnation.to_string(), state]
    });
    table(&["id", "name", "address", "life", "state"], rows)?;
    Ok(Outcome::Fine)
}

pub(super) fn status(args: &AskArgs) -> Result<Outcome, Fault> {
    let status = match ask(args, &Request::Status)? {
        Response::Status(status) => status,
        other => return Err(nonsense(&other)),
    };
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&status))?;
        return Ok(Outcome::Fine);
    }
    let paint = Paint::stdout();
    let mut facts = Facts::new();
    facts.add("node", format!("{} of group {}", status.node, status.group));
    let others = status.members - 1;
    let state = match (status.complete, status.connected == others) {
        (true, true) => paint.green("grants locks"),
        (true, false) => paint.yellow("grants what needs nobody who is gone"),
        (false, _) => paint.yellow("waits for the other members ('hallpass members' says for whom and why)"),
    };
    facts.add("state", state);
    facts.add("members", format!("{}, {} of {others} others connected", status.members, status.connected));
    facts.add("encrypted", if status.encrypted { "yes" } else { "no, loopback only" });
    facts.add("epoch", status.epoch.map_or("none yet".to_owned(), |epoch| epoch.to_string()));
    facts.add("clients", grouped(status.clients as u64));
    facts.add("locks", format!("{} held, waited for or cached here", grouped(status.locks as u64)));
    facts.add("grants", grouped(status.grants));
    facts.add("messages", grouped(status.messages));
    terminal::print(&facts.render())?;
    Ok(Outcome::Fine)
}

pub(super) fn leave(args: &AskArgs) -> Result<Outcome, Fault> {
    match ask(args, &Request::Leave)? {
        Response::Leaving => {}
        other => return Err(nonsense(&other)),
    }
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&serde_json::json!({"left": true})))?;
    } else {
        terminal::print(
            "the agent has ended; with a fixed list of members the others wait until all are started anew\n",
        )?;
    }
    Ok(Outcome::Fine)
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Result<(), Fault> {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new()).set_header(header);
    table.add_rows(rows);
    terminal::print(&format!("{}\n", table.trim_fmt()))
}
