//! Scenarios: text files that name every step and what must come of it.
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
//! A command, a line of dashes, what happened, an empty line. The steps: `ask N [shared]`, `exit N`, `cancel N`,
//! `deliver KIND A -> B`, `lose KIND A -> B`, `repeat KIND A -> B`, `tick [K]`, `timeout N NAME`, `crash N`, `restart N`,
//! `join N`, `leave N`; `network` lists what is under way. `explore WORDS` explores the protocol instead, with the words
//! `entries=2 cancels=0 readers=true faults=crash:1 order=fifo nodes=3 property=exclusion` and options of the protocol; `simulate WORDS`
//! runs it in virtual time, with `seed=1 load=light hold=5ms latency=1ms faults=.. readers=0.5`.

mod parse;
mod play;

use hallpass_core::protocol::Mutation;
use hallpass_sim::trace::Trace;

use crate::LabError;

use parse::Script;

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// The scenarios that come with hallpass, by name.
        pub const SHIPPED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../testdata/scenarios/", $name, ".txt")))),*];
    };
}

shipped![
    "central-withdrawal",
    "carvalho-roucairol-readers",
    "carvalho-roucairol-reentry",
    "cmu-example",
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

/// What became of a scenario.
#[derive(Clone, Debug)]
pub struct Played {
    /// For each command, its line number, what was expected and what came.
    pub steps: Vec<Outcome>,
    /// Everything that happened in the steps, to draw; without steps, the first violation that an exploration found.
    pub trace: Trace,
    /// It takes steps of its own, and not only explores or simulates.
    pub has_steps: bool,
    /// The file with what came in place of what was expected.
    pub rewritten: String,
}

/// One command of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Where the command stands.
    pub line: usize,
    /// The command.
    pub command: String,
    /// What the file says.
    pub expected: Vec<String>,
    /// What came.
    pub actual: Vec<String>,
}

impl Played {
    /// The first command whose outcome is not the expected one.
    pub fn first_difference(&self) -> Option<&Outcome> {
        self.steps.iter().find(|step| step.expected != step.actual)
    }
}

/// Plays a scenario, with a planted bug if one is given. A text that cannot be read is an error with its line.
pub fn play(text: &str, mutation: Option<Mutation>) -> Result<Played, LabError> {
    let script = Script::parse(text)?;
    play::play(&script, mutation)
}

/// Plays a shipped scenario by name.
pub fn play_shipped(name: &str, mutation: Option<Mutation>) -> Result<Played, LabError> {
    match SHIPPED.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => play(text, mutation),
        None => {
            let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            Err(LabError(format!("there is no scenario '{name}'; there are {}", names.join(", "))))
        }
    }
}
