//! The view layer at small size: the node's own types around a model of all that surrounds them, explored in every order.

mod buffer;
mod consensus;
mod founding;
mod incarnations;
mod install;
mod leases;
mod progress;
mod replication;
mod restart;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};

use hallpass_check::{Effort, Flow, Progress, Space, explore_space};
use hallpass_core::NodeId;
use hallpass_core::protocol::carvalho_roucairol::CarvalhoRoucairol;
use hallpass_core::protocol::raymond::Raymond;
use hallpass_node::Incarnation;
use hallpass_node::model::{Group, Member};
use hallpass_sim::trace::{Scale, Trace};

use crate::{CheckReport, Counterexample, LabError};

/// A model whose steps can be told.
trait Described: Space {
    const NODES: u32;
    /// What happens when this step is taken in this state.
    fn describe(&self, state: &Self::State, step: Self::Step) -> String;
}

/// An exploration of the view layer, as `lab check --model` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// The model's name.
    pub model: String,
    /// The name of a rule that is to be broken, to see that this is noticed.
    pub bug: Option<String>,
    /// Stop, incomplete, at this many states.
    pub states_max: usize,
}

impl ModelSpec {
    /// The model as it should be.
    pub fn of(model: &str) -> Self {
        Self { model: model.to_owned(), bug: None, states_max: Effort::default().states_max }
    }

    /// With a bug planted.
    pub fn with_bug(self, bug: &str) -> Self {
        Self { bug: Some(bug.to_owned()), ..self }
    }
}

/// Every model, with the bugs that can be planted in it.
pub fn models() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("sessions", names(sessions::BUGS)),
        ("install", names(install::BUGS)),
        ("install-token", names(install::TOKEN_BUGS)),
        ("lapse", names(install::LAPSE_BUGS)),
        ("incarnations", names(incarnations::BUGS)),
        ("founding", names(founding::BUGS)),
        ("founding-two-lost", names(founding::BUGS)),
        ("founding-all-lost", names(founding::BUGS)),
        ("restart", names(restart::BUGS)),
        ("leases", names(leases::BUGS)),
        ("consensus", names(replication::BUGS)),
        ("progress", [names(progress::LINK_BUGS), names(progress::JOINER_BUGS), names(buffer::BUGS)].concat()),
        ("progress-link", names(progress::LINK_BUGS)),
        ("progress-joiner", names(progress::JOINER_BUGS)),
        ("progress-buffer", names(buffer::BUGS)),
    ]
}

/// Explores a model. `on_progress` is called often, and may stop it.
pub fn check_model<F: Into<Flow>>(
    spec: &ModelSpec,
    mut on_progress: impl FnMut(Progress) -> F,
) -> Result<CheckReport, LabError> {
    let on_progress: &mut dyn FnMut(Progress) -> Flow = &mut |progress| on_progress(progress).into();
    match spec.model.as_str() {
        "sessions" => run(spec, &mut sessions::SessionsModel::new(bug(spec, sessions::BUGS)?), on_progress),
        "install" => {
            let bug = bug(spec, install::BUGS)?;
            run(spec, &mut install::InstallModel::<CarvalhoRoucairol>::new(bug)?, on_progress)
        }
        "install-token" => {
            let bug = bug(spec, install::TOKEN_BUGS)?;
            run(spec, &mut install::InstallModel::<Raymond>::new(bug)?, on_progress)
        }
        "lapse" => {
            let bug = bug(spec, install::LAPSE_BUGS)?;
            run(spec, &mut install::InstallModel::<CarvalhoRoucairol>::lapse(bug)?, on_progress)
        }
        "incarnations" => {
            run(spec, &mut incarnations::IncarnationsModel::new(bug(spec, incarnations::BUGS)?), on_progress)
        }
        "founding" => run(spec, &mut founding::FoundingModel::new(bug(spec, founding::BUGS)?, 1), on_progress),
        "founding-two-lost" => run(spec, &mut founding::FoundingModel::new(bug(spec, founding::BUGS)?, 2), on_progress),
        "founding-all-lost" => run(spec, &mut founding::FoundingModel::new(bug(spec, founding::BUGS)?, 3), on_progress),
        "restart" => run(spec, &mut restart::RestartModel::new(bug(spec, restart::BUGS)?), on_progress),
        "leases" => run(spec, &mut leases::LeasesModel::new(bug(spec, leases::BUGS)?), on_progress),
        "consensus" => run(spec, &mut replication::ReplicationModel::new(bug(spec, replication::BUGS)?), on_progress),
        "progress-link" => {
            run(spec, &mut progress::ProgressModel::dead_link(bug(spec, progress::LINK_BUGS)?)?, on_progress)
        }
        "progress-joiner" => {
            run(spec, &mut progress::ProgressModel::flapping_joiner(bug(spec, progress::JOINER_BUGS)?)?, on_progress)
        }
        "progress-buffer" => run(spec, &mut buffer::BufferModel::new(bug(spec, buffer::BUGS)?), on_progress),
        "progress" => explore_all(spec, &["progress-link", "progress-joiner", "progress-buffer"], on_progress),
        other => {
            let known: Vec<&str> = models().into_iter().map(|(name, _)| name).collect();
            Err(LabError(format!("there is no model '{other}'; there are {}", known.join(", "))))
        }
    }
}

/// Explores several models one after the other; with a bug planted, those that have it.
fn explore_all(
    spec: &ModelSpec,
    parts: &[&str],
    on_progress: &mut dyn FnMut(Progress) -> Flow,
) -> Result<CheckReport, LabError> {
    let known = models().into_iter().filter(|(name, _)| *name == spec.model).flat_map(|(_, bugs)| bugs);
    bug(spec, &known.map(|bug| (bug, ())).collect::<Vec<_>>())?;
    let mut all: Option<CheckReport> = None;
    for part in parts {
        let spec = ModelSpec { model: (*part).to_owned(), ..spec.clone() };
        let has_bug = |name: &str, bugs: &[&str]| name == *part && spec.bug.iter().all(|bug| bugs.contains(&&**bug));
        if !models().iter().any(|(name, bugs)| has_bug(name, bugs)) {
            continue;
        }
        let found = check_model(&spec, &mut *on_progress)?;
        let is_over = !found.complete;
        all = Some(match all {
            None => found,
            Some(before) => CheckReport {
                states: before.states + found.states,
                generated: before.generated + found.generated,
                depth: before.depth.max(found.depth),
                seconds: before.seconds + found.seconds,
                nodes: before.nodes.max(found.nodes),
                ..found
            },
        });
        if is_over {
            break;
        }
    }
    let report = all.ok_or_else(|| LabError(format!("no part of model '{}' has this bug", spec.model)))?;
    Ok(CheckReport { protocol: spec.model.clone(), ..report })
}

fn names<B>(bugs: &[(&'static str, B)]) -> Vec<&'static str> {
    bugs.iter().map(|(name, _)| *name).collect()
}

fn bug<B: Copy>(spec: &ModelSpec, bugs: &[(&'static str, B)]) -> Result<Option<B>, LabError> {
    let Some(wanted) = &spec.bug else { return Ok(None) };
    let found = bugs.iter().find(|(name, _)| name == wanted);
    let known = || LabError(format!("model '{}' has no bug '{wanted}'; it has {}", spec.model, names(bugs).join(", ")));
    found.map(|(_, bug)| Some(*bug)).ok_or_else(known)
}

fn run<S: Described>(
    spec: &ModelSpec,
    space: &mut S,
    on_progress: &mut dyn FnMut(Progress) -> Flow,
) -> Result<CheckReport, LabError> {
    let effort = Effort { states_max: spec.states_max, property: None };
    let found = explore_space(space, &effort, on_progress);
    let empty = |title: String| Trace { title, nodes: Vec::new(), scale: Scale::Steps, events: Vec::new() };
    let violations = found.violation.iter().map(|(violation, steps)| Counterexample {
        property: violation.property,
        lines: tell(space, steps),
        text: violation.to_string(),
        trace: empty(violation.to_string()),
        steps: steps.len(),
        // A model of views has steps of its own.
        scenario: String::new(),
    });
    Ok(CheckReport {
        protocol: spec.model.clone(),
        nodes: S::NODES,
        entries: None,
        states: found.states,
        generated: found.generated,
        depth: found.depth,
        complete: found.complete,
        violations: violations.collect::<Vec<_>>(),
        seconds: found.took.as_secs_f64(),
        is_model: true,
        drops: None,
        overtaken: (0, empty(String::new())),
    })
}

/// The path, a line a step.
fn tell<S: Described>(space: &mut S, steps: &[S::Step]) -> Vec<String> {
    let mut state = space.first();
    let mut lines = Vec::new();
    for step in steps {
        lines.push(space.describe(&state, *step));
        let _ = space.apply(&mut state, *step);
    }
    lines
}

fn incarnation(number: u32) -> Incarnation {
    Incarnation::new(number.max(1)).unwrap_or(Incarnation::FIRST)
}

/// A member with a name of its own: a namesake of a member is not admitted.
fn member(id: NodeId, number: u32) -> Member {
    Member { id, incarnation: incarnation(number), name: id.to_string(), address: String::new(), durable: true }
}

/// A group of these members in epoch 1.
fn group(members: impl IntoIterator<Item = Member>) -> Group {
    Group {
        id: 1,
        epoch: 1,
        term: 1,
        members: members.into_iter().map(|member| (member.id, member)).collect(),
        absent: BTreeMap::new(),
        banned: BTreeSet::new(),
        classes: Vec::new(),
        ttl: 1,
        drift_ppm: 0,
        durable: true,
    }
}
