#![no_main]

use hallpass_core::codec::Reader;
use hallpass_core::protocol::{ProtocolKind, Visitor};
use hallpass_core::{Message, Protocol};
use libfuzzer_sys::fuzz_target;

struct Decode<'a>(&'a [u8]);

impl Visitor for Decode<'_> {
    type Output = ();

    fn visit<P: Protocol + 'static>(self) {
        let mut reader = Reader::new(self.0);
        let Ok(message) = P::Message::decode(&mut reader) else { return };
        if reader.finish().is_ok() {
            let mut again = Vec::new();
            message.encode(&mut again);
            assert_eq!(again, self.0, "{message}: one message has one encoding");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((kind, message)) = bytes.split_first() {
        ProtocolKind::ALL[usize::from(*kind) % ProtocolKind::ALL.len()].visit(Decode(message));
    }
});
