//! Segments from somebody who knows addresses and ports but not the numbers (RFC 5961, RFC 7323 §5.3,
//! RFC 1337): at the edges of what could pass, and at random. None ends the connection, none leaves a byte,
//! and what they make us answer is bounded.

use crate::tests::harness::{IRS, ISS, Script, Segment, plain, seg};
use crate::{Config, Events, State};
use proptest::prelude::*;
use wire::tcp::Flags;

/// Bytes of the receive window in these cases.
const WINDOW: u32 = 65_535;
/// Bytes that we have sent and the peer has acknowledged.
const SENT: u32 = 3_000;

/// An established connection that has sent and received something.
fn victim(config: &Config) -> Script {
    let mut script = Script::established(config);
    script.writes(u64::from(SENT));
    script.sent();
    script.arrives(seg("P.", 1, SENT + 1, b"hello"));
    script.consumes_all();
    script.wait_us(50_000);
    let _ = script.times_out();
    script.sent();
    assert_eq!(script.conn.readable_end(), 5);
    script
}

/// The numbers around which an implementation may be wrong by one, relative to the initial one.
fn edges(next: u32) -> Vec<u32> {
    let around = [
        0,
        next,
        next + WINDOW,
        next.wrapping_sub(WINDOW),
        next + WINDOW / 2,
        1 << 31,
        next.wrapping_add(1 << 31),
    ];
    around
        .into_iter()
        .flat_map(|at| [at.wrapping_sub(1), at, at.wrapping_add(1)])
        .collect()
}

#[track_caller]
fn is_unharmed(script: &Script) {
    assert_eq!(script.conn.state(), State::Established);
    assert_eq!(script.conn.error(), None);
    assert_eq!(script.conn.readable_end(), 5);
    assert_eq!(script.memory.bytes, b"hello");
}

#[test]
fn a_reset_counts_at_exactly_one_number() {
    for seq in edges(6).into_iter().filter(|seq| *seq != 6) {
        for flags in ["R", "R."] {
            let mut script = victim(&plain());
            script.arrives(seg(flags, seq, SENT + 1, b""));
            is_unharmed(&script);
            assert!(script.sent().len() <= 1, "at most a challenge");
        }
    }
    let mut script = victim(&plain());
    script.arrives(seg("R", 6, 0, b""));
    assert_eq!(script.conn.state(), State::Closed, "the one that counts");
}

#[test]
fn a_syn_changes_nothing_wherever_it_falls() {
    for seq in edges(6) {
        for flags in ["S", "S.", "SF", "SP."] {
            let mut script = victim(&plain());
            script.arrives(seg(flags, seq, SENT + 1, b"evil"));
            is_unharmed(&script);
        }
    }
}

#[test]
fn data_with_an_impossible_acknowledgement_is_not_taken() {
    // RFC 5961 §5.2: what was never sent, or older than the largest window the peer ever offered.
    let too_old = (SENT + 1).wrapping_sub(32_000);
    for ack in [
        SENT + 2,
        SENT + 1 + (1 << 31),
        too_old.wrapping_sub(1),
        (SENT + 1).wrapping_sub(1 << 30),
    ] {
        let mut script = victim(&plain());
        script.arrives(seg("P.", 6, ack, b"evil"));
        is_unharmed(&script);
        script.arrives(seg("F.", 6, ack, b""));
        is_unharmed(&script);
    }
}

#[test]
fn data_without_an_acknowledgement_is_not_taken() {
    let mut script = victim(&plain());
    script.arrives(seg("P", 6, 0, b"evil"));
    script.arrives(seg("F", 6, 0, b"evil"));
    script.arrives(seg("", 6, 0, b"evil"));
    is_unharmed(&script);
}

fn stamped() -> Script {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut script = Script::connecting(&config);
    script.sent();
    script.arrives(seg("S.", 0, 1, b"").mss(1_000).ts(5_000, 0));
    script.sent();
    script.arrives(seg("P.", 1, 1, b"hello").ts(5_001, 0));
    script.consumes_all();
    script.wait_us(50_000);
    let _ = script.times_out();
    script.sent();
    script
}

#[test]
fn an_old_timestamp_disqualifies_what_is_right_otherwise() {
    let cases: [fn(Segment) -> Segment; 3] = [
        |data| data.ts(4_999, 0),
        |data| data.ts(5_001_u32.wrapping_sub(1 << 31).wrapping_add(1), 0),
        |data| data.ts(0, 0),
    ];
    for stamp in cases {
        let mut script = stamped();
        script.arrives(stamp(seg("P.", 6, 1, b"evil")));
        is_unharmed(&script);
    }
    let mut script = stamped();
    script.arrives(seg("P.", 6, 1, b" again").ts(5_002, 0));
    assert_eq!(script.memory.bytes, b"hello again");
}

#[test]
fn a_segment_without_the_timestamps_that_were_agreed_upon_is_taken_as_linux_does() {
    let mut script = stamped();
    let before = script.conn.rcv.ts_recent;
    script.arrives(seg("P.", 6, 1, b" again"));
    assert_eq!(script.memory.bytes, b"hello again");
    assert_eq!(script.conn.rcv.ts_recent, before);
    // Those that have one are judged as before.
    script.arrives(seg("P.", 12, 1, b"evil").ts(4_999, 0));
    assert_eq!(script.memory.bytes, b"hello again");
}

#[test]
fn scattered_data_takes_a_bounded_number_of_places() {
    let mut script = victim(&plain());
    for n in 0..10_000_u32 {
        script.arrives(seg("P.", 8 + (n * 7_919) % WINDOW, SENT + 1, b"e"));
        script.sent();
    }
    // Of the block that is lent, or of what a row holds without one.
    let ranges = script.conn.rcv.out_of_order.count();
    assert!((900..=1_024).contains(&ranges), "{ranges} ranges");
    assert_eq!(script.conn.readable_end(), 5);
    let len = script.memory.bytes.len();
    assert!(len <= 5 + 65_536, "{len} bytes of a window of 65536");
}

#[test]
fn challenges_are_limited_for_each_connection_by_itself() {
    // CVE-2016-5696: a limit that connections share lets a stranger count what another one was sent.
    let (mut one, mut other) = (victim(&plain()), victim(&plain()));
    let mut challenged = 0;
    for _ in 0..10_000 {
        one.arrives(seg("R", 100, 0, b""));
        challenged += one.sent().len();
    }
    assert_eq!(challenged, 10);
    other.arrives(seg("R", 100, 0, b""));
    other.leaves(&[". 3001:3001 ack 6"]);
}

proptest! {
    #[test]
    fn guesses_do_no_harm(
        guesses in proptest::collection::vec((any::<u32>(), any::<u32>(), 0_u8..64, 0_usize..40), 1..60),
    ) {
        let mut script = victim(&plain());
        for (seq, ack, flags, len) in guesses {
            // Whoever guesses both numbers is not blind.
            let knows_seq = seq.wrapping_sub(6) <= WINDOW || seq == 6;
            let knows_ack = (SENT + 1).wrapping_sub(ack) <= 65_535;
            if knows_seq && (knows_ack || seq == 6) {
                continue;
            }
            let mut guess = seg("", 0, 0, &vec![0xee; len]);
            guess.header.seq = IRS.wrapping_add(seq);
            guess.header.ack = ISS.wrapping_add(ack);
            guess.header.flags = Flags::from_bits_truncate(flags);
            let events = script.arrives(guess);
            prop_assert!(!events.intersects(Events::READABLE | Events::ERROR | Events::CLOSED | Events::FIN));
            prop_assert!(script.sent().len() <= 1);
        }
        is_unharmed(&script);
        // The real peer goes on as if nothing had been.
        script.arrives(seg("P.", 6, SENT + 1, b" world"));
        prop_assert_eq!(&script.memory.bytes[..], &b"hello world"[..]);
    }
}
