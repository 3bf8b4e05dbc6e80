//! Multicast groups: which sockets have joined, what the interfaces listen to for them and for their own
//! addresses (RFC 1112 §7.2, RFC 3376 §3, RFC 3810 §4, RFC 4291 §2.8), and what routers are told (`reports`).
//!
//! Bounded: [`MEMBERSHIPS_MAX`] memberships of all sockets together, [`PER_SOCKET_MAX`] of one, each with a
//! bounded list of sources. Memory is taken by joining, never by a packet. Memberships are no plain data:
//! after a restart the host has to join for its sockets again.

mod filter;
mod igmp;
mod mld;
mod reports;

use crate::address::{group_hardware, solicited_node};
use crate::containers::keyed::Keyed;
use crate::egress::{Egress, Frame};
use crate::error::Error;
use crate::link::Link;
use crate::link::interface::{Interface, InterfaceId, Interfaces, Resolution};

use core::net::{IpAddr, Ipv4Addr};
pub(crate) use filter::Filter;
use reports::{Querier, Reports};
use siphasher::sip::SipHasher13;
use std::collections::HashMap;
use wire::ethernet::{self, EtherType};

/// Memberships of all sockets together at most.
const MEMBERSHIPS_MAX: usize = 4_096;
/// Memberships of one socket at most (Linux `igmp_max_memberships`).
const PER_SOCKET_MAX: usize = 20;
/// Everybody on a link (RFC 1112 §4): joined without asking, never reported.
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// What to join, or to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub group: IpAddr,
    /// On which interface; `None`: the one that packets to the group leave by.
    pub interface: Option<InterfaceId>,
    /// Only what this source sends there (RFC 4607); `None`: everybody.
    pub source: Option<IpAddr>,
}

/// A device is to let in what is sent to a group of stations, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupChange {
    /// Of which interface.
    pub interface: InterfaceId,
    /// The group's link-layer address.
    pub hardware: wire::ethernet::Address,
    /// Let it in. Several groups may have the same link-layer address: each is let in once and taken back
    /// once.
    pub listen: bool,
}

/// A group on an interface.
type GroupKey = (InterfaceId, IpAddr);

/// All of it.
#[derive(Debug)]
pub(crate) struct Multicast {
    members: HashMap<(u32, GroupKey), Filter, Keyed>,
    /// What interfaces listen to, and what is still to be said of it.
    groups: HashMap<GroupKey, Reports, Keyed>,
    /// By interface and family.
    queriers: HashMap<(InterfaceId, bool), Querier, Keyed>,
    /// What devices have to be told.
    changes: Vec<GroupChange>,
    hasher: SipHasher13,
    draws: u64,
    /// Something may have to be said now.
    is_due: bool,
}

impl Multicast {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        let hasher = SipHasher13::new_with_key(key);
        let keyed = Keyed(hasher);
        Self {
            members: HashMap::with_hasher(keyed.clone()),
            groups: HashMap::with_hasher(keyed.clone()),
            queriers: HashMap::with_hasher(keyed),
            changes: Vec::new(),
            hasher,
            draws: 0,
            is_due: false,
        }
    }

    /// Whether the interface takes packets for the group.
    pub(crate) fn listens(&self, interface: InterfaceId, group: IpAddr) -> bool {
        let reports = self.groups.get(&(interface, group));
        group == IpAddr::V4(ALL_SYSTEMS) || reports.is_some_and(Reports::listens)
    }

    /// Whether a socket takes what `source` sends to the group; `None`: it is not in it.
    pub(crate) fn takes(
        &self,
        socket: u32,
        interface: InterfaceId,
        group: IpAddr,
        source: IpAddr,
    ) -> Option<bool> {
        let filter = self.members.get(&(socket, (interface, group)))?;
        Some(filter.takes(source))
    }

    /// The groups that a socket is in, in order.
    pub(crate) fn groups_of(&self, socket: u32) -> Vec<IpAddr> {
        let members = self.members.keys();
        let of_socket = members.filter(|(other, _)| *other == socket);
        let mut groups: Vec<IpAddr> = of_socket.map(|(_, (_, group))| *group).collect();
        groups.sort_unstable();
        groups
    }

    /// Whether there is something to say.
    pub(crate) const fn wants_transmit(&self) -> bool {
        self.is_due
    }

    /// A number below `limit`, which is not 0.
    fn random(&mut self, limit: u64) -> u64 {
        self.draws += 1;
        self.hasher.hash(&self.draws.to_le_bytes()) % limit
    }

    /// Makes a socket a member of a group.
    pub(crate) fn join(
        &mut self,
        interfaces: &Interfaces,
        socket: u32,
        join: &Membership,
    ) -> Result<(), Error> {
        let place = place_of(interfaces, join)?;
        let held = self.members.keys().filter(|(other, _)| *other == socket);
        let is_full = held.count() >= PER_SOCKET_MAX || self.members.len() >= MEMBERSHIPS_MAX;
        match (self.members.get_mut(&(socket, place)), join.source) {
            (None, _) if is_full => return Err(Error::NoMemory),
            (None, source) => {
                let filter = match source {
                    None => Filter::EVERYBODY,
                    Some(source) => Filter {
                        excludes: false,
                        sources: vec![source],
                    },
                };
                self.members.insert((socket, place), filter);
            }
            (Some(_), None) => return Err(Error::AddressInUse),
            (Some(filter), Some(_)) if filter.excludes => return Err(Error::InvalidArgument),
            (Some(filter), Some(source)) if filter.takes(source) => {
                return Err(Error::AddressNotAvailable);
            }
            (Some(filter), Some(source)) => {
                if !filter.add(source) {
                    return Err(Error::NoMemory);
                }
            }
        }
        self.group_changed(interfaces, place);
        Ok(())
    }

    /// Ends a membership, or takes a source out of it.
    pub(crate) fn leave(
        &mut self,
        interfaces: &Interfaces,
        socket: u32,
        leave: &Membership,
    ) -> Result<(), Error> {
        let place = place_of(interfaces, leave)?;
        let key = (socket, place);
        let filter = self.members.get_mut(&key);
        let filter = filter.ok_or(Error::AddressNotAvailable)?;
        let is_over = match leave.source {
            None => true,
            Some(_) if filter.excludes => return Err(Error::InvalidArgument),
            Some(source) if filter.remove(source) => filter.sources.is_empty(),
            Some(_) => return Err(Error::AddressNotAvailable),
        };
        if is_over {
            self.members.remove(&key);
        }
        self.group_changed(interfaces, place);
        Ok(())
    }

    /// Of a group that the socket hears as a whole, no more what this source sends (RFC 3678 §3).
    pub(crate) fn block(
        &mut self,
        interfaces: &Interfaces,
        socket: u32,
        block: &Membership,
    ) -> Result<(), Error> {
        self.change_blocked(interfaces, socket, block, |filter, source| {
            if !filter.takes(source) {
                Err(Error::AddressNotAvailable)
            } else if filter.add(source) {
                Ok(())
            } else {
                Err(Error::NoMemory)
            }
        })
    }

    /// Takes [`Multicast::block`] back.
    pub(crate) fn unblock(
        &mut self,
        interfaces: &Interfaces,
        socket: u32,
        unblock: &Membership,
    ) -> Result<(), Error> {
        self.change_blocked(interfaces, socket, unblock, |filter, source| {
            let found = filter.remove(source);
            found.then_some(()).ok_or(Error::AddressNotAvailable)
        })
    }

    fn change_blocked(
        &mut self,
        interfaces: &Interfaces,
        socket: u32,
        about: &Membership,
        change: impl FnOnce(&mut Filter, IpAddr) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let place = place_of(interfaces, about)?;
        let source = about.source.ok_or(Error::InvalidArgument)?;
        let filter = self.members.get_mut(&(socket, place));
        let filter = filter.filter(|filter| filter.excludes);
        change(filter.ok_or(Error::InvalidArgument)?, source)?;
        self.group_changed(interfaces, place);
        Ok(())
    }

    /// The socket is gone, and its memberships with it.
    pub(crate) fn leave_all(&mut self, interfaces: &Interfaces, socket: u32) {
        let keys = self.members.keys();
        let places = keys.filter(|(other, _)| *other == socket);
        let places: Vec<GroupKey> = places.map(|(_, place)| *place).collect();
        for place in places {
            self.members.remove(&(socket, place));
            self.group_changed(interfaces, place);
        }
    }

    /// An own address has come or gone, and with it perhaps the groups of every node (RFC 4291 §2.8).
    pub(crate) fn address_changed(&mut self, link: &Link, interface: InterfaceId, address: IpAddr) {
        let speaks = link.interfaces.find(interface).is_some_and(|interface| {
            interface.config.resolution == Resolution::Arp && link.config.announces_addresses
        });
        if let (IpAddr::V6(address), true) = (address, speaks) {
            self.group_changed(
                &link.interfaces,
                (interface, solicited_node(address).into()),
            );
            self.group_changed(&link.interfaces, (interface, mld::ALL_NODES.into()));
        }
    }

    /// Whether devices have to be told of something.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// What devices have to be told since the last time.
    pub(crate) fn take_changes(&mut self) -> impl Iterator<Item = GroupChange> {
        self.changes.drain(..)
    }

    /// What sockets want of a group has changed: what the interface listens to follows, and routers hear.
    fn group_changed(&mut self, interfaces: &Interfaces, place: GroupKey) {
        let own = match place.1 {
            IpAddr::V6(group) => interfaces.listens_to(place.0, group),
            IpAddr::V4(_) => false,
        };
        let members = self.members.iter();
        let here = members.filter(|((_, other), _)| *other == place);
        let everybody = Filter::EVERYBODY;
        let own = own.then_some(&everybody);
        let wanted = Filter::together(here.map(|(_, filter)| filter).chain(own));
        let reports = self.groups.entry(place).or_default();
        let before = reports.listens();
        reports.change(wanted);
        let listen = reports.listens();
        self.is_due = true;
        if before != listen {
            self.changes.push(GroupChange {
                interface: place.0,
                hardware: group_hardware(place.1),
                listen,
            });
        }
    }
}

impl Link {
    /// Sends what `build` makes behind the Ethernet header, where the interface has neighbours; false: it is not sent.
    fn send_to_group(
        &mut self,
        id: InterfaceId,
        group: IpAddr,
        egress: &mut dyn Egress,
        build: impl FnOnce(&Interface, &mut [u8]) -> usize,
    ) -> bool {
        let interface = self.interfaces.find(id);
        let Some(interface) = interface.filter(|one| one.config.resolution == Resolution::Arp)
        else {
            return false;
        };
        let header = ethernet::Header {
            destination: group_hardware(group),
            source: interface.config.hardware,
            ethertype: match group {
                IpAddr::V4(_) => EtherType::IPV4,
                IpAddr::V6(_) => EtherType::IPV6,
            },
        };
        let frame = self.scratch.bytes();
        let len = build(interface, &mut frame[ethernet::Header::LEN..]);
        header.emit(frame);
        let frame = Frame::whole(id, &frame[..ethernet::Header::LEN + len]);
        let is_sent = egress.transmit(&frame).is_ok();
        self.counters.ip_out_requests += u64::from(is_sent);
        is_sent
    }
}

/// The group of a membership, on the link that it names or the one that speaks to groups.
pub(crate) fn place_of(
    interfaces: &Interfaces,
    membership: &Membership,
) -> Result<GroupKey, Error> {
    let group = membership.group;
    let same = |source: IpAddr| source.is_ipv4() == group.is_ipv4();
    if !group.is_multicast() || !membership.source.is_none_or(same) {
        return Err(Error::InvalidArgument);
    }
    let interface = match membership.interface {
        Some(interface) => interfaces.find(interface).map(|_| interface),
        None => interfaces
            .speaking_to_many(group, None)
            .map(|(interface, _)| interface),
    };
    Ok((interface.ok_or(Error::NotFound)?, group))
}
