//! Line charts and bar charts as SVG text, on logarithmic scales, light or dark as the reader's system is.
//!
//! Lines that cover each other are told apart: where several series share a stretch, it is striped in their colours; a
//! point that they share is divided among them; and every line is labelled at its end.
//!
//! ```
//! use hallpass_chart::{LineChart, Series, XAxis};
//!
//! let series = |name: &str, points: &[(f64, f64)]| Series { name: name.to_owned(), points: points.to_vec() };
//! let chart = LineChart {
//!     title: "Messages per entry".to_owned(),
//!     y_label: "messages".to_owned(),
//!     x_axis: XAxis::Log { label: "nodes".to_owned() },
//!     series: vec![series("a", &[(2.0, 2.0), (10.0, 18.0)]), series("b", &[(2.0, 2.0), (10.0, 27.0)])],
//! };
//! assert!(chart.to_svg().starts_with("<svg "));
//! ```

mod axis;
mod bars;
mod lines;
mod marker;
mod overlap;
mod states;
mod svg;

pub use bars::{Bar, BarChart, Panel};
pub use lines::{LineChart, Series, XAxis};
pub use states::StateChart;
pub use svg::{PALETTE_LENGTH, escape};

/// Three significant digits, and all of a whole number below 10000: `0.12`, `35.4`, `2997`, `12.3 k`, `1.4 M`.
pub fn short(value: f64) -> String {
    let (value, unit) = match value {
        1e6.. => (value / 1e6, " M"),
        1e4.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let decimals = if value > 0.0 { (2.0 - value.log10().floor()).clamp(0.0, 6.0) as usize } else { 0 };
    let digits = format!("{value:.decimals$}");
    let digits = if decimals > 0 { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{digits}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let values = [0.0, 0.004, 0.12, 1.0, 35.44, 100.0, 2997.0, 12_345.0, 100_000.0, 1.4e6];
        assert_eq!(values.map(short), ["0", "0.004", "0.12", "1", "35.4", "100", "2997", "12.3 k", "100 k", "1.4 M"]);
    }
}
