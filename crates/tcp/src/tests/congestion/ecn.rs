//! ECN: who asks, who grants, what is marked, echoed and answered (RFC 3168, RFC 9768, RFC 8257).

use crate::tests::harness::{Script, Segment, plain, seg};
use crate::{Algorithm, Config, Connection, EcnMode, Instant, SeqNumber, Transmit};
use wire::ecn::Ecn;
use wire::tcp::{AccurateEcn, Flags};

const SYN_ASKS: u8 = 0b011;
const SYN_ASKS_ACCURATE: u8 = 0b111;

fn with(ecn: EcnMode) -> Config {
    let mut config = plain();
    config.options.ecn = ecn;
    config
}

/// AE, CWR and ECE as three bits.
fn ace(transmit: &Transmit) -> u8 {
    let flag = |flag| u8::from(transmit.header.flags.contains(flag));
    u8::from(transmit.header.ae) << 2 | flag(Flags::CWR) << 1 | flag(Flags::ECE)
}

trait Marked {
    fn ace(self, bits: u8) -> Self;
    fn counters(self, ect0: u32, ce: u32) -> Self;
}

impl Marked for Segment {
    fn ace(mut self, bits: u8) -> Self {
        self.header.ae = bits & 4 != 0;
        self.header.flags.set(Flags::CWR, bits & 2 != 0);
        self.header.flags.set(Flags::ECE, bits & 1 != 0);
        self
    }
    fn counters(mut self, ect0: u32, ce: u32) -> Self {
        self.header.options.accurate_ecn = Some(AccurateEcn {
            ect0: Some(ect0),
            ce: Some(ce),
            ect1: None,
        });
        self
    }
}

/// An active open with `config`, answered by `granted`; the ACK of the handshake is taken away.
fn opened(config: &Config, granted: u8) -> Script {
    let mut script = Script::connecting(config);
    script.sent();
    script.wait_us(1_000);
    script.arrives(seg("S.", 0, 1, b"").mss(1_000).win(60_000).ace(granted));
    script.sent();
    script.conn.rcv.quick_acks = 0;
    script
}

fn accepted(config: &Config, asked: u8) -> Script {
    let syn = seg("S", 0, 0, b"").mss(1_000).ace(asked);
    let mut script = Script::accepting(config, &syn);
    script.sent();
    script.arrives(seg(".", 1, 1, b"").ace(if asked == SYN_ASKS_ACCURATE { 0b010 } else { 0 }));
    script.conn.rcv.quick_acks = 0;
    script
}

fn arrives_marked(script: &mut Script, mark: Ecn, segment: &Segment) {
    let _ = script.conn.handle_marked_segment(
        script.now,
        mark,
        &segment.header,
        &segment.payload,
        &mut script.memory,
    );
}

#[test]
fn what_a_syn_asks_for_follows_the_mode() {
    for (mode, asks) in [
        (EcnMode::Off, 0),
        (EcnMode::Request, SYN_ASKS),
        (EcnMode::Accept, 0),
        (EcnMode::RequestAccurate, SYN_ASKS_ACCURATE),
        (EcnMode::RequestAcceptAccurate, SYN_ASKS),
        (EcnMode::AcceptAccurate, 0),
    ] {
        let sent = Script::connecting(&with(mode)).sent();
        assert_eq!(ace(&sent[0]), asks, "{mode:?}");
        assert_eq!(sent[0].ecn, Ecn::NotEct);
    }
}

#[test]
fn dctcp_asks_although_the_mode_only_grants() {
    let mut config = with(EcnMode::Accept);
    config.options.congestion = Algorithm::Dctcp;
    assert_eq!(ace(&Script::connecting(&config).sent()[0]), SYN_ASKS);
    config.options.ecn = EcnMode::Off;
    assert_eq!(ace(&Script::connecting(&config).sent()[0]), 0);
}

#[test]
fn a_syn_that_is_sent_again_asks_for_nothing() {
    let mut script = Script::connecting(&with(EcnMode::Request));
    script.sent();
    script.next_timer();
    assert_eq!(ace(&script.sent()[0]), 0);
}

#[test]
fn what_a_syn_ack_grants_follows_what_was_asked_and_the_mode() {
    for (mode, asked, granted) in [
        (EcnMode::Off, SYN_ASKS, 0),
        (EcnMode::Accept, SYN_ASKS, 0b001),
        (EcnMode::Accept, SYN_ASKS_ACCURATE, 0b001),
        (EcnMode::Accept, 0b101, 0),
        (EcnMode::Accept, 0, 0),
        (EcnMode::AcceptAccurate, SYN_ASKS, 0b001),
        (EcnMode::AcceptAccurate, SYN_ASKS_ACCURATE, 0b010),
        // RFC 9768 §3.1.3: what comes after accurate ECN is taken for it.
        (EcnMode::AcceptAccurate, 0b101, 0b010),
        (EcnMode::AcceptAccurate, 0, 0),
    ] {
        let syn = seg("S", 0, 0, b"").mss(1_000).ace(asked);
        let sent = Script::accepting(&with(mode), &syn).sent();
        assert_eq!(ace(&sent[0]), granted, "{mode:?} {asked:03b}");
        assert_eq!(sent[0].ecn, Ecn::NotEct, "RFC 3168 §6.1.1");
    }
}

#[test]
fn the_codepoint_of_the_syn_is_told_in_the_syn_ack() {
    for (mark, code) in [
        (Ecn::NotEct, 0b010),
        (Ecn::Ect1, 0b011),
        (Ecn::Ect0, 0b100),
        (Ecn::Ce, 0b110),
    ] {
        let syn = seg("S", 0, 0, b"").ace(SYN_ASKS_ACCURATE);
        let mut conn = Connection::accept(
            &with(EcnMode::AcceptAccurate),
            SeqNumber(1),
            Instant::ZERO,
            &syn.header,
        );
        conn.note_handshake_mark(mark);
        let sent = conn
            .poll_transmit(
                Instant::ZERO,
                &crate::tests::harness::LIMITS,
                &mut crate::NoPool,
            )
            .unwrap();
        assert_eq!(ace(&sent), code);
    }
}

#[test]
fn new_data_is_marked_and_nothing_else() {
    let mut script = opened(&with(EcnMode::Request), 0b001);
    script.writes(2_000);
    let sent = script.sent();
    assert!(sent.iter().all(|one| one.ecn == Ecn::Ect0 && ace(one) == 0));
    // RFC 3168 §6.1.5: a retransmission is not.
    script.next_timer();
    while script.conn.info().retransmissions == 0 {
        script.next_timer();
        if let Some(again) = script.sent().first() {
            assert_eq!(again.ecn, Ecn::NotEct);
        }
    }
    script.arrives(seg("P.", 1, 2_001, b"x").win(60_000));
    script.next_timer();
    let ack = script.sent();
    assert_eq!((ack[0].len, ack[0].ecn), (0, Ecn::NotEct));
}

#[test]
fn who_did_not_agree_marks_nothing() {
    // Refused, reflected by a broken middlebox, or granted what was not asked for.
    for granted in [0, 0b011, 0b111, 0b010] {
        let mut script = opened(&with(EcnMode::Request), granted);
        script.writes(1_000);
        assert_eq!(script.sent()[0].ecn, Ecn::NotEct, "{granted:03b}");
    }
    let mut script = opened(&with(EcnMode::Accept), 0b001);
    script.writes(1_000);
    assert_eq!(script.sent()[0].ecn, Ecn::NotEct);
}

#[test]
fn an_echo_halves_the_window_once_and_is_answered_by_cwr() {
    let mut script = opened(&with(EcnMode::Request), 0b001);
    script.writes(40_000);
    assert_eq!(script.sent().len(), 10);
    script.arrives(seg(".", 1, 2_001, b"").win(60_000).ace(0b001));
    // Half of what was in flight, not of what slow start has made of it since.
    assert_eq!(script.conn.info().cwnd, 5_000);
    script.arrives(seg(".", 1, 4_001, b"").win(60_000).ace(0b001));
    assert_eq!(script.conn.info().cwnd, 5_000, "the same window of data");
    assert!(script.sent().is_empty());
    script.arrives(seg(".", 1, 8_001, b"").win(60_000).ace(0b001));
    let sent = script.sent();
    assert_eq!(ace(&sent[0]), 0b010, "CWR, once");
    assert!(sent[1..].iter().all(|one| ace(one) == 0));
    script.arrives(seg(".", 1, 11_001, b"").win(60_000).ace(0b001));
    assert_eq!(script.conn.info().cwnd, 3_000, "the next window");
}

#[test]
fn congestion_is_echoed_until_the_peer_has_reacted() {
    let mut script = accepted(&with(EcnMode::Accept), SYN_ASKS);
    let data = |seq: u32| seg("P.", seq, 1, &[0; 1_000]);
    arrives_marked(&mut script, Ecn::Ect0, &data(1));
    arrives_marked(&mut script, Ecn::Ce, &data(1_001));
    assert_eq!(ace(&script.sent()[0]), 0b001);
    arrives_marked(&mut script, Ecn::Ect0, &data(2_001));
    arrives_marked(&mut script, Ecn::Ect0, &data(3_001));
    assert_eq!(ace(&script.sent()[0]), 0b001, "still");
    arrives_marked(&mut script, Ecn::Ect0, &data(4_001).ace(0b010));
    arrives_marked(&mut script, Ecn::Ect0, &data(5_001));
    assert_eq!(ace(&script.sent()[0]), 0);
    // Marked again in the very segment that says CWR.
    arrives_marked(&mut script, Ecn::Ce, &data(6_001).ace(0b010));
    arrives_marked(&mut script, Ecn::Ect0, &data(7_001));
    assert_eq!(ace(&script.sent()[0]), 0b001);
}

#[test]
fn dctcp_echoes_what_the_last_segment_said() {
    let mut config = with(EcnMode::Accept);
    config.options.congestion = Algorithm::Dctcp;
    let mut script = accepted(&config, SYN_ASKS);
    for (seq, mark, echo) in [(1, Ecn::Ce, 0b001), (1_001, Ecn::Ect0, 0)] {
        arrives_marked(&mut script, mark, &seg("P.", seq, 1, &[0; 1_000]));
        assert_eq!(ace(&script.sent()[0]), echo, "at once: RFC 8257 §3.2");
    }
}

#[test]
fn accurate_feedback_counts_packets_and_bytes() {
    let mut script = accepted(&with(EcnMode::AcceptAccurate), SYN_ASKS_ACCURATE);
    let data = |seq: u32| seg("P.", seq, 1, &[0; 1_000]);
    arrives_marked(&mut script, Ecn::Ect0, &data(1));
    arrives_marked(&mut script, Ecn::Ect0, &data(1_001));
    let sent = script.sent();
    assert_eq!(ace(&sent[0]), 5, "no mark yet");
    let counters = sent[0].header.options.accurate_ecn.unwrap();
    assert_eq!((counters.ect0, counters.ce), (Some(2_001), Some(0)));
    arrives_marked(&mut script, Ecn::Ect0, &data(2_001));
    arrives_marked(&mut script, Ecn::Ect0, &data(3_001));
    let sent = script.sent();
    assert_eq!(sent[0].header.options.accurate_ecn, None, "no news");
    arrives_marked(&mut script, Ecn::Ce, &data(4_001));
    arrives_marked(&mut script, Ecn::Ce, &data(5_001));
    let sent = script.sent();
    assert_eq!(ace(&sent[0]), 7);
    let counters = sent[0].header.options.accurate_ecn.unwrap();
    assert_eq!(
        (counters.ect0, counters.ce, counters.ect1),
        (Some(4_001), Some(2_000), None)
    );
    arrives_marked(&mut script, Ecn::Ce, &data(6_001));
    arrives_marked(&mut script, Ecn::Ect1, &data(7_001));
    let sent = script.sent();
    assert_eq!(ace(&sent[0]), 0, "modulo eight");
    assert_eq!(
        sent[0].header.options.accurate_ecn.unwrap().ect1,
        Some(1_001)
    );
}

#[test]
fn an_ack_for_more_packets_than_three_bits_can_count_has_the_option() {
    let mut script = accepted(&with(EcnMode::AcceptAccurate), SYN_ASKS_ACCURATE);
    let data = |nth: u32| seg("P.", 1 + 1_000 * nth, 1, &[0; 1_000]);
    for (first, count, is_told) in [(0, 2, true), (2, 7, false), (9, 8, true), (17, 2, false)] {
        for nth in first..first + count {
            arrives_marked(&mut script, Ecn::Ect0, &data(nth));
        }
        let sent = script.sent();
        let told = sent[0].header.options.accurate_ecn.is_some();
        assert_eq!(told, is_told, "{count} after {first}");
    }
}

#[test]
fn the_first_ack_tells_what_became_of_the_syn_ack() {
    let mut script = Script::connecting(&with(EcnMode::RequestAccurate));
    script.sent();
    let syn_ack = seg("S.", 0, 1, b"").mss(1_000).win(60_000).ace(0b010);
    arrives_marked(&mut script, Ecn::Ce, &syn_ack);
    let sent = script.sent();
    assert_eq!(ace(&sent[0]), 0b110);
    assert!(
        sent[0].header.options.accurate_ecn.is_some(),
        "options get through"
    );
    script.writes(1_000);
    let sent = script.sent();
    assert_eq!(
        (ace(&sent[0]), sent[0].ecn),
        (6, Ecn::Ect0),
        "the SYN-ACK counts"
    );
}

#[test]
fn a_path_that_zeroes_the_bits_is_not_trusted_with_marks() {
    let syn = seg("S", 0, 0, b"").mss(1_000).ace(SYN_ASKS_ACCURATE);
    let mut script = Script::accepting(&with(EcnMode::AcceptAccurate), &syn);
    script.sent();
    script.arrives(seg(".", 1, 1, b"").win(60_000).ace(0));
    script.writes(1_000);
    assert_eq!(script.sent()[0].ecn, Ecn::NotEct);
}

#[test]
fn accurate_marks_reduce_once_per_window_by_option_or_by_ace() {
    for with_option in [true, false] {
        let mut script = opened(&with(EcnMode::RequestAccurate), 0b010);
        script.writes(40_000);
        assert_eq!(script.sent().len(), 10);
        let ack = |end: u32, ace: u8, ce: u32| {
            let ack = seg(".", 1, end, b"").win(60_000).ace(ace);
            if with_option {
                ack.counters(1, ce)
            } else {
                ack
            }
        };
        script.arrives(ack(2_001, 5, 0));
        let before = script.conn.info().cwnd;
        script.arrives(ack(4_001, 6, 1_000));
        let reduced = script.conn.info().cwnd;
        assert!(reduced < before, "{with_option}: {reduced}");
        script.arrives(ack(6_001, 7, 2_000));
        assert_eq!(script.conn.info().cwnd, reduced, "{with_option}");
        // The same counters again are no news.
        script.sent();
        script.arrives(ack(14_001, 7, 2_000));
        assert!(script.conn.info().cwnd >= reduced, "{with_option}");
    }
}

#[test]
fn bytes_that_ace_has_told_are_not_told_again_by_the_option() {
    let mut script = opened(&with(EcnMode::RequestAccurate), 0b010);
    script.writes(40_000);
    script.sent();
    let header = |segment: Segment| segment.header;
    let mut marked = |segment| script.conn.marked_bytes(&header(segment), 2_000);
    assert_eq!(marked(seg(".", 1, 1, b"").ace(6)), 1_000);
    assert_eq!(marked(seg(".", 1, 1, b"").ace(6).counters(1, 1_000)), 0);
    assert_eq!(marked(seg(".", 1, 1, b"").ace(0).counters(1, 2_500)), 1_500);
    // An old ACK that arrives late, and a lie beyond what was delivered.
    assert_eq!(marked(seg(".", 1, 1, b"").ace(0).counters(1, 1_000)), 0);
    assert_eq!(
        marked(seg(".", 1, 1, b"").ace(0).counters(1, 900_000)),
        2_000
    );
}

#[test]
fn without_options_three_bits_that_may_have_gone_round_mean_the_worst() {
    let mut script = opened(&with(EcnMode::RequestAccurate), 0b010);
    let ack = seg(".", 1, 1, b"").ace(6).header;
    // Twelve segments acknowledged at once: one mark or nine.
    assert_eq!(script.conn.marked_bytes(&ack, 12_000), 9_000);
}
