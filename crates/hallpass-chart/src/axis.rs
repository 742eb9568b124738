//! A logarithmic axis from a power of ten, or 2 or 5 times one, to another.

pub(crate) struct LogAxis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// More ticks than this are thinned out to powers of ten.
const TICKS_MAX: usize = 10;

impl LogAxis {
    /// Encloses the values that are above zero, and lies between these two coordinates.
    pub(crate) fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let positive = values.filter(|value| *value > 0.0);
        let (low, high) = positive.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        // Where all values are alike there is room below them: a share of 1 is the most there can be.
        Self { low: step_down(low.min(high / 1.5)), high: step_up(high), from, to }
    }

    /// The coordinate of a value; that of the axis's end for one beyond it, such as zero.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub(crate) fn ticks(&self) -> Vec<f64> {
        let within = |tick: &f64| *tick >= self.low * 0.999 && *tick <= self.high * 1.001;
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let steps = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
        let ticks: Vec<f64> = steps.filter(within).collect();
        if ticks.len() <= TICKS_MAX { ticks } else { ticks.into_iter().filter(|tick| is_power_of_ten(*tick)).collect() }
    }
}

fn is_power_of_ten(value: f64) -> bool {
    let power = value.log10();
    (power - power.round()).abs() < 1e-6
}

fn step_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|step| step * power).find(|step| *step <= value * 1.0001).unwrap_or(power)
}

fn step_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let mut steps = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power);
    steps.find(|step| *step >= value * 0.9999).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_encloses_its_values() {
        let axis = LogAxis::new([3.0, 70.0, 0.0].into_iter(), 0.0, 100.0);
        assert_eq!((axis.place(2.0), axis.place(100.0), axis.place(0.0)), (0.0, 100.0, 0.0));
        assert_eq!(axis.ticks(), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn a_long_axis_has_powers_of_ten_only() {
        let axis = LogAxis::new([0.01, 1e5].into_iter(), 0.0, 1.0);
        assert_eq!(axis.ticks().len(), 8);
        assert!(axis.ticks().into_iter().all(is_power_of_ten));
    }

    #[test]
    fn an_axis_without_values_is_still_one() {
        let axis = LogAxis::new([0.0].into_iter(), 10.0, 20.0);
        assert_eq!((axis.place(1.0), axis.place(10.0)), (10.0, 20.0));
    }
}
