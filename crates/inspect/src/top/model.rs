//! What is shown: rates between the last two samples, in an order, through a filter, and where the user is.
//!
//! Memory is bounded by two samples.

use std::{cmp::Reverse, collections::HashMap, time::Duration};

use serde::Serialize;

use super::{
    Sort,
    program::{Program, programs},
    sample::{Connection, Counted, Engine, Sample},
};

/// Which table is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tab {
    #[default]
    Connections,
    /// Each process with connections.
    Programs,
    Engines,
}

impl Tab {
    /// All, in order.
    pub const ALL: [Self; 3] = [Self::Connections, Self::Programs, Self::Engines];

    pub fn title(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Programs => "programs",
            Self::Engines => "engines",
        }
    }
}

/// What grows in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Bytes towards the peer, or the device.
    pub sent_bytes_per_s: f64,
    pub received_bytes_per_s: f64,
    /// Frames sent, of an engine.
    pub sent_frames_per_s: f64,
    /// Frames received, of an engine.
    pub received_frames_per_s: f64,
    /// Segments sent again.
    pub retransmissions_per_s: f64,
}

impl Rates {
    fn between(before: Counted, now: Counted, elapsed: Duration) -> Self {
        let rate = |before, now| per_second(before, now, elapsed);
        Self {
            sent_bytes_per_s: rate(before.sent_bytes, now.sent_bytes),
            received_bytes_per_s: rate(before.received_bytes, now.received_bytes),
            sent_frames_per_s: rate(before.sent_frames, now.sent_frames),
            received_frames_per_s: rate(before.received_frames, now.received_frames),
            retransmissions_per_s: rate(before.retransmissions, now.retransmissions),
        }
    }

    /// Both directions, bytes a second.
    pub fn both(&self) -> f64 {
        self.sent_bytes_per_s + self.received_bytes_per_s
    }

    /// Those of another connection of the same program.
    pub fn add(&mut self, other: Self) {
        self.sent_bytes_per_s += other.sent_bytes_per_s;
        self.received_bytes_per_s += other.received_bytes_per_s;
        self.retransmissions_per_s += other.retransmissions_per_s;
    }
}

/// What a counter grew in a second. One that fell is another's, of the same name: nothing is known of its rate.
pub fn per_second(before: u64, now: u64, elapsed: Duration) -> f64 {
    exact(now.saturating_sub(before)) / elapsed.as_secs_f64().max(1e-3)
}

/// A count as a number with a fraction; beyond 2^53 the last digits are lost.
fn exact(count: u64) -> f64 {
    count as f64
}

#[derive(Debug, Default)]
pub struct Model {
    /// As it is now, with rates.
    pub engines: Vec<(Engine, Rates)>,
    /// In order, those that pass the filter.
    pub connections: Vec<(Connection, Rates)>,
    pub programs: Vec<Program>,
    /// Connections that were too many.
    pub left_out: usize,
    /// The table shown.
    pub tab: Tab,
    /// By what rows are sorted.
    pub sort: Sort,
    /// The smallest first.
    pub reversed: bool,
    /// What must stand in a row.
    pub filter: String,
    /// The row where the user is.
    pub selected: usize,
    /// New samples are not shown.
    pub paused: bool,
    /// Whether rates are known.
    pub has_rates: bool,
    all: Vec<(Connection, Rates)>,
    before: Option<Sample>,
}

type Key = (String, String, String, String);

fn key(one: &Connection) -> Key {
    let (label, protocol) = (one.label.clone(), one.protocol.clone());
    (label, protocol, one.local.clone(), one.remote.clone())
}

impl Model {
    pub fn new(sort: Sort, filter: String) -> Self {
        Self {
            sort,
            filter,
            ..Self::default()
        }
    }

    /// The next sample takes the place of the last.
    pub fn update(&mut self, sample: Sample) {
        let before = self.before.as_ref();
        let elapsed = before.map(|before| sample.at.saturating_duration_since(before.at));
        self.has_rates = elapsed.is_some();
        let elapsed = elapsed.unwrap_or(Duration::MAX);
        let known: HashMap<Key, Counted> = before
            .into_iter()
            .flat_map(|before| &before.connections)
            .map(|one| (key(one), one.counted))
            .collect();
        // What was not there in the sample before has done all that it did since.
        let of_connection = |one: &Connection| {
            let before = known.get(&key(one)).copied().unwrap_or_default();
            (one.clone(), Rates::between(before, one.counted, elapsed))
        };
        self.all = sample.connections.iter().map(of_connection).collect();
        let of_engine = |one: &Engine| {
            let mut engines = before.into_iter().flat_map(|before| &before.engines);
            let same = engines.find(|other| other.label == one.label && other.pid == one.pid);
            let mut one = one.clone();
            one.compare(same, elapsed);
            let before = same.map_or(one.counted, |same| same.counted);
            let rates = Rates::between(before, one.counted, elapsed);
            (one, rates)
        };
        self.engines = sample.engines.iter().map(of_engine).collect();
        self.left_out = sample.left_out;
        self.before = Some(sample);
        self.arrange();
    }

    /// Sorts and filters again.
    pub fn arrange(&mut self) {
        let filter = self.filter.to_lowercase();
        let passes = |(one, _): &&(Connection, Rates)| {
            let pid = one.pid.map_or(String::new(), |pid| pid.to_string());
            let texts = [
                &one.label,
                &one.protocol,
                &one.state,
                &one.local,
                &one.remote,
                &one.program,
                &pid,
            ];
            let mut texts = texts.iter();
            filter.is_empty() || texts.any(|text| text.to_lowercase().contains(&filter))
        };
        self.connections = self.all.iter().filter(passes).cloned().collect();
        let attached = self.engines.iter().flat_map(|(engine, _)| {
            let label = engine.label.as_str();
            let with_rates = engine.attached.iter().zip(&engine.call_rates);
            with_rates.map(move |(one, rates)| (label, one, *rates))
        });
        self.programs = programs(&self.connections, attached, &filter);
        let sort = self.sort;
        self.connections.sort_by_cached_key(|(one, rates)| {
            let figure = figure(
                sort,
                rates,
                one.counted.retransmissions,
                one.srtt_us,
                one.queues,
            );
            let name = (sort == Sort::Program).then(|| one.program.clone());
            (name, Reverse(figure), one.local.clone(), one.remote.clone())
        });
        self.programs.sort_by_cached_key(|one| {
            let figure = figure(
                sort,
                &one.rates,
                one.retransmissions,
                one.srtt_us,
                one.queues,
            );
            let name = (sort == Sort::Program).then(|| one.program.clone());
            (name, Reverse(figure), one.pid)
        });
        if self.reversed {
            self.connections.reverse();
            self.programs.reverse();
        }
        self.selected = self.selected.min(self.rows().saturating_sub(1));
    }

    /// Rows of the table shown.
    pub fn rows(&self) -> usize {
        match self.tab {
            Tab::Connections => self.connections.len(),
            Tab::Programs => self.programs.len(),
            Tab::Engines => self.engines.len(),
        }
    }

    /// Moves the selection by so many rows.
    pub fn move_by(&mut self, rows: isize) {
        let last = self.rows().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(rows).min(last);
    }
}

/// What is sorted by, in thousandths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are not negative, and a float that is too large becomes the largest number"
)]
fn figure(
    sort: Sort,
    rates: &Rates,
    retransmissions: u64,
    srtt_us: Option<u64>,
    queues: (u64, u64),
) -> u64 {
    let thousandths = |rate: f64| (rate * 1e3) as u64;
    match sort {
        Sort::Rate => thousandths(rates.both()),
        Sort::Sent => thousandths(rates.sent_bytes_per_s),
        Sort::Received => thousandths(rates.received_bytes_per_s),
        Sort::Retransmissions => retransmissions,
        Sort::Rtt => srtt_us.unwrap_or(0),
        Sort::Queue => queues.0.saturating_add(queues.1),
        Sort::Program => 0,
    }
}

#[cfg(test)]
pub mod tests;
