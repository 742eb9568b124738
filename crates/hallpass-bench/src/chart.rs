//! The figures as bars, on a logarithmic scale.

use hallpass_chart::{Bar, BarChart, Panel};

use crate::report::{Figures, Report};

/// Positions in the palette.
const OURS: usize = 0;
const FLOOR: usize = 11;
const THEIRS: usize = 1;

/// The workloads that have a picture, and what is drawn of each.
const PANELS: [(&str, &str, Shown); 6] = [
    ("uncontended", "One caller, a free lock: acquire and release, us (less is better)", Shown::P50),
    ("hot", "The same lock again: acquire and release, us (less is better)", Shown::P50),
    ("contended-3", "3 callers, one lock: grants that change hands a second (more is better)", Shown::Rate),
    ("contended-8", "8 callers, one lock: grants that change hands a second (more is better)", Shown::Rate),
    ("contended-32", "32 callers, one lock: grants that change hands a second (more is better)", Shown::Rate),
    ("rotating-32", "32 callers on 32 locks in turn: grants that change hands a second (more is better)", Shown::Rate),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    P50,
    Rate,
}

pub(crate) fn draw(report: &Report) -> String {
    let panel = |(workload, title, shown): (&str, &str, Shown)| Panel {
        title: title.to_owned(),
        bars: bars(report, workload, shown),
    };
    BarChart { panels: PANELS.map(panel).to_vec() }.to_svg()
}

fn bars(report: &Report, workload: &str, shown: Shown) -> Vec<Bar> {
    let is_shown = |figures: &&Figures| {
        // A free lock is compared with round trips.
        figures.workload == workload || (workload == "uncontended" && figures.workload == "round-trip")
    };
    let bar = |figures: &Figures| Bar {
        name: figures.system.clone(),
        colour: match figures.system.as_str() {
            name if name.starts_with("hallpass") => OURS,
            name if Report::is_floor(name) => FLOOR,
            _ => THEIRS,
        },
        value: match shown {
            Shown::P50 => figures.p50_us,
            Shown::Rate => figures.changed_hands_per_second.unwrap_or(figures.grants_per_second),
        },
    };
    report.figures.iter().filter(is_shown).map(bar).filter(|bar| bar.value > 0.0).collect()
}
