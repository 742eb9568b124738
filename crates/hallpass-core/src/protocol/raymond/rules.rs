use super::tree::Tree;
use crate::protocol::{Needs, OptionError, Options, Trap, TrapSet};

/// The options of [`Raymond`](super::Raymond).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaymondRules {
    pub(super) tree: Tree,
    /// 6.1: a REQUEST is piggybacked on the PRIVILEGE before it.
    pub(super) piggyback: bool,
    /// 6.2: a node's own request goes to the head of its queue.
    pub(super) greedy: bool,
    /// 7: nodes start without a HOLDER and learn it by INITIALIZE; otherwise they start as after it.
    pub(super) initialize: bool,
    /// 8: nodes may crash and restart.
    pub(super) recovery: bool,
    /// With recovery: after how many entries of its own a holder sends its count to a neighbour (T28).
    pub(super) reserve: u64,
    pub(super) printed: TrapSet,
}

/// How many entries of a node alone cost one message. A recovery skips this many fences.
const RESERVE: u64 = 1 << 16;

impl RaymondRules {
    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let refuse = |why: &str| Err(OptionError(why.to_owned()));
        let mut parsed = options.read("raymond");
        let tree = Tree::read(&mut parsed)?;
        let piggyback = parsed.flag("piggyback")?.unwrap_or(false);
        let greedy = parsed.flag("greedy")?.unwrap_or(false);
        let initialize = parsed.choice("start", &[("placed", false), ("initialize", true)])?;
        let recovery = parsed.choice("recovery", &[("off", false), ("classic", true)])?;
        let reserve = parsed.number("fence-reserve")?;
        let printed = parsed.as_printed(&[Trap::SwappedAsked, Trap::UntaggedIncarnation])?;
        parsed.finish()?;
        if recovery && initialize {
            return refuse(
                "recovery=classic and start=initialize do not go together: nobody can advise before it knows",
            );
        }
        if !recovery && (reserve.is_some() || !printed.is_empty()) {
            return refuse("fence-reserve, as-printed=T26 and as-printed=T27 need recovery=classic");
        }
        if reserve.is_some_and(|reserve| !(1..=1 << 20).contains(&reserve)) {
            return refuse("fence-reserve is a number of entries from 1 to 1048576");
        }
        Ok(Self { tree, piggyback, greedy, initialize, recovery, reserve: reserve.unwrap_or(RESERVE), printed })
    }

    pub(super) fn needs(&self) -> Needs {
        Needs {
            delay_bound: self.recovery.then_some("recovery=classic"),
            no_loss: Some("raymond needs a network that neither loses nor repeats messages (section 1)"),
            one_holder: true,
            recovery: self.recovery,
            start: self.initialize,
            ..Needs::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn parse(words: &str) -> Result<RaymondRules, OptionError> {
        let mut options = Options::from_words(words.split_whitespace())?;
        options.nodes = (1..=10).map(NodeId).collect();
        RaymondRules::parse(&options)
    }

    #[test]
    fn every_option_is_taken_and_what_does_not_fit_is_refused_with_the_reason() {
        for words in [
            "",
            "tree=figure-7 piggyback=true greedy=true",
            "tree=random tree-seed=7 start=initialize",
            "recovery=classic piggyback=true fence-reserve=1",
            "recovery=classic as-printed=T26,T27",
        ] {
            assert!(parse(words).is_ok(), "{words}: {:?}", parse(words).err());
        }
        for (words, reason) in [
            ("recovery=classic start=initialize", "nobody can advise"),
            ("as-printed=T26", "recovery=classic"),
            ("as-printed=T28 recovery=classic", "offered: T26, T27"),
            ("fence-reserve=4", "recovery=classic"),
            ("fence-reserve=0 recovery=classic", "from 1"),
            ("greedy=perhaps", "true, false"),
            ("recovery=quick", "off, classic"),
            ("reply=implicit", "no option 'reply'"),
        ] {
            let error = parse(words).expect_err(words).to_string();
            assert!(error.contains(reason), "{words}: {error}");
            assert!(!error.contains('\n'));
        }
    }
}
