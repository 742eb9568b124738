use hallpass_core::Mode;

use super::Violation;

/// Where a lock has a home, that knows a bound of every fence: a new one that it counts from there is above all of them.
///
/// `bound` is the largest count of an exclusive fence, as the home knows it. A shared one may be one more.
pub(crate) fn check_bound(mode: Mode, count: u64, bound: u64) -> Option<Violation> {
    let text = || format!("an entry has the fence {count}, and its home knows of {bound} at most");
    (count > bound + u64::from(mode == Mode::Shared)).then(|| Violation { property: "bound", text: text() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_beyond_what_the_home_knows_is_caught() {
        assert_eq!(check_bound(Mode::Exclusive, 3, 3), None);
        assert_eq!(check_bound(Mode::Shared, 4, 3), None);
        let violation = check_bound(Mode::Exclusive, 4, 3).unwrap();
        assert_eq!(violation.to_string(), "bound: an entry has the fence 4, and its home knows of 3 at most");
        assert!(check_bound(Mode::Shared, 5, 3).is_some());
    }
}
