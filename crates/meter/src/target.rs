//! Whom to measure: a host by name or address, an Ethernet port, or two ports of this host.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, bail, ensure};

use crate::probe::frames::Port;

/// Which family a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// The first address there is.
    #[default]
    Any,
    V4,
    V6,
}

/// A port of a host, at its address of that family; a link-local address of IPv6 keeps its zone (`fe80::1%eth0`, RFC 4007).
pub fn resolve(name: &str, port: u16, family: Family) -> anyhow::Result<SocketAddr> {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let mut found = (name, port)
        .to_socket_addrs()
        .with_context(|| format!("looking up {name:?}: give a host name or an address"))?;
    let fits = |address: &SocketAddr| match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    };
    found
        .find(fits)
        .with_context(|| format!("{name} has no address of the family that -4 or -6 asks for"))
}

/// A port by its interface's name.
pub fn port(interface: &str) -> anyhow::Result<Port> {
    let found = netlink::interface::read(interface)
        .with_context(|| format!("--nic: no interface {interface:?}; ip link lists them"))?;
    ensure!(
        found.is_ethernet,
        "--nic: {interface} has no Ethernet frames"
    );
    Ok(Port {
        index: found.index,
        address: found.hardware_address.0,
    })
}

/// An Ethernet address as `02:00:00:00:00:01`.
pub fn hardware_address(text: &str) -> anyhow::Result<[u8; 6]> {
    let octets: Vec<&str> = text.split(':').collect();
    let parsed: Result<Vec<u8>, _> = octets
        .iter()
        .map(|octet| u8::from_str_radix(octet, 16))
        .collect();
    match parsed
        .ok()
        .and_then(|octets| <[u8; 6]>::try_from(octets).ok())
    {
        Some(address) if octets.iter().all(|octet| octet.len() == 2) => Ok(address),
        _ => bail!(
            "{text:?} is no Ethernet address such as 02:00:00:00:00:01; `shunt echo --raw IFACE` prints its own"
        ),
    }
}

/// An Ethernet address for people.
pub fn hardware_name(address: [u8; 6]) -> String {
    address.map(|octet| format!("{octet:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let address = [2, 0, 0, 0, 0, 0xab];
        assert_eq!(hardware_address("02:00:00:00:00:ab").unwrap(), address);
        assert_eq!(hardware_name(address), "02:00:00:00:00:ab");
        for wrong in [
            "",
            "02:00",
            "2:0:0:0:0:1",
            "02:00:00:00:00:zz",
            "02:00:00:00:00:ab:01",
        ] {
            assert!(hardware_address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_has_an_address_of_the_family_or_an_error_says_so() {
        assert_eq!(
            resolve("127.0.0.1", 7, Family::Any).unwrap(),
            SocketAddr::from(([127, 0, 0, 1], 7))
        );
        assert_eq!(
            resolve("[::1]", 7, Family::V6).unwrap().to_string(),
            "[::1]:7"
        );
        assert!(
            resolve("127.0.0.1", 7, Family::V6)
                .unwrap_err()
                .to_string()
                .contains("-6")
        );
        // The zone of a link-local address is an interface.
        let SocketAddr::V6(zoned) = resolve("fe80::1%lo", 7, Family::Any).unwrap() else {
            panic!("IPv4");
        };
        assert_ne!(zoned.scope_id(), 0);
        assert!(port("no such").unwrap_err().to_string().contains("--nic"));
    }
}
