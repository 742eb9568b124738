use std::num::NonZeroU64;

use hallpass_core::NodeId;
use hallpass_core::codec::DecodeError;

use super::{Link, LinkError, Process, Sender};
use crate::Incarnation;
use crate::wire::{Attempt, Body, Frame, Outgoing};

const ONE: Sender = sender(1, 4);
const TWO: Sender = sender(2, 7);

const fn sender(me: u32, incarnation: u32) -> Sender {
    Sender { me: NodeId(me), incarnation: Incarnation::new(incarnation).unwrap(), epoch: 7 }
}

fn process(Sender { incarnation, .. }: Sender) -> Option<Process> {
    Some(Process { incarnation, boot_id: 0 })
}

/// Two connected ends.
fn ends() -> [Link; 2] {
    [(TWO, ONE), (ONE, TWO)].map(|(peer, _)| {
        let mut link = Link::new(peer.me);
        link.process = process(peer);
        link.connect(0).unwrap();
        link
    })
}

fn busy(link: &mut Link, sender: Sender, attempt: u64) {
    let attempt = Attempt(NonZeroU64::new(attempt).unwrap());
    link.push(sender, &Outgoing::Busy { lock: "x", attempt }, |_| {});
}

fn acknowledge_if_due(link: &mut Link, sender: Sender) {
    if link.owes_acknowledgement() {
        link.push(sender, &Outgoing::Acknowledgement, |_| {});
    }
}

/// What the connection takes, at most this number of bytes.
fn take(link: &mut Link, most: usize) -> Vec<u8> {
    let bytes = link.transmit()[..link.transmit().len().min(most)].to_vec();
    link.transmitted(bytes.len());
    bytes
}

/// The attempts of those frames that were new.
fn give(link: &mut Link, me: Sender, mut bytes: &[u8]) -> Result<Vec<u64>, LinkError> {
    let mut new = Vec::new();
    while !bytes.is_empty() {
        let (frame, length) = Frame::decode(bytes)?;
        bytes = &bytes[length..];
        if link.receive(me, &frame, usize::MAX)?
            && let Body::Busy { attempt, .. } = frame.body
        {
            new.push(attempt.0.get());
        }
    }
    Ok(new)
}

fn reconnect([one, two]: &mut [Link; 2]) {
    let received = [one.received(), two.received()];
    one.disconnect(0);
    two.disconnect(0);
    one.connect(received[1]).unwrap();
    two.connect(received[0]).unwrap();
}

#[test]
fn what_was_lost_with_a_connection_comes_again_with_the_next() {
    let mut ends = ends();
    (1..=5).for_each(|attempt| busy(&mut ends[0], ONE, attempt));
    let sent = take(&mut ends[0], usize::MAX);
    let frame = sent.len() / 5;
    assert_eq!(give(&mut ends[1], TWO, &sent[..2 * frame]), Ok(vec![1, 2]));
    assert_eq!(ends[0].transmit(), [0; 0]);
    reconnect(&mut ends);
    assert_eq!(ends[0].transmit(), &sent[2 * frame..]);
    assert_eq!(ends[0].backlog(), 3 * frame);
    let again = take(&mut ends[0], usize::MAX);
    assert_eq!(give(&mut ends[1], TWO, &again), Ok(vec![3, 4, 5]));
}

#[test]
fn nothing_is_sent_while_there_is_no_connection() {
    let mut ends = ends();
    ends[0].disconnect(0);
    busy(&mut ends[0], ONE, 1);
    assert_eq!(ends[0].transmit(), [0; 0]);
    assert!(ends[0].backlog() > 0);
    ends[0].connect(0).unwrap();
    let sent = take(&mut ends[0], usize::MAX);
    assert_eq!(give(&mut ends[1], TWO, &sent), Ok(vec![1]));
}

#[test]
fn what_comes_twice_is_delivered_once_and_what_is_missing_is_noticed() {
    let mut ends = ends();
    (1..=4).for_each(|attempt| busy(&mut ends[0], ONE, attempt));
    let sent = take(&mut ends[0], usize::MAX);
    let frame = sent.len() / 4;
    assert_eq!(give(&mut ends[1], TWO, &sent[..3 * frame]), Ok(vec![1, 2, 3]));
    assert_eq!(give(&mut ends[1], TWO, &sent[frame..2 * frame]), Ok(vec![]));
    assert_eq!(give(&mut ends[1], TWO, &sent), Ok(vec![4]));
    (5..=6).for_each(|attempt| busy(&mut ends[0], ONE, attempt));
    let sent = take(&mut ends[0], usize::MAX);
    assert_eq!(give(&mut ends[1], TWO, &sent[frame..]), Err(LinkError::Gap));
    assert_eq!(ends[1].received(), 4, "the link is as before");
    reconnect(&mut ends);
    let again = take(&mut ends[0], usize::MAX);
    assert_eq!(give(&mut ends[1], TWO, &again), Ok(vec![5, 6]));
}

#[test]
fn answers_acknowledge_and_silence_is_broken_in_time() {
    let mut ends = ends();
    (1..=31).for_each(|attempt| busy(&mut ends[0], ONE, attempt));
    let sent = take(&mut ends[0], usize::MAX);
    give(&mut ends[1], TWO, &sent).unwrap();
    acknowledge_if_due(&mut ends[1], TWO);
    assert_eq!(ends[1].transmit(), [0; 0], "31 are few enough");
    busy(&mut ends[0], ONE, 32);
    let sent = take(&mut ends[0], usize::MAX);
    give(&mut ends[1], TWO, &sent).unwrap();
    acknowledge_if_due(&mut ends[1], TWO);
    let sent = take(&mut ends[1], usize::MAX);
    assert_eq!(give(&mut ends[0], ONE, &sent), Ok(vec![]));
    assert_eq!(ends[0].backlog(), 0);
    acknowledge_if_due(&mut ends[0], ONE);
    assert_eq!(ends[0].transmit(), [0; 0], "no frame is sent to acknowledge an acknowledgement");
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged() {
    let mut ends = ends();
    busy(&mut ends[0], ONE, 1);
    ends[0].inbound.push(9);
    assert_eq!(ends[0].connect(2), Err(LinkError::Acknowledgement));
    assert_eq!(ends[0].inbound, [9], "the link is as before");
    assert_eq!(ends[0].connect(1), Ok(()));
    let mut liar = Link::new(NodeId(1));
    liar.process = process(ONE);
    liar.connect(0).unwrap();
    // It has received what was never sent.
    let mut other = Link::new(NodeId(2));
    other.process = process(TWO);
    other.connect(0).unwrap();
    (1..=2).for_each(|attempt| busy(&mut other, ONE, attempt));
    let sent = take(&mut other, usize::MAX);
    give(&mut liar, TWO, &sent).unwrap();
    busy(&mut liar, TWO, 9);
    let sent = take(&mut liar, usize::MAX);
    assert_eq!(give(&mut ends[0], ONE, &sent), Err(LinkError::Acknowledgement));
    assert_eq!(ends[0].received(), 0);
}

#[test]
fn frames_of_another_incarnation_view_or_node_are_rejected() {
    for (peer, me) in [(sender(1, 5), TWO), (ONE, sender(2, 8))] {
        let mut ends = ends();
        ends[1].process = process(peer);
        busy(&mut ends[0], ONE, 1);
        let sent = take(&mut ends[0], usize::MAX);
        assert_eq!(give(&mut ends[1], me, &sent), Err(LinkError::Misaddressed));
    }
    let mut ends = ends();
    busy(&mut ends[0], Sender { me: NodeId(3), ..ONE }, 1);
    let sent = take(&mut ends[0], usize::MAX);
    assert_eq!(give(&mut ends[1], TWO, &sent), Err(LinkError::Misaddressed));
}

/// The other end's greeting is older than what has reached it over the connection before: it acknowledges frames that are
/// just being sent again, one of them half.
#[test]
fn a_frame_that_is_half_written_is_finished_though_it_is_acknowledged() {
    for half in 1..20 {
        let mut ends = ends();
        (1..=3).for_each(|attempt| busy(&mut ends[0], ONE, attempt));
        let sent = take(&mut ends[0], usize::MAX);
        // Its greeting says 'nothing', then everything arrives over the old connection.
        ends[0].connect(0).unwrap();
        assert_eq!(give(&mut ends[1], TWO, &sent), Ok(vec![1, 2, 3]));
        let mut stream = take(&mut ends[0], half);
        busy(&mut ends[1], TWO, 9);
        let answer = take(&mut ends[1], usize::MAX);
        assert_eq!(give(&mut ends[0], ONE, &answer), Ok(vec![9]));
        busy(&mut ends[0], ONE, 4);
        stream.extend(take(&mut ends[0], usize::MAX));
        assert_eq!(give(&mut ends[1], TWO, &stream), Ok(vec![4]), "half is {half}");
    }
}

#[test]
fn acknowledged_bytes_are_moved_out_of_the_way_and_the_rest_stays() {
    let mut ends = ends();
    for round in 0..5000 {
        busy(&mut ends[0], ONE, 2 * round + 1);
        busy(&mut ends[0], ONE, 2 * round + 2);
        let sent = take(&mut ends[0], usize::MAX);
        assert_eq!(give(&mut ends[1], TWO, &sent), Ok(vec![2 * round + 1, 2 * round + 2]));
        acknowledge_if_due(&mut ends[1], TWO);
        let sent = take(&mut ends[1], usize::MAX);
        give(&mut ends[0], ONE, &sent).unwrap();
        acknowledge_if_due(&mut ends[0], ONE);
        assert!(ends[0].backlog() < 2000);
    }
    reconnect(&mut ends);
    let again = take(&mut ends[0], usize::MAX);
    assert_eq!(give(&mut ends[1], TWO, &again), Ok(vec![]));
}

#[test]
fn a_link_that_has_fallen_silent_keeps_no_large_buffers() {
    let mut ends = ends();
    (1..=10_000).for_each(|attempt| busy(&mut ends[0], ONE, attempt));
    ends[1].inbound.resize(100_000, 0);
    let sent = take(&mut ends[0], usize::MAX);
    ends.iter_mut().for_each(Link::shrink);
    assert!(ends[0].room() > 100_000, "nothing of it has been acknowledged");
    give(&mut ends[1], TWO, &sent).unwrap();
    reconnect(&mut ends);
    ends.iter_mut().for_each(Link::shrink);
    assert!(ends.iter().all(|end| end.room() < 1000));
    busy(&mut ends[0], ONE, 1);
    let sent = take(&mut ends[0], usize::MAX);
    assert_eq!(give(&mut ends[1], TWO, &sent), Ok(vec![1]));
}

#[test]
fn every_error_says_why_in_one_line() {
    let all = [
        LinkError::Decode(DecodeError::Trailing),
        LinkError::Gap,
        LinkError::Misaddressed,
        LinkError::Acknowledgement,
        LinkError::GivenUp,
        LinkError::Flooded,
        LinkError::Unread,
    ];
    let texts: std::collections::BTreeSet<String> = all.iter().map(LinkError::to_string).collect();
    assert_eq!(texts.len(), all.len());
    assert!(texts.iter().all(|text| !text.contains('\n')));
}

#[test]
fn what_is_for_an_incarnation_that_was_in_the_view_is_not_for_the_next_one() {
    let [mut one, _] = ends();
    one.in_view_as = Some(TWO.incarnation);
    busy(&mut one, ONE, 1);
    assert_eq!(one.sent(), 1);
    // The peer's session has run out, and it is back before the next view.
    one.meet(Process { incarnation: Incarnation::new(8).unwrap(), boot_id: 0 });
    busy(&mut one, ONE, 2);
    assert_eq!(one.sent(), 0, "nothing is numbered between two incarnations that were never in one view");
    one.in_view_as = Some(Incarnation::new(8).unwrap());
    busy(&mut one, ONE, 3);
    assert_eq!(one.sent(), 1);
}
