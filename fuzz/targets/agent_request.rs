#![no_main]

use hallpass_agent::line_protocol::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    if let Err(error) = Request::parse(line) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
});
