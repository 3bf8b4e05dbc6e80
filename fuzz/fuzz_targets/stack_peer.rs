//! A hostile peer against a whole stack. The body is `stack::fuzzing::hostile_peer`, which ordinary tests of
//! `stack` run too.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stack::fuzzing::hostile_peer(data));
