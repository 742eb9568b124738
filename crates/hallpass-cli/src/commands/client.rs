//! `locks`, `members` and `status`: they show what a running agent knows.

use hallpass_agent::line_protocol::{ClientLine, LockLine, MemberLine, Request, Response, StatusLine, age};
use hallpass_agent::{Client, ClientError};
use hallpass_core::Fence;

use super::args::{ClientArgs, LocksArgs};
use super::paths::{self, Found};
use crate::exit::{Fault, Outcome};
use crate::terminal::{self, Facts, Paint, grouped};

/// Below this share of remaining fences, `status` warns. At full speed hours are left.
const FENCES_LOW: f64 = 0.5;
/// How many locks a table shows unless more are asked for.
const TABLE_ROWS: usize = 1000;
/// Longer names and commands are cut in tables.
const CELL_CHARS: usize = 40;

pub(crate) fn locks(args: &LocksArgs) -> Result<Outcome, Fault> {
    let limit = args.limit.or((!args.client.json).then_some(TABLE_ROWS));
    let request = Request::Locks { prefix: args.prefix.clone(), held: args.held, after: None, limit };
    let mut client = connect(&args.client)?;
    let (locks, more) = match ask(&mut client, &request)? {
        Response::Locks { locks, more } => (locks, more),
        other => return Err(unexpected(&other)),
    };
    if args.client.json {
        terminal::print_json(serde_json::to_string_pretty(&locks))?;
        return Ok(Outcome::Fine);
    }
    if locks.is_empty() {
        let uses = if args.held { "held or waited for" } else { "held, waited for or cached" };
        let named = if args.prefix.is_empty() { "no lock" } else { "no lock with this prefix" };
        let place = if client.private { "by this user's private agent" } else { "on this node" };
        terminal::print(&format!("{named} is {uses} {place}\n"))?;
    } else {
        table(&["lock", "where", "held by", "waiting here", "fence", "protocol"], locks.iter().map(lock_row))?;
    }
    if more > 0 {
        terminal::print(&format!(
            "and {} more; --limit shows more, --prefix and --held fewer\n",
            grouped(more as u64)
        ))?;
    }
    Ok(Outcome::Fine)
}

fn lock_row(lock: &LockLine) -> Vec<String> {
    let place = match &lock.held {
        Some(mode) => format!("{}, {mode}", lock.place),
        None => lock.place.clone(),
    };
    vec![
        cut(&lock.name.escape_debug().to_string()),
        place,
        clients(&lock.held_by),
        clients(&lock.waiting),
        lock.fence.clone(),
        lock.protocol.clone(),
    ]
}

/// Shows the first client, and how many more there are.
fn clients(all: &[ClientLine]) -> String {
    let Some((first, rest)) = all.split_first() else { return String::new() };
    let command = first.command.as_ref().map_or_else(String::new, |command| format!(" {command}"));
    let who = first.pid.map_or_else(|| first.node.clone(), |pid| format!("{pid}{command}"));
    let user = first.user.as_ref().map_or_else(String::new, |user| format!(" {user}"));
    let since = first.for_ms.map_or_else(String::new, |ms| format!(" {}", age(ms)));
    let more = if rest.is_empty() { String::new() } else { format!(" +{}", rest.len()) };
    format!("{}{user}{since}{more}", cut(&who))
}

/// Cuts a long text, so that it does not widen a table.
fn cut(text: &str) -> String {
    if text.chars().count() <= CELL_CHARS {
        return text.to_owned();
    }
    text.chars().take(CELL_CHARS - 1).chain(['…']).collect()
}

pub(crate) fn members(args: &ClientArgs) -> Result<Outcome, Fault> {
    let members = match request(args, &Request::Members)? {
        Response::Members { members } => members,
        other => return Err(unexpected(&other)),
    };
    if args.json {
        terminal::print_json(serde_json::to_string_pretty(&members))?;
    } else {
        let mut header = vec!["id", "name", "address", "incarnation", "votes", "session", "state"];
        let has_keys = members.iter().any(|member| !member.keys.is_empty());
        if has_keys {
            header.insert(KEY_COLUMN, "key");
        }
        table(&header, members.into_iter().map(|member| member_row(member, has_keys)))?;
    }
    Ok(Outcome::Fine)
}

/// Before the state, which may end with a whole sentence.
const KEY_COLUMN: usize = 6;

fn member_row(member: MemberLine, has_keys: bool) -> Vec<String> {
    let connected = match (member.this, member.connected) {
        (true, _) => ", this node",
        (_, true) => "",
        (_, false) => ", not connected",
    };
    let steward = if member.steward { ", steward" } else { "" };
    let why = member.trouble.map_or_else(String::new, |why| format!(": {why}"));
    let mut row = vec![
        if member.id == 0 { "?".to_owned() } else { member.id.to_string() },
        member.name.unwrap_or_else(|| "?".to_owned()),
        if member.address.ends_with(":0") { "none".to_owned() } else { member.address },
        member.incarnation.to_string(),
        if member.voter { "yes" } else { "no" }.to_owned(),
        member.session_ms.map_or_else(String::new, age),
        format!("{}{steward}{connected}{why}", member.state),
    ];
    if has_keys {
        row.insert(KEY_COLUMN, member.keys.join(", "));
    }
    row
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
    let waits_for = status.waits_for.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    let others = status.members.saturating_sub(1);
    let state = match status.view.as_str() {
        "open" if status.connected >= others => paint.green("grants locks"),
        "open" => paint.green("grants locks ('hallpass members' says who is missing)"),
        "changing" => paint.yellow(&format!("begins the next view{waits_for}")),
        "lapsed" => paint.red(&format!("has lost its session, and everything that was held here{waits_for}")),
        _ => paint.yellow(&format!("is in no group yet{waits_for}")),
    };
    let mut facts = Facts::new();
    let private = if status.private { ": this user's private agent" } else { "" };
    facts.add("node", format!("{} of group {}{private}", status.node, status.group));
    facts.add("state", state);
    facts.add("members", format!("{}, {} of {others} others connected", status.members, status.connected));
    facts.add("steward", status.steward.as_deref().unwrap_or("none known"));
    facts.add("voters", if status.voters.is_empty() { "none known".to_owned() } else { status.voters.join(", ") });
    let ttl = age(status.ttl_ms);
    facts.add(
        "session",
        match status.session_ms {
            None => format!("needs none; {ttl} in a group of several"),
            Some(left) => format!("{} left of {ttl}", age(left)),
        },
    );
    facts.add("encrypted", if status.encrypted { "yes" } else { "no, loopback only" });
    let banned: Vec<String> = status.banned.iter().map(|name| name.escape_debug().to_string()).collect();
    if !banned.is_empty() {
        facts.add("banned", banned.join(", "));
    }
    if !status.banned_keys.is_empty() {
        facts.add("banned keys", status.banned_keys.join(", "));
    }
    facts.add("epoch", status.epoch.map_or("none yet".to_owned(), |epoch| epoch.to_string()));
    facts.add("clients", grouped(status.clients as u64));
    facts.add("locks", format!("{} held, waited for or cached here", grouped(status.locks as u64)));
    let left = status.fences_left as f64 / Fence::COUNT_MAX as f64;
    if left < FENCES_LOW {
        let share = format!("{:.0} % left in this view", left * 100.0);
        facts.add("fences", paint.yellow(&share));
    }
    facts.add("grants", grouped(status.grants));
    facts.add("messages", grouped(status.messages));
    facts
}

fn request(args: &ClientArgs, request: &Request) -> Result<Response, Fault> {
    ask(&mut connect(args)?, request)
}

pub(super) fn ask(client: &mut Client, request: &Request) -> Result<Response, Fault> {
    client.request(request).map_err(|error| match error {
        ClientError::Refused(why) => Fault::Failed(why),
        other => Fault::Unavailable(other.to_string()),
    })
}

/// The agent that `run` would use, if it runs.
pub(super) fn connect(args: &ClientArgs) -> Result<Client, Fault> {
    running(paths::find(args.socket.as_deref())?)
}

pub(super) fn running(found: Found) -> Result<Client, Fault> {
    match found {
        Found::Agent(client) => Ok(client),
        Found::Absent(_, fault) => Err(fault),
        Found::Own(own) => paths::connect(&own).map_err(|error| match error {
            ClientError::Absent { .. } => Fault::Unavailable(
                "no agent runs here; start one with 'hallpass agent', or name its --socket".to_owned(),
            ),
            other => Fault::Unavailable(other.to_string()),
        }),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_warned_before_its_fences_are_used_up() {
        let status = |fences_left: u64| StatusLine {
            group: "g".to_owned(),
            node: "n".to_owned(),
            complete: true,
            epoch: Some(1),
            encrypted: false,
            members: 1,
            connected: 0,
            clients: 0,
            locks: 0,
            messages: 0,
            grants: 0,
            fences_left,
            private: false,
            view: "open".to_owned(),
            steward: None,
            voters: Vec::new(),
            session_ms: None,
            ttl_ms: 5000,
            waits_for: None,
            banned: Vec::new(),
            banned_keys: Vec::new(),
        };
        assert!(!status_facts(&status(Fence::COUNT_MAX)).render().contains("fences"));
        let shown = status_facts(&status(Fence::COUNT_MAX / 5)).render();
        assert!(shown.contains("20 % left"), "{shown}");
    }

    #[test]
    fn a_table_is_as_wide_as_short_names_make_it() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"n".repeat(255)).chars().count(), CELL_CHARS);
    }
}
