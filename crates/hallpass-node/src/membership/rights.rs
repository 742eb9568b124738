//! Which control message is accepted from which sender, by whom, and in which phase: one row a message. Every message goes through this
//! table before its handler.

use hallpass_core::NodeId;

use super::control::{Control, Founder};
use crate::Incarnation;

/// What a node accepts of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    from: Sender,
    to: Receiver,
    phases: Phases,
    groups: Groups,
}

/// Who may send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sender {
    /// Any node with the group's key.
    Stranger,
    /// The node that it names. Where it is only redirected nobody looks.
    Itself(NodeId),
    /// A member of the view that is being installed, in this incarnation.
    Member(Incarnation),
    /// Any node with the group's key that says it: **nothing checks the sender**, though only this one should say it.
    Unchecked(Should),
}

/// Who should send it, where nothing checks that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Should {
    /// A voter, or a node that is to become one.
    Vote,
    /// A member of the view, in the incarnation that it names.
    BeMember,
    /// The steward.
    BeSteward,
    /// A node that knows the group.
    KnowGroup,
}

/// Who does something with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiver {
    Anyone,
    Steward,
    /// The steward does what it asks for. Every other node tells the sender who the steward is.
    StewardElseRedirect,
}

/// In which phases of the receiver. Its own messages reach a node also when it has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phases {
    /// All until it has left.
    Present,
    /// It takes part or tries to, and its session is not over.
    TakingPart,
    Withdrawing,
}

/// For which group the message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Groups {
    /// The receiver's.
    Own,
    /// The receiver's. A node that is in none enters this one by it.
    OwnOrFirst,
    /// The receiver's. The sender of one for no group is told which group this is, and asks again.
    OwnOrTold,
    /// Any: nodes that are in no group find others that are in none, and those that have founded one say so.
    Any,
}

/// What the receiver knows of itself and of the sender.
pub(super) struct Situation {
    pub(super) phase: PhaseKind,
    pub(super) has_lapsed: bool,
    pub(super) is_steward: bool,
    /// 0: in no group.
    pub(super) group_id: u64,
    /// The sender's incarnation in the view, as consensus has it.
    pub(super) sender: Option<Incarnation>,
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
    Drop,
}

/// The table.
fn row(message: &Control) -> Row {
    use Groups::{Any, Own, OwnOrFirst, OwnOrTold};
    use Phases::{Present, TakingPart, Withdrawing};
    use Receiver::{Anyone, Steward, StewardElseRedirect};
    use Sender::{Itself, Member, Stranger, Unchecked};
    use Should::{BeMember, BeSteward, KnowGroup, Vote};
    let (from, to, phases, groups) = match message {
        Control::Founding { .. } => (Stranger, Anyone, Present, Any),
        Control::Join { member, .. } => (Itself(member.id), StewardElseRedirect, Present, OwnOrTold),
        Control::Engine(_) => (Unchecked(Vote), Anyone, Present, Own),
        // Of the steward's own handler: it tells a sender that is out.
        Control::Renew { .. } => (Unchecked(BeMember), StewardElseRedirect, Present, Own),
        Control::Renewed { .. } => (Unchecked(BeSteward), Anyone, Present, Own),
        Control::Expelled { .. } => (Unchecked(BeSteward), Anyone, Present, Own),
        Control::Contacts(_) => (Unchecked(KnowGroup), Anyone, Present, OwnOrFirst),
        Control::Candidates { .. } => (Unchecked(BeSteward), Anyone, Present, Own),
        Control::Refused { .. } => (Unchecked(KnowGroup), Anyone, Present, Own),
        Control::Withdraw { .. } => (Unchecked(BeMember), StewardElseRedirect, Present, Own),
        Control::Withdrawn { .. } => (Unchecked(BeSteward), Anyone, Withdrawing, Own),
        Control::Probe { .. } => (Unchecked(BeSteward), Anyone, Present, Own),
        Control::Probed { incarnation, .. } => (Member(*incarnation), Steward, Present, Own),
        Control::Prepare { .. } => (Unchecked(BeSteward), Anyone, TakingPart, Own),
        Control::Report { incarnation, .. } => (Member(*incarnation), Steward, Present, Own),
        Control::Start { .. } => (Unchecked(BeSteward), Anyone, TakingPart, Own),
        Control::Started { incarnation, .. } => (Member(*incarnation), Steward, Present, Own),
        Control::Ask { .. } => (Unchecked(BeMember), StewardElseRedirect, Present, Own),
        Control::Answer { .. } => (Unchecked(BeSteward), Anyone, Present, Own),
        Control::Break { .. } => (Unchecked(BeSteward), Anyone, Present, Own),
        Control::Broken { .. } => (Unchecked(BeMember), Steward, Present, Own),
    };
    Row { from, to, phases, groups }
}

/// What becomes of a message from this sender. A node's message to itself names no group.
pub(super) fn judge<'a>(
    message: &'a Control,
    from: NodeId,
    group_id: Option<u64>,
    receiver: &Situation,
) -> Verdict<'a> {
    let row = row(message);
    let way_in = group_id.map_or(Verdict::Handle, |group_id| row.way_in(message, group_id, receiver));
    let is_handled = matches!(way_in, Verdict::Handle | Verdict::Enter(_));
    if is_handled && !row.allows(from, receiver) { Verdict::Drop } else { way_in }
}

impl Row {
    /// What the group that it is for means for the receiver.
    fn way_in<'a>(&self, message: &'a Control, group_id: u64, receiver: &Situation) -> Verdict<'a> {
        if let (Control::Founding { known, .. }, true) = (message, group_id != 0) {
            return Verdict::Founded { group_id, founders: known };
        }
        let is_told = self.groups == Groups::OwnOrTold && group_id == 0;
        if receiver.phase == PhaseKind::Gone {
            return if is_told { Verdict::TellContacts } else { Verdict::Drop };
        }
        match self.groups {
            _ if group_id == receiver.group_id => Verdict::Handle,
            Groups::Any => Verdict::Handle,
            Groups::OwnOrFirst if receiver.group_id == 0 => Verdict::Enter(group_id),
            Groups::OwnOrTold if is_told => Verdict::TellContacts,
            Groups::Own | Groups::OwnOrFirst | Groups::OwnOrTold => Verdict::Drop,
        }
    }

    fn allows(&self, from: NodeId, receiver: &Situation) -> bool {
        let sender = match self.from {
            Sender::Stranger | Sender::Unchecked(_) => true,
            Sender::Itself(id) => id == from || !receiver.is_steward,
            Sender::Member(incarnation) => receiver.sender == Some(incarnation),
        };
        let role = match self.to {
            Receiver::Anyone | Receiver::StewardElseRedirect => true,
            Receiver::Steward => receiver.is_steward,
        };
        let phase = match self.phases {
            Phases::Present => true,
            Phases::TakingPart => receiver.phase == PhaseKind::Running && !receiver.has_lapsed,
            Phases::Withdrawing => receiver.phase == PhaseKind::Withdrawing,
        };
        sender && role && phase
    }
}
