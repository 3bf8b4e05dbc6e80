//! Where the time of a transfer goes, and which part of it the others waited for.

use std::time::Instant;

use serde::Serialize;

use crate::protocol::StageTimes;

/// What a thread that moves bytes is busy with, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The disk: reading at the sender, room for another write at the receiver and the copy to there.
    Disk,
    /// Hashing.
    Hash,
    /// Compressing, or undoing that.
    Pack,
    /// The connection.
    Network,
}

#[derive(Debug)]
pub struct Clock {
    begun: Instant,
    last: Instant,
    times: StageTimes,
}

impl Clock {
    /// Begins now.
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            last: now,
            times: StageTimes::default(),
        }
    }

    /// The time since the last call went into this.
    pub fn lap(&mut self, stage: Stage) {
        let now = Instant::now();
        let us = micros(now - self.last);
        self.last = now;
        match stage {
            Stage::Disk => self.times.disk_us += us,
            Stage::Hash => self.times.hash_us += us,
            Stage::Pack => self.times.pack_us += us,
            Stage::Network => self.times.network_us += us,
        }
    }

    /// The time since the last call counts for nothing: there was no work.
    pub fn idle(&mut self) {
        let now = Instant::now();
        self.begun += now - self.last;
        self.last = now;
    }

    /// What came together.
    pub fn times(&self) -> StageTimes {
        StageTimes {
            total_us: micros(self.last - self.begun),
            ..self.times
        }
    }
}

fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The times of several threads.
pub fn sum(all: impl IntoIterator<Item = StageTimes>) -> StageTimes {
    all.into_iter()
        .fold(StageTimes::default(), |sum, one| StageTimes {
            disk_us: sum.disk_us.saturating_add(one.disk_us),
            hash_us: sum.hash_us.saturating_add(one.hash_us),
            pack_us: sum.pack_us.saturating_add(one.pack_us),
            network_us: sum.network_us.saturating_add(one.network_us),
            total_us: sum.total_us.saturating_add(one.total_us),
        })
}

/// Shares of an end's time, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// See [`Stage::Disk`].
    pub disk: f64,
    /// See [`Stage::Hash`].
    pub hash: f64,
    /// See [`Stage::Pack`].
    pub pack: f64,
    /// See [`Stage::Network`]: copying to or from the connection, and waiting for it.
    pub network: f64,
}

/// Both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// The sender's shares.
    pub sender: Shares,
    /// The receiver's shares.
    pub receiver: Shares,
}

/// What limited a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// Reading at the sender.
    SourceDisk,
    /// The sender's processor, hashing.
    SenderHash,
    /// The sender's processor, compressing.
    Packing,
    /// The connection between them.
    Network,
    /// The receiver's processor, hashing.
    ReceiverHash,
    /// The receiver's processor, undoing compression.
    Unpacking,
    /// Writing at the receiver.
    TargetDisk,
}

impl Totals {
    /// Of what either end measured.
    pub fn new(sender: &StageTimes, receiver: &StageTimes) -> Self {
        Self {
            sender: shares(sender),
            receiver: shares(receiver),
        }
    }

    /// Which stage the others waited for, and its share of its end's time. An end that waits for the connection
    /// most of its time waits for what lies behind it: the connection itself is to blame if both do.
    pub fn bottleneck(&self) -> (Bottleneck, f64) {
        let network = self.sender.network.min(self.receiver.network);
        [
            (Bottleneck::SourceDisk, self.sender.disk),
            (Bottleneck::SenderHash, self.sender.hash),
            (Bottleneck::Packing, self.sender.pack),
            (Bottleneck::Network, network),
            (Bottleneck::ReceiverHash, self.receiver.hash),
            (Bottleneck::Unpacking, self.receiver.pack),
            (Bottleneck::TargetDisk, self.receiver.disk),
        ]
        .into_iter()
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .unwrap_or((Bottleneck::Network, 0.0))
    }
}

fn shares(times: &StageTimes) -> Shares {
    let total = times.total_us.max(1) as f64;
    Shares {
        disk: times.disk_us as f64 / total,
        hash: times.hash_us as f64 / total,
        pack: times.pack_us as f64 / total,
        network: times.network_us as f64 / total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(disk_us: u64, hash_us: u64, network_us: u64) -> StageTimes {
        StageTimes {
            disk_us,
            hash_us,
            network_us,
            pack_us: 0,
            total_us: disk_us + hash_us + network_us,
        }
    }

    #[test]
    fn a_slow_disk_is_blamed_although_the_sender_waits_for_the_connection() {
        let totals = Totals::new(&times(5, 15, 80), &times(70, 20, 10));
        assert_eq!(totals.bottleneck(), (Bottleneck::TargetDisk, 0.7));
    }

    #[test]
    fn the_connection_is_blamed_when_both_ends_wait_for_it() {
        let totals = Totals::new(&times(5, 5, 90), &times(10, 10, 80));
        assert_eq!(totals.bottleneck(), (Bottleneck::Network, 0.8));
    }

    #[test]
    fn an_end_without_work_has_no_shares() {
        assert_eq!(
            Totals::new(&StageTimes::default(), &StageTimes::default()),
            Totals::default()
        );
    }
}
