//! A hostile program beside an honest one on whole engine cores: nothing panics, the honest one goes
//! on, nothing is left. The body is `engine::fuzzing::hostile_program`, which ordinary tests of
//! `engine` run too.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| engine::fuzzing::hostile_program(data));
