//! A line chart as SVG, with logarithmic axes.

use std::fmt::Write;

/// One line of a chart.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: &'static str,
    /// Protocols that share a colour differ in their dashes.
    pub(super) dashes: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Colours that stay apart on white, also for those who see few colours.
pub(super) const COLOURS: [&str; 8] =
    ["#1f6fc4", "#c2410c", "#15803d", "#9333ea", "#0e7490", "#be185d", "#a16207", "#4b5563"];

/// What a chart has from left to right.
pub(super) enum Across {
    /// Group sizes, logarithmic.
    Sizes,
    /// Loads by name, evenly apart; a point's x is its position among them.
    Loads(Vec<String>),
}

/// A chart before it is drawn.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) y_label: &'static str,
    pub(super) across: Across,
    pub(super) lines: Vec<Line>,
}

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 42.0;
const BOTTOM: f64 = 40.0;
/// How much wider a chart is that has to explain its colours itself.
const LEGEND: f64 = 190.0;

impl Chart {
    /// Draws it for a page that explains the colours.
    pub(super) fn draw(&self) -> String {
        self.svg(false)
    }

    /// Draws it as a picture of its own, with the lines' names, the highest at its right end first.
    pub(super) fn draw_alone(&self) -> String {
        self.svg(true)
    }

    /// Points at zero have no place on a logarithmic axis: they are drawn hollow, on its floor.
    fn svg(&self, alone: bool) -> String {
        let xs = || self.lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x));
        let ys = || self.lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y)).filter(|y| *y > 0.0);
        let x_axis = match &self.across {
            Across::Sizes => Axis::new(xs(), LEFT, WIDTH - RIGHT),
            // Only as a place: the marks are names.
            Across::Loads(_) => Axis { low: 1.0, high: 10.0, from: LEFT, to: WIDTH - RIGHT },
        };
        let y_axis = Axis::new(ys(), HEIGHT - BOTTOM, TOP);
        let width = if alone { WIDTH + LEGEND } else { WIDTH };
        let mut svg = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="11">"##
        );
        if alone {
            svg.push_str(r##"<rect width="100%" height="100%" fill="#fff"/>"##);
        }
        let _ =
            write!(svg, r#"<text x="{LEFT}" y="17" font-size="13" font-weight="600">{}</text>"#, escape(&self.title));
        self.axes(&mut svg, &x_axis, &y_axis);
        for line in &self.lines {
            self.line(&mut svg, &x_axis, &y_axis, line);
        }
        if alone {
            self.legend(&mut svg);
        }
        svg.push_str("</svg>");
        svg
    }

    fn line(&self, svg: &mut String, x_axis: &Axis, y_axis: &Axis, line: &Line) {
        let place = |(x, y): &(f64, f64)| (self.place(x_axis, *x), y_axis.place(*y));
        let mut corners = String::new();
        for point in &line.points {
            let (x, y) = place(point);
            let _ = write!(corners, "{x:.1},{y:.1} ");
        }
        let (colour, dashes) = (line.colour, line.dashes);
        let _ = write!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dashes}"/>"#,
            corners.trim_end()
        );
        for point in &line.points {
            let (x, y) = place(point);
            let fill = if point.1 > 0.0 { colour } else { "#fff" };
            let _ = write!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.6" fill="{fill}" stroke="{colour}"><title>{}, {}: {:.3}</title></circle>"#,
                escape(&line.name),
                escape(&self.name(point.0)),
                point.1
            );
        }
    }

    fn place(&self, x_axis: &Axis, x: f64) -> f64 {
        match &self.across {
            Across::Sizes => x_axis.place(x),
            Across::Loads(names) => LEFT + (x + 0.5) / names.len() as f64 * (WIDTH - RIGHT - LEFT),
        }
    }

    fn name(&self, x: f64) -> String {
        match &self.across {
            Across::Sizes => format!("N = {x}"),
            Across::Loads(names) => names.get(x as usize).cloned().unwrap_or_default(),
        }
    }

    fn axes(&self, svg: &mut String, x_axis: &Axis, y_axis: &Axis) {
        let (floor, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in y_axis.ticks() {
            let y = y_axis.place(tick);
            let _ = write!(
                svg,
                r##"<line x1="{LEFT}" x2="{right}" y1="{y:.1}" y2="{y:.1}" stroke="#e5e7eb"/><text x="{}" y="{:.1}" text-anchor="end" fill="#4b5563">{tick}</text>"##,
                LEFT - 6.0,
                y + 4.0
            );
        }
        let (marks, below): (Vec<(f64, String)>, _) = match &self.across {
            Across::Sizes => (x_axis.ticks().into_iter().map(|tick| (tick, tick.to_string())).collect(), "nodes"),
            Across::Loads(names) => {
                (names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect(), "load")
            }
        };
        for (at, mark) in marks {
            let x = self.place(x_axis, at);
            let _ = write!(
                svg,
                r##"<line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{floor}" stroke="#f3f4f6"/><text x="{x:.1}" y="{}" text-anchor="middle" fill="#4b5563">{}</text>"##,
                floor + 15.0,
                escape(&mark)
            );
        }
        let _ = write!(
            svg,
            r##"<text x="{right}" y="{}" text-anchor="end" fill="#4b5563">{below}</text><text x="{LEFT}" y="31" fill="#4b5563" font-size="10">{}</text>"##,
            HEIGHT - 8.0,
            if self.has_zeros() { format!("{}; hollow: 0", self.y_label) } else { self.y_label.to_owned() }
        );
    }

    fn has_zeros(&self) -> bool {
        self.lines.iter().any(|line| line.points.iter().any(|(_, y)| *y <= 0.0))
    }

    /// Where lines cover each other, the values tell that they do.
    fn legend(&self, svg: &mut String) {
        let mut lines: Vec<(&Line, f64)> =
            self.lines.iter().filter_map(|line| Some((line, line.points.last()?.1))).collect();
        lines.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (left, right) = (WIDTH + 6.0, WIDTH + LEGEND - 10.0);
        for (at, (line, last)) in lines.into_iter().enumerate() {
            let y = TOP + 6.0 + 17.0 * at as f64;
            let (colour, dashes) = (line.colour, line.dashes);
            let _ = write!(
                svg,
                r##"<line x1="{left}" x2="{}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}"/><text x="{}" y="{}">{}</text><text x="{right}" y="{}" text-anchor="end" fill="#4b5563">{}</text>"##,
                left + 22.0,
                left + 28.0,
                y + 4.0,
                escape(&line.name),
                y + 4.0,
                short(last)
            );
        }
    }
}

/// Three digits are enough to compare.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A logarithmic axis from a power of ten, or half or a fifth of one, to another.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        // Where all are alike the room is below: a share of 1 is the most there can be.
        Self { low: step_down(low.min(high / 1.5)), high: step_up(high), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let within = |tick: &f64| *tick >= self.low * 0.999 && *tick <= self.high * 1.001;
        let all: Vec<f64> = (-4..7)
            .flat_map(|power| [1.0, 2.0, 5.0].map(|step| clean(step * 10f64.powi(power))))
            .filter(within)
            .collect();
        if all.len() <= 10 { all } else { all.into_iter().filter(|tick| is_power(*tick)).collect() }
    }
}

fn clean(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn is_power(value: f64) -> bool {
    let power = value.log10();
    (power - power.round()).abs() < 1e-6
}

fn step_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|step| step * power).find(|step| *step <= value * 1.0001).unwrap_or(power)
}

fn step_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= value * 0.9999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_enclose_their_values() {
        let axis = Axis::new([3.0, 70.0].into_iter(), 0.0, 100.0);
        assert_eq!((axis.low, axis.high), (2.0, 100.0));
        assert_eq!((axis.place(2.0), axis.place(100.0), axis.place(0.0)), (0.0, 100.0, 0.0));
        assert_eq!(axis.ticks(), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn a_chart_has_a_line_and_a_point_for_each() {
        let line = |name: &str| Line {
            name: name.to_owned(),
            colour: COLOURS[0],
            dashes: "",
            points: vec![(2.0, 2.0), (10.0, 18.0)],
        };
        let lines = vec![line("a"), line("b <i>")];
        let mut chart = Chart { title: "messages".to_owned(), y_label: "an entry", across: Across::Sizes, lines };
        for svg in [chart.draw(), chart.draw_alone()] {
            assert_eq!(svg.matches("<polyline").count(), 2);
            assert_eq!(svg.matches("<circle").count(), 4);
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("<i>"));
        }
        chart.across = Across::Loads(vec!["light".to_owned(), "saturated".to_owned()]);
        chart.lines.iter_mut().for_each(|line| line.points = vec![(0.0, 0.0), (1.0, 3.0)]);
        let svg = chart.draw_alone();
        assert!(svg.contains(">light</text>") && svg.contains("saturated: 3.000"));
        assert!(svg.contains("an entry; hollow: 0"));
    }
}
