//! Man pages: the definition of a command, with the paragraphs of its help as sections.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// Paragraphs of a help text that have a section of their own: how they begin, and the section's title.
const SECTIONS: [(&str, &str); 3] =
    [("Environment", "ENVIRONMENT"), ("Exit code", "EXIT STATUS"), ("Example", "EXAMPLES")];

/// The name of the page's file, such as `hallpass-run.1`.
pub(crate) fn file_name(command: &Command) -> String {
    Man::new(command.clone()).get_filename()
}

/// The page of a command, as roff.
pub(crate) fn page(command: &Command) -> String {
    let paragraphs = paragraphs(command);
    let is_prose = |text: &&String| section_of(text).is_none() && !text.contains("\n  ");
    let is_note = |text: &&String| section_of(text).is_none() && text.contains("\n  ");
    let usage = command.clone().render_usage().to_string();
    let synopsis = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let man = Man::new(command.clone().override_usage(synopsis));
    let mut page = Vec::new();
    let rendered = (|| {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        let prose: Vec<_> = paragraphs.iter().filter(is_prose).collect();
        if !prose.is_empty() {
            page.extend_from_slice(b".PP\n");
        }
        body(&prose).to_writer(&mut page)?;
        if command.get_arguments().any(|arg| !arg.is_hide_set()) {
            man.render_options_section(&mut page)?;
        }
        if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
            man.render_subcommands_section(&mut page)?;
        }
        section("NOTES", &paragraphs.iter().filter(is_note).collect::<Vec<_>>()).to_writer(&mut page)?;
        for (_, title) in SECTIONS {
            let texts: Vec<_> = paragraphs.iter().filter(|text| section_of(text) == Some(title)).collect();
            section(title, &texts).to_writer(&mut page)?;
        }
        see_also(command).to_writer(&mut page)
    })();
    rendered.expect("memory can be written");
    String::from_utf8(page).expect("text was written")
}

/// The paragraphs of the help that follow the options.
fn paragraphs(command: &Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    help.split("\n\n").filter(|text| !text.trim().is_empty()).map(str::to_owned).collect()
}

fn section_of(paragraph: &str) -> Option<&'static str> {
    SECTIONS.iter().find(|(start, _)| paragraph.starts_with(start)).map(|(_, title)| *title)
}

/// A section with a title, or nothing if there is no text for it.
fn section(title: &str, paragraphs: &[&String]) -> Roff {
    let mut roff = Roff::new();
    if !paragraphs.is_empty() {
        roff.control("SH", [title]);
        roff.extend([body(paragraphs)]);
    }
    roff
}

/// Lines that are indented keep their breaks. All others are filled.
fn body(paragraphs: &[&String]) -> Roff {
    let mut roff = Roff::new();
    for (index, paragraph) in paragraphs.iter().enumerate() {
        if index > 0 {
            roff.control("PP", []);
        }
        // The title of the section says what this line says.
        let lines = paragraph.lines().filter(|line| !["Examples:", "Environment:"].contains(line));
        let mut is_verbatim = false;
        for line in lines {
            let line = line.strip_prefix("Example: ").map_or_else(|| line.to_owned(), |command| format!("  {command}"));
            if line.starts_with("  ") != is_verbatim {
                is_verbatim = !is_verbatim;
                roff.control(if is_verbatim { "nf" } else { "fi" }, []);
            }
            roff.text([roman(line.strip_prefix("Exit code: ").map_or(line.clone(), capitalized))]);
        }
        if is_verbatim {
            roff.control("fi", []);
        }
    }
    roff
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The pages of the command above this one and of the whole program.
fn see_also(command: &Command) -> Roff {
    let mut roff = Roff::new();
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    if let Some((parent, _)) = name.rsplit_once('-') {
        let mut pages = vec!["hallpass(1)".to_owned()];
        if parent != "hallpass" {
            pages.push(format!("{parent}(1)"));
        }
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(pages.join(", "))]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn page_of(name: &str) -> String {
        let mut cli = Cli::command().disable_help_subcommand(true);
        cli.build();
        page(cli.find_subcommand(name).expect("a command"))
    }

    #[test]
    fn the_page_of_run_has_the_sections_that_a_reader_looks_for() {
        let page = page_of("run");
        let at = |title: &str| page.find(&format!(".SH {title}\n")).unwrap_or_else(|| panic!("no {title}:\n{page}"));
        let titles = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "ENVIRONMENT",
            "\"EXIT STATUS\"",
            "EXAMPLES",
            "\"SEE ALSO\"",
        ];
        assert!(titles.map(at).is_sorted(), "{page}");
        assert!(page.contains("LOCK \\-\\- COMMAND"), "the synopsis shows what must be given: {page}");
        assert!(page.contains("\n  75     the lock was not free"), "a table keeps its lines: {page}");
        assert!(page.contains("HALLPASS_FENCE"), "{page}");
    }

    #[test]
    fn a_command_without_exit_codes_of_its_own_has_no_such_section() {
        let page = page_of("status");
        assert!(page.contains(".SH EXAMPLES") && !page.contains("EXIT STATUS"), "{page}");
    }
}
