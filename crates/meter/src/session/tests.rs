//! Sessions with probes in memory, whose answers are lost, doubled, late and changed by plan.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use super::*;

/// Answers at once, but for what `faults` says of a sequence number.
#[derive(Default)]
struct Memory {
    ready: VecDeque<Arrival>,
    faults: BTreeMap<u64, Fault>,
    over: bool,
    /// The next call returns no sooner.
    slow_until: Option<std::time::Instant>,
}

#[derive(Clone, Copy)]
enum Fault {
    Lost,
    Twice,
    Late,
    Changed,
    Swapped,
    Refused,
    Over,
    Unquoted,
    Made(u64),
    Slow,
}

fn echo(sequence: u64) -> Arrival {
    Arrival::Answer {
        sequence: Some(sequence),
        answer: Answer::Echo,
        from: None,
    }
}

impl Probe for Memory {
    fn send(&mut self, sequence: u64) -> io::Result<()> {
        match self.faults.get(&sequence) {
            None => self.ready.push_back(echo(sequence)),
            Some(Fault::Lost | Fault::Late) => {}
            Some(Fault::Twice) => self.ready.extend([echo(sequence), echo(sequence)]),
            Some(Fault::Changed) => self.ready.push_back(Arrival::Corrupted),
            // The one before it has not been taken yet.
            Some(Fault::Swapped) => self.ready.push_front(echo(sequence)),
            Some(Fault::Refused) => return Err(io::ErrorKind::NetworkUnreachable.into()),
            Some(Fault::Over) => {
                self.over = true;
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Some(Fault::Unquoted) => self.ready.push_back(Arrival::Answer {
                sequence: None,
                answer: Answer::TimeExceeded,
                from: Some(IpAddr::from([10, 0, 0, 1])),
            }),
            Some(Fault::Slow) => {
                self.slow_until = Some(std::time::Instant::now() + Duration::from_millis(4));
                self.ready.push_back(echo(sequence));
            }
            Some(Fault::Made(other)) => self.ready.push_back(echo(*other)),
        }
        Ok(())
    }

    fn receive(&mut self, _wait: Wait) -> io::Result<Option<Arrival>> {
        if let Some(until) = self.slow_until.take() {
            while std::time::Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        Ok(self.ready.pop_front())
    }

    fn forget(&mut self, sequence: u64) {
        if matches!(self.faults.get(&sequence), Some(Fault::Late)) {
            self.ready.push_back(echo(sequence));
        }
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn is_datagram(&self) -> bool {
        true
    }
}

fn closed(in_flight: u64, burst: bool) -> Pacing {
    Pacing::Closed {
        in_flight,
        burst,
        interval: Duration::ZERO,
    }
}

fn measure(count: u64, warm_up: u64, pacing: Pacing, faults: &[(u64, Fault)]) -> Outcome {
    let plan = Plan {
        count,
        warm_up,
        pacing,
        timeout: Duration::from_millis(3),
        time: None,
        spin: true,
    };
    let (clock, progress) = (Clock::start(), Progress::default());
    let mut probe = Memory {
        faults: faults.iter().copied().collect(),
        ..Memory::default()
    };
    Session::new(plan, &clock, &progress, true).run(&mut probe, &AtomicBool::new(false))
}

#[test]
fn lost_late_doubled_changed_and_invented_answers_are_counted_apart() {
    let faults = [
        (3, Fault::Lost),
        (4, Fault::Twice),
        (5, Fault::Late),
        (6, Fault::Changed),
        (7, Fault::Made(1 << 40)),
    ];
    let found = measure(10, 0, closed(1, false), &faults);
    let counts = &found.counts;
    assert_eq!(
        (counts.sent, counts.received, counts.lost),
        (10, 6, 4),
        "{counts:?}"
    );
    assert_eq!(
        (
            counts.duplicates,
            counts.late,
            counts.corrupted,
            counts.foreign
        ),
        (1, 1, 1, 1),
        "{counts:?}"
    );
    assert_eq!((found.round_trips.count(), found.samples.len()), (6, 6));
    assert_eq!(counts.answers, BTreeMap::from([(Answer::Echo, 6)]));
}

#[test]
fn an_answer_that_a_waiting_call_returns_after_its_deadline_is_late() {
    let found = measure(3, 0, closed(1, false), &[(1, Fault::Slow)]);
    let counts = &found.counts;
    assert_eq!(
        (counts.received, counts.lost, counts.late),
        (2, 1, 1),
        "{counts:?}"
    );
}

#[test]
fn the_warm_up_is_in_no_count() {
    let found = measure(
        5,
        3,
        closed(1, false),
        &[(0, Fault::Lost), (1, Fault::Twice)],
    );
    assert_eq!(
        (
            found.counts.sent,
            found.counts.received,
            found.counts.duplicates
        ),
        (5, 5, 0)
    );
    assert_eq!(found.samples.first().map(|sample| sample.sequence), Some(3));
}

#[test]
fn several_in_flight_may_be_reordered_and_a_burst_is_sent_whole() {
    let found = measure(4, 0, closed(4, true), &[(3, Fault::Swapped)]);
    assert_eq!((found.counts.received, found.counts.reordered), (4, 3));
    let found = measure(4, 0, closed(1, true), &[]);
    assert_eq!((found.counts.received, found.counts.reordered), (4, 0));
}

#[test]
fn errors_are_no_losses_and_a_connection_that_ends_ends_the_run() {
    let found = measure(4, 0, closed(1, false), &[(1, Fault::Refused)]);
    assert_eq!(
        (found.counts.sent, found.counts.received, found.counts.lost),
        (3, 3, 0)
    );
    assert_eq!(found.counts.errors.values().sum::<u64>(), 1);
    let found = measure(1000, 0, closed(1, false), &[(2, Fault::Over)]);
    assert!(found.ended_early.is_some());
    assert_eq!((found.counts.sent, found.counts.received), (2, 2));
}

#[test]
fn a_router_that_quotes_nothing_means_the_probe_on_its_way() {
    let found = measure(2, 0, closed(1, false), &[(1, Fault::Unquoted)]);
    assert_eq!(found.counts.answers[&Answer::TimeExceeded], 1);
    assert_eq!(
        found.counts.routers,
        BTreeMap::from([(IpAddr::from([10, 0, 0, 1]), 1)])
    );
}

#[test]
fn an_open_loop_counts_from_when_probes_were_due() {
    let found = measure(50, 0, Pacing::Open { per_s: 20_000.0 }, &[]);
    let (due, sent) = (
        found.round_trips.distribution().unwrap(),
        found.from_sending.distribution().unwrap(),
    );
    assert_eq!(
        (due.count, sent.count, found.lateness.count()),
        (50, 50, 50)
    );
    // By as much as the sender was late on the average.
    let late = found.lateness.distribution().unwrap();
    assert!((due.mean_us - sent.mean_us - late.mean_us).abs() < 1e-6);
    // Nobody sends before a probe is due: the last one is due 49 times 50 µs after the first.
    assert!(
        found.seconds + late.max_us / 1e6 >= 49.0 * 50e-6,
        "{}",
        found.seconds
    );
}

#[test]
fn whoever_sets_the_flag_ends_it_with_what_is_known() {
    let plan = Plan {
        count: u64::MAX,
        warm_up: 0,
        pacing: closed(1, false),
        timeout: Duration::from_secs(1),
        time: None,
        spin: true,
    };
    let (clock, progress, stop) = (Clock::start(), Progress::default(), AtomicBool::new(false));
    let found = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            Session::new(plan, &clock, &progress, false).run(&mut Memory::default(), &stop)
        });
        testkit::wait_for("a hundred answers", testkit::PATIENCE, || {
            progress.received.load(Ordering::Relaxed) > 100
        });
        stop.store(true, Ordering::Relaxed);
        run.join().unwrap()
    });
    assert!(found.counts.received > 100 && found.samples.is_empty());
}
