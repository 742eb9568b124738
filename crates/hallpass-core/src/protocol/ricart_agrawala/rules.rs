use crate::protocol::{Medium, Needs, OptionError, Options, Parsed, Trap, TrapSet};
use crate::{NodeId, Ticks};

/// The options of [`RicartAgrawala`](super::RicartAgrawala), found to fit together.
#[derive(Clone, Debug)]
pub struct Rules {
    pub(super) implicit: bool,
    pub(super) medium: Medium,
    pub(super) release: Release,
    pub(super) modulus: Option<u64>,
    pub(super) increment: Increment,
    /// A number for each node: the step of its sequence numbers, and its rank, 1 being the most urgent.
    pub(super) priorities: Vec<(NodeId, u64)>,
    pub(super) hold_back: Option<Ticks>,
    pub(super) reply_number: bool,
    pub(super) clock: Clock,
    /// Where each node's Lamport clock starts.
    pub(super) clocks: Vec<(NodeId, u64)>,
    pub(super) fence: FenceRule,
    pub(super) transit_max: Option<Ticks>,
    pub(super) printed: TrapSet,
}

/// How the REPLYs that are owed at a release leave (section 6.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Release {
    Unicast,
    Broadcast,
    /// A broadcast without its list of recipients, to show footnote 2.
    Unlisted,
}

/// How far a new request's number lies above the highest one seen (section 6.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Increment {
    Unit,
    Random(u32),
    Priority,
}

/// What numbers requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clock {
    /// The paper's sequence numbers.
    Sequence,
    /// Lamport's clock, T = 10 L + pid, on every message (the Carnegie Mellon notes).
    Lamport,
}

/// Where an entry's fence comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FenceRule {
    /// Each REPLY carries the largest its sender knows; an entry takes the maximum plus one.
    Replies,
    /// The request's own (number, rank in the view): where permission may come by silence, which carries no number. The
    /// order of entries is the order of these pairs.
    Ticket,
    /// The request's own (number, node id): where a failed node's REPLY is pretended, and ranks change with the members.
    Name,
    /// None, so that an exploration of endless entries stays finite.
    Off,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            implicit: false,
            medium: Medium::Unicast,
            release: Release::Unicast,
            modulus: None,
            increment: Increment::Unit,
            priorities: Vec::new(),
            hold_back: None,
            reply_number: true,
            clock: Clock::Sequence,
            clocks: Vec::new(),
            fence: FenceRule::Replies,
            transit_max: None,
            printed: TrapSet::default(),
        }
    }
}

impl Rules {
    /// Reads the options of sections 2 and 6.
    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let mut parsed = options.read("ricart-agrawala");
        let rules = Self::read(&mut parsed)?;
        parsed.choice("membership", &[("static", ())])?;
        parsed.choice("medium", &[("unordered", ())])?;
        let given = |key: &str| parsed.is_given(key);
        if rules.modulus.is_some() {
            let kept = ["numbers", "reply-number", "fence", "as-printed"];
            if let Some((key, _)) = options.pairs().find(|(key, _)| !kept.contains(key)) {
                return refuse(format!(
                    "numbers=modulo cannot be combined with {key}: residues are only comparable with fixed membership, unit \
                     steps and the plain algorithm (T4)"
                ));
            }
            if given("reply-number") && rules.reply_number {
                return refuse(
                    "numbers=modulo needs reply-number=false: a REPLY's residue is not within the compared range (T4)",
                );
            }
        }
        if rules.clock == Clock::Lamport && rules.increment != Increment::Unit {
            return refuse("clock=lamport cannot be combined with increment: the clock alone numbers requests");
        }
        if !rules.clocks.is_empty() && rules.clock != Clock::Lamport {
            return refuse("clocks sets Lamport clocks; add clock=lamport");
        }
        if rules.hold_back.is_some() && rules.increment != Increment::Priority {
            return refuse("hold-back delays REQUESTs of lower priority; add increment=priority and priorities=..");
        }
        if rules.increment == Increment::Priority && rules.priorities.is_empty() {
            return refuse("increment=priority needs a number for each node, such as priorities=1,5,5");
        }
        if !rules.priorities.is_empty() && rules.increment != Increment::Priority {
            return refuse("priorities are used by increment=priority only; add it");
        }
        if rules.implicit && rules.release == Release::Unlisted {
            return refuse(
                "reply=implicit cannot be combined with release=unlisted: a REPLY must name whom it answers (T10)",
            );
        }
        if rules.implicit && rules.hold_back.is_some() {
            return refuse(
                "reply=implicit cannot be combined with hold-back: a REQUEST that is put off would be granted by silence (T10)",
            );
        }
        if rules.transit_max.is_some() && !rules.implicit {
            return refuse("transit-max states the bound that reply=implicit relies on; add it");
        }
        parsed.finish()?;
        Ok(rules)
    }

    fn read(parsed: &mut Parsed<'_>) -> Result<Self, OptionError> {
        let implicit = parsed.choice("reply", &[("explicit", false), ("implicit", true)])?;
        let modulus = match parsed.text("numbers") {
            None | Some("unbounded") => None,
            Some(text) => Some(
                text.strip_prefix("modulo:")
                    .and_then(|m| m.parse().ok())
                    .filter(|m| (1..1 << 32).contains(m))
                    .ok_or_else(|| {
                        OptionError(format!("option numbers={text} is not known; it takes unbounded, modulo:M"))
                    })?,
            ),
        };
        let increment = match parsed.text("increment") {
            None | Some("unit") => Increment::Unit,
            Some("priority") => Increment::Priority,
            Some(text) => text
                .strip_prefix("random:")
                .and_then(|k| k.parse().ok())
                .filter(|k| (1..1 << 20).contains(k))
                .map(Increment::Random)
                .ok_or_else(|| {
                    OptionError(format!("option increment={text} is not known; it takes unit, random:K, priority"))
                })?,
        };
        let reply_number = parsed.flag("reply-number")?.unwrap_or(modulus.is_none());
        let fence = parsed.choice("fence", &[("on", FenceRule::Replies), ("off", FenceRule::Off)])?;
        Ok(Self {
            implicit,
            medium: parsed.choice("request", &[("unicast", Medium::Unicast), ("broadcast", Medium::Broadcast)])?,
            release: parsed.choice(
                "release",
                &[("unicast", Release::Unicast), ("broadcast", Release::Broadcast), ("unlisted", Release::Unlisted)],
            )?,
            modulus,
            increment,
            priorities: each_node(parsed, "priorities")?,
            hold_back: parsed.duration("hold-back")?,
            reply_number,
            clock: parsed.choice("clock", &[("sequence", Clock::Sequence), ("lamport", Clock::Lamport)])?,
            clocks: each_node(parsed, "clocks")?,
            fence: if implicit && fence == FenceRule::Replies { FenceRule::Ticket } else { fence },
            transit_max: parsed.duration("transit-max")?,
            printed: parsed.as_printed(&[
                Trap::OwnNumber,
                Trap::AtomicDeferral,
                Trap::AtomicNumber,
                Trap::ModuloReaders,
                Trap::CountedReplies,
                Trap::NoReplyAfterDeferred,
            ])?,
        })
    }

    pub(super) fn needs(&self) -> Needs {
        let modulo = self.modulus.is_some().then_some("numbers=modulo");
        Needs {
            // REPLYs with a list need a medium that carries a broadcast as one message, as REQUESTs on it do.
            medium: if self.release == Release::Unicast { self.medium } else { Medium::Broadcast },
            delay_bound: self.implicit.then_some("reply=implicit"),
            fifo: None,
            no_shared: modulo
                .filter(|_| !self.printed.contains(Trap::ModuloReaders))
                .map(|_| "numbers=modulo breaks with readers, already with two nodes (T4)"),
            no_cancel: modulo.map(|_| "numbers=modulo: a late REPLY to a cancelled request could match a new one (T4)"),
            no_loss: if self.implicit {
                Some("reply=implicit takes silence for permission: a lost DEFERRED lets two inside (T10)")
            } else {
                modulo.map(|_| "numbers=modulo: a repeated REQUEST's residue means something else later (T4)")
            },
            fences: self.fence != FenceRule::Off,
            ..Needs::default()
        }
    }

    /// The step and rank of a node. One that was given no number, such as a newcomer, comes last.
    pub(super) fn priority(&self, node: NodeId) -> u64 {
        match Self::of(&self.priorities, node) {
            0 => self.priorities.iter().map(|(_, priority)| *priority).max().unwrap_or(1),
            priority => priority,
        }
    }

    /// A node's value in a list with a value for each, or 0.
    pub(super) fn of(list: &[(NodeId, u64)], node: NodeId) -> u64 {
        list.iter().find(|(id, _)| *id == node).map_or(0, |(_, value)| *value)
    }
}

fn each_node(parsed: &mut Parsed<'_>, key: &'static str) -> Result<Vec<(NodeId, u64)>, OptionError> {
    let values = parsed.number_each_node(key)?.unwrap_or_default();
    // Steps add up and stamps are multiplied: far beyond any use, and far from overflowing.
    if let Some(value) = values.iter().find(|value| **value > 1 << 20) {
        return refuse(format!("option {key}: {value} is more than 1048576"));
    }
    if key == "priorities" && values.contains(&0) {
        return refuse("priorities are step sizes, 1 the most urgent; 0 would repeat numbers");
    }
    Ok(parsed.options().nodes.iter().copied().zip(values).collect())
}

pub(super) fn refuse<T>(why: impl Into<String>) -> Result<T, OptionError> {
    Err(OptionError(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Rules, OptionError> {
        let mut options = Options::from_words(words.split_whitespace())?;
        options.nodes = (1..=3).map(NodeId).collect();
        options.tick = 1000;
        Rules::parse(&options)
    }

    #[test]
    fn every_option_of_the_contract_is_taken() {
        for words in [
            "reply=explicit",
            "reply=implicit",
            "request=unicast",
            "request=broadcast",
            "medium=unordered",
            "numbers=unbounded",
            "numbers=modulo:5",
            "numbers=modulo:5 reply-number=false",
            "increment=unit",
            "increment=random:8",
            "increment=priority priorities=1,4,4",
            "reply-number=true",
            "reply-number=false",
            "clock=sequence",
            "clock=lamport clocks=1,2,3",
            "membership=static",
            "as-printed=T1,T2",
            "release=broadcast",
            "reply=implicit request=broadcast transit-max=2T",
            "increment=priority priorities=1,4,4 hold-back=5T",
        ] {
            assert!(parse(words).is_ok(), "{words}: {:?}", parse(words).err());
        }
    }

    #[test]
    fn what_the_traps_forbid_is_refused_with_the_reason() {
        for (words, reason) in [
            ("numbers=modulo:5 increment=random:4", "T4"),
            ("numbers=modulo:5 reply=implicit", "T4"),
            ("numbers=modulo:5 clock=lamport", "T4"),
            ("numbers=modulo:5 reply-number=true", "T4"),
            ("numbers=modulo:0", "modulo:M"),
            ("increment=priority", "priorities"),
            ("priorities=1,2,3", "increment=priority"),
            ("priorities=0,2,3 increment=priority", "repeat"),
            ("priorities=1,2 increment=priority", "2 numbers for 3 nodes"),
            ("hold-back=2T", "increment=priority"),
            ("clock=lamport increment=random:3", "clock"),
            ("transit-max=1T", "reply=implicit"),
            ("reply=implicit increment=priority priorities=1,2,3 hold-back=1T", "T10"),
            ("reply=sometimes", "explicit, implicit"),
            ("as-printed=T9", "offered"),
            ("ring=echo", "no option 'ring'"),
            ("membership=sometimes", "static"),
        ] {
            let error = parse(words).expect_err(words).to_string();
            assert!(error.contains(reason), "{words}: {error}");
            assert!(!error.contains('\n'));
        }
    }
}
