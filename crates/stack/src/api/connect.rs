//! Opening a connection: from which address and port, and with which first sequence number.

use crate::address::{needs_zone, same_family, scope_id_of};
use crate::config::{FastOpenModes, IpOptions};
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::{at, slot};
use crate::error::Error;
use crate::host::Host;
use crate::link::interface::InterfaceId;
use crate::protocols::Protocols;
use crate::stack::Stack;
use crate::tables::{ConnectionId, Flags};
use crate::tcp::handshake::{
    default_mss, halves, initial_sequence_after, receive_mss, secret_numbers,
};
use core::net::{IpAddr, SocketAddr};
use tcp::{FastOpen, Instant, SeqNumber, SocketOptions};

/// What to connect, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// The host's token for the connection.
    pub owner: u64,
    /// Own address; `None`: the stack chooses.
    pub local_address: Option<IpAddr>,
    /// Local port; `None`: the stack chooses.
    pub local_port: Option<u16>,
    /// The peer; its scope names the link where its address is link-local.
    pub remote: SocketAddr,
    /// Bytes of the receive window; a power of two.
    pub receive_capacity: u32,
    /// Bytes of the send window; a power of two.
    pub send_capacity: u32,
    /// Socket options.
    pub options: SocketOptions,
    /// IP header fields.
    pub ip: IpOptions,
}

impl Stack<'_> {
    /// Opens a connection: its SYN leaves with the next [`Stack::poll_transmit`].
    ///
    /// # Errors
    /// [`Error::NetworkUnreachable`], [`Error::AddressNotAvailable`], [`Error::InvalidArgument`],
    /// [`Error::NoMemory`].
    pub fn connect(
        &mut self,
        now: Instant,
        connect: &Connect,
        host: &mut dyn Host,
    ) -> Result<ConnectionId, Error> {
        self.open(now, connect, (FastOpen::Off, 0), host)
    }

    /// As [`Stack::connect`], with Fast Open (RFC 7413) if the peer's cookie is known: then the SYN waits for
    /// the program's first bytes, and how many it can take is told. Else, 0, it asks for a cookie. Where the program has
    /// nothing to send (`has_data`) the SYN takes the cookie along and waits for nothing.
    ///
    /// # Errors
    /// As [`Stack::connect`]; [`Error::NotSupported`]: it is switched off.
    pub fn connect_fast(
        &mut self,
        now: Instant,
        connect: &Connect,
        has_data: bool,
        host: &mut dyn Host,
    ) -> Result<(ConnectionId, u32), Error> {
        let modes = self.ip.link.config.fast_open;
        if !modes.contains(FastOpenModes::CLIENT) {
            return Err(Error::NotSupported);
        }
        let remote = connect.remote.ip().to_canonical();
        let fast_open = self.tcp.fast_open_towards(&self.ip, now, remote, has_data);
        let id = self.open(now, connect, fast_open, host)?;
        let record = self.tcp.record(id.index);
        let room = match record.tcp.fast_open() {
            FastOpen::Holding => {
                record
                    .tcp
                    .syn_capacity(receive_mss(&self.ip, remote, record.tuple.zone()))
            }
            _ => 0,
        };
        Ok((id, room))
    }

    fn open(
        &mut self,
        now: Instant,
        connect: &Connect,
        (fast_open, peer_mss): (FastOpen, u16),
        host: &mut dyn Host,
    ) -> Result<ConnectionId, Error> {
        let (remote, remote_port) = (connect.remote.ip().to_canonical(), connect.remote.port());
        self.ip.link.config.check_socket(Protocols::TCP, remote)?;
        if connect.local_port == Some(0) {
            return Err(Error::InvalidArgument);
        }
        if !self.ip.link.interfaces.is_unicast(remote) {
            return Err(Error::NetworkUnreachable);
        }
        let zone = self.zone_for(connect)?;
        let local = self.local_address_for(connect, remote, zone)?;
        if self.tcp.connections_left() == 0 {
            return Err(Error::NoMemory);
        }
        let tuple = |port| {
            let tuple = FourTuple::new(local, port, remote, remote_port);
            zone.map_or(tuple, |zone| tuple.on_link(zone))
        };
        let (local_port, iss_at_least) = match connect.local_port {
            Some(port) => (port, self.take_port(now, &tuple(port))?),
            None => (self.choose_port(tuple, host)?, None),
        };
        let tuple = tuple(local_port);
        let offers = self.ip.link.config.offers;
        let secrets = secret_numbers(&self.ip, &tuple);
        let mut config = self.tcp.connection_config(
            &self.ip,
            receive_mss(&self.ip, remote, tuple.zone()),
            secrets.timestamp_offset,
            &connect.options,
        );
        config.default_mss = default_mss(remote);
        config.receive_capacity = connect.receive_capacity;
        config.send_capacity = connect.send_capacity;
        (config.timestamps, config.sack) = (offers.timestamps, offers.sack);
        config.window_scaling = offers.window_scaling;
        (config.fast_open, config.peer_mss) = (fast_open, peer_mss);
        let iss = initial_sequence_after(&secrets, iss_at_least, now);
        let index = self
            .tcp
            .insert(&mut self.ip, tuple, |record| {
                record.owner = connect.owner;
                [record.identification, _] = halves(iss.0);
                record.set_ip(connect.ip);
                record.set(Flags::OWNED, true);
                record.tcp = tcp::Connection::connect(&config, iss, now);
            })
            .ok_or(Error::NoMemory)?;
        self.ip.link.counters.tcp_active_opens += 1;
        // No timer runs yet, and nobody has to be told.
        self.ip.flows.queue(index);
        Ok(self.tcp.record(index).id(index))
    }

    /// The address that a connection is opened from: the one that the program has bound, or the route's.
    fn local_address_for(
        &self,
        connect: &Connect,
        remote: IpAddr,
        zone: Option<InterfaceId>,
    ) -> Result<IpAddr, Error> {
        let hop = self.ip.hop_and_source(remote, zone);
        let source = hop.ok_or(Error::NetworkUnreachable)?.source;
        let local = connect.local_address.or(source);
        let local = local.ok_or(Error::AddressNotAvailable)?;
        let interfaces = &self.ip.link.interfaces;
        let is_ours = match zone {
            Some(zone) => interfaces.owns_on(zone, local),
            None => interfaces.owns(local),
        };
        if !is_ours || !same_family(local, remote) {
            return Err(Error::AddressNotAvailable);
        }
        Ok(local)
    }

    /// The four-tuple must be free, or in TIME-WAIT that may end now: then the ISS is to be so far along.
    fn take_port(&mut self, now: Instant, tuple: &FourTuple) -> Result<Option<SeqNumber>, Error> {
        let Some(found) = self.tcp.demux.find(tuple) else {
            return Ok(None);
        };
        let w = found.checked_sub(slot(self.tcp.connections.len()));
        let w = w.ok_or(Error::AddressNotAvailable)?;
        let iss_at_least = self.tcp.time_waits.rows[at(w)].tcp.reopen(now);
        let iss_at_least = iss_at_least.ok_or(Error::AddressNotAvailable)?;
        self.ip.link.counters.time_wait_recycled += 1;
        self.tcp.forget_time_wait(&mut self.ip, w);
        Ok(Some(iss_at_least))
    }

    fn choose_port(
        &mut self,
        tuple: impl Fn(u16) -> FourTuple,
        host: &mut dyn Host,
    ) -> Result<u16, Error> {
        let any = tuple(0);
        let crate::tcp::Tcp {
            ports,
            demux,
            listeners,
            ..
        } = &mut self.tcp;
        let (local, remote, remote_port) = (any.local(), any.remote(), any.remote_port());
        let port = ports.allocate(local, remote, remote_port, |port| {
            !listeners.listening.has_port(port)
                && demux.find(&tuple(port)).is_none()
                && host.try_hold_port(
                    SocketAddr::new(local, port),
                    SocketAddr::new(remote, remote_port),
                )
        });
        port.ok_or(Error::AddressNotAvailable)
    }

    /// The link that the link-local addresses of a connection lie on (RFC 4007 §6).
    fn zone_for(&self, connect: &Connect) -> Result<Option<InterfaceId>, Error> {
        let remote = connect.remote.ip();
        let interfaces = &self.ip.link.interfaces;
        let named = interfaces.with_scope(scope_id_of(connect.remote));
        if let Some(local) = connect.local_address.filter(|local| needs_zone(*local)) {
            // The program has bound the link's own address: that says which one it is.
            return Ok(named.or_else(|| interfaces.owner_of(local)));
        }
        if !needs_zone(remote) {
            return Ok(None);
        }
        named.map(Some).ok_or(Error::InvalidArgument)
    }
}
