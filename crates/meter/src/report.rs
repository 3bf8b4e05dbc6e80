//! The result of one measurement: what is printed, saved and compared.

pub mod csv;
pub mod html;
mod text;
pub mod warning;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use statistics::Distribution;

use crate::{
    environment::{Contention, Environment},
    probe::Kind,
    served::Served,
    session::{Counts, Outcome, Pacing, Plan},
};

/// What `version` says; files of others are refused.
pub const VERSION: u32 = 1;

/// One measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// What its owner calls it.
    pub label: Option<String>,
    /// What was measured.
    pub kind: Kind,
    /// Whom, as it was named.
    pub target: String,
    /// The address that the name stands for; frames have none.
    pub address: Option<IpAddr>,
    /// The port, of UDP and TCP.
    pub port: Option<u16>,
    /// Payload of a probe: data behind the header of ICMP, UDP or TCP, or behind an Ethernet header.
    pub payload_bytes: usize,
    /// Whose stack this end used.
    pub stack: String,
    /// The engine to which `shunt run` led this end.
    #[serde(default)]
    pub served: Option<Served>,
    /// How it was sent.
    pub sending: Sending,
    /// What was sent and what came.
    pub counts: Counts,
    /// Round trips; in an open loop from when probes were due.
    pub round_trip: Option<Distribution>,
    /// In an open loop: from when probes were really sent, which leaves out what the sender held up.
    pub from_sending: Option<Distribution>,
    /// In an open loop: how much later than due probes were sent.
    pub lateness: Option<Distribution>,
    /// How long it took without the warm-up.
    pub seconds: f64,
    /// Why it ended before all was sent.
    pub ended_early: Option<String>,
    /// Where it was measured.
    pub environment: Environment,
    /// What disturbed it.
    pub contention: Contention,
    /// What a reader should know of the figures, with the next step.
    pub warnings: Vec<String>,
    /// Limits that were not kept.
    pub exceeded: Vec<String>,
}

/// How probes were sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sending {
    /// `closed` or `open`.
    pub r#loop: String,
    /// Closed loop: on their way at once.
    pub in_flight: Option<u64>,
    /// Closed loop: all at once when the last was answered.
    pub is_burst: bool,
    /// Open loop: the rate.
    pub rate_per_s: Option<f64>,
    /// Probes before, which do not count.
    pub warm_up: u64,
    /// After this a probe was lost.
    pub timeout_ms: f64,
    /// Answers were asked for again and again.
    pub is_spinning: bool,
}

impl Sending {
    pub fn of(plan: &Plan) -> Self {
        let (name, in_flight, is_burst, rate_per_s) = match plan.pacing {
            Pacing::Closed {
                in_flight, burst, ..
            } => ("closed", Some(in_flight), burst, None),
            Pacing::Open { per_s } => ("open", None, false, Some(per_s)),
        };
        Self {
            r#loop: name.to_owned(),
            in_flight,
            is_burst,
            rate_per_s,
            warm_up: plan.warm_up,
            timeout_ms: plan.timeout.as_secs_f64() * 1e3,
            is_spinning: plan.spin,
        }
    }
}

/// Whom a measurement asked, and by what.
#[derive(Debug, Clone)]
pub struct Subject {
    pub kind: Kind,
    pub target: String,
    /// See [`Report::address`].
    pub address: Option<IpAddr>,
    /// See [`Report::port`].
    pub port: Option<u16>,
    /// See [`Report::payload_bytes`].
    pub payload_bytes: usize,
    /// See [`Report::stack`].
    pub stack: String,
}

impl Report {
    /// Puts together what was found.
    pub fn of(subject: Subject, plan: &Plan, outcome: &Outcome, environment: Environment) -> Self {
        let mut report = Self {
            version: VERSION,
            label: None,
            kind: subject.kind,
            target: subject.target,
            address: subject.address,
            port: subject.port,
            payload_bytes: subject.payload_bytes,
            stack: subject.stack,
            served: None,
            sending: Sending::of(plan),
            counts: outcome.counts.clone(),
            round_trip: outcome.round_trips.distribution(),
            from_sending: outcome.from_sending.distribution(),
            lateness: outcome.lateness.distribution(),
            seconds: outcome.seconds,
            ended_early: outcome.ended_early.clone(),
            environment,
            contention: outcome.contention.clone(),
            warnings: Vec::new(),
            exceeded: Vec::new(),
        };
        report.warnings = warning::of(&report);
        report
    }

    /// Whether something that was measured is a failure: loss beyond what is allowed, or a limit that was not kept.
    pub fn is_failure(&self) -> bool {
        !self.exceeded.is_empty()
    }

    /// Per cent of the probes that were sent and not answered in time; none where none was sent.
    pub fn loss_percent(&self) -> Option<f64> {
        let sent = self.counts.sent;
        (sent > 0).then(|| self.counts.lost as f64 * 100.0 / sent as f64)
    }

    /// Holds the result against limits.
    pub fn judge(&mut self, limits: &[Limit], loss_max_percent: f64) {
        let mut exceeded = Vec::new();
        match self.loss_percent() {
            None => exceeded.push("nothing was sent".to_owned()),
            Some(loss) if loss > loss_max_percent => {
                exceeded.push(format!(
                    "{loss:.3} % lost; {loss_max_percent} % are allowed (--max-loss)"
                ));
            }
            Some(_) => {}
        }
        if let Some(reason) = &self.ended_early {
            exceeded.push(format!("it ended early: {reason}"));
        }
        let errors: u64 = self.counts.errors.values().sum();
        if errors > 0 && self.ended_early.is_none() {
            exceeded.push(format!("{errors} errors"));
        }
        if self.counts.corrupted > 0 {
            exceeded.push(format!("{} corrupted", self.counts.corrupted));
        }
        for limit in limits {
            exceeded.extend(limit.exceeded_by(self.round_trip.as_ref()));
        }
        self.exceeded = exceeded;
    }
}

/// A figure of a report, by its name; none where it was not measured.
pub type Figure = (&'static str, fn(&Report) -> Option<f64>);

/// The figures by which measurements are compared, in microseconds.
pub const FIGURES: [Figure; 3] = [
    ("mean", |report| Some(report.round_trip.as_ref()?.mean_us)),
    ("p50", |report| report.round_trip.as_ref()?.median_us()),
    ("p99", |report| {
        report.round_trip.as_ref()?.percentile_us(99.0)
    }),
];

/// A limit: no more than so many microseconds of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    name: String,
    us: f64,
}

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no limit such as p99=250us, mean=1ms or max=0.5s");
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let is_percentile = name.strip_prefix('p').is_some_and(|percent| {
            percent
                .parse::<f64>()
                .is_ok_and(|percent| statistics::PERCENTS.contains(&percent))
        });
        if !is_percentile && !["min", "mean", "max"].contains(&name) {
            return Err(wrong());
        }
        let time = crate::ping::parse_time(value).map_err(|_| wrong())?;
        Ok(Self {
            name: name.to_owned(),
            us: time.as_secs_f64() * 1e6,
        })
    }
}

impl Limit {
    fn exceeded_by(&self, found: Option<&Distribution>) -> Option<String> {
        let value = found.and_then(|found| match self.name.as_str() {
            "min" => Some(found.min_us),
            "mean" => Some(found.mean_us),
            "max" => Some(found.max_us),
            percentile => found.percentile_us(percentile.strip_prefix('p')?.parse().ok()?),
        });
        let (name, limit) = (&self.name, self.us);
        match value {
            None => Some(format!("{name} was not measured: more --count is needed")),
            Some(value) if value > limit => Some(format!(
                "{name} is {value:.1} µs; {limit:.1} µs are allowed (--limit)"
            )),
            Some(_) => None,
        }
    }
}
