use super::{ClusterReport, Cut};
use crate::oracle::Violation;

/// Cuts a failed run down: fewer faults, then fewer nodes and callers, as long as the same property is violated. At most
/// `runs` runs are made. Returns the smallest cut that was found, and its violation.
pub fn shrink(
    cut: &Cut,
    failed: &ClusterReport,
    runs: usize,
    run: impl Fn(&Cut) -> ClusterReport,
) -> (Cut, Option<Violation>) {
    let Some(violation) = &failed.violation else { return (cut.clone(), None) };
    let mut search = Search { cut: cut.clone(), violation: violation.clone(), runs, run };
    let kept = cut.faults.clone().unwrap_or_else(|| (0..failed.planned).collect());
    search.cut_faults(kept);
    for nodes in 1..failed.nodes {
        if search.fails(Cut { nodes: Some(nodes), ..search.cut.clone() }) {
            break;
        }
    }
    if search.cut.callers.is_none_or(|callers| callers > 1) {
        search.fails(Cut { callers: Some(1), ..search.cut.clone() });
    }
    (search.cut, Some(search.violation))
}

struct Search<R> {
    cut: Cut,
    violation: Violation,
    /// How many more runs may be made.
    runs: usize,
    run: R,
}

impl<R: Fn(&Cut) -> ClusterReport> Search<R> {
    /// Whether a smaller run still fails; then it is kept.
    fn fails(&mut self, cut: Cut) -> bool {
        if self.runs == 0 {
            return false;
        }
        self.runs -= 1;
        let found = (self.run)(&cut).violation;
        match found.filter(|found| found.property == self.violation.property) {
            Some(violation) => {
                (self.cut, self.violation) = (cut, violation);
                true
            }
            None => false,
        }
    }

    /// Takes faults away in portions, large ones first.
    fn cut_faults(&mut self, mut kept: Vec<usize>) {
        let mut portion = kept.len();
        while portion > 0 {
            let mut from = 0;
            while from < kept.len() {
                let to = (from + portion).min(kept.len());
                let rest: Vec<usize> = [&kept[..from], &kept[to..]].concat();
                if self.fails(Cut { faults: Some(rest.clone()), ..self.cut.clone() }) {
                    kept = rest;
                } else {
                    from = to;
                }
            }
            portion /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(planned: usize, fails: bool) -> ClusterReport {
        ClusterReport {
            nodes: 5,
            grants: 0,
            lapses: 0,
            epoch: 0,
            duration: 0,
            planned,
            faults: [0; super::super::FaultKind::ALL.len()],
            violation: fails.then(|| Violation { property: "exclusion", text: "two".to_owned() }),
            hash: 0,
            wire: 0,
            busy: 0,
            overtaken: 0,
            log: Vec::new(),
        }
    }

    #[test]
    fn what_is_not_needed_goes() {
        let run = |cut: &Cut| {
            let kept = cut.faults.clone().unwrap_or_else(|| (0..20).collect());
            let fails =
                [3, 11, 12].iter().all(|needed| kept.contains(needed)) && cut.nodes.is_none_or(|nodes| nodes >= 3);
            report(kept.len(), fails)
        };
        let (cut, violation) = shrink(&Cut::default(), &report(20, true), 500, run);
        assert_eq!(cut, Cut { nodes: Some(3), callers: Some(1), faults: Some(vec![3, 11, 12]) });
        assert_eq!(cut.to_string(), " --nodes 3 --callers 1 --keep-faults 3,11,12");
        assert_eq!(violation.unwrap().property, "exclusion");
    }

    #[test]
    fn it_ends_and_keeps_what_fails() {
        let (cut, violation) = shrink(&Cut::default(), &report(20, true), 3, |_| report(0, false));
        assert!(cut.is_nothing() && violation.is_some());
        let (cut, _) = shrink(&Cut::default(), &report(2, true), 100, |_| report(0, true));
        assert_eq!(cut.to_string(), " --nodes 1 --callers 1 --keep-faults none");
    }
}
