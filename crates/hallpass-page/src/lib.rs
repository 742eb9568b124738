//! Scripts and styles that the laboratory's page, the agent's dashboard and `lab trace --format html` share.
//!
//! The files are ES modules without a build step. A server offers each of them under its own name; [`bundle`] makes one
//! script of several, for a page that is a single file.

/// Helpers for elements: `dom.js`.
pub const DOM: &str = include_str!("../js/dom.js");
/// A run's events and what follows from them: `trace.js`.
pub const TRACE: &str = include_str!("../js/trace.js");
/// The part of a run that is in view: `viewport.js`.
pub const VIEWPORT: &str = include_str!("../js/viewport.js");
/// The space-time diagram on a canvas: `diagram.js`.
pub const DIAGRAM: &str = include_str!("../js/diagram.js");
/// A diagram with controls, to step through a run: `player.js`.
pub const PLAYER: &str = include_str!("../js/player.js");
/// Colours, and the diagram's own rules: `diagram.css`.
pub const DIAGRAM_STYLE: &str = include_str!("../css/diagram.css");
/// Text, buttons and the player: `player.css`.
pub const PLAYER_STYLE: &str = include_str!("../css/player.css");

/// One script from modules that import names from each other, each after those that it imports from.
///
/// Each module becomes a function of its own, so that equal names in two modules stay apart. An import must be on one line
/// and must not rename; an export must stand before its declaration.
///
/// ```
/// let script = hallpass_page::bundle(&[
///     ("a.js", "export const one = 1;\n"),
///     ("b.js", "import { one } from \"./a.js\";\nconsole.log(one);\n"),
/// ]);
/// assert!(script.contains("const { one } = modules[\"a.js\"];"));
/// assert!(!script.contains("import ") && !script.contains("export "));
/// ```
pub fn bundle(modules: &[(&str, &str)]) -> String {
    let mut script = String::from("\"use strict\";\nconst modules = {};\n");
    for (name, text) in modules {
        script.push_str(&format!("modules[\"{name}\"] = (() => {{\n"));
        let mut exports = Vec::new();
        for line in text.lines() {
            script.push_str(&plain(line, &mut exports));
            script.push('\n');
        }
        script.push_str(&format!("return {{ {} }};\n}})();\n", exports.join(", ")));
    }
    script
}

/// A line of a module as a line of a function; notes the name that it exports.
fn plain(line: &str, exports: &mut Vec<String>) -> String {
    if let Some((names, from)) = line.strip_prefix("import ").and_then(|rest| rest.split_once(" from \"./")) {
        return format!("const {names} = modules[\"{};", from.replacen("\";", "\"]", 1));
    }
    let Some(declaration) = line.strip_prefix("export ") else { return line.to_owned() };
    let is_part_of_a_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let mut words = declaration.split(|c: char| !is_part_of_a_name(c)).filter(|word| !word.is_empty());
    let name = words.find(|word| !["async", "const", "let", "function", "class"].contains(word));
    exports.extend(name.map(str::to_owned));
    declaration.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_export_is_found() {
        let module =
            "export const $ = 1;\nexport async function get(x) {\n}\nexport class Player {\n}\nlet inner = 2;\n";
        let script = bundle(&[("m.js", module)]);
        assert!(script.ends_with("return { $, get, Player };\n})();\n"), "{script}");
    }

    #[test]
    fn the_shared_modules_import_only_each_other() {
        let modules = [
            ("dom.js", DOM),
            ("trace.js", TRACE),
            ("viewport.js", VIEWPORT),
            ("diagram.js", DIAGRAM),
            ("player.js", PLAYER),
        ];
        for (at, (name, text)) in modules.iter().enumerate() {
            for from in text.split(" from \"./").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(modules[..at].iter().any(|(before, _)| *before == from), "{name} imports {from}");
            }
        }
        let script = bundle(&modules);
        assert!(!script.lines().any(|line| line.starts_with("import ") || line.starts_with("export ")));
    }
}
