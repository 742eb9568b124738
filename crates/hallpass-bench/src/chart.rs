//! The figures as bars, on a logarithmic scale.

use std::fmt::Write;

use crate::report::{Figures, Report};

const WIDTH: f64 = 720.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 15.0;
const GAP: f64 = 34.0;

/// Colours that stay apart on white, also for those who see few colours.
const OURS: &str = "#1f6fc4";
const FLOOR: &str = "#9ca3af";
const THEIRS: &str = "#c2410c";

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
    let mut body = String::new();
    let mut y = 14.0;
    for (workload, title, shown) in PANELS {
        let bars = bars(report, workload, shown);
        if !bars.is_empty() {
            panel(&mut body, &mut y, title, &bars);
        }
    }
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0}" width="{WIDTH}" height="{y:.0}" font-family="system-ui, sans-serif" font-size="11">"#
    );
    svg += &body;
    svg.push_str("</svg>\n");
    svg
}

struct Bar<'a> {
    name: &'a str,
    colour: &'static str,
    value: f64,
}

fn bars<'a>(report: &'a Report, workload: &str, shown: Shown) -> Vec<Bar<'a>> {
    let is_shown = |figures: &&Figures| {
        // Round trips are what a free lock is measured against.
        figures.workload == workload || (workload == "uncontended" && figures.workload == "round-trip")
    };
    let bar = |figures: &'a Figures| Bar {
        name: &figures.system,
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

fn panel(svg: &mut String, y: &mut f64, title: &str, bars: &[Bar<'_>]) {
    let lowest = bars.iter().map(|bar| bar.value).fold(f64::MAX, f64::min);
    let highest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    // The axis begins below the smallest, so that it too has a length.
    let (low, high) = (10f64.powf((lowest / 2.0).log10().floor()), 10f64.powf(highest.log10().ceil()));
    let place = |value: f64| LEFT + (value / low).ln() / (high / low).ln() * (WIDTH - LEFT - RIGHT);
    let _ = write!(svg, r#"<text x="8" y="{:.1}" font-size="13" font-weight="600">{title}</text>"#, *y + 4.0);
    *y += 14.0;
    let bottom = *y + BAR * bars.len() as f64;
    let mut tick = low;
    while tick <= high * 1.001 {
        let x = place(tick);
        let _ = write!(
            svg,
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="{:.1}" y2="{bottom:.1}" stroke="#e5e7eb"/><text x="{x:.1}" y="{:.1}" text-anchor="middle" fill="#4b5563" font-size="10">{}</text>"##,
            *y,
            bottom + 12.0,
            short(tick)
        );
        tick *= 10.0;
    }
    for bar in bars {
        let (end, middle) = (place(bar.value), *y + BAR - 4.0);
        let _ = write!(
            svg,
            r##"<text x="{:.1}" y="{middle:.1}" text-anchor="end" fill="#111827">{}</text><rect x="{LEFT}" y="{:.1}" width="{:.1}" height="{:.1}" fill="{}"/><text x="{:.1}" y="{middle:.1}" fill="#4b5563">{}</text>"##,
            LEFT - 6.0,
            bar.name,
            *y + 1.5,
            end - LEFT,
            BAR - 3.0,
            bar.colour,
            end + 5.0,
            short(bar.value)
        );
        *y += BAR;
    }
    *y += GAP;
}

/// Three digits or so: `0.12`, `85`, `5.1 k`, `1.4 M`.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        1e6.. => (value / 1e6, " M"),
        1e3.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = match value {
        100.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        _ => format!("{value:.3}").trim_end_matches('0').to_owned(),
    };
    text + unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.12, 1.0, 85.04, 5_123.0, 1.4e6].map(short), ["0.12", "1", "85", "5.1 k", "1.4 M"]);
    }
}
