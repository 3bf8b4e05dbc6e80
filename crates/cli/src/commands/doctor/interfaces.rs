//! The interfaces of this machine and what they can take off the processor.

use std::fs;

use anyhow::Context;
use serde::Serialize;

use crate::sys;
use netlink::ethtool::{self, Offload};

#[derive(Debug, Serialize)]
pub struct InterfaceReport {
    pub name: String,
    /// Switched on.
    pub up: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// True where the default route leaves through it.
    pub default_route: bool,
    /// IP MTU; None where sysfs shows another namespace.
    pub mtu: Option<u32>,
    /// IPv4 addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Name of the driver.
    pub driver: Option<String>,
    /// Queues for reception and transmission.
    pub queues: Option<(usize, usize)>,
    /// NUMA node of the device.
    pub numa_node: Option<u32>,
    /// Offloads; None where the driver does not say.
    pub offloads: Offloads,
}

/// What the device does instead of the processor.
#[derive(Debug, Serialize)]
pub struct Offloads {
    rx_checksum: Option<bool>,
    tx_checksum: Option<bool>,
    tso: Option<bool>,
    gro: Option<bool>,
}

pub fn all() -> anyhow::Result<Vec<InterfaceReport>> {
    let default = default_route_interface();
    let interfaces = sys::interfaces().context("listing the interfaces")?;
    Ok(interfaces
        .into_iter()
        .map(|interface| report(interface, default.as_deref()))
        .collect())
}

fn report(interface: sys::Interface, default: Option<&str>) -> InterfaceReport {
    let name = interface.name;
    let setting = |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok();
    let ask = |offload| ethtool::offload(&name, offload);
    InterfaceReport {
        up: interface.up,
        loopback: interface.loopback,
        default_route: default == Some(name.as_str()),
        mtu: setting("mtu").and_then(|text| text.trim().parse().ok()),
        addresses: interface
            .addresses
            .iter()
            .map(|(address, prefix)| format!("{address}/{prefix}"))
            .collect(),
        driver: ethtool::driver(&name),
        queues: queues(&name),
        // Of a virtio card it is its parent that is on the bus.
        numa_node: setting("device/numa_node")
            .or_else(|| setting("device/../numa_node"))
            .and_then(|text| text.trim().parse().ok()),
        offloads: Offloads {
            rx_checksum: ask(Offload::ReceiveChecksum),
            tx_checksum: ask(Offload::TransmitChecksum),
            tso: ask(Offload::Segmentation),
            gro: ask(Offload::ReceiveMerge),
        },
        name,
    }
}

/// Counts /sys/class/net/NAME/queues/{rx,tx}-*.
fn queues(name: &str) -> Option<(usize, usize)> {
    let entries: Vec<String> = fs::read_dir(format!("/sys/class/net/{name}/queues"))
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let count = |prefix: &str| {
        entries
            .iter()
            .filter(|entry| entry.starts_with(prefix))
            .count()
    };
    Some((count("rx-"), count("tx-")))
}

/// The interface of the default route, from /proc/net/route, see proc_net(5).
pub fn default_route_interface() -> Option<String> {
    let table = fs::read_to_string("/proc/net/route").ok()?;
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let name = fields.next()?;
        (fields.next()? == "00000000").then(|| name.to_owned())
    })
}

impl Offloads {
    /// Each that the driver says something of.
    pub fn words(&self) -> Vec<String> {
        let named = [
            ("rx-checksum", self.rx_checksum),
            ("tx-checksum", self.tx_checksum),
            ("tso", self.tso),
            ("gro", self.gro),
        ];
        let word = |on: bool| if on { "on" } else { "off" };
        named
            .into_iter()
            .filter_map(|(name, state)| state.map(|on| format!("{name} {}", word(on))))
            .collect()
    }
}

impl InterfaceReport {
    /// Whether frames leave it with checksums that a card would fill, where there is none.
    pub fn leaves_checksums(&self) -> bool {
        self.driver.as_deref() == Some("veth") && self.offloads.tx_checksum == Some(true)
    }

    /// One line.
    pub fn text(&self) -> String {
        let mut parts = vec![
            self.name.clone(),
            if self.up { "up" } else { "down" }.to_owned(),
        ];
        parts.extend(self.mtu.map(|mtu| format!("MTU {mtu}")));
        parts.extend(
            self.driver
                .as_ref()
                .map(|driver| format!("driver {driver}")),
        );
        parts.extend(
            self.queues
                .map(|(rx, tx)| format!("queues {rx} rx {tx} tx")),
        );
        parts.extend(self.numa_node.map(|node| format!("NUMA node {node}")));
        parts.extend(self.offloads.words());
        parts.extend(self.addresses.iter().cloned());
        if self.default_route {
            parts.push("default route".to_owned());
        }
        parts.join("  ")
    }
}
