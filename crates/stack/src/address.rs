//! IP addresses of both families: packed for the tables, prefixes, scopes (RFC 4291, RFC 4007).
//!
//! The stack speaks [`IpAddr`]; IPv4 is always [`IpAddr::V4`], never its v4-mapped form. Tables and hash
//! keys hold 16 bytes, where IPv4 stands as `::ffff:a.b.c.d` (RFC 4291 §2.5.5.2): packets with mapped
//! addresses are never taken from the wire (`input.rs`), so the two cannot be confused.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An address as plain data. All zero is the unspecified address of IPv6.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PackedAddress([u8; 16]);

impl PackedAddress {
    /// Packs an address.
    pub const fn new(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self((0xffff_0000_0000 | v4.to_bits() as u128).to_be_bytes()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// Whether it is link-local (RFC 4291 §2.5.6).
    #[inline]
    pub(crate) const fn needs_zone(&self) -> bool {
        let [a, b, ..] = self.0;
        a == 0xfe && b & 0xc0 == 0x80
    }

    /// That of IPv4, if it is one.
    #[inline]
    pub(crate) fn v4(&self) -> Option<[u8; 4]> {
        let (prefix, v4) = self.0.split_last_chunk()?;
        (prefix == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).then_some(*v4)
    }

    /// The address. Asked for with every packet: one comparison of words.
    #[inline]
    pub const fn address(&self) -> IpAddr {
        let bits = u128::from_be_bytes(self.0);
        if bits >> 32 == 0xffff {
            let [.., a, b, c, d] = self.0;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
    }
}

/// Whether two addresses are of the same family.
pub(crate) const fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

/// Bits of an address of the family.
pub(crate) const fn bits_of_family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Bits in front that two addresses of one family share; 0 for different families.
pub(crate) fn common_prefix_len(a: IpAddr, b: IpAddr) -> u8 {
    let zeros = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    };
    u8::try_from(zeros).unwrap_or(128)
}

/// Whether `address` lies in the prefix of `prefix_len` bits that `prefix` begins with.
pub(crate) fn is_in_prefix(address: IpAddr, prefix: IpAddr, prefix_len: u8) -> bool {
    same_family(address, prefix) && common_prefix_len(address, prefix) >= prefix_len
}

/// The address with all bits past `prefix_len` cleared.
pub(crate) fn masked(address: IpAddr, prefix_len: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & mask_v4(prefix_len)).into(),
        IpAddr::V6(v6) => {
            let host = u128::MAX.checked_shr(u32::from(prefix_len)).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & !host).into()
        }
    }
}

/// The network mask of an IPv4 prefix length; lengths past 32 count as 32.
pub(crate) const fn mask_v4(prefix_len: u8) -> u32 {
    match prefix_len {
        0 => 0,
        1..32 => u32::MAX << (32 - prefix_len),
        _ => u32::MAX,
    }
}

/// Whether the address says nothing without its link: IPv6 link-local unicast (RFC 4007 §6).
pub(crate) const fn needs_zone(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// An end of a connection as programs see it; `scope_id` counts for link-local addresses only.
pub(crate) const fn socket_address(address: IpAddr, port: u16, scope_id: u32) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, scope_id))
        }
        _ => SocketAddr::new(address, port),
    }
}

/// The scope that a program names, 0 for none.
pub(crate) const fn scope_id_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

/// The group that a neighbour with `address` listens to (RFC 4291 §2.7.1).
pub(crate) const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from_octets([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The hardware address that a group is sent to (RFC 1112 §6.4, RFC 2464 §7).
pub(crate) fn group_hardware(group: impl Into<IpAddr>) -> wire::ethernet::Address {
    wire::ethernet::Address(match group.into() {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn groups_follow_the_last_three_bytes() {
        let address = v6("2001:db8::12:3456");
        assert_eq!(solicited_node(address), v6("ff02::1:ff12:3456"));
        let hardware = wire::ethernet::Address([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        assert_eq!(group_hardware(solicited_node(address)), hardware);
    }

    #[test]
    fn prefixes_of_different_families_never_match() {
        let any = [
            IpAddr::from([0, 0, 0, 0]),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        assert!(!is_in_prefix(any[0], any[1], 0) && !is_in_prefix(any[1], any[0], 0));
        assert!(is_in_prefix(
            v6("2001:db8:0:1::5").into(),
            v6("2001:db8::").into(),
            48
        ));
        assert!(!is_in_prefix(
            v6("2001:db9::5").into(),
            v6("2001:db8::").into(),
            32
        ));
    }

    #[test]
    fn only_link_local_ends_carry_a_scope() {
        let link_local = socket_address(v6("fe80::1").into(), 80, 7);
        assert_eq!(
            link_local,
            SocketAddrV6::new(v6("fe80::1"), 80, 0, 7).into()
        );
        let global = socket_address(v6("2001:db8::1").into(), 80, 7);
        assert_eq!(scope_id_of(global), 0);
    }

    proptest! {
        #[test]
        fn packed_addresses_come_back(v4 in any::<u32>(), v6 in any::<u128>()) {
            let v4 = IpAddr::V4(Ipv4Addr::from_bits(v4));
            prop_assert_eq!(PackedAddress::new(v4).address(), v4);
            let v6 = IpAddr::V6(Ipv6Addr::from_bits(v6));
            prop_assert_eq!(PackedAddress::new(v6).address(), v6.to_canonical());
        }

        #[test]
        fn masked_addresses_keep_exactly_their_prefix(bits in any::<u128>(), other in any::<u128>(), len in 0_u8..=128) {
            let [address, other] = [bits, other].map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)));
            let IpAddr::V6(kept) = masked(address, len) else { panic!() };
            for bit in 0..128_u8 {
                let set = (kept.to_bits() >> (127 - bit)) & 1;
                let expected = if bit < len { (bits >> (127 - bit)) & 1 } else { 0 };
                prop_assert_eq!(set, expected);
            }
            prop_assert_eq!(is_in_prefix(other, address, len), masked(other, len) == masked(address, len));
        }
    }
}
