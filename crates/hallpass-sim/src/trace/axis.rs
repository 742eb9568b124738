//! The time axis of the space-time diagram: times to scale, or steps at equal distances.

use std::collections::{BTreeMap, BTreeSet};

use hallpass_core::NodeId;

use super::labels::text_width;
use super::{Scale, Trace};

/// The minimum length of the axis.
const PLOT_MIN_PX: f64 = 900.0;
/// The distance between two steps.
const STEP_PX: f64 = 46.0;
/// How far apart most neighbouring events of one node should be, where times are to scale.
const GAP_PX: f64 = 18.0;
/// The maximum width for each moment at which something happens, so that long idle times do not stretch the diagram.
const MOMENT_MAX_PX: f64 = 30.0;
/// The minimum distance between two marks on the axis.
const MARK_PX: f64 = 64.0;

/// Maps times to x coordinates.
pub(super) struct Axis {
    left: f64,
    /// The x coordinate of the last moment.
    pub(super) right: f64,
    /// The time at `left`, and pixels for each unit of [`Event::at`](super::Event::at). Unused for steps.
    origin: u64,
    px: f64,
    /// The moments at which something happens, in rising order.
    moments: Vec<u64>,
    scale: Scale,
}

impl Axis {
    /// The axis of a trace, for lifelines that begin at `left`.
    pub(super) fn new(trace: &Trace, left: f64) -> Self {
        let moments: BTreeSet<u64> = trace.events.iter().map(|event| event.at).collect();
        let moments: Vec<u64> = moments.into_iter().collect();
        let left = left + 16.0;
        let (first, last) = (moments.first().copied().unwrap_or(0), moments.last().copied().unwrap_or(0));
        // Starts at zero if the first event is near it. A late part of a long run starts later.
        let origin = if first <= (last - first) / 4 { 0 } else { first };
        let span = (last - origin).max(1) as f64;
        let width_max = (moments.len() as f64 * MOMENT_MAX_PX).max(PLOT_MIN_PX);
        let px = (GAP_PX / usual_gap(trace) * span).clamp(PLOT_MIN_PX, width_max) / span;
        let right = match trace.scale {
            Scale::Time { .. } => left + span * px,
            Scale::Steps => left + moments.len().saturating_sub(1) as f64 * STEP_PX,
        };
        Axis { left, right, origin, px, moments, scale: trace.scale }
    }

    /// The x coordinate of a time.
    pub(super) fn x(&self, at: u64) -> f64 {
        match self.scale {
            Scale::Time { .. } => self.left + at.saturating_sub(self.origin) as f64 * self.px,
            Scale::Steps => self.left + self.moments.partition_point(|moment| *moment < at) as f64 * STEP_PX,
        }
    }

    /// The x coordinates of the marks, with their labels.
    pub(super) fn marks(&self, trace: &Trace) -> Vec<(f64, String)> {
        match trace.scale {
            Scale::Steps => {
                let width = self.moments.last().map_or(0.0, |at| text_width(&at.to_string(), 11.0) + 8.0);
                let stride = (width / STEP_PX).ceil().max(1.0) as usize;
                self.moments.iter().step_by(stride).map(|at| (self.x(*at), at.to_string())).collect()
            }
            Scale::Time { tick } => {
                let tick = tick.max(1) as f64;
                let (step, decimals) = nice_step(MARK_PX / self.px / tick);
                let first = (self.origin as f64 / tick / step).ceil();
                let count = ((self.right - self.left) / self.px / tick / step).floor();
                let mark = |k: f64| {
                    let time = (first + k) * step;
                    (self.left + (time * tick - self.origin as f64) * self.px, format!("{time:.decimals$} T"))
                };
                (0..=count as u64).map(|k| mark(k as f64)).filter(|(x, _)| *x <= self.right + 1.0).collect()
            }
        }
    }
}

/// The gap between neighbouring events of one node that four fifths of them reach, those of zero aside.
fn usual_gap(trace: &Trace) -> f64 {
    let mut last: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut gaps = Vec::with_capacity(trace.events.len());
    for event in &trace.events {
        if let Some(before) = last.insert(event.node, event.at) {
            gaps.push(event.at.saturating_sub(before));
        }
    }
    gaps.retain(|gap| *gap > 0);
    gaps.sort_unstable();
    gaps.get(gaps.len() / 5).copied().unwrap_or(1) as f64
}

/// The smallest of 1, 2, 5, 10, .. times a power of ten that is at least `least`, and the decimals it needs.
fn nice_step(least: f64) -> (f64, usize) {
    let power = least.log10().floor();
    let unit = 10_f64.powf(power);
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * unit >= least * 0.999_999).unwrap_or(10.0);
    let power = if factor == 10.0 { power + 1.0 } else { power };
    (factor * unit, (-power).max(0.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::sample;

    #[test]
    fn marks_are_round_numbers() {
        let near = |(step, decimals): (f64, usize), expected: f64, places: usize| {
            assert!((step / expected - 1.0).abs() < 1e-9, "{step} is not {expected}");
            assert_eq!(decimals, places);
        };
        near(nice_step(0.3), 0.5, 1);
        near(nice_step(1.0), 1.0, 0);
        near(nice_step(6.0), 10.0, 0);
        near(nice_step(0.06), 0.1, 1);
        near(nice_step(140.0), 200.0, 0);
        let trace = sample::two_nodes();
        let labels: Vec<String> = Axis::new(&trace, 0.0).marks(&trace).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels[..3], ["0.0 T", "0.5 T", "1.0 T"]);
    }

    #[test]
    fn long_idle_times_do_not_stretch_the_diagram() {
        let mut trace = sample::two_nodes();
        trace.events.last_mut().unwrap().at = 1_000_000_000;
        assert!(Axis::new(&trace, 0.0).right <= PLOT_MIN_PX + 100.0);
    }

    #[test]
    fn a_long_trace_keeps_its_events_apart() {
        let events = (0..1000).map(|k| sample::event(k * 700, 1, crate::trace::EventKind::Exit)).collect();
        let axis = Axis::new(&Trace { events, ..sample::two_nodes() }, 0.0);
        assert!(axis.x(1400) - axis.x(700) >= GAP_PX - 1e-6);
    }
}
