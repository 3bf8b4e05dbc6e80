//! Fragments against a naive oracle. The body is `stack::fuzzing::fragments`, which ordinary tests of `stack`
//! run too.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stack::fuzzing::fragments(data));
