#![no_main]

use hallpass_node::wire::{Body, Frame, NAME_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok((frame, length)) = Frame::decode(rest) {
        assert!(length > 2 && length <= rest.len());
        if let Body::Message { lock, .. } | Body::Busy { lock, .. } = frame.body {
            assert!((1..=NAME_MAX).contains(&lock.len()));
        }
        rest = &rest[length..];
    }
});
