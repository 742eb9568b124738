use super::super::Rules;
use super::super::rules::{FenceRule, refuse};
use crate::protocol::{Needs, OptionError, Options, Ticks, Trap, TrapSet};

/// The options of [`Classic`](super::Classic), found to fit together.
#[derive(Clone, Debug)]
pub struct ClassicRules {
    pub(super) base: Rules,
    pub(super) number_source: NumberSource,
    /// 7.2.2's alternative: the newcomer broadcasts instead of being inserted by a sponsor.
    pub(super) by_broadcast: bool,
    /// How often a silent node is asked before it counts as failed.
    pub(super) probes: u8,
    pub(super) transit_max: Option<Ticks>,
    pub(super) section_max: Option<Ticks>,
    pub(super) printed: TrapSet,
}

/// How a newcomer learns that its highest number is high enough (7.2.3); 'until then REQUESTs are answered and none is made'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NumberSource {
    /// The sponsor hands over the highest number that was acknowledged (T8).
    Sponsor,
    /// (1) Ask all.
    Ask,
    /// (2) One REQUEST from each.
    Each,
    /// (3) Numbers have risen by N-1.
    Risen,
    /// (4) A wait in which everybody could have entered and left.
    Quiet,
    /// (5) The fourth REQUEST from one node, on links that keep order.
    Fourth,
}

/// Options of the plain algorithm that section 7 cannot be combined with, their defaults, and the reasons.
const EXCLUDED: [(&str, &str, &str); 7] = [
    ("reply", "explicit", "a dead node's silence would be its permission (T10)"),
    ("numbers", "unbounded", "residues need fixed membership (T4)"),
    ("request", "unicast", "REQUESTs go to the nodes on the list, which a broadcast does not know"),
    ("release", "unicast", "REPLYs go to the nodes on the list, which a broadcast does not know"),
    ("clock", "sequence", "its numbers are the paper's"),
    ("medium", "unordered", "its numbers are the paper's"),
    ("hold-back", "", "a REQUEST that is put off looks like a node that is dead (T14)"),
];

impl ClassicRules {
    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let mut parsed = options.read("ricart-agrawala membership=classic");
        for (key, default, why) in EXCLUDED {
            if parsed.text(key).is_some_and(|value| value != default) {
                return refuse(format!("membership=classic cannot be combined with {key}: {why}"));
            }
        }
        let sources = [
            ("sponsor", NumberSource::Sponsor),
            ("ask", NumberSource::Ask),
            ("each", NumberSource::Each),
            ("risen", NumberSource::Risen),
            ("quiet", NumberSource::Quiet),
            ("fourth", NumberSource::Fourth),
        ];
        let number_source = parsed.choice("hsn", &sources)?;
        let by_broadcast = parsed.choice("insert", &[("sponsor", false), ("broadcast", true)])?;
        let probes = match parsed.number("probes")? {
            None => 2,
            Some(count @ 1..=9) => count as u8,
            Some(count) => {
                return refuse(format!("probes={count}: a silent node is asked 1 to 9 times; the paper asks once"));
            }
        };
        let transit_max = parsed.duration("transit-max")?;
        let section_max = parsed.duration("section-max")?;
        let printed = parsed.as_printed(&[Trap::AreYouThere, Trap::UnacknowledgedJoin, Trap::UnorderedLeave])?;
        let mut for_base = options.emptied();
        for key in ["increment", "priorities", "reply-number"] {
            if let Some(value) = parsed.text(key) {
                for_base.set(key, value)?;
            }
        }
        if number_source == NumberSource::Risen && options.get("increment").is_some_and(|increment| increment != "unit")
        {
            return refuse("hsn=risen counts on numbers that rise by one a request (T14): drop increment");
        }
        parsed.finish()?;
        let base = Rules { fence: FenceRule::Name, ..Rules::parse(&for_base)? };
        Ok(Self { base, number_source, by_broadcast, probes, transit_max, section_max, printed })
    }

    pub(super) fn needs(&self) -> Needs {
        Needs {
            delay_bound: Some("membership=classic"),
            fifo: (self.number_source == NumberSource::Fourth).then_some("hsn=fourth"),
            membership: true,
            unexplorable: match self.number_source {
                NumberSource::Quiet => Some(
                    "hsn=quiet needs a bound on sections, and in an exploration they may last forever; use lab run",
                ),
                NumberSource::Each | NumberSource::Risen | NumberSource::Fourth => {
                    Some("this hsn waits for REQUESTs that nobody owes a newcomer in an exploration; use lab run")
                }
                NumberSource::Sponsor | NumberSource::Ask => None,
            },
            ..Needs::default()
        }
    }
}
