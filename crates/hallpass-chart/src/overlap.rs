//! Which series cover each other, and where.

/// Coordinates that differ by less are drawn on top of each other.
const TOLERANCE: f64 = 2.0;

type Point = (f64, f64);

/// A stretch of one series that is shared by the same series from its begin to its end.
pub(crate) struct Stretch {
    pub(crate) series: usize,
    pub(crate) points: Vec<Point>,
    /// The position of this series among those that share the stretch, and their number.
    pub(crate) rank: usize,
    pub(crate) sharers: usize,
}

/// Cuts every series where those that share it change.
pub(crate) fn stretches(series: &[Vec<Point>]) -> Vec<Stretch> {
    let segments = series.iter().enumerate().flat_map(|(index, points)| {
        points.windows(2).enumerate().map(move |(at, pair)| (index, at, [pair[0], pair[1]]))
    });
    let segments: Vec<(usize, usize, [Point; 2])> = segments.collect();
    let groups = groups(&segments, |(.., a), (.., b)| a.iter().zip(b).all(|(a, b)| covers(*a, *b)));
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut last: Option<(usize, Vec<usize>)> = None;
    for ((index, at, [from, to]), group) in segments.iter().zip(&groups) {
        let sharers: Vec<usize> = group.iter().map(|segment| segments[*segment].0).collect();
        let key = (*index, sharers);
        match stretches.last_mut() {
            Some(stretch) if *at > 0 && last.as_ref() == Some(&key) => stretch.points.push(*to),
            _ => stretches.push(Stretch {
                series: *index,
                points: vec![*from, *to],
                rank: key.1.iter().position(|sharer| sharer == index).unwrap_or(0),
                sharers: key.1.len(),
            }),
        }
        last = Some(key);
    }
    stretches
}

/// Points that are drawn at one place: the series and the index of each.
pub(crate) fn shared_points(series: &[Vec<Point>]) -> Vec<Vec<(usize, usize)>> {
    let points = series
        .iter()
        .enumerate()
        .flat_map(|(index, points)| points.iter().enumerate().map(move |(at, point)| ((index, at), *point)));
    let points: Vec<((usize, usize), Point)> = points.collect();
    let groups = groups(&points, |(_, a), (_, b)| covers(*a, *b));
    let first = groups.into_iter().enumerate().filter(|(at, group)| group[0] == *at).map(|(_, group)| group);
    first.map(|group| group.into_iter().map(|at| points[at].0).collect()).collect()
}

fn covers(a: Point, b: Point) -> bool {
    (a.0 - b.0).abs() < TOLERANCE && (a.1 - b.1).abs() < TOLERANCE
}

/// For every item the indices of those that cover it, itself among them, in rising order. An item joins the group of the
/// first item that it covers, so that all of a group have the same members.
fn groups<T>(items: &[T], covers: impl Fn(&T, &T) -> bool) -> Vec<Vec<usize>> {
    let mut leaders: Vec<usize> = Vec::new();
    let mut leader_of = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let leader = leaders.iter().copied().find(|leader| covers(&items[*leader], item)).unwrap_or(at);
        if leader == at {
            leaders.push(at);
        }
        leader_of.push(leader);
    }
    let members = |leader: usize| (0..items.len()).filter(|at| leader_of[*at] == leader).collect();
    leader_of.iter().map(|leader| members(*leader)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_cut_where_another_leaves_it() {
        let together = vec![(0.0, 0.0), (10.0, 10.0), (20.0, 20.0), (30.0, 30.0)];
        let leaves = vec![(0.0, 0.5), (10.0, 10.5), (20.0, 20.0), (30.0, 90.0)];
        let alone = vec![(0.0, 50.0), (30.0, 50.0)];
        let seen: Vec<_> = stretches(&[together, leaves, alone])
            .iter()
            .map(|stretch| (stretch.series, stretch.points.len(), stretch.rank, stretch.sharers))
            .collect();
        assert_eq!(seen, [(0, 3, 0, 2), (0, 2, 0, 1), (1, 3, 1, 2), (1, 2, 0, 1), (2, 2, 0, 1)]);
    }

    #[test]
    fn points_at_one_place_are_listed_once() {
        let a = vec![(0.0, 0.0), (10.0, 0.0)];
        let b = vec![(0.0, 1.0), (10.0, 40.0)];
        assert_eq!(shared_points(&[a, b]), [vec![(0, 0), (1, 0)], vec![(0, 1)], vec![(1, 1)]]);
    }
}
