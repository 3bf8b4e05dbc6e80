//! `shunt traffic`: the small sender and receiver that `bench tcp` runs on either stack.
//!
//! Plain blocking sockets, as any program would use them. The receiver checks every byte and answers
//! at the end; the sender takes its orders line by line, so that one process serves many transfers.
//! It is a tool of the benchmark and hidden from the help.

mod receive;
mod send;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

/// Send and receive checked bytes over TCP, for `shunt bench tcp`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    Receive(receive::Arguments),
    Send,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.role {
        Role::Receive(arguments) => receive::execute(arguments),
        Role::Send => send::execute(),
    }
}

/// One transfer that a sender is asked for, as a line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Where the receiver listens.
    pub to: std::net::SocketAddrV4,
    /// Congestion control of the sending socket.
    pub congestion: String,
    /// Bytes to send; with `seconds` the most.
    pub bytes: u64,
    /// Stop after this time even if bytes are left.
    pub seconds: Option<f64>,
    /// The receiver counts bytes that come after this time as well, separately.
    pub skip_seconds: f64,
    /// Give up after this time.
    pub patience_seconds: f64,
}

/// What became of it, as a line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// From before connect to the receiver's answer, which comes after the last byte.
    pub seconds: f64,
    /// Bytes that the receiver got and found right.
    pub bytes: u64,
    /// Bytes that came after the time to skip, and in which time.
    pub later_bytes: u64,
    /// Time from the end of the time to skip to the last byte.
    pub later_seconds: f64,
    /// Why it failed.
    pub error: Option<String>,
}

/// What the sender says first on a connection: how long the receiver skips.
const HELLO_BYTES: usize = 8;
/// What the receiver answers: four words, see [`Answer`].
const ANSWER_BYTES: usize = 32;

/// The receiver's count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Answer {
    bytes: u64,
    /// 1 if every byte was the one expected.
    right: u64,
    later_bytes: u64,
    later_us: u64,
}

impl Answer {
    fn emit(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        let words = [self.bytes, self.right, self.later_bytes, self.later_us];
        for (slot, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *slot = word.to_le_bytes();
        }
        bytes
    }

    fn parse(bytes: &[u8; ANSWER_BYTES]) -> Self {
        let word = |index: usize| u64::from_le_bytes(bytes.as_chunks::<8>().0[index]);
        Self {
            bytes: word(0),
            right: word(1),
            later_bytes: word(2),
            later_us: word(3),
        }
    }
}

/// Content repeats after this many bytes: a prime, so that no segment or page size divides it.
const PERIOD: usize = 65_521;

/// Two periods of content: any slice of one period's length is found in it without a seam.
fn content() -> Vec<u8> {
    // SplitMix64 (Steele, Lea, Flood 2014).
    let mut state = 1_u64;
    let mut period: Vec<u8> = Vec::with_capacity(2 * PERIOD);
    for _ in 0..PERIOD {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        period.push((mixed >> 56).to_le_bytes()[0]);
    }
    period.extend_from_within(..);
    period
}

/// Where in the content stream offset `offset` lies.
fn place(offset: u64) -> usize {
    usize::try_from(offset % PERIOD as u64).expect("invariant: below the period")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_survives_the_wire() {
        let answer = Answer {
            bytes: 1,
            right: 1,
            later_bytes: 1 << 40,
            later_us: 7,
        };
        assert_eq!(Answer::parse(&answer.emit()), answer);
    }

    #[test]
    fn every_offset_has_a_whole_period_after_it() {
        let content = content();
        for offset in [0, 1, PERIOD as u64 - 1, PERIOD as u64, 1 << 50] {
            assert!(content.len() - place(offset) >= PERIOD);
        }
        assert_eq!(content[..PERIOD], content[PERIOD..]);
    }
}
