use std::ops::ControlFlow;

use hallpass_check::Flow;
use hallpass_core::Protocol;
use hallpass_core::protocol::{Mutant, Mutation, Visitor};
use hallpass_sim::{Config, Faults, Latency, Load, Order, Report, World, parse_duration};

use crate::{LabError, SETTINGS, Setting, key_value, replace_option, select};

/// A simulated run, as `lab run` takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The protocol's name.
    pub protocol: String,
    /// How many nodes.
    pub nodes: u32,
    /// How many requests in all.
    pub entries: u64,
    /// Determines every random choice.
    pub seed: u64,
    /// `saturated`, `light`, a rate or `hotspot:F`.
    pub load: String,
    /// How long a node stays in the critical section; one T by default.
    pub hold: Option<String>,
    /// How long messages take.
    pub latency: String,
    /// Whether messages may overtake each other.
    pub order: Order,
    /// The fraction of requests in shared mode.
    pub readers: f64,
    /// What goes wrong.
    pub faults: String,
    /// Options of the protocol, each `key=value`.
    pub options: Vec<String>,
    /// Record every event, so that the run can be drawn.
    pub keep_trace: bool,
    /// Record the nodes' variables too.
    pub keep_states: bool,
    /// A run with more recorded events than this is given up.
    pub trace_max: usize,
    /// Report a violation if a request is overtaken more often than this.
    pub overtakes_max: Option<u64>,
    /// Measure the spread of outstanding sequence numbers.
    pub watch_numbers: bool,
    /// A bug to plant, to test the oracles themselves.
    pub mutation: Option<Mutation>,
}

impl RunSpec {
    /// The defaults of the command line.
    pub fn of(protocol: &str) -> Self {
        Self {
            protocol: protocol.to_owned(),
            nodes: 3,
            entries: 1000,
            seed: 1,
            load: "saturated".to_owned(),
            hold: None,
            latency: "1ms".to_owned(),
            order: Order::Any,
            readers: 0.0,
            faults: String::new(),
            options: Vec::new(),
            keep_trace: false,
            keep_states: false,
            trace_max: Config::TRACE_MAX,
            overtakes_max: None,
            watch_numbers: false,
            mutation: None,
        }
    }

    /// Adds options, separated by spaces.
    pub fn with(mut self, words: &str) -> Self {
        self.options.extend(words.split_whitespace().map(str::to_owned));
        self
    }

    /// Sets one thing, as `nodes=3`. The keys are those of the command line; any other key is an option of the protocol.
    pub fn set(&mut self, word: &str) -> Result<(), LabError> {
        let (key, value) = key_value(word)?;
        match Setting::find(key) {
            Some(setting) => setting.set(self, word)?,
            None if key == "protocol" => self.protocol = value.to_owned(),
            None => replace_option(&mut self.options, word),
        }
        Ok(())
    }

    /// The command that repeats this run.
    pub fn command(&self) -> String {
        let defaults = Self::of(&self.protocol);
        let mut words = format!("hallpass lab run --protocol {}", self.protocol);
        for setting in SETTINGS {
            if let Some(value) = setting.printed(self, &defaults) {
                words.push_str(&format!(" --{} {value}", setting.key));
            }
        }
        for option in &self.options {
            words.push_str(&format!(" --option {option}"));
        }
        words
    }

    fn config(&self, nodes: Vec<hallpass_core::NodeId>) -> Result<Config, LabError> {
        let latency = Latency::parse(&self.latency)?;
        let hold = match &self.hold {
            None => latency.mean(),
            Some(text) => parse_duration(text)
                .ok_or_else(|| LabError(format!("hold '{text}' is not a duration such as 250ms, 10s or 2m")))?,
        };
        if !(0.0..=1.0).contains(&self.readers) {
            return Err(LabError(format!("readers '{}' is not a fraction from 0 to 1", self.readers)));
        }
        if self.entries == 0 || self.entries > 100_000_000 {
            return Err(LabError("entries must be at least 1 and at most 100000000".to_owned()));
        }
        Ok(Config {
            nodes,
            entries: self.entries,
            seed: self.seed,
            load: Load::parse(&self.load)?,
            hold,
            latency,
            order: self.order,
            readers: self.readers,
            faults: Faults::parse(&self.faults)?,
            overtakes_max: self.overtakes_max,
            keep_trace: self.keep_trace,
            keep_states: self.keep_states,
            trace_max: self.trace_max,
        })
    }
}

/// Runs a protocol in a simulated world.
pub fn simulate(spec: &RunSpec) -> Result<Report, LabError> {
    simulate_watched(spec, |_| {})
}

/// The same; `on_progress` gets the number of entries now and then, and may stop it.
pub fn simulate_watched<F: Into<Flow>>(
    spec: &RunSpec,
    mut on_progress: impl FnMut(u64) -> F,
) -> Result<Report, LabError> {
    simulate_dyn(spec, &mut |entries| match on_progress(entries).into() {
        Flow::Continue => ControlFlow::Continue(()),
        Flow::Stop => ControlFlow::Break(()),
    })
}

/// One copy for all callers: this compiles the simulation of every protocol.
fn simulate_dyn(spec: &RunSpec, on_progress: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Report, LabError> {
    let (kind, ids, options) = select(&spec.protocol, spec.nodes, &spec.options)?;
    let config = spec.config(ids)?;
    let options = config.prepare(options);
    let mut report = kind.visit(Simulation { spec, config: &config, options: &options, on_progress })?;
    report.protocol = kind.name().to_owned();
    if let Some(trace) = &mut report.trace {
        trace.title = spec.command();
    }
    Ok(report)
}

struct Simulation<'a> {
    spec: &'a RunSpec,
    config: &'a Config,
    options: &'a hallpass_core::protocol::Options,
    on_progress: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
}

impl Visitor for Simulation<'_> {
    type Output = Result<Report, LabError>;

    fn visit<P: Protocol + 'static>(self) -> Self::Output {
        let options = P::parse(self.options)?;
        self.config.check(&P::needs(&options))?;
        let options = (options, self.spec.mutation);
        let world = World::<Mutant<P>>::new(self.config, &options);
        let world = if self.spec.watch_numbers { world.watching_numbers() } else { world };
        Ok(world.try_run(self.on_progress)?)
    }
}
