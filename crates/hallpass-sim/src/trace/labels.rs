//! Finds room for labels in the diagram.

/// The width of a strip. A few labels wide, so that a search touches few strips and each holds little.
const STRIP_PX: f64 = 160.0;

/// A rectangle, by its corners.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub(super) x0: f64,
    pub(super) y0: f64,
    pub(super) x1: f64,
    pub(super) y1: f64,
}

impl Rect {
    /// The rectangle of this size around a centre.
    pub(super) fn around((x, y): (f64, f64), width: f64, height: f64) -> Self {
        Rect { x0: x - width / 2.0, y0: y - height / 2.0, x1: x + width / 2.0, y1: y + height / 2.0 }
    }

    /// The same rectangle, moved to the right.
    pub(super) fn moved(self, dx: f64) -> Self {
        Rect { x0: self.x0 + dx, x1: self.x1 + dx, ..self }
    }

    /// The same rectangle, moved so that it lies between these x coordinates; `None` if it is too wide for that.
    pub(super) fn within(self, left: f64, right: f64) -> Option<Self> {
        let (x0, width) = (self.x0.min(right - (self.x1 - self.x0)).max(left), self.x1 - self.x0);
        (x0 + width <= right).then_some(Rect { x0, x1: x0 + width, ..self })
    }

    fn overlaps(&self, other: &Rect) -> bool {
        self.x0 < other.x1 && other.x0 < self.x1 && self.y0 < other.y1 && other.y0 < self.y1
    }

    /// True if a part of the segment lies inside (Liang-Barsky clipping).
    fn meets(&self, segment: &Segment) -> bool {
        let ((x0, y0), (x1, y1)) = (segment.0, segment.1);
        let (dx, dy) = (x1 - x0, y1 - y0);
        let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
        for (p, q) in [(-dx, x0 - self.x0), (dx, self.x1 - x0), (-dy, y0 - self.y0), (dy, self.y1 - y0)] {
            if p == 0.0 {
                if q < 0.0 {
                    return false;
                }
            } else if p < 0.0 {
                enter = enter.max(q / p);
            } else {
                leave = leave.min(q / p);
            }
        }
        enter <= leave
    }
}

#[derive(Clone, Copy, Debug)]
struct Segment((f64, f64), (f64, f64));

/// What is already drawn, in vertical strips from left to right.
#[derive(Default)]
pub(super) struct Board {
    strips: Vec<Strip>,
}

#[derive(Default)]
struct Strip {
    taken: Vec<Rect>,
    lines: Vec<Segment>,
}

impl Board {
    /// No label may touch this rectangle.
    pub(super) fn block(&mut self, rect: Rect) {
        for strip in self.strips_mut(rect.x0, rect.x1) {
            strip.taken.push(rect);
        }
    }

    /// Labels should avoid this line, but may cross it.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64)) {
        for strip in self.strips_mut(from.0.min(to.0), from.0.max(to.0)) {
            strip.lines.push(Segment(from, to));
        }
    }

    /// Reserves the free place that crosses the fewest lines, at most `crossings_max`; the first of several.
    pub(super) fn place(&mut self, places: &[Rect], crossings_max: usize) -> Option<Rect> {
        let free = places.iter().filter(|place| !self.is_taken(place));
        let (crossings, place) = free.map(|place| (self.crossings(place), *place)).min_by_key(|(count, _)| *count)?;
        if crossings > crossings_max {
            return None;
        }
        self.block(place);
        Some(place)
    }

    fn is_taken(&self, rect: &Rect) -> bool {
        self.strips(rect).iter().any(|strip| strip.taken.iter().any(|taken| taken.overlaps(rect)))
    }

    /// A line through two strips counts twice for a label on their border, which is good enough to rank places.
    fn crossings(&self, rect: &Rect) -> usize {
        self.strips(rect).iter().map(|strip| strip.lines.iter().filter(|line| rect.meets(line)).count()).sum()
    }

    fn strips(&self, rect: &Rect) -> &[Strip] {
        let first = strip_index(rect.x0).min(self.strips.len());
        let last = (strip_index(rect.x1) + 1).min(self.strips.len());
        &self.strips[first..last]
    }

    fn strips_mut(&mut self, x0: f64, x1: f64) -> &mut [Strip] {
        let (first, last) = (strip_index(x0), strip_index(x1));
        if self.strips.len() <= last {
            self.strips.resize_with(last + 1, Strip::default);
        }
        &mut self.strips[first..=last]
    }
}

fn strip_index(x: f64) -> usize {
    (x.max(0.0) / STRIP_PX) as usize
}

/// How much wider bold letters are.
pub(super) const BOLD: f64 = 1.06;

/// The approximate width of a text. Browsers differ, so this errs on the wide side.
pub(super) fn text_width(text: &str, font_px: f64) -> f64 {
    let ems: f64 = text.chars().map(|c| if c.is_ascii_uppercase() || !c.is_ascii() { 0.72 } else { 0.61 }).sum();
    ems * font_px
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(x: f64, y: f64) -> Rect {
        Rect::around((x, y), 40.0, 12.0)
    }

    #[test]
    fn a_label_is_moved_into_the_picture() {
        assert_eq!(label(10.0, 5.0).within(0.0, 100.0), Some(label(20.0, 5.0)));
        assert_eq!(label(90.0, 5.0).within(0.0, 100.0), Some(label(80.0, 5.0)));
        assert_eq!(label(50.0, 5.0).within(0.0, 100.0), Some(label(50.0, 5.0)));
        assert_eq!(label(50.0, 5.0).within(0.0, 39.0), None);
    }

    #[test]
    fn a_taken_place_is_not_given_again() {
        let mut board = Board::default();
        assert_eq!(board.place(&[label(100.0, 50.0)], 0), Some(label(100.0, 50.0)));
        assert_eq!(board.place(&[label(130.0, 55.0)], 0), None);
        assert_eq!(board.place(&[label(130.0, 55.0), label(145.0, 55.0)], 0), Some(label(145.0, 55.0)));
    }

    #[test]
    fn overlap_is_seen_across_strips() {
        let mut board = Board::default();
        board.block(label(STRIP_PX - 1.0, 50.0));
        assert_eq!(board.place(&[label(STRIP_PX + 30.0, 50.0)], 0), None);
    }

    #[test]
    fn the_place_with_fewer_crossings_wins() {
        let mut board = Board::default();
        board.line((0.0, 0.0), (100.0, 100.0));
        assert_eq!(board.place(&[label(50.0, 50.0), label(50.0, 90.0)], 1), Some(label(50.0, 90.0)));
        assert_eq!(board.place(&[label(30.0, 30.0)], 0), None);
        assert_eq!(board.place(&[label(30.0, 30.0)], 1), Some(label(30.0, 30.0)));
    }
}
