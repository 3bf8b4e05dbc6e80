//! Checked bytes over TCP, for `shunt bench tcp`.
//!
//! Plain blocking sockets, as any program would use them. The receiver checks every byte and answers
//! at the end; the sender takes its orders line by line, so that one process serves many transfers.

mod receive;
mod send;

pub use receive::{Arguments as ReceiveArguments, execute as receive};
pub use send::execute as send;
use serde::{Deserialize, Serialize};

/// One transfer that a sender is asked for, as a line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Where the receiver listens.
    pub to: std::net::SocketAddrV4,
    /// Congestion control of the sending socket.
    pub congestion: String,
    /// Bytes to send; ignored with `span`.
    pub bytes: u64,
    /// Send for a time instead.
    pub span: Option<Span>,
    /// Give up after this time.
    pub patience_seconds: f64,
}

/// What the receiver counts of a flow that is measured for a time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Span {
    /// Not counted at the start.
    pub skip_seconds: f64,
    /// Counted after it; then the connection is aborted.
    pub seconds: f64,
}

/// What became of it, as a line of JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// From before connect to the receiver's answer, which comes after the last byte.
    pub seconds: f64,
    /// Bytes that the receiver got and found right; of a span those within it.
    pub bytes: u64,
    /// Why it failed.
    pub error: Option<String>,
}

/// What the sender says first on a connection: two words, see [`Hello`].
const HELLO_BYTES: usize = 16;
/// What the receiver answers: two words, see [`Answer`].
const ANSWER_BYTES: usize = 16;

/// What the receiver shall count; both zero: everything until the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Hello {
    skip_us: u64,
    span_us: u64,
}

/// The receiver's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    bytes: u64,
    /// Every byte was the one expected.
    right: bool,
}

impl Hello {
    fn emit(self) -> [u8; HELLO_BYTES] {
        emit(self.skip_us, self.span_us)
    }

    fn parse(bytes: [u8; HELLO_BYTES]) -> Self {
        let (skip_us, span_us) = parse(bytes);
        Self { skip_us, span_us }
    }
}

impl Answer {
    fn emit(self) -> [u8; ANSWER_BYTES] {
        emit(self.bytes, u64::from(self.right))
    }

    fn parse(bytes: [u8; ANSWER_BYTES]) -> Self {
        let (bytes, right) = parse(bytes);
        Self {
            bytes,
            right: right == 1,
        }
    }
}

fn emit(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) | u128::from(second) << 64).to_le_bytes()
}

fn parse(bytes: [u8; 16]) -> (u64, u64) {
    let word = |at: usize| {
        let half: [u8; 8] = bytes[at..at + 8]
            .try_into()
            .expect("invariant: half of sixteen bytes");
        u64::from_le_bytes(half)
    };
    (word(0), word(8))
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
    fn words_survive_the_wire() {
        let answer = Answer {
            bytes: 1 << 40,
            right: true,
        };
        assert_eq!(Answer::parse(answer.emit()), answer);
        let hello = Hello {
            skip_us: 1,
            span_us: u64::MAX,
        };
        assert_eq!(Hello::parse(hello.emit()), hello);
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
