use hallpass_core::protocol::{Mutant, Mutation, Options, Visitor};
use hallpass_core::{Message, Mode, NodeId, Protocol};
use hallpass_sim::trace::{Event, EventKind, Scale, Trace};
use hallpass_sim::{InFlight, Limits, Model, ModelConfig, Order, Scratch, Step};

use super::parse::{Command, Script};
use super::{CommandOutcome, Playback};
use crate::{CheckSpec, Counterexample, InitialSpec, LabError, RunSpec, check, select, simulate, steps};

pub(super) fn play(script: &Script, mutation: Option<Mutation>) -> Result<Playback, LabError> {
    let mut words = script.options.clone();
    let names: Vec<String> = script.nodes.iter().map(u32::to_string).collect();
    words.push(format!("names={}", names.join(",")));
    let (kind, ids, mut options) = select(&script.protocol, script.nodes.len() as u32, &words)?;
    options.tick = 1;
    kind.visit(Player { script, mutation, ids, options })
}

struct Player<'a> {
    script: &'a Script,
    mutation: Option<Mutation>,
    ids: Vec<NodeId>,
    options: Options,
}

impl Visitor for Player<'_> {
    type Output = Result<Playback, LabError>;

    fn visit<P: Protocol + 'static>(self) -> Self::Output {
        let script = self.script;
        let order = if script.fifo { Order::Fifo } else { Order::Any };
        let options = P::parse(&self.options)?;
        let needs = P::needs(&options);
        let joins = script.commands.iter().filter(|command| command.text.starts_with("join ")).count() as u8;
        // More than any script has.
        let unlimited = |allowed: bool| if allowed { 99 } else { 0 };
        let starts_held = !script.holders.nodes.is_empty();
        let crashes = unlimited((needs.membership || needs.recovery) && !starts_held);
        let losses = unlimited(needs.no_loss.is_none());
        let limits = Limits {
            entries: Some(200),
            last_entries: None,
            cancels: if needs.no_cancel.is_some() { Some(0) } else { None },
            readers: needs.no_shared.is_none(),
            drop_idle: true,
            crashes,
            restarts: crashes,
            losses,
            duplicates: losses,
            joins,
            leaves: unlimited(needs.membership),
        };
        let config = ModelConfig::<Mutant<P>>::new(&self.ids, (options, self.mutation), order, limits)?.keeping_moot();
        let config = config.held_by(script.holders.clone())?;
        let mut interpreter = Interpreter {
            model: Model::new(&config),
            events: config.first_events(),
            config,
            scratch: Scratch::default(),
            time: 0,
            script,
            mutation: self.mutation,
        };
        let mut steps = Vec::new();
        for command in &script.commands {
            let actual = interpreter.run(command)?;
            steps.push(CommandOutcome {
                line: command.line,
                command: command.text.clone(),
                expected: command.expected.clone(),
                actual,
            });
        }
        let outcomes: Vec<Vec<String>> = steps.iter().map(|step| step.actual.clone()).collect();
        hallpass_sim::trace::link(&mut interpreter.events);
        let mut nodes = interpreter.config.ids().to_vec();
        nodes.extend(interpreter.events.iter().map(|event| event.node));
        nodes.sort_unstable();
        nodes.dedup();
        let trace = Trace { title: script.title.clone(), nodes, scale: Scale::Steps, events: interpreter.events };
        let has_steps = interpreter.time > 0;
        Ok(Playback { steps, trace, has_steps, rewritten: script.rewrite(&outcomes) })
    }
}

/// Carries out a script's commands on a model.
struct Interpreter<'a, P: Protocol> {
    config: ModelConfig<P>,
    model: Model<P>,
    scratch: Scratch<P>,
    events: Vec<Event>,
    time: u64,
    script: &'a Script,
    mutation: Option<Mutation>,
}

impl<P: Protocol> Interpreter<'_, P> {
    fn run(&mut self, command: &Command) -> Result<Vec<String>, LabError> {
        let words: Vec<&str> = command.text.split_whitespace().collect();
        match words.as_slice() {
            ["ask", node] => self.step(command, Step::Request { node: self.node(command, node)?, mode: Mode::Exclusive, draw: 0 }),
            ["ask", node, "shared"] => self.step(command, Step::Request { node: self.node(command, node)?, mode: Mode::Shared, draw: 0 }),
            ["cancel", node] => self.step(command, Step::Cancel(self.node(command, node)?)),
            ["forget", node] => self.step(command, Step::Drop(self.node(command, node)?)),
            ["exit", node] => self.step(command, Step::Exit(self.node(command, node)?)),
            ["crash", node] => self.step(command, Step::Crash(self.node(command, node)?)),
            ["restart", node] => self.step(command, Step::Restart(self.node(command, node)?)),
            ["join", node] => self.step(command, Step::Join(self.node(command, node)?)),
            ["leave", node] => self.step(command, Step::Leave(self.node(command, node)?)),
            ["deliver", kind, from, "->", to] => self.packet(command, kind, from, to, Step::Deliver),
            ["lose", kind, from, "->", to] => self.packet(command, kind, from, to, Step::Lose),
            ["repeat", kind, from, "->", to] => self.packet(command, kind, from, to, Step::Duplicate),
            ["deliver", "all"] => self.deliver_all(),
            ["tick"] => self.step(command, Step::Tick),
            ["tick", count] => match count.parse::<u32>() {
                Ok(count @ 1..=1000) => (0..count).try_fold(Vec::new(), |_, _| self.step(command, Step::Tick)),
                _ => command.fail("tick takes a number from 1 to 1000"),
            },
            ["timeout", node, name] => self.timeout(command, node, name),
            ["network"] => Ok(self.network()),
            ["explore", words @ ..] => self.explore(command, words),
            ["simulate", words @ ..] => self.simulate(command, words),
            _ => command.fail(
                "not a command; there are ask, exit, cancel, forget, deliver, lose, repeat, tick, timeout, crash, restart, \
                 join, leave, network, explore, simulate",
            ),
        }
    }

    fn node(&self, command: &Command, text: &str) -> Result<u8, LabError> {
        match text.parse().ok().and_then(|id| self.config.position(NodeId(id))) {
            Some(node) => Ok(node),
            None => command.fail(format!("there is no node {text}")),
        }
    }

    /// Takes a step that must be possible now.
    fn step(&mut self, command: &Command, step: Step) -> Result<Vec<String>, LabError> {
        let mut possible = Vec::new();
        self.model.steps(&self.config, &mut possible);
        if !possible.contains(&step) {
            return command.fail("this cannot happen now");
        }
        Ok(self.take(step))
    }

    fn take(&mut self, step: Step) -> Vec<String> {
        self.time += 1;
        let before = self.events.len();
        let violation = self.model.apply(&self.config, step, &mut self.scratch, Some(&mut self.events));
        self.events[before..].iter_mut().for_each(|event| event.at = self.time);
        let mut lines: Vec<String> = describe(&self.events[before..]);
        let has_violation = self.events[before..].iter().any(|event| matches!(event.kind, EventKind::Violation(_)));
        lines.extend(violation.filter(|_| !has_violation).map(|violation| format!("VIOLATION: {violation}")));
        if lines.is_empty() {
            lines.push("nothing".to_owned());
        }
        lines
    }

    fn packet(
        &mut self,
        command: &Command,
        kind: &str,
        from: &str,
        to: &str,
        step: fn(u16) -> Step,
    ) -> Result<Vec<String>, LabError> {
        let (from, to) = (self.node(command, from)?, self.node(command, to)?);
        let mut possible = Vec::new();
        self.model.steps(&self.config, &mut possible);
        let found = self.model.packets().find(|packet| {
            (packet.from, packet.to, packet.message.kind()) == (from, to, kind)
                && possible.contains(&step(packet.index))
        });
        let Some(packet) = found else {
            return command.fail(format!("no such {kind} is under way; {}", self.network().join("; ")));
        };
        Ok(self.take(step(packet.index)))
    }

    /// Delivers all messages in flight and those sent in response, lowest receiver and sender first.
    fn deliver_all(&mut self) -> Result<Vec<String>, LabError> {
        let mut lines = Vec::new();
        for _ in 0..10_000 {
            let mut possible = Vec::new();
            self.model.steps(&self.config, &mut possible);
            let Some(step) = possible.into_iter().find(|step| matches!(step, Step::Deliver(_))) else { break };
            lines.extend(self.take(step));
        }
        Ok(lines)
    }

    fn timeout(&mut self, command: &Command, node: &str, name: &str) -> Result<Vec<String>, LabError> {
        let position = self.node(command, node)?;
        let timers = || self.model.timers(position).map(|timer| format!("{timer:?}"));
        let found = timers().position(|timer| timer.starts_with(name));
        match found {
            Some(timer) => self.step(command, Step::Timeout { node: position, timer: timer as u8 }),
            None => {
                let set: Vec<String> = timers().collect();
                command.fail(format!(
                    "node {node} has no such timer set; it has {}",
                    if set.is_empty() { "none".to_owned() } else { set.join(", ") }
                ))
            }
        }
    }

    fn network(&self) -> Vec<String> {
        let ids = self.config.ids();
        let mut lines: Vec<String> = self
            .model
            .packets()
            .map(|InFlight { from, to, message, .. }| {
                format!("{} -> {}: {message}", ids[usize::from(from)], ids[usize::from(to)])
            })
            .collect();
        lines.sort();
        if lines.is_empty() {
            lines.push("nothing is under way".to_owned());
        }
        lines
    }

    fn explore(&mut self, command: &Command, words: &[&str]) -> Result<Vec<String>, LabError> {
        let mut spec = CheckSpec::of(&self.script.protocol);
        spec.nodes = self.script.nodes.len() as u32;
        spec.options.clone_from(&self.script.options);
        spec.order = if self.script.fifo { Order::Fifo } else { Order::Any };
        spec.initial = InitialSpec::These(self.script.holders.clone());
        spec.mutation = self.mutation;
        if self.mutation.is_some() {
            spec.states_max = 400_000; // A planted bug can make the number of states explode.
        }
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return command.fail(format!("'{word}' is not key=value"));
            };
            match key {
                "nodes" => spec.nodes = parsed(command, word)?,
                "entries" if value == "endless" => spec.entries = None,
                "entries" => spec.entries = Some(parsed(command, word)?),
                "cancels" if value == "any" => spec.cancels = None,
                "cancels" => spec.cancels = Some(parsed(command, word)?),
                "readers" => spec.readers = parsed(command, word)?,
                "drop-idle" => spec.drop_idle = parsed(command, word)?,
                "initial-holders" => spec.initial = parsed(command, word)?,
                "faults" => spec.faults = value.to_owned(),
                "order" => spec.order = parse_order(command, word)?,
                "last" => spec.last_entries = Some(parsed(command, word)?),
                "property" => spec.property = Some(value.to_owned()),
                _ => replace_option(&mut spec.options, key, word),
            }
        }
        match check(&spec, |_| {}) {
            Err(error) => refusal(command, &error),
            Ok(report) => Ok(match report.violations.first() {
                None if report.complete => {
                    vec![format!(
                        "holds in all {} states, the last node overtaken at most {} times",
                        report.states, report.overtaken.0
                    )]
                }
                None => vec![format!("incomplete after {} states", report.states)],
                Some(found) => {
                    // A scenario without steps is drawn as the first violation it finds.
                    if self.time == 0 && self.events == self.config.first_events() {
                        self.events.clone_from(&found.trace.events);
                    }
                    let events = describe(&found.trace.events).into_iter().map(|line| format!("  {line}"));
                    [format!("violation after {}", steps(found.steps))]
                        .into_iter()
                        .chain(events)
                        .chain(violation_at_end(found))
                        .collect()
                }
            }),
        }
    }

    fn simulate(&self, command: &Command, words: &[&str]) -> Result<Vec<String>, LabError> {
        let mut spec = RunSpec::of(&self.script.protocol);
        spec.nodes = self.script.nodes.len() as u32;
        spec.options.clone_from(&self.script.options);
        spec.order = if self.script.fifo { Order::Fifo } else { Order::Any };
        spec.mutation = self.mutation;
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return command.fail(format!("'{word}' is not key=value"));
            };
            match key {
                "nodes" => spec.nodes = parsed(command, word)?,
                "entries" => spec.entries = parsed(command, word)?,
                "seed" => spec.seed = parsed(command, word)?,
                "order" => spec.order = parse_order(command, word)?,
                "load" => spec.load = value.to_owned(),
                "hold" => spec.hold = Some(value.to_owned()),
                "latency" => spec.latency = value.to_owned(),
                "faults" => spec.faults = value.to_owned(),
                "readers" => spec.readers = parsed(command, word)?,
                _ => replace_option(&mut spec.options, key, word),
            }
        }
        Ok(match simulate(&spec) {
            Err(error) => return refusal(command, &error),
            Ok(report) => {
                let summary = format!(
                    "{} entries, {} messages, overtaken at most {}",
                    report.entries, report.messages, report.max_overtakes
                );
                let by_node: Vec<String> =
                    report.entries_by_node.iter().map(|(node, count)| format!("{node}: {count}")).collect();
                let violations = report.violations.iter().take(1).map(|violation| format!("VIOLATION: {violation}"));
                [summary, format!("entries by node {}", by_node.join(", "))].into_iter().chain(violations).collect()
            }
        })
    }
}

/// Parses the value of a `key=value` word.
fn parsed<T: std::str::FromStr>(command: &Command, word: &str) -> Result<T, LabError> {
    match word.split_once('=').and_then(|(_, value)| value.parse().ok()) {
        Some(value) => Ok(value),
        None => command.fail(format!("'{word}' has an invalid value")),
    }
}

fn parse_order(command: &Command, word: &str) -> Result<Order, LabError> {
    match word {
        "order=any" => Ok(Order::Any),
        "order=fifo" => Ok(Order::Fifo),
        _ => command.fail("order takes any or fifo"),
    }
}

/// A refusal is an outcome if the script expects one, else an error in the script.
fn refusal(command: &Command, error: &LabError) -> Result<Vec<String>, LabError> {
    let expects = command.expected.first().is_some_and(|line| line.starts_with("refused: "));
    if expects { Ok(vec![format!("refused: {error}")]) } else { command.fail(error) }
}

/// A command's own option replaces the script's.
fn replace_option(options: &mut Vec<String>, key: &str, word: &str) {
    options.retain(|option| option.split_once('=').is_none_or(|(other, _)| other != key));
    options.push(word.to_owned());
}

/// The violation, if it is not among the events: one that shows only when no step is left.
fn violation_at_end(found: &Counterexample) -> Option<String> {
    let has_violation = found.trace.events.iter().any(|event| matches!(event.kind, EventKind::Violation(_)));
    (!has_violation).then(|| format!("  VIOLATION: {}", found.text))
}

/// One line per event, without its time.
fn describe(events: &[Event]) -> Vec<String> {
    events.iter().map(Event::to_string).collect()
}
