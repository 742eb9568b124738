//! The metrics of an agent, in Prometheus's text format.
//!
//! Nothing is counted for this alone where clients wait: the numbers are those that the node and the service keep anyway, looked at
//! when somebody asks. Names and meanings are a contract, as those of the API are.

use std::fmt::Write;
use std::time::Instant;

use hallpass::{Counters, Status, ViewState};

use super::Api;
use crate::account::{Account, Quota};
use crate::registry::counts::Histogram;
use crate::service::Service;
use crate::shared::AgentShared;

/// All metrics, in the text format.
pub(crate) fn text(api: &Api) -> String {
    let shared = api.service.shared();
    let node = shared.node();
    let (status, counters) = (shared.node_status(), node.counters());
    let mut text = Text::default();
    group(&mut text, &status, &counters);
    locks(&mut text, shared, &status, &counters);
    clients(&mut text, &api.service);
    traffic(&mut text, api);
    tokens(&mut text, api);
    text.0
}

fn group(text: &mut Text, status: &Status, counters: &Counters) {
    text.about("hallpass_info", "gauge", "The agent's node: 1, with its names.");
    let labels = [("group", status.group.as_str()), ("node", &status.name), ("version", env!("CARGO_PKG_VERSION"))];
    text.labelled("hallpass_info", &labels, 1);
    text.about("hallpass_view_state", "gauge", "The state of the node's view: 1 for the one it is in.");
    let states = [
        ("open", ViewState::Open),
        ("changing", ViewState::Changing),
        ("lapsed", ViewState::Lapsed),
        ("joining", ViewState::Joining),
    ];
    for (name, state) in states {
        text.labelled("hallpass_view_state", &[("state", name)], u64::from(status.view == state));
    }
    text.one("hallpass_ready", "gauge", "1 if locks are granted.", u64::from(status.complete));
    text.one(
        "hallpass_epoch",
        "gauge",
        "The number of the view; it rises with every change of the members.",
        status.epoch.unwrap_or(0),
    );
    text.one("hallpass_views_total", "counter", "Views that this node has taken part in.", counters.views);
    let help = "Sessions of this node that ran out: it was cut off, and lost its locks.";
    text.one("hallpass_session_lapses_total", "counter", help, counters.lapses);
    let help = "How often this node was elected the steward.";
    text.one("hallpass_elections_total", "counter", help, counters.elections);
    let help = "Control messages that were dropped because their senders may not send them.";
    text.one("hallpass_dropped_control_messages_total", "counter", help, counters.denied);
    let is_steward = status.steward == Some(status.id);
    text.one("hallpass_steward", "gauge", "1 if this node is the steward.", u64::from(is_steward));
    let help = "1 if this node knows a steward.";
    text.one("hallpass_steward_known", "gauge", help, u64::from(status.steward.is_some()));
    text.one("hallpass_ttl_seconds", "gauge", "How long a session lasts.", status.ttl.as_secs_f64());
    let help =
        "How long this node's locks are certain without a word from the group; -1 if nothing can take them away.";
    let left = match (status.view, status.session) {
        (ViewState::Lapsed | ViewState::Joining, _) => 0.0,
        (_, left) => left.map_or(-1.0, |left| left.as_secs_f64()),
    };
    text.one("hallpass_session_seconds", "gauge", help, left);
    let members = status.members.iter().filter(|member| member.in_view).count();
    text.one("hallpass_members", "gauge", "Members of the view.", members as u64);
    let help = "Members of the view, other than this one, that it is connected with.";
    let connected =
        status.members.iter().filter(|member| member.in_view && member.connected && !member.is_this).count();
    text.one("hallpass_members_connected", "gauge", help, connected as u64);
    text.one("hallpass_voters", "gauge", "Members that vote.", status.voters.len() as u64);
    let is_here = |id: u32| id == status.id || status.members.iter().any(|member| member.id == id && member.connected);
    let here = status.voters.iter().filter(|id| is_here(**id)).count();
    let help = "Members that vote and are connected with this one, and this one if it votes.";
    text.one("hallpass_voters_connected", "gauge", help, here as u64);
    let help = "Fences left in this view, for the lock that has used most of its own.";
    text.one("hallpass_fences_left", "gauge", help, status.fences_left);
}

fn locks(text: &mut Text, shared: &AgentShared, status: &Status, counters: &Counters) {
    text.one("hallpass_grants_total", "counter", "Locks granted on this node.", status.grants);
    text.one(
        "hallpass_locks",
        "gauge",
        "Locks that this node keeps in memory: held, waited for or cached.",
        status.locks as u64,
    );
    let (held, waiting) = shared.clients.counts();
    text.one("hallpass_held", "gauge", "Locks that clients of this agent hold.", held as u64);
    text.one("hallpass_waiting", "gauge", "Clients of this agent that wait for a lock.", waiting as u64);
    let help = "Clients of this agent that wait for the lock that most of them wait for.";
    text.one("hallpass_queue_depth_max", "gauge", help, shared.clients.longest_queue() as u64);
    let help = "How long clients of this agent waited for locks that they got.";
    text.histogram("hallpass_wait_seconds", help, &shared.counts.waits);
    text.histogram("hallpass_hold_seconds", "How long clients of this agent held locks.", &shared.counts.holds);
    let help = "Locks that clients of this agent lost without releasing them.";
    text.one("hallpass_losses_total", "counter", help, shared.counts.losses.get());
    let counts = &shared.counts;
    let help = "Requests for locks that were not granted: busy (only tried), timeout, cancelled (the client has gone or given up), refused.";
    text.about("hallpass_refusals_total", "counter", help);
    let reasons = [
        ("busy", &counts.busy),
        ("timeout", &counts.late),
        ("cancelled", &counts.cancelled),
        ("refused", &counts.refused),
    ];
    for (reason, count) in reasons {
        text.labelled("hallpass_refusals_total", &[("reason", reason)], count.get());
    }
    text.about("hallpass_messages_total", "counter", "Protocol messages that this node has sent.");
    for ((protocol, kind), count) in &counters.messages {
        text.labelled("hallpass_messages_total", &[("protocol", protocol), ("kind", kind)], *count);
    }
}

fn clients(text: &mut Text, service: &Service) {
    let shared = service.shared();
    let help = "Clients of this agent: connections to its socket, and leases.";
    text.one("hallpass_clients", "gauge", help, shared.clients.len() as u64);
    text.one("hallpass_leases", "gauge", "Leases of clients of the API.", service.lease_count() as u64);
    let counts = &shared.counts;
    let help = "Leases, by what happened to them: granted, kept (a keepalive), revoked, expired, lost.";
    text.about("hallpass_leases_total", "counter", help);
    let events = [
        ("granted", &counts.leases_granted),
        ("kept", &counts.leases_kept),
        ("revoked", &counts.leases_revoked),
        ("expired", &counts.leases_expired),
        ("lost", &counts.leases_lost),
    ];
    for (event, count) in events {
        text.labelled("hallpass_leases_total", &[("event", event)], count.get());
    }
    let help = "Requests of the API that wait for locks.";
    text.one("hallpass_api_waiting", "gauge", help, counts.waiting.get() as u64);
}

fn traffic(text: &mut Text, api: &Api) {
    let (tcp, unix) = (&api.traffic.tcp, &api.traffic.unix);
    text.one("hallpass_api_connections", "gauge", "Connections to the API.", (tcp.len() + unix.len()) as u64);
    let help = "Connections to the API of unknown clients that were closed to make room for others.";
    text.one("hallpass_api_connections_shed_total", "counter", help, (tcp.shed() + unix.shed()) as u64);
    text.one("hallpass_api_event_streams", "gauge", "Clients that listen to events.", api.traffic.streams.get() as u64);
    text.one("hallpass_api_tokens_refused_total", "counter", "Tokens that are not valid.", api.access.refused());
    text.about(
        "hallpass_api_requests_total",
        "counter",
        "Requests of the API that were answered, by route and status.",
    );
    for ((route, status), count) in api.traffic.requests() {
        let status = status.to_string();
        text.labelled("hallpass_api_requests_total", &[("route", route), ("status", &status)], count);
    }
}

/// The quotas of tokens, where there are tokens.
fn tokens(text: &mut Text, api: &Api) {
    let Some(file) = api.access.tokens() else { return };
    let accounts = file.accounts();
    let mut all = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Account, Quota) -> Option<u64>| {
        text.about(name, kind, help);
        for account in accounts.iter() {
            for (quota, label) in Quota::ALL {
                if let Some(value) = value(account, quota) {
                    text.labelled(name, &[("token", &account.token().name), ("quota", label)], value);
                }
            }
        }
    };
    let help = "What clients with a token use now: leases, waits, watches, and requests of the last second.";
    let now = Instant::now();
    all("hallpass_token_used", "gauge", help, &|account, quota| Some(account.used(quota, now) as u64));
    let help = "What clients with a token may use, where its file says so.";
    all("hallpass_token_quota", "gauge", help, &|account, quota| account.max(quota).map(u64::from));
    let help = "Requests that were refused since a quota of their token was used up.";
    all("hallpass_token_refusals_total", "counter", help, &|account, quota| Some(account.refused(quota)));
}

/// A document in Prometheus's text format.
#[derive(Default)]
struct Text(String);

impl Text {
    fn about(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.about(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let _ = writeln!(self.0, "{name}{{{}}} {value}", labels.join(","));
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.about(name, "histogram", help);
        let (counts, sum) = histogram.cumulative();
        let bounds = Histogram::BOUNDS_NS.iter().map(|bound| (*bound as f64 / 1e9).to_string());
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&counts) {
            self.labelled(&format!("{name}_bucket"), &[("le", &bound)], count);
        }
        let _ = writeln!(self.0, "{name}_sum {sum}\n{name}_count {}", counts.last().copied().unwrap_or(0));
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
