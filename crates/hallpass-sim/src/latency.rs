use hallpass_core::{NodeId, Ticks};

use crate::{ConfigError, Rng};
use crate::{format_duration, parse_duration};

/// How long messages take. T is the mean.
#[derive(Clone, Debug, PartialEq)]
pub enum Latency {
    /// Always the same.
    Constant(Ticks),
    /// Uniform between two bounds, both included.
    Uniform(Ticks, Ticks),
    /// Exponential with this mean, without an upper bound.
    Exponential(Ticks),
    /// Fixed for each link, the same in both directions. The first value is for links that are not listed.
    PerLink(Ticks, Vec<(NodeId, NodeId, Ticks)>),
}

impl Latency {
    /// Parses `1ms`, `1ms..3ms`, `exp:2ms` or `links:1-2=5ms,1-3=20ms,else=1ms`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let parsed = if let Some(mean) = text.strip_prefix("exp:") {
            parse_duration(mean).map(Self::Exponential)
        } else if let Some(links) = text.strip_prefix("links:") {
            parse_links(links)
        } else if let Some((low, high)) = text.split_once("..") {
            parse_duration(low)
                .zip(parse_duration(high))
                .filter(|(low, high)| low <= high)
                .map(|(low, high)| Self::Uniform(low, high))
        } else {
            parse_duration(text).map(Self::Constant)
        };
        parsed.filter(|latency| latency.mean() > 0).ok_or_else(|| {
            ConfigError(format!(
                "latency '{text}' is not a positive duration such as 1ms, a range 1ms..3ms, exp:2ms or links:1-2=5ms,else=1ms"
            ))
        })
    }

    /// T: the mean over all messages; for [`PerLink`](Self::PerLink), over the listed values and the one for the rest.
    pub fn mean(&self) -> Ticks {
        match self {
            Self::Constant(ticks) | Self::Exponential(ticks) => *ticks,
            Self::Uniform(low, high) => low.midpoint(*high),
            Self::PerLink(rest, links) => {
                (rest + links.iter().map(|(_, _, ticks)| ticks).sum::<Ticks>()) / (1 + links.len() as Ticks)
            }
        }
    }

    /// The longest a message can take, if there is a bound.
    pub fn max(&self) -> Option<Ticks> {
        match self {
            Self::Constant(ticks) => Some(*ticks),
            Self::Uniform(_, high) => Some(*high),
            Self::Exponential(_) => None,
            Self::PerLink(rest, links) => links.iter().map(|(_, _, ticks)| *ticks).chain([*rest]).max(),
        }
    }

    pub(crate) fn draw(&self, from: NodeId, to: NodeId, rng: &mut Rng) -> Ticks {
        match self {
            Self::Constant(ticks) => *ticks,
            Self::Uniform(low, high) => low + rng.below(high - low + 1),
            Self::Exponential(mean) => (rng.exponential(*mean as f64) as Ticks).max(1),
            Self::PerLink(rest, links) => {
                let link = (from.min(to), from.max(to));
                links.iter().find(|(a, b, _)| (*a, *b) == link).map_or(*rest, |(_, _, ticks)| *ticks)
            }
        }
    }
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Constant(ticks) => f.write_str(&format_duration(*ticks)),
            Self::Uniform(low, high) => write!(f, "{}..{}", format_duration(*low), format_duration(*high)),
            Self::Exponential(mean) => write!(f, "exp:{}", format_duration(*mean)),
            Self::PerLink(rest, links) => {
                f.write_str("links:")?;
                for (a, b, ticks) in links {
                    write!(f, "{a}-{b}={},", format_duration(*ticks))?;
                }
                write!(f, "else={}", format_duration(*rest))
            }
        }
    }
}

fn parse_links(text: &str) -> Option<Latency> {
    let (mut rest, mut links) = (None, Vec::new());
    for word in text.split(',') {
        let (link, ticks) = word.split_once('=')?;
        let ticks = parse_duration(ticks).filter(|ticks| *ticks > 0)?;
        if link == "else" {
            rest = Some(ticks);
            continue;
        }
        let (a, b) = link.split_once('-')?;
        let (a, b) = (NodeId(a.parse().ok()?), NodeId(b.parse().ok()?));
        links.push((a.min(b), a.max(b), ticks));
    }
    Some(Latency::PerLink(rest?, links))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_displays() {
        for text in ["1ms", "1ms..3ms", "exp:2ms", "links:1-2=5ms,1-3=20ms,else=1ms"] {
            assert_eq!(Latency::parse(text).unwrap().to_string(), text);
        }
        for bad in ["0ms", "3ms..1ms", "exp:", "links:1-2=5ms", "links:1=5ms,else=1ms", "soon"] {
            assert!(Latency::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn draws_stay_within_bounds_and_depend_on_the_link() {
        let mut rng = Rng::new(1);
        let uniform = Latency::Uniform(10, 20);
        let drawn: Vec<Ticks> = (0..1000).map(|_| uniform.draw(NodeId(1), NodeId(2), &mut rng)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&10), Some(&20)));
        let links = Latency::parse("links:1-2=5ms,else=1ms").unwrap();
        assert_eq!(links.draw(NodeId(2), NodeId(1), &mut rng), 5_000_000);
        assert_eq!(links.draw(NodeId(2), NodeId(3), &mut rng), 1_000_000);
        assert_eq!(links.max(), Some(5_000_000));
    }
}
