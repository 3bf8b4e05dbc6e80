//! Each impairment does what it says, as often as it says, and the same way each time.
//!
//! Bounds are five standard deviations wide: they hold for any sound generator, and fail for a
//! probability that is off by a tenth.

use super::*;

const FRAMES: u64 = 100_000;

fn cable(text: &str, seed: u64) -> Cable {
    Cable::new(text.parse().unwrap(), seed)
}

fn numbered(number: u64) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[..8].copy_from_slice(&number.to_le_bytes());
    frame
}

fn number(frame: &[u8]) -> u64 {
    u64::from_le_bytes(frame[..8].try_into().unwrap())
}

/// One frame every `gap_us`; what arrived, and when.
fn run(cable: &mut Cable, frames: u64, gap_us: u64) -> Vec<(u64, Vec<u8>)> {
    let mut arrived = Vec::new();
    let drain = |cable: &mut Cable, now_us: u64, arrived: &mut Vec<_>| {
        while let Some(at) = cable.next_event_us().filter(|at| *at <= now_us) {
            let frame = cable.pop(at).unwrap();
            arrived.push((at, frame.to_vec()));
            cable.give_back(frame);
        }
    };
    for index in 0..frames {
        let now_us = index * gap_us;
        drain(cable, now_us, &mut arrived);
        cable.push(now_us, &numbered(index));
    }
    drain(cable, u64::MAX, &mut arrived);
    arrived
}

/// Whether `count` of `total` fits probability `chance`.
fn assert_fits(count: u64, total: u64, chance: f64) {
    let mean = total as f64 * chance;
    let bound = 5.0 * (mean * (1.0 - chance)).sqrt();
    let off = (count as f64 - mean).abs();
    assert!(
        off <= bound,
        "{count} of {total}: expected {mean} ± {bound}"
    );
}

#[test]
fn a_plain_cable_delivers_everything_at_once_and_in_order() {
    let mut cable = cable("", 1);
    let arrived = run(&mut cable, 1000, 3);
    let expected: Vec<_> = (0..1000)
        .map(|index| (index * 3, numbered(index).to_vec()))
        .collect();
    assert_eq!(arrived, expected);
    assert_eq!(cable.next_event_us(), None);
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let text = "loss=2%,burst=0.1%,delay=5ms,jitter=1ms,reorder=3%,duplicate=1%,corrupt=1%,\
                rate=80mbit,queue=6400";
    let trace = |seed| {
        let mut cable = cable(text, seed);
        let arrived = run(&mut cable, 5000, 6);
        (arrived, cable.counters())
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7).0, trace(8).0);
}

#[test]
fn losses_come_as_often_as_asked() {
    let mut cable = cable("loss=10%", 11);
    let arrived = run(&mut cable, FRAMES, 1);
    let lost = cable.counters().lost;
    assert_fits(lost, FRAMES, 0.1);
    assert_eq!(arrived.len() as u64, FRAMES - lost);
}

#[test]
fn certain_loss_delivers_nothing_and_no_loss_everything() {
    assert!(run(&mut cable("loss=100%", 1), 1000, 1).is_empty());
    assert_eq!(run(&mut cable("loss=0%", 1), 1000, 1).len(), 1000);
}

#[test]
fn bursts_have_the_length_asked_for() {
    let mut cable = cable("burst=1%,burst-length=10", 5);
    let arrived = run(&mut cable, FRAMES, 1);
    let delivered: Vec<u64> = arrived.iter().map(|(_, frame)| number(frame)).collect();
    let bursts: Vec<u64> = delivered
        .windows(2)
        .map(|pair| pair[1] - pair[0] - 1)
        .filter(|missing| *missing > 0)
        .collect();
    let mean = bursts.iter().sum::<u64>() as f64 / bursts.len() as f64;
    // About 900 bursts of a geometric length: the mean's deviation is 0.32.
    assert!((8.4..=11.6).contains(&mean), "mean burst of {mean}");
    // A burst begins out of 10/11 of the frames; counts of bursts are close to Poisson.
    let expected = FRAMES as f64 * 0.01 / 1.1;
    let count = bursts.len() as f64;
    assert!(
        (count - expected).abs() < 5.0 * expected.sqrt(),
        "{count} bursts"
    );
}

#[test]
fn delay_and_jitter_stay_within_their_bounds_and_keep_order() {
    let mut cable = cable("delay=10ms,jitter=2ms", 3);
    let arrived = run(&mut cable, 2000, 100);
    let mut delays = Vec::new();
    for (index, (at, frame)) in arrived.iter().enumerate() {
        assert_eq!(number(frame), index as u64);
        delays.push(at - index as u64 * 100);
    }
    assert!(delays.iter().all(|delay| (8_000..=12_000).contains(delay)));
    // A constant delay would pass the bounds above, so both ends must be reached.
    assert!(*delays.iter().max().unwrap() > 11_800);
    let alone = Impairment {
        delay_us: 10_000,
        jitter_us: 2_000,
        ..Impairment::default()
    };
    let firsts = (0..500).map(|seed| {
        let mut cable = Cable::new(alone, seed);
        cable.push(0, b"frame");
        cable.next_event_us().unwrap()
    });
    let firsts: Vec<u64> = firsts.collect();
    assert!(*firsts.iter().min().unwrap() < 8_100 && *firsts.iter().max().unwrap() > 11_900);
    let mean = firsts.iter().sum::<u64>() / 500;
    assert!((9_700..=10_300).contains(&mean), "mean delay {mean}");
}

#[test]
fn held_back_frames_are_overtaken_as_often_as_asked() {
    let mut cable = cable("reorder=5%,reorder-delay=100us", 9);
    let arrived = run(&mut cable, FRAMES, 10);
    assert_eq!(arrived.len() as u64, FRAMES);
    let late = arrived
        .iter()
        .filter(|(at, frame)| *at == number(frame) * 10 + 100)
        .count();
    assert_fits(late as u64, FRAMES, 0.05);
    assert_eq!(late as u64, cable.counters().reordered);
    let overtaken = arrived
        .windows(2)
        .filter(|two| number(&two[0].1) > number(&two[1].1))
        .count();
    assert!(overtaken > 4000, "{overtaken} inversions");
}

#[test]
fn duplicates_arrive_next_to_the_original() {
    let mut cable = cable("duplicate=20%", 13);
    let arrived = run(&mut cable, FRAMES, 1);
    let copies = arrived.windows(2).filter(|two| two[0] == two[1]).count();
    assert_fits(copies as u64, FRAMES, 0.2);
    assert_eq!(arrived.len() as u64, FRAMES + copies as u64);
}

#[test]
fn corruption_flips_exactly_one_bit_anywhere_in_the_frame() {
    let mut cable = cable("corrupt=10%", 17);
    let mut flipped = [0_u32; 512];
    for index in 0..FRAMES {
        let sent = numbered(index);
        cable.push(index, &sent);
        let frame = cable.pop(index).unwrap();
        let difference: Vec<u8> = sent.iter().zip(frame.iter()).map(|(a, b)| a ^ b).collect();
        let bits: u32 = difference.iter().map(|byte| byte.count_ones()).sum();
        assert!(bits <= 1);
        if let Some(at) = difference.iter().position(|byte| *byte != 0) {
            flipped[at * 8 + usize::try_from(difference[at].trailing_zeros()).unwrap()] += 1;
        }
        cable.give_back(frame);
    }
    let total: u64 = flipped.iter().map(|count| u64::from(*count)).sum();
    assert_fits(total, FRAMES, 0.1);
    assert_eq!(total, cable.counters().corrupted);
    assert!(flipped.iter().filter(|count| **count > 0).count() > 500);
}

#[test]
fn a_limited_rate_spaces_frames_by_their_length() {
    let mut cable = cable("rate=8mbit,queue=1mb", 1);
    for (index, len) in [1000_usize, 500, 1500].into_iter().enumerate() {
        cable.push(index as u64, &vec![0; len]);
    }
    // At one byte per microsecond.
    let mut arrivals = Vec::new();
    while let Some(at) = cable.next_event_us() {
        arrivals.push(at);
        cable.pop(at).unwrap();
    }
    assert_eq!(arrivals, [1000, 1500, 3000]);
    cable.push(10_000, &[0; 100]);
    assert_eq!(cable.next_event_us(), Some(10_100));
}

#[test]
fn a_high_rate_is_not_rounded_to_whole_microseconds() {
    let mut cable = cable("rate=100gbit,queue=100mb", 1);
    for _ in 0..10_000 {
        cable.push(0, &[0; 1250]);
    }
    let mut last = 0;
    while let Some(at) = cable.next_event_us() {
        last = at;
        let frame = cable.pop(at).unwrap();
        cable.give_back(frame);
    }
    assert_eq!(last, 1000);
}

#[test]
fn a_full_queue_drops_the_newest_frame_and_drains_at_the_rate() {
    let mut cable = cable("rate=8mbit,queue=3000", 1);
    for _ in 0..5 {
        cable.push(0, &[0; 1000]);
    }
    assert_eq!(cable.counters().overflowed, 2);
    cable.push(1000, &[0; 1000]);
    assert_eq!(cable.counters().overflowed, 2);
    cable.push(1000, &[0; 1000]);
    assert_eq!(cable.counters().overflowed, 3);
}

#[test]
fn a_frame_is_not_delivered_before_its_time() {
    let mut cable = cable("delay=5ms", 1);
    cable.push(100, b"frame");
    assert_eq!(cable.pop(5_099), None);
    assert_eq!(cable.next_event_us(), Some(5_100));
    assert_eq!(cable.pop(5_100).unwrap().as_slice(), b"frame");
}

#[test]
fn adding_one_impairment_leaves_the_choices_of_the_others() {
    let survivors = |text| -> Vec<u64> {
        let arrived = run(&mut cable(text, 21), 2000, 1);
        let mut numbers: Vec<u64> = arrived.iter().map(|(_, frame)| number(frame)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    assert_eq!(
        survivors("loss=5%"),
        survivors("loss=5%,duplicate=10%,reorder=5%,jitter=10us")
    );
}

#[test]
fn frames_on_the_way_are_bounded() {
    let mut cable = cable("delay=1000s", 1);
    for _ in 0..IN_FLIGHT_MAX + 10 {
        cable.push(0, &[0; 4]);
    }
    assert_eq!(cable.counters().overflowed, 10);
}

#[test]
fn a_queue_counted_in_frames_holds_that_many() {
    // 64 bytes at 512 kbit/s: a millisecond each on the line.
    let mut cable = cable("rate=512kbit,queue=1mib,queue-frames=3", 1);
    for index in 0..10 {
        cable.push(0, &numbered(index));
    }
    assert_eq!(cable.counters().overflowed, 7);
    // Two have left by then, so that two more find room.
    for index in 10..20 {
        cable.push(2_000, &numbered(index));
    }
    assert_eq!(cable.counters().overflowed, 15);
}

#[test]
fn frames_are_marked_only_behind_a_long_queue() {
    let mut frame = [0; 64];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[15] = 2;
    let mut cable = cable("rate=512kbit,ecn=128", 1);
    for _ in 0..10 {
        cable.push(0, &frame);
    }
    // Three wait for at most 128 bytes before them; the other seven for more.
    assert_eq!(cable.counters().marked, 7);
    let frame = cable.pop(1_000).unwrap();
    assert_eq!(frame[15], 2);
}
