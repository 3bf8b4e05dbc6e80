//! What is measured: the cells of the table, which stacks send and receive, and how much each sends.
//!
//! Only data; nothing here calls the system.

use clap::ValueEnum;
use netem::{Impairment, join::Settings};
use serde::Serialize;

/// Largest segment of a cable of 1500 bytes with time stamps, RFC 6691 and RFC 7323.
const SEGMENT_BYTES: f64 = 1448.0;

/// Whose TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Stack {
    /// The kernel's.
    Kernel,
    /// Ours.
    Shunt,
}

/// Who sends and who receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Combination {
    pub sender: Stack,
    pub receiver: Stack,
}

impl Combination {
    /// All four; the first is what the others are compared with.
    pub const ALL: [Self; 4] = [
        Self::of(Stack::Kernel, Stack::Kernel),
        Self::of(Stack::Shunt, Stack::Kernel),
        Self::of(Stack::Kernel, Stack::Shunt),
        Self::of(Stack::Shunt, Stack::Shunt),
    ];

    /// Of a sender and a receiver.
    pub const fn of(sender: Stack, receiver: Stack) -> Self {
        Self { sender, receiver }
    }
}

/// One bad cable.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// Probability that a frame is lost, in the direction of the data and in that of the ACKs.
    pub loss: f64,
    /// Round trip of an empty cable, half of it each way.
    pub rtt_ms: u64,
    /// Of each direction.
    pub rate_mbit: u64,
    /// Bytes that wait for the line at most.
    pub queue_bytes: u64,
    /// Bytes waiting from which on frames are marked.
    pub ecn_bytes: Option<u64>,
}

impl Cell {
    /// A cable with the buffer of a usual router: one round trip's worth, but never less than a
    /// burst of a fast sender.
    pub fn new(loss: f64, rtt_ms: u64, rate_mbit: u64) -> Self {
        let product = rate_mbit * 125 * rtt_ms;
        let least = if rate_mbit >= 1000 {
            512 * 1024
        } else {
            64 * 1024
        };
        Self {
            loss,
            rtt_ms,
            rate_mbit,
            queue_bytes: product.max(least),
            ecn_bytes: None,
        }
    }

    /// What the cable is told.
    pub fn settings(&self, seed: u64) -> Settings {
        let impairment = Impairment {
            loss: self.loss,
            delay_us: self.rtt_ms * 500,
            rate_bps: Some(self.rate_mbit * 1_000_000),
            queue_bytes: self.queue_bytes,
            ecn_bytes: self.ecn_bytes,
            ..Impairment::default()
        };
        Settings::both(impairment, seed)
    }

    /// How much of the machine a transfer takes.
    pub fn load(&self) -> Load {
        match self.likely_mbit() {
            rate if rate <= 8.0 && self.loss > 0.0 => Load::Idle,
            rate if rate <= 150.0 => Load::Light,
            // A timeout takes as long as thousands of segments: most of the time nothing moves.
            _ if self.loss >= 0.03 => Load::Third,
            _ if self.loss >= 0.01 => Load::Half,
            _ => Load::Whole,
        }
    }

    /// Bytes of a transfer, so that it is long enough to leave the start behind and short enough for the
    /// table: about a second and twenty round trips at the likely rate, a fifth of a second at a
    /// gigabit. Where accidents decide, losses or timeouts, long enough for some of them.
    pub fn bytes(&self) -> u64 {
        let rtt_s = self.rtt_ms as f64 / 1000.0;
        let seconds = match self.load() {
            // How far slow start comes before its first loss is luck, the further the faster the line: a transfer that
            // lives on it for most of its time tells of nothing else.
            Load::Idle if self.rate_mbit > 100 => 6.0 + rtt_s * 30.0,
            Load::Idle => 3.0 + rtt_s * 30.0,
            Load::Light => 1.0 + rtt_s * 20.0,
            Load::Third | Load::Half => 1.0,
            Load::Whole => 0.2 + rtt_s * 3.0,
        };
        let bytes = self.likely_mbit() * 1e6 / 8.0 * seconds;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number of some megabytes"
        )]
        let bytes = bytes as u64;
        bytes.max(128 * 1024)
    }

    /// How long a transfer may take before it counts as failed.
    pub fn patience_s(&self) -> f64 {
        let seconds = self.bytes() as f64 * 8.0 / (self.likely_mbit() * 1e6);
        10.0 + seconds * 10.0
    }

    /// The rate to expect: that of the line, or what loss leaves (Mathis et al. 1997, with the constant
    /// for an ACK of every second segment; CUBIC falls back to it on short round trips, RFC 9438 §4.3).
    fn likely_mbit(&self) -> f64 {
        let line = self.rate_mbit as f64;
        if self.loss == 0.0 {
            return line;
        }
        // Without delay the stacks' own time, and the queue, make the round trip.
        let rtt_s = (self.rtt_ms as f64 / 1000.0).max(0.000_3);
        let loss_limited = SEGMENT_BYTES * 8.0 / rtt_s * 1.0 / self.loss.sqrt() / 1e6;
        line.min(loss_limited)
    }
}

/// How much of the machine a transfer takes, and so how many are made at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Losses keep it slow: three times as many as there are testbeds.
    Idle,
    /// As many as there are testbeds.
    Light,
    /// Three at once.
    Third,
    /// Two at once.
    Half,
    /// It fills a processor: nothing runs beside it.
    Whole,
}

impl Load {
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Light,
        Self::Third,
        Self::Half,
        Self::Whole,
    ];

    /// Testbeds for transfers like this, where `testbeds` carry light ones.
    pub fn testbeds(self, testbeds: usize) -> usize {
        match self {
            Self::Idle => 3 * testbeds,
            Self::Light => testbeds,
            Self::Third => testbeds.min(3),
            Self::Half => testbeds.min(2),
            Self::Whole => 1,
        }
    }

    pub const fn title(self) -> &'static str {
        match self {
            Self::Idle => "cells of losses",
            Self::Light => "slow cells",
            Self::Third => "cells of timeouts",
            Self::Half => "cells of some timeouts",
            Self::Whole => "fast cells",
        }
    }
}

/// Which cells, how often.
#[derive(Debug, Clone, Serialize)]
pub struct Grid {
    pub losses: Vec<f64>,
    pub rtts_ms: Vec<u64>,
    pub rates_mbit: Vec<u64>,
    pub seeds: u64,
    /// Of a ratio that fewer do not tell from the threshold.
    pub seeds_most: u64,
    /// Of what is only reported.
    pub seeds_reported: u64,
}

impl Grid {
    /// Transfers of each combination in each cell with `congestion`. BBR stands beside the kernel's older
    /// one and is not judged: fewer do.
    pub fn seeds_of(&self, congestion: &str) -> u64 {
        if congestion == "bbr" {
            self.seeds_reported
        } else {
            self.seeds
        }
    }

    /// Every cell, in the order of the table.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &rate_mbit in &self.rates_mbit {
            for &rtt_ms in &self.rtts_ms {
                for &loss in &self.losses {
                    cells.push(Cell::new(loss, rtt_ms, rate_mbit));
                }
            }
        }
        cells
    }
}

/// One transfer to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub cell: Cell,
    pub congestion: String,
    pub combination: Combination,
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_fill_a_gigabit_are_measured_alone() {
        for (loss, rtt_ms, rate_mbit, load) in [
            (0.0, 100, 1000, Load::Whole),
            (0.001, 0, 1000, Load::Whole),
            (0.01, 0, 1000, Load::Half),
            (0.03, 0, 1000, Load::Third),
            (0.001, 20, 1000, Load::Light),
            (0.01, 20, 1000, Load::Idle),
            (0.03, 100, 10, Load::Idle),
            (0.0, 0, 10, Load::Light),
            (0.0, 100, 10, Load::Light),
        ] {
            assert_eq!(Cell::new(loss, rtt_ms, rate_mbit).load(), load);
        }
    }

    #[test]
    fn transfers_last_about_as_long_as_they_should() {
        for cell in [
            Cell::new(0.0, 0, 10),
            Cell::new(0.03, 100, 10),
            Cell::new(0.0, 100, 1000),
            Cell::new(0.01, 20, 1000),
        ] {
            let seconds = cell.bytes() as f64 * 8.0 / (cell.likely_mbit() * 1e6);
            assert!((0.1..12.0).contains(&seconds), "{cell:?}: {seconds} s");
        }
    }

    #[test]
    fn a_buffer_holds_a_round_trip_and_a_burst() {
        assert_eq!(Cell::new(0.0, 100, 1000).queue_bytes, 12_500_000);
        assert_eq!(Cell::new(0.0, 0, 10).queue_bytes, 65_536);
    }
}
