//! The thirty traps: where each is, what breaks, and how to see it beside what hallpass does instead.

use crate::scenario::{self, Playback};
use crate::{CheckSpec, Flow, LabError, RunSpec, check};

/// A place where a paper's printed text breaks.
#[derive(Clone, Copy, Debug)]
pub struct TrapStory {
    /// Its number, such as `T5`.
    pub id: &'static str,
    /// Its name.
    pub title: &'static str,
    /// The paper and the section.
    pub place: &'static str,
    /// What breaks.
    pub breaks: &'static str,
    /// What hallpass does instead.
    pub instead: &'static str,
    /// How it can be seen.
    pub show: Show,
}

/// How a trap can be seen. Words are as [`CheckSpec::set`] or [`RunSpec::set`] take them, separated by spaces.
#[derive(Clone, Copy, Debug)]
pub enum Show {
    /// An exploration with the printed text put back finds a violation; the same steps are then taken without it.
    Explore {
        /// What both have in common.
        both: &'static str,
        /// What puts the trap back.
        printed: &'static str,
        /// What only the mended variant has.
        mended: &'static str,
    },
    /// Two simulated runs of one seed.
    Simulate {
        /// What both have in common.
        both: &'static str,
        /// The run that breaks.
        printed: &'static str,
        /// The run that does not.
        mended: &'static str,
    },
    /// The laboratory cannot put it back, and why.
    Told(&'static str),
}

/// A trap played twice in the same order.
#[derive(Clone, Debug)]
pub struct Lockstep {
    /// As printed, up to the violation.
    pub printed: Playback,
    /// Mended: the steps of the other that are possible, and then what must happen.
    pub mended: Playback,
}

/// All thirty, in order.
pub const TRAPS: &[TrapStory] = &[
    TrapStory {
        id: "T1",
        title: "The highest number leaves out one's own",
        place: "R-A 2.2",
        breaks: "numbers repeat; modulo numbers let two inside; the Appendix's bound fails",
        instead: "The highest number includes the node's own.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala nodes=2 entries=endless numbers=modulo:3 fence=off",
            printed: "as-printed=T1",
            mended: "",
        },
    },
    TrapStory {
        id: "T2",
        title: "A deferral is decided first and recorded later",
        place: "R-A 2.2",
        breaks: "a deferred REPLY is never sent",
        instead: "Handling a message is one atomic step: the decision and the note are made before anything else happens.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala nodes=2 entries=1",
            printed: "as-printed=T2",
            mended: "",
        },
    },
    TrapStory {
        id: "T3",
        title: "The highest number is updated outside the semaphore",
        place: "R-A 2.2",
        breaks: "a node replies, then asks with a number that comes first: two inside",
        instead: "The same atomic step: a node that has replied chooses a higher number afterwards.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala nodes=2 entries=2",
            printed: "as-printed=T3",
            mended: "",
        },
    },
    TrapStory {
        id: "T4",
        title: "Modulo numbers with readers",
        place: "R-A 6.4, 6.6",
        breaks: "a writer enters beside a reader",
        instead: "Numbers are 64 bits wide; numbers modulo M are an option of the laboratory that refuses readers.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala nodes=2 entries=endless readers=true fence=off",
            printed: "numbers=modulo:3 as-printed=T4",
            mended: "",
        },
    },
    TrapStory {
        id: "T5",
        title: "ARE_YOU_THERE answers REPLY",
        place: "R-A 7.4",
        breaks: "a lost REQUEST is granted by a node that is inside",
        instead: "ARE_YOU_THERE repeats the REQUEST and is decided by the same rule; a REPLY names the number it answers.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala nodes=2 entries=1 faults=loss:1 membership=classic",
            printed: "as-printed=T5",
            mended: "",
        },
    },
    TrapStory {
        id: "T6",
        title: "Replies are counted",
        place: "R-A 2.2, 7.3",
        breaks: "one REPLY counts twice: two inside",
        instead: "A set of nodes whose REPLY is outstanding, not a count.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala nodes=3 entries=1 faults=dup:1",
            printed: "as-printed=T6",
            mended: "",
        },
    },
    TrapStory {
        id: "T7",
        title: "Suspicion is taken for failure",
        place: "R-A 7.4",
        breaks: "a node that is merely slow is removed: two inside",
        instead: "Only views that a quorum agrees on, with sessions that run out first. Here the mended run is one whose pause \
                  stays within the bound; the page about views shows the rest.",
        show: Show::Simulate {
            both: "protocol=ricart-agrawala nodes=3 entries=30 hold=5ms membership=classic",
            printed: "faults=pause:1@3ms..60ms",
            mended: "faults=pause:1@3ms..4ms",
        },
    },
    TrapStory {
        id: "T8",
        title: "A newcomer is let in before everybody knows it",
        place: "R-A 7.2",
        breaks: "the newcomer enters beside a member",
        instead: "Under the lock the sponsor tells every member, each adds the newcomer and then acknowledges.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala nodes=2 entries=1 faults=join:1 membership=classic",
            printed: "as-printed=T8",
            mended: "",
        },
    },
    TrapStory {
        id: "T9",
        title: "Leaving races with joining",
        place: "R-A 7.2, 7.3",
        breaks: "the newcomer waits for a node that has left",
        instead: "Leaves and joins are serialised in the same way.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala nodes=2 entries=1 faults=join:1,leave:1 membership=classic",
            printed: "as-printed=T9",
            mended: "",
        },
    },
    TrapStory {
        id: "T10",
        title: "Implicit reply",
        place: "R-A 6.1, slides",
        breaks: "a late DEFERRED lets two inside; without a REPLY after it somebody waits forever",
        instead: "A REPLY still follows DEFERRED, and the option is refused where message delay has no bound.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala nodes=2 entries=1 reply=implicit",
            printed: "as-printed=T10",
            mended: "",
        },
    },
    TrapStory {
        id: "T11",
        title: "A REPLY comes before its REQUEST is back",
        place: "R-A 6.3",
        breaks: "the ring forgets a REPLY, and its receiver waits forever",
        instead: "An early REPLY is kept until the REQUEST has come round.",
        show: Show::Explore {
            both: "protocol=ricart-agrawala-ring nodes=3 entries=1 ring=annotate",
            printed: "as-printed=T11",
            mended: "",
        },
    },
    TrapStory {
        id: "T12",
        title: "Readers and writers",
        place: "R-A 6.6",
        breaks: "writers have no priority; a cached permission does not say for what",
        instead: "First come, first served, starving neither; with cached permissions a permission knows for which mode it was \
                  given.",
        show: Show::Told(
            "Nothing unsafe happens as printed, so there is nothing to put back: the trap is to expect writers first. The \
             scenario trap-12-readers-and-writers explores it.",
        ),
    },
    TrapStory {
        id: "T13",
        title: "First come, first served has a corner",
        place: "R-A 2.4",
        breaks: "a later request goes first",
        instead: "A REPLY carries the highest number its sender knows: overtaken at most 4 times instead of 5 at N = 3.",
        show: Show::Simulate {
            both: "protocol=ricart-agrawala nodes=3 entries=24 latency=exp:1ms hold=10us seed=47",
            printed: "reply-number=false",
            mended: "reply-number=true",
        },
    },
    TrapStory {
        id: "T14",
        title: "Delayed handling without end",
        place: "R-A 6.5",
        breaks: "starvation; three bounds no longer hold",
        instead: "The delay is finite, so everybody gets in.",
        show: Show::Simulate {
            both: "protocol=ricart-agrawala nodes=3 entries=60 hold=100us increment=priority priorities=1,40,40 \
                   reply-number=false",
            printed: "hold-back=60T",
            mended: "hold-back=1T",
        },
    },
    TrapStory {
        id: "T15",
        title: "Two interleaved columns, and the test on Using",
        place: "C-R, listing",
        breaks: "misprints; without the test on `Using` two are inside",
        instead: "A node that is inside defers, whatever the numbers say.",
        show: Show::Explore {
            both: "protocol=carvalho-roucairol nodes=2 entries=1",
            printed: "as-printed=T15",
            mended: "",
        },
    },
    TrapStory {
        id: "T16",
        title: "Entering is two steps",
        place: "C-R, listing",
        breaks: "a permission is given away in between: two inside",
        instead: "'All permissions are here' and Waiting to Using are one step.",
        show: Show::Explore {
            both: "protocol=carvalho-roucairol nodes=2 entries=2",
            printed: "as-printed=T16",
            mended: "",
        },
    },
    TrapStory {
        id: "T17",
        title: "A removed node keeps its permissions",
        place: "C-R",
        breaks: "it enters with no message, so nobody can object",
        instead: "Permissions die at every view change, and with the node's session.",
        show: Show::Told(
            "It needs a change of the members, which the paper's algorithm does not have. `hallpass lab swarm --seeds 0..200 \
             --bug keep-permissions` plants it in whole nodes.",
        ),
    },
    TrapStory {
        id: "T18",
        title: "Arrays without a first value",
        place: "response, appendix",
        breaks: "the first requests are not heard, or the token goes to somebody who did not ask",
        instead: "Arrays start at 0.",
        show: Show::Told(
            "A language that has no uninitialised memory cannot put it back; a unit test keeps the first values.",
        ),
    },
    TrapStory {
        id: "T19",
        title: "The token arrives before the entry",
        place: "response, appendix",
        breaks: "the token is given away by a node that then enters",
        instead: "The arrival of the TOKEN and the entry are one step.",
        show: Show::Told(
            "There is no moment between the two steps that could be put back; the exploration of `token` delivers REQUESTs at \
             every moment there is.",
        ),
    },
    TrapStory {
        id: "T20",
        title: "A repeated TOKEN is a second token",
        place: "response, appendix",
        breaks: "two tokens: two inside",
        instead: "A TOKEN counts its hops, and one that is not beyond the last hop is a copy.",
        show: Show::Explore {
            both: "protocol=token nodes=2 entries=2 faults=dup:1 property=exclusion",
            printed: "as-printed=T20",
            mended: "",
        },
    },
    TrapStory {
        id: "T21",
        title: "A restarted node counts from 0",
        place: "response, appendix",
        breaks: "nobody hears a node that has been restarted",
        instead: "Each incarnation of a node has its own range of request numbers, above the one before.",
        show: Show::Told(
            "The laboratory restarts nodes only where the protocol brings its own recovery, and this one does not. A unit test \
             runs it with and without the printed text.",
        ),
    },
    TrapStory {
        id: "T22",
        title: "The server forgets who holds the lock",
        place: "notes, scheme 1",
        breaks: "two grants: two inside",
        instead: "The server notes who holds the lock, and a release names its sender and its request.",
        show: Show::Explore { both: "protocol=central nodes=2 entries=1", printed: "as-printed=T22", mended: "" },
    },
    TrapStory {
        id: "T23",
        title: "RELEASE pops whatever is on top",
        place: "notes, Lamport",
        breaks: "the wrong request leaves the queue: two inside, or a wait forever",
        instead: "RELEASE(T) removes exactly the request it names.",
        show: Show::Explore {
            both: "protocol=lamport nodes=3 entries=1 cancels=1",
            printed: "as-printed=T23",
            mended: "",
        },
    },
    TrapStory {
        id: "T24",
        title: "Check() is not called, and does not check",
        place: "notes, Lamport",
        breaks: "a node that is alone never enters; one that is inside enters again",
        instead: "A request calls the check itself, and the check asks whether the node waits.",
        show: Show::Explore {
            both: "protocol=lamport nodes=2 entries=1 cancels=1",
            printed: "as-printed=T24",
            mended: "",
        },
    },
    TrapStory {
        id: "T25",
        title: "The token ring never rests",
        place: "notes, token ring",
        breaks: "callers that have left are let in again; an idle ring sends forever",
        instead: "A request is over when it is released or given up, and an idle token parks.",
        show: Show::Explore { both: "protocol=token-ring nodes=3 entries=1", printed: "as-printed=T25", mended: "" },
    },
    TrapStory {
        id: "T26",
        title: "ASKED is swapped in ADVISE",
        place: "Raymond 8.1",
        breaks: "a node that has come back never asks",
        instead: "By 8.3: ASKED is true if the node is in its neighbour's queue.",
        show: Show::Explore {
            both: "protocol=raymond nodes=3 entries=1 faults=crash:1,restart:1 tree=line recovery=classic",
            printed: "as-printed=T26",
            mended: "",
        },
    },
    TrapStory {
        id: "T27",
        title: "A PRIVILEGE for an earlier incarnation",
        place: "Raymond 8, 8.6",
        breaks: "two privileges: two inside",
        instead: "Messages to a node name its incarnation, and a node drops what was meant for an earlier one.",
        show: Show::Explore {
            both: "protocol=raymond nodes=3 entries=1 faults=crash:1,restart:1 tree=line recovery=classic",
            printed: "as-printed=T27",
            mended: "",
        },
    },
    TrapStory {
        id: "T28",
        title: "USING is false after a crash inside",
        place: "Raymond 8.5",
        breaks: "what the crashed holder did outside goes on",
        instead: "The fence: the storage refuses a write with a smaller fence than the last write's.",
        show: Show::Told(
            "No lock can call back what was sent, so there is nothing to put back. The claim RY-9/fence explores a crash at any \
             moment and finds no fence out of order.",
        ),
    },
    TrapStory {
        id: "T29",
        title: "Adjacent or permanent failures",
        place: "Raymond 8.8",
        breaks: "neighbours that fail together stay out",
        instead: "The protocol leaves it as open as the paper does: nobody gets in, and nothing unsafe happens. A real node runs \
                  raymond without recovery, and a new view computes a new tree.",
        show: Show::Told(
            "The paper has no text that could be put back: it calls for further research. In Play, crash two neighbours of a \
             Raymond tree with recovery=classic.",
        ),
    },
    TrapStory {
        id: "T30",
        title: "The star formula at K = 2",
        place: "Raymond 5",
        breaks: "the formula has no value",
        instead: "tree=star:2 is a line with its root in the middle.",
        show: Show::Told("It is a formula, not a step; the claim RY-4/T30 measures the true value, 2(N-1) messages."),
    },
];

impl TrapStory {
    /// The trap of this number.
    pub fn find(id: &str) -> Option<&'static Self> {
        TRAPS.iter().find(|trap| trap.id == id)
    }

    /// The explorations, as printed and mended; none if it is shown in another way.
    pub fn explorations(&self) -> Option<Result<(CheckSpec, CheckSpec), LabError>> {
        let Show::Explore { both, printed, mended } = self.show else { return None };
        Some(exploration(both, printed).and_then(|first| Ok((first, exploration(both, mended)?))))
    }

    /// The simulated runs, as printed and mended; none if it is shown in another way.
    pub fn simulations(&self) -> Option<Result<(RunSpec, RunSpec), LabError>> {
        let Show::Simulate { both, printed, mended } = self.show else { return None };
        Some(simulation(both, printed).and_then(|first| Ok((first, simulation(both, mended)?))))
    }

    /// Explores the trap as printed, and plays the violation beside the mended protocol; none if it is shown in another way.
    pub fn lockstep(&self, on_progress: impl FnMut() -> Flow) -> Option<Result<Lockstep, LabError>> {
        let specs = self.explorations()?;
        Some(specs.and_then(|(printed, mended)| lockstep(&printed, &mended, on_progress)))
    }
}

fn lockstep(
    printed: &CheckSpec,
    mended: &CheckSpec,
    mut on_progress: impl FnMut() -> Flow,
) -> Result<Lockstep, LabError> {
    let report = check(printed, |_| on_progress())?;
    let Some(found) = report.violations.first() else {
        return Err(LabError("the exploration found no violation, although the printed text is put back".to_owned()));
    };
    let head = |spec: &CheckSpec| {
        let options = spec.options.iter().map(|word| format!(" {word}")).collect::<String>();
        format!("protocol {}{options}\n", spec.protocol)
    };
    let mended_text = found.scenario.replacen(&head(printed), &head(mended), 1);
    Ok(Lockstep { printed: scenario::play(&found.scenario, None)?, mended: scenario::play_along(&mended_text)? })
}

fn exploration(both: &str, own: &str) -> Result<CheckSpec, LabError> {
    let mut spec = CheckSpec::of("");
    both.split_whitespace().chain(own.split_whitespace()).try_for_each(|word| spec.set(word))?;
    Ok(spec)
}

fn simulation(both: &str, own: &str) -> Result<RunSpec, LabError> {
    let mut spec = RunSpec { keep_trace: true, keep_states: true, ..RunSpec::of("") };
    both.split_whitespace().chain(own.split_whitespace()).try_for_each(|word| spec.set(word))?;
    Ok(spec)
}
