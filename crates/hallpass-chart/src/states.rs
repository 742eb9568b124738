//! A state diagram: boxes in a grid, and numbered arrows that a list below explains.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::svg::{Anchor, document, text};

const COLUMN: f64 = 150.0;
const ROW: f64 = 92.0;
const WIDTH: f64 = 104.0;
const HEIGHT: f64 = 34.0;
const MARGIN: f64 = 76.0;
/// Two arrows between the same two states are this far apart.
const APART: f64 = 8.0;
/// More arrows of one kind into one state are drawn as a single one, from 'every other state'.
const ARROWS_MAX: usize = 6;

/// States and the changes between them.
#[derive(Clone, Debug, Default)]
pub struct StateChart {
    /// The heading.
    pub title: String,
    /// Each state with its column and row.
    pub states: Vec<(String, (u32, u32))>,
    /// From which state to which, and by what.
    pub changes: Vec<(String, String, String)>,
}

impl StateChart {
    /// The diagram as an SVG document.
    pub fn to_svg(&self) -> String {
        let drawn = self.drawn();
        let reasons = reasons(&drawn);
        let last = |which: fn(&(u32, u32)) -> u32| self.states.iter().map(|(_, at)| which(at)).max().unwrap_or(0);
        let width = 2.0 * MARGIN + f64::from(last(|at| at.0)) * COLUMN;
        let list_top = MARGIN + f64::from(last(|at| at.1)) * ROW + HEIGHT + 22.0;
        let mut svg = String::from(
            "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
             orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" class=\"c11\" style=\"stroke:none\"/></marker></defs>",
        );
        text(&mut svg, 16.0, 24.0, Anchor::Start, "title", &self.title);
        for (from, to, by) in &drawn {
            let number = reasons.iter().position(|reason| reason == by).map_or(0, |index| index + 1);
            let is_both_ways = drawn.iter().any(|(back_from, back_to, _)| (back_from, back_to) == (to, from));
            self.arrow(&mut svg, (from, to), number, is_both_ways);
        }
        for (name, at) in &self.states {
            let (x, y) = middle(*at);
            let (left, top) = (x - WIDTH / 2.0, y - HEIGHT / 2.0);
            let _ = write!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\" class=\"hollow\" \
                 stroke=\"#9ca3af\"/>"
            );
            text(&mut svg, x, y + 4.0, Anchor::Middle, "", name);
        }
        for (index, reason) in reasons.iter().enumerate() {
            let y = list_top + 16.0 * index as f64;
            text(&mut svg, 16.0, y, Anchor::Start, "", &format!("{} {reason}", index + 1));
        }
        document(width, list_top + 16.0 * reasons.len() as f64 + 4.0, &svg)
    }

    /// The changes, where those that nearly every state has are one.
    fn drawn(&self) -> Vec<(&str, &str, &str)> {
        let mut sources: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for (_, to, by) in &self.changes {
            *sources.entry((to, by)).or_default() += 1;
        }
        let mut drawn: Vec<(&str, &str, &str)> = Vec::new();
        for (from, to, by) in &self.changes {
            let is_common = sources.get(&(to.as_str(), by.as_str())).is_some_and(|count| *count > ARROWS_MAX);
            let change = (if is_common { EVERY } else { from }, to.as_str(), by.as_str());
            if !drawn.contains(&change) {
                drawn.push(change);
            }
        }
        drawn
    }

    fn position(&self, state: &str) -> Option<(f64, f64)> {
        self.states.iter().find(|(name, _)| name == state).map(|(_, at)| middle(*at))
    }

    fn arrow(&self, svg: &mut String, (from, to): (&str, &str), number: usize, is_both_ways: bool) {
        let Some(end) = self.position(to) else { return };
        let start = self.position(from).unwrap_or((end.0 - COLUMN, end.1));
        if from == EVERY {
            text(svg, start.0, start.1 + 4.0, Anchor::Middle, "faint", EVERY);
        }
        let (dx, dy) = (end.0 - start.0, end.1 - start.1);
        let length = dx.hypot(dy).max(1.0);
        let (ux, uy) = (dx / length, dy / length);
        let aside = if is_both_ways { APART } else { 0.0 };
        let shift = |point: (f64, f64)| (point.0 - uy * aside, point.1 + ux * aside);
        // From the edge of one box to the edge of the other.
        let reach = (WIDTH / 2.0 / ux.abs().max(1e-9)).min(HEIGHT / 2.0 / uy.abs().max(1e-9)) + 2.0;
        let (start, end) = (shift(start), shift(end));
        let (x1, y1) = (start.0 + ux * reach, start.1 + uy * reach);
        let (x2, y2) = (end.0 - ux * reach, end.1 - uy * reach);
        let _ = write!(
            svg,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"c11\" marker-end=\"url(#tip)\"/>"
        );
        let (x, y) = (x1 + (x2 - x1) * 0.4, y1 + (y2 - y1) * 0.4);
        let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\" class=\"hollow\" stroke=\"#9ca3af\"/>");
        text(svg, x, y + 4.0, Anchor::Middle, "", &number.to_string());
    }
}

const EVERY: &str = "every other";

fn middle((column, row): (u32, u32)) -> (f64, f64) {
    (MARGIN + f64::from(column) * COLUMN, MARGIN + f64::from(row) * ROW)
}

/// Each reason once, in the order of the arrows.
fn reasons<'a>(drawn: &[(&'a str, &'a str, &'a str)]) -> Vec<&'a str> {
    let mut reasons: Vec<&str> = Vec::new();
    for (_, _, by) in drawn {
        if !reasons.contains(by) {
            reasons.push(by);
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_every_reason_is_there_once() {
        let name = |index: u32| format!("s{index}");
        let chart = StateChart {
            title: "A door".to_owned(),
            states: (0..8).map(|index| (name(index), (index % 4, index / 4))).collect(),
            changes: (1..8).map(|index| (name(index), name(0), "shut <it>".to_owned())).collect(),
        };
        let svg = chart.to_svg();
        assert_eq!(svg.matches("<line").count(), 1, "seven arrows are one, from every other state");
        assert_eq!(svg.matches("shut &lt;it&gt;").count(), 1);
        for index in 0..8 {
            assert_eq!(svg.matches(&format!(">s{index}<")).count(), 1);
        }
    }
}
