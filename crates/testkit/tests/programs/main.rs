//! Unmodified programs of the distribution on Shunt, each beside the same run on the kernel: what they
//! print, what they receive and how they end must be equal. Most are rows of a table (`testkit::rows`).
//!
//! The program under test runs on host `a`, its peer on the kernel of host `b`. A program or privilege
//! that is missing skips the test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should
#![allow(clippy::needless_update)] // a row that fills every field today need not when there are more

mod deaths;
mod files;
mod languages;
mod names;
mod proxy;
mod services;
mod stores;
mod tokio_program;
mod tools;
mod web;

use testkit::{
    rows::End,
    world::Mode::{self, Cores, Engine, Inline, Supervised, Xdp},
};

/// Ways of a program of one process.
const ALONE: &[Mode] = &[Engine, Xdp, Inline];
/// Ways of a program of several processes.
const FAMILY: &[Mode] = &[Engine, Cores, Inline];
/// The way of a program that hands a connection on to one of another user, or to one that may open no descriptor.
const HANDING_ON: &[Mode] = &[Supervised];

/// Both ends in turn, in the same ways.
const fn each(ways: &'static [Mode]) -> [(End, &'static [Mode]); 2] {
    [(End::Server, ways), (End::Client, ways)]
}

/// 16 MB without repetition in `content`, and their SHA-256 on standard output. (AES in counter mode of zeros is such.) Of what is
/// fetched many times at once, each is `each`, a part of it: `make long` has it whole.
const CONTENT: &str =
    "openssl enc -aes-128-ctr -K 00 -iv 00 -in /dev/zero 2>/dev/null | head -c 16000000 >content
head -c ${SHUNT_EACH_BYTES:-4000000} content >each
sha256sum content";
