//! The page as a folder of files, with everything computed beforehand that needs no choice.

use std::fs;
use std::io;
use std::path::Path;

use hallpass_lab::LabError;
use hallpass_lab::scenario::SHIPPED;
use hallpass_lab::traps::TRAPS;

use crate::jobs::Watch;
use crate::page;
use crate::query::{Query, protocols};
use crate::{answer, menu};

/// Groups and faults of the page about views.
const STORIES: &[&str] = &[
    "",
    "nodes=5&faults=partition%3A4%2B5%406s..14s",
    "nodes=5&faults=pause%3A1%406s..11s",
    "nodes=5&faults=crash%3A2%406s..12s",
];

/// Writes the page to a folder, and returns how many files. Any web server can then show it; what it has no file for, such
/// as a run with other options, it says.
pub fn export(folder: &Path, mut on_file: impl FnMut(&str)) -> io::Result<usize> {
    let mut count = 0;
    let mut write = |name: &str, bytes: &[u8]| {
        on_file(name);
        count += 1;
        fs::write(folder.join(name), bytes)
    };
    fs::create_dir_all(folder.join("data"))?;
    for (name, _, bytes) in page::FILES {
        match *name {
            "index.html" => {
                let text = String::from_utf8_lossy(bytes).replacen("<html ", "<html data-static ", 1);
                write(name, text.as_bytes())?;
            }
            _ => write(name, bytes)?,
        }
    }
    write("data/about.json", menu::about().to_string().as_bytes())?;
    let watch = Watch::patient();
    for (path, query) in documents() {
        let parsed = Query::parse(&query).map_err(as_io)?;
        let document = match path {
            "scenario" => answer::scenario(parsed, &watch),
            "trap" => answer::trap(parsed, &watch),
            "views" => answer::views(parsed, &watch),
            _ => answer::run(parsed, &watch),
        };
        write(&format!("data/{}.json", file_name(path, &query)), document.map_err(as_io)?.as_bytes())?;
    }
    Ok(count)
}

fn documents() -> Vec<(&'static str, String)> {
    let scenarios = SHIPPED.iter().map(|(name, _)| ("scenario", format!("name={name}")));
    let traps = TRAPS.iter().map(|trap| ("trap", format!("id={}", trap.id)));
    let stories = STORIES.iter().map(|query| ("views", (*query).to_owned()));
    let runs = protocols().into_iter().map(|name| {
        let order = if name == "lamport-fifo" { "&order=fifo" } else { "" };
        ("run", format!("protocol={name}{order}"))
    });
    scenarios.chain(traps).chain(stories).chain(runs).collect()
}

/// As the page finds it: letters, digits and minus signs stay.
fn file_name(path: &str, query: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("{path}_{query}").chars().map(safe).collect()
}

fn as_io(error: LabError) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_safe_and_differ() {
        let mut names: Vec<String> = documents().iter().map(|(path, query)| file_name(path, query)).collect();
        assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))));
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
