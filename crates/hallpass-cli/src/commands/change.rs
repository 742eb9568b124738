//! Changes of a group: `join`, `leave`, `evict`, `break`, `class set`, `recover`. Each returns when it has taken effect.

use std::time::Duration;

use hallpass::StartError;
use hallpass_agent::line_protocol::{Request, Response};
use hallpass_agent::{Client, ClientError};
use serde_json::{Value, json};

use super::args::{BreakArgs, ClassCommand, EvictArgs, GroupArgs, JoinArgs, RecoverArgs};
use super::certificates;
use super::client::{ask, connect, running, unexpected};
use super::paths::{self, Found};
use crate::exit::{Fault, Outcome, TEMPORARY};
use crate::terminal;

/// How much longer than the group an agent may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn join(args: &JoinArgs) -> Result<Outcome, Fault> {
    let address = args.address.clone();
    let request = Request::Join { address: address.clone(), timeout_ms: limit(&args.group) };
    let text = format!("the agent is a member of the group of {address}; it stays one over restarts\n");
    change(&args.group, &request, &json!({"joined": address}), &text)
}

pub(crate) fn evict(args: &EvictArgs) -> Result<Outcome, Fault> {
    if let Some(key) = args.ban_key.as_ref().or(args.admit_key.as_ref()) {
        return ban_key(&certificates::key_digest(key)?.to_string(), args.ban_key.is_some(), &args.group);
    }
    let node = args.node.clone().unwrap_or_default();
    let (shown, timeout_ms) = (node.escape_debug(), limit(&args.group));
    if args.admit {
        let text = format!("nodes of the name '{shown}' are admitted again\n");
        return change(
            &args.group,
            &Request::Admit { name: node.clone(), timeout_ms },
            &json!({"admitted": node}),
            &text,
        );
    }
    let request = Request::Evict { node: node.clone(), ban: args.ban, timeout_ms };
    let ban = if args.ban {
        format!("; no node of its name is admitted again, until 'hallpass evict {shown} --admit'")
    } else {
        "; it joins again if its agent runs".to_owned()
    };
    let text = format!("member '{shown}' is out of the group{ban}\n");
    change(&args.group, &request, &json!({"evicted": node, "banned": args.ban}), &text)
}

fn ban_key(key: &str, is_banned: bool, group: &GroupArgs) -> Result<Outcome, Fault> {
    let (request_key, timeout_ms) = (key.to_owned(), limit(group));
    if is_banned {
        let text = format!("no member accepts the key {key} any more, until 'hallpass evict --admit-key {key}'\n");
        return change(group, &Request::BanKey { key: request_key, timeout_ms }, &json!({"banned_key": key}), &text);
    }
    let text = format!("members accept the key {key} again\n");
    change(group, &Request::AdmitKey { key: request_key, timeout_ms }, &json!({"admitted_key": key}), &text)
}

pub(crate) fn break_lock(args: &BreakArgs) -> Result<Outcome, Fault> {
    let lock = args.lock.clone();
    let text = format!("lock '{}' is broken: its holders have lost it\n", lock.escape_debug());
    let request = Request::Break { lock: lock.clone(), timeout_ms: limit(&args.group) };
    change(&args.group, &request, &json!({"broken": lock}), &text)
}

pub(crate) fn class(command: &ClassCommand) -> Result<Outcome, Fault> {
    let ClassCommand::Set(args) = command;
    let (prefix, protocol, options) = (args.prefix.clone(), args.protocol.clone(), args.options.clone());
    let text = format!("locks whose names begin with '{}' use {protocol} on all members\n", prefix.escape_debug());
    let document = json!({"prefix": prefix, "protocol": protocol, "options": options});
    let request = Request::SetClass { prefix, protocol, options, timeout_ms: limit(&args.group) };
    change(&args.group, &request, &document, &text)
}

/// Ends the agent for good, and returns when it has left its group and ended.
pub(crate) fn leave(args: &GroupArgs) -> Result<Outcome, Fault> {
    let text = match paths::find(args.client.socket.as_deref())? {
        Found::Absent(absent, _) if paths::give_up_membership(&absent)? => MEMBERSHIP_ENDED,
        found => {
            let mut client = running(found)?;
            match ask(&mut client, &Request::Leave { timeout_ms: limit(args) })? {
                Response::Leaving => {}
                other => return Err(unexpected(&other)),
            }
            wait_for_end(&mut client)?;
            if client.private {
                "this user's private agent has ended; the next 'run' starts another\n"
            } else {
                "the agent has ended, and left its group\n"
            }
        }
    };
    print(args.client.json, &json!({"left": true}), text)
}

const MEMBERSHIP_ENDED: &str = "no agent ran; removed the membership marker, so 'run' starts private agents; the group still expects this member: \
     'hallpass evict' on another member ends that\n";

/// The agent says whether its group let it go, and closes the connection when it has ended.
fn wait_for_end(client: &mut Client) -> Result<(), Fault> {
    let mut left = Ok(());
    loop {
        match client.receive() {
            Ok(Response::Late { .. }) => {
                left = Err(Fault::Unavailable(
                    "the agent has ended, but its group has not let it go in time: too few of the members that vote can be \
                     reached; start it and try again, or evict it from another member"
                        .to_owned(),
                ));
            }
            Err(ClientError::Refused(why)) => {
                left = Err(Fault::Failed(format!("the agent has ended, but has not left its group: {why}")));
            }
            Ok(_) => {}
            Err(_) => return left,
        }
    }
}

pub(crate) fn recover(args: &RecoverArgs) -> Result<Outcome, Fault> {
    let epoch = hallpass::recover(&args.data).map_err(|error| match error {
        StartError::InUse(path) => Fault::Code(
            TEMPORARY,
            format!(
                "an agent uses {}; stop it first: a group that has its majority must not be recovered",
                path.display()
            ),
        ),
        other => Fault::Failed(other.to_string()),
    })?;
    let text = format!(
        "this member is a group of its own now, from epoch {epoch} on; start its agent, then let the others join it, each with an \
         empty data directory\n"
    );
    print(args.json, &json!({"epoch": epoch}), &text)
}

fn limit(args: &GroupArgs) -> Option<u64> {
    Some(args.timeout.as_millis() as u64)
}

/// Asks for a change, and says when it has taken effect.
fn change(args: &GroupArgs, request: &Request, document: &Value, text: &str) -> Result<Outcome, Fault> {
    let mut client = connect(&args.client)?;
    match client.request_within(request, Some(args.timeout + ANSWER_TIMEOUT)) {
        Ok(Response::Done) => print(args.client.json, document, text),
        Ok(Response::Late { why }) => {
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            Err(Fault::Unavailable(format!(
                "the group has not confirmed it within {:?}: too few of the members that vote can be reached{why}. It may have taken \
                 effect, or may do so later: see 'hallpass members' and 'hallpass status'",
                args.timeout
            )))
        }
        Ok(other) => Err(unexpected(&other)),
        Err(ClientError::Refused(why)) => Err(Fault::Failed(why)),
        Err(error) => Err(Fault::Unavailable(error.to_string())),
    }
}

fn print(json: bool, document: &Value, text: &str) -> Result<Outcome, Fault> {
    if json {
        terminal::print_json(serde_json::to_string_pretty(document))?;
    } else {
        terminal::print(text)?;
    }
    Ok(Outcome::Fine)
}
