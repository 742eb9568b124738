//! On the wire.

use proptest::prelude::*;

use super::*;
use crate::codec::{DecodeError, Reader};

fn bytes_of(message: &CrMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn decode(bytes: &[u8]) -> Result<CrMessage, DecodeError> {
    let mut reader = Reader::new(bytes);
    let message = CrMessage::decode(&mut reader)?;
    reader.finish()?;
    Ok(message)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..300, (0u32..64).prop_map(|bit| 1 << bit), any::<u64>(), Just(u64::MAX)]
}

fn message() -> impl Strategy<Value = CrMessage> {
    (any::<bool>(), any::<bool>(), number(), number()).prop_map(|(request, shared, number, fence)| {
        let asked = Asked { number, mode: if shared { Shared } else { Exclusive } };
        if request { CrMessage::Request(asked) } else { CrMessage::Reply { answers: asked, fence } }
    })
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(message in message()) {
        let bytes = bytes_of(&message);
        prop_assert_eq!(decode(&bytes), Ok(message));
        for length in 0..bytes.len() {
            prop_assert_eq!(decode(&bytes[..length]), Err(DecodeError::Truncated));
        }
        prop_assert_eq!(decode(&[bytes, vec![0]].concat()), Err(DecodeError::Trailing));
    }

    #[test]
    fn garbage_is_refused_or_has_one_encoding(bytes in prop::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..40)) {
        if let Ok(message) = decode(&bytes) {
            prop_assert_eq!(bytes_of(&message), bytes);
        }
    }
}

#[test]
fn messages_are_small_and_unknown_kinds_are_refused() {
    let answers = Asked { number: 100, mode: Shared };
    assert_eq!(bytes_of(&CrMessage::Request(answers)), [2, 100]);
    assert_eq!(bytes_of(&CrMessage::Reply { answers, fence: 9 }), [4, 100, 9]);
    for kind in [0, 5, 255] {
        assert_eq!(decode(&[kind, 1, 1, 1]), Err(DecodeError::Unknown));
    }
}

#[test]
fn messages_are_shown_by_the_papers_names() {
    let asked = Asked { number: 3, mode: Shared };
    let request = CrMessage::Request(asked);
    assert_eq!(request.to_string(), "REQUEST(3, shared)");
    assert_eq!(request.grant().unwrap().to_string(), "REPLY(3, shared)");
    assert_eq!((request.kind(), request.grant().unwrap().kind()), ("REQUEST", "REPLY"));
}
