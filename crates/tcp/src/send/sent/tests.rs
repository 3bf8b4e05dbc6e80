//! The table against what is true of every single byte.

use super::*;
use crate::send::flight_pool::{NoPool, OneBlock};
use proptest::prelude::*;
use zerocopy::FromZeros as _;

fn at(us: u64) -> Instant {
    Instant::from_us(us)
}

const NO_JOIN: Duration = Duration::ZERO;

impl Table<'_> {
    /// Everything below `una` is acknowledged. `visit` sees what was in flight there, lowest first.
    fn release(&mut self, now: Instant, una: u64, mut visit: impl FnMut(&Piece)) {
        while let Some(piece) = self.release_next(now, una) {
            visit(&piece);
        }
    }
}

fn pieces(sent: &mut Sent, now: Instant) -> Vec<(u64, u64, Marks)> {
    sent.table(&mut NoPool)
        .pieces(now)
        .map(|p| (p.start, p.end, p.marks))
        .collect()
}

#[test]
fn a_large_segment_is_one_run_until_an_ack_splits_it() {
    let mut sent = Sent::new_zeroed();
    sent.table(&mut NoPool).append(at(10), 1, 64_001, NO_JOIN);
    assert_eq!(pieces(&mut sent, at(20)), [(1, 64_001, Marks::empty())]);
    let mut seen = Vec::new();
    let held = sent.table(&mut NoPool).sack(at(30), 1_001, 3_001, |piece| {
        seen.push((piece.start, piece.sent))
    });
    assert_eq!((held, seen), (2_000, vec![(1_001, at(10))]));
    assert_eq!(
        pieces(&mut sent, at(30)),
        [
            (1, 1_001, Marks::empty()),
            (1_001, 3_001, Marks::SACKED),
            (3_001, 64_001, Marks::empty())
        ]
    );
    assert_eq!(sent.in_flight(), 62_000);
    assert_eq!(
        sent.table(&mut NoPool)
            .sack(at(40), 1_501, 3_001, |_| panic!("it is known")),
        0
    );
}

#[test]
fn what_is_sent_again_keeps_its_neighbours_as_they_were() {
    let mut sent = Sent::new_zeroed();
    sent.table(&mut NoPool).append(at(10), 1, 10_001, NO_JOIN);
    assert_eq!(sent.table(&mut NoPool).mark_lost(at(50), |_| true), 10_000);
    assert_eq!(sent.next_lost(&mut NoPool), Some((1, 10_001)));
    sent.table(&mut NoPool).resend(at(60), 1, 1_001);
    assert_eq!(sent.next_lost(&mut NoPool), Some((1_001, 10_001)));
    sent.table(&mut NoPool).resend(at(60), 1_001, 2_001);
    let again: Vec<_> = sent
        .table(&mut NoPool)
        .pieces(at(70))
        .map(|p| (p.end, p.sent))
        .collect();
    assert_eq!(again, [(2_001, at(60)), (10_001, at(10))]);
    assert_eq!((sent.lost(), sent.in_flight()), (8_000, 2_000));
    assert_eq!(sent.resent(), 2_000);
    // Again lost, or held: it waits for no answer to what was sent again.
    sent.table(&mut NoPool).mark_front_lost(at(80), 1_001);
    assert_eq!((sent.lost(), sent.resent()), (9_000, 1_000));
    sent.table(&mut NoPool).sack(at(90), 1_501, 2_001, |_| ());
    assert_eq!(sent.resent(), 500);
    sent.table(&mut NoPool).release(at(95), 1_701, |_| ());
    assert_eq!(sent.resent(), 0);
}

#[test]
fn an_ack_inside_a_run_leaves_the_rest_in_flight() {
    let mut sent = Sent::new_zeroed();
    sent.table(&mut NoPool).append(at(10), 1, 3_001, NO_JOIN);
    sent.table(&mut NoPool)
        .append(at(20), 3_001, 6_001, NO_JOIN);
    let mut seen = Vec::new();
    sent.table(&mut NoPool)
        .release(at(90), 4_001, |piece| seen.push((piece.end, piece.sent)));
    assert_eq!(seen, [(3_001, at(10)), (4_001, at(20))]);
    assert_eq!(pieces(&mut sent, at(90)), [(4_001, 6_001, Marks::empty())]);
    sent.table(&mut NoPool).release(at(95), 6_001, |_| ());
    assert!(sent.is_empty());
    assert_eq!(sent.in_flight(), 0);
}

#[test]
fn a_receiver_that_asks_for_what_it_held_has_renounced() {
    let mut sent = Sent::new_zeroed();
    sent.table(&mut NoPool).append(at(10), 1, 3_001, NO_JOIN);
    sent.table(&mut NoPool).sack(at(20), 1_001, 3_001, |_| ());
    assert!(!sent.is_renounced(&mut NoPool));
    sent.table(&mut NoPool).release(at(30), 1_001, |_| ());
    assert!(sent.is_renounced(&mut NoPool));
    sent.table(&mut NoPool).forget_sacks();
    assert_eq!(
        (sent.is_renounced(&mut NoPool), sent.in_flight()),
        (false, 2_000)
    );
}

#[test]
fn every_other_segment_of_a_long_flight_is_remembered_and_the_block_comes_back() {
    let (mut sent, mut pool) = (Sent::new_zeroed(), OneBlock::of(1_024));
    for nth in 0..100 {
        let start = 1 + 1_000 * nth;
        sent.table(&mut pool)
            .append(at(10 * nth), start, start + 1_000, NO_JOIN);
    }
    assert!(pool.is_lent);
    for nth in (1..100).step_by(2) {
        let start = 1 + 1_000 * nth;
        let mut table = sent.table(&mut pool);
        assert_eq!(
            table.sack(at(2_000), start, start + 1_000, |_| ()),
            1_000,
            "{nth}"
        );
    }
    assert_eq!(sent.table(&mut pool).mark_lost(at(3_000), |_| true), 50_000);
    assert_eq!(sent.next_lost(&mut pool), Some((1, 1_001)));
    sent.table(&mut pool).release(at(4_000), 98_001, |_| ());
    sent.settle(&mut pool);
    assert!(!pool.is_lent);
    assert_eq!(
        pieces(&mut sent, at(4_000)),
        [
            (98_001, 99_001, Marks::LOST),
            (99_001, 100_001, Marks::SACKED)
        ]
    );
}

#[test]
fn of_a_flight_whose_block_is_gone_nothing_is_known_but_that_it_left() {
    let (mut sent, mut pool) = (Sent::new_zeroed(), OneBlock::of(1_024));
    for nth in 0..20 {
        let start = 1 + 1_000 * nth;
        sent.table(&mut pool)
            .append(at(10 * nth), start, start + 1_000, NO_JOIN);
    }
    sent.table(&mut pool).sack(at(500), 5_001, 6_001, |_| ());
    assert_eq!((sent.leave_block(), sent.leave_block()), (1, 0));
    assert_eq!(
        pieces(&mut sent, at(600)),
        [(1, 20_001, Marks::RETRANSMITTED)]
    );
    assert_eq!((sent.sacked(), sent.in_flight()), (0, 20_000));
}

/// The truth about one byte in flight.
#[derive(Clone, Copy, Debug)]
struct Byte {
    sent: Instant,
    retransmitted: bool,
    sacked: bool,
    /// It was sent before the time that someone once called too early.
    may_be_lost: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Send { len: u64, quantum_us: u64 },
    Ack { portion: u64 },
    Sack { from: u64, len: u64 },
    Lose { older_than_us: u64 },
    LoseFront { len: u64 },
    Resend { from: u64, len: u64 },
    ResendLost { len: u64 },
    Forget,
    Wait { us: u64 },
}

fn step(acks: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_u64..40, prop_oneof![Just(0_u64), 0_u64..200]).prop_map(|(len, quantum_us)| Step::Send { len, quantum_us }),
        acks => (0_u64..100).prop_map(|portion| Step::Ack { portion }),
        8 => (0_u64..1_000, 1_u64..12).prop_map(|(from, len)| Step::Sack { from, len }),
        2 => (0_u64..400).prop_map(|older_than_us| Step::Lose { older_than_us }),
        1 => (1_u64..30).prop_map(|len| Step::LoseFront { len }),
        2 => (0_u64..1_000, 1_u64..30).prop_map(|(from, len)| Step::Resend { from, len }),
        4 => (1_u64..30).prop_map(|len| Step::ResendLost { len }),
        acks => Just(Step::Forget),
        6 => prop_oneof![0_u64..100, Just(70_000)].prop_map(|us| Step::Wait { us }),
    ]
}

struct Model {
    sent: Sent,
    pool: OneBlock,
    una: u64,
    bytes: std::collections::VecDeque<Byte>,
    now: Instant,
    crowded: bool,
}

impl Model {
    fn max(&self) -> u64 {
        self.una + self.bytes.len() as u64
    }

    fn range(&mut self, start: u64, end: u64) -> impl Iterator<Item = &mut Byte> {
        let (from, to) = (start - self.una, end - self.una);
        self.bytes
            .range_mut(usize::try_from(from).unwrap()..usize::try_from(to).unwrap())
    }

    fn act(&mut self, step: &Step) {
        let (now, una, max) = (self.now, self.una, self.max());
        let clip = |from: u64, len: u64| {
            let start = una + from % (max - una).max(1);
            (start, (start + len).min(max))
        };
        match *step {
            Step::Send { len, quantum_us } => self.send(len, quantum_us),
            Step::Ack { portion } => self.acknowledge((max - una) * portion / 99),
            Step::Sack { from, len } => self.sack(clip(from, len)),
            Step::Lose { older_than_us } => {
                let limit = now - Duration::from_us(older_than_us);
                self.sent
                    .table(&mut self.pool)
                    .mark_lost(now, |piece| piece.sent <= limit);
                self.range(una, max)
                    .for_each(|byte| byte.may_be_lost |= byte.sent <= limit);
            }
            Step::LoseFront { len } => {
                // Room for the border is not promised: then the whole run is given up.
                let before = self
                    .sent
                    .table(&mut self.pool)
                    .pieces(now)
                    .next()
                    .map_or(una, |piece| piece.end);
                self.sent
                    .table(&mut self.pool)
                    .mark_front_lost(now, una + len);
                self.range(una, before)
                    .for_each(|byte| byte.may_be_lost = true);
            }
            Step::Resend { from, len } => self.resend(clip(from, len)),
            Step::ResendLost { len } => {
                if let Some((start, end)) = self.sent.next_lost(&mut self.pool) {
                    self.resend((start, end.min(start + len)));
                    assert_ne!(
                        self.sent.next_lost(&mut self.pool).map(|next| next.0),
                        Some(start)
                    );
                }
            }
            Step::Forget => {
                self.sent.table(&mut self.pool).forget_sacks();
                self.range(una, max).for_each(|byte| byte.sacked = false);
            }
            Step::Wait { us } => self.now += Duration::from_us(us),
        }
    }

    fn send(&mut self, len: u64, quantum_us: u64) {
        let (now, max) = (self.now, self.max());
        let quantum = Duration::from_us(quantum_us);
        self.sent
            .table(&mut self.pool)
            .append(now, max, max + len, quantum);
        let byte = Byte {
            sent: now,
            retransmitted: false,
            sacked: false,
            may_be_lost: false,
        };
        self.bytes.extend((0..len).map(|_| byte));
    }

    fn acknowledge(&mut self, len: u64) {
        let mut next = self.una;
        self.una += len;
        self.sent
            .table(&mut self.pool)
            .release(self.now, self.una, |piece| {
                assert_eq!(piece.start, next, "each byte once, in order");
                next = piece.end;
            });
        assert_eq!(next, self.una);
        self.bytes.drain(..usize::try_from(len).unwrap());
    }

    fn sack(&mut self, (start, end): (u64, u64)) {
        let mut reported = 0;
        let held = self
            .sent
            .table(&mut self.pool)
            .sack(self.now, start, end, |piece| {
                assert!(start <= piece.start && piece.end <= end);
                assert!(!piece.marks.contains(Marks::SACKED));
                reported += piece.len();
            });
        assert_eq!(held, reported);
        self.range(start, end).for_each(|byte| byte.sacked = true);
    }

    fn resend(&mut self, (start, end): (u64, u64)) {
        let now = self.now;
        // What the table knows to be held does not leave again.
        let pieces: Vec<Piece> = self.sent.table(&mut self.pool).pieces(now).collect();
        let not_held = |piece: &&Piece| !piece.marks.contains(Marks::SACKED);
        for piece in pieces.iter().filter(not_held) {
            let (from, to) = (piece.start.max(start), piece.end.min(end));
            for byte in self.range(from.min(to), to) {
                (byte.sent, byte.retransmitted, byte.may_be_lost) = (now, true, false);
            }
        }
        self.sent.table(&mut self.pool).resend(now, start, end);
    }

    fn check(&mut self) {
        let pieces: Vec<Piece> = self.sent.table(&mut self.pool).pieces(self.now).collect();
        let size = self.pool.runs.len().max(RUNS);
        assert!(pieces.len() <= size);
        self.crowded |= pieces.len() + 6 > size;
        self.sent.table(&mut self.pool).check();
        let (mut next, mut sacked, mut lost) = (self.una, 0, 0);
        for piece in &pieces {
            assert_eq!(piece.start, next, "no gap");
            assert!(piece.start < piece.end);
            next = piece.end;
            let has = |mark| piece.marks.contains(mark);
            assert!(!(has(Marks::SACKED) && has(Marks::LOST)));
            sacked += if has(Marks::SACKED) { piece.len() } else { 0 };
            lost += if has(Marks::LOST) { piece.len() } else { 0 };
            let crowded = self.crowded;
            for byte in self.range(piece.start, piece.end) {
                assert!(
                    !has(Marks::SACKED) || byte.sacked,
                    "claims what was not said"
                );
                assert!(has(Marks::RETRANSMITTED) || !byte.retransmitted || byte.sacked);
                if !has(Marks::SACKED) && !byte.sacked {
                    assert!(byte.sent <= piece.sent, "an earlier time than true");
                    assert!(piece.first.is_none_or(|first| first <= byte.sent));
                    assert!(!has(Marks::LOST) || byte.may_be_lost);
                }
                assert!(
                    crowded || has(Marks::SACKED) == byte.sacked,
                    "block, and forgotten"
                );
            }
        }
        assert_eq!(next, self.max(), "no byte is lost");
        assert_eq!((self.sent.sacked(), self.sent.lost()), (sacked, lost));
        assert_eq!(
            self.sent.in_flight(),
            self.bytes.len() as u64 - sacked - lost
        );
    }
}

/// The table with a block for so many runs.
fn run(steps: &[Step], runs: usize) {
    let mut model = Model {
        sent: Sent::new_zeroed(),
        pool: OneBlock::of(runs),
        una: (1 << 32) - 300,
        bytes: [].into(),
        now: at((1 << 32) - 500),
        crowded: false,
    };
    for step in steps {
        model.act(step);
        model.sent.settle(&mut model.pool);
        model.check();
    }
}

/// None, one that is soon full, one for everything.
fn pool() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(40), Just(1_024)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]
    #[test]
    fn never_claims_more_than_is_true_of_every_byte(steps in proptest::collection::vec(step(1), 1..160), runs in pool()) {
        run(&steps, runs);
    }

    #[test]
    fn claims_no_more_when_there_is_no_block(steps in proptest::collection::vec(step(0), 150..300), runs in pool()) {
        run(&steps, runs);
    }
}
