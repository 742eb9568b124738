use hallpass_sim::Holders;

use crate::{InitialSpec, LabError};

/// A parsed scenario.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) title: String,
    pub(super) protocol: String,
    pub(super) options: Vec<String>,
    pub(super) nodes: Vec<u32>,
    pub(super) fifo: bool,
    /// Who holds the lock before the first command.
    pub(super) holders: Holders,
    /// The kinds of faults that may happen; none for all that the protocol bears.
    pub(super) faults: Option<Vec<String>>,
    /// The text before the first command, unchanged.
    pub(super) head: String,
    pub(super) commands: Vec<Command>,
    /// Comments and empty lines after the last command.
    pub(super) tail: String,
}

#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) line: usize,
    pub(super) text: String,
    /// Comments and empty lines before it, unchanged.
    pub(super) before: String,
    pub(super) expected: Vec<String>,
}

impl Command {
    /// The comments before it, in one line.
    pub(super) fn comment(&self) -> String {
        // A blank line ends a comment that belongs to something else.
        let last = self.before.trim_end_matches('\n').rsplit("\n\n").next().unwrap_or_default();
        let lines = last.lines().filter_map(|line| line.strip_prefix('#'));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn fail<T>(&self, why: impl std::fmt::Display) -> Result<T, LabError> {
        Err(LabError(format!("scenario line {}: '{}': {why}", self.line, self.text)))
    }
}

impl Script {
    pub(super) fn parse(text: &str) -> Result<Self, LabError> {
        let mut script = Self {
            title: String::new(),
            protocol: String::new(),
            options: Vec::new(),
            nodes: Vec::new(),
            fifo: false,
            holders: Holders::default(),
            faults: None,
            head: String::new(),
            commands: Vec::new(),
            tail: String::new(),
        };
        let mut lines = text.lines().enumerate().peekable();
        let mut before = String::new();
        while let Some((index, line)) = lines.next() {
            if line.trim().is_empty() || line.starts_with('#') {
                before.push_str(line);
                before.push('\n');
                continue;
            }
            if script.commands.is_empty() && script.parse_heading(index + 1, line)? {
                script.head.push_str(&before);
                script.head.push_str(line);
                script.head.push('\n');
                before.clear();
                continue;
            }
            let mut command = Command {
                line: index + 1,
                text: line.trim().to_owned(),
                before: std::mem::take(&mut before),
                expected: Vec::new(),
            };
            if lines.next_if(|(_, line)| line.starts_with("----")).is_none() {
                return command.fail(
                    "neither a setting (title, protocol, nodes, order, holders, faults) nor a command with a line of dashes after it",
                );
            }
            while let Some((_, line)) = lines.next_if(|(_, line)| !line.trim().is_empty()) {
                command.expected.push(line.trim_end().to_owned());
            }
            script.commands.push(command);
        }
        script.tail = before;
        script.check()?;
        Ok(script)
    }

    /// Parses a setting. False if the line is none.
    fn parse_heading(&mut self, number: usize, line: &str) -> Result<bool, LabError> {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let fail = |why: &str| Err(LabError(format!("scenario line {number}: {why}")));
        match word {
            "title" => self.title = rest.to_owned(),
            "protocol" => {
                let mut words = rest.split_whitespace().map(str::to_owned);
                self.protocol = words.next().unwrap_or_default();
                self.options = words.collect();
            }
            "nodes" => match rest.split_whitespace().map(|id| id.parse().ok()).collect::<Option<Vec<u32>>>() {
                Some(nodes) if !nodes.is_empty() => self.nodes = nodes,
                _ => return fail(&format!("nodes '{rest}' is not a list of numbers such as 1 2 3")),
            },
            "order" => match rest {
                "any" => self.fifo = false,
                "fifo" => self.fifo = true,
                _ => return fail(&format!("unknown order '{rest}'; use any or fifo")),
            },
            "holders" => match rest.parse() {
                Ok(InitialSpec::These(holders)) => self.holders = holders,
                _ => return fail(&format!("holders '{rest}' is not a set of nodes such as 2 or 1,3:shared")),
            },
            "faults" if rest == "none" => self.faults = Some(Vec::new()),
            "faults" => {
                // Counts are for explorations; a scenario says itself how often.
                let kinds = rest.split(',').map(|word| word.split(':').next().unwrap_or_default().to_owned());
                self.faults = Some(kinds.collect());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn check(&self) -> Result<(), LabError> {
        if self.protocol.is_empty() {
            return Err(LabError("scenario: a line 'protocol NAME' is missing".to_owned()));
        }
        if self.nodes.is_empty() {
            return Err(LabError("scenario: a line 'nodes 1 2 3' is missing".to_owned()));
        }
        Ok(())
    }

    /// The scenario's text with other outcomes.
    pub(super) fn rewrite(&self, outcomes: &[Vec<String>]) -> String {
        let mut text = self.head.clone();
        for (command, outcome) in self.commands.iter().zip(outcomes) {
            text.push_str(&command.before);
            text.push_str(&command.text);
            text.push_str("\n----\n");
            for line in outcome {
                text.push_str(line);
                text.push('\n');
            }
        }
        text.push_str(&self.tail);
        text
    }
}
