//! Programs: what their engine and the kernel count of each, and what its connections do together.

use std::{collections::HashMap, time::Duration};

use serde::Serialize;
use serde_json::Value;

use super::{
    model::{Rates, per_second},
    sample::{Connection, number, pid_of, word},
};

/// A program that is attached to an engine.
#[derive(Debug, Clone, Default)]
pub struct Attached {
    pub pid: u32,
    pub name: String,
    /// When it is told of events (`shunt run --notify`).
    pub notify: String,
    /// Since it attached.
    pub counted: Calls,
}

/// What only grows, but for threads that end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Reads and writes that moved bytes of its sockets.
    pub calls: u64,
    /// Events that it was told of.
    pub notifications: u64,
    /// Times that it was rung.
    pub wake_ups: u64,
    /// Its threads gave a processor up.
    pub voluntary_switches: u64,
    /// Its threads lost a processor.
    pub involuntary_switches: u64,
}

/// What of that grows in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CallRates {
    /// Reads and writes that moved bytes of its sockets.
    pub calls_per_s: f64,
    /// Events that it was told of.
    pub notifications_per_s: f64,
    /// Times that it was rung.
    pub wake_ups_per_s: f64,
    /// Its threads gave a processor up.
    pub voluntary_switches_per_s: f64,
    /// Its threads lost a processor.
    pub involuntary_switches_per_s: f64,
}

impl CallRates {
    /// Rates between two samples of a program.
    pub fn between(before: &Calls, now: &Calls, elapsed: Duration) -> Self {
        let rate = |of: fn(&Calls) -> u64| per_second(of(before), of(now), elapsed);
        Self {
            calls_per_s: rate(|one| one.calls),
            notifications_per_s: rate(|one| one.notifications),
            wake_ups_per_s: rate(|one| one.wake_ups),
            voluntary_switches_per_s: rate(|one| one.voluntary_switches),
            involuntary_switches_per_s: rate(|one| one.involuntary_switches),
        }
    }

    /// Context switches of both kinds for each read or write; `None` while there is none.
    pub fn switches_per_call(&self) -> Option<f64> {
        let switches = self.voluntary_switches_per_s + self.involuntary_switches_per_s;
        (self.calls_per_s > 0.0).then(|| switches / self.calls_per_s)
    }
}

impl Attached {
    /// Of a row of `attached`.
    pub fn of(row: &Value) -> Option<Self> {
        let sum = |names: [&str; 2]| names.iter().map(|name| number(&row[*name])).sum();
        Some(Self {
            pid: pid_of(row)?,
            name: word(&row["program"]),
            notify: word(&row["notify"]),
            counted: Calls {
                calls: sum(["reads", "writes"]),
                notifications: number(&row["events"]),
                wake_ups: number(&row["rings"]),
                voluntary_switches: number(&row["voluntary_switches"]),
                involuntary_switches: number(&row["involuntary_switches"]),
            },
        })
    }

    /// Whether this text, in small letters, stands in its name or number.
    pub fn is_named(&self, filter: &str) -> bool {
        self.name.to_lowercase().contains(filter) || self.pid.to_string().contains(filter)
    }
}

/// A program and what all its connections do.
#[derive(Debug, Clone)]
pub struct Program {
    /// Of its engine.
    pub label: String,
    pub pid: u32,
    pub program: String,
    pub connections: usize,
    /// Segments sent again, in all.
    pub retransmissions: u64,
    /// The longest smoothed round trip.
    pub srtt_us: Option<u64>,
    /// Not read, and not acknowledged.
    pub queues: (u64, u64),
    /// Together.
    pub rates: Rates,
    /// When it is told of events.
    pub notify: String,
    /// Its calls and what woke it.
    pub calls: CallRates,
}

impl Program {
    fn idle(label: &str, pid: u32, program: &str) -> Self {
        Self {
            label: label.to_owned(),
            pid,
            program: program.to_owned(),
            connections: 0,
            retransmissions: 0,
            srtt_us: None,
            queues: (0, 0),
            rates: Rates::default(),
            notify: String::new(),
            calls: CallRates::default(),
        }
    }

    fn add(&mut self, one: &Connection, rates: Rates) {
        self.connections += 1;
        self.retransmissions += one.counted.retransmissions;
        self.srtt_us = self.srtt_us.max(one.srtt_us);
        self.queues.0 += one.queues.0;
        self.queues.1 += one.queues.1;
        self.rates.add(rates);
    }
}

/// Those that have connections, and those besides that are attached and pass the filter.
pub fn programs<'s>(
    connections: &'s [(Connection, Rates)],
    attached: impl Iterator<Item = (&'s str, &'s Attached, CallRates)>,
    filter: &str,
) -> Vec<Program> {
    let mut by_pid: HashMap<(u32, &str), Program> = HashMap::new();
    for (one, rates) in connections {
        let Some(pid) = one.pid else { continue };
        by_pid
            .entry((pid, &one.label))
            .or_insert_with(|| Program::idle(&one.label, pid, &one.program))
            .add(one, *rates);
    }
    for (label, one, calls) in attached {
        let key = (one.pid, label);
        if !by_pid.contains_key(&key) && !one.is_named(filter) {
            continue;
        }
        let program = by_pid
            .entry(key)
            .or_insert_with(|| Program::idle(label, one.pid, &one.name));
        program.notify.clone_from(&one.notify);
        program.calls = calls;
    }
    by_pid.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_of_calls_are_what_was_added_and_switches_are_told_by_the_call() {
        let row = |reads: u64, switches: u64| json!({ "pid": 7, "program": "a", "notify": "each", "reads": reads, "writes": reads, "events": 3, "rings": 1, "voluntary_switches": switches });
        let of = |row: &Value| Attached::of(row).unwrap().counted;
        let (before, now) = (of(&row(10, 5)), of(&row(60, 30)));
        let rates = CallRates::between(&before, &now, Duration::from_secs(1));
        assert!((rates.calls_per_s - 100.0).abs() < 1e-9, "{rates:?}");
        assert!(rates.notifications_per_s.abs() < 1e-9, "{rates:?}");
        let each = rates.switches_per_call().unwrap();
        assert!((each - 0.25).abs() < 1e-9, "{each}");
        assert_eq!(CallRates::default().switches_per_call(), None);
        assert!(Attached::of(&json!({ "program": "a" })).is_none());
    }
}
