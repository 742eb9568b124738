use proptest::prelude::*;

use super::*;
use crate::Mode;
use crate::protocol::ricart_agrawala::{Body, ClassicMessage, RaMessage, RingMessage, SequencedMessage};

/// The lock of the size tests, as a user would name one.
const LOCK: &str = "invoices/42";

/// Numbers of every length, the limits included.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..300,
        (0u32..64).prop_map(|bit| 1 << bit),
        (0u32..64).prop_map(|bit| (1 << bit) - 1),
        any::<u64>(),
        Just(u64::MAX)
    ]
}

fn short() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..300, any::<u32>(), Just(u32::MAX)]
}

fn node() -> impl Strategy<Value = NodeId> {
    short().prop_map(NodeId)
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]
}

fn list<T: std::fmt::Debug>(item: impl Strategy<Value = T>) -> impl Strategy<Value = Box<[T]>> {
    prop::collection::vec(item, 0..20).prop_map(Vec::into_boxed_slice)
}

fn ra() -> impl Strategy<Value = RaMessage> {
    prop_oneof![
        (number(), mode()).prop_map(|(number, mode)| RaMessage::Request { number, mode }),
        (number(), number(), number()).prop_map(|(answers, highest, fence)| RaMessage::Reply {
            answers,
            highest,
            fence
        }),
        (number(), number()).prop_map(|(answers, highest)| RaMessage::Deferred { answers, highest }),
        (list((node(), number())), number(), number()).prop_map(|(list, highest, fence)| RaMessage::ReplyAll {
            list,
            highest,
            fence
        }),
    ]
}

/// A travelling REQUEST has private fields, so it is written here byte by byte; that its bytes come out again as they
/// went in is the stronger test anyway.
fn ring_bytes() -> impl Strategy<Value = Vec<u8>> {
    let travelling =
        (number(), node(), number(), mode(), list(node())).prop_map(|(number, origin, fence, mode, deferred_by)| {
            let mut bytes = vec![1];
            put_numbers(&mut bytes, [number, origin.0.into(), fence]);
            bytes.push(u8::from(mode == Mode::Shared));
            put_number(&mut bytes, deferred_by.len() as u64);
            deferred_by.iter().for_each(|node| put_number(&mut bytes, node.0.into()));
            bytes
        });
    let reply = (number(), number()).prop_map(|(answers, fence)| {
        let mut bytes = vec![2];
        put_numbers(&mut bytes, [answers, fence]);
        bytes
    });
    prop_oneof![travelling, reply]
}

fn ring() -> impl Strategy<Value = RingMessage> {
    ring_bytes().prop_map(|bytes| RingMessage::decode(&mut Reader::new(&bytes)).unwrap())
}

fn sequenced() -> impl Strategy<Value = SequencedMessage> {
    prop_oneof![
        (number(), mode()).prop_map(|(id, mode)| SequencedMessage::Request { id, mode }),
        (number(), number()).prop_map(|(id, fence)| SequencedMessage::Reply { id, fence }),
    ]
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        ra().prop_map(Body::Base),
        (number(), mode()).prop_map(|(number, mode)| Body::AreYouThere { number, mode }),
        number().prop_map(|answers| Body::YesIAmHere { answers }),
        (node(), short()).prop_map(|(node, incarnation)| Body::Failed { node, incarnation }),
        Just(Body::RestartYourself),
        Just(Body::Join),
        (node(), short()).prop_map(|(node, incarnation)| Body::Add { node, incarnation }),
        (number(), 0..9u32).prop_map(|(highest, id)| Body::Added { node: NodeId(id), incarnation: id, highest }),
        (list((node(), short())), number()).prop_map(|(names, highest)| Body::Welcome { names, highest }),
        prop_oneof![Just(Body::IncludeMe), Just(Body::AskHighest), Just(Body::Leave), Just(Body::LeaveNoted)],
        number().prop_map(|highest| Body::Included { highest }),
        number().prop_map(|highest| Body::TellHighest { highest }),
    ]
}

fn classic() -> impl Strategy<Value = ClassicMessage> {
    (short(), short(), body()).prop_map(|(from, to, body)| ClassicMessage { from, to, body })
}

/// What goes around a message, and a lock's name.
fn around() -> impl Strategy<Value = (u64, NodeId, u32, u32, String)> {
    (number(), node(), short(), short(), "[a-z/äé€😀]{1,60}")
}

fn bytes_of<M: Message>(message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn decode<M: Message>(bytes: &[u8]) -> Result<M, DecodeError> {
    let mut reader = Reader::new(bytes);
    let message = M::decode(&mut reader)?;
    reader.finish()?;
    Ok(message)
}

fn frame_of<M: Message>(message: M) -> Vec<u8> {
    let mut frame = Vec::new();
    envelope(LOCK, message).encode(&mut frame).unwrap();
    frame
}

fn envelope<M>(lock: &str, message: M) -> Envelope<'_, M> {
    Envelope { epoch: 3, from: NodeId(1), incarnation: 0, to_incarnation: 2, lock, message }
}

/// A frame with the right length around whatever follows the version.
fn framed(inside: &[u8]) -> Vec<u8> {
    let mut frame = (inside.len() as u32 + 1).to_be_bytes().to_vec();
    frame.push(VERSION);
    frame.extend_from_slice(inside);
    frame
}

fn refused(frame: &[u8]) -> DecodeError {
    Envelope::<RaMessage>::decode(frame).expect_err("a frame to refuse")
}

/// Alone and in an envelope: the same comes out, all bytes are used, and no shorter piece is a message.
fn goes_round<M: Message>(
    message: M,
    (epoch, from, incarnation, to_incarnation, lock): (u64, NodeId, u32, u32, String),
) {
    let bytes = bytes_of(&message);
    assert_eq!(decode::<M>(&bytes), Ok(message.clone()));
    let sent = Envelope { epoch, from, incarnation, to_incarnation, lock: &lock, message };
    let mut frame = vec![0xaa]; // What was in the buffer before stays.
    sent.encode(&mut frame).unwrap();
    assert_eq!(frame.remove(0), 0xaa);
    assert!(frame.ends_with(&bytes));
    assert_eq!(Envelope::decode(&frame), Ok((sent, frame.len())));
    for cut in 0..bytes.len() {
        assert_eq!(decode::<M>(&bytes[..cut]), Err(DecodeError::Truncated), "cut at {cut} of {bytes:?}");
    }
    for cut in 0..frame.len() {
        assert_eq!(Envelope::<M>::decode(&frame[..cut]), Err(DecodeError::Truncated), "cut at {cut} of {frame:?}");
    }
}

/// Whatever decodes is what its bytes say, and only those bytes say it.
fn is_canonical<M: Message>(bytes: &[u8]) {
    if let Ok(message) = decode::<M>(bytes) {
        assert_eq!(bytes_of(&message), bytes);
    }
    if let Ok((envelope, taken)) = Envelope::<M>::decode(bytes) {
        let mut frame = Vec::new();
        envelope.encode(&mut frame).unwrap();
        assert_eq!(frame, bytes[..taken]);
    }
}

proptest! {
    #[test]
    fn plain_messages_go_round(message in ra(), around in around()) {
        goes_round(message, around);
    }

    #[test]
    fn ring_messages_go_round(message in ring(), around in around()) {
        goes_round(message, around);
    }

    #[test]
    fn sequenced_messages_go_round(message in sequenced(), around in around()) {
        goes_round(message, around);
    }

    #[test]
    fn classic_messages_go_round(message in classic(), around in around()) {
        goes_round(message, around);
    }

    #[test]
    fn ring_messages_are_written_as_the_format_says(bytes in ring_bytes()) {
        prop_assert_eq!(bytes_of(&decode::<RingMessage>(&bytes).unwrap()), bytes);
    }

    #[test]
    fn numbers_go_round_in_as_few_bytes_as_they_need(value in number()) {
        let mut bytes = Vec::new();
        put_number(&mut bytes, value);
        prop_assert_eq!(bytes.len() as u32, value.checked_ilog2().map_or(1, |bits| bits / 7 + 1));
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(reader.number(), Ok(value));
        prop_assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for bytes in [bytes.clone(), framed(&bytes)] {
            is_canonical::<RaMessage>(&bytes);
            is_canonical::<RingMessage>(&bytes);
            is_canonical::<SequencedMessage>(&bytes);
            is_canonical::<ClassicMessage>(&bytes);
        }
    }

    #[test]
    fn bytes_that_were_nearly_a_message_are_one_or_refused(message in classic(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut frame = frame_of(message);
        let at = at.index(frame.len());
        frame[at] = byte;
        is_canonical::<ClassicMessage>(&frame);
        is_canonical::<ClassicMessage>(&frame[19..]);
    }
}

#[test]
fn small_messages_are_small() {
    for (message, size) in [
        (RaMessage::Request { number: 7, mode: Mode::Exclusive }, 24),
        (RaMessage::Request { number: 127, mode: Mode::Shared }, 24),
        (RaMessage::Reply { answers: 7, highest: 9, fence: 12 }, 25),
        (RaMessage::Deferred { answers: 7, highest: 9 }, 24),
        (RaMessage::Request { number: 128, mode: Mode::Exclusive }, 25),
        (RaMessage::Reply { answers: 1000, highest: 1001, fence: 1000 }, 28),
    ] {
        let frame = frame_of(message.clone());
        assert_eq!(frame.len(), size, "{message}");
        assert!(frame.len() <= 32);
    }
    assert_eq!(frame_of(SequencedMessage::Request { id: 7, mode: Mode::Exclusive }).len(), 24);
    let request = Body::Base(RaMessage::Request { number: 7, mode: Mode::Exclusive });
    assert_eq!(frame_of(ClassicMessage { from: 0, to: 0, body: request }).len(), 27);
}

#[test]
fn a_frame_is_laid_out_as_documented() {
    let frame = frame_of(RaMessage::Request { number: 300, mode: Mode::Shared });
    let mut expected = vec![0, 0, 0, 21, VERSION, 3, 1, 0, 2, 11];
    expected.extend_from_slice(LOCK.as_bytes());
    expected.extend_from_slice(&[1, 0xac, 0x02, 1]);
    assert_eq!(frame, expected);
}

#[test]
fn frames_after_one_another_are_read_one_by_one() {
    let first = RaMessage::Request { number: 7, mode: Mode::Exclusive };
    let second = RaMessage::ReplyAll { list: [(NodeId(2), 7), (NodeId(3), 500)].into(), highest: 8, fence: 4 };
    let mut buffer = Vec::new();
    envelope("a", first.clone()).encode(&mut buffer).unwrap();
    let end = buffer.len();
    envelope("b", second.clone()).encode(&mut buffer).unwrap();
    assert_eq!(Envelope::decode(&buffer), Ok((envelope("a", first), end)));
    assert_eq!(Envelope::decode(&buffer[end..]), Ok((envelope("b", second), buffer.len() - end)));
    assert_eq!(Envelope::<RaMessage>::decode(&buffer[buffer.len()..]), Err(DecodeError::Truncated));
}

#[test]
fn a_frame_that_says_it_is_too_long_is_refused_before_it_is_read() {
    let longest = FRAME_MAX as u32;
    assert_eq!(refused(&longest.to_be_bytes()), DecodeError::Truncated);
    assert_eq!(refused(&(longest + 1).to_be_bytes()), DecodeError::TooLong);
    assert_eq!(refused(&u32::MAX.to_be_bytes()), DecodeError::TooLong);
}

#[test]
fn an_empty_frame_is_refused() {
    assert_eq!(refused(&[0, 0, 0, 0]), DecodeError::Truncated);
}

#[test]
fn a_message_too_long_for_a_frame_is_not_written() {
    let list: Box<[(NodeId, u64)]> = (0..4096).map(|_| (NodeId(u32::MAX), u64::MAX)).collect();
    let message = RaMessage::ReplyAll { list: list.clone(), highest: 0, fence: 0 };
    assert!(bytes_of(&message).len() < FRAME_MAX, "as long as a list may be, it fits");
    let names: Box<[(NodeId, u32)]> = list.iter().map(|(node, _)| (*node, u32::MAX)).collect();
    let longer: Box<[(NodeId, u64)]> = list.iter().chain(&list).copied().collect();
    let message = RaMessage::ReplyAll { list: longer, highest: 0, fence: 0 };
    assert!(bytes_of(&message).len() > FRAME_MAX);
    let mut frame = vec![1, 2, 3];
    assert_eq!(envelope(LOCK, message).encode(&mut frame), Err(DecodeError::TooLong));
    assert_eq!(frame, [1, 2, 3], "nothing of it is left in the buffer");
    let welcome = ClassicMessage { from: 0, to: 0, body: Body::Welcome { names, highest: 0 } };
    assert_eq!(envelope(LOCK, welcome).encode(&mut frame), Ok(()));
}

#[test]
fn names_are_1_to_255_bytes_of_utf_8() {
    let message = || RaMessage::Request { number: 1, mode: Mode::Exclusive };
    let mut frame = Vec::new();
    assert_eq!(envelope("", message()).encode(&mut frame), Err(DecodeError::Name));
    assert_eq!(envelope(&"x".repeat(256), message()).encode(&mut frame), Err(DecodeError::TooLong));
    assert_eq!(envelope(&"é".repeat(128), message()).encode(&mut frame), Err(DecodeError::TooLong));
    assert!(frame.is_empty());
    for name in ["x".repeat(255), "é".repeat(127)] {
        frame.clear();
        envelope(&name, message()).encode(&mut frame).unwrap();
        assert_eq!(Envelope::<RaMessage>::decode(&frame).unwrap().0.lock, name);
    }

    assert_eq!(refused(&framed(&[0, 1, 0, 0, 0, 1, 1, 0])), DecodeError::Name, "empty");
    assert_eq!(refused(&framed(&[0, 1, 0, 0, 2, 0xc3, 0x28, 1, 1, 0])), DecodeError::Name, "not UTF-8");
    assert_eq!(refused(&framed(&[0, 1, 0, 0, 1, 0xff, 1, 1, 0])), DecodeError::Name, "not UTF-8");
    assert_eq!(refused(&framed(&[0, 1, 0, 0, 9, b'x', 1, 1, 0])), DecodeError::Truncated, "longer than the frame");
    let mut long = vec![0, 1, 0, 0, 0x80, 0x02];
    long.extend([b'x'; 256]);
    long.extend([1, 1, 0]);
    assert_eq!(refused(&framed(&long)), DecodeError::TooLong);
    let huge = [0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(refused(&framed(&huge)), DecodeError::TooLong);
}

#[test]
fn bytes_after_the_message_are_refused() {
    let mut frame = frame_of(RaMessage::Request { number: 7, mode: Mode::Exclusive });
    frame.push(0);
    assert!(Envelope::<RaMessage>::decode(&frame).is_ok(), "after the frame comes the next one");
    frame[3] += 1;
    assert_eq!(refused(&frame), DecodeError::Trailing);
}

#[test]
fn unknown_kinds_are_refused() {
    let tail = [0; 16];
    for kind in (0..=255u8).filter(|kind| !(1..=4).contains(kind)) {
        assert_eq!(decode::<RaMessage>(&[&[kind][..], &tail].concat()), Err(DecodeError::Unknown), "{kind}");
    }
    for kind in (0..=255u8).filter(|kind| !(1..=2).contains(kind)) {
        assert_eq!(decode::<RingMessage>(&[&[kind][..], &tail].concat()), Err(DecodeError::Unknown), "{kind}");
        assert_eq!(decode::<SequencedMessage>(&[&[kind][..], &tail].concat()), Err(DecodeError::Unknown), "{kind}");
    }
    for kind in (0..=255u8).filter(|kind| !(1..=15).contains(kind)) {
        assert_eq!(decode::<ClassicMessage>(&[&[0, 0, kind][..], &tail].concat()), Err(DecodeError::Unknown), "{kind}");
    }
}

#[test]
fn unknown_modes_are_refused() {
    for mode in 2..=255u8 {
        assert_eq!(decode::<RaMessage>(&[1, 7, mode]), Err(DecodeError::Unknown));
        assert_eq!(decode::<RingMessage>(&[1, 7, 1, 0, mode, 0]), Err(DecodeError::Unknown));
        assert_eq!(decode::<SequencedMessage>(&[1, 7, mode]), Err(DecodeError::Unknown));
        assert_eq!(decode::<ClassicMessage>(&[0, 0, 2, 7, mode]), Err(DecodeError::Unknown));
    }
}

#[test]
fn other_versions_are_refused_whatever_follows() {
    for version in (0..=255u8).filter(|version| *version != VERSION) {
        let mut frame = frame_of(RaMessage::Request { number: 7, mode: Mode::Exclusive });
        frame[4] = version;
        assert_eq!(refused(&frame), DecodeError::Version(version));
        assert_eq!(refused(&[0, 0, 0, 1, version]), DecodeError::Version(version));
    }
}

#[test]
fn malformed_numbers_are_refused() {
    let read = |bytes: &[u8]| Reader::new(bytes).number();
    assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Ok(u64::MAX));
    assert_eq!(
        read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]),
        Err(DecodeError::Number),
        "65 bits"
    );
    assert_eq!(
        read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
        Err(DecodeError::Number),
        "11 bytes"
    );
    assert_eq!(
        read(&[0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x01]),
        Err(DecodeError::Number),
        "11 bytes"
    );
    assert_eq!(read(&[0x80, 0x00]), Err(DecodeError::Number), "0 in two bytes");
    assert_eq!(read(&[0x85, 0x80, 0x00]), Err(DecodeError::Number), "5 in three bytes");
    assert_eq!(read(&[0x80]), Err(DecodeError::Truncated));
    assert_eq!(read(&[]), Err(DecodeError::Truncated));
}

#[test]
fn numbers_too_large_for_their_field_are_refused() {
    let four_billion = [0x80, 0x80, 0x80, 0x80, 0x10];
    assert_eq!(Reader::new(&four_billion).number(), Ok(1 << 32));
    assert_eq!(Reader::new(&four_billion).short(), Err(DecodeError::Number));
    assert_eq!(Reader::new(&four_billion).node(), Err(DecodeError::Number));
    assert_eq!(refused(&framed(&[&[0][..], &four_billion, &[0, 0, 1, b'x', 1, 1, 0]].concat())), DecodeError::Number);
    assert_eq!(decode::<ClassicMessage>(&[&four_billion[..], &[0, 5]].concat()), Err(DecodeError::Number));
}

#[test]
fn a_list_length_that_lies_is_refused_before_anything_is_allocated() {
    assert_eq!(decode::<RaMessage>(&[4, 3, 1, 1]), Err(DecodeError::Truncated), "three pairs in two bytes");
    assert_eq!(
        decode::<RaMessage>(&[4, 2, 1, 1, 0, 0]),
        Err(DecodeError::Truncated),
        "one pair, then the end of the message"
    );
    assert_eq!(decode::<RaMessage>(&[4, 0, 1, 1, 0, 0]), Err(DecodeError::Trailing), "one pair that was not announced");
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(decode::<RaMessage>(&[&[4][..], &huge].concat()), Err(DecodeError::Truncated));
    assert_eq!(decode::<RingMessage>(&[&[1, 1, 1, 1, 0][..], &huge].concat()), Err(DecodeError::Truncated));
    assert_eq!(decode::<ClassicMessage>(&[&[0, 0, 9][..], &huge].concat()), Err(DecodeError::Truncated));
    assert_eq!(
        decode::<ClassicMessage>(&[0, 0, 9, 0x80, 0x20]),
        Err(DecodeError::Truncated),
        "4096 that are not there"
    );
}

#[test]
fn every_refusal_says_why_in_one_line() {
    let all = [
        DecodeError::Truncated,
        DecodeError::TooLong,
        DecodeError::Trailing,
        DecodeError::Unknown,
        DecodeError::Version(9),
        DecodeError::Number,
        DecodeError::Name,
    ];
    let texts: std::collections::BTreeSet<String> = all.iter().map(DecodeError::to_string).collect();
    assert_eq!(texts.len(), all.len());
    assert!(texts.contains("the peer speaks version 9, this node 1"));
    assert!(texts.iter().all(|text| !text.contains('\n')));
}
