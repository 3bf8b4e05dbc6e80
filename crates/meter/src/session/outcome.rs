//! What a measurement counted and timed, and how several measurements of one thing are added.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use statistics::Recorder;

use super::Sample;
use crate::{environment::Contention, probe::Answer};

/// What was sent and what came, apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Probes that were sent.
    pub sent: u64,
    /// Those that were answered in time.
    pub received: u64,
    /// Those that were not.
    pub lost: u64,
    /// Answers to lost ones, which came after their deadline.
    pub late: u64,
    /// Further answers to a probe.
    pub duplicates: u64,
    /// Answers that came after one to a later probe.
    pub reordered: u64,
    /// Messages of this run whose bytes had changed.
    pub corrupted: u64,
    /// Messages that answer nothing that was sent.
    pub foreign: u64,
    /// Errors, by what they say.
    pub errors: BTreeMap<String, u64>,
    pub answers: BTreeMap<Answer, u64>,
    /// Who answered in the target's place.
    pub routers: BTreeMap<IpAddr, u64>,
}

/// What a measurement found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was sent and what came.
    pub counts: Counts,
    /// Round trips; in an open loop from when probes were due.
    pub round_trips: Recorder,
    /// In an open loop, round trips from when probes were really sent.
    pub from_sending: Recorder,
    /// In an open loop, how much later than due probes were sent.
    pub lateness: Recorder,
    /// The first round trips, one by one.
    pub samples: Vec<Sample>,
    /// How long it took without the warm-up.
    pub seconds: f64,
    /// The connection ended before all was sent.
    pub ended_early: Option<String>,
    /// What disturbed it meanwhile.
    pub contention: Contention,
}

impl Outcome {
    /// Adds what another measurement of the same thing found; its samples are left out.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.round_trips.merge(&other.round_trips);
        self.from_sending.merge(&other.from_sending);
        self.lateness.merge(&other.lateness);
        self.seconds += other.seconds;
        self.ended_early = self
            .ended_early
            .take()
            .or_else(|| other.ended_early.clone());
        self.contention.add(&other.contention);
    }
}

impl Counts {
    /// Everything that was counted, by name.
    pub fn numbers(&self) -> [(&'static str, u64); 9] {
        [
            ("sent", self.sent),
            ("received", self.received),
            ("lost", self.lost),
            ("late", self.late),
            ("duplicates", self.duplicates),
            ("reordered", self.reordered),
            ("corrupted", self.corrupted),
            ("foreign", self.foreign),
            ("errors", self.errors.values().sum()),
        ]
    }

    fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.sent, other.sent),
            (&mut self.received, other.received),
            (&mut self.lost, other.lost),
            (&mut self.late, other.late),
            (&mut self.duplicates, other.duplicates),
            (&mut self.reordered, other.reordered),
            (&mut self.corrupted, other.corrupted),
            (&mut self.foreign, other.foreign),
        ];
        for (own, more) in pairs {
            *own += more;
        }
        // Few kinds of errors, answers and routers are told apart in one measurement, and few measurements are added.
        for (reason, count) in &other.errors {
            *self.errors.entry(reason.clone()).or_default() += count;
        }
        for (answer, count) in &other.answers {
            *self.answers.entry(*answer).or_default() += count;
        }
        for (router, count) in &other.routers {
            *self.routers.entry(*router).or_default() += count;
        }
    }
}
