//! The comparison as one page without outside resources.

use std::fmt::Write;

use super::plot::{COLOURS, Line, chart};
use super::{Cell, SweepSpec};

/// What is drawn of a cell, by the title of its chart.
type Metric = (&'static str, &'static str, fn(&Cell) -> Option<f64>);

const METRICS: [Metric; 4] = [
    ("Messages an entry", "protocol messages", |cell| Some(cell.messages)),
    ("Synchronisation delay", "T from a release to the next entry", |cell| cell.sync_delay),
    ("Response time", "T from asking to entering", |cell| Some(cell.response_time)),
    ("Fairness", "fewest entries of a node over the most", |cell| cell.fairness),
];

/// The whole page: charts for each load, then the numbers.
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
        for (title, label, value) in METRICS {
            let lines = lines(spec, cells, load, value);
            if lines.iter().any(|line| !line.points.is_empty()) {
                page.push_str(&chart(title, label, &lines));
            }
        }
        page.push_str("</div>");
        table(&mut page, spec, cells, load);
    }
    page.push_str("</body></html>\n");
    page
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
        Ok(rate) => format!("{rate} requests a T in the whole group"),
        Err(_) => load.to_owned(),
    }
}

fn style(spec: &SweepSpec, protocol: &str) -> (&'static str, &'static str) {
    let at = spec.protocols.iter().position(|name| name == protocol).unwrap_or(0);
    (COLOURS[at % COLOURS.len()], if at < COLOURS.len() { "" } else { "5 3" })
}

fn lines(spec: &SweepSpec, cells: &[Cell], load: &str, value: fn(&Cell) -> Option<f64>) -> Vec<Line> {
    let line = |protocol: &String| {
        let (colour, dashes) = style(spec, protocol);
        let of_it = cells.iter().filter(|cell| cell.protocol == *protocol && cell.load == load);
        let points = of_it.filter_map(|cell| Some((f64::from(cell.nodes), value(cell)?))).collect();
        Line { name: protocol.clone(), colour, dashes, points }
    };
    spec.protocols.iter().map(line).collect()
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

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
