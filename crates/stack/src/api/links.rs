//! What the host says of its links: interfaces, addresses, routes, neighbours; and the groups of its sockets.

use crate::error::Error;
use crate::ip::route::Route;
use crate::link::interface::{InterfaceAddress, InterfaceConfig, InterfaceId};
use crate::link::neighbour::{ExternalNeighbour, Neighbour};
use crate::multicast::{GroupChange, Membership, place_of};
use crate::stack::Stack;
use crate::udp::UdpId;
use core::net::IpAddr;
use tcp::Instant;
use wire::ethernet;

impl Stack<'_> {
    /// Adds an interface; it has no address yet.
    ///
    /// # Errors
    /// [`Error::NoMemory`] beyond 64 interfaces; [`Error::InvalidArgument`] for an MTU
    /// below 576 (RFC 791 §3.1).
    pub fn add_interface(&mut self, config: InterfaceConfig) -> Result<InterfaceId, Error> {
        self.ip.add_interface(config)
    }

    /// Changes the MTU of an interface.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::InvalidArgument`].
    pub fn set_mtu(&mut self, interface: InterfaceId, mtu: u16) -> Result<(), Error> {
        if mtu < 576 {
            return Err(Error::InvalidArgument);
        }
        let found = self.ip.link.interfaces.find_mut(interface);
        found.ok_or(Error::NotFound)?.config.mtu = mtu;
        Ok(())
    }

    /// The device of an interface was exchanged for one with this hardware address, perhaps on another link: neighbours that were
    /// found there are asked for again, except those that the host has set.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn exchange_device(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        hardware: ethernet::Address,
    ) -> Result<(), Error> {
        let found = self.ip.link.interfaces.find_mut(interface);
        found.ok_or(Error::NotFound)?.config.hardware = hardware;
        self.ip.forget_neighbours_on(now, interface);
        Ok(())
    }

    /// Adds a route, in place of one with the same prefix and metric.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NoMemory`], [`Error::InvalidArgument`].
    pub fn add_route(&mut self, route: Route) -> Result<(), Error> {
        let found = self.ip.link.interfaces.find(route.interface);
        found.ok_or(Error::NotFound)?;
        self.ip.routes.add(route)
    }

    /// Removes the route with this prefix and metric.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn remove_route(&mut self, route: &Route) -> Result<(), Error> {
        self.ip.routes.remove(route)
    }

    /// Says what the host knows of a neighbour; `None`: that it does not exist.
    ///
    /// # Errors
    /// [`Error::NotFound`]: no such interface; [`Error::NoMemory`].
    pub fn set_neighbour(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        address: IpAddr,
        hardware: Option<ethernet::Address>,
    ) -> Result<(), Error> {
        self.ip.set_neighbour(now, interface, address, hardware)
    }

    /// What the host has heard of a neighbour by itself; nothing is kept of those to whom nobody here has
    /// sent. For interfaces with [`crate::Resolution::External`].
    pub fn hear_of_neighbour(
        &mut self,
        interface: InterfaceId,
        address: IpAddr,
        heard: ExternalNeighbour,
    ) {
        self.ip.hear_of_neighbour(interface, address, heard);
    }

    /// The interface that programs name by this number (RFC 4007 §6).
    pub fn interface_with_scope(&self, scope_id: u32) -> Option<InterfaceId> {
        self.ip.link.interfaces.with_scope(scope_id)
    }

    /// Interfaces with their own addresses.
    pub fn interfaces(
        &self,
    ) -> impl Iterator<
        Item = (
            InterfaceId,
            &InterfaceConfig,
            impl Iterator<Item = InterfaceAddress>,
        ),
    > {
        self.ip.link.interfaces.iter().map(|(id, interface)| {
            (
                id,
                &interface.config,
                interface.addresses.iter().map(|owned| owned.address),
            )
        })
    }

    /// Routes, in the order in which they are tried.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.ip.routes.iter()
    }

    /// The neighbour cache.
    pub fn neighbours(&self, now: Instant) -> impl Iterator<Item = Neighbour> {
        self.ip.link.neighbours.iter(now)
    }

    /// Gives an interface an own address and a route to its prefix, and announces it (RFC 5227 §3) or
    /// looks for duplicates (RFC 4862 §5.4). With its first IPv6 address an interface gets a link-local
    /// one too (RFC 4291 §2.8).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NoMemory`], [`Error::InvalidArgument`]; among the latter IPv6 on a
    /// link whose packets are too small for it (RFC 8200 §5).
    pub fn add_address(
        &mut self,
        now: Instant,
        id: InterfaceId,
        address: InterfaceAddress,
    ) -> Result<(), Error> {
        self.ip.add_address(now, id, address)
    }

    /// Takes an own address away. Connections that use it stay until they fail, as in Linux.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn remove_address(&mut self, id: InterfaceId, address: IpAddr) -> Result<(), Error> {
        self.ip.remove_address(id, address)
    }

    /// Whether an address is this host's own.
    pub fn owns_address(&self, address: IpAddr) -> bool {
        self.ip.link.interfaces.owns(address)
    }

    /// The interface that a membership is of.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: no group; [`Error::NotFound`]: no such interface.
    pub fn interface_of(&self, membership: &Membership) -> Result<InterfaceId, Error> {
        place_of(&self.ip.link.interfaces, membership).map(|(interface, _)| interface)
    }

    /// Makes a socket a member of a group.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: no group, or a source where there is a membership for all sources;
    /// [`Error::NotFound`]: no such interface; [`Error::AddressInUse`]: it is a member;
    /// [`Error::AddressNotAvailable`]: it listens to that source; [`Error::NoMemory`].
    pub fn udp_join(&mut self, id: UdpId, join: &Membership) -> Result<(), Error> {
        let socket = self.udp.check(id)?;
        let interfaces = &self.ip.link.interfaces;
        self.ip.multicast.join(interfaces, socket, join)
    }

    /// Ends a membership, or takes a source out of it.
    ///
    /// # Errors
    /// [`Error::AddressNotAvailable`]: there is no such membership; else as [`Stack::udp_join`].
    pub fn udp_leave(&mut self, id: UdpId, leave: &Membership) -> Result<(), Error> {
        let socket = self.udp.check(id)?;
        let interfaces = &self.ip.link.interfaces;
        self.ip.multicast.leave(interfaces, socket, leave)
    }

    /// Of a group that the socket receives from as a whole, blocks what this source sends (RFC 3678 §3).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: it does not receive from the group, or only from single sources of it;
    /// [`Error::AddressNotAvailable`]: the source is blocked already; [`Error::NoMemory`].
    pub fn udp_block(&mut self, id: UdpId, block: &Membership) -> Result<(), Error> {
        let socket = self.udp.check(id)?;
        let interfaces = &self.ip.link.interfaces;
        self.ip.multicast.block(interfaces, socket, block)
    }

    /// Takes [`Stack::udp_block`] back.
    ///
    /// # Errors
    /// As [`Stack::udp_block`]; [`Error::AddressNotAvailable`]: the source is not blocked.
    pub fn udp_unblock(&mut self, id: UdpId, unblock: &Membership) -> Result<(), Error> {
        let socket = self.udp.check(id)?;
        let interfaces = &self.ip.link.interfaces;
        self.ip.multicast.unblock(interfaces, socket, unblock)
    }

    /// Whether [`Stack::take_group_changes`] has something to say.
    pub fn has_group_changes(&self) -> bool {
        self.ip.multicast.has_changes()
    }

    /// What devices have to be told since the last time.
    pub fn take_group_changes(&mut self) -> impl Iterator<Item = GroupChange> {
        self.ip.multicast.take_changes()
    }
}
