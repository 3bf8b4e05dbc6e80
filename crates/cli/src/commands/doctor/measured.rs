//! What `shunt doctor --measure` found of an interface, kept until the machine starts anew, and what an engine
//! chooses by it. A record counts for the interface with its hardware address, and for the kernel it was made on.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use nic::af_xdp::Mode;
use serde::{Deserialize, Serialize};

use super::probes::kernel_release;
use crate::commands::engine::arguments::{DriverName, Profile};

/// Records' names begin so.
const PREFIX: &str = "measured-";
/// Interfaces that are remembered.
const RECORDS_MAX: usize = 64;
/// With `Profile::Auto`, how much longer than the shortest a round trip may be.
const NEAR: f64 = 1.25;
/// What must be gained over packet sockets, which need least and do not touch the kernel's traffic.
const WORTH: f64 = 1.05;

/// A way to reach an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverChoice {
    /// Packet sockets.
    Packet,
    /// AF_XDP, behind the interface's driver.
    XdpGeneric,
    /// AF_XDP, in the interface's driver.
    XdpNative,
    /// AF_XDP, by the device itself.
    XdpZeroCopy,
}

impl DriverChoice {
    /// All of them, packet sockets first.
    pub const ALL: [Self; 4] = [
        Self::Packet,
        Self::XdpGeneric,
        Self::XdpNative,
        Self::XdpZeroCopy,
    ];

    /// The mode of AF_XDP, if it is that.
    pub const fn mode(self) -> Option<Mode> {
        match self {
            Self::Packet => None,
            Self::XdpGeneric => Some(Mode::Generic),
            Self::XdpNative => Some(Mode::Native),
            Self::XdpZeroCopy => Some(Mode::ZeroCopy),
        }
    }

    pub const fn driver(self) -> DriverName {
        match self.mode() {
            None => DriverName::AfPacket,
            Some(_) => DriverName::AfXdp,
        }
    }

    /// For people, and as flags less their dashes.
    pub fn name(self) -> String {
        let mode = self.mode().map(|mode| format!(" {}", mode.name()));
        format!("{}{}", self.driver().name(), mode.unwrap_or_default())
    }
}

/// What was found of one way. Round trips are of 64-byte frames, answered by the peer's kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found {
    pub way: DriverChoice,
    /// Median of the rounds' medians; none where the way cannot be had.
    pub p50_us: Option<f64>,
    /// Median of the rounds' 99th percentiles.
    pub p99_us: Option<f64>,
    /// Sent and acknowledged, the median of the rounds.
    pub gbit_s: Option<f64>,
    /// Received from the kernel of a veth pair's other end, the median of the rounds.
    #[serde(default)]
    pub received_gbit_s: Option<f64>,
    /// Largest less smallest of the rounds' medians, in per cent of the middle one.
    pub spread_percent: Option<f64>,
    pub round_trips: usize,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// Why there is no figure of receiving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_lacks: Option<String>,
}

/// What is kept of an interface.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Its name then.
    pub interface: String,
    pub hardware: String,
    /// `uname -r`.
    pub kernel: String,
    /// Seconds since 1970.
    pub measured_at_s: u64,
    /// Who answered.
    pub peer: String,
    pub rounds: usize,
    /// Each way.
    pub ways: Vec<Found>,
}

impl Record {
    /// Which way serves a profile best; `None` where none answered.
    pub fn choose(&self, profile: Profile) -> Option<DriverChoice> {
        let usable = |found: &&Found| found.p50_us.is_some() && found.gbit_s.is_some();
        // Both ways count where both were measured of all.
        let counts_in = self
            .ways
            .iter()
            .filter(usable)
            .all(|one| one.received_gbit_s.is_some());
        let of = |found: &Found| {
            let p50 = found.p50_us.unwrap_or(f64::INFINITY);
            let received = found.received_gbit_s.filter(|_| counts_in).unwrap_or(0.0);
            (found.way, 1.0 / p50, found.gbit_s.unwrap_or(0.0) + received)
        };
        let all: Vec<_> = self.ways.iter().filter(usable).map(of).collect();
        let quickest = all.iter().map(|(_, speed, _)| *speed).fold(0.0, f64::max);
        let is_near = |speed: f64| profile != Profile::Auto || speed * NEAR >= quickest;
        let score = |speed: f64, rate: f64| match profile {
            Profile::Latency => speed,
            Profile::Throughput | Profile::Auto => rate,
        };
        let mut best: Option<(DriverChoice, f64)> = None;
        for (way, speed, rate) in all.into_iter().filter(|(_, speed, _)| is_near(*speed)) {
            let score = score(speed, rate);
            if best.is_none_or(|(_, so_far)| score > so_far * WORTH) {
                best = Some((way, score));
            }
        }
        best.map(|(way, _)| way)
    }

    /// Keeps it in place of an older one.
    pub fn keep(&self) -> anyhow::Result<PathBuf> {
        let path = path_of(&self.hardware)?;
        let text = serde_json::to_vec_pretty(self)?;
        let new = path.with_extension("new");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options
            .open(&new)
            .with_context(|| format!("remembering in {}", new.display()))?;
        file.write_all(&text)?;
        fs::rename(&new, &path).with_context(|| format!("remembering in {}", path.display()))?;
        forget_the_oldest(&path)?;
        Ok(path)
    }
}

fn path_of(hardware: &str) -> anyhow::Result<PathBuf> {
    let directory = lab::state::directory().context("finding a place for what was measured")?;
    Ok(directory.join(format!("{PREFIX}{}.json", hardware.replace(':', ""))))
}

/// Interfaces come and go, those of labs with new addresses each time.
fn forget_the_oldest(beside: &Path) -> anyhow::Result<()> {
    let directory = beside.parent().context("a file has a directory")?;
    let mut kept = Vec::new();
    for entry in fs::read_dir(directory).context("looking at what was measured before")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            kept.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    kept.sort();
    let excess = kept.len().saturating_sub(RECORDS_MAX);
    for (_, path) in &kept[..excess] {
        fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

/// The hardware address of an interface, as sysfs or the kernel writes it.
pub fn hardware_of(interface: &str) -> Option<String> {
    let link = netlink::interface::hardware_address(interface).ok()?;
    Some(link.to_string())
}

/// What was measured of an interface; `None`: nothing, or on another kernel, or it cannot be read.
pub fn remembered(interface: &str) -> Option<Record> {
    let hardware = hardware_of(interface)?;
    let text = fs::read(path_of(&hardware).ok()?).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    (record.hardware == hardware && record.kernel == kernel_release()).then_some(record)
}

/// How an engine with so many cores is to reach an interface for which no driver was named, and why;
/// `None`: nothing was measured, or nothing that serves it.
pub fn way_for(interface: &str, profile: Profile, cores: u16) -> Option<(DriverChoice, String)> {
    let record = remembered(interface)?;
    let way = record.choose(profile)?;
    let queues = netlink::ethtool::receive_queues(interface).unwrap_or(1);
    if way.mode().is_some() && queues < u32::from(cores) {
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let why = format!(
        "{} chosen for {}, as `shunt doctor --measure {interface}` found {} min ago",
        way.name(),
        profile.name(),
        now.saturating_sub(record.measured_at_s) / 60
    );
    Some((way, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ways: &[(DriverChoice, f64, f64)]) -> Record {
        let found = |&(way, p50_us, gbit_s): &(DriverChoice, f64, f64)| Found {
            way,
            p50_us: Some(p50_us),
            p99_us: Some(p50_us),
            gbit_s: Some(gbit_s),
            received_gbit_s: None,
            spread_percent: Some(0.0),
            round_trips: 100,
            lacks: None,
            receive_lacks: None,
        };
        Record {
            interface: "eth0".to_owned(),
            hardware: "02:00:00:00:00:01".to_owned(),
            kernel: kernel_release(),
            measured_at_s: 1,
            peer: "10.0.0.1".to_owned(),
            rounds: 3,
            ways: ways.iter().map(found).collect(),
        }
    }

    #[test]
    fn each_profile_chooses_what_serves_it() {
        let [packet, generic, native, _] = DriverChoice::ALL;
        let veth = record(&[
            (packet, 2.5, 50.0),
            (generic, 2.1, 44.0),
            (native, 2.7, 7.0),
        ]);
        assert_eq!(veth.choose(Profile::Latency), Some(generic));
        assert_eq!(veth.choose(Profile::Throughput), Some(packet));
        assert_eq!(veth.choose(Profile::Auto), Some(packet), "2.5 is near 2.1");
        let far = record(&[
            (packet, 9.0, 50.0),
            (generic, 2.1, 44.0),
            (native, 2.2, 7.0),
        ]);
        assert_eq!(far.choose(Profile::Auto), Some(generic));
        assert_eq!(far.choose(Profile::Throughput), Some(packet));
    }

    #[test]
    fn what_is_received_counts_where_it_was_measured_of_all() {
        let [packet, generic, ..] = DriverChoice::ALL;
        let mut veth = record(&[(packet, 2.5, 40.0), (generic, 2.5, 44.0)]);
        assert_eq!(veth.choose(Profile::Throughput), Some(generic));
        veth.ways[0].received_gbit_s = Some(30.0);
        assert_eq!(veth.choose(Profile::Throughput), Some(generic));
        veth.ways[1].received_gbit_s = Some(17.0);
        assert_eq!(veth.choose(Profile::Throughput), Some(packet));
    }

    #[test]
    fn what_gains_nothing_worth_having_does_not_displace_packet_sockets() {
        let [packet, generic, ..] = DriverChoice::ALL;
        let alike = record(&[(packet, 2.50, 50.0), (generic, 2.45, 51.0)]);
        for profile in [Profile::Latency, Profile::Throughput, Profile::Auto] {
            assert_eq!(alike.choose(profile), Some(packet));
        }
    }

    #[test]
    fn ways_that_cannot_be_had_are_not_chosen() {
        let mut nothing = record(&[(DriverChoice::XdpZeroCopy, 1.0, 90.0)]);
        nothing.ways[0].p50_us = None;
        assert_eq!(nothing.choose(Profile::Latency), None);
        assert_eq!(record(&[]).choose(Profile::Auto), None);
    }
}
