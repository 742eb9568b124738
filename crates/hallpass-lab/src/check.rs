use std::fmt;
use std::str::FromStr;

use hallpass_check::{Effort, Exploration, Flow, Progress, explore};
use hallpass_core::protocol::{Mutant, Mutation, Options, Visitor};
use hallpass_core::{Mode, NodeId, Protocol};
use hallpass_sim::trace::{Scale, Trace};
use hallpass_sim::{Holders, Limits, Model, ModelConfig, Order, Scratch, Step};
use serde::Serialize;

use crate::scenario::{Naming, describe};
use crate::{LabError, key_value, parse_order, parse_value, replace_option, select};

/// An exploration, as `lab check` takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckSpec {
    /// The protocol's name.
    pub protocol: String,
    /// How many nodes.
    pub nodes: u32,
    /// Requests per node; `None` for no limit, which needs a protocol with finitely many states.
    pub entries: Option<u8>,
    /// Requests of the node with the highest id, if it makes a different number of them.
    pub last_entries: Option<u8>,
    /// Requests of the node with the lowest id, if it makes a different number of them.
    pub first_entries: Option<u8>,
    /// Whether messages may overtake each other.
    pub order: Order,
    /// Cancellations in all; `None` for no limit.
    pub cancels: Option<u8>,
    /// Requests may be shared.
    pub readers: bool,
    /// Requests may be attempts, for protocols that have messages for them.
    pub tries: bool,
    /// Who is inside may become shared, or ask to be alone.
    pub upgrades: bool,
    /// A node's next caller may follow the one inside.
    pub reentry: bool,
    /// A node may forget a lock that is idle at any moment.
    pub drop_idle: bool,
    /// Who holds the lock at the start.
    pub initial: InitialSpec,
    /// How many faults of each kind may happen: `crash:1,restart:1,loss:1,dup:1,join:1,leave:1`.
    pub faults: String,
    /// Options of the protocol, each `key=value`.
    pub options: Vec<String>,
    /// Report violations of this property only, such as `exclusion`.
    pub property: Option<String>,
    /// Stop, incomplete, at this many states.
    pub states_max: usize,
    /// A bug to plant, to test the exploration itself.
    pub mutation: Option<Mutation>,
}

/// Who holds the lock when an exploration starts, as after a view change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialSpec {
    /// One set of holders.
    These(Holders),
    /// One exploration for each set that the protocol can start with: nobody, one node, several in shared mode.
    All,
}

impl Default for InitialSpec {
    fn default() -> Self {
        Self::These(Holders::default())
    }
}

impl FromStr for InitialSpec {
    type Err = LabError;

    /// Reads `nobody`, `all`, or nodes as `2`, `1:shared`, `1,3:shared`.
    fn from_str(text: &str) -> Result<Self, LabError> {
        match text {
            "nobody" => return Ok(Self::default()),
            "all" => return Ok(Self::All),
            _ => {}
        }
        let (nodes, mode) = match text.split_once(':') {
            Some((nodes, "shared")) => (nodes, Some(Mode::Shared)),
            Some(_) => (text, None),
            None => (text, Some(Mode::Exclusive)),
        };
        let nodes: Option<Vec<NodeId>> = nodes.split(',').map(|node| node.parse().ok().map(NodeId)).collect();
        let (Some(nodes), Some(mode)) = (nodes, mode) else {
            return Err(LabError(format!("'{text}' is no set of holders; use nobody, 2, 1:shared, 1,3:shared or all")));
        };
        Ok(Self::These(Holders { nodes, mode }))
    }
}

impl fmt::Display for InitialSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::These(holders) => holders.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// The result of an exploration, or of several with different holders at the start. The JSON keys are part of the public interface.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The protocol's name.
    pub protocol: String,
    /// How many nodes.
    pub nodes: u32,
    /// Requests per node.
    pub entries: Option<u8>,
    /// Distinct states.
    pub states: usize,
    /// States generated, including repeated ones.
    pub generated: u64,
    /// The length of the longest among the shortest paths to each state.
    pub depth: usize,
    /// Every reachable state was visited.
    pub complete: bool,
    /// The violation found, if any.
    pub violations: Vec<Counterexample>,
    /// How often a node forgot an idle lock; absent if it was not to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops: Option<u64>,
    /// How long it took.
    pub seconds: f64,
    /// It is a model of the view layer, not a protocol.
    #[serde(skip)]
    pub is_model: bool,
    /// The most often that the node with the highest id was overtaken, with a path to it.
    #[serde(skip)]
    pub overtaken: (u64, Trace),
}

/// A violation and a shortest path to it.
#[derive(Clone, Debug, Serialize)]
pub struct Counterexample {
    /// The property that was violated, such as `exclusion`.
    pub property: &'static str,
    /// The path, one line per event.
    #[serde(rename = "trace")]
    pub lines: Vec<String>,
    /// The violation, in words.
    pub text: String,
    /// The path as a trace, to draw it.
    #[serde(skip)]
    pub trace: Trace,
    /// The number of steps.
    #[serde(skip)]
    pub steps: usize,
    /// The path as a scenario, to play it; the outcomes are left out.
    #[serde(skip)]
    pub scenario: String,
}

impl CheckSpec {
    /// The defaults of the command line.
    pub fn of(protocol: &str) -> Self {
        Self {
            protocol: protocol.to_owned(),
            nodes: 3,
            entries: Some(2),
            last_entries: None,
            first_entries: None,
            tries: false,
            upgrades: false,
            reentry: false,
            order: Order::Any,
            cancels: Some(0),
            readers: false,
            drop_idle: false,
            initial: InitialSpec::default(),
            faults: String::new(),
            options: Vec::new(),
            property: None,
            states_max: Effort::default().states_max,
            mutation: None,
        }
    }

    /// Adds options, separated by spaces.
    pub fn with(mut self, words: &str) -> Self {
        self.options.extend(words.split_whitespace().map(str::to_owned));
        self
    }

    /// Sets one thing, as `nodes=3`. The keys are those of the command line; `first` is `--first-entries`,
    /// `last` is `--last-entries`, and what is none of them is an option of the protocol.
    pub fn set(&mut self, word: &str) -> Result<(), LabError> {
        let (key, value) = key_value(word)?;
        match key {
            "protocol" => self.protocol = value.to_owned(),
            "nodes" => self.nodes = parse_value(word)?,
            "entries" if value == "endless" => self.entries = None,
            "entries" => self.entries = Some(parse_value(word)?),
            "cancels" if value == "any" => self.cancels = None,
            "cancels" => self.cancels = Some(parse_value(word)?),
            "readers" => self.readers = parse_value(word)?,
            "tries" => self.tries = parse_value(word)?,
            "upgrades" => self.upgrades = parse_value(word)?,
            "reentry" => self.reentry = parse_value(word)?,
            "first" => self.first_entries = Some(parse_value(word)?),
            "drop-idle" => self.drop_idle = parse_value(word)?,
            "initial-holders" => self.initial = parse_value(word)?,
            "faults" => self.faults = value.to_owned(),
            "order" => self.order = parse_order(word)?,
            "last" => self.last_entries = Some(parse_value(word)?),
            "property" => self.property = Some(value.to_owned()),
            _ => replace_option(&mut self.options, word),
        }
        Ok(())
    }

    /// The words that [`set`](Self::set) takes to make this, with the protocol in front.
    pub fn words(&self) -> Vec<String> {
        let plain = Self::of(&self.protocol);
        let mut words = vec![format!("protocol={}", self.protocol), format!("nodes={}", self.nodes)];
        let mut add = |differs: bool, key: &str, value: String| {
            if differs {
                words.push(format!("{key}={value}"));
            }
        };
        add(true, "entries", self.entries.map_or_else(|| "endless".to_owned(), |entries| entries.to_string()));
        add(
            self.cancels != plain.cancels,
            "cancels",
            self.cancels.map_or_else(|| "any".to_owned(), |cancels| cancels.to_string()),
        );
        add(self.readers, "readers", "true".to_owned());
        add(self.tries, "tries", "true".to_owned());
        add(self.upgrades, "upgrades", "true".to_owned());
        add(self.reentry, "reentry", "true".to_owned());
        add(self.first_entries.is_some(), "first", self.first_entries.unwrap_or_default().to_string());
        add(self.drop_idle, "drop-idle", "true".to_owned());
        add(self.initial != plain.initial, "initial-holders", self.initial.to_string());
        add(!self.faults.is_empty(), "faults", self.faults.clone());
        add(self.order == Order::Fifo, "order", "fifo".to_owned());
        add(self.last_entries.is_some(), "last", self.last_entries.unwrap_or_default().to_string());
        add(self.property.is_some(), "property", self.property.clone().unwrap_or_default());
        words.extend(self.options.iter().cloned());
        words
    }

    fn limits(&self) -> Result<Limits, LabError> {
        let mut counts = [0u8; 6];
        let names = ["crash", "restart", "loss", "dup", "join", "leave"];
        for word in self.faults.split(',').filter(|word| !word.is_empty()) {
            let (name, count) = word.split_once(':').unwrap_or((word, ""));
            let index = names.iter().position(|known| *known == name);
            let count = count.parse().ok().filter(|count| (0..=9).contains(count));
            let (Some(index), Some(count)) = (index, count) else {
                return Err(LabError(format!(
                    "unknown fault '{word}'; an exploration takes {} with a count up to 9",
                    names.join(", ")
                )));
            };
            counts[index] = count;
        }
        let [crashes, restarts, losses, duplicates, joins, leaves] = counts;
        Ok(Limits {
            entries: self.entries,
            last_entries: self.last_entries,
            first_entries: self.first_entries,
            tries: self.tries,
            upgrades: self.upgrades,
            reentry: self.reentry,
            cancels: self.cancels,
            readers: self.readers,
            drop_idle: self.drop_idle,
            crashes,
            restarts,
            losses,
            duplicates,
            joins,
            leaves,
        })
    }
}

/// Explores every order of events, from one set of holders after the other up to a violation. `on_progress` is called
/// often, and may stop it.
pub fn check<F: Into<Flow>>(
    spec: &CheckSpec,
    mut on_progress: impl FnMut(Progress) -> F,
) -> Result<CheckReport, LabError> {
    check_dyn(spec, &mut |progress| on_progress(progress).into())
}

/// One copy for all callers: this compiles the exploration of every protocol, which takes a while.
fn check_dyn(spec: &CheckSpec, on_progress: &mut dyn FnMut(Progress) -> Flow) -> Result<CheckReport, LabError> {
    let (kind, ids, mut options) = select(&spec.protocol, spec.nodes, &spec.options)?;
    options.tick = 1;
    let limits = spec.limits()?;
    let mut report = kind.visit(Check { spec, ids: &ids, options: &options, limits, on_progress })?;
    report.protocol = kind.name().to_owned();
    Ok(report)
}

struct Check<'a> {
    spec: &'a CheckSpec,
    ids: &'a [NodeId],
    options: &'a Options,
    limits: Limits,
    on_progress: &'a mut dyn FnMut(Progress) -> Flow,
}

impl Visitor for Check<'_> {
    type Output = Result<CheckReport, LabError>;

    fn visit<P: Protocol + 'static>(self) -> Self::Output {
        let spec = self.spec;
        let options = P::parse(self.options)?;
        let needs = P::needs(&options);
        if self.limits.entries.is_none() && needs.fences {
            return Err(LabError(
                "--entries endless needs --option fence=off, because fences grow without bound".to_owned(),
            ));
        }
        let starts = match &spec.initial {
            InitialSpec::These(holders) => vec![holders.clone()],
            InitialSpec::All => Holders::all(self.ids, &needs),
        };
        let config = ModelConfig::<Mutant<P>>::new(self.ids, (options, spec.mutation), spec.order, self.limits)?;
        let mut report = CheckReport::empty(spec);
        for holders in starts {
            let config = config.clone().held_by(holders)?;
            let states_max = spec.states_max.saturating_sub(report.states);
            let found =
                explore(&config, &Effort { states_max, property: spec.property.clone() }, &mut *self.on_progress);
            report.add(spec, &config, found);
            if !report.complete {
                break;
            }
        }
        Ok(report)
    }
}

impl CheckReport {
    fn empty(spec: &CheckSpec) -> Self {
        let nothing = Trace { title: String::new(), nodes: Vec::new(), scale: Scale::Steps, events: Vec::new() };
        Self {
            protocol: String::new(),
            nodes: spec.nodes,
            entries: spec.entries,
            states: 0,
            generated: 0,
            depth: 0,
            complete: true,
            violations: Vec::new(),
            is_model: false,
            drops: spec.drop_idle.then_some(0),
            seconds: 0.0,
            overtaken: (0, nothing),
        }
    }

    /// Adds what one exploration has found.
    fn add<P: Protocol>(&mut self, spec: &CheckSpec, config: &ModelConfig<P>, found: Exploration) {
        let draw = |steps: &[Step], title: String| Trace {
            title,
            nodes: config.ids().to_vec(),
            scale: Scale::Steps,
            events: config.replay(steps).0,
        };
        self.states += found.states;
        self.generated += found.generated;
        self.depth = self.depth.max(found.depth);
        self.complete &= found.complete;
        self.drops = self.drops.map(|drops| drops + found.drops);
        self.seconds += found.took.as_secs_f64();
        if found.overtaken_max >= self.overtaken.0 {
            self.overtaken = (found.overtaken_max, draw(&found.overtaken_steps, "the most overtaken".to_owned()));
        }
        self.violations.extend(found.violation.map(|(violation, steps)| {
            let trace = draw(&steps, violation.to_string());
            let text = hallpass_sim::trace::to_text(&trace);
            let lines = text.lines().skip(1).filter(|line| !line.is_empty());
            Counterexample {
                property: violation.property,
                lines: lines.map(|line| line.trim().to_owned()).collect(),
                text: violation.to_string(),
                trace,
                steps: steps.len(),
                scenario: as_scenario(spec, config, &steps, &violation.to_string()),
            }
        }));
    }
}

/// Steps of an exploration as a scenario.
fn as_scenario<P: Protocol>(spec: &CheckSpec, config: &ModelConfig<P>, steps: &[Step], title: &str) -> String {
    let options: String =
        spec.options.iter().filter(|word| !word.starts_with("names=")).map(|word| format!(" {word}")).collect();
    let nodes: String = config.founders().iter().map(|node| format!(" {node}")).collect();
    let mut text = format!("title {title}\nprotocol {}{options}\nnodes{nodes}\n", spec.protocol);
    if spec.order == Order::Fifo {
        text.push_str("order fifo\n");
    }
    if !config.holders().nodes.is_empty() {
        text.push_str(&format!("holders {}\n", config.holders()));
    }
    text.push_str(&format!("faults {}\n", if spec.faults.is_empty() { "none" } else { &spec.faults }));
    let (mut model, mut scratch, mut possible) = (Model::new(config), Scratch::default(), Vec::new());
    for step in steps {
        possible.clear();
        model.steps(config, &mut possible);
        let choice = describe(config, &model, &possible, *step, Naming::Full);
        text.push_str(&format!("\n{}\n----\n", choice.command));
        model.apply(config, *step, &mut scratch, None);
    }
    text
}
