use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use hallpass_core::NodeId;
use hallpass_core::codec::*;
use hallpass_core::protocol::ricart_agrawala::{Body, ClassicMessage, RaMessage, RingMessage, SequencedMessage};
use hallpass_core::{Fence, Message, Mode};

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

/// Request numbers and fences that a message may have, the limits included.
fn count() -> impl Strategy<Value = u64> {
    number().prop_map(|number| number.min(COUNT_MAX))
}

fn fence() -> impl Strategy<Value = u64> {
    number().prop_map(|number| number.min(Fence::COUNT_MAX))
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
        (count(), mode()).prop_map(|(number, mode)| RaMessage::Request { number, mode }),
        (count(), count(), fence()).prop_map(|(answers, highest, fence)| RaMessage::Reply { answers, highest, fence }),
        (count(), count()).prop_map(|(answers, highest)| RaMessage::Deferred { answers, highest }),
        (list((node(), count())), count(), fence()).prop_map(|(list, highest, fence)| RaMessage::ReplyAll {
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
        (count(), node(), fence(), mode(), list(node())).prop_map(|(number, origin, fence, mode, deferred_by)| {
            let mut bytes = vec![1];
            put_numbers(&mut bytes, [number, origin.0.into(), fence]);
            bytes.push(u8::from(mode == Mode::Shared));
            put_number(&mut bytes, deferred_by.len() as u64);
            deferred_by.iter().for_each(|node| put_number(&mut bytes, node.0.into()));
            bytes
        });
    let reply = (count(), fence()).prop_map(|(answers, fence)| {
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

fn incarnation() -> impl Strategy<Value = Incarnation> {
    prop_oneof![1u32..300, 1..=Incarnation::MAX, Just(Incarnation::MAX)]
        .prop_map(|number| Incarnation::new(number).unwrap())
}

fn header() -> impl Strategy<Value = Header> {
    (number(), number(), number(), node(), incarnation(), incarnation()).prop_map(
        |(sequence, acknowledges, epoch, from, incarnation, to_incarnation)| Header {
            sequence,
            acknowledges,
            epoch,
            from,
            incarnation,
            to_incarnation,
        },
    )
}

fn lock() -> impl Strategy<Value = String> {
    "[a-z/äé€😀]{1,60}"
}

/// What goes around a message: a header, a lock's name and perhaps an attempt.
fn around() -> impl Strategy<Value = (Header, String, Option<Attempt>)> {
    (header(), lock(), prop_oneof![Just(0), number()].prop_map(|number| NonZeroU64::new(number).map(Attempt)))
}

fn hello() -> impl Strategy<Value = Hello> {
    let labels = ("[a-zé€😀]{0,16}", "[a-zé€😀]{0,16}");
    let known = prop::option::of(incarnation());
    (labels, node(), node(), incarnation(), known, number(), number()).prop_map(
        |((group, name), from, to, incarnation, to_incarnation, received, config_digest)| Hello {
            boot_id: config_digest.rotate_left(7),
            incarnations_digest: NonZeroU64::new(config_digest.rotate_left(13)),
            plane: if received % 2 == 0 { Plane::Locks } else { Plane::Control },
            address: format!("{name}:{received}"),
            group_id: config_digest.rotate_left(21),
            group,
            name,
            from,
            to,
            incarnation,
            to_incarnation,
            received,
            config_digest,
        },
    )
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

const HEADER: Header = Header {
    sequence: 5,
    acknowledges: 4,
    epoch: 3,
    from: NodeId(1),
    incarnation: Incarnation::FIRST,
    to_incarnation: Incarnation::new(2).unwrap(),
};

fn attempt_of(number: u64) -> Attempt {
    Attempt(NonZeroU64::new(number).unwrap())
}

fn frame_of<M: Message>(message: M) -> Vec<u8> {
    let mut frame = Vec::new();
    encode(&mut frame, LOCK, &message).unwrap();
    frame
}

fn encode<M: Message>(out: &mut Vec<u8>, lock: &str, message: &M) -> Result<usize, DecodeError> {
    write(out, &HEADER, &Outgoing::Message { lock, attempt: None }, |out| message.encode(out))
}

/// What a frame with a message says.
#[derive(Debug, PartialEq)]
struct Said<M> {
    header: Header,
    lock: String,
    attempt: Option<Attempt>,
    message: M,
}

fn said<M>(lock: &str, message: M) -> Said<M> {
    Said { header: HEADER, lock: lock.to_owned(), attempt: None, message }
}

/// Reads a frame and the message in it, and tells how many bytes that took.
fn read<M: Message>(buffer: &[u8]) -> Result<(Said<M>, usize), DecodeError> {
    let (Frame { header, body }, taken) = Frame::decode(buffer)?;
    let frame::Body::Message { lock, attempt, mut bytes } = body else { return Err(DecodeError::Unknown) };
    let message = M::decode(&mut bytes)?;
    bytes.finish()?;
    Ok((Said { header, lock: lock.to_owned(), attempt, message }, taken))
}

/// A frame with the right length around whatever follows the version.
fn framed(inside: &[u8]) -> Vec<u8> {
    let mut frame = (inside.len() as u16 + 1).to_be_bytes().to_vec();
    frame.push(VERSION);
    frame.extend_from_slice(inside);
    frame
}

/// The same, with a plain message's kind and header before the rest.
fn headed(inside: &[u8]) -> Vec<u8> {
    framed(&[&[1, 5, 4, 0, 1, 1, 1][..], inside].concat())
}

fn refused(frame: &[u8]) -> DecodeError {
    read::<RaMessage>(frame).expect_err("a frame to refuse")
}

/// Alone and in a frame: the same comes out, all bytes are used, and no shorter piece is a message.
fn goes_round<M: Message>(message: M, (header, lock, attempt): (Header, String, Option<Attempt>)) {
    let bytes = bytes_of(&message);
    assert_eq!(decode::<M>(&bytes), Ok(message.clone()));
    let mut frame = vec![0xaa]; // What was in the buffer before stays.
    let body = Outgoing::Message { lock: &lock, attempt };
    let length = write(&mut frame, &header, &body, |out| message.encode(out)).unwrap();
    assert_eq!(frame.remove(0), 0xaa);
    assert_eq!(frame.len(), length);
    assert!(frame.ends_with(&bytes));
    assert_eq!(read(&frame), Ok((Said { header, lock, attempt, message }, length)));
    for cut in 0..bytes.len() {
        assert_eq!(decode::<M>(&bytes[..cut]), Err(DecodeError::Truncated), "cut at {cut} of {bytes:?}");
    }
    for cut in 0..frame.len() {
        assert_eq!(cut_off(&frame[..cut]), DecodeError::Truncated, "cut at {cut} of {frame:?}");
    }
}

fn cut_off(frame: &[u8]) -> DecodeError {
    Frame::decode(frame).expect_err("a part of a frame")
}

/// Whatever decodes is what its bytes say, and only those bytes say it.
fn is_canonical<M: Message>(bytes: &[u8]) {
    if let Ok(message) = decode::<M>(bytes) {
        assert_eq!(bytes_of(&message), bytes);
    }
    frame_is_canonical(bytes);
    if let Ok((Said { header, lock, attempt, message }, taken)) = read::<M>(bytes) {
        let mut frame = Vec::new();
        let body = Outgoing::Message { lock: &lock, attempt };
        write(&mut frame, &header, &body, |out| message.encode(out)).unwrap();
        assert_eq!(frame, bytes[..taken]);
    }
}

fn frame_is_canonical(bytes: &[u8]) {
    let Ok((Frame { header, body }, taken)) = Frame::decode(bytes) else { return };
    let body = match body {
        frame::Body::Message { .. } => return,
        frame::Body::Busy { lock, attempt } => Outgoing::Busy { lock, attempt },
        frame::Body::Acknowledgement => Outgoing::Acknowledgement,
    };
    let mut frame = Vec::new();
    write(&mut frame, &header, &body, |_| {}).unwrap();
    assert_eq!(frame, bytes[..taken]);
}

fn hello_is_canonical(bytes: &[u8]) {
    if let Ok((hello, taken)) = Hello::decode(bytes)
        && bytes[6..8] == [VERSION, OLDEST]
    {
        let mut again = Vec::new();
        hello.encode(&mut again);
        assert_eq!(again, bytes[..taken]);
    }
}

/// A greeting with the right length around whatever follows the version.
fn greeting(inside: &[u8]) -> Vec<u8> {
    let length = (inside.len() as u16 + 2).to_be_bytes();
    [b"hall", &length[..], &[VERSION, OLDEST], inside].concat()
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
        for bytes in [bytes.clone(), framed(&bytes), headed(&bytes), headed(&[&[1, b'x'], &bytes[..]].concat())] {
            is_canonical::<RaMessage>(&bytes);
            is_canonical::<RingMessage>(&bytes);
            is_canonical::<SequencedMessage>(&bytes);
            is_canonical::<ClassicMessage>(&bytes);
        }
        // The first byte is the kind of message.
        match bytes.first() {
            None => prop_assert_eq!(decode::<RaMessage>(&bytes), Err(DecodeError::Truncated)),
            Some(1..=4) => prop_assert_eq!(decode::<RaMessage>(&[&[0], &bytes[..]].concat()), Err(DecodeError::Unknown)),
            Some(_) => prop_assert_eq!(decode::<RaMessage>(&bytes), Err(DecodeError::Unknown)),
        }
    }

    #[test]
    fn bytes_that_were_nearly_a_message_are_one_or_refused(message in classic(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut frame = frame_of(message.clone());
        let at = at.index(frame.len());
        let changed = std::mem::replace(&mut frame[at], byte) != byte;
        let unchanged = read(&frame) == Ok((said(LOCK, message), frame.len()));
        prop_assert_ne!(changed, unchanged, "no byte can be changed without changing what it says");
        is_canonical::<ClassicMessage>(&frame);
        is_canonical::<ClassicMessage>(&frame[20..]);
    }

    #[test]
    fn frames_without_a_message_go_round(header in header(), lock in lock(), attempt in number().prop_map(|number| attempt_of(number.max(1)))) {
        for body in [Outgoing::Busy { lock: &lock, attempt }, Outgoing::Acknowledgement] {
            let mut frame = Vec::new();
            let length = write(&mut frame, &header, &body, |_| {}).unwrap();
            let (read, taken) = Frame::decode(&frame).unwrap();
            prop_assert_eq!((read.header, taken), (header, length));
            match (read.body, body) {
                (frame::Body::Busy { lock: read, attempt: number }, Outgoing::Busy { .. }) => {
                    prop_assert_eq!((read, number), (lock.as_str(), attempt));
                }
                (frame::Body::Acknowledgement, Outgoing::Acknowledgement) => {}
                (other, _) => panic!("{other:?}"),
            }
            for cut in 0..frame.len() {
                prop_assert_eq!(cut_off(&frame[..cut]), DecodeError::Truncated);
            }
            // A byte more inside the frame is one too many.
            frame.push(0);
            let longer = (frame.len() as u16 - 2).to_be_bytes();
            frame[..2].copy_from_slice(&longer);
            prop_assert_eq!(Frame::decode(&frame).unwrap_err(), DecodeError::Trailing);
        }
    }

    #[test]
    fn greetings_go_round(hello in hello(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        prop_assert_eq!(Hello::decode(&bytes), Ok((hello.clone(), bytes.len())));
        for cut in 0..bytes.len() {
            prop_assert_eq!(Hello::decode(&bytes[..cut]), Err(DecodeError::Truncated));
        }
        bytes.push(7);
        prop_assert_eq!(Hello::decode(&bytes).unwrap().1, bytes.len() - 1, "after it come frames");
        bytes.pop();
        // The two versions say who can read it, and are not part of what it says.
        let at = at.index(bytes.len());
        let at = if (6..8).contains(&at) { 8 } else { at };
        let changed = std::mem::replace(&mut bytes[at], byte) != byte;
        let unchanged = Hello::decode(&bytes) == Ok((hello, bytes.len()));
        prop_assert_ne!(changed, unchanged, "no byte can be changed without changing what it says");
        hello_is_canonical(&bytes);
    }

    #[test]
    fn any_bytes_are_a_greeting_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        hello_is_canonical(&bytes);
        hello_is_canonical(&greeting(&bytes));
    }
}

#[test]
fn small_messages_are_small() {
    for (message, size) in [
        (RaMessage::Request { number: 7, mode: Mode::Exclusive }, 25),
        (RaMessage::Request { number: 127, mode: Mode::Shared }, 25),
        (RaMessage::Reply { answers: 7, highest: 9, fence: 12 }, 26),
        (RaMessage::Deferred { answers: 7, highest: 9 }, 25),
        (RaMessage::Request { number: 128, mode: Mode::Exclusive }, 26),
        (RaMessage::Reply { answers: 1000, highest: 1001, fence: 1000 }, 29),
    ] {
        let frame = frame_of(message.clone());
        assert_eq!(frame.len(), size, "{message}");
        assert!(frame.len() <= 32);
    }
    assert_eq!(frame_of(SequencedMessage::Request { id: 7, mode: Mode::Exclusive }).len(), 25);
    let request = Body::Base(RaMessage::Request { number: 7, mode: Mode::Exclusive });
    assert_eq!(frame_of(ClassicMessage { from: 0, to: 0, body: request }).len(), 28);
}

#[test]
fn a_frame_is_laid_out_as_documented() {
    let frame = frame_of(RaMessage::Request { number: 300, mode: Mode::Shared });
    let mut expected = vec![0, 24, VERSION, 1, 5, 4, 3, 1, 1, 2, 11];
    expected.extend_from_slice(LOCK.as_bytes());
    expected.extend_from_slice(&[1, 0xac, 0x02, 1]);
    assert_eq!(frame, expected);
}

#[test]
fn frames_without_a_message_are_laid_out_as_documented() {
    let bytes = |body: Outgoing<'_>| {
        let mut frame = Vec::new();
        write(&mut frame, &HEADER, &body, |_| {}).unwrap();
        frame
    };
    assert_eq!(bytes(Outgoing::Acknowledgement), [0, 8, VERSION, 4, 5, 4, 3, 1, 1, 2]);
    let busy = [0, 12, VERSION, 3, 5, 4, 3, 1, 1, 2, 1, b'x', 0xac, 0x02];
    assert_eq!(bytes(Outgoing::Busy { lock: "x", attempt: attempt_of(300) }), busy);
    let attempt = [0, 11, VERSION, 2, 5, 4, 3, 1, 1, 2, 1, b'x', 9];
    assert_eq!(bytes(Outgoing::Message { lock: "x", attempt: Some(attempt_of(9)) }), attempt);
}

#[test]
fn a_greeting_is_laid_out_as_written() {
    let mut bytes = Vec::new();
    let hello = Hello {
        group: "g".into(),
        name: "me".into(),
        from: NodeId(1),
        to: NodeId(2),
        plane: Plane::Control,
        address: "h:1".into(),
        group_id: 6,
        incarnation: Incarnation::new(3).unwrap(),
        to_incarnation: Incarnation::new(4),
        boot_id: 9,
        received: 5,
        config_digest: 300,
        incarnations_digest: NonZeroU64::new(7),
    };
    hello.encode(&mut bytes);
    let expected: Vec<u8> = [
        &b"hall"[..],
        &[0, 22, VERSION, OLDEST, 1, b'g', 2, b'm', b'e', 3, b'h', b':', b'1', 1],
        &[1, 2, 3, 4, 9, 5, 0xac, 0x02, 7, 6],
    ]
    .concat();
    assert_eq!(bytes, expected);
}

#[test]
fn a_greeting_of_a_later_version_that_understands_this_one_is_read() {
    let fields = [1, b'g', 0, 0, 0, 1, 2, 3, 4, 9, 5, 6, 7, 8];
    let later = [&b"hall"[..], &[0, 18, VERSION + 1, VERSION], &fields, b"??"].concat();
    let (hello, length) = Hello::decode(&later).unwrap();
    assert_eq!((hello.group.as_str(), hello.group_id, length), ("g", 8, later.len()));
}

#[test]
fn what_is_no_greeting_is_refused_at_the_first_wrong_byte() {
    let wrong = |bytes: &[u8]| Hello::decode(bytes).expect_err("to be refused");
    assert_eq!(wrong(b"GET / HTTP/1.1"), DecodeError::Unknown);
    assert_eq!(wrong(b"hax"), DecodeError::Unknown);
    assert_eq!(wrong(b"ha"), DecodeError::Truncated);
    assert_eq!(wrong(b"hall\x03\x01"), DecodeError::TooLong, "769 bytes are announced");
    assert_eq!(wrong(b"hall\x01\x00"), DecodeError::Truncated);
    assert_eq!(wrong(b"hall\x00\x00"), DecodeError::Malformed);
    assert_eq!(wrong(b"hall\x00\x02\x01\x01"), DecodeError::Version { peer: 1, own: VERSION });
    assert_eq!(wrong(b"hall\x00\x02\x09\x08"), DecodeError::Version { peer: 9, own: VERSION });
    assert_eq!(wrong(&greeting(&[1, 0xff, 0, 1, 2, 3, 4, 5, 6])), DecodeError::Name);
    assert_eq!(wrong(&greeting(&[9, b'g'])), DecodeError::Malformed, "longer than the greeting");
    assert_eq!(wrong(&greeting(&[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])), DecodeError::Trailing);
    let long = [&[65][..], &[b'g'; 65], &[0, 1, 2, 3, 4, 5, 6]].concat();
    assert_eq!(wrong(&greeting(&long)), DecodeError::TooLong);
}

#[test]
fn frames_after_one_another_are_read_one_by_one() {
    let first = RaMessage::Request { number: 7, mode: Mode::Exclusive };
    let second = RaMessage::ReplyAll { list: [(NodeId(2), 7), (NodeId(3), 500)].into(), highest: 8, fence: 4 };
    let mut buffer = Vec::new();
    let end = encode(&mut buffer, "a", &first).unwrap();
    encode(&mut buffer, "b", &second).unwrap();
    assert_eq!(read(&buffer), Ok((said("a", first), end)));
    assert_eq!(read(&buffer[end..]), Ok((said("b", second), buffer.len() - end)));
    assert_eq!(refused(&buffer[buffer.len()..]), DecodeError::Truncated);
}

#[test]
fn the_longest_frame_there_can_be_is_one_that_is_taken() {
    assert_eq!(u16::MAX as usize, FRAME_MAX);
    assert_eq!(refused(&[0xff, 0xff]), DecodeError::Truncated);
    assert_eq!(refused(&[0xff, 0xff, VERSION]), DecodeError::Truncated);
    let mut frame = vec![0xff, 0xff, VERSION, 1, 5, 4, 3, 1, 1, 2, 1, b'x'];
    frame.resize(FRAME_MAX + 2, 1);
    assert_eq!(Frame::decode(&frame).unwrap().1, FRAME_MAX + 2);
}

#[test]
fn an_empty_frame_is_refused() {
    assert_eq!(refused(&[0, 0]), DecodeError::Malformed);
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
    assert_eq!(encode(&mut frame, LOCK, &message), Err(DecodeError::TooLong));
    assert_eq!(frame, [1, 2, 3], "nothing of it is left in the buffer");
    let welcome = ClassicMessage { from: 0, to: 0, body: Body::Welcome { names, highest: 0 } };
    assert!(encode(&mut frame, LOCK, &welcome).is_ok());
}

#[test]
fn names_are_1_to_255_bytes_of_utf_8() {
    let message = || RaMessage::Request { number: 1, mode: Mode::Exclusive };
    let mut frame = Vec::new();
    assert_eq!(encode(&mut frame, "", &message()), Err(DecodeError::Name));
    assert_eq!(encode(&mut frame, &"x".repeat(256), &message()), Err(DecodeError::TooLong));
    assert_eq!(encode(&mut frame, &"é".repeat(128), &message()), Err(DecodeError::TooLong));
    assert!(frame.is_empty());
    for name in ["x".repeat(255), "é".repeat(127)] {
        frame.clear();
        encode(&mut frame, &name, &message()).unwrap();
        assert_eq!(read::<RaMessage>(&frame).unwrap().0.lock, name);
    }

    assert_eq!(refused(&headed(&[0, 1, 1, 0])), DecodeError::Name, "empty");
    assert_eq!(refused(&headed(&[2, 0xc3, 0x28, 1, 1, 0])), DecodeError::Name, "not UTF-8");
    assert_eq!(refused(&headed(&[1, 0xff, 1, 1, 0])), DecodeError::Name, "not UTF-8");
    assert_eq!(refused(&headed(&[9, b'x', 1, 1, 0])), DecodeError::Malformed, "longer than the frame");
    let mut long = vec![0x80, 0x02];
    long.extend([b'x'; 256]);
    long.extend([1, 1, 0]);
    assert_eq!(refused(&headed(&long)), DecodeError::TooLong);
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(refused(&headed(&huge)), DecodeError::TooLong);
}

#[test]
fn bytes_after_the_message_are_refused() {
    let mut frame = frame_of(RaMessage::Request { number: 7, mode: Mode::Exclusive });
    frame.push(0);
    assert!(read::<RaMessage>(&frame).is_ok(), "after the frame comes the next one");
    frame[1] += 1;
    assert_eq!(refused(&frame), DecodeError::Trailing);
}

#[test]
fn frames_of_unknown_kinds_are_refused() {
    let mut frame = frame_of(RaMessage::Request { number: 7, mode: Mode::Exclusive });
    for kind in (0..=255u8).filter(|kind| !(1..=4).contains(kind)) {
        frame[3] = kind;
        assert_eq!(refused(&frame), DecodeError::Unknown, "{kind}");
    }
    let plain = [2, 5, 4, 3, 1, 1, 2, 1, b'x', 0, 1, 7, 0];
    assert_eq!(refused(&framed(&plain)), DecodeError::Unknown, "attempt 0 is written without an attempt");
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
        frame[2] = version;
        assert_eq!(refused(&frame), DecodeError::Version { peer: version, own: VERSION });
        assert_eq!(refused(&[0, 1, version]), DecodeError::Version { peer: version, own: VERSION });
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
    let from = [&[1, 5, 4, 0][..], &four_billion, &[1, 1, 1, b'x', 1, 1, 0]].concat();
    assert_eq!(refused(&framed(&from)), DecodeError::Number);
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
        DecodeError::Version { peer: 9, own: VERSION },
        DecodeError::Number,
        DecodeError::Name,
        DecodeError::Malformed,
    ];
    let texts: std::collections::BTreeSet<String> = all.iter().map(DecodeError::to_string).collect();
    assert_eq!(texts.len(), all.len());
    assert!(texts.contains("the peer speaks version 9, this node 2"));
    assert!(texts.iter().all(|text| !text.contains('\n')));
}

#[test]
fn what_can_be_encoded_can_be_decoded() {
    let message = RaMessage::ReplyAll { list: (0..5000).map(|n| (NodeId(n), 1)).collect(), highest: 0, fence: 0 };
    let mut bytes = Vec::new();
    let body = Outgoing::Message { lock: "x", attempt: None };
    if write(&mut bytes, &HEADER, &body, |out| message.encode(out)).is_ok() {
        let super::Body::Message { bytes: mut inside, .. } = Frame::decode(&bytes).unwrap().0.body else { panic!() };
        assert_eq!(RaMessage::decode(&mut inside), Ok(message));
    }
}
