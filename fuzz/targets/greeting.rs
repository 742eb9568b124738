#![no_main]

use hallpass_node::wire::Hello;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((hello, length)) = Hello::decode(bytes) {
        let mut again = Vec::new();
        hello.encode(&mut again);
        assert!(length <= bytes.len());
        // A greeting of another version may say more than is understood: what is understood stays the same.
        let (told, told_length) = Hello::decode(&again).expect("what is written can be read");
        assert_eq!((told, told_length), (hello, again.len()));
    }
});
