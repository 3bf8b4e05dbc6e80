//! A hostile peer against one live connection. The body is `tcp::fuzzing::hostile_peer`, which ordinary tests of
//! `tcp` run too.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tcp::fuzzing::hostile_peer(data));
