//! Warnings about options with which a protocol may fail. The laboratory runs them, because it exists to show failures.

use crate::terminal;

/// Warns on stderr about such options.
pub(super) fn warn(options: &[String], nodes: u32) {
    for warning in options.iter().filter_map(|option| warning(option, nodes)) {
        terminal::warn(&warning);
    }
}

fn warning(option: &str, nodes: u32) -> Option<String> {
    let (key, value) = option.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    match (key, value) {
        ("numbers", _) => {
            let modulus: u64 = value.strip_prefix("modulo:")?.parse().ok()?;
            let least = (2 * u64::from(nodes)).saturating_sub(1);
            (modulus < least).then(|| format!("numbers={value} is below 2N-1 = {least}: expect a violation (RA-14)"))
        }
        ("as-printed", _) => Some(format!("as-printed={value}: the printed text is put back, expect a violation")),
        ("failed", "arrival") => Some("failed=arrival: overtaken waiters get no FAILED, expect a deadlock".to_owned()),
        ("transit-max", _) => {
            Some(format!("transit-max={value} is not checked: a message that takes longer can let two nodes inside"))
        }
        ("membership", "classic") => {
            Some("membership=classic is safe only while delays stay within the stated bound (T7)".to_owned())
        }
        ("reply", "implicit") => {
            Some("reply=implicit is safe only while delays stay within the stated bound (T10)".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::warning;

    #[test]
    fn a_modulus_is_small_or_large_enough() {
        assert_eq!(
            warning("numbers=modulo:4", 3).unwrap(),
            "numbers=modulo:4 is below 2N-1 = 5: expect a violation (RA-14)"
        );
        assert_eq!(warning("numbers=modulo:5", 3), None);
        assert_eq!(warning("numbers=unbounded", 3), None);
    }

    #[test]
    fn options_that_rely_on_a_bound_are_warned_about() {
        for (option, trap) in
            [("membership=classic", "T7"), ("reply=implicit", "T10"), ("as-printed=T5", "T5"), ("transit-max=2T", "2T")]
        {
            assert!(warning(option, 3).unwrap().contains(trap), "{option}");
        }
        assert_eq!(warning("reply=explicit", 3), None);
    }
}
