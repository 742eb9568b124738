#![no_main]

use hallpass_agent::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Config::parse(text) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
});
