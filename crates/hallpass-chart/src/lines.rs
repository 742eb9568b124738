//! A line chart.

use std::fmt::Write;

use crate::axis::LogAxis;
use crate::overlap::{Stretch, shared_points, stretches};
use crate::svg::{Anchor, class, document, escape, line, text};
use crate::{marker, short};

/// A line chart before it is drawn. The position of a series decides its colour and its markers.
#[derive(Clone, Debug, PartialEq)]
pub struct LineChart {
    /// Above the chart.
    pub title: String,
    /// What is counted upwards, on a logarithmic scale.
    pub y_label: String,
    /// What there is from left to right.
    pub x_axis: XAxis,
    /// The lines.
    pub series: Vec<Series>,
}

/// What a chart has from left to right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XAxis {
    /// Numbers on a logarithmic scale.
    Log {
        /// What the numbers count.
        label: String,
    },
    /// Names at equal distances; a point's x is the index of its name.
    Names {
        /// What is named.
        label: String,
        /// From left to right.
        names: Vec<String>,
    },
}

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Written at the line's end.
    pub name: String,
    /// In rising order of x. A y of zero has no place on a logarithmic scale: it is drawn hollow, on the floor.
    pub points: Vec<(f64, f64)>,
}

const LEFT: f64 = 52.0;
/// Of the plot, without its labels.
const RIGHT: f64 = 446.0;
const WIDTH: f64 = RIGHT + 210.0;
const TOP: f64 = 42.0;
const FLOOR: f64 = 250.0;
const BOTTOM: f64 = 40.0;
/// Between the plot's edges and the outermost values, so that no marker covers a label of an axis.
const INSET: f64 = 8.0;
/// Between two labels at the lines' ends.
const LABEL_HEIGHT: f64 = 15.0;
/// Of one colour where several series share a stretch.
const STRIPE: f64 = 7.0;

impl LineChart {
    /// The chart as one SVG document.
    pub fn to_svg(&self) -> String {
        let floor = FLOOR.max(TOP + LABEL_HEIGHT * (self.series.len() as f64 - 1.0));
        let values = self.series.iter().flat_map(|series| series.points.iter().map(|(_, y)| *y));
        let y_axis = LogAxis::new(values, floor - INSET, TOP + INSET);
        let places = Places::of(self);
        let lines: Vec<Vec<(f64, f64)>> = self
            .series
            .iter()
            .map(|series| series.points.iter().map(|(x, y)| (places.place(*x), y_axis.place(*y))).collect())
            .collect();
        let mut svg = String::new();
        text(&mut svg, LEFT, 17.0, Anchor::Start, "title", &self.title);
        self.axes(&mut svg, &places, &y_axis, floor);
        self.labels(&mut svg, &lines, floor);
        stretches(&lines).iter().for_each(|stretch| draw_stretch(&mut svg, stretch));
        self.points(&mut svg, &lines);
        document(WIDTH, floor + BOTTOM, &svg)
    }

    fn axes(&self, svg: &mut String, places: &Places<'_>, y_axis: &LogAxis, floor: f64) {
        for tick in y_axis.ticks() {
            let y = y_axis.place(tick);
            line(svg, (LEFT, y), (RIGHT, y), "grid");
            text(svg, LEFT - 6.0, y + 4.0, Anchor::End, "faint", &short(tick));
        }
        for (x, mark) in places.marks() {
            line(svg, (x, TOP), (x, floor), "grid");
            text(svg, x, floor + 15.0, Anchor::Middle, "faint", &mark);
        }
        text(svg, RIGHT, floor + 32.0, Anchor::End, "faint", places.label);
        let has_zeros = self.series.iter().any(|series| series.points.iter().any(|(_, y)| *y <= 0.0));
        let hollow = if has_zeros { "; hollow: 0" } else { "" };
        text(svg, LEFT, 32.0, Anchor::Start, "faint", &format!("{}{hollow}", self.y_label));
    }

    /// Writes each line's name and last value beside its end. Lines that end at one place have their labels one below the
    /// other, each joined to that place.
    fn labels(&self, svg: &mut String, lines: &[Vec<(f64, f64)>], floor: f64) {
        let mut ends: Vec<(usize, (f64, f64))> =
            lines.iter().enumerate().filter_map(|(index, points)| Some((index, *points.last()?))).collect();
        ends.sort_by(|(_, a), (_, b)| a.1.total_cmp(&b.1));
        let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
        for ((index, end), y) in ends.into_iter().zip(spread(&wanted, LABEL_HEIGHT, floor)) {
            let (near, far) = (RIGHT + 22.0, RIGHT + 36.0);
            line(svg, end, (near, y), &format!("leader {}", class(index)));
            line(svg, (near, y), (far, y), &format!("line {}", class(index)));
            let outline = marker::outline(index, (near + far) / 2.0, y);
            let _ = write!(svg, "<path d=\"{outline}\" class=\"{}\"/>", class(index));
            let series = &self.series[index];
            let last = series.points.last().map_or(0.0, |(_, y)| *y);
            text(svg, far + 6.0, y + 4.0, Anchor::Start, "", &series.name);
            text(svg, WIDTH - 8.0, y + 4.0, Anchor::End, "faint", &short(last));
        }
    }

    fn points(&self, svg: &mut String, lines: &[Vec<(f64, f64)>]) {
        let places = Places::of(self);
        for group in shared_points(lines) {
            let names: Vec<&str> = group.iter().map(|(series, _)| self.series[*series].name.as_str()).collect();
            let (series, point) = group[0];
            let (x, y) = self.series[series].points[point];
            let title = format!("{}: {y:.3} ({} {})", names.join(", "), places.label, places.mark(x));
            let _ = write!(svg, "<g><title>{}</title>", escape(&title));
            for (rank, (series, point)) in group.iter().enumerate() {
                let (x, y) = lines[*series][*point];
                let outline = match group.len() {
                    1 => marker::outline(*series, x, y),
                    sharers => marker::shared_outline(rank, sharers, x, y),
                };
                let hollow = if self.series[*series].points[*point].1 > 0.0 { "" } else { " hollow" };
                let _ = write!(svg, "<path d=\"{outline}\" class=\"{}{hollow}\"/>", class(*series));
            }
            svg.push_str("</g>");
        }
    }
}

/// A stretch of several series is drawn once for each: the stripes of one fill the gaps of the others.
fn draw_stretch(svg: &mut String, stretch: &Stretch) {
    let mut corners = String::new();
    for (x, y) in &stretch.points {
        let _ = write!(corners, "{x:.1},{y:.1} ");
    }
    let dashes = if stretch.sharers == 1 {
        String::new()
    } else {
        let gap = STRIPE * (stretch.sharers as f64 - 1.0);
        let offset = -STRIPE * stretch.rank as f64;
        format!(" stroke-dasharray=\"{STRIPE} {gap}\" stroke-dashoffset=\"{offset}\"")
    };
    let (corners, class) = (corners.trim_end(), class(stretch.series));
    let _ = write!(svg, "<polyline points=\"{corners}\" class=\"line {class}\"{dashes}/>");
}

/// Where x values are.
struct Places<'a> {
    axis: &'a XAxis,
    numbers: LogAxis,
    label: &'a str,
}

impl<'a> Places<'a> {
    fn of(chart: &'a LineChart) -> Self {
        let values = chart.series.iter().flat_map(|series| series.points.iter().map(|(x, _)| *x));
        let (XAxis::Log { label } | XAxis::Names { label, .. }) = &chart.x_axis;
        Self { axis: &chart.x_axis, numbers: LogAxis::new(values, LEFT + INSET, RIGHT - INSET), label }
    }

    fn place(&self, x: f64) -> f64 {
        match self.axis {
            XAxis::Log { .. } => self.numbers.place(x),
            XAxis::Names { names, .. } => LEFT + (x + 0.5) / names.len() as f64 * (RIGHT - LEFT),
        }
    }

    fn mark(&self, x: f64) -> String {
        match self.axis {
            XAxis::Log { .. } => short(x),
            XAxis::Names { names, .. } => names.get(x as usize).cloned().unwrap_or_default(),
        }
    }

    fn marks(&self) -> Vec<(f64, String)> {
        let values = match self.axis {
            XAxis::Log { .. } => self.numbers.ticks(),
            XAxis::Names { names, .. } => (0..names.len()).map(|index| index as f64).collect(),
        };
        values.into_iter().map(|x| (self.place(x), self.mark(x))).collect()
    }
}

/// Moves sorted coordinates apart to this distance, as little as it takes, and none beyond the end.
fn spread(wanted: &[f64], distance: f64, end: f64) -> Vec<f64> {
    let mut spread = wanted.to_vec();
    for index in 1..spread.len() {
        spread[index] = spread[index].max(spread[index - 1] + distance);
    }
    let mut limit = end;
    for place in spread.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - distance;
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x_axis: XAxis, lines: &[(&str, &[(f64, f64)])]) -> LineChart {
        let series = |(name, points): &(&str, &[(f64, f64)])| Series { name: (*name).into(), points: points.to_vec() };
        let series = lines.iter().map(series).collect();
        LineChart { title: "messages".into(), y_label: "an entry".into(), x_axis, series }
    }

    fn nodes() -> XAxis {
        XAxis::Log { label: "nodes".into() }
    }

    #[test]
    fn every_series_has_a_line_and_a_label() {
        let svg = chart(nodes(), &[("a", &[(2.0, 2.0), (10.0, 18.0)]), ("b <i>", &[(2.0, 5.0), (10.0, 6.0)])]).to_svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<title>").count(), 4);
        assert!(
            svg.contains(">a</text>") && svg.contains(">18</text>") && svg.contains("b &lt;i&gt;: 6.000 (nodes 10)")
        );
        assert!(!svg.contains("stroke-dasharray") && !svg.contains("<i>") && !svg.contains("NaN"));
    }

    #[test]
    fn no_marker_covers_the_axes() {
        let svg = chart(nodes(), &[("a", &[(1.0, 1.0), (10.0, 10.0)])]).to_svg();
        let (left, right) = (LEFT + INSET, RIGHT - INSET);
        let (low, high) = (FLOOR - INSET, TOP + INSET);
        assert!(svg.contains(&format!("points=\"{left:.1},{low:.1} {right:.1},{high:.1}\"")), "{svg}");
    }

    #[test]
    fn lines_that_cover_each_other_are_striped() {
        let covered: &[(f64, f64)] = &[(2.0, 2.0), (10.0, 18.0), (20.0, 18.0)];
        let leaves: &[(f64, f64)] = &[(2.0, 2.0), (10.0, 18.0), (20.0, 40.0)];
        let svg = chart(nodes(), &[("a", covered), ("b", leaves)]).to_svg();
        assert_eq!(svg.matches("stroke-dasharray=\"7 7\"").count(), 2, "{svg}");
        assert!(svg.contains("stroke-dashoffset=\"-0\"") && svg.contains("stroke-dashoffset=\"-7\""), "{svg}");
        assert!(svg.contains("<title>a, b: 18.000 (nodes 10)</title>"));
        assert!(svg.contains("<title>b: 40.000 (nodes 20)</title>"));
    }

    #[test]
    fn names_have_places_and_zeros_are_hollow() {
        let names = XAxis::Names { label: "load".into(), names: vec!["light".into(), "saturated".into()] };
        let svg = chart(names, &[("a", &[(0.0, 0.0), (1.0, 3.0)])]).to_svg();
        assert!(svg.contains(">light</text>") && svg.contains("a: 3.000 (load saturated)"));
        assert!(svg.contains("an entry; hollow: 0") && svg.contains("class=\"c0 hollow\""));
    }

    #[test]
    fn a_series_without_points_is_left_out() {
        let svg = chart(nodes(), &[("none", &[]), ("a", &[(2.0, 1.0)])]).to_svg();
        assert!(!svg.contains(">none<") && svg.contains(">a<") && !svg.contains("NaN"));
    }

    #[test]
    fn labels_keep_their_distance() {
        assert_eq!(spread(&[10.0, 11.0, 80.0], 15.0, 100.0), [10.0, 25.0, 80.0]);
        assert_eq!(spread(&[90.0, 95.0, 100.0], 15.0, 100.0), [70.0, 85.0, 100.0]);
        assert!(spread(&[], 15.0, 100.0).is_empty());
    }
}
