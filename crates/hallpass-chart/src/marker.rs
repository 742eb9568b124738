//! Points: a shape for each series, divided into slices where several series share one.

use std::f64::consts::TAU;
use std::fmt::Write;

const RADIUS: f64 = 3.2;
/// Slices need more room.
const SHARED_RADIUS: f64 = 4.4;

/// The outline of a series' own marker around this place: a circle, a square, a triangle or a diamond.
pub(crate) fn outline(series: usize, x: f64, y: f64) -> String {
    let corners = |corners: &[(f64, f64)]| {
        let mut path = String::new();
        for (index, (dx, dy)) in corners.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x + dx * RADIUS, y + dy * RADIUS);
        }
        path + "Z"
    };
    match series % 4 {
        0 => slice(x, y, RADIUS, 0, 1),
        1 => corners(&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]),
        2 => corners(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
        _ => corners(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]),
    }
}

/// The outline of one slice of a point that several series share.
pub(crate) fn shared_outline(rank: usize, sharers: usize, x: f64, y: f64) -> String {
    slice(x, y, SHARED_RADIUS, rank, sharers)
}

fn slice(x: f64, y: f64, radius: f64, rank: usize, sharers: usize) -> String {
    if sharers == 1 {
        let (left, right) = (x - radius, x + radius);
        return format!(
            "M{left:.1} {y:.1}A{radius} {radius} 0 1 1 {right:.1} {y:.1}A{radius} {radius} 0 1 1 {left:.1} {y:.1}Z"
        );
    }
    let place = |rank: usize| {
        let angle = TAU * rank as f64 / sharers as f64;
        (x + radius * angle.sin(), y - radius * angle.cos())
    };
    let ((x1, y1), (x2, y2)) = (place(rank), place(rank + 1));
    // The arc of a half is neither the longer nor the shorter one: the sweep decides.
    format!("M{x:.1} {y:.1}L{x1:.1} {y1:.1}A{radius} {radius} 0 0 1 {x2:.1} {y2:.1}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_have_different_shapes() {
        let outlines: Vec<String> = (0..4).map(|series| outline(series, 10.0, 10.0)).collect();
        for (index, outline) in outlines.iter().enumerate() {
            assert!(!outlines[..index].contains(outline));
        }
    }

    #[test]
    fn slices_meet() {
        let (first, second) = (shared_outline(0, 2, 0.0, 0.0), shared_outline(1, 2, 0.0, 0.0));
        assert_eq!(first, "M0.0 0.0L0.0 -4.4A4.4 4.4 0 0 1 0.0 4.4Z");
        assert!(second.starts_with("M0.0 0.0L0.0 4.4A4.4"), "{second}");
    }
}
