#![no_main]

use hallpass_node::wire::Hello;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((hello, length)) = Hello::decode(bytes) {
        let mut again = Vec::new();
        hello.encode(&mut again);
        assert_eq!(again, bytes[..length], "one greeting has one encoding");
    }
});
