//! Reads the repository: its files, the pages for people, and the code that these pages quote.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root exists")
}

/// The text of a file, given by its path from the root.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files of the repository, new ones included and ignored ones left out, by their paths from the root.
pub fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).expect("paths are UTF-8");
    // A file that was removed and not committed yet is still listed.
    listed.lines().filter(|path| root().join(path).exists()).map(str::to_owned).collect()
}

/// A page for people.
#[derive(Debug)]
pub struct Page {
    /// Its path from the root.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A piece of code that a page quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The line of the page where it begins, from 1.
    pub line: usize,
    /// The code.
    pub text: String,
    /// Whether it is one line of a block of code, and not quoted within a sentence.
    pub in_block: bool,
}

impl Page {
    /// Reads a page, given by its path from the root.
    pub fn read(path: &str) -> Page {
        Page { path: path.to_owned(), text: read(path) }
    }

    /// All code that the page quotes, in order.
    pub fn code(&self) -> Vec<Code> {
        let mut code = Vec::new();
        let mut fenced = false;
        let mut paragraph = (1, String::new());
        for (line, text) in (1..).zip(self.text.lines()) {
            let fence = text.trim_start().starts_with("```");
            let in_block = fenced || (text.starts_with("    ") && paragraph.1.is_empty());
            if fence || in_block || text.trim().is_empty() {
                quoted(&paragraph, &mut code);
                paragraph = (line + 1, String::new());
            } else {
                paragraph.1.push_str(text);
                paragraph.1.push('\n');
            }
            if fence {
                fenced = !fenced;
            } else if in_block && !text.trim().is_empty() {
                code.push(Code { line, text: text.trim().to_owned(), in_block });
            }
        }
        quoted(&paragraph, &mut code);
        code
    }

    /// Its headings, as links name them.
    pub fn anchors(&self) -> Vec<String> {
        let mut fenced = false;
        let mut anchors = Vec::new();
        for line in self.text.lines() {
            fenced ^= line.starts_with("```");
            if line.starts_with('#') && !fenced {
                anchors.push(anchor(line.trim_start_matches('#').trim()));
            }
        }
        anchors
    }

    /// The targets of its links, with the lines that they are in.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (line, text) in (1..).zip(self.text.lines()) {
            for rest in text.split("](").skip(1) {
                let target = rest.split([')', ' ']).next().unwrap_or_default();
                links.push((line, target.to_owned()));
            }
        }
        links
    }
}

/// Collects what stands between backticks in a paragraph.
fn quoted(paragraph: &(usize, String), code: &mut Vec<Code>) {
    let (begins, text) = paragraph;
    let mut line = *begins;
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 && !part.is_empty() {
            let text = part.split_whitespace().collect::<Vec<_>>().join(" ");
            code.push(Code { line, text, in_block: false });
        }
        line += part.matches('\n').count();
    }
}

/// A heading as links name it: lowercase, hyphens for spaces, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The pages that describe the program: those at the root, in `docs`, and the README of each part.
pub fn pages() -> Vec<Page> {
    let described = |path: &String| {
        let readme = path.ends_with("/README.md");
        path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/") || readme)
    };
    files().iter().filter(|path| described(path)).map(|path| Page::read(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page { path: "page.md".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn code_is_found_in_sentences_and_in_blocks() {
        let page = page("A `word` and `one\nthat goes on`.\n\n    indented line\n\n```sh\nfenced `line`\n```\n");
        let code = |line, text: &str, in_block| Code { line, text: text.to_owned(), in_block };
        assert_eq!(
            page.code(),
            [
                code(1, "word", false),
                code(1, "one that goes on", false),
                code(4, "indented line", true),
                code(7, "fenced `line`", true)
            ]
        );
    }

    #[test]
    fn a_heading_becomes_an_anchor_as_links_name_it() {
        let page = page("## T5: Are_You_There answers `REPLY`\n");
        assert_eq!(page.anchors(), ["t5-are_you_there-answers-reply"]);
    }

    #[test]
    fn links_are_found() {
        assert_eq!(page("see [a](b.md#c) and ![d](e.svg)").links(), [(1, "b.md#c".into()), (1, "e.svg".into())]);
    }
}
