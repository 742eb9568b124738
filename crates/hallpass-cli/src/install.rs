//! What an installation adds to the binary: completions for shells, and man pages, both from the command line's own definition.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Command, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Fault, Outcome};
use crate::{man, terminal};

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command to this directory; created if missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Outcome, Fault> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut without_hidden(&Cli::command()), "hallpass", &mut script);
    terminal::print(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Fine)
}

pub(crate) fn man(args: &ManArgs) -> Result<Outcome, Fault> {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    match &args.out {
        None => terminal::print(&man::page(&cli))?,
        Some(directory) => {
            let written = fs::create_dir_all(directory).and_then(|()| write_pages(&cli, directory));
            written.map_err(|error| cannot_write(directory, error))?;
        }
    }
    Ok(Outcome::Fine)
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> std::io::Result<()> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set()).try_for_each(|sub| write_pages(sub, directory))?;
    fs::write(directory.join(man::file_name(command)), man::page(command))
}

/// A command without its hidden flags and commands, which the generator of completions would list.
fn without_hidden(command: &Command) -> Command {
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let group = |group: &ArgGroup| {
        let members = group.get_args().filter(|id| shown().any(|arg| arg.get_id() == *id));
        ArgGroup::new(group.get_id().clone()).args(members.cloned()).multiple(true)
    };
    Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .args(shown().cloned())
        .groups(command.get_groups().map(group))
        .subcommands(command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(without_hidden))
}

fn cannot_write(target: &Path, error: std::io::Error) -> Fault {
    Fault::Write { target: target.display().to_string(), error }
}
