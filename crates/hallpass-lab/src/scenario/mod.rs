//! Scenarios: text files that list every step and its expected outcome.
//!
//! ```text
//! # A comment.
//! title Two nodes
//! protocol ricart-agrawala reply-number=false
//! nodes 1 2
//!
//! ask 1
//! ----
//! 1 asks
//! 1 sends REQUEST(1) to 2
//! ```
//!
//! Each command is followed by a line of dashes, its outcome, and an empty line. The steps: `ask N [shared]`, `exit N`,
//! `cancel N`, `try N [shared]`, `downgrade N`, `upgrade N`, `reenter N`, `give-back N`, `forget N`, `deliver KIND A -> B`,
//! `deliver all`, `lose KIND A -> B`, `repeat KIND A -> B`, `tick [K]`, `timeout N NAME`, `crash N`, `restart N`, `join N`,
//! `leave N`; `network` lists the messages in flight. Where a link has several messages of a kind, one is named with its
//! contents, `deliver REPLY(2) A -> B`, and the second of equal ones with `#2` at the end; `ask N draw=K` takes the K-th
//! random number. Comments before a command tell what it shows. `explore WORDS` explores the protocol instead, with the
//! words `entries=2 cancels=0 readers=true tries=true upgrades=true reentry=true drop-idle=true initial-holders=all
//! faults=crash:1 order=fifo nodes=3 property=exclusion` and options of the protocol; `simulate WORDS` runs it in virtual
//! time, with `seed=1 load=light hold=5ms latency=1ms faults=.. readers=0.5`. A line `holders 1,3:shared` before the first
//! command says who is inside at the start, and `faults none` or `faults loss,crash` which faults may happen: where none
//! may, no timer waits for them.

mod choice;
mod parse;
mod play;

use hallpass_core::protocol::Mutation;
use hallpass_sim::trace::{StateChange, Trace};

use crate::LabError;

pub use choice::Choice;
pub(crate) use choice::{Naming, describe};
use parse::Script;

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// The scenarios that ship with hallpass, by name.
        pub const SHIPPED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../testdata/scenarios/", $name, ".txt")))),*];
    };
}

shipped![
    "central-withdrawal",
    "carvalho-roucairol-forgotten",
    "carvalho-roucairol-readers",
    "carvalho-roucairol-reentry",
    "cmu-example",
    "directory-attempt",
    "directory-crossing",
    "directory-handover",
    "directory-readers",
    "directory-upgrade",
    "lamport-cases",
    "lamport-fifo-order",
    "ricart-agrawala-decision-table",
    "ricart-agrawala-figure-1",
    "ricart-agrawala-footnote-2",
    "ricart-agrawala-names",
    "ricart-agrawala-join",
    "ricart-agrawala-leave",
    "ricart-agrawala-failure",
    "ricart-agrawala-restart",
    "maekawa-inquire",
    "maekawa-overtaken",
    "naimi-trehel-path-reversal",
    "suzuki-kasami-queue",
    "token-cyclic-scan",
    "trap-01-own-number",
    "trap-02-atomic-deferral",
    "trap-03-atomic-number",
    "trap-04-modulo-readers",
    "trap-05-are-you-there",
    "trap-06-counting-replies",
    "trap-07-suspicion",
    "trap-08-two-sponsors",
    "trap-09-leave-and-join",
    "trap-10-late-deferred",
    "trap-11-early-reply",
    "trap-12-readers-and-writers",
    "trap-13-first-come",
    "trap-14-delayed-handling",
    "token-ring-busy-cycle",
    "token-ring-wake",
    "trap-22-forgotten-holder",
    "trap-23-pop-top",
    "trap-24-check",
    "trap-25-idle-token",
    "trap-15-using",
    "trap-16-atomic-entry",
    "trap-20-two-tokens",
    "raymond-figure-1",
    "raymond-initialize",
    "raymond-overtaking",
    "raymond-recovery",
    "trap-26-advise",
    "trap-27-incarnations",
];

/// The result of playing a scenario.
#[derive(Clone, Debug)]
pub struct Playback {
    /// The outcome of each command.
    pub steps: Vec<CommandOutcome>,
    /// The events of all steps, to draw them; without steps, those of the first violation that an exploration found.
    pub trace: Trace,
    /// The scenario takes steps itself; it does not only explore or simulate.
    pub has_steps: bool,
    /// The scenario's text with the actual outcomes.
    pub rewritten: String,
    /// The nodes' variables beside the trace; none if that is of an exploration.
    pub states: Vec<StateChange>,
    /// Every step that may come next.
    pub next: Vec<Choice>,
    /// The first violation of the steps; a node that waits forever is one, too.
    pub violation: Option<String>,
}

/// A command of a scenario and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutcome {
    /// The line of the command.
    pub line: usize,
    /// The command.
    pub command: String,
    /// The outcome that the scenario expects.
    pub expected: Vec<String>,
    /// The actual outcome.
    pub actual: Vec<String>,
    /// The comments before it, in one line.
    pub comment: String,
    /// The trace's events that it caused, from the first to before the last.
    pub events: (usize, usize),
    /// It could not happen, and was left out; only if that was asked for.
    pub is_skipped: bool,
}

impl Playback {
    /// The first command whose outcome is not the expected one.
    pub fn first_difference(&self) -> Option<&CommandOutcome> {
        self.steps.iter().find(|step| step.expected != step.actual)
    }
}

/// Checks a scenario's text without playing it. The error names the line.
pub fn validate(text: &str) -> Result<(), LabError> {
    Script::parse(text).map(drop)
}

/// Plays a scenario, optionally with a planted bug. If the text is invalid, the error names the line.
pub fn play(text: &str, mutation: Option<Mutation>) -> Result<Playback, LabError> {
    let script = Script::parse(text)?;
    play::play(&script, mutation)
}

/// Plays a scenario and leaves out the steps that cannot happen. Then everything that must happen does, up to a bound.
///
/// So one order of events can be tried on two variants of a protocol.
pub fn play_along(text: &str) -> Result<Playback, LabError> {
    let script = Script::parse(text)?;
    play::play_along(&script)
}

/// The text of a shipped scenario.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Plays a shipped scenario by name.
pub fn play_shipped(name: &str, mutation: Option<Mutation>) -> Result<Playback, LabError> {
    match SHIPPED.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => play(text, mutation),
        None => {
            let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            Err(LabError(format!("there is no scenario '{name}'; there are {}", names.join(", "))))
        }
    }
}
