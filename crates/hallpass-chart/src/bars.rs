//! A chart of bars in several panels, one below the other.

use std::fmt::Write;

use crate::axis::LogAxis;
use crate::short;
use crate::svg::{Anchor, class, document, line, text};

/// A bar chart before it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// From the top down; those without bars are left out.
    pub panels: Vec<Panel>,
}

/// Bars that are compared with each other, on a logarithmic scale of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Above the bars.
    pub title: String,
    /// From the top down.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// To its left.
    pub name: String,
    /// The position of its colour in the palette.
    pub colour: usize,
    /// Above zero.
    pub value: f64,
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 650.0;
const BAR: f64 = 15.0;
const GAP: f64 = 34.0;

impl BarChart {
    /// The chart as one SVG document.
    pub fn to_svg(&self) -> String {
        let mut svg = String::new();
        let mut y = 14.0;
        for panel in self.panels.iter().filter(|panel| !panel.bars.is_empty()) {
            panel.draw(&mut svg, &mut y);
        }
        document(WIDTH, y, &svg)
    }
}

impl Panel {
    fn draw(&self, svg: &mut String, y: &mut f64) {
        let values = self.bars.iter().map(|bar| bar.value);
        // The axis begins below the smallest value, so that its bar has a length too.
        let below = values.clone().fold(f64::MAX, f64::min) / 2.0;
        let axis = LogAxis::new(values.chain([below]), LEFT, RIGHT);
        text(svg, 8.0, *y + 4.0, Anchor::Start, "title", &self.title);
        *y += 14.0;
        let bottom = *y + BAR * self.bars.len() as f64;
        for tick in axis.ticks() {
            let x = axis.place(tick);
            line(svg, (x, *y), (x, bottom), "grid");
            text(svg, x, bottom + 12.0, Anchor::Middle, "faint", &short(tick));
        }
        for bar in &self.bars {
            let (end, baseline) = (axis.place(bar.value), *y + BAR - 4.0);
            text(svg, LEFT - 6.0, baseline, Anchor::End, "", &bar.name);
            let (top, width, height) = (*y + 1.5, end - LEFT, BAR - 3.0);
            let _ = write!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"bar {}\"/>",
                class(bar.colour)
            );
            text(svg, end + 5.0, baseline, Anchor::Start, "faint", &short(bar.value));
            *y += BAR;
        }
        *y += GAP;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_a_length() {
        let bar = |value: f64| Bar { name: "x & y".into(), colour: 1, value };
        let panel = |bars: Vec<Bar>| Panel { title: "us".into(), bars };
        let svg = BarChart { panels: vec![panel(vec![bar(1.0), bar(100.0)]), panel(Vec::new())] }.to_svg();
        assert_eq!((svg.matches("class=\"bar c1\"").count(), svg.matches("class=\"title\"").count()), (2, 1));
        assert!(!svg.contains("width=\"0.0\"") && svg.contains("x &amp; y") && svg.contains(">100</text>"), "{svg}");
    }
}
