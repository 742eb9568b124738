/// Makes the enum of the traps, with their ids.
macro_rules! traps {
    ($($(#[$doc:meta])* $trap:ident = $id:literal;)*) => {
        /// A place where a paper's printed text, followed to the letter, breaks.
        ///
        /// The protocols close all thirty traps. Those listed here can be put back in the laboratory, by
        /// `as-printed=T1,T5`, to see them fail. `docs/traps.md` describes each one: where it is printed, what goes wrong
        /// in which order, and the command that shows it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Trap { $($(#[$doc])* $trap),* }

        impl Trap {
            /// Every trap that can be put back.
            pub const ALL: &[Self] = &[$(Self::$trap),*];

            /// The number by which the pages, the scenarios and the command line refer to it, such as `T5`.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$trap => $id),* }
            }
        }
    };
}

traps! {
    /// T1: the highest sequence number leaves out the node's own.
    OwnNumber = "T1";
    /// T2: a deferral is decided in one step and recorded in a later one.
    AtomicDeferral = "T2";
    /// T3: the highest number is raised in a later step than the REPLY.
    AtomicNumber = "T3";
    /// T4: readers use sequence numbers modulo M.
    ModuloReaders = "T4";
    /// T5: ARE_YOU_THERE is answered by REPLY if no deferral is recorded, even by a node that is inside.
    AreYouThere = "T5";
    /// T6: every REPLY counts, from any sender and to any request.
    CountedReplies = "T6";
    /// T8: a newcomer is welcomed before every member has added it.
    UnacknowledgedJoin = "T8";
    /// T9: a node leaves without mutual exclusion, at the same time as another one joins.
    UnorderedLeave = "T9";
    /// T10: no REPLY follows a DEFERRED.
    NoReplyAfterDeferred = "T10";
    /// T11: a REPLY that arrives before its REQUEST is back from the ring is forgotten.
    EarlyReply = "T11";
    /// T15: the test on `Using` is missing, so a node that is inside answers like one that wants nothing.
    UsingTest = "T15";
    /// T16: 'all permissions are here' and the entry are two steps.
    AtomicEntry = "T16";
    /// T20: a repeated TOKEN is a second token.
    RepeatedToken = "T20";
    /// T21: a restarted node numbers its requests from 0 again.
    RestartedNumbers = "T21";
    /// T22: the server does not record who holds the lock.
    ForgottenHolder = "T22";
    /// T23: a RELEASE removes whatever request is at the head of the queue.
    PopTop = "T23";
    /// T24: a request does not call Check(), and Check() does not test `waiting`.
    UncheckedWaiting = "T24";
    /// T25: `waiting` is never cleared, so the next token lets a caller in that has left.
    KeptWaiting = "T25";
    /// T26: ASKED is swapped in states 3 and 4 of ADVISE.
    SwappedAsked = "T26";
    /// T27: messages do not name the incarnation they are meant for.
    UntaggedIncarnation = "T27";
}

/// The traps whose printed text is put back; empty everywhere but in the laboratory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TrapSet(u32);

impl TrapSet {
    /// True if this trap is put back.
    pub const fn contains(self, trap: Trap) -> bool {
        self.0 >> trap as u32 & 1 == 1
    }

    /// True if no trap is put back.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Trap> for TrapSet {
    fn from_iter<I: IntoIterator<Item = Trap>>(traps: I) -> Self {
        Self(traps.into_iter().fold(0, |bits, trap| bits | 1 << trap as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_distinct_and_in_order() {
        let numbers: Vec<u32> = Trap::ALL.iter().map(|trap| trap.id()[1..].parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }

    #[test]
    fn a_set_contains_what_it_was_made_from_and_nothing_else() {
        for trap in Trap::ALL {
            let set = TrapSet::from_iter([*trap]);
            let found: Vec<Trap> = Trap::ALL.iter().copied().filter(|trap| set.contains(*trap)).collect();
            assert_eq!(found, [*trap]);
            assert!(!set.is_empty());
        }
        assert!(TrapSet::default().is_empty());
        assert!(Trap::ALL.iter().all(|trap| !TrapSet::default().contains(*trap)));
    }
}
