//! The table, row by row: who is heard in which phase, and that nobody else is.

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

/// Of each message: its name, its row, and who is heard.
const TABLE: &str = "\
Founding: Stranger Anyone Present Any: stranger, namesake, candidate, seed, former, away, other, member, voter, steward, installer
Engine: Voter { is_answer: false } Anyone Present Own: away, other, member, voter, steward, installer
Renew: MemberElseTold StewardElseRedirect Present Own: stranger, namesake, candidate, seed, former, away, other, member, voter, steward, installer
Renewed: Steward Anyone Present Own: steward
Expelled: Steward Anyone Present Own: steward
Join: Itself(2) StewardElseRedirect Present OwnOrTold: candidate, away, other, member, voter, steward, installer
Contacts: Guide Anyone Present OwnOrFirst: namesake, seed, away, other, member, voter, steward, installer
Refused: Guide Anyone Present Own: namesake, seed, away, other, member, voter, steward, installer
Withdraw: Leaver StewardElseRedirect Present Own: stranger, namesake, candidate, seed, former, away, other, member, voter, steward, installer, banned voter
Withdrawn: Steward Anyone Withdrawing Own: steward
Probe: Steward Anyone Present Own: steward
Probed: MemberAs(Incarnation(1)) Steward Present Own: member, voter, steward, installer
Prepare: Steward Anyone TakingPart Own: steward
Report: MemberAs(Incarnation(1)) Steward Present Own: member, voter, steward, installer
Start: Installer(1) Anyone TakingPart Own: installer
Started: MemberAs(Incarnation(1)) Steward Present Own: member, voter, steward, installer
Ask: Member StewardElseRedirect Present Own: other, member, voter, steward, installer
Answer: Steward Anyone Present Own: steward
Break: Steward Anyone Present Own: steward
Broken: Member Steward Present Own: other, member, voter, steward, installer
Candidates: Steward Anyone Present Own: steward
";

/// Everybody that a message may come from, with the id of the greeting.
fn senders() -> Vec<(&'static str, NodeId, Standing)> {
    let stranger = Standing { name: "x".to_owned(), ..Standing::default() };
    let named = |standing: &Standing| Standing { name: "2".to_owned(), ..standing.clone() };
    let guide = Standing { is_guide: true, ..stranger.clone() };
    let away = named(&Standing { votes: true, ..guide.clone() });
    let member = Standing { member: Some(NOW), ..away.clone() };
    let steward = Standing { is_steward: true, ..member.clone() };
    let installer = Standing { prepared: Some(1), ..member.clone() };
    let everything = Standing { prepared: Some(1), ..steward.clone() };
    vec![
        ("stranger", NodeId(2), stranger.clone()),
        ("namesake", NodeId(3), named(&guide)),
        ("candidate", NodeId(2), named(&stranger)),
        ("seed", NodeId(9), guide),
        ("former", NodeId(9), Standing { prepared: Some(0), ..stranger }),
        ("away", NodeId(2), away.clone()),
        ("other", NodeId(2), Standing { member: Incarnation::new(2), ..away }),
        ("member", NodeId(2), member.clone()),
        ("voter", NodeId(2), member),
        ("steward", NodeId(2), steward),
        ("installer", NodeId(2), installer),
        ("banned", NodeId(2), Standing { ban: Ban::Yes, ..everything.clone() }),
        ("banned voter", NodeId(2), Standing { ban: Ban::Votes, ..everything }),
    ]
}

/// A receiver that could handle the message now.
fn receptive(message: &Control) -> Situation {
    let withdraws = matches!(message, Control::Withdrawn { .. });
    let phase = if withdraws { PhaseKind::Withdrawing } else { PhaseKind::Running };
    Situation { phase, has_lapsed: false, is_steward: true, group_id: 7 }
}

/// For which group it is when it is sent in earnest.
fn group_of(message: &Control) -> u64 {
    if matches!(message, Control::Founding { .. }) { 0 } else { 7 }
}

fn heard(message: &Control) -> Vec<&'static str> {
    let receiver = receptive(message);
    let is_heard = |(_, from, sender): &(&str, NodeId, Standing)| {
        judge(message, *from, sender, group_of(message), &receiver) == Verdict::Handle
    };
    senders().into_iter().filter(is_heard).map(|(kind, ..)| kind).collect()
}

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
        let Row { from, to, phases, groups } = row(message);
        let from = match from {
            Sender::Itself(member) => format!("Itself({})", member.id),
            other => format!("{other:?}"),
        };
        let who = heard(message).join(", ");
        table += &format!("{}: {from} {to:?} {phases:?} {groups:?}: {who}\n", message.name());
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
            all.push(Situation { phase, has_lapsed, is_steward, group_id });
        }
    }
    all
}

#[test]
fn who_is_not_in_its_row_is_heard_in_no_phase() {
    for message in messages() {
        let heard = heard(&message);
        for (receiver, group_id) in
            situations().into_iter().flat_map(|one| [0, 7, 8].map(|id| (Situation { ..one }, id)))
        {
            for (kind, from, sender) in senders() {
                let verdict = judge(&message, from, &sender, group_id, &receiver);
                let text = format!("{kind}: {message:?} of {group_id} in {:?}: {verdict:?}", receiver.phase);
                let is_redirected = matches!(message, Control::Ask { .. }) && !receiver.is_steward;
                let may = heard.contains(&kind) || is_redirected && !kind.starts_with("banned");
                match &verdict {
                    Verdict::Handle | Verdict::Enter(_) => {
                        assert!(may, "{text}");
                        assert!(row(&message).is_time(&receiver) && receiver.phase != PhaseKind::Gone, "{text}");
                        let enters = matches!(message, Control::Contacts(_)) && receiver.group_id == 0;
                        let is_founding = matches!(message, Control::Founding { .. });
                        assert!(group_id == receiver.group_id || enters || is_founding, "{text}");
                        assert_eq!(verdict == Verdict::Handle, group_id == receiver.group_id || is_founding, "{text}");
                    }
                    Verdict::Founded { .. } => {
                        assert!(matches!(message, Control::Founding { .. }) && group_id != 0, "{text}");
                        assert!(sender.is_guide && sender.ban == Ban::No, "{text}");
                    }
                    Verdict::TellContacts => {
                        assert!(matches!(message, Control::Join { .. }) && group_id == 0, "{text}");
                        assert_ne!(sender.ban, Ban::Yes, "{text}");
                    }
                    Verdict::Deny => assert!(!may || group_id == 0 || message.name() == "Founding", "{text}"),
                    Verdict::Drop => {}
                }
            }
        }
    }
}

#[test]
fn a_sender_with_the_right_is_heard_when_it_is_time() {
    for message in messages() {
        for (kind, from, sender) in senders().into_iter().filter(|(kind, ..)| heard(&message).contains(kind)) {
            for receiver in situations().into_iter().filter(|one| one.group_id == 7 && one.phase != PhaseKind::Gone) {
                let verdict = judge(&message, from, &sender, group_of(&message), &receiver);
                let expected = if row(&message).is_time(&receiver) { Verdict::Handle } else { Verdict::Drop };
                assert_eq!(verdict, expected, "{kind}: {message:?} in {:?}", receiver.phase);
            }
        }
    }
}

/// Others may need its vote for the majority that replaces it.
#[test]
fn a_banned_voter_may_only_answer() {
    let kinds = senders();
    let banned =
        |wanted: &str| kinds.iter().find(|(kind, ..)| *kind == wanted).map(|(_, from, sender)| (*from, sender));
    for kind in 1..=10 {
        let message = Control::Engine(vec![1, kind]);
        let verdict = |who| {
            let (from, sender) = banned(who).unwrap();
            judge(&message, from, sender, 7, &receptive(&message))
        };
        let is_answer = [5, 6, 8, 10].contains(&kind);
        assert_eq!(verdict("banned voter"), if is_answer { Verdict::Handle } else { Verdict::Deny }, "{kind}");
        assert_eq!(verdict("banned"), Verdict::Deny, "{kind}");
    }
}
