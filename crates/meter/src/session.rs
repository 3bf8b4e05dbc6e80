//! A measurement: when probes are sent, how long their answers took, and everything that was no answer, counted apart.
//!
//! Closed loop: a probe, or a burst, is sent when an answer has come. Open loop: probes are due at a rate, whatever comes
//! back, and a time is counted from when the probe was due: what a slow answer or a late sender held up is in the result
//! (coordinated omission, Tene, "How NOT to Measure Latency", 2015).

mod outcome;

pub use outcome::{Counts, Outcome};

use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use crate::{
    clock::Clock,
    environment::Moment,
    flight::{Flight, Match, Times},
    probe::{Answer, Arrival, Probe, Wait},
};

/// When probes are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pacing {
    /// When answers have come.
    Closed {
        /// On their way at once.
        in_flight: u64,
        /// All of them are sent when the last one was answered, not one for each answer.
        burst: bool,
        /// At least this long after the one before.
        interval: Duration,
    },
    /// At a rate.
    Open {
        /// Probes per second, above zero.
        per_s: f64,
    },
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Probes that count.
    pub count: u64,
    /// Probes before them, which do not.
    pub warm_up: u64,
    /// When they are sent.
    pub pacing: Pacing,
    /// After this a probe is lost.
    pub timeout: Duration,
    /// After this nothing is sent any more.
    pub time: Option<Duration>,
    /// Ask for answers again and again in place of waiting for them.
    pub spin: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The probe; those of the warm-up are numbered too.
    pub sequence: u64,
    /// When it was sent, since the clock's start.
    pub sent_ns: u64,
    /// From when it was due to its answer.
    pub round_trip_ns: u64,
}

/// Samples that are kept one by one.
pub const SAMPLES_MAX: usize = 1_000_000;
/// Different errors, and different hosts that answered, that are told apart.
const KINDS_MAX: usize = 16;
/// After the last answer duplicates are waited for: twice the longest round trip, within these.
const LINGER_MIN: Duration = Duration::from_millis(5);
const LINGER_MAX: Duration = Duration::from_millis(100);

/// How far it is, for whoever looks from another thread.
#[derive(Debug, Default)]
pub struct Progress {
    /// Probes sent.
    pub sent: AtomicU64,
    /// Answers.
    pub received: AtomicU64,
    /// The newest round trip.
    pub last_ns: AtomicU64,
}

/// A measurement that runs.
pub struct Session<'a> {
    plan: Plan,
    clock: &'a Clock,
    progress: &'a Progress,
    flight: Flight,
    outcome: Outcome,
    /// Who else used the processors, as counted when the first probe that counts was sent.
    before: Moment,
    start_ns: u64,
    /// The end of the warm-up.
    counted_from_ns: Option<u64>,
    last_sent_ns: u64,
    keep_samples: bool,
    /// A burst is being sent: so many are still to go.
    burst_left: u64,
}

impl<'a> Session<'a> {
    /// Nothing is sent yet.
    pub fn new(plan: Plan, clock: &'a Clock, progress: &'a Progress, keep_samples: bool) -> Self {
        let mut outcome = Outcome::default();
        if keep_samples {
            let capacity = usize::try_from(plan.count).unwrap_or(SAMPLES_MAX);
            outcome.samples.reserve_exact(capacity.min(SAMPLES_MAX));
        }
        Self {
            plan,
            clock,
            progress,
            flight: Flight::new(),
            outcome,
            before: Moment::now(),
            start_ns: clock.now_ns(),
            counted_from_ns: None,
            last_sent_ns: 0,
            keep_samples,
            burst_left: 0,
        }
    }

    /// Measures until all was sent and answered or lost, or until `stop` is set.
    pub fn run(mut self, probe: &mut dyn Probe, stop: &AtomicBool) -> Outcome {
        self.before = Moment::now();
        self.start_ns = self.clock.now_ns();
        loop {
            let now_ns = self.clock.now_ns();
            self.expire(probe, now_ns);
            let is_sending = self.is_sending(now_ns) && !stop.load(Ordering::Relaxed);
            if is_sending && self.due_in_ns(now_ns) == Some(0) {
                self.send(probe);
            } else if !is_sending && (self.flight.waiting() == 0 || stop.load(Ordering::Relaxed)) {
                break;
            } else {
                let wait = self.wait(now_ns, is_sending);
                self.receive(probe, wait);
            }
            if let (true, None) = (probe.is_over(), &self.outcome.ended_early) {
                self.outcome.ended_early = Some("the connection failed".to_owned());
            }
            if self.outcome.ended_early.is_some() {
                break;
            }
        }
        let end_ns = self.clock.now_ns();
        self.outcome.contention = self.before.since();
        self.finish(probe, end_ns, stop)
    }

    fn finish(mut self, probe: &mut dyn Probe, end_ns: u64, stop: &AtomicBool) -> Outcome {
        let begun_ns = self.counted_from_ns.unwrap_or(end_ns);
        self.outcome.seconds = end_ns.saturating_sub(begun_ns) as f64 / 1e9;
        let is_cut_off = stop.load(Ordering::Relaxed) && self.outcome.ended_early.is_none();
        while let Some((sequence, _)) = self.flight.oldest() {
            // Whoever ended it did not wait for these: they are neither answered nor lost.
            if is_cut_off && self.counts(sequence) {
                self.outcome.counts.sent -= 1;
                self.flight.give_up(sequence);
                probe.forget(sequence);
            } else {
                self.lose(probe, sequence);
            }
        }
        if probe.is_datagram() && !is_cut_off {
            let longest = self
                .outcome
                .round_trips
                .distribution()
                .map_or(0.0, |found| found.max_us * 2.0);
            let linger = Duration::from_secs_f64(longest / 1e6).clamp(LINGER_MIN, LINGER_MAX);
            let until_ns = self.clock.now_ns().saturating_add(ns(linger));
            while let Some(left) = until_ns.checked_sub(self.clock.now_ns()) {
                self.receive(probe, Wait::AtMost(Duration::from_nanos(left)));
            }
        }
        self.outcome
    }

    /// Whether there is more to send.
    fn is_sending(&self, now_ns: u64) -> bool {
        let total = self.plan.count.saturating_add(self.plan.warm_up);
        let in_time = self
            .plan
            .time
            .is_none_or(|time| now_ns.saturating_sub(self.start_ns) < ns(time));
        self.flight.next() < total && in_time
    }

    /// When the next probe is due; `None`: when an answer has come.
    fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        if !self.flight.has_capacity() {
            return None;
        }
        match self.plan.pacing {
            Pacing::Open { .. } => Some(self.due_ns(self.flight.next()).saturating_sub(now_ns)),
            Pacing::Closed {
                in_flight,
                burst,
                interval,
            } => {
                if self.burst_left > 0 {
                    return Some(0);
                }
                let is_open = if burst {
                    self.flight.waiting() == 0
                } else {
                    self.flight.waiting() < in_flight
                };
                let is_first = self.flight.next() == 0;
                let since_ns = now_ns.saturating_sub(self.last_sent_ns);
                let left_ns = if is_first {
                    0
                } else {
                    ns(interval).saturating_sub(since_ns)
                };
                is_open.then_some(left_ns)
            }
        }
    }

    /// When a probe of an open loop is due.
    fn due_ns(&self, sequence: u64) -> u64 {
        let Pacing::Open { per_s } = self.plan.pacing else {
            return self.clock.now_ns();
        };
        let after = Duration::try_from_secs_f64(sequence as f64 / per_s).unwrap_or(Duration::MAX);
        self.start_ns.saturating_add(ns(after))
    }

    fn wait(&self, now_ns: u64, is_sending: bool) -> Wait {
        if self.plan.spin {
            return Wait::Not;
        }
        let due_in = if is_sending {
            self.due_in_ns(now_ns)
        } else {
            None
        };
        match due_in {
            Some(due_in_ns) => {
                let lost_in_ns = self.flight.oldest().map_or(u64::MAX, |(_, sent_ns)| {
                    sent_ns
                        .saturating_add(ns(self.plan.timeout))
                        .saturating_sub(now_ns)
                });
                Wait::AtMost(
                    Duration::from_nanos(due_in_ns.min(lost_in_ns)).min(crate::probe::BLOCK),
                )
            }
            None => Wait::Blocked,
        }
    }

    fn counts(&self, sequence: u64) -> bool {
        sequence >= self.plan.warm_up
    }

    fn send(&mut self, probe: &mut dyn Probe) {
        let sequence = self.flight.next();
        if let Pacing::Closed {
            in_flight,
            burst: true,
            ..
        } = self.plan.pacing
            && self.burst_left == 0
        {
            self.burst_left = in_flight;
        }
        self.burst_left = self.burst_left.saturating_sub(1);
        let is_open = matches!(self.plan.pacing, Pacing::Open { .. });
        // What disturbed the warm-up is in no figure. In an open loop a look at /proc would make this probe late.
        if !is_open && self.counted_from_ns.is_none() && self.counts(sequence) {
            self.before = Moment::now();
        }
        let sent_ns = self.clock.now_ns();
        let due_ns = if is_open {
            self.due_ns(sequence)
        } else {
            sent_ns
        };
        self.last_sent_ns = sent_ns;
        let result = probe.send(sequence);
        self.flight.sent(Times { due_ns, sent_ns });
        if !self.counts(sequence) {
            if result.is_err() {
                self.flight.give_up(sequence);
            }
            return;
        }
        if self.counted_from_ns.is_none() {
            self.counted_from_ns = Some(sent_ns);
        }
        if let Err(error) = result {
            self.flight.give_up(sequence);
            self.error(&error.to_string());
            if probe.is_over() {
                self.outcome.ended_early = Some(error.to_string());
            }
            return;
        }
        self.outcome.counts.sent += 1;
        self.progress
            .sent
            .store(self.outcome.counts.sent, Ordering::Relaxed);
        if is_open {
            self.outcome.lateness.add(sent_ns.saturating_sub(due_ns));
        }
    }

    fn receive(&mut self, probe: &mut dyn Probe, wait: Wait) {
        match probe.receive(wait) {
            Ok(None) => {}
            Ok(Some(arrival)) => {
                let now_ns = self.clock.now_ns();
                // What comes after its deadline is late, although nobody has looked since.
                self.expire(probe, now_ns);
                self.arrived(probe, arrival, now_ns);
            }
            Err(error) => {
                self.error(&error.to_string());
                self.outcome.ended_early = Some(error.to_string());
            }
        }
    }

    fn arrived(&mut self, probe: &mut dyn Probe, arrival: Arrival, now_ns: u64) {
        match arrival {
            Arrival::Answer {
                sequence,
                answer,
                from,
            } => {
                // Who quotes too little can only mean the one probe that is on its way.
                match sequence.or_else(|| self.flight.only()) {
                    Some(sequence) => self.answered(sequence, answer, from, now_ns),
                    None => self.outcome.counts.foreign += 1,
                }
            }
            Arrival::Corrupted => self.outcome.counts.corrupted += 1,
            Arrival::Foreign => self.outcome.counts.foreign += 1,
            Arrival::Failed { sequence, reason } => {
                let sequence = sequence.or_else(|| self.flight.only());
                if sequence.is_none_or(|sequence| self.counts(sequence)) {
                    self.error(&reason);
                }
                if let Some(sequence) = sequence {
                    self.lose(probe, sequence);
                }
            }
        }
    }

    fn answered(&mut self, sequence: u64, answer: Answer, from: Option<IpAddr>, now_ns: u64) {
        let found = self.flight.answered(sequence);
        if !self.counts(sequence) {
            return;
        }
        let counts = &mut self.outcome.counts;
        let (times, reordered) = match found {
            Match::First { times, reordered } => (times, reordered),
            Match::Duplicate => return counts.duplicates += 1,
            Match::Late => return counts.late += 1,
            Match::Unknown => return counts.foreign += 1,
        };
        counts.received += 1;
        counts.reordered += u64::from(reordered);
        *counts.answers.entry(answer).or_default() += 1;
        if let Some(from) = from
            && (counts.routers.len() < KINDS_MAX || counts.routers.contains_key(&from))
        {
            *counts.routers.entry(from).or_default() += 1;
        }
        let round_trip_ns = now_ns.saturating_sub(times.due_ns);
        self.outcome.round_trips.add(round_trip_ns);
        if matches!(self.plan.pacing, Pacing::Open { .. }) {
            self.outcome
                .from_sending
                .add(now_ns.saturating_sub(times.sent_ns));
        }
        if self.keep_samples && self.outcome.samples.len() < SAMPLES_MAX {
            let sent_ns = times.sent_ns;
            self.outcome.samples.push(Sample {
                sequence,
                sent_ns,
                round_trip_ns,
            });
        }
        self.progress
            .received
            .store(self.outcome.counts.received, Ordering::Relaxed);
        self.progress
            .last_ns
            .store(round_trip_ns, Ordering::Relaxed);
    }

    /// Gives up what was sent too long ago.
    fn expire(&mut self, probe: &mut dyn Probe, now_ns: u64) {
        while let Some((sequence, sent_ns)) = self.flight.oldest() {
            if now_ns.saturating_sub(sent_ns) < ns(self.plan.timeout) {
                return;
            }
            self.lose(probe, sequence);
        }
    }

    fn lose(&mut self, probe: &mut dyn Probe, sequence: u64) {
        if self.flight.give_up(sequence) {
            probe.forget(sequence);
            if self.counts(sequence) {
                self.outcome.counts.lost += 1;
            }
        }
    }

    fn error(&mut self, reason: &str) {
        let errors = &mut self.outcome.counts.errors;
        let reason = if errors.len() < KINDS_MAX || errors.contains_key(reason) {
            reason
        } else {
            "other errors"
        };
        *errors.entry(reason.to_owned()).or_default() += 1;
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
