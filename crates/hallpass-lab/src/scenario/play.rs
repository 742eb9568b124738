use hallpass_core::protocol::{Mutant, Mutation, Needs, Options, Variables, Visitor};
use hallpass_core::{Mode, NodeId, Protocol};
use hallpass_sim::trace::{Event, EventKind, Scale, States, Trace};
use hallpass_sim::{InFlight, Limits, Model, ModelConfig, Order, Scratch, Step};

use super::choice::{Named, Naming, describe as describe_step};
use super::parse::{Command, Script};
use super::{CommandOutcome, Playback};
use crate::{CheckSpec, Counterexample, InitialSpec, LabError, RunSpec, check, select, simulate, steps};

pub(super) fn play(script: &Script, mutation: Option<Mutation>) -> Result<Playback, LabError> {
    visit(script, mutation, false)
}

pub(super) fn play_along(script: &Script) -> Result<Playback, LabError> {
    visit(script, None, true)
}

fn visit(script: &Script, mutation: Option<Mutation>, lenient: bool) -> Result<Playback, LabError> {
    let mut words = script.options.clone();
    let names: Vec<String> = script.nodes.iter().map(u32::to_string).collect();
    words.push(format!("names={}", names.join(",")));
    let (kind, ids, mut options) = select(&script.protocol, script.nodes.len() as u32, &words)?;
    options.tick = 1;
    kind.visit(Player { script, mutation, lenient, ids, options })
}

struct Player<'a> {
    script: &'a Script,
    mutation: Option<Mutation>,
    /// Steps that cannot happen are left out.
    lenient: bool,
    ids: Vec<NodeId>,
    options: Options,
}

impl Visitor for Player<'_> {
    type Output = Result<Playback, LabError>;

    fn visit<P: Protocol + 'static>(self) -> Self::Output {
        let script = self.script;
        let order = if script.fifo { Order::Fifo } else { Order::Any };
        let options = P::parse(&self.options)?;
        let limits = limits(script, &P::needs(&options));
        let config = ModelConfig::<Mutant<P>>::new(&self.ids, (options, self.mutation), order, limits)?.keeping_moot();
        let config = config.held_by(script.holders.clone())?;
        let mut interpreter = Interpreter {
            model: Model::new(&config),
            events: config.first_events(),
            config,
            scratch: Scratch::default(),
            time: 0,
            states: States::default(),
            violation: None,
            script,
            mutation: self.mutation,
        };
        interpreter.note_states(0);
        let mut steps = Vec::new();
        for command in &script.commands {
            steps.push(interpreter.run_or_skip(command, self.lenient)?);
        }
        if self.lenient {
            steps.extend(interpreter.run_until_idle());
        }
        Ok(interpreter.finish(steps))
    }
}

/// More than any script has, of whatever the protocol bears.
fn limits(script: &Script, needs: &Needs) -> Limits {
    let joins = script.commands.iter().filter(|command| command.text.starts_with("join ")).count().min(99) as u8;
    let happens = |fault: &str| script.faults.as_ref().is_none_or(|named| named.iter().any(|other| other == fault));
    let unlimited = |fault: &str, is_borne: bool| if happens(fault) && is_borne { 99 } else { 0 };
    let starts_held = !script.holders.nodes.is_empty();
    let first = script.nodes.iter().min().map_or_else(String::new, |node| format!("leave {node}"));
    // The next newcomer after those of the script is possible too, unless its sponsor, the first node, leaves.
    let spare = needs.membership && happens("join") && !script.commands.iter().any(|command| command.text == first);
    Limits {
        entries: Some(200),
        last_entries: None,
        first_entries: None,
        tries: needs.home,
        upgrades: needs.home,
        reentry: needs.home,
        cancels: if needs.no_cancel.is_some() { Some(0) } else { None },
        readers: needs.no_shared.is_none(),
        drop_idle: true,
        crashes: unlimited("crash", !starts_held),
        restarts: unlimited("restart", (needs.membership || needs.recovery) && !starts_held),
        losses: unlimited("loss", needs.no_loss.is_none()),
        duplicates: unlimited("dup", needs.no_loss.is_none()),
        joins: joins + u8::from(spare),
        leaves: unlimited("leave", needs.membership),
    }
}

/// Carries out a script's commands on a model.
struct Interpreter<'a, P: Protocol> {
    config: ModelConfig<P>,
    model: Model<P>,
    scratch: Scratch<P>,
    events: Vec<Event>,
    time: u64,
    states: States,
    /// The first violation of a step.
    violation: Option<String>,
    script: &'a Script,
    mutation: Option<Mutation>,
}

/// The most steps that follow without a command.
const STEPS_UNTIL_IDLE_MAX: usize = 60;

impl<P: Protocol> Interpreter<'_, P> {
    fn run_or_skip(&mut self, command: &Command, lenient: bool) -> Result<CommandOutcome, LabError> {
        let before = self.events.len();
        let (actual, is_skipped) = match self.run(command) {
            Ok(actual) => (actual, false),
            Err(_) if lenient => (vec!["cannot happen here".to_owned()], true),
            Err(error) => return Err(error),
        };
        Ok(CommandOutcome {
            line: command.line,
            command: command.text.clone(),
            expected: command.expected.clone(),
            actual,
            comment: command.comment(),
            // An exploration replaces the events.
            events: (before.min(self.events.len()), self.events.len()),
            is_skipped,
        })
    }

    /// Lets everything happen that must: messages arrive, nodes that are inside leave, timers fire.
    fn run_until_idle(&mut self) -> Vec<CommandOutcome> {
        let mut outcomes = Vec::new();
        for _ in 0..STEPS_UNTIL_IDLE_MAX {
            let mut possible = Vec::new();
            self.model.steps(&self.config, &mut possible);
            let urgency = |step: &&Step| match step {
                Step::Deliver(_) => 0,
                Step::Exit(_) => 1,
                Step::Timeout { .. } => 2,
                _ => 3,
            };
            let Some(step) = possible.iter().filter(|step| step.must_happen()).min_by_key(urgency).copied() else {
                break;
            };
            let command = describe_step(&self.config, &self.model, &possible, step, Naming::Brief).command;
            let before = self.events.len();
            let actual = self.take(step);
            outcomes.push(CommandOutcome {
                line: 0,
                command,
                expected: Vec::new(),
                actual,
                comment: String::new(),
                events: (before, self.events.len()),
                is_skipped: false,
            });
        }
        outcomes
    }

    fn finish(mut self, steps: Vec<CommandOutcome>) -> Playback {
        let outcomes: Vec<Vec<String>> = steps.iter().map(|step| step.actual.clone()).collect();
        let mut possible = Vec::new();
        self.model.steps(&self.config, &mut possible);
        let next = possible.iter();
        let next = next.map(|step| describe_step(&self.config, &self.model, &possible, *step, Naming::Brief)).collect();
        let ends = !possible.iter().any(|step| step.must_happen());
        let waits = self.model.check_end(&self.config).filter(|_| ends).map(|violation| violation.to_string());
        hallpass_sim::trace::link(&mut self.events);
        let mut nodes = self.config.ids().to_vec();
        if self.config.has_spare_newcomer() && !self.events.iter().any(|event| Some(&event.node) == nodes.last()) {
            nodes.pop();
        }
        nodes.extend(self.events.iter().map(|event| event.node));
        nodes.sort_unstable();
        nodes.dedup();
        let has_steps = self.time > 0;
        let states = if has_steps || self.script.commands.is_empty() { self.states.into_changes() } else { Vec::new() };
        Playback {
            steps,
            trace: Trace { title: self.script.title.clone(), nodes, scale: Scale::Steps, events: self.events },
            has_steps,
            rewritten: self.script.rewrite(&outcomes),
            states,
            next,
            violation: self.violation.or(waits.filter(|_| has_steps)),
        }
    }

    /// Notes every node's variables, as of the first event after the first `before`.
    fn note_states(&mut self, before: usize) {
        let from = (before + 1).min(self.events.len());
        for (position, id) in self.config.ids().iter().enumerate() {
            let mut variables = Variables::default();
            if let Some(protocol) = self.model.protocol(position as u8) {
                protocol.variables(&mut variables);
            }
            self.states.note(from, *id, variables);
        }
    }

    fn run(&mut self, command: &Command) -> Result<Vec<String>, LabError> {
        let words: Vec<&str> = command.text.split_whitespace().collect();
        match words.as_slice() {
            ["ask", node, how @ ..] => self.ask(command, node, how),
            ["cancel", node] => self.step(command, Step::Cancel(self.node(command, node)?)),
            ["try", node, how @ ..] => {
                let mode = match how {
                    [] => Mode::Exclusive,
                    ["shared"] => Mode::Shared,
                    _ => return command.fail("after the node comes nothing, or shared"),
                };
                self.step(command, Step::Try { node: self.node(command, node)?, mode })
            }
            ["downgrade", node] => self.step(command, Step::Downgrade(self.node(command, node)?)),
            ["upgrade", node] => self.step(command, Step::Upgrade(self.node(command, node)?)),
            ["reenter", node] => self.step(command, Step::Reenter(self.node(command, node)?)),
            ["give-back", node] => self.step(command, Step::GiveBack(self.node(command, node)?)),
            ["forget", node] => self.step(command, Step::Drop(self.node(command, node)?)),
            ["exit", node] => self.step(command, Step::Exit(self.node(command, node)?)),
            ["crash", node] => self.step(command, Step::Crash(self.node(command, node)?)),
            ["restart", node] => self.step(command, Step::Restart(self.node(command, node)?)),
            ["join", node] => self.step(command, Step::Join(self.node(command, node)?)),
            ["leave", node] => self.step(command, Step::Leave(self.node(command, node)?)),
            ["deliver", "all"] => self.deliver_all(),
            ["deliver", message @ ..] => self.packet(command, message, Step::Deliver),
            ["lose", message @ ..] => self.packet(command, message, Step::Lose),
            ["repeat", message @ ..] => self.packet(command, message, Step::Duplicate),
            ["tick"] => self.step(command, Step::Tick),
            ["tick", count] => match count.parse::<u32>() {
                Ok(count @ 1..=1000) => (0..count).try_fold(Vec::new(), |_, _| self.step(command, Step::Tick)),
                _ => command.fail("tick takes a number from 1 to 1000"),
            },
            ["timeout", node, name @ ..] => self.timeout(command, node, &name.join(" ")),
            ["network"] => Ok(self.network()),
            ["explore", words @ ..] => self.explore(command, words),
            ["simulate", words @ ..] => self.simulate(command, words),
            _ => command.fail(
                "not a command; there are ask, try, exit, cancel, downgrade, upgrade, reenter, give-back, forget, deliver, lose, \
                 repeat, tick, timeout, crash, restart, join, leave, network, explore, simulate",
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
        self.note_states(before);
        if self.violation.is_none() {
            self.violation = violation.as_ref().map(ToString::to_string);
        }
        let mut lines: Vec<String> = describe(&self.events[before..]);
        let has_violation = self.events[before..].iter().any(|event| matches!(event.kind, EventKind::Violation(_)));
        lines.extend(violation.filter(|_| !has_violation).map(|violation| format!("VIOLATION: {violation}")));
        if lines.is_empty() {
            lines.push("nothing".to_owned());
        }
        lines
    }

    fn packet(&mut self, command: &Command, words: &[&str], step: fn(u16) -> Step) -> Result<Vec<String>, LabError> {
        let Some(named) = Named::parse(words) else {
            return command.fail("a message is written as REQUEST 1 -> 2, or REPLY(3) 1 -> 2");
        };
        let link = (self.node(command, named.from)?, self.node(command, named.to)?);
        let mut possible = Vec::new();
        self.model.steps(&self.config, &mut possible);
        let packets = self.model.packets().filter(|packet| possible.contains(&step(packet.index)));
        let found =
            named.find(link, packets.map(|packet| (packet.index, packet.from, packet.to, packet.message.clone())));
        match found {
            Some(index) => Ok(self.take(step(index))),
            None => command.fail(format!("no such {} is under way; {}", named.text, self.network().join("; "))),
        }
    }

    fn ask(&mut self, command: &Command, node: &str, how: &[&str]) -> Result<Vec<String>, LabError> {
        let node = self.node(command, node)?;
        let (mut mode, mut draw) = (Mode::Exclusive, 0);
        for word in how {
            match word.strip_prefix("draw=").map(str::parse) {
                Some(Ok(drawn)) => draw = drawn,
                None if *word == "shared" => mode = Mode::Shared,
                _ => return command.fail("after the node comes nothing, or shared, or draw=K"),
            }
        }
        self.step(command, Step::Request { node, mode, draw })
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
            spec.set(word).or_else(|error| command.fail(error))?;
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
            spec.set(word).or_else(|error| command.fail(error))?;
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

/// A refusal is an outcome if the script expects one, else an error in the script.
fn refusal(command: &Command, error: &LabError) -> Result<Vec<String>, LabError> {
    let expects = command.expected.first().is_some_and(|line| line.starts_with("refused: "));
    if expects { Ok(vec![format!("refused: {error}")]) } else { command.fail(error) }
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
