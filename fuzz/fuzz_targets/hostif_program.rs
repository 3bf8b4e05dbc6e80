//! A hostile program against the engine's end of the shared memory. The body is `hostif::fuzzing::hostile_program`, which ordinary tests of
//! `hostif` run too.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostif::fuzzing::hostile_program(data));
