//! The page as a folder of files, with everything computed beforehand that needs no choice.

use std::fs;
use std::io;
use std::path::Path;

use hallpass_lab::LabError;
use hallpass_lab::scenario::SHIPPED;
use hallpass_lab::traps::TRAPS;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::jobs::Watch;
use crate::page;
use crate::query::{Query, protocols};
use crate::{answer, menu};

/// What a browser leaves as it is in a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// The load with which the page compares two protocols if nothing else is chosen.
const COMPARED: &str = "nodes=5&entries=12&seed=1&load=saturated&latency=1ms&readers=0";

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
    let stories = menu::STORIES.iter().map(|(_, nodes, faults)| {
        let faults = utf8_percent_encode(faults, ESCAPED);
        ("views", if nodes.is_empty() { String::new() } else { format!("nodes={nodes}&faults={faults}") })
    });
    let order = |name| if menu::default_order(name) == "any" { "" } else { "&order=fifo" };
    let runs = protocols().into_iter().map(|name| ("run", format!("protocol={name}{}", order(name))));
    // A protocol that needs links that keep order is compared with others on such links.
    let compared = protocols().into_iter().flat_map(|name| {
        let orders = if order(name).is_empty() { vec!["", "&order=fifo"] } else { vec!["&order=fifo"] };
        orders.into_iter().map(move |order| ("run", format!("protocol={name}&{COMPARED}{order}")))
    });
    scenarios.chain(traps).chain(stories).chain(runs).chain(compared).collect()
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
    fn what_the_pages_buttons_open_is_there() {
        let has = |query: &str| documents().iter().any(|(_, known)| known == query);
        assert!(has("") && has("nodes=5&faults=partition%3A2%2B3%406s..14s"));
        assert!(has("nodes=5&faults=partition%3A5%405s..9s%2Cpause%3A2%4012s..16s%2Ccrash%3A1%4020s..26s"));
        assert!(has("protocol=raymond&nodes=5&entries=12&seed=1&load=saturated&latency=1ms&readers=0"));
    }

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
