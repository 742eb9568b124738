//! The comparison as one page without outside resources.

use std::fmt::Write;

use super::plot::{Across, COLOURS, Chart, Line, escape};
use super::{Cell, SweepSpec};

/// One thing that is drawn of cells.
struct Metric {
    /// In file names.
    key: &'static str,
    title: &'static str,
    label: &'static str,
    value: fn(&Cell) -> Option<f64>,
}

const METRICS: [Metric; 5] = [
    Metric {
        key: "messages",
        title: "Messages an entry",
        label: "protocol messages",
        value: |cell| Some(cell.messages),
    },
    Metric {
        key: "sync-delay",
        title: "Synchronisation delay",
        label: "T from a release to the next entry",
        value: |cell| cell.sync_delay,
    },
    Metric {
        key: "response-time",
        title: "Response time",
        label: "T from asking to entering",
        value: |cell| Some(cell.response_time),
    },
    Metric {
        key: "fairness",
        title: "Fairness",
        label: "fewest entries of a node over the most",
        value: |cell| cell.fairness,
    },
    Metric {
        key: "overtaking",
        title: "Overtaking",
        label: "most entries of others while one request waited, over N-1",
        value: |cell| cell.overtakes,
    },
];

/// The whole page: charts over sizes for each load with the numbers, then charts over loads.
pub fn render(spec: &SweepSpec, cells: &[Cell], command: &str) -> String {
    let mut page = String::from(HEAD);
    let _ = write!(
        page,
        "<h1>Mutual exclusion by messages, compared</h1><p>Made by <code>{}</code>. T is one message's time, a section takes one T; points tell their value.</p>",
        escape(command)
    );
    legend(&mut page, spec);
    for load in &spec.loads {
        let _ = write!(page, "<h2>Load: {}</h2><div class=\"charts\">", escape(&describe(load)));
        over_sizes(spec, cells, load).for_each(|(_, chart)| page.push_str(&chart.draw()));
        page.push_str("</div>");
        table(&mut page, spec, cells, load);
    }
    for nodes in showcase(spec) {
        let _ = write!(page, "<h2>Over the load, N = {nodes}</h2><div class=\"charts\">");
        over_loads(spec, cells, nodes).for_each(|(_, chart)| page.push_str(&chart.draw()));
        page.push_str("</div>");
    }
    page.push_str("</body></html>\n");
    page
}

/// Every chart as an SVG file of its own: names and contents.
pub fn pictures(spec: &SweepSpec, cells: &[Cell]) -> Vec<(String, String)> {
    let by_size = spec.loads.iter().flat_map(|load| over_sizes(spec, cells, load));
    let by_load = showcase(spec).into_iter().flat_map(|nodes| over_loads(spec, cells, nodes));
    by_size.chain(by_load).map(|(name, chart)| (format!("{name}.svg"), chart.draw_alone() + "\n")).collect()
}

/// The sizes that are shown over all loads: the one nearest to ten, and the largest. One load alone is not a line.
fn showcase(spec: &SweepSpec) -> Vec<u32> {
    let near_ten = spec.nodes.iter().min_by_key(|nodes| nodes.abs_diff(10));
    let mut shown: Vec<u32> =
        near_ten.into_iter().chain(spec.nodes.last()).copied().filter(|_| spec.loads.len() > 1).collect();
    shown.dedup();
    shown
}

fn over_sizes<'a>(spec: &'a SweepSpec, cells: &'a [Cell], load: &'a str) -> impl Iterator<Item = (String, Chart)> + 'a {
    charts(spec, cells, move |cell| (cell.load == load).then(|| f64::from(cell.nodes))).map(move |(metric, lines)| {
        let title = format!("{}, {}", metric.title, describe(load));
        let name: String = load.chars().map(|c| if c.is_alphanumeric() || c == '.' { c } else { '-' }).collect();
        let chart = Chart { title, y_label: metric.label, across: Across::Sizes, lines };
        (format!("{}-{name}", metric.key), chart)
    })
}

fn over_loads<'a>(spec: &'a SweepSpec, cells: &'a [Cell], nodes: u32) -> impl Iterator<Item = (String, Chart)> + 'a {
    let position = move |cell: &Cell| {
        let at = spec.loads.iter().position(|load| *load == cell.load)?;
        (cell.nodes == nodes).then_some(at as f64)
    };
    // Fairness is measured under one load only.
    charts(spec, cells, position).filter(|(metric, _)| metric.key != "fairness").map(move |(metric, lines)| {
        let title = format!("{}, N = {nodes}", metric.title);
        let chart = Chart { title, y_label: metric.label, across: Across::Loads(spec.loads.clone()), lines };
        (format!("{}-over-load-{nodes}", metric.key), chart)
    })
}

/// The lines of each metric, `x` telling where a cell belongs. Where everything is zero there is nothing to see.
fn charts<'a>(
    spec: &'a SweepSpec,
    cells: &'a [Cell],
    x: impl Fn(&Cell) -> Option<f64> + 'a,
) -> impl Iterator<Item = (&'static Metric, Vec<Line>)> + 'a {
    let line = move |protocol: &String, metric: &Metric| {
        let (colour, dashes) = style(spec, protocol);
        let of_it = cells.iter().filter(|cell| cell.protocol == *protocol);
        let points = of_it.filter_map(|cell| Some((x(cell)?, (metric.value)(cell)?))).collect();
        Line { name: protocol.clone(), colour, dashes, points }
    };
    let lines = move |metric: &Metric| -> Vec<Line> { spec.protocols.iter().map(|name| line(name, metric)).collect() };
    let is_seen = |lines: &[Line]| lines.iter().any(|line| line.points.iter().any(|(_, y)| *y > 0.0));
    METRICS.iter().map(move |metric| (metric, lines(metric))).filter(move |(_, lines)| is_seen(lines))
}

const HEAD: &str =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>hallpass: comparison</title><style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1000px;padding:0 1rem;color:#1f2937;background:#fff}
h2{margin-top:2.2rem}code{background:#f3f4f6;padding:.1em .3em;border-radius:3px}
.charts{display:flex;flex-wrap:wrap;gap:12px}.charts svg{border:1px solid #e5e7eb;border-radius:6px}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:1rem 0}.legend svg{vertical-align:middle;margin-right:5px}
table{border-collapse:collapse;margin-top:1rem;font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:3px 10px;text-align:right;border-bottom:1px solid #e5e7eb}th:first-child,td:first-child{text-align:left}
.bad{color:#b91c1c;font-weight:600}
</style></head><body>";

fn describe(load: &str) -> String {
    match load.parse::<f64>() {
        Ok(rate) => format!("{rate} requests a T in all"),
        Err(_) => load.to_owned(),
    }
}

fn style(spec: &SweepSpec, protocol: &str) -> (&'static str, &'static str) {
    let at = spec.protocols.iter().position(|name| name == protocol).unwrap_or(0);
    (COLOURS[at % COLOURS.len()], if at < COLOURS.len() { "" } else { "5 3" })
}

fn legend(page: &mut String, spec: &SweepSpec) {
    page.push_str("<div class=\"legend\">");
    for protocol in &spec.protocols {
        let (colour, dashes) = style(spec, protocol);
        let _ = write!(
            page,
            r#"<span><svg width="26" height="8"><line x1="0" x2="26" y1="4" y2="4" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}"/></svg>{}</span>"#,
            escape(protocol)
        );
    }
    page.push_str("</div>");
}

fn table(page: &mut String, spec: &SweepSpec, cells: &[Cell], load: &str) {
    page.push_str("<table><tr><th>messages an entry</th>");
    for nodes in &spec.nodes {
        let _ = write!(page, "<th>N = {nodes}</th>");
    }
    page.push_str("</tr>");
    for protocol in &spec.protocols {
        let _ = write!(page, "<tr><td>{}</td>", escape(protocol));
        for nodes in &spec.nodes {
            let cell =
                cells.iter().find(|cell| cell.protocol == *protocol && cell.load == load && cell.nodes == *nodes);
            let _ = match cell {
                None => write!(page, "<td></td>"),
                Some(cell) if cell.violations > 0 => {
                    write!(page, "<td class=\"bad\">{:.2}, violated</td>", cell.messages)
                }
                Some(cell) => write!(page, "<td>{:.2}</td>", cell.messages),
            };
        }
        page.push_str("</tr>");
    }
    page.push_str("</table>");
}
