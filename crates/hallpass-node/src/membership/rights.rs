//! Which control message is accepted from which sender, by whom, and in which phase: one row a message. Every message goes through this
//! table before its handler. What is not in it is dropped and counted. What comes at the wrong time, or is for another group, is dropped, and
//! counted if its sender is no member and has no vote: a member may only be late.
//!
//! Who a sender is to this node is worked out in [`senders`](super::views), from what consensus, the view and the steward have told this
//! node. A member is an id under the name that the group knows it by: with keys the name is in the certificate.
//!
//! - **A stranger** is any node with the group's key whose name is not banned. It may found a group with others that are in none, ask to
//!   join, and hear who is in the group. Where a member asks for something it is told that it is out.
//! - **The steward** is the leader that the receiver's own consensus follows. A node that follows none takes the one it was told of last,
//!   or a member of the newest group that it knows: voters change, and it may not have heard who votes now. So a new steward whose Contacts
//!   were lost can still prepare a view with everybody.
//! - **A voter** is one of those with whom the receiver votes. A receiver that has no vote, or is behind, goes by what it was told of who votes,
//!   and before that by what it has stored: a voter that leaves is in no view any more, and may need the receiver to take its vote.
//! - **A view starts** by the word of the node that prepared it here.
//! - **A guide** says who is in the group: a member or voter that this node knows, the steward, a node with a member's name, one that was
//!   found at an address that this node was given, or one that founds a group with it. The last two count only while this node is in no
//!   view or group.
//! - **A banned name** may say nothing. As long as its node has a vote its answers to consensus count, since others may need them for the
//!   majority that replaces it, and it may leave. Where those that are not banned are no majority of the
//!   voters, a banned voter counts as if it were not: without it nothing could be decided.

use hallpass_core::NodeId;

use super::control::{Control, Founder};
use super::engine::is_answer;
use super::group::Member;
use crate::Incarnation;

/// What a node accepts of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row<'a> {
    from: Sender<'a>,
    to: Receiver,
    phases: Phases,
    groups: GroupRule,
}

/// Who may send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sender<'a> {
    Stranger,
    /// The node that it names, under its own name.
    Itself(&'a Member),
    /// A voter, or a member that may become one. Of a banned voter only answers count.
    Voter {
        is_answer: bool,
    },
    /// A member of the view, in any incarnation.
    Member,
    /// A member of the view that is being installed, in this incarnation.
    MemberAs(Incarnation),
    /// A member of the view. All that others bring about is that they are told that they are out.
    MemberElseTold,
    /// The same. A banned one that has a vote may go, too.
    Leaver,
    Steward,
    /// The node that has prepared the view of this epoch here.
    Installer(u64),
    Guide,
}

/// Who does something with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiver {
    Anyone,
    Steward,
    /// The steward does what it asks for. Every other node tells the sender who the steward is.
    StewardElseRedirect,
}

/// In which phases of the receiver, also of its messages to itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phases {
    /// All until it has left. Its own messages reach a node also after that.
    Present,
    /// It takes part or tries to, and its session is not over.
    TakingPart,
    Withdrawing,
}

/// For which group the message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupRule {
    /// The receiver's.
    Own,
    /// The receiver's. A node that is in none enters this one by it.
    OwnOrFirst,
    /// The receiver's. The sender of one for no group is told which group this is, and asks again.
    OwnOrTold,
    /// Any: nodes that are in no group find others that are in none, and those that have founded one say so.
    Any,
}

/// What the receiver knows of itself.
pub(super) struct Situation {
    pub(super) phase: PhaseKind,
    pub(super) has_lapsed: bool,
    pub(super) is_steward: bool,
    /// 0: in no group.
    pub(super) group_id: u64,
}

/// What the receiver knows of the sender.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Standing {
    /// By its greeting.
    pub(super) name: String,
    pub(super) ban: Ban,
    /// Its incarnation in the view, as consensus has it.
    pub(super) member: Option<Incarnation>,
    pub(super) votes: bool,
    pub(super) is_steward: bool,
    pub(super) is_guide: bool,
    /// The epoch of the view that it has prepared here last.
    pub(super) prepared: Option<u64>,
}

impl Standing {
    /// It is no member, and does not vote.
    pub(super) fn is_stranger(&self) -> bool {
        self.member.is_none() && !self.votes && !self.is_steward
    }
}

/// Whether a sender's name is banned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Ban {
    #[default]
    No,
    /// It is, and it has a vote that others may need.
    Votes,
    Yes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PhaseKind {
    Waiting,
    Running,
    Persisting,
    Withdrawing,
    Gone,
}

/// What becomes of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict<'a> {
    Handle,
    /// The receiver is in this group from now on, and handles it.
    Enter(u64),
    /// Others have founded this group.
    Founded {
        group_id: u64,
        founders: &'a [Founder],
    },
    /// The sender is told which group this is.
    TellContacts,
    /// It is for another group, or comes at the wrong time. Of a stranger it is counted like what it may not say.
    Drop,
    /// The sender may not say this.
    Deny,
}

/// The table.
fn row(message: &Control) -> Row<'_> {
    use GroupRule::{Any, Own, OwnOrFirst, OwnOrTold};
    use Phases::{Present, TakingPart, Withdrawing};
    use Receiver::{Anyone, StewardElseRedirect};
    use Sender::{Guide, Installer, Itself, Leaver, Member, MemberAs, MemberElseTold, Stranger, Voter};
    let (from, to, phases, groups) = match message {
        Control::Founding { .. } => (Stranger, Anyone, Present, Any),
        Control::Join { member, .. } => (Itself(member), StewardElseRedirect, Present, OwnOrTold),
        Control::Engine(bytes) => (Voter { is_answer: is_answer(bytes) }, Anyone, Present, Own),
        Control::Renew { .. } => (MemberElseTold, StewardElseRedirect, Present, Own),
        Control::Renewed { .. } => (Sender::Steward, Anyone, Present, Own),
        Control::Expelled { .. } => (Sender::Steward, Anyone, Present, Own),
        Control::Contacts(_) => (Guide, Anyone, Present, OwnOrFirst),
        Control::Candidates { .. } => (Sender::Steward, Anyone, Present, Own),
        Control::Refused { .. } => (Guide, Anyone, Present, Own),
        Control::Withdraw { .. } => (Leaver, StewardElseRedirect, Present, Own),
        Control::Withdrawn { .. } => (Sender::Steward, Anyone, Withdrawing, Own),
        Control::Probe { .. } => (Sender::Steward, Anyone, Present, Own),
        Control::Probed { incarnation, .. } => (MemberAs(*incarnation), Receiver::Steward, Present, Own),
        Control::Prepare { .. } => (Sender::Steward, Anyone, TakingPart, Own),
        Control::Report { incarnation, .. } => (MemberAs(*incarnation), Receiver::Steward, Present, Own),
        Control::Start { epoch, .. } => (Installer(*epoch), Anyone, TakingPart, Own),
        Control::Started { incarnation, .. } => (MemberAs(*incarnation), Receiver::Steward, Present, Own),
        Control::Ask { .. } => (Member, StewardElseRedirect, Present, Own),
        Control::Answer { .. } => (Sender::Steward, Anyone, Present, Own),
        Control::Break { .. } => (Sender::Steward, Anyone, Present, Own),
        Control::Broken { .. } => (Member, Receiver::Steward, Present, Own),
    };
    Row { from, to, phases, groups }
}

/// Whether a node does something with its own message in its phase. A steward that leaves prepares views in which it still is.
pub(super) fn is_for_own_phase(message: &Control, own: &Situation) -> bool {
    row(message).is_phase(own)
}

/// What becomes of a message from this sender to this receiver.
pub(super) fn judge<'a>(
    message: &'a Control,
    from: NodeId,
    sender: &Standing,
    group_id: u64,
    receiver: &Situation,
) -> Verdict<'a> {
    let row = row(message);
    let way_in = row.way_in(message, group_id, receiver);
    let may_say = match way_in {
        Verdict::Drop | Verdict::Deny => return Verdict::Drop,
        // It is only told something.
        Verdict::TellContacts => sender.ban != Ban::Yes,
        Verdict::Founded { .. } => sender.is_guide && sender.ban == Ban::No,
        Verdict::Handle | Verdict::Enter(_) if !row.is_time(receiver) => return Verdict::Drop,
        Verdict::Handle | Verdict::Enter(_) => row.from.allows(from, sender, receiver),
    };
    if may_say { way_in } else { Verdict::Deny }
}

impl Row<'_> {
    /// What the group that it is for means for the receiver.
    fn way_in<'a>(&self, message: &'a Control, group_id: u64, receiver: &Situation) -> Verdict<'a> {
        if let (Control::Founding { known, .. }, true) = (message, group_id != 0) {
            return Verdict::Founded { group_id, founders: known };
        }
        let is_told = self.groups == GroupRule::OwnOrTold && group_id == 0;
        if receiver.phase == PhaseKind::Gone {
            return if is_told { Verdict::TellContacts } else { Verdict::Drop };
        }
        match self.groups {
            _ if group_id == receiver.group_id => Verdict::Handle,
            GroupRule::Any => Verdict::Handle,
            GroupRule::OwnOrFirst if receiver.group_id == 0 => Verdict::Enter(group_id),
            GroupRule::OwnOrTold if is_told => Verdict::TellContacts,
            GroupRule::Own | GroupRule::OwnOrFirst | GroupRule::OwnOrTold => Verdict::Drop,
        }
    }

    /// The receiver is in a role and a phase in which it does something with it.
    fn is_time(&self, receiver: &Situation) -> bool {
        let role = match self.to {
            Receiver::Anyone | Receiver::StewardElseRedirect => true,
            Receiver::Steward => receiver.is_steward,
        };
        role && self.is_phase(receiver)
    }

    fn is_phase(&self, receiver: &Situation) -> bool {
        match self.phases {
            Phases::Present => true,
            Phases::TakingPart => receiver.phase == PhaseKind::Running && !receiver.has_lapsed,
            Phases::Withdrawing => receiver.phase == PhaseKind::Withdrawing,
        }
    }
}

impl Sender<'_> {
    fn allows(self, from: NodeId, sender: &Standing, receiver: &Situation) -> bool {
        let may_speak = match sender.ban {
            Ban::No => true,
            Ban::Votes => matches!(self, Self::Voter { is_answer: true } | Self::Leaver),
            Ban::Yes => false,
        };
        let is_right = match self {
            // Without being a member it is told something, or waits for others.
            Self::Stranger | Self::MemberElseTold | Self::Leaver => true,
            Self::Itself(member) => member.id == from && member.name == sender.name,
            Self::Voter { .. } => sender.votes || sender.is_steward,
            // Where it is only redirected the receiver may be behind.
            Self::Member => sender.member.is_some() || !receiver.is_steward,
            Self::MemberAs(incarnation) => sender.member == Some(incarnation),
            Self::Steward => sender.is_steward,
            Self::Installer(epoch) => sender.prepared == Some(epoch),
            Self::Guide => sender.is_guide || sender.is_steward,
        };
        may_speak && is_right
    }
}

#[cfg(test)]
#[path = "rights_tests.rs"]
mod tests;
