//! Writing to stdout and stderr without ever panicking, in colour on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::Fault;

/// Writes to stdout. A reader that has closed the pipe (`| head -1`) has read what it wanted: that is not an error.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Fault::Write { target: "stdout".to_owned(), error })
        }
        _ => Ok(()),
    }
}

/// Writes a JSON document to stdout.
pub(crate) fn print_json(document: serde_json::Result<String>) -> Result<(), Fault> {
    print(&(document.expect("reports are plain data") + "\n"))
}

/// Writes a file, or stdout if none is named.
pub(crate) fn write(file: Option<&str>, text: &str) -> Result<(), Fault> {
    match file {
        None => print(text),
        Some(path) => std::fs::write(path, text).map_err(|error| Fault::Write { target: path.to_owned(), error }),
    }
}

/// A progress bar on stderr that counts these units, hidden if stderr is not a terminal.
pub(crate) fn progress_bar(units: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = format!("{{bar:30}} {{pos}}/{{len}} {units}  {{elapsed}}  {{msg}}");
    let style = ProgressStyle::with_template(&template).expect("the template is well formed");
    bar.set_style(style.progress_chars("##-"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Prints an error to stderr.
pub(crate) fn error(line: &str) {
    print_line(&Paint::of(&io::stderr()), "", line);
}

/// Prints to stderr what the user may like to know.
pub(crate) fn note(line: &str) {
    print_line(&Paint::of(&io::stderr()), "", line);
}

/// Prints a warning to stderr; the command goes on.
pub(crate) fn warn(line: &str) {
    let paint = Paint::of(&io::stderr());
    print_line(&paint, &paint.yellow("warning: "), line);
}

/// It stays one line even if it quotes an argument with line breaks.
fn print_line(paint: &Paint, label: &str, line: &str) {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    // If stderr is closed there is no other place to report to.
    let _ = writeln!(io::stderr(), "{} {label}{line}", paint.bold("hallpass:"));
}

/// Colours text for a terminal, and leaves it alone elsewhere and where `NO_COLOR` is set.
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// For what is written to this stream.
    pub(crate) fn of(stream: &impl IsTerminal) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: stream.is_terminal() && !unwanted && !dumb }
    }

    /// For what is written to stdout.
    pub(crate) fn stdout() -> Self {
        Self::of(&io::stdout())
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn red(&self, text: &str) -> String {
        self.with("1;31", text)
    }

    pub(crate) fn green(&self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn yellow(&self, text: &str) -> String {
        self.with("33", text)
    }

    fn with(&self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Lines of a name and a value, with aligned values.
pub(crate) struct Facts {
    paint: Paint,
    lines: Vec<(String, String)>,
}

impl Facts {
    pub(crate) fn new() -> Self {
        Self { paint: Paint::stdout(), lines: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &str, value: impl Into<String>) {
        self.lines.push((name.to_owned(), value.into()));
    }

    pub(crate) fn render(&self) -> String {
        let width = self.lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let line =
            |(name, value): &(String, String)| format!("  {}  {value}\n", self.paint.dim(&format!("{name:<width$}")));
        self.lines.iter().map(line).collect()
    }
}

/// A whole number with grouped digits: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 node`, `3 nodes`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// How many per second, to two digits or so: more digits of a rate mean nothing.
pub(crate) fn rate(number: u64, seconds: f64) -> String {
    let rate = number as f64 / seconds.max(1e-9);
    match rate {
        1e6.. => format!("{:.1} million", rate / 1e6),
        1e4.. => format!("{} thousand", (rate / 1e3).round()),
        _ => format!("{:.0}", rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((count(1, "node", "nodes").as_str(), count(3, "node", "nodes").as_str()), ("1 node", "3 nodes"));
        assert_eq!([rate(3_100_000, 1.0), rate(31_000, 1.0), rate(31, 1.0)], ["3.1 million", "31 thousand", "31"]);
    }

    #[test]
    fn colour_is_for_terminals() {
        assert_eq!(Paint { on: false }.red("x"), "x");
        assert_eq!(Paint { on: true }.green("x"), "\x1b[32mx\x1b[0m");
    }
}
