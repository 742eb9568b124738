use std::fmt::Debug;
use std::hash::Hash;

use super::home::BLOCK_MAX;
use crate::NodeId;
use crate::protocol::{OptionError, Options};

/// The options that are policy: no safety hangs on any of them.
#[derive(Debug)]
pub(super) struct DirectoryRules {
    /// The home, instead of the one that the driver names.
    pub(super) home: Option<NodeId>,
    /// How many counts a writer gets at once from an empty chain; by default more for one that comes back.
    pub(super) block: Option<u64>,
    /// How many counts a writer gets at once that waits for others.
    pub(super) block_chained: u64,
    /// A member keeps what it does not use until it is asked for it.
    pub(super) caches: bool,
}

impl DirectoryRules {
    /// Parses the options, and the rules that are left out where the laboratory may leave some out.
    pub(super) fn parse(options: &Options, offers_rules: bool) -> Result<(Self, Option<Rule>), OptionError> {
        let mut parsed = options.read("directory");
        let home = parsed.number("home")?;
        let block = parsed.number("block")?;
        let block_chained = parsed.number("block-chained")?.unwrap_or(1);
        let caches = parsed.choice("give-back", &[("at-once", false), ("when-asked", true)])?;
        let left_out = if offers_rules { parsed.number("leave-out")? } else { None };
        parsed.finish()?;
        if let Some(size) =
            [block, Some(block_chained)].into_iter().flatten().find(|size| !(1..=BLOCK_MAX).contains(size))
        {
            return Err(OptionError(format!("a block of {size} counts is not possible; it has 1 to {BLOCK_MAX}")));
        }
        let home = match home {
            None => None,
            Some(home) => Some(find_home(home, &options.nodes)?),
        };
        let left_out = left_out.map(Rule::numbered).transpose()?;
        Ok((Self { home, block, block_chained, caches }, left_out))
    }
}

fn find_home(home: u64, nodes: &[NodeId]) -> Result<NodeId, OptionError> {
    nodes.iter().copied().find(|node| u64::from(node.0) == home).ok_or_else(|| {
        let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
        OptionError(format!("option home={home} names no member; there are {}", nodes.join(", ")))
    })
}

/// Makes the enum of the rules that can be left out, with their numbers.
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $number:literal;)*) => {
        /// A rule of the protocol that the laboratory can leave out, by `leave-out=4`, to see what it is for.
        ///
        /// `docs/protocols/directory.md` has a shortest run for each one in which something goes wrong without it.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Rule { $($(#[$doc])* $rule = $number),* }

        impl Rule {
            /// Every rule that can be left out.
            pub const ALL: &[Self] = &[$(Self::$rule),*];
        }
    };
}

rules! {
    /// The home grants in the place of a member whose BACK has crossed its FWD.
    GrantInPlace = 1;
    /// BACK frees the lock only if nobody was forwarded.
    BackFreesIfAlone = 2;
    /// A FWD is kept for a request that still waits.
    KeepForward = 3;
    /// A request enters only with all the grants that it needs.
    NeedAll = 4;
    /// The writer before a batch of readers is asked, too, and counted.
    AskWriterBefore = 5;
    /// A cancelled request stays until its grants are here.
    Zombie = 6;
    /// The largest count outlives the home's part.
    TopOutlives = 7;
    /// The largest count is lowered only if nobody follows.
    LowerTopIfAlone = 8;
    /// A reader joins only the last segment.
    JoinLast = 9;
    /// Readers whose FWD has crossed BACK are granted by the home.
    GrantCrossedReaders = 10;
    /// A record that was kept in shared mode ignores a reader's FWD. Left out, nothing a caller can see goes wrong.
    IgnoreLateReader = 11;
    /// An upgrade does not ask its own member.
    UpgradeAsksOthers = 12;
    /// An upgrade is refused if a writer waits.
    RefuseLateUpgrade = 13;
    /// A new request refuses the attempt that probes.
    RefuseAttempt = 14;
    /// No entry beyond the block.
    WithinBlock = 16;
    /// A reader that asks again leaves the writer before its batch in the chain.
    KeepWriterBefore = 17;
    /// A reader's count is above all that were given to writers.
    SharedAbove = 18;
    /// Numbers outlive the instance.
    NumbersOutlive = 19;
    /// BACK with `keep` makes a reader.
    KeepReader = 20;
    /// A reader behind a writer is forwarded, not granted.
    ForwardReader = 22;
    /// What is given back in a REQ counts.
    BackInRequest = 23;
    /// The largest count is lowered when unused counts come back. Left out, all stays right.
    LowerTop = 24;
    /// What a leaving writer owes to the writer after its batch is granted by the home.
    GrantWriterAfterBatch = 25;
    /// The home knows who holds the lock at the start.
    KnowHolders = 26;
    /// An attempt is retried after what a REQ gives back.
    RetryAttempt = 27;
    /// An upgrade ends what is before it.
    UpgradeEndsEarlier = 28;
}

impl Rule {
    /// The number by which `leave-out` names it.
    pub const fn number(self) -> u8 {
        self as u8
    }

    fn numbered(number: u64) -> Result<Self, OptionError> {
        Self::ALL.iter().copied().find(|rule| u64::from(rule.number()) == number).ok_or_else(|| {
            let numbers: Vec<String> = Self::ALL.iter().map(|rule| rule.number().to_string()).collect();
            OptionError(format!("option leave-out={number} names no rule; there are {}", numbers.join(", ")))
        })
    }
}

/// Which rules are kept. The protocol that ships keeps all of them, and has no branch that asks.
pub trait Discipline: Clone + PartialEq + Eq + Hash + Debug + Send + Sync + 'static {
    /// What the options say about it: the rule that is left out.
    fn new(left_out: Option<Rule>) -> Self;
    /// The laboratory may leave rules out.
    const OFFERS_RULES: bool;
    /// True if the rule is kept.
    fn keeps(&self, rule: Rule) -> bool;
}

/// All rules are kept.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Complete;

impl Discipline for Complete {
    const OFFERS_RULES: bool = false;

    fn new(_: Option<Rule>) -> Self {
        Self
    }

    #[inline(always)]
    fn keeps(&self, _: Rule) -> bool {
        true
    }
}

/// One rule is left out, to see what it is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lacking(Option<Rule>);

impl Discipline for Lacking {
    const OFFERS_RULES: bool = true;

    fn new(left_out: Option<Rule>) -> Self {
        Self(left_out)
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.0 != Some(rule)
    }
}
