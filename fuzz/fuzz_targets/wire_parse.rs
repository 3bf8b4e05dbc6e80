//! Any bytes through every parser of `wire`: no panic, payloads within the input, and what is emitted
//! parses back equal. The body is `wire::fuzzing::parse_any`, which ordinary tests of `wire` run too.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzzing::parse_any(data));
