#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| hallpass_agent::etcd_fuzzing::gateway(body));
