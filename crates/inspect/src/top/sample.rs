//! What all engines say at one moment.

use std::time::{Duration, Instant};

use hostif::control::QueryKind;
use observe::process;
use serde_json::Value;

use super::{
    model::per_second,
    program::{Attached, CallRates},
};
use crate::{
    control::Channel,
    engines::{
        Which,
        answer::{Silent, ask_each},
    },
    figures::{
        errors::{Error, errors},
        histograms::{POLLS, ROUND_TRIPS, Spread},
        programs::with_outside,
    },
    status::merge,
};

/// Connections that are kept of a sample; the others are counted.
pub const CONNECTIONS_MAX: usize = 20_000;

/// A moment.
#[derive(Debug)]
pub struct Sample {
    /// When the answers were there.
    pub at: Instant,
    /// Engines in the order of their names.
    pub engines: Vec<Engine>,
    /// Connections and UDP sockets with a peer, at most [`CONNECTIONS_MAX`].
    pub connections: Vec<Connection>,
    pub left_out: usize,
}

#[derive(Debug, Clone)]
pub struct Engine {
    /// With its network namespace, where that is another.
    pub label: String,
    pub pid: Option<u32>,
    /// Name of that.
    pub program: String,
    /// Why it does not answer.
    pub silent: Option<String>,
    /// `inline` or `process`.
    pub mode: String,
    /// Interface and driver.
    pub device: String,
    /// How many programs are attached.
    pub programs: u64,
    pub attached: Vec<Attached>,
    /// What each of them did since the sample before.
    pub call_rates: Vec<CallRates>,
    /// What went wrong, by kind, with how often since the sample before in a second.
    pub errors: Vec<(Error, f64)>,
    /// TCP connections.
    pub connections: u64,
    /// How many threads it serves with.
    pub cores: u64,
    /// Frames that the device or its driver lost, in both directions.
    pub lost_frames: u64,
    /// Resident memory.
    pub memory_kib: u64,
    /// Received and sent since it started: frames, bytes.
    pub counted: Counted,
    /// Round trips that its connections measured, microseconds, since it started, and then since the sample before.
    pub round_trips: [Spread; 2],
    /// What its polls took, likewise.
    pub polls: [Spread; 2],
}

/// What only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes towards the peer, or the device.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Frames sent, of an engine.
    pub sent_frames: u64,
    /// Frames received, of an engine.
    pub received_frames: u64,
    /// Segments sent again, of a connection.
    pub retransmissions: u64,
}

#[derive(Debug, Clone)]
pub struct Connection {
    /// Of its engine.
    pub label: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// As ss(8) names it.
    pub state: String,
    /// Addresses with ports.
    pub local: String,
    pub remote: String,
    /// The program that holds it, the first of several.
    pub pid: Option<u32>,
    pub program: String,
    /// Not read by the program, and not acknowledged by the peer.
    pub queues: (u64, u64),
    /// Smoothed round trip; `None`: not measured, or UDP.
    pub srtt_us: Option<u64>,
    pub counted: Counted,
}

/// Asks them all.
pub fn take(which: &Which) -> Sample {
    let answers = ask_each(which.find_any(), report);
    let mut sample = Sample {
        at: Instant::now(),
        engines: Vec::new(),
        connections: Vec::new(),
        left_out: 0,
    };
    for (found, answer) in answers {
        let label = found.label();
        match answer {
            Ok((status, programs, rows)) => {
                sample.engines.push(engine(&label, &status, &programs));
                sample.add(&label, &rows);
            }
            Err(silent) => sample.engines.push(silent_engine(label, &silent)),
        }
    }
    sample
}

/// The engine, its programs, its sockets.
fn report(channels: &[Channel]) -> anyhow::Result<(Value, Value, Value)> {
    let ask = |kind| -> anyhow::Result<Vec<Value>> {
        channels.iter().map(|channel| channel.query(kind)).collect()
    };
    let programs = with_outside(merge::programs(&ask(QueryKind::Sessions)?));
    let status = merge::status(&ask(QueryKind::Status)?, &programs);
    let sockets = merge::sockets(&ask(QueryKind::Sockets)?);
    Ok((status, programs, sockets))
}

/// 0 where it is not known.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Empty where it is not known.
pub fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The process of a row.
pub fn pid_of(row: &Value) -> Option<u32> {
    row["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

fn engine(label: &str, status: &Value, programs: &Value) -> Engine {
    let driver = &status["driver_counters"];
    let pid = pid_of(status);
    let programs = programs.as_array().into_iter().flatten();
    let errors = errors(status).into_iter();
    Engine {
        label: label.to_owned(),
        pid,
        program: pid.and_then(process::name).unwrap_or_default(),
        silent: None,
        mode: word(&status["mode"]),
        device: format!("{} {}", word(&status["interface"]), word(&status["driver"])),
        programs: number(&status["programs"]),
        attached: programs.filter_map(Attached::of).collect(),
        call_rates: Vec::new(),
        errors: errors.map(|error| (error, 0.0)).collect(),
        connections: number(&status["connections"]),
        cores: number(&status["cores"]),
        lost_frames: number(&driver["rx_dropped"])
            + number(&driver["tx_dropped"])
            + number(&status["lost_at_stopped_queue"]),
        memory_kib: number(&status["memory_kib"]["total"]),
        counted: Counted {
            sent_bytes: number(&driver["tx_bytes"]),
            received_bytes: number(&driver["rx_bytes"]),
            sent_frames: number(&driver["tx_frames"]),
            received_frames: number(&driver["rx_frames"]),
            retransmissions: number(&status["stack_counters"]["TcpRetransSegs"]),
        },
        round_trips: spread(status, ROUND_TRIPS),
        polls: spread(status, POLLS),
    }
}

/// All that were counted, and none since a sample before, which is not known.
fn spread(status: &Value, field: &str) -> [Spread; 2] {
    [
        Spread::of(status, field).unwrap_or_default(),
        Spread::default(),
    ]
}

fn silent_engine(label: String, silent: &Silent) -> Engine {
    Engine {
        label,
        pid: silent.pid,
        program: silent.pid.and_then(process::name).unwrap_or_default(),
        silent: Some(silent.reason.clone()),
        mode: String::new(),
        device: String::new(),
        programs: 0,
        attached: Vec::new(),
        call_rates: Vec::new(),
        errors: Vec::new(),
        connections: 0,
        cores: 0,
        lost_frames: 0,
        memory_kib: 0,
        counted: Counted::default(),
        round_trips: Default::default(),
        polls: Default::default(),
    }
}

impl Engine {
    /// Rates since a sample of the same engine; what was not there then has none.
    pub fn compare(&mut self, before: Option<&Self>, elapsed: Duration) {
        let rates = self.attached.iter().map(|one| {
            let mut known = before.into_iter().flat_map(|before| &before.attached);
            let known = known.find(|known| known.pid == one.pid);
            let before = known.map_or(&one.counted, |known| &known.counted);
            CallRates::between(before, &one.counted, elapsed)
        });
        self.call_rates = rates.collect();
        let since = |[now, _]: &[Spread; 2], then: Option<&[Spread; 2]>| {
            then.map_or_else(Spread::default, |[then, _]| now.since(then))
        };
        self.round_trips[1] = since(&self.round_trips, before.map(|one| &one.round_trips));
        self.polls[1] = since(&self.polls, before.map(|one| &one.polls));
        for (error, rate) in &mut self.errors {
            let mut known = before.into_iter().flat_map(|before| &before.errors);
            let known = known.find(|(known, _)| known.name == error.name);
            let before = known.map_or(error.count, |(known, _)| known.count);
            *rate = per_second(before, error.count, elapsed);
        }
    }
}

impl Sample {
    /// The rows of `ss` that have a peer.
    fn add(&mut self, label: &str, rows: &Value) {
        let rows = rows.as_array().into_iter().flatten();
        for row in rows.filter(|row| row["remote"].is_string() && row["state"] != "TIME-WAIT") {
            if self.connections.len() == CONNECTIONS_MAX {
                self.left_out += 1;
                continue;
            }
            let pids = row["pids"].as_array().into_iter().flatten();
            let mut pids = pids.filter_map(|pid| u32::try_from(pid.as_u64()?).ok());
            let pid = pids.next();
            self.connections.push(Connection {
                label: label.to_owned(),
                protocol: word(&row["protocol"]),
                state: word(&row["state"]),
                local: word(&row["local"]),
                remote: word(&row["remote"]),
                pid,
                program: pid.and_then(process::name).unwrap_or_default(),
                queues: (number(&row["receive_queue"]), number(&row["send_queue"])),
                srtt_us: row["srtt_us"].as_u64().filter(|srtt| *srtt > 0),
                counted: Counted {
                    // Of TCP what the peer has, of UDP what has left, with the headers of its records.
                    sent_bytes: number(&row["bytes_acked"]).max(number(&row["bytes_sent"])),
                    received_bytes: number(&row["bytes_received"]),
                    retransmissions: number(&row["retransmissions"]),
                    ..Counted::default()
                },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_listens_or_has_ended_is_no_connection_and_too_many_are_counted() {
        let mut sample = Sample {
            at: Instant::now(),
            engines: Vec::new(),
            connections: Vec::new(),
            left_out: 0,
        };
        let row = |state: &str, remote: Value| json!({ "state": state, "remote": remote, "pids": [], "bytes_acked": 7 });
        let mut rows = vec![
            row("LISTEN", Value::Null),
            row("TIME-WAIT", "10.0.0.1:1".into()),
        ];
        rows.extend(vec![row("ESTAB", "10.0.0.1:1".into()); CONNECTIONS_MAX + 3]);
        sample.add("@a", &Value::Array(rows));
        assert_eq!(sample.connections.len(), CONNECTIONS_MAX);
        assert_eq!(sample.left_out, 3);
        assert_eq!(sample.connections[0].counted.sent_bytes, 7);
    }
}
