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
    groups: GroupRule,
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
    use GroupRule::{Any, Own, OwnOrFirst, OwnOrTold};
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

#[cfg(test)]
mod tests {
    use hallpass_core::codec::DecodeError;

    use super::super::control::{Contacts, Envelope};
    use super::super::group::{Group, Member};
    use super::*;
    use crate::output::Request;
    use crate::wire::VERSION;

    const NOW: Incarnation = Incarnation::FIRST;

    /// One message of each kind, in the order of the wire's numbers.
    fn messages() -> Vec<Control> {
        let member =
            Member { id: NodeId(2), incarnation: NOW, name: "2".into(), address: "host-2:1".into(), durable: true };
        let group = Group {
            id: 7,
            epoch: 1,
            term: 1,
            members: [(member.id, member.clone())].into(),
            absent: [].into(),
            banned: [].into(),
            classes: Vec::new(),
            ttl: 1,
            drift_ppm: 0,
            durable: true,
        };
        let (incarnation, epoch, token) = (NOW, 1, 1);
        vec![
            Control::Founding { expect: 2, known: Vec::new() },
            Control::Engine(Vec::new()),
            Control::Renew { incarnation, sent: 1, unreachable: Vec::new(), wants_epoch: false },
            Control::Renewed { incarnation, sent: 1 },
            Control::Expelled { incarnation },
            Control::Join { member, reached: Vec::new() },
            Control::Contacts(Contacts::default()),
            Control::Refused { why: String::new() },
            Control::Withdraw { incarnation, keeps_vote: true },
            Control::Withdrawn { incarnation },
            Control::Probe { epoch },
            Control::Probed { epoch, incarnation, started: 0 },
            Control::Prepare { group, voters: Vec::new() },
            Control::Report { epoch, incarnation, part: 0, parts: 1, held: Vec::new() },
            Control::Start { epoch, part: 0, parts: 1, locks: Vec::new() },
            Control::Started { epoch, incarnation },
            Control::Ask { token, request: Request::Stop },
            Control::Answer { token, result: Ok(()) },
            Control::Break { token, lock: "a".into() },
            Control::Broken { token, before: 0, left: 0 },
            Control::Candidates { epoch, candidates: Vec::new() },
        ]
    }

    /// Of each message: its name, and its row.
    const TABLE: &str = "\
Founding: Stranger Anyone Present Any
Engine: Unchecked(Vote) Anyone Present Own
Renew: Unchecked(BeMember) StewardElseRedirect Present Own
Renewed: Unchecked(BeSteward) Anyone Present Own
Expelled: Unchecked(BeSteward) Anyone Present Own
Join: Itself(NodeId(2)) StewardElseRedirect Present OwnOrTold
Contacts: Unchecked(KnowGroup) Anyone Present OwnOrFirst
Refused: Unchecked(KnowGroup) Anyone Present Own
Withdraw: Unchecked(BeMember) StewardElseRedirect Present Own
Withdrawn: Unchecked(BeSteward) Anyone Withdrawing Own
Probe: Unchecked(BeSteward) Anyone Present Own
Probed: Member(Incarnation(1)) Steward Present Own
Prepare: Unchecked(BeSteward) Anyone TakingPart Own
Report: Member(Incarnation(1)) Steward Present Own
Start: Unchecked(BeSteward) Anyone TakingPart Own
Started: Member(Incarnation(1)) Steward Present Own
Ask: Unchecked(BeMember) StewardElseRedirect Present Own
Answer: Unchecked(BeSteward) Anyone Present Own
Break: Unchecked(BeSteward) Anyone Present Own
Broken: Unchecked(BeMember) Steward Present Own
Candidates: Unchecked(BeSteward) Anyone Present Own
";

    #[test]
    fn the_table_has_a_row_for_every_message() {
        let messages = messages();
        for (tag, message) in (1..).zip(&messages) {
            let bytes = Envelope { group_id: 0, message: message.clone() }.encode();
            assert_eq!(bytes[2], tag, "{message:?}");
        }
        let after_last = [VERSION, 0, messages.len() as u8 + 1];
        assert_eq!(Envelope::decode(&after_last), Err(DecodeError::Unknown), "a message has no sample here");
        let mut table = String::new();
        for message in &messages {
            let text = format!("{message:?}");
            let name = text.split(['(', ' ']).next().unwrap();
            let Row { from, to, phases, groups } = row(message);
            table += &format!("{name}: {from:?} {to:?} {phases:?} {groups:?}\n");
        }
        assert_eq!(table, TABLE);
    }

    fn situations() -> Vec<Situation> {
        use PhaseKind::{Gone, Persisting, Running, Waiting, Withdrawing};
        let mut all = Vec::new();
        for phase in [Waiting, Running, Persisting, Withdrawing, Gone] {
            for bits in 0..8 {
                let (has_lapsed, is_steward) = (bits & 1 != 0, bits & 2 != 0);
                let group_id = if bits & 4 == 0 { 0 } else { 7 };
                for sender in [None, Some(NOW), Incarnation::new(2)] {
                    all.push(Situation { phase, has_lapsed, is_steward, group_id, sender });
                }
            }
        }
        all
    }

    #[test]
    fn every_row_means_what_it_says() {
        for message in messages() {
            for receiver in situations() {
                for (from, group_id) in
                    [NodeId(2), NodeId(3)].into_iter().flat_map(|id| [0, 7, 8].map(|group| (id, group)))
                {
                    let verdict = judge(&message, from, Some(group_id), &receiver);
                    let is_handled = matches!(verdict, Verdict::Handle | Verdict::Enter(_));
                    let is_founding = matches!(message, Control::Founding { .. });
                    if is_founding && group_id != 0 {
                        assert!(matches!(verdict, Verdict::Founded { .. }));
                        continue;
                    }
                    let is_own = group_id == receiver.group_id;
                    let enters = matches!(message, Control::Contacts(_)) && receiver.group_id == 0 && group_id != 0;
                    let is_gone = receiver.phase == PhaseKind::Gone;
                    let may = match &message {
                        Control::Prepare { .. } | Control::Start { .. } => {
                            receiver.phase == PhaseKind::Running && !receiver.has_lapsed
                        }
                        Control::Withdrawn { .. } => receiver.phase == PhaseKind::Withdrawing,
                        Control::Probed { .. } | Control::Report { .. } | Control::Started { .. } => {
                            receiver.is_steward && receiver.sender == Some(NOW)
                        }
                        Control::Broken { .. } => receiver.is_steward,
                        Control::Join { .. } => from == NodeId(2) || !receiver.is_steward,
                        _ => true,
                    };
                    let expected = !is_gone && (is_own || is_founding || enters) && may;
                    assert_eq!(is_handled, expected, "{message:?} of {group_id} in {:?}", receiver.phase);
                    let asks = matches!(message, Control::Join { .. }) && group_id == 0 && (is_gone || !is_own);
                    assert_eq!(verdict == Verdict::TellContacts, asks, "{message:?} in {:?}", receiver.phase);
                }
            }
        }
    }

    #[test]
    fn a_node_hears_itself_in_every_group_and_phase() {
        for receiver in situations() {
            let probe = Control::Probe { epoch: 1 };
            assert_eq!(judge(&probe, NodeId(1), None, &receiver), Verdict::Handle);
        }
    }
}
