//! On the wire.

use proptest::prelude::*;

use super::*;
use crate::protocol::testing::{assert_canonical, assert_kinds, assert_round_trip, count, fence};

fn message() -> impl Strategy<Value = CrMessage> {
    (any::<bool>(), any::<bool>(), count(), fence()).prop_map(|(request, shared, number, fence)| {
        let asked = Asked { number, mode: if shared { Shared } else { Exclusive } };
        if request { CrMessage::Request(asked) } else { CrMessage::Reply { answers: asked, fence } }
    })
}

proptest! {
    #[test]
    fn messages_decode_as_they_were_encoded(message in message()) {
        assert_round_trip(&message);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(bytes in prop::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..40)) {
        assert_canonical::<CrMessage>(&bytes);
    }
}

#[test]
fn messages_are_small_and_unknown_kinds_are_refused() {
    let bytes = |message: CrMessage| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    };
    let answers = Asked { number: 100, mode: Shared };
    assert_eq!(bytes(CrMessage::Request(answers)), [2, 100]);
    assert_eq!(bytes(CrMessage::Reply { answers, fence: 9 }), [4, 100, 9]);
    assert_kinds::<CrMessage>(1..=4);
}

#[test]
fn messages_are_shown_by_the_papers_names() {
    let asked = Asked { number: 3, mode: Shared };
    let request = CrMessage::Request(asked);
    assert_eq!(request.to_string(), "REQUEST(3, shared)");
    assert_eq!(request.grant().unwrap().to_string(), "REPLY(3, shared)");
    assert_eq!((request.kind(), request.grant().unwrap().kind()), ("REQUEST", "REPLY"));
}
