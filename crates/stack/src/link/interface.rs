//! Interfaces, their own addresses and what is on-link (RFC 1122 §3.3.1.1).
//!
//! Hosts are weak here (RFC 1122 §3.3.4.2, as Linux): a packet for any own address is taken on any
//! interface. Bounds: [`INTERFACES_MAX`] interfaces with [`ADDRESSES_MAX`] addresses each.

#[cfg(test)]
mod tests;

use super::source::{self, Candidate};
use crate::address::{is_in_prefix, mask_v4, needs_zone, solicited_node};
use crate::error::Error;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tcp::Instant;
use wire::ethernet;

/// Interfaces at most.
pub const INTERFACES_MAX: usize = 64;
/// Own addresses of one interface at most.
pub const ADDRESSES_MAX: usize = 64;

/// An interface of this stack, as [`crate::Stack::add_interface`] numbered it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId(pub u16);

/// How hardware addresses of neighbours are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// This stack owns its addresses: it asks and answers by ARP (RFC 826) and by neighbour discovery
    /// (RFC 4861).
    Arp,
    /// The kernel owns the addresses and answers ARP, echo and strays; the stack asks through
    /// [`crate::Egress::resolve`] and is told with [`crate::Stack::set_neighbour`].
    External,
    /// There are none: what is sent comes back to this host.
    Loopback,
}

/// What an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// The interface's own hardware address.
    pub hardware: ethernet::Address,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// How neighbours are found.
    pub resolution: Resolution,
    /// How programs name the link together with link-local addresses (RFC 4007 §6; the kernel's interface
    /// index); 0: not at all.
    pub scope_id: u32,
    /// Listen to routers: default routes, prefixes and addresses made from them (RFC 4861 §6.3,
    /// RFC 4862 §5.5).
    pub router_discovery: bool,
}

/// An own address with the length of its on-link prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of it that name the link.
    pub prefix_len: u8,
}

impl InterfaceAddress {
    /// Whether `other` lies in the same prefix.
    pub fn contains(&self, other: IpAddr) -> bool {
        is_in_prefix(other, self.address, self.prefix_len)
    }

    /// The directed broadcast address, or the all-zeroes one of old (RFC 1122 §3.2.1.3).
    fn is_broadcast(&self, other: Ipv4Addr) -> bool {
        // RFC 3021: a /31 has no broadcast address, nor has a /32.
        let host = !mask_v4(self.prefix_len);
        // What tells most addresses apart first.
        [0, host].contains(&(other.to_bits() & host))
            && self.prefix_len < 31
            && self.contains(other.into())
    }
}

/// Where an own address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The host has named it.
    Configured,
    /// Made up here, after so many that were duplicates.
    Autoconfigured { tried: u8 },
}

/// What an own address is good for (RFC 4862 §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressState {
    /// Nothing yet: others are still asked whether they have it.
    Tentative,
    /// Everything.
    Preferred,
    /// Connections that have it.
    Deprecated,
    /// Nothing: somebody else has it.
    Duplicate,
}

/// An own address, and what is due for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned {
    pub(crate) address: InterfaceAddress,
    pub(crate) origin: Origin,
    pub(crate) state: AddressState,
    /// When the next announcement or probe leaves, or the test for duplicates is over;
    /// [`Instant::NEVER`] when nothing is due.
    pub(crate) act_at: Instant,
    /// Announcements or probes that are still to leave.
    pub(crate) acts_left: u8,
    /// When the address was last defended against somebody else who uses it.
    pub(crate) defended_at: Option<Instant>,
    pub(crate) preferred_until: Instant,
    pub(crate) valid_until: Instant,
}

impl Owned {
    /// Whether packets for it are ours.
    const fn is_usable(&self) -> bool {
        matches!(
            self.state,
            AddressState::Preferred | AddressState::Deprecated
        )
    }

    /// Whether it was made from a prefix that a router has announced.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.origin, Origin::Autoconfigured { .. }) && !needs_zone(self.address.address)
    }

    fn next_event(&self) -> Instant {
        self.act_at.min(self.preferred_until).min(self.valid_until)
    }
}

/// What the addresses of an IPv4 packet are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// As [`Interfaces::is_unicast`].
    pub(crate) is_source_unicast: bool,
    /// As [`Interfaces::owns`].
    pub(crate) is_source_own: bool,
    pub(crate) is_destination_own: bool,
}

/// Neither "this host", nor a group, nor reserved (RFC 1122 §3.2.1.3), whatever the prefixes of links are.
const fn is_class_unicast(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first < 224
}

#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) config: InterfaceConfig,
    pub(crate) addresses: Vec<Owned>,
    /// The link's MTU for IPv6 as routers tell it, where it is below the interface's (RFC 4861 §4.6.4).
    pub(crate) learned_mtu: Option<u16>,
}

impl Interface {
    pub(crate) fn owned_mut(&mut self, address: IpAddr) -> Option<&mut Owned> {
        self.addresses
            .iter_mut()
            .find(|owned| owned.address.address == address)
    }

    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        let is_loopback = self.config.resolution == Resolution::Loopback;
        let has = |owned: &Owned| {
            // RFC 1122 §3.2.1.3 (g): all of the network is this host.
            owned.address.address == address || (is_loopback && owned.address.contains(address))
        };
        self.addresses
            .iter()
            .any(|owned| has(owned) && owned.is_usable())
    }

    /// A link-local address that can be spoken from.
    pub(crate) fn valid_link_local(&self) -> Option<Ipv6Addr> {
        self.addresses
            .iter()
            .find_map(|owned| match owned.address.address {
                IpAddr::V6(v6) if v6.is_unicast_link_local() && owned.is_usable() => Some(v6),
                _ => None,
            })
    }

    /// Largest packet of a family.
    pub(crate) fn mtu_for(&self, is_v6: bool) -> u16 {
        let learned = self.learned_mtu.filter(|_| is_v6);
        learned.map_or(self.config.mtu, |mtu| mtu.min(self.config.mtu))
    }

    /// When something is due.
    pub(crate) fn next_event(&self) -> Instant {
        let own = self.addresses.iter().map(Owned::next_event);
        own.min().unwrap_or(Instant::NEVER)
    }

    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        self.addresses
            .iter()
            .any(|owned| owned.address.contains(address))
    }

    /// The own address to speak to `destination` with. IPv4: one of the next hop's prefix, else the
    /// first (RFC 1122 §3.3.4.3); IPv6: as RFC 6724 says.
    pub(crate) fn source_for(&self, destination: IpAddr, next_hop: IpAddr) -> Option<IpAddr> {
        let usable = || self.addresses.iter().filter(|owned| owned.is_usable());
        let IpAddr::V6(destination) = destination else {
            let own = || {
                let addresses = usable().map(|owned| owned.address);
                addresses.filter(|own| own.address.is_ipv4())
            };
            let near = own().find(|own| own.contains(next_hop));
            return near.or(own().next()).map(|own| own.address);
        };
        let candidates = usable().filter_map(|owned| match owned.address.address {
            IpAddr::V6(address) => Some(Candidate {
                address,
                prefix_len: owned.address.prefix_len,
                deprecated: owned.state == AddressState::Deprecated,
            }),
            IpAddr::V4(_) => None,
        });
        source::select(candidates, destination).map(IpAddr::V6)
    }
}

/// All interfaces.
#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    list: Vec<Interface>,
    loopback: Option<InterfaceId>,
    /// Counts what may have changed them.
    generation: u32,
}

impl Interfaces {
    pub(crate) fn add(&mut self, config: InterfaceConfig) -> Result<InterfaceId, Error> {
        let id = u16::try_from(self.list.len())
            .ok()
            .filter(|_| self.list.len() < INTERFACES_MAX);
        let id = InterfaceId(id.ok_or(Error::NoMemory)?);
        self.generation = self.generation.wrapping_add(1);
        if config.resolution == Resolution::Loopback {
            self.loopback = Some(id);
        }
        self.list.push(Interface {
            config,
            addresses: Vec::with_capacity(ADDRESSES_MAX),
            learned_mtu: None,
        });
        Ok(id)
    }

    pub(crate) fn find(&self, id: InterfaceId) -> Option<&Interface> {
        self.list.get(usize::from(id.0))
    }

    /// For whoever may change it: what was learned from the interfaces before does not hold any more.
    pub(crate) fn find_mut(&mut self, id: InterfaceId) -> Option<&mut Interface> {
        self.generation = self.generation.wrapping_add(1);
        self.list.get_mut(usize::from(id.0))
    }

    /// As long as it is the same, nothing has changed here.
    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// The loopback interface.
    pub(crate) fn loopback(&self) -> Option<InterfaceId> {
        self.loopback
    }

    /// The interface that programs name so.
    pub(crate) fn with_scope(&self, scope_id: u32) -> Option<InterfaceId> {
        let mut named = self
            .iter()
            .filter(|(_, interface)| scope_id != 0 && interface.config.scope_id == scope_id);
        named.next().map(|(id, _)| id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = InterfaceId> + use<> {
        (0..).map(InterfaceId).take(self.list.len())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (InterfaceId, &Interface)> {
        (0..).map(InterfaceId).zip(&self.list)
    }

    /// Whether `address` is one of this host's own.
    pub(crate) fn owns(&self, address: IpAddr) -> bool {
        self.list.iter().any(|interface| interface.owns(address))
    }

    /// Whether `address` is this host's own for a packet on the link of `id`: link-local addresses are
    /// on their own link only (RFC 4007 §4).
    pub(crate) fn owns_on(&self, id: InterfaceId, address: IpAddr) -> bool {
        if needs_zone(address) {
            self.find(id)
                .is_some_and(|interface| interface.owns(address))
        } else {
            self.owns(address)
        }
    }

    /// The interface that has `address`.
    pub(crate) fn owner_of(&self, address: IpAddr) -> Option<InterfaceId> {
        self.iter()
            .find(|(_, interface)| interface.owns(address))
            .map(|(id, _)| id)
    }

    /// Whether this host takes packets to `group` on the interface `id` (RFC 4291 §2.8).
    pub(crate) fn listens_to(&self, id: InterfaceId, group: Ipv6Addr) -> bool {
        const ALL_NODES: [Ipv6Addr; 2] = [
            Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        ];
        let Some(interface) = self.find(id) else {
            return false;
        };
        let has_v6 = interface
            .addresses
            .iter()
            .any(|owned| owned.address.address.is_ipv6());
        let is_asked_for = |owned: &Owned| match owned.address.address {
            IpAddr::V6(address) => solicited_node(address) == group,
            IpAddr::V4(_) => false,
        };
        (has_v6 && ALL_NODES.contains(&group)) || interface.addresses.iter().any(is_asked_for)
    }

    /// The address that speaks from an interface to `destination`, which is on its link.
    pub(crate) fn source_on(
        &self,
        id: InterfaceId,
        destination: impl Into<IpAddr>,
    ) -> Option<IpAddr> {
        let destination = destination.into();
        self.find(id)?.source_for(destination, destination)
    }

    /// Whether `address` reaches every host of some link.
    pub(crate) fn is_broadcast(&self, address: impl Into<IpAddr>) -> bool {
        let IpAddr::V4(address) = address.into() else {
            return false;
        };
        let mut owned = self.list.iter().flat_map(|interface| &interface.addresses);
        address.is_broadcast() || owned.any(|owned| owned.address.is_broadcast(address))
    }

    /// The interface and the own address to speak to a group or to everybody with: the one asked for,
    /// that of the network whose broadcast address it is, else the first that has an address.
    pub(crate) fn speaking_to_many(
        &self,
        address: IpAddr,
        wanted: Option<InterfaceId>,
    ) -> Option<(InterfaceId, IpAddr)> {
        let speaks = |(id, interface): (InterfaceId, &Interface)| {
            let near = interface.source_for(address, address)?;
            (interface.config.resolution != Resolution::Loopback).then_some((id, near))
        };
        if let Some(id) = wanted {
            return speaks((id, self.find(id)?));
        }
        let near = |(_, interface): &(InterfaceId, &Interface)| interface.is_on_link(address);
        let mut found = self.iter().filter(near).filter_map(speaks);
        found.next().or_else(|| self.iter().find_map(speaks))
    }

    /// What the addresses of a packet are, by one look at all that this host has.
    #[inline]
    pub(crate) fn ends(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Ends {
        let mut ends = Ends {
            is_source_unicast: is_class_unicast(source),
            is_source_own: false,
            is_destination_own: false,
        };
        for interface in &self.list {
            let is_loopback = interface.config.resolution == Resolution::Loopback;
            for owned in &interface.addresses {
                let IpAddr::V4(own) = owned.address.address else {
                    continue;
                };
                ends.is_source_unicast &= !owned.address.is_broadcast(source);
                let is_it = |end: Ipv4Addr| {
                    own == end || (is_loopback && owned.address.contains(end.into()))
                };
                if owned.is_usable() {
                    ends.is_source_own |= is_it(source);
                    ends.is_destination_own |= is_it(destination);
                }
            }
        }
        ends
    }

    /// Whether `address` can be one host's own, so that it may stand as a source (RFC 1122 §3.2.1.3,
    /// RFC 4291 §2.5).
    pub(crate) fn is_unicast(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => is_class_unicast(v4) && !self.is_broadcast(v4),
            // Mapped addresses are for programs; on the wire they would pass for IPv4.
            IpAddr::V6(v6) => {
                !v6.is_unspecified() && !v6.is_multicast() && v6.to_ipv4_mapped().is_none()
            }
        }
    }
}
