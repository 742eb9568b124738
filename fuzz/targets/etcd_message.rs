#![no_main]

use libfuzzer_sys::fuzz_target;

// The first byte says which message it is.
fuzz_target!(|bytes: &[u8]| {
    if let [kind, message @ ..] = bytes {
        hallpass_agent::etcd_fuzzing::message(*kind, message);
    }
});
