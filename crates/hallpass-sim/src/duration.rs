use hallpass_core::Ticks;

/// Reads `250ms`, `10s`, `2m`, `500us` or `40ns` as nanoseconds.
pub fn parse_duration(text: &str) -> Option<Ticks> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let ticks = number.parse::<f64>().ok()? * factor;
    // A century is more than any run needs and leaves room for sums.
    (ticks.is_finite() && ticks <= 3.2e18).then_some(ticks as Ticks)
}

/// Writes nanoseconds as [`parse_duration`] reads them, in the largest unit that keeps them whole.
pub fn format_duration(ticks: Ticks) -> String {
    for (unit, factor) in [("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if ticks >= factor && ticks.is_multiple_of(factor) {
            return format!("{}{unit}", ticks / factor);
        }
    }
    format!("{ticks}ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in ["250ms", "10s", "2m", "1500us", "7ns"] {
            let ticks = parse_duration(text).unwrap();
            assert_eq!(parse_duration(&format_duration(ticks)), Some(ticks));
        }
        for bad in ["", "5", "ms", "1 s", "-1s", "1.2.3s", "5T", "9999999999h"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
