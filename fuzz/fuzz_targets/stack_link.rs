//! A hostile link: what sockets want of groups, and what others say of them. The body is
//! `stack::fuzzing::groups::hostile_link`, which ordinary tests of `stack` run too.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stack::fuzzing::groups::hostile_link(data));
