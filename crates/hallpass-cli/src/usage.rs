//! The argument parser's help, which goes to stdout, and its errors as one line.

use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use crate::cli::Cli;
use crate::exit::{Fault, Outcome};
use crate::terminal;

/// Parses the arguments.
pub(crate) fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = without_empty_variables(Cli::command()).try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches)
}

/// A variable that is set to nothing counts as not set, as in service files that leave one out so.
fn without_empty_variables(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| if arg.get_env().is_some_and(is_empty) { arg.env(Resettable::Reset) } else { arg })
        .mut_subcommands(without_empty_variables)
}

/// Handles what the parser returns instead of a command: `--help`, `--version` or an error.
pub(crate) fn answer(error: &clap::Error, args: &[OsString]) -> Result<Outcome, Fault> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            terminal::print(&error.render().to_string())?;
            Ok(Outcome::Fine)
        }
        _ => Err(Fault::Usage(explain(error, args).unwrap_or_else(|| one_line(&error.render().to_string())))),
    }
}

/// The command that the arguments name as far as they name one, such as `hallpass lab run`.
pub(crate) fn command_of(args: &[OsString]) -> String {
    find_command(args).1
}

/// The same, with its definition.
fn find_command(args: &[OsString]) -> (Command, String) {
    let mut command = Cli::command();
    let mut path = command.get_name().to_owned();
    for word in args.iter().skip(1).map_while(|arg| arg.to_str()) {
        let Some(sub) = command.find_subcommand(word).cloned() else { break };
        path = format!("{path} {word}");
        command = sub;
    }
    (command, path)
}

/// What is wrong where the parser sees only an argument too many or too few.
fn explain(error: &clap::Error, args: &[OsString]) -> Option<String> {
    let (command, path) = find_command(args);
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(unknown))) => Some(unknown.as_str()),
        _ => None,
    };
    if let Some(negative) = unknown.and_then(|unknown| negative_value(unknown, &command, args)) {
        return Some(negative);
    }
    let is_word = unknown.is_some_and(|unknown| !unknown.starts_with('-'));
    let without_dashes = path == "hallpass run" && !args.iter().any(|arg| arg == "--");
    (without_dashes && (is_word || error.kind() == ErrorKind::MissingRequiredArgument))
        .then(|| "put '--' before the command: hallpass run LOCK -- COMMAND".to_owned())
}

/// A negative number after an option that takes a value. The parser takes it for a flag, and reports the flag's first letter.
fn negative_value(unknown: &str, command: &Command, args: &[OsString]) -> Option<String> {
    let is_number = |text: &str| text.trim_start_matches(['-', '.']).starts_with(|c: char| c.is_ascii_digit());
    let takes_value = |option: &str| {
        let of_name = |arg: &&Arg| arg.get_long().is_some_and(|long| option.strip_prefix("--") == Some(long));
        command.get_arguments().find(of_name).is_some_and(|arg| arg.get_action().takes_values())
    };
    args.windows(2).find_map(|pair| {
        let (option, value) = (pair[0].to_str()?, pair[1].to_str()?);
        let found = value.starts_with(unknown) && is_number(value) && takes_value(option);
        found.then(|| format!("'{option}' takes no negative value: '{value}'"))
    })
}

/// The parser's message and its tips; its usage text and its pointer to `--help` are left out, as ours follows.
fn one_line(message: &str) -> String {
    let paragraphs = message
        .trim()
        .split("\n\n")
        .filter(|text| !text.starts_with("Usage:") && !text.starts_with("For more information"))
        // Following this tip would make the argument part of the command that `run` runs.
        .filter(|text| !text.trim_start().starts_with("tip: to pass '-"));
    let lines: Vec<String> = paragraphs.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let mut line = lines.join("; ");
    for hidden in Cli::command().get_subcommands().filter(|command| command.is_hide_set()) {
        line = line.replace(&format!(", {}", hidden.get_name()), "");
    }
    // As the standard library puts it.
    line = line.replace("invalid digit found in string", "not a whole number");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Cli::command().debug_assert();
    }

    /// Every command that users see, under its whole name.
    fn commands() -> Vec<Command> {
        fn collect(command: &Command, all: &mut Vec<Command>) {
            all.push(command.clone());
            command.get_subcommands().filter(|sub| !sub.is_hide_set()).for_each(|sub| collect(sub, all));
        }
        let mut cli = Cli::command().disable_help_subcommand(true);
        cli.build();
        let mut all = Vec::new();
        collect(&cli, &mut all);
        all
    }

    #[test]
    fn every_help_has_an_example_and_fits_80_columns() {
        let commands = commands();
        assert!(commands.len() > 15, "{}", commands.len());
        for mut command in commands {
            let name = command.get_bin_name().unwrap_or("hallpass").to_owned();
            for help in [command.render_help().to_string(), command.render_long_help().to_string()] {
                let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
                assert!(wide.is_empty(), "{name}: {wide:#?}");
                let example = help.split_once("Example").map_or("", |(_, after)| after);
                assert!(example.contains(&name), "{name} has no example:\n{help}");
            }
        }
    }

    #[test]
    fn every_flag_and_variable_of_an_agent_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(path).unwrap();
        let agent = commands().into_iter().find(|command| command.get_name() == "agent").unwrap();
        let mut variables = vec!["HALLPASS_LOG", "HALLPASS_LOCK", "HALLPASS_FENCE", "HALLPASS_NODE"];
        for arg in agent.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help") {
            let variable = arg.get_env().and_then(|name| name.to_str()).expect("every setting has a variable");
            let flag = arg.get_long().unwrap();
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{variable}`")));
            assert!(row.is_some_and(|row| row.contains(&format!("`--{flag}`"))), "{variable} and --{flag}");
            variables.push(variable);
        }
        let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
        for word in page.split(|c| !is_name(c)).filter(|word| word.starts_with("HALLPASS_")) {
            assert!(variables.contains(&word), "{word} is not a variable");
        }
    }

    #[test]
    fn the_pointer_goes_as_deep_as_the_arguments() {
        let of = |line: &str| command_of(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("hallpass"), "hallpass");
        assert_eq!(of("/usr/bin/hallpass lab run --nodes 0"), "hallpass lab run");
        assert_eq!(of("hallpass lab bogus"), "hallpass lab");
        assert_eq!(of("hallpass --bogus lab run"), "hallpass");
    }

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        let message = "error: unexpected argument '--ordr' found\n\n  tip: a similar argument exists: '--order'\n\nUsage: hallpass\n\nFor more information, try '--help'.\n";
        assert_eq!(one_line(message), "unexpected argument '--ordr' found; tip: a similar argument exists: '--order'");
    }
}
