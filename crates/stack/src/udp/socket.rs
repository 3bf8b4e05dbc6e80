//! What a program asks of its UDP sockets: bind, connect, options, close. Without errno and descriptors.

use super::Udp;
use super::record::Ends;
use super::table::{Entry, unspecified};
use super::{UdpId, UdpOptions};
use crate::address::{needs_zone, same_family, scope_id_of};
use crate::containers::intrusive::{at, slot};
use crate::error::Error;
use crate::ip::Ip;
use crate::link::interface::InterfaceId;
use crate::protocols::Protocols;
use crate::tables::Row as _;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// What to bind.
#[derive(Clone, Copy, Debug)]
pub struct UdpBind {
    /// The host's token for the socket.
    pub owner: u64,
    /// Own address or ANY; port 0: the stack chooses.
    pub local: SocketAddr,
    /// Others may have the same end (`SO_REUSEADDR`, `SO_REUSEPORT`, as far as the caller allows it).
    pub shares: bool,
    /// Options.
    pub options: UdpOptions,
}

impl Udp<'_> {
    /// Makes a socket at a local end.
    pub(crate) fn bind(&mut self, ip: &mut Ip, bind: &UdpBind) -> Result<UdpId, Error> {
        let address = bind.local.ip();
        ip.link.config.check_socket(Protocols::UDP, address)?;
        if !address.is_unspecified() && !self.is_bindable(ip, address) {
            return Err(Error::AddressNotAvailable);
        }
        let port = match bind.local.port() {
            0 => self.choose_port(address)?,
            port if bind.shares || self.is_end_free(SocketAddr::new(address, port)) => port,
            _ => return Err(Error::AddressInUse),
        };
        let index = self.free_row().ok_or(Error::NoMemory)?;
        let mut ends = Ends::bound(SocketAddr::new(address, port));
        if needs_zone(address) {
            // RFC 4007 §6: the program names the link; without a name it is the one that has the address.
            let named = ip.link.interfaces.with_scope(scope_id_of(bind.local));
            let link = named.or_else(|| ip.link.interfaces.owner_of(address));
            ends = ends.on_link(link.ok_or(Error::InvalidArgument)?);
        }
        self.bindings += 1;
        let bound_at = self.bindings;
        self.rows[at(index)].change(|record| {
            record.generation = record.generation.wrapping_add(1);
            record.owner = bind.owner;
            (record.ends, record.bound) = (ends, ends);
            record.set_options(&bind.options);
            record.bound_at = bound_at;
            record.used = 1;
        });
        self.link(index);
        Ok(self.rows[at(index)].id(index))
    }

    /// Multicast and broadcast addresses may be bound too: they filter what arrives.
    fn is_bindable(&self, ip: &Ip, address: IpAddr) -> bool {
        ip.link.interfaces.owns(address)
            || address.is_multicast()
            || ip.link.interfaces.is_broadcast(address)
    }

    fn choose_port(&mut self, address: IpAddr) -> Result<u16, Error> {
        // RFC 6056 §3.3.4: without a destination all of them share one offset.
        let (table, nobody) = (&self.table, unspecified(address));
        let is_free = |port| table.on_port(port).is_empty();
        let port = self.ports.allocate(address, nobody, 0, is_free);
        port.ok_or(Error::AddressNotAvailable)
    }

    /// Whether nobody has the end, nor ANY or one address of it.
    fn is_end_free(&self, end: SocketAddr) -> bool {
        let is_any = |address: IpAddr| address.is_unspecified();
        let overlaps = |other: IpAddr| other == end.ip() || is_any(other) || is_any(end.ip());
        let mut entries = self.table.on_port(end.port()).iter();
        !entries.any(|entry| overlaps(entry.ends.local().ip()))
    }

    fn free_row(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let used = *self.used;
            (at(used) < self.rows.len()).then(|| {
                *self.used += 1;
                used
            })
        })
    }

    /// Makes a socket findable.
    pub(crate) fn link(&mut self, index: u32) {
        self.generation = self.generation.wrapping_add(1);
        let record = &self.rows[at(index)];
        let (ends, options) = (record.ends, record.options());
        let any_v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        self.table.insert(Entry {
            index,
            ends,
            reuse_port: options.reuse_port,
            is_dual: ends.local().ip() == any_v6 && ends.remote().is_none() && !options.v6_only,
        });
    }

    fn unlink(&mut self, index: u32) {
        self.generation = self.generation.wrapping_add(1);
        let ends = self.rows[at(index)].ends;
        self.table.remove(index, &ends);
    }

    /// Gives the socket a peer: it sends there by default and receives from nobody else; of port 0 there is no peer, and the
    /// socket only gets the local address that leads there, which programs ask for so. Returns the
    /// local end, whose address is the route's if the socket was bound to ANY (RFC 1122 §4.1.3.5).
    pub(crate) fn connect(
        &mut self,
        ip: &mut Ip,
        id: UdpId,
        remote: SocketAddr,
    ) -> Result<SocketAddr, Error> {
        let index = self.check(id)?;
        ip.link.config.check_socket(Protocols::UDP, remote.ip())?;
        let record = &self.rows[at(index)];
        let (bound, options) = (record.bound.local(), record.options());
        if remote.ip().is_unspecified() {
            return Err(Error::InvalidArgument);
        }
        if ip.link.interfaces.is_broadcast(remote.ip()) && !options.broadcast {
            return Err(Error::AccessDenied);
        }
        let zone = self.zone_of(ip, remote).or(record.bound.zone());
        let multicast = options.of(remote.ip()).multicast_interface;
        let wanted = zone.or(multicast.filter(|_| remote.ip().is_multicast()));
        let way = self.way(ip, remote.ip(), wanted)?;
        let local = if bound.ip().is_unspecified() {
            way.source.ok_or(Error::AddressNotAvailable)?
        } else if same_family(bound.ip(), remote.ip()) {
            bound.ip()
        } else {
            return Err(Error::NetworkUnreachable);
        };
        let local = SocketAddr::new(local, bound.port());
        let ends = Ends::connected(local, remote).on_link(way.link);
        self.unlink(index);
        self.rows[at(index)].change(|record| record.ends = ends);
        self.link(index);
        Ok(local)
    }

    /// Takes the peer away again: the socket is as it was bound.
    pub(crate) fn disconnect(&mut self, id: UdpId) -> Result<SocketAddr, Error> {
        let index = self.check(id)?;
        self.unlink(index);
        self.rows[at(index)].change(|record| record.ends = record.bound);
        self.link(index);
        Ok(self.rows[at(index)].ends.local())
    }

    /// Changes the options.
    pub(crate) fn set_options(&mut self, id: UdpId, options: &UdpOptions) -> Result<(), Error> {
        let index = self.check(id)?;
        let before = self.rows[at(index)].options();
        let place = |options: &UdpOptions| (options.reuse_port, options.v6_only);
        let moves = place(&before) != place(options);
        self.generation = self.generation.wrapping_add(1);
        if moves {
            self.unlink(index);
        }
        self.rows[at(index)].change(|record| record.set_options(options));
        if moves {
            self.link(index);
        }
        Ok(())
    }

    /// The options.
    pub(crate) fn options(&self, id: UdpId) -> Result<UdpOptions, Error> {
        Ok(self.rows[at(self.check(id)?)].options())
    }

    /// The socket is gone.
    pub(crate) fn close(&mut self, ip: &mut Ip, id: UdpId) -> Result<(), Error> {
        let index = self.check(id)?;
        self.unlink(index);
        self.rows[at(index)].change(|record| record.used = 0);
        ip.multicast.leave_all(&ip.link.interfaces, index);
        self.free.push(index);
        Ok(())
    }

    /// The local end and the peer.
    pub(crate) fn addresses(&self, id: UdpId) -> Result<(SocketAddr, Option<SocketAddr>), Error> {
        let ends = &self.rows[at(self.check(id)?)].ends;
        Ok((ends.local(), ends.remote()))
    }

    /// The ports that sockets have.
    pub(crate) fn used_ports(&self) -> impl Iterator<Item = u16> {
        self.table.used_ports()
    }

    /// The local addresses at which sockets have that port, some more than once; one for both families is named as the
    /// unspecified one of each.
    pub(crate) fn holders(&self, port: u16) -> impl Iterator<Item = IpAddr> {
        self.table.addresses_on(port)
    }

    /// UDP sockets in use.
    pub(crate) fn sockets(&self) -> usize {
        at(*self.used) - self.free.len()
    }

    /// The link that a program names with a link-local address.
    pub(super) fn zone_of(&self, ip: &Ip, address: SocketAddr) -> Option<InterfaceId> {
        needs_zone(address.ip())
            .then(|| ip.link.interfaces.with_scope(scope_id_of(address)))
            .flatten()
    }

    pub(crate) fn check(&self, id: UdpId) -> Result<u32, Error> {
        let record = self.rows.get(at(id.index)).ok_or(Error::NotFound)?;
        let is_it = record.used == 1 && record.generation == id.generation;
        is_it.then_some(id.index).ok_or(Error::NotFound)
    }

    /// Takes over the rows of an earlier stack: those that a crash interrupted are given up.
    pub(crate) fn rebuild(&mut self) -> (u32, u32) {
        let (mut interrupted, mut order) = (0, Vec::new());
        for index in 0..*self.used {
            let record = &mut self.rows[at(index)];
            if record.take_interrupted() {
                interrupted += u32::from(record.used == 1);
                record.used = 0;
                record.generation = record.generation.wrapping_add(1);
            }
            if record.used == 1 {
                order.push((record.bound_at, index));
            } else {
                self.free.push(index);
            }
        }
        order.sort_unstable();
        self.bindings = order.last().map_or(0, |(bound_at, _)| *bound_at);
        for (_, index) in &order {
            self.link(*index);
        }
        (slot(order.len()), interrupted)
    }
}
