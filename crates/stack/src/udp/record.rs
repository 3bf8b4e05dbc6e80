//! A UDP socket as plain data, and the names of its two ends.

use super::options::{FamilyOptions, MtuDiscovery, UdpOptions};
use crate::address::{PackedAddress, needs_zone};
use crate::config::IpOptions;
use crate::link::interface::InterfaceId;
use crate::tables::Row;
use core::net::{IpAddr, SocketAddr};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Names a UDP socket; stale once the row was given to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UdpId {
    /// Row.
    pub index: u32,
    /// Which use of the row.
    pub generation: u32,
}

/// Local end and, for a connected socket, the remote one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Ends {
    local: PackedAddress,
    remote: PackedAddress,
    local_port: u16,
    /// 0: not connected.
    remote_port: u16,
    /// Interface + 1 for link-local addresses, which are unique on their link only; else 0.
    zone: u32,
}

impl Ends {
    /// An end that any peer may send to.
    pub(crate) const fn bound(local: SocketAddr) -> Self {
        Self {
            local: PackedAddress::new(local.ip()),
            // Whatever stands for no address at all, so that the bytes are the same for both families.
            remote: PackedAddress::new(IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED)),
            local_port: local.port(),
            remote_port: 0,
            zone: 0,
        }
    }

    /// Two ends.
    pub(crate) const fn connected(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            remote: PackedAddress::new(remote.ip()),
            remote_port: remote.port(),
            ..Self::bound(local)
        }
    }

    /// The ends as they are on the link of `interface`: that counts where an address is link-local.
    #[must_use]
    pub(crate) fn on_link(self, interface: InterfaceId) -> Self {
        let is_local = needs_zone(self.local.address()) || needs_zone(self.remote.address());
        Self {
            zone: if is_local {
                u32::from(interface.0) + 1
            } else {
                0
            },
            ..self
        }
    }

    /// The only interface that can be used, where an address is link-local.
    pub(crate) fn zone(&self) -> Option<InterfaceId> {
        let zone = self.zone.checked_sub(1)?;
        u16::try_from(zone).ok().map(InterfaceId)
    }

    /// This host's end.
    pub(crate) const fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local.address(), self.local_port)
    }

    /// The peer.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        let remote = || SocketAddr::new(self.remote.address(), self.remote_port);
        (self.remote_port != 0).then(remote)
    }
}

const BROADCAST: u16 = 1;
const REUSE_PORT: u16 = 1 << 1;
const V6_ONLY: u16 = 1 << 2;
const MERGED: u16 = 1 << 3;
const ADDRESSED_ONLY: u16 = 1 << 4;
/// In the flags of a family.
const ERROR_QUEUE: u16 = 1;
const MULTICAST_LOOP: u16 = 1 << 1;
const MULTICAST_ALL: u16 = 1 << 2;

fn given(on: bool, flag: u16) -> u16 {
    if on { flag } else { 0 }
}

/// [`FamilyOptions`] as plain data.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
struct FamilyRecord {
    ttl: u8,
    tos: u8,
    multicast_ttl: u8,
    mtu_discovery: u8,
    flags: u16,
    /// Interface of outgoing multicast + 1; 0: as routed.
    multicast_interface: u16,
}

impl FamilyRecord {
    fn new(options: &FamilyOptions) -> Self {
        Self {
            ttl: options.ip.ttl,
            tos: options.ip.tos,
            multicast_ttl: options.multicast_ttl,
            mtu_discovery: options.mtu_discovery.number(),
            flags: given(options.error_queue, ERROR_QUEUE)
                | given(options.multicast_loop, MULTICAST_LOOP)
                | given(options.multicast_all, MULTICAST_ALL),
            multicast_interface: options.multicast_interface.map_or(0, |id| id.0 + 1),
        }
    }

    fn options(self) -> FamilyOptions {
        let has = |flag| self.flags & flag != 0;
        FamilyOptions {
            ip: IpOptions {
                ttl: self.ttl,
                tos: self.tos,
            },
            error_queue: has(ERROR_QUEUE),
            mtu_discovery: MtuDiscovery::from_number(self.mtu_discovery),
            multicast_ttl: self.multicast_ttl,
            multicast_loop: has(MULTICAST_LOOP),
            multicast_all: has(MULTICAST_ALL),
            multicast_interface: self.multicast_interface.checked_sub(1).map(InterfaceId),
        }
    }
}

/// A UDP socket.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct UdpRecord {
    pub(crate) sequence: u32,
    pub(crate) generation: u32,
    pub(crate) owner: u64,
    pub(crate) ends: Ends,
    /// What the program bound, which a disconnect goes back to.
    pub(crate) bound: Ends,
    v4: FamilyRecord,
    v6: FamilyRecord,
    flags: u16,
    /// 1: the row holds a socket.
    pub(crate) used: u8,
    reserved: [u8; 5],
    /// Next in the order of binding, for sockets that share an end.
    pub(crate) bound_at: u64,
}

const _: () = assert!(size_of::<UdpRecord>() <= 128);

impl UdpRecord {
    pub(crate) const fn id(&self, index: u32) -> UdpId {
        UdpId {
            index,
            generation: self.generation,
        }
    }

    pub(crate) fn options(&self) -> UdpOptions {
        let has = |flag| self.flags & flag != 0;
        UdpOptions {
            broadcast: has(BROADCAST),
            reuse_port: has(REUSE_PORT),
            v6_only: has(V6_ONLY),
            merged: has(MERGED),
            addressed_only: has(ADDRESSED_ONLY),
            v4: self.v4.options(),
            v6: self.v6.options(),
        }
    }

    pub(crate) fn set_options(&mut self, options: &UdpOptions) {
        self.flags = given(options.broadcast, BROADCAST)
            | given(options.reuse_port, REUSE_PORT)
            | given(options.v6_only, V6_ONLY)
            | given(options.merged, MERGED)
            | given(options.addressed_only, ADDRESSED_ONLY);
        self.v4 = FamilyRecord::new(&options.v4);
        self.v6 = FamilyRecord::new(&options.v6);
    }
}

impl Row for UdpRecord {
    fn sequence_mut(&mut self) -> &mut u32 {
        &mut self.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_give_back_the_addresses_of_both_families() {
        for (local, remote) in [
            ("10.0.0.1:53", "10.0.0.2:4000"),
            ("0.0.0.0:53", "192.0.2.1:1"),
            ("[2001:db8::1]:53", "[2001:db8::2]:99"),
        ] {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            let ends = Ends::connected(local, remote);
            assert_eq!((ends.local(), ends.remote()), (local, Some(remote)));
            assert_eq!(Ends::bound(local).remote(), None);
        }
    }

    #[test]
    fn options_survive_the_row() {
        let mut record = UdpRecord::new_zeroed();
        let v4 = FamilyOptions {
            ip: IpOptions { ttl: 9, tos: 0x10 },
            error_queue: true,
            mtu_discovery: MtuDiscovery::Probe,
            multicast_ttl: 3,
            multicast_loop: false,
            multicast_all: false,
            multicast_interface: Some(InterfaceId(0)),
        };
        let options = UdpOptions {
            broadcast: true,
            reuse_port: false,
            v6_only: true,
            merged: true,
            addressed_only: true,
            v4,
            v6: FamilyOptions::default(),
        };
        record.set_options(&options);
        assert_eq!(record.options(), options);
        record.set_options(&UdpOptions::default());
        assert_eq!(record.options(), UdpOptions::default());
    }
}
