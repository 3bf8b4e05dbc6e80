//! The description of a lab: its hosts, their addresses, the cable between them.
//!
//! Only data and parsing; nothing here calls the system.

use std::{
    cell::Cell,
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::Error;

/// Name of the cable's end on every host.
pub const INTERFACE: &str = "eth0";

/// Environment variables by which programs on a host learn the interface and the address that an
/// engine there may use; `shunt engine` and `shunt run` take them as the defaults of `--nic` and
/// `--address`.
pub const NIC_VARIABLE: &str = "SHUNT_NIC";
/// See [`NIC_VARIABLE`].
pub const ADDRESS_VARIABLE: &str = "SHUNT_ADDRESS";

/// Length of the prefix of a lab's IPv6 network.
pub const IPV6_PREFIX_LEN: u8 = 64;

/// Every IPv6 link carries packets of this size, RFC 8200 §5: on a cable with less there is none.
pub(crate) const IPV6_MINIMUM_MTU: u32 = 1280;

/// IP MTU of Ethernet (RFC 894), and of the cable unless the caller says otherwise.
const ETHERNET_MTU: u32 = 1500;

/// What joins the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Cable {
    /// A pair of virtual Ethernet interfaces, see veth(4).
    #[default]
    Veth,
    /// A TAP interface on each host, see `Documentation/networking/tuntap.rst` of the kernel: their
    /// descriptors go to whoever joins them ([`crate::Lab::take_taps`]).
    Tap,
}

impl fmt::Display for Cable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Veth => f.write_str("veth"),
            Self::Tap => f.write_str("tap"),
        }
    }
}

/// An IPv4 address with the length of its network prefix, as in `10.77.0.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    /// The host's address.
    pub address: Ipv4Addr,
    /// Leading bits that name the network, at most 32.
    pub prefix_len: u8,
}

impl Cidr {
    /// The last address of the network, RFC 919 (directed broadcast).
    pub fn broadcast(self) -> Ipv4Addr {
        let host_mask = u32::MAX
            .checked_shr(u32::from(self.prefix_len))
            .unwrap_or(0);
        Ipv4Addr::from_bits(self.address.to_bits() | host_mask)
    }
}

/// Why a text is not an address with a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an IPv4 address with a prefix length, such as 10.77.0.1/24")]
pub struct ParseCidrError(String);

impl FromStr for Cidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseCidrError(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(error)?;
        let address = address.parse().map_err(|_| error())?;
        let prefix_len: u8 = prefix.parse().map_err(|_| error())?;
        if prefix_len > 32 {
            return Err(error());
        }
        Ok(Self {
            address,
            prefix_len,
        })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl TryFrom<String> for Cidr {
    type Error = ParseCidrError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// One host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    /// Short name, used by `shunt lab exec`.
    pub name: String,
    /// Address that the host's kernel owns on the cable.
    pub address: Cidr,
    /// Address on the cable that is left free for an engine.
    pub engine_address: Cidr,
}

impl HostSpec {
    /// The `index`-th host with the usual addresses: kernel 10.77.0.1+index, engine 10.77.0.11+index.
    pub fn numbered(name: &str, index: u8) -> Self {
        let cidr = |last| Cidr {
            address: Ipv4Addr::new(10, 77, 0, last),
            prefix_len: 24,
        };
        Self {
            name: name.to_owned(),
            address: cidr(index + 1),
            engine_address: cidr(index + 11),
        }
    }
}

/// Addresses for engines inside programs, beyond those of the hosts, one after the other: what a program left behind serves its address for a
/// while.
#[derive(Debug)]
pub struct FreshAddresses(Cell<u8>);

impl FreshAddresses {
    /// Their last bytes.
    const LAST: std::ops::RangeInclusive<u8> = 21..=250;

    /// All are to come.
    pub fn new() -> Self {
        Self(Cell::new(*Self::LAST.start()))
    }

    /// One that none of the last 229 calls gave.
    pub fn next(&self, spec: &HostSpec) -> Ipv4Addr {
        let last = self.0.get();
        let is_at_the_end = last == *Self::LAST.end();
        self.0.set(if is_at_the_end {
            *Self::LAST.start()
        } else {
            last + 1
        });
        let [a, b, c, _] = spec.engine_address.address.octets();
        Ipv4Addr::new(a, b, c, last)
    }
}

impl Default for FreshAddresses {
    fn default() -> Self {
        Self::new()
    }
}

/// What every interface passes in one piece, unless told otherwise.
pub const ORDINARY_SEGMENT_BYTES: u32 = 64 * 1024;

impl HostSpec {
    /// Address that the host's kernel owns on the cable besides, where the cable carries IPv6.
    pub fn address_v6(&self) -> Ipv6Addr {
        beside(self.address.address)
    }

    /// IPv6 address that is left free for an engine, likewise.
    pub fn engine_address_v6(&self) -> Ipv6Addr {
        beside(self.engine_address.address)
    }
}

/// The address of the lab's unique local network (RFC 4193) that ends as an IPv4 address does.
fn beside(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, high, low)
}

/// A whole lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabSpec {
    /// The two hosts.
    pub hosts: Vec<HostSpec>,
    /// What joins them.
    pub cable: Cable,
    /// IP MTU of both ends.
    pub mtu: u32,
    /// Largest packet that crosses the cable in one piece, to be cut by a device that never comes:
    /// what the kernel calls GSO and GRO size. Above [`ORDINARY_SEGMENT_BYTES`] it is known as BIG TCP.
    pub segment_bytes: u32,
    /// Congestion controls to try for both kernels, best first; the first that is allowed is used.
    pub congestion: Vec<String>,
}

impl Default for LabSpec {
    fn default() -> Self {
        Self {
            hosts: vec![HostSpec::numbered("a", 0), HostSpec::numbered("b", 1)],
            cable: Cable::Veth,
            mtu: ETHERNET_MTU,
            segment_bytes: ORDINARY_SEGMENT_BYTES,
            // BBR, the default of some systems, is two to three times slower than these on a veth
            // pair: a comparison against it would flatter whoever is compared with the kernel.
            congestion: vec!["cubic".to_owned(), "reno".to_owned()],
        }
    }
}

impl LabSpec {
    /// Refuses what cannot be built, naming the part to change.
    pub fn check(&self) -> Result<(), Error> {
        let [first, second] = self.hosts.as_slice() else {
            let count = self.hosts.len();
            return Err(Error::Spec(format!(
                "--hosts names {count} hosts; a cable joins exactly two, for example a,b"
            )));
        };
        for host in &self.hosts {
            check_name("host", &host.name)?;
        }
        if first.name == second.name {
            return Err(Error::Spec(format!(
                "--hosts names {:?} twice; give two names",
                first.name
            )));
        }
        if first.address.address == second.address.address {
            return Err(Error::Spec(format!(
                "--address gives {} to both hosts; give two addresses",
                first.address.address
            )));
        }
        // 68 is the least every IPv4 module must forward, RFC 791 §3.2; 65535 the most veth takes.
        if !(68..=65535).contains(&self.mtu) {
            return Err(Error::Spec(format!(
                "--mtu {} is outside 68..=65535",
                self.mtu
            )));
        }
        // The most is the kernel's GSO_MAX_SIZE, rounded down.
        if !(ORDINARY_SEGMENT_BYTES..=512 * 1024).contains(&self.segment_bytes) {
            return Err(Error::Spec(format!(
                "--segment-kib {} is outside 64..=512",
                self.segment_bytes / 1024
            )));
        }
        Ok(())
    }
}

/// Accepts names that are safe in file names and on command lines.
pub(crate) fn check_name(kind: &str, name: &str) -> Result<(), Error> {
    let plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if name.is_empty() || name.len() > 32 || !plain || name.starts_with('-') {
        return Err(Error::Spec(format!(
            "{name:?} is no {kind} name: use 1 to 32 letters, digits, '-' and '_'"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidr_text_survives_a_round_trip() {
        let cidr: Cidr = "10.77.0.1/24".parse().unwrap();
        assert_eq!(cidr.to_string(), "10.77.0.1/24");
        assert_eq!(cidr.broadcast(), Ipv4Addr::new(10, 77, 0, 255));
    }

    #[test]
    fn cidr_refuses_what_has_no_or_a_wrong_prefix() {
        for text in [
            "10.77.0.1",
            "10.77.0.1/33",
            "10.77.0/24",
            "10.77.0.1/",
            "/24",
            "10.77.0.1/-1",
        ] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }

    #[test]
    fn broadcast_of_whole_and_single_networks() {
        let all: Cidr = "1.2.3.4/0".parse().unwrap();
        let one: Cidr = "1.2.3.4/32".parse().unwrap();
        assert_eq!(all.broadcast(), Ipv4Addr::BROADCAST);
        assert_eq!(one.broadcast(), Ipv4Addr::new(1, 2, 3, 4));
    }

    #[test]
    fn a_lab_of_one_host_or_with_equal_names_is_refused() {
        let mut spec = LabSpec::default();
        spec.hosts.pop();
        assert!(spec.check().is_err());
        spec.hosts.push(HostSpec::numbered("a", 1));
        assert!(spec.check().unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn names_that_could_leave_the_state_directory_are_refused() {
        for name in ["", "../x", "a/b", "-x", "a b", &"x".repeat(33)] {
            assert!(check_name("lab", name).is_err(), "{name:?}");
        }
        assert!(check_name("lab", "bench-12_a").is_ok());
    }
}
