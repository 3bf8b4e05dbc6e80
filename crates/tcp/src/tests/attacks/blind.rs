//! Segments of somebody who knows addresses, ports and RCV.NXT but not what we have sent, or who knows less
//! (RFC 5961, RFC 7323 §4.3 and §5.3): each gets at most one answer, and the connection stays as it was in
//! everything but what that answer needs. Otherwise a timestamp that nobody judged would make PAWS drop
//! the real peer, and a forged segment would count as a sign of life.

use crate::tests::harness::{IRS, Script, Segment, plain, seg};
use crate::{
    Config, Connection, EcnMode, Instant, SocketOptions, State, TimeWaitAction, counters::Counters,
};
use wire::ecn::Ecn;
use wire::tcp::Flags;

/// Of the peer's clock, so far ahead that what the real peer sends next is old beside it.
const POISON: u32 = 1_000_000_000;
/// What the peer's clock says in the last segment that counted.
const CLOCK: u32 = 5_001;
/// SND.NXT in these cases; all but the last thousand bytes is acknowledged.
const SENT: u32 = 3_001;
const ACKNOWLEDGED: u32 = 2_001;

/// A connection with timestamps, accurate ECN, data in flight and a keep-alive probe unanswered.
fn victim() -> Script {
    let config = Config {
        timestamps: true,
        options: SocketOptions {
            keepalive: true,
            ecn: EcnMode::RequestAccurate,
            ..plain().options
        },
        ..plain()
    };
    let mut script = Script::connecting(&config);
    script.sent();
    script.wait_us(1_000);
    let mut syn_ack = seg("S.", 0, 1, b"").mss(1_000).ts(5_000, 0);
    syn_ack.header.flags |= Flags::CWR;
    script.arrives(syn_ack);
    script.sent();
    script.arrives(seg("P.", 1, 1, b"hello").ts(CLOCK, 0));
    script.consumes_all();
    script.writes(2_000);
    script.sent();
    script.wait_us(1_000);
    script.arrives(seg(".", 6, ACKNOWLEDGED, b"").ts(CLOCK, 0));
    script.writes(1_000);
    script.sent();
    script.conn.timers.keepalive_probes = 2;
    script.wait_us(7_000);
    script
}

/// All that the connection is, but for what it owes as an answer and what `TCP_INFO` counts.
fn essence(conn: &Connection) -> String {
    let mut conn = *conn;
    conn.counters = Counters::default();
    conn.rcv.ack_now = false;
    conn.rcv.duplicate_acks_owed = 0;
    conn.rcv.challenge_acks = 0;
    conn.rcv.challenge_since = Instant::ZERO;
    (conn.rcv.duplicate_start, conn.rcv.duplicate_end) = (0, 0);
    (conn.reset_reply_owed, conn.reset_reply_seq) = (false, 0);
    format!("{conn:#?}")
}

fn arrives_marked(script: &mut Script, segment: &Segment, mark: Ecn) {
    let (header, payload) = (&segment.header, &segment.payload);
    script
        .conn
        .handle_marked_segment(script.now, mark, header, payload, &mut script.memory);
}

fn poisoned(flags: &str, seq: u32, ack: u32, payload: &[u8]) -> Segment {
    let mut segment = seg(flags, seq, ack, payload).win(1).ts(POISON, 7);
    segment.header.flags |= Flags::ECE;
    segment
}

/// What arrives, by name; RCV.NXT is 6, SND.UNA 2,001 and SND.NXT 3,001.
fn cases() -> Vec<(&'static str, Segment)> {
    let too_old = ACKNOWLEDGED.wrapping_sub(32_001);
    vec![
        (
            "bare ACK of what was never sent",
            poisoned(".", 6, SENT + 1, b""),
        ),
        (
            "data with such an ACK",
            poisoned("P.", 6, SENT + 1, b"evil"),
        ),
        ("FIN with such an ACK", poisoned("F.", 6, SENT + 1, b"")),
        (
            "URG with such an ACK",
            poisoned("P.", 6, SENT + 1, b"evil").urgent(1),
        ),
        (
            "ACK of half the numbers ahead",
            poisoned(".", 6, ACKNOWLEDGED + (1 << 31), b""),
        ),
        ("ACK older than any window", poisoned(".", 6, too_old, b"")),
        (
            "data with such an ACK of old",
            poisoned("P.", 6, too_old, b"evil"),
        ),
        (
            "beyond a hole, ACK of the future",
            poisoned("P.", 60, SENT + 9, b"evil"),
        ),
        ("data without ACK", poisoned("P", 6, 0, b"evil")),
        ("RST within the window", poisoned("R", 7, 0, b"")),
        (
            "RST+ACK within the window",
            poisoned("R.", 7, ACKNOWLEDGED, b""),
        ),
        ("SYN at RCV.NXT", poisoned("S", 6, 0, b"")),
        ("SYN+ACK at RCV.NXT", poisoned("S.", 6, ACKNOWLEDGED, b"")),
        ("SYN of the handshake", poisoned("S", 0, 0, b"")),
        ("ACK below the window", poisoned(".", 5, ACKNOWLEDGED, b"")),
        (
            "data below the window",
            poisoned("P.", 1, ACKNOWLEDGED, b"evil"),
        ),
        (
            "ACK beyond the window",
            poisoned(".", 200_000, ACKNOWLEDGED, b""),
        ),
        (
            "data beyond the window",
            poisoned("P.", 200_000, ACKNOWLEDGED, b"evil"),
        ),
        ("RST beyond the window", poisoned("R", 200_000, 0, b"")),
        (
            "an older timestamp",
            seg("P.", 6, ACKNOWLEDGED, b"evil").win(1).ts(CLOCK - 1, 7),
        ),
    ]
}

#[test]
fn what_is_not_acceptable_in_all_respects_changes_nothing() {
    for (name, segment) in cases() {
        let mut script = victim();
        let before = essence(&script.conn);
        arrives_marked(&mut script, &segment, Ecn::Ce);
        assert_eq!(essence(&script.conn), before, "{name}");
        assert!(script.sent().len() <= 1, "{name}: more than one answer");
        // The peer goes on by its own clock and is heard.
        script.arrives(seg("P.", 6, SENT, b" world").ts(CLOCK + 3, 0));
        assert_eq!(script.memory.bytes, b"hello world", "{name}");
        assert_eq!(script.conn.info().last_received, script.now, "{name}");
    }
}

#[test]
fn what_is_acceptable_is_taken_in_all_respects() {
    // The table above would prove nothing of a connection that takes nothing.
    let mut script = victim();
    let segment = seg("P.", 6, SENT, b" world").win(1).ts(CLOCK + 9, 0);
    arrives_marked(&mut script, &segment, Ecn::Ce);
    let conn = &script.conn;
    assert_eq!(conn.rcv.ts_recent, CLOCK + 9);
    assert_eq!(conn.timers.last_received, script.now);
    assert_eq!(conn.timers.keepalive_probes, 0);
    assert_eq!(conn.snd.window, 1);
    assert_ne!(
        format!("{:?}", conn.ecn),
        format!("{:?}", victim().conn.ecn)
    );
}

#[test]
fn forged_segments_do_not_keep_a_dead_peer_alive() {
    let config = Config {
        options: SocketOptions {
            keepalive: true,
            ..plain().options
        },
        ..plain()
    };
    let mut script = Script::established(&config);
    let mut timers = 0;
    while script.conn.state() == State::Established {
        script.next_timer();
        script.sent();
        script.arrives(seg(".", 1, 500, b""));
        script.arrives(seg(".", 0, 1, b""));
        script.sent();
        timers += 1;
        assert!(timers < 100, "for ever");
    }
    assert_eq!(script.conn.error(), Some(crate::ConnectionError::TimedOut));
}

#[test]
fn a_handshake_is_not_moved_by_an_impossible_acknowledgement() {
    let config = Config {
        timestamps: true,
        options: SocketOptions {
            ecn: EcnMode::RequestAccurate,
            ..plain().options
        },
        ..plain()
    };
    let mut script = Script::connecting(&config);
    script.sent();
    arrives_marked(&mut script, &poisoned("S.", 0, 900, b""), Ecn::Ce);
    script.leaves(&["R 900:900", "S 0:0"]);
    let before = essence(&script.conn);
    arrives_marked(&mut script, &poisoned("S.", 0, 900, b""), Ecn::Ce);
    assert_eq!(essence(&script.conn), before, "SYN-SENT");
    script.leaves(&["R 900:900"]);

    let mut script = Script::accepting(&config, &seg("S", 0, 0, b"").ts(CLOCK, 0));
    script.sent();
    let before = essence(&script.conn);
    arrives_marked(&mut script, &poisoned("P.", 1, 900, b"evil"), Ecn::Ce);
    assert_eq!(essence(&script.conn), before, "SYN-RECEIVED");
    script.leaves(&["R 900:900"]);
    script.arrives(seg("P.", 1, 1, b"hello").ts(CLOCK + 1, 0));
    assert_eq!(script.memory.bytes, b"hello");
}

#[test]
fn a_fin_elsewhere_does_not_prolong_time_wait() {
    let mut script = Script::established(&plain());
    script.conn.close(script.now);
    script.sent();
    script.arrives(seg("F.", 1, 2, b""));
    let mut record = script.conn.time_wait(script.now);
    let ends = record.deadline();
    script.wait_us(2_000_000);
    for seq in [0, 2, 3, 70_000, 1 << 31] {
        let mut fin = seg("F.", 0, 2, b"");
        fin.header.seq = IRS.wrapping_add(seq);
        let action = record.handle_segment(script.now, &fin.header, 0);
        assert!(!matches!(action, TimeWaitAction::Reopen { .. }), "{seq}");
        assert_eq!(record.deadline(), ends, "{seq}");
    }
    record.handle_segment(script.now, &seg("F.", 1, 2, b"").header, 0);
    assert!(record.deadline() > ends, "the peer's own FIN");
}
