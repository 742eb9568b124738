//! What the page asks for: pure functions from a request to a document.

use std::collections::BTreeMap;

use hallpass_core::NodeId;
use hallpass_lab::scenario::{self, Playback};
use hallpass_lab::sweep::{SweepSpec, measure_watched};
use hallpass_lab::traps::{Lockstep, TrapStory};
use hallpass_lab::{Flow, LabError, RunSpec, simulate_watched};
use hallpass_sim::cluster::{self, Cut, Story, StoryFault, StoryFaultKind, StorySpec};
use hallpass_sim::trace::{self, StateChange, Trace};
use hallpass_sim::{Report, parse_duration};
use serde_json::{Value, json};

use crate::jobs::Watch;
use crate::query::{Query, protocols};
use crate::stream::Teller;

/// With more changes of state than this the page asks for the states at one moment instead.
const STATES_MAX: usize = 30_000;
/// Larger groups than this have too many variables to send all of their changes.
const STATES_NODES_MAX: u32 = 200;
/// The most steps of a game: all of them are taken again for the next one.
const STEPS_MAX: usize = 2000;
/// The most nodes of the swarm's own runs, which have fewer callers a node.
const SWARM_NODES_MAX: u64 = 60;
const SWARM_CALLERS_MAX: u64 = 8;
/// Nobody compares larger groups while they wait.
const SWEEP_NODES_MAX: u32 = 300;

// ---- runs ----

pub(crate) fn run(query: Query, watch: &Watch) -> Result<String, LabError> {
    let spec = query.run()?;
    let spec = RunSpec { keep_states: spec.nodes <= STATES_NODES_MAX, ..spec };
    let report = simulate(&spec, watch)?;
    Ok(run_document(&spec, &report))
}

fn simulate(spec: &RunSpec, watch: &Watch) -> Result<Report, LabError> {
    simulate_watched(spec, |_| watch.flow())
}

fn run_document(spec: &RunSpec, report: &Report) -> String {
    let trace = report.trace.as_ref().expect("the run was asked to keep its trace");
    let has_all = spec.keep_states && report.states.len() <= STATES_MAX;
    let states = if has_all { states(&report.states) } else { "null".to_owned() };
    let numbers = serde_json::to_string(report).expect("numbers and text are JSON");
    format!(
        "{{\"command\": {},\n\"report\": {numbers},\n\"trace\": {},\n\"x\": {},\n\"states\": {states}}}\n",
        json!(spec.command()),
        trace::to_json(trace),
        trace::columns_json(trace),
    )
}

/// The states of all nodes after the first `at` events.
pub(crate) fn state(mut query: Query, watch: &Watch) -> Result<String, LabError> {
    let at = query.take_number("at", 0, 0, u64::MAX)? as usize;
    let report = simulate(&RunSpec { keep_states: true, ..query.run()? }, watch)?;
    let mut last = std::collections::BTreeMap::new();
    for change in report.states.iter().filter(|change| change.from <= at) {
        last.insert(change.node, change);
    }
    Ok(states(last.into_values()))
}

pub(crate) fn trace_json(query: Query, watch: &Watch) -> Result<String, LabError> {
    drawn(query, watch).map(|trace| trace::to_json(&trace))
}

pub(crate) fn trace_svg(query: Query, watch: &Watch) -> Result<String, LabError> {
    drawn(query, watch).map(|trace| trace::to_svg(&trace))
}

pub(crate) fn trace_text(query: Query, watch: &Watch) -> Result<String, LabError> {
    drawn(query, watch).map(|trace| trace::to_text(&trace))
}

/// The trace of a run, or of a shipped scenario.
fn drawn(mut query: Query, watch: &Watch) -> Result<Trace, LabError> {
    match query.take("scenario") {
        Some(name) => Ok(scenario::play_shipped(&name, None)?.trace),
        None => {
            let report = simulate(&query.run()?, watch)?;
            Ok(report.trace.expect("the run was asked to keep its trace"))
        }
    }
}

/// Changes of state as `[from, node, [[name, value], ..]]`.
fn states<'a>(changes: impl IntoIterator<Item = &'a StateChange>) -> String {
    let records =
        changes.into_iter().map(|change| json!([change.from, change.node.0, change.variables.pairs()]).to_string());
    format!("[{}]", records.collect::<Vec<_>>().join(",\n"))
}

// ---- scenarios, traps, play ----

pub(crate) fn scenario(mut query: Query, _: &Watch) -> Result<String, LabError> {
    let name = query.take("name").unwrap_or_default();
    let played = scenario::play_shipped(&name, None)?;
    Ok(playback(&played, scenario::shipped(&name)))
}

pub(crate) fn play(text: &str) -> Result<String, LabError> {
    // An exploration or a long run is not a step of a game, and has its own page.
    let is_work = |line: &str| ["explore ", "simulate "].iter().any(|word| line.trim_start().starts_with(word));
    if text.lines().any(is_work) {
        return Err(LabError(
            "here a scenario only takes steps; 'hallpass lab trace --scenario FILE' explores".to_owned(),
        ));
    }
    let ticks = text.lines().filter_map(|line| line.strip_prefix("tick ")?.trim().parse::<usize>().ok());
    let steps = text.lines().filter(|line| line.starts_with("----")).count() + ticks.sum::<usize>();
    if steps > STEPS_MAX {
        return Err(LabError(format!("a game has at most {STEPS_MAX} steps")));
    }
    scenario::play(text, None).map(|played| playback(&played, None))
}

/// A scenario as it was played. `text` is what was given, if it is not to be replaced by what came out.
fn playback(played: &Playback, text: Option<&str>) -> String {
    let steps: Vec<Value> = played
        .steps
        .iter()
        .map(|step| {
            json!({
                "command": step.command, "comment": step.comment, "lines": step.actual, "events": step.events,
                "skipped": step.is_skipped, "line": step.line,
            })
        })
        .collect();
    let next: Vec<Value> = played
        .next
        .iter()
        .map(|choice| {
            json!({
                "command": choice.command, "kind": choice.kind, "node": choice.node.map(|node| node.0),
                "message": choice.message.as_ref().map(|(from, to, text)| json!([from.0, to.0, text])),
                "must": choice.must_happen,
            })
        })
        .collect();
    format!(
        "{{\"text\": {},\n\"steps\": {},\n\"next\": {},\n\"violation\": {},\n\"has_steps\": {},\n\"trace\": {},\n\"x\": {},\n\"states\": {}}}\n",
        json!(text.unwrap_or(&played.rewritten)),
        Value::from(steps),
        Value::from(next),
        json!(played.violation),
        played.has_steps,
        trace::to_json(&played.trace),
        trace::columns_json(&played.trace),
        states(&played.states),
    )
}

pub(crate) fn trap(mut query: Query, watch: &Watch) -> Result<String, LabError> {
    let id = query.take("id").unwrap_or_default();
    let trap = TrapStory::find(&id).ok_or_else(|| LabError(format!("there is no trap '{id}'; there are T1 to T30")))?;
    if let Some(lockstep) = trap.lockstep(|| watch.flow()) {
        let Lockstep { printed, mended } = lockstep?;
        return Ok(format!(
            "{{\"how\": \"explore\", \"printed\": {}, \"mended\": {}}}",
            playback(&printed, None),
            playback(&mended, None)
        ));
    }
    match trap.simulations() {
        None => Ok(json!({"how": "told"}).to_string()),
        Some(specs) => {
            let (printed, mended) = specs?;
            let document = |spec: &RunSpec| simulate(spec, watch).map(|report| run_document(spec, &report));
            Ok(format!(
                "{{\"how\": \"simulate\", \"printed\": {}, \"mended\": {}}}",
                document(&printed)?,
                document(&mended)?
            ))
        }
    }
}

// ---- explorations ----

pub(crate) fn check(query: Query, watch: &Watch, teller: &mut Teller) -> Result<String, LabError> {
    let spec = query.check()?;
    let report = hallpass_lab::check(&spec, |progress| {
        teller.progress(|| json!({"states": progress.states, "depth": progress.depth}));
        watch.flow()
    })?;
    let numbers = serde_json::to_string(&report).expect("numbers and text are JSON");
    let found = match report.violations.first() {
        Some(found) => playback(&scenario::play(&found.scenario, None)?, None),
        None => "null".to_owned(),
    };
    let violation = report.violations.first().map(|found| found.text.clone());
    Ok(format!(
        "{{\"report\": {numbers}, \"overtaken\": {}, \"violation\": {}, \"found\": {found}}}",
        report.overtaken.0,
        json!(violation)
    ))
}

// ---- comparisons ----

pub(crate) fn sweep(mut query: Query, watch: &Watch, teller: &mut Teller) -> Result<String, LabError> {
    let nodes = SweepSpec::parse_nodes(&query.take("nodes").unwrap_or_else(|| "2..50".to_owned()))?;
    if nodes.iter().any(|count| *count > SWEEP_NODES_MAX) {
        return Err(LabError(format!(
            "in a browser a comparison goes up to {SWEEP_NODES_MAX} nodes; 'hallpass lab sweep' goes further"
        )));
    }
    let loads = query.take("loads").unwrap_or_else(|| "light,saturated".to_owned());
    let spec = SweepSpec {
        protocols: SweepSpec::parse_protocols(&query.take("protocols").unwrap_or_else(|| "all".to_owned()))?,
        nodes,
        loads: loads.split(',').map(str::to_owned).collect(),
        seed: query.take_number("seed", 1, 0, u64::MAX)?,
        mutation: None,
    };
    let runs = spec.runs();
    let mut cells = Vec::with_capacity(runs.len());
    for (done, run) in runs.iter().enumerate() {
        teller.progress(|| json!({"done": done, "of": runs.len(), "next": format!("{} N={} {}", run.protocol, run.nodes, run.load)}));
        if watch.flow() == Flow::Stop {
            return Err(LabError("the comparison took too long, or was given up".to_owned()));
        }
        cells.push(measure_watched(run, || watch.flow())?.0);
    }
    Ok(json!({"cells": cells}).to_string())
}

/// Every protocol under the load of somebody's group.
pub(crate) fn calculate(mut query: Query, watch: &Watch, teller: &mut Teller) -> Result<String, LabError> {
    let nodes = query.take_number("nodes", 5, 1, 200)? as u32;
    let load = query.take("load").unwrap_or_else(|| "0.1".to_owned());
    let hold = query.take("hold");
    let latency = query.take("latency").unwrap_or_else(|| "1ms".to_owned());
    let seed = query.take_number("seed", 1, 0, u64::MAX)?;
    let readers: f64 = query.take("readers").unwrap_or_default().parse().unwrap_or(0.0);
    let rate: Option<f64> = load.parse().ok();
    let names = protocols();
    let mut rows = Vec::new();
    for (done, name) in names.iter().enumerate() {
        teller.progress(|| json!({"done": done, "of": names.len(), "next": name}));
        let run = RunSpec {
            nodes,
            entries: (40 * u64::from(nodes)).clamp(1500, 4000),
            seed,
            load: load.clone(),
            hold: hold.clone(),
            latency: latency.clone(),
            readers,
            ..RunSpec::of(name)
        };
        let measured = measure_watched(&run, || watch.flow());
        if watch.flow() == Flow::Stop {
            return Err(LabError("the calculation took too long, or was given up".to_owned()));
        }
        rows.push(match measured {
            Err(error) => json!({"protocol": name, "refused": error.to_string()}),
            Ok((cell, report)) => {
                // A group that keeps up serves as many requests as are made.
                let served = report.entries as f64 / report.duration.max(1e-9);
                let keeps_up = rate.is_none_or(|rate| served >= 0.8 * rate);
                json!({
                    "protocol": name, "messages": cell.messages, "wait": cell.response_time, "p99": report.response_time.p99,
                    "sync": cell.sync_delay, "served": served, "keeps_up": keeps_up, "violations": cell.violations,
                    "entries": report.entries,
                })
            }
        });
    }
    Ok(json!({"rows": rows, "nodes": nodes, "load": load, "readers": readers}).to_string())
}

// ---- groups of whole nodes ----

pub(crate) fn views(mut query: Query, watch: &Watch) -> Result<String, LabError> {
    let seed = query.take_number("seed", 1, 0, u64::MAX)?;
    if query.take("swarm").is_some() {
        return swarm_run(query, seed, watch);
    }
    let nodes = query.take_number("nodes", 5, 1, 7)? as usize;
    let duration = |query: &mut Query, key: &str, default: &str| {
        let text = query.take(key).filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned());
        let parsed = parse_duration(&text).filter(|time| (10_000_000..=60_000_000_000).contains(time));
        parsed.ok_or_else(|| LabError(format!("{key} '{text}' is not a duration from 10ms to 60s, such as 2s")))
    };
    let (ttl, hold) = (duration(&mut query, "ttl", "2s")?, duration(&mut query, "hold", "400ms")?);
    if ttl < 500_000_000 {
        return Err(LabError("a session lasts at least 500ms".to_owned()));
    }
    let text = query.take("faults").unwrap_or_default();
    let faults: Result<Vec<StoryFault>, LabError> =
        text.split(',').filter(|word| !word.is_empty()).map(|word| story_fault(word, nodes)).collect();
    let spec = StorySpec { seed, nodes, ttl, hold, faults: faults? };
    if spec.faults.len() > 12 {
        return Err(LabError("a story has at most 12 faults".to_owned()));
    }
    cluster::tell(&spec, || watch.flow() == Flow::Continue).as_ref().map(story).ok_or_else(given_up)
}

fn given_up() -> LabError {
    LabError("the run took too long, or was given up".to_owned())
}

/// Reads `partition:1+2@6s..14s`, `pause:3@5s..9s` or `crash:1@16s..20s`.
fn story_fault(word: &str, nodes: usize) -> Result<StoryFault, LabError> {
    let parse = || {
        let (kind, rest) = word.split_once(':')?;
        let (who, when) = rest.split_once('@')?;
        let (from, until) = when.split_once("..")?;
        let (from, until) = (parse_duration(from)?, parse_duration(until)?);
        let one =
            |text: &str| text.parse::<usize>().ok().filter(|node| (1..=nodes).contains(node)).map(|node| node - 1);
        let kind = match kind {
            "partition" => StoryFaultKind::Partition(who.split('+').map(one).collect::<Option<_>>()?),
            "pause" => StoryFaultKind::Pause(one(who)?),
            "crash" => StoryFaultKind::Crash(one(who)?),
            _ => return None,
        };
        (from < until && until <= 120_000_000_000).then_some(StoryFault { kind, from, until })
    };
    parse().ok_or_else(|| {
        LabError(format!(
            "unknown fault '{word}'; use partition:1+2@6s..14s, pause:3@5s..9s or crash:1@16s..20s, with nodes 1 to {nodes}, \
             up to 120s"
        ))
    })
}

/// A run of the swarm, as a failure's link names it.
fn swarm_run(mut query: Query, seed: u64, watch: &Watch) -> Result<String, LabError> {
    let mut count = |key: &str, most: u64| query.take_number(key, 0, 1, most).map(|count| count as usize);
    // None is the default, and cannot be asked for.
    let nodes = Some(count("nodes", SWARM_NODES_MAX)?).filter(|count| *count > 0);
    let callers = Some(count("callers", SWARM_CALLERS_MAX)?).filter(|count| *count > 0);
    let faults = query.take("keep-faults").map(|text| kept_faults(&text)).transpose()?;
    let cut = Cut { nodes, callers, faults };
    let bug = query.take("bug");
    let planted = bug.as_deref().and_then(cluster::Bug::named);
    if bug.is_some() && planted.is_none() {
        return Err(LabError(format!("there is no bug '{}'", bug.unwrap_or_default())));
    }
    // In the swarm a panic is a violation like any other.
    let goes_on = || watch.flow() == Flow::Continue;
    match std::panic::catch_unwind(|| cluster::tell_seed(seed, &cut, planted, goes_on)) {
        Ok(told) => told.as_ref().map(story).ok_or_else(given_up),
        Err(_) => Ok(json!({"panicked": true, "violation": "panic: the code under test stopped"}).to_string()),
    }
}

/// Reads `none` or `3,11,12`: positions in the seed's list of faults.
fn kept_faults(text: &str) -> Result<Vec<usize>, LabError> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let kept: Result<_, _> = text.split(',').map(str::parse).collect();
    kept.map_err(|_| LabError(format!("keep-faults '{text}' is neither none nor numbers such as 3,11")))
}

/// A text in which nodes have the names of the page, such as `node 3`, instead of ids, which are drawn, and `m2`.
fn with_names(text: &str, ids: &BTreeMap<NodeId, usize>) -> String {
    let mut named = String::with_capacity(text.len());
    for part in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let (word, rest) = part.split_at(part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len());
        let by_id = word.parse().ok().and_then(|id| ids.get(&NodeId(id)));
        let by_name = word.strip_prefix('m').and_then(|number| number.parse::<usize>().ok());
        match (by_id, by_name) {
            (Some(position), _) => named.push_str(&(position + 1).to_string()),
            (None, Some(position)) => named.push_str(&format!("node {}", position + 1)),
            (None, None) => named.push_str(word),
        }
        named.push_str(rest);
    }
    // Here a node's address is its name.
    for position in 1..=ids.len() {
        let (both, quoted, plain) =
            (format!("'node {position}' (node {position})"), format!("'node {position}'"), format!("node {position}"));
        if named.contains(&quoted) {
            named = named.replace(&both, &plain).replace(&quoted, &plain);
        }
    }
    named
}

/// The end of a log: where the violation is.
fn last_lines(mut log: Vec<String>) -> Vec<String> {
    log.split_off(log.len().saturating_sub(400))
}

fn story(story: &Story) -> String {
    let ms = |ticks: u64| (ticks as f64 / 1e4).round() / 100.0;
    let named = |text: &str| with_names(text, &story.ids);
    let changes: Vec<Value> = story
        .changes
        .iter()
        .map(|change| {
            json!({
                "at": ms(change.at), "node": change.node, "state": change.state, "epoch": change.epoch,
                "steward": change.is_steward, "members": change.members, "session": change.session_until.map(ms),
                "waits": named(&change.waits_for),
            })
        })
        .collect();
    let entries: Vec<Value> = story
        .entries
        .iter()
        .map(|entry| {
            json!({
                "node": entry.node, "lock": entry.lock, "from": ms(entry.from), "until": entry.until.map(ms),
                "fence": entry.fence, "lost": entry.is_lost,
            })
        })
        .collect();
    let faults: Vec<Value> = story
        .faults
        .iter()
        .map(|fault| {
            json!({"kind": fault.kind.name(), "nodes": fault.nodes, "from": ms(fault.from), "until": ms(fault.until)})
        })
        .collect();
    let names: Vec<String> = (1..=story.names.len()).map(|number| format!("node {number}")).collect();
    let report = &story.report;
    let violation = report.violation.as_ref().map(|violation| named(&violation.to_string()));
    let log: Vec<String> = last_lines(report.log.clone()).iter().map(|line| named(line)).collect();
    json!({
        "names": names, "changes": changes, "entries": entries, "faults": faults, "violation": violation,
        "epoch": report.epoch, "duration": ms(report.duration), "grants": report.grants, "lapses": report.lapses,
        "log": log,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_nodes_as_the_lanes_do() {
        let ids = BTreeMap::from([(NodeId(903_554_138), 0), (NodeId(1_782_910_645), 2), (NodeId(77_777_777), 1)]);
        let named = |text: &str| with_names(text, &ids);
        assert_eq!(
            named("node 1782910645 entered while node 903554138 was inside"),
            "node 3 entered while node 1 was inside"
        );
        assert_eq!(named("waits to reach 'm2' (m2), 'm0' (m0)"), "waits to reach node 3, node 1");
        assert_eq!(
            named("4 of 5 nodes have found each other: 'm0', 'm1'"),
            "4 of 5 nodes have found each other: node 1, node 2"
        );
    }

    #[test]
    fn a_run_of_the_swarm_shows_its_faults_and_its_locks() {
        let ask = |text: &str| views(Query::parse(text).unwrap(), &Watch::patient());
        let told: Value = serde_json::from_str(&ask("swarm=1&seed=2&bug=evict-early").unwrap()).unwrap();
        let violation = told["violation"].as_str().expect("the bug is caught");
        let is_id = |word: &str| word.parse::<u64>().is_ok_and(|number| number > 100);
        assert!(!violation.split(' ').any(is_id), "{violation}");
        assert!(told["entries"][0]["lock"].is_string() && told["faults"][0]["kind"].is_string(), "{told}");
        for refused in ["keep-faults=abc", "nodes=61", "callers=60", "nodes=0", "seed=x"] {
            assert!(ask(&format!("swarm=1&{refused}")).is_err(), "{refused}");
        }
        assert!(ask("swarm=1&seed=2&nodes=3&keep-faults=none").is_ok());
    }

    #[test]
    fn a_run_of_the_swarm_ends_with_its_page() {
        let watch = Watch::patient();
        watch.end();
        assert!(views(Query::parse("swarm=1&seed=5&nodes=60&callers=8").unwrap(), &watch).is_err());
        assert!(views(Query::parse("nodes=7&ttl=60s&hold=10ms").unwrap(), &watch).is_err());
    }
}
