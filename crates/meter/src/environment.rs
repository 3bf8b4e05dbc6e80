//! Where a measurement was made: kernel, processor, interface and its settings, and who else used the processors
//! meanwhile.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
};

use netlink::ethtool::{self, Offload};
use rustix::{
    param::clock_ticks_per_second,
    system::uname,
    thread::{CpuSet, sched_getaffinity},
};
use serde::{Deserialize, Serialize};

use crate::{clock::ClockReport, sys};

/// Interfaces that are looked at.
const INTERFACES_MAX: usize = 256;

/// Where it was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Environment {
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: Option<String>,
    /// Processors on which this program may run.
    pub affinity: Vec<usize>,
    pub clock: ClockReport,
    /// The interface by which the kernel reaches the target.
    pub interface: Option<Interface>,
    /// SCHED_FIFO and locked memory.
    pub is_real_time: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    /// Its driver, where it says.
    pub driver: Option<String>,
    /// Largest IP packet.
    pub mtu_bytes: Option<u32>,
    /// Which offloads are on, by their names of ethtool(8).
    pub offloads: BTreeMap<String, bool>,
    /// How long a received and a sent frame may wait for an interrupt, where the driver says.
    pub coalescing_us: Option<[u32; 2]>,
}

impl Environment {
    /// Looks around.
    pub fn read(clock: ClockReport, interface: Option<Interface>, is_real_time: bool) -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        Self {
            kernel: uname().release().to_string_lossy().into_owned(),
            processor: processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            affinity: (0..CpuSet::MAX_CPU)
                .filter(|&cpu| allowed.is_set(cpu))
                .collect(),
            clock,
            interface,
            is_real_time,
        }
    }

    pub fn lines(&self) -> Vec<String> {
        let processor = self.processor.as_deref().unwrap_or("processor not named");
        let cpus: Vec<String> = self
            .affinity
            .iter()
            .take(16)
            .map(usize::to_string)
            .collect();
        let real_time = if self.is_real_time {
            ", SCHED_FIFO, memory locked"
        } else {
            ""
        };
        let clock = &self.clock;
        let drift = clock.drift_ppm.map_or(String::new(), |ppm| {
            format!(", {ppm:+.1} ppm beside CLOCK_MONOTONIC_RAW over this run")
        });
        let mut lines = vec![
            format!(
                "Linux {}, {processor}, on processors {}{real_time}",
                self.kernel,
                cpus.join(",")
            ),
            format!(
                "clock {} ({}), {:.0} ns for each read{drift}",
                clock.source, clock.reason, clock.read_ns
            ),
        ];
        lines.push(match &self.interface {
            Some(interface) => interface.line(),
            None => "interface: none of the kernel has the address that this end uses".to_owned(),
        });
        lines
    }
}

/// The model of the first processor.
fn processor(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Interface {
    /// Asks the kernel of an interface.
    pub fn read(name: &str) -> Self {
        let offloads = [
            ("rx-checksum", Offload::ReceiveChecksum),
            ("tx-checksum", Offload::TransmitChecksum),
            ("tso", Offload::Segmentation),
            ("gro", Offload::ReceiveMerge),
        ];
        let said = |(key, offload): (&str, Offload)| {
            Some((key.to_owned(), ethtool::offload(name, offload)?))
        };
        Self {
            name: name.to_owned(),
            driver: ethtool::driver(name),
            mtu_bytes: netlink::interface::read(name).ok().map(|found| found.mtu),
            offloads: offloads.into_iter().filter_map(said).collect(),
            coalescing_us: ethtool::coalescing_us(name),
        }
    }

    /// The interface that has the address from which the kernel reaches this one.
    pub fn towards(to: SocketAddr) -> Option<Self> {
        let any: SocketAddr = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }
            .parse()
            .ok()?;
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(to).ok()?;
        let own = socket.local_addr().ok()?.ip();
        names()
            .into_iter()
            .find(|name| has_address(name, own))
            .map(|name| Self::read(&name))
    }

    fn line(&self) -> String {
        let driver = self.driver.as_deref().unwrap_or("driver not said");
        let offloads = self
            .offloads
            .iter()
            .map(|(name, on)| format!("{name} {}", if *on { "on" } else { "off" }));
        let offloads: Vec<String> = offloads.collect();
        let mtu = self
            .mtu_bytes
            .map_or(String::new(), |mtu| format!(", MTU {mtu}"));
        let coalescing = match self.coalescing_us {
            Some([rx, tx]) => format!("coalescing rx {rx} µs, tx {tx} µs"),
            None => "coalescing not told by the driver".to_owned(),
        };
        format!(
            "interface {} ({driver}){mtu}; {}; {coalescing}",
            self.name,
            offloads.join(", ")
        )
    }
}

/// Names of this network namespace's interfaces: sysfs may be that of another one.
fn names() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let name = |line: &str| Some(line.split_once(':')?.0.trim().to_owned());
    text.lines().filter_map(name).take(INTERFACES_MAX).collect()
}

fn has_address(name: &str, address: IpAddr) -> bool {
    let addresses = || {
        let index = netlink::interface::read(name).ok()?.index;
        let snapshot = netlink::Monitor::follow(index, |descriptor| descriptor)
            .ok()?
            .read()
            .ok()?;
        Some(snapshot.addresses)
    };
    let is_loopback = name == "lo" && address.is_loopback();
    is_loopback || addresses().is_some_and(|found| found.iter().any(|(one, _)| *one == address))
}

/// Who else used the processors, as counted at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    switches: (u64, u64),
    waited_ns: Option<u64>,
    stolen_s: Option<f64>,
}

/// What disturbed a measurement.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Contention {
    /// How often the measuring thread was taken off its processor.
    pub preemptions: u64,
    /// How long it was ready and had no processor.
    pub waited_us: Option<f64>,
    /// Processor time that a hypervisor gave to others, over all processors.
    pub stolen_s: Option<f64>,
}

impl Moment {
    /// Counts now, for the calling thread.
    pub fn now() -> Self {
        let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        Self {
            switches: sys::switches_of_this_thread(),
            waited_ns: schedstat
                .split_ascii_whitespace()
                .nth(1)
                .and_then(|word| word.parse().ok()),
            stolen_s: stolen_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default())
                .map(|ticks| ticks as f64 / clock_ticks_per_second() as f64),
        }
    }

    /// What came since.
    pub fn since(self) -> Contention {
        let now = Self::now();
        let waited = now.waited_ns.zip(self.waited_ns);
        Contention {
            preemptions: now.switches.1.saturating_sub(self.switches.1),
            waited_us: waited.map(|(now, before)| now.saturating_sub(before) as f64 / 1e3),
            stolen_s: now
                .stolen_s
                .zip(self.stolen_s)
                .map(|(now, before)| (now - before).max(0.0)),
        }
    }
}

/// `steal` of the first line of /proc/stat, proc_stat(5).
fn stolen_ticks(text: &str) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    line.split_ascii_whitespace().nth(7)?.parse().ok()
}

/// How often, in words.
pub fn times(count: u64) -> String {
    match count {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

impl Contention {
    /// Adds what disturbed another one.
    pub fn add(&mut self, other: &Self) {
        let sum = |one: Option<f64>, more: Option<f64>| {
            one.map_or(more, |one| Some(one + more.unwrap_or(0.0)))
        };
        self.preemptions += other.preemptions;
        self.waited_us = sum(self.waited_us, other.waited_us);
        self.stolen_s = sum(self.stolen_s, other.stolen_s);
    }

    pub fn line(&self) -> String {
        let waited = self
            .waited_us
            .map_or("not said".to_owned(), |us| format!("{us:.0} µs"));
        let stolen = self
            .stolen_s
            .map_or("not said".to_owned(), |seconds| format!("{seconds:.2} s"));
        format!(
            "contention: taken off its processor {}, waited for one {waited}; processor time stolen by a hypervisor {stolen}",
            times(self.preemptions)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_and_the_model_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            stolen_ticks("cpu  1 2 3 4 5 6 7 89 0 0\ncpu0 1\n"),
            Some(89)
        );
        assert_eq!((stolen_ticks("cpu  1 2\n"), stolen_ticks("")), (None, None));
        assert_eq!(
            processor("vendor_id : X\nmodel name\t: A B C\n").as_deref(),
            Some("A B C")
        );
    }

    #[test]
    fn loopback_is_the_way_to_this_host() {
        let found = Interface::towards(SocketAddr::from(([127, 0, 0, 1], 9))).unwrap();
        assert_eq!(found.name, "lo");
        assert!(found.mtu_bytes.is_some());
    }

    #[test]
    fn what_came_since_is_never_below_nothing() {
        let since = Moment::now().since();
        assert!(
            since.waited_us.is_none_or(|us| us >= 0.0)
                && since.stolen_s.is_none_or(|seconds| seconds >= 0.0)
        );
    }
}
