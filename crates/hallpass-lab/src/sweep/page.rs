//! The comparison as one page without outside resources.

use std::fmt::Write;

use hallpass_chart::{LineChart, Series, XAxis, escape};

use super::{Cell, SweepSpec};

/// A quantity of a cell that has a chart.
struct Metric {
    /// Its name in file names.
    key: &'static str,
    title: &'static str,
    label: &'static str,
    value: fn(&Cell) -> Option<f64>,
}

const METRICS: [Metric; 5] = [
    Metric {
        key: "messages",
        title: "Messages per entry",
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
        label: "T from a request to its entry",
        value: |cell| Some(cell.response_time),
    },
    Metric {
        key: "fairness",
        title: "Fairness",
        label: "fewest entries of a node / most entries of a node",
        value: |cell| cell.fairness,
    },
    Metric {
        key: "overtaking",
        title: "Overtaking",
        label: "most entries of others while one request waited / (N-1)",
        value: |cell| cell.overtakes,
    },
];

/// The whole page: charts over sizes for each load with the numbers, then charts over loads.
pub fn render(spec: &SweepSpec, cells: &[Cell], command: &str) -> String {
    let mut page = String::from(HEAD);
    let _ = write!(
        page,
        "<h1>Mutual exclusion by messages, compared</h1><p>Made by <code>{}</code>. T is the time of one message, a critical section takes one T. \
         A line of several colours is several lines on top of each other; a point under the pointer shows its value.</p>",
        escape(command)
    );
    for load in &spec.loads {
        let _ = write!(page, "<h2>Load: {}</h2><div class=\"charts\">", escape(&describe(load)));
        over_sizes(spec, cells, load).for_each(|(_, chart)| page.push_str(&chart.to_svg()));
        page.push_str("</div>");
        table(&mut page, spec, cells, load);
    }
    for nodes in showcase(spec) {
        let _ = write!(page, "<h2>Over the load, N = {nodes}</h2><div class=\"charts\">");
        over_loads(spec, cells, nodes).for_each(|(_, chart)| page.push_str(&chart.to_svg()));
        page.push_str("</div>");
    }
    page.push_str("</body></html>\n");
    page
}

/// Every chart as an SVG file of its own: names and contents.
pub fn pictures(spec: &SweepSpec, cells: &[Cell]) -> Vec<(String, String)> {
    let by_size = spec.loads.iter().flat_map(|load| over_sizes(spec, cells, load));
    let by_load = showcase(spec).into_iter().flat_map(|nodes| over_loads(spec, cells, nodes));
    by_size.chain(by_load).map(|(name, chart)| (format!("{name}.svg"), chart.to_svg() + "\n")).collect()
}

/// The sizes that are shown over all loads: the one nearest to ten, and the largest. None if there is one load only.
fn showcase(spec: &SweepSpec) -> Vec<u32> {
    let near_ten = spec.nodes.iter().min_by_key(|nodes| nodes.abs_diff(10));
    let mut shown: Vec<u32> =
        near_ten.into_iter().chain(spec.nodes.last()).copied().filter(|_| spec.loads.len() > 1).collect();
    shown.dedup();
    shown
}

fn over_sizes<'a>(
    spec: &'a SweepSpec,
    cells: &'a [Cell],
    load: &'a str,
) -> impl Iterator<Item = (String, LineChart)> + 'a {
    charts(spec, cells, move |cell| (cell.load == load).then(|| f64::from(cell.nodes))).map(move |(metric, series)| {
        let title = format!("{}, {}", metric.title, describe(load));
        let name: String = load.chars().map(|c| if c.is_alphanumeric() || c == '.' { c } else { '-' }).collect();
        let x_axis = XAxis::Log { label: "nodes".to_owned() };
        let chart = LineChart { title, y_label: metric.label.to_owned(), x_axis, series };
        (format!("{}-{name}", metric.key), chart)
    })
}

fn over_loads<'a>(
    spec: &'a SweepSpec,
    cells: &'a [Cell],
    nodes: u32,
) -> impl Iterator<Item = (String, LineChart)> + 'a {
    let position = move |cell: &Cell| {
        let index = spec.loads.iter().position(|load| *load == cell.load)?;
        (cell.nodes == nodes).then_some(index as f64)
    };
    // Fairness is measured under one load only, so it has no line.
    charts(spec, cells, position).filter(|(metric, _)| metric.key != "fairness").map(move |(metric, series)| {
        let title = format!("{}, N = {nodes}", metric.title);
        let x_axis = XAxis::Names { label: "load".to_owned(), names: spec.loads.clone() };
        let chart = LineChart { title, y_label: metric.label.to_owned(), x_axis, series };
        (format!("{}-over-load-{nodes}", metric.key), chart)
    })
}

/// The series of each metric, in the order of the protocols so that colours are the same in all charts; `x` gives a
/// cell's place from left to right. A metric that is zero everywhere has no chart.
fn charts<'a>(
    spec: &'a SweepSpec,
    cells: &'a [Cell],
    x: impl Fn(&Cell) -> Option<f64> + 'a,
) -> impl Iterator<Item = (&'static Metric, Vec<Series>)> + 'a {
    let one = move |protocol: &String, metric: &Metric| {
        let of_it = cells.iter().filter(|cell| cell.protocol == *protocol);
        let points = of_it.filter_map(|cell| Some((x(cell)?, (metric.value)(cell)?))).collect();
        Series { name: protocol.clone(), points }
    };
    let all = move |metric: &Metric| -> Vec<Series> { spec.protocols.iter().map(|name| one(name, metric)).collect() };
    let is_seen = |all: &[Series]| all.iter().any(|series| series.points.iter().any(|(_, y)| *y > 0.0));
    METRICS.iter().map(move |metric| (metric, all(metric))).filter(move |(_, all)| is_seen(all))
}

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>hallpass: comparison</title><style>
:root{color-scheme:light dark;--ink:#1f2937;--paper:#fff;--code:#f3f4f6;--grid:#e5e7eb;--bad:#b91c1c}
@media(prefers-color-scheme:dark){:root{--ink:#e5e7eb;--paper:#0d1117;--code:#21262d;--grid:#30363d;--bad:#f87171}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1340px;padding:0 1rem;color:var(--ink);background:var(--paper)}
h2{margin-top:2.2rem}code{background:var(--code);padding:.1em .3em;border-radius:3px}
.charts{display:flex;flex-wrap:wrap;gap:8px}.chart{border:1px solid var(--grid);border-radius:6px;max-width:100%}
table{border-collapse:collapse;margin-top:1rem;font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:3px 10px;text-align:right;border-bottom:1px solid var(--grid)}th:first-child,td:first-child{text-align:left}
.bad{color:var(--bad);font-weight:600}
</style></head><body>";

fn describe(load: &str) -> String {
    match load.parse::<f64>() {
        Ok(rate) => format!("{rate} requests per T in all"),
        Err(_) => load.to_owned(),
    }
}

fn table(page: &mut String, spec: &SweepSpec, cells: &[Cell], load: &str) {
    page.push_str("<table><tr><th>messages per entry</th>");
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
