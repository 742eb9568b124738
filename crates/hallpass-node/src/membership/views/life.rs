//! A member's life as states and transitions: what its phase, its session and its views come to together.

/// Where a member is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Its predecessor's session may go on.
    Waiting,
    /// It is in no view, and asks to join or to come back.
    Joining,
    /// A view was prepared before it had a session, or had stored that it is in the group.
    Prepared,
    /// The locks of the view before are being closed.
    Closing,
    /// It has reported what it holds, and waits for the view to start.
    Reported,
    /// It is in the view.
    Open,
    /// Its session is over.
    Lapsed,
    /// Its next incarnation is being written.
    Persisting,
    /// It leaves.
    Withdrawing,
    /// It has left.
    Gone,
}

/// One change of a member's life, and what brings it about.
type Transition = (Life, Life, &'static str);

/// All changes there are.
pub const TRANSITIONS: &[Transition] = {
    use Life::{Closing, Gone, Joining, Lapsed, Open, Persisting, Prepared, Reported, Waiting, Withdrawing};
    &[
        (Waiting, Joining, "its predecessor's session is over"),
        (Joining, Prepared, "Prepare, too early"),
        (Prepared, Joining, "it is ready, and looks again"),
        (Joining, Closing, "Prepare"),
        (Prepared, Closing, "Prepare"),
        (Closing, Reported, "its locks are closed: Report"),
        (Reported, Open, "Start"),
        (Open, Closing, "Prepare"),
        (Reported, Closing, "Prepare of a later view"),
        (Open, Lapsed, "its session ran out, or it was expelled"),
        (Reported, Lapsed, "its session ran out, or it was expelled"),
        (Closing, Lapsed, "its session ran out, or it was expelled"),
        (Prepared, Lapsed, "its session ran out, or it was expelled"),
        (Joining, Lapsed, "its session ran out, or it grants nothing in this group"),
        (Waiting, Lapsed, "it grants nothing in this group"),
        (Lapsed, Persisting, "it writes its next incarnation"),
        (Joining, Persisting, "it is known under this incarnation or a later one"),
        (Persisting, Joining, "its next incarnation is on disk"),
        (Waiting, Withdrawing, "stop or leave"),
        (Joining, Withdrawing, "stop or leave"),
        (Prepared, Withdrawing, "stop or leave"),
        (Closing, Withdrawing, "stop or leave"),
        (Reported, Withdrawing, "stop or leave"),
        (Open, Withdrawing, "stop or leave"),
        (Lapsed, Withdrawing, "stop or leave"),
        (Persisting, Withdrawing, "stop or leave"),
        (Withdrawing, Gone, "the steward says that it is out"),
    ]
};

impl Life {
    /// Whether a member in this state may be in that one next.
    pub fn may_become(self, next: Self) -> bool {
        self == next || TRANSITIONS.iter().any(|(from, to, _)| (*from, *to) == (self, next))
    }
}
