#![no_main]

use hallpass_agent::tokens::Tokens;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match Tokens::parse(text) {
    Ok(tokens) => assert!(tokens.find(text).is_none(), "a file holds no secret"),
    Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
});
