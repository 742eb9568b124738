#![no_main]

use hallpass_lab::scenario;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // Only its text: a scenario may ask for an exploration that takes hours.
    if let Err(error) = scenario::validate(text) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
});
