//! A peer that acknowledges at will. The body is `tcp::fuzzing::hostile_acks`, which ordinary tests of `tcp` run too.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tcp::fuzzing::hostile_acks(data));
