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

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 42.0;
const BOTTOM: f64 = 40.0;

/// Draws a chart. Points at or below zero have no place on a logarithmic axis: they are drawn on its floor.
pub(super) fn chart(title: &str, y_label: &str, lines: &[Line]) -> String {
    let xs = || lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x));
    let ys = || lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y)).filter(|y| *y > 0.0);
    let x_axis = Axis::new(xs(), LEFT, WIDTH - RIGHT);
    let y_axis = Axis::new(ys(), HEIGHT - BOTTOM, TOP);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="11"><text x="{LEFT}" y="17" font-size="13" font-weight="600">{title}</text>"##
    );
    axes(&mut svg, &x_axis, &y_axis, y_label);
    for line in lines {
        let place = |(x, y): &(f64, f64)| (x_axis.place(*x), y_axis.place(*y));
        let points: Vec<String> = line
            .points
            .iter()
            .map(|point| {
                let (x, y) = place(point);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let (colour, dashes) = (line.colour, line.dashes);
        let _ = write!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dashes}"/>"#,
            points.join(" ")
        );
        for point in &line.points {
            let (x, y) = place(point);
            let _ = write!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.6" fill="{colour}"><title>{}, N = {}: {:.3}</title></circle>"#,
                line.name, point.0, point.1
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

fn axes(svg: &mut String, x_axis: &Axis, y_axis: &Axis, y_label: &str) {
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
    for tick in x_axis.ticks() {
        let x = x_axis.place(tick);
        let _ = write!(
            svg,
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{floor}" stroke="#f3f4f6"/><text x="{x:.1}" y="{}" text-anchor="middle" fill="#4b5563">{tick}</text>"##,
            floor + 15.0
        );
    }
    let _ = write!(
        svg,
        r##"<text x="{right}" y="{}" text-anchor="end" fill="#4b5563">nodes</text><text x="{LEFT}" y="31" fill="#4b5563" font-size="10">{y_label}</text>"##,
        floor + 30.0
    );
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
        Self { low: step_down(low), high: step_up(high.max(low * 1.5)), from, to }
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
        if all.len() <= 8 { all } else { all.into_iter().filter(|tick| is_power(*tick)).collect() }
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
        let svg = chart("messages", "an entry", &[line("a"), line("b")]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
    }
}
