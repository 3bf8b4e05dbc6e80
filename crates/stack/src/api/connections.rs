//! What a program asks of its connections: the operations of the socket interface, without errno and
//! without descriptors.
//!
//! Every operation names its connection by a [`ConnectionId`]; a stale one is [`Error::NotFound`].

use crate::address::{needs_zone, same_family, scope_id_of};
use crate::config::FastOpenModes;
use crate::config::IpOptions;
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::{at, slot};
use crate::error::Error;
use crate::host::{ConnectionView, Host, ReceiveUse};
use crate::link::interface::InterfaceId;
use crate::link::neighbour::ExternalNeighbour;
use crate::protocols::Protocols;
use crate::stack::Stack;
use crate::tables::{ConnectionId, ConnectionRecord, Flags};
use crate::tcp::handshake::{halves, initial_sequence_after, receive_mss};
use crate::tcp::lifecycle::view;
use core::net::{IpAddr, SocketAddr};
use tcp::{
    CongestionInfo, Events, FastOpen, Info, Instant, OffsetError, SeqNumber, SocketOptions, State,
    WriteMode,
};

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
                    .syn_room(receive_mss(&self.ip, remote, record.tuple.zone()))
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
        let mut config = self
            .tcp
            .connection_config(&self.ip, &tuple, &connect.options);
        config.receive_capacity = connect.receive_capacity;
        config.send_capacity = connect.send_capacity;
        (config.timestamps, config.sack) = (offers.timestamps, offers.sack);
        config.window_scaling = offers.window_scaling;
        (config.fast_open, config.peer_mss) = (fast_open, peer_mss);
        let iss = initial_sequence_after(&self.ip, iss_at_least, &tuple, now);
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
        self.tcp.apply(
            &mut self.ip,
            now,
            index,
            State::Closed,
            Events::TRANSMIT,
            host,
        );
        Ok(self.tcp.record(index).id(index))
    }

    /// The address that a connection is opened from: the one that the program has bound, or the route's.
    fn local_address_for(
        &self,
        connect: &Connect,
        remote: IpAddr,
        zone: Option<InterfaceId>,
    ) -> Result<IpAddr, Error> {
        let hop = self.ip.hop_to(remote, zone);
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

    /// The program has placed bytes in its send window up to stream offset `end`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the offset cannot be; [`Error::NotFound`].
    pub fn written(
        &mut self,
        now: Instant,
        id: ConnectionId,
        end: u64,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        self.positioned(now, id, host, |tcp| tcp.handle_written(now, end))
    }

    /// Like [`Stack::written`], with more to say of how it was written.
    ///
    /// # Errors
    /// As [`Stack::written`].
    pub fn written_as(
        &mut self,
        now: Instant,
        id: ConnectionId,
        end: u64,
        mode: WriteMode,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        self.positioned(now, id, host, |tcp| tcp.handle_written_as(now, end, mode))
    }

    /// `TCP_QUICKACK`.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_quick_ack(
        &mut self,
        now: Instant,
        id: ConnectionId,
        on: bool,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        self.act(now, id, host, |tcp| tcp.set_quick_ack(on))
    }

    /// `TCP_NODELAY` was set: what is written leaves.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn push(
        &mut self,
        now: Instant,
        id: ConnectionId,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        self.act(now, id, host, tcp::Connection::push)
    }

    /// The program has consumed bytes of its receive window up to stream offset `end`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the offset cannot be; [`Error::NotFound`].
    pub fn consumed(
        &mut self,
        now: Instant,
        id: ConnectionId,
        end: u64,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        let ceiling = self.tcp.window_ceiling;
        self.positioned(now, id, host, |tcp| {
            tcp.handle_consumed_below(now, end, ceiling)
        })
    }

    /// From now on no connection's receive window is offered with more than `bytes`, unless it is already:
    /// what a host says whose memory runs short. `u32::MAX`: as much as each window has.
    pub fn set_window_ceiling(&mut self, bytes: u32) {
        self.tcp.window_ceiling = bytes;
    }

    /// Does something to a connection that a program holds.
    fn act(
        &mut self,
        now: Instant,
        id: ConnectionId,
        host: &mut dyn Host,
        act: impl FnOnce(&mut tcp::Connection) -> Events,
    ) -> Result<(), Error> {
        let index = self.check(id)?;
        self.tcp.run(&mut self.ip, now, index, host, act);
        Ok(())
    }

    fn positioned(
        &mut self,
        now: Instant,
        id: ConnectionId,
        host: &mut dyn Host,
        act: impl FnOnce(&mut tcp::Connection) -> Result<Events, OffsetError>,
    ) -> Result<(), Error> {
        let index = self.check(id)?;
        let before = self.tcp.record(index).tcp.state();
        let events = self
            .tcp
            .change(index, |record| act(&mut record.tcp))
            .map_err(|_| Error::InvalidArgument)?;
        // A position that calls for nothing has moved no timer either.
        if !events.is_empty() {
            self.tcp
                .apply(&mut self.ip, now, index, before, events, host);
        }
        Ok(())
    }

    /// The program reads no more (`SHUT_RD`); it may go on sending.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn shutdown_read(&mut self, id: ConnectionId) -> Result<(), Error> {
        let index = self.check(id)?;
        self.tcp.change(index, |record| record.tcp.shutdown_read());
        Ok(())
    }

    /// The program sends no more (`SHUT_WR`); it may go on reading.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::BrokenPipe`]: the connection is closed or was never there.
    pub fn shutdown(
        &mut self,
        now: Instant,
        id: ConnectionId,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        let index = self.check(id)?;
        if self.tcp.record(index).tcp.state() == State::Closed {
            return Err(Error::BrokenPipe);
        }
        self.tcp.run(&mut self.ip, now, index, host, |tcp| {
            tcp.shutdown_write(now)
        });
        Ok(())
    }

    /// The program lets go of the connection: what it wrote is still delivered, then the row is
    /// released and the host told. The identifier is not to be used again.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn close(
        &mut self,
        now: Instant,
        id: ConnectionId,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        let index = self.check(id)?;
        if self.tcp.record(index).tcp.closes_with_reset() {
            return self.close_with_reset(now, id, host);
        }
        if !self.tcp.record(index).has(Flags::DETACHED) {
            self.tcp
                .run(&mut self.ip, now, index, host, |tcp| tcp.close(now));
        }
        let is_orphan = self.tcp.disown(&mut self.ip, index, host);
        if is_orphan && self.tcp.orphans > self.ip.link.config.orphans_max {
            // Linux `tcp_check_oom`: too many orphans cost the newest its orderly end.
            self.ip.link.counters.orphans_aborted += 1;
            self.tcp
                .run(&mut self.ip, now, index, host, tcp::Connection::abort);
        }
        Ok(())
    }

    /// The connection ends at once: the peer gets a reset, and nothing else that was not sent yet.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn abort(
        &mut self,
        now: Instant,
        id: ConnectionId,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        let index = self.check(id)?;
        if !self.tcp.record(index).has(Flags::DETACHED) {
            self.tcp
                .run(&mut self.ip, now, index, host, tcp::Connection::abort);
        }
        self.tcp.disown(&mut self.ip, index, host);
        Ok(())
    }

    /// The program lets go of the connection and wants it reset. What it has written goes ahead of the reset as
    /// far as the windows allow: Linux sends within send(2), so a peer may count on it.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn close_with_reset(
        &mut self,
        now: Instant,
        id: ConnectionId,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        let index = self.check(id)?;
        let record = self.tcp.record(index);
        if record.has(Flags::DETACHED) || !record.tcp.has_unsent() {
            return self.abort(now, id, host);
        }
        self.tcp
            .change(index, |record| record.set(Flags::RESETTING, true));
        self.ip.flows.senders.push(index);
        self.tcp.disown(&mut self.ip, index, host);
        Ok(())
    }

    /// Changes the socket options.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_options(
        &mut self,
        now: Instant,
        id: ConnectionId,
        options: &SocketOptions,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        self.act(now, id, host, |tcp| tcp.set_options(now, options))
    }

    /// Changes the IP header fields of what the connection sends from now on.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_ip_options(&mut self, id: ConnectionId, ip: IpOptions) -> Result<(), Error> {
        let index = self.check(id)?;
        self.tcp.change(index, |record| record.set_ip(ip));
        Ok(())
    }

    /// Figures of the connection, for `TCP_INFO`.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn info(&self, id: ConnectionId) -> Result<Info, Error> {
        Ok(self.find(id)?.tcp.info())
    }

    /// What the connection's congestion control believes.
    ///
    /// # Errors
    /// No such connection.
    pub fn congestion_info(&self, id: ConnectionId) -> Result<CongestionInfo, Error> {
        Ok(self.find(id)?.tcp.congestion_info())
    }

    /// Largest packet on the path of the connection; `None`: there is no path.
    pub fn path_mtu_of(&self, now: Instant, id: ConnectionId) -> Option<u16> {
        let record = self.find(id).ok()?;
        let interface = self
            .ip
            .hop_to(record.tuple.remote(), record.tuple.zone())?
            .interface;
        let mtu = self.ip.link.interfaces.find(interface)?.config.mtu;
        let is_lowered = record.path_mtu != 0 && now < record.path_mtu_until;
        Some(if is_lowered {
            mtu.min(record.path_mtu)
        } else {
            mtu
        })
    }

    /// What the host is told with each event.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn view(&self, id: ConnectionId) -> Result<ConnectionView, Error> {
        Ok(view(self.find(id)?))
    }

    /// Stream offset up to which a connection's bytes have left.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn sent(&self, id: ConnectionId) -> Result<u64, Error> {
        Ok(self.find(id)?.tcp.sent())
    }

    /// How a connection uses its receive window.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn receive_use(&self, id: ConnectionId) -> Result<ReceiveUse, Error> {
        let tcp = &self.find(id)?.tcp;
        Ok(ReceiveUse {
            readable_end: tcp.readable_end(),
            offered: u32::try_from(tcp.offered_window()).unwrap_or(u32::MAX),
            is_drained: tcp.is_drained(),
        })
    }

    /// The two ends: this host's, the peer's.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn addresses(&self, id: ConnectionId) -> Result<(SocketAddr, SocketAddr), Error> {
        let tuple = &self.find(id)?.tuple;
        Ok((self.ip.local_end(tuple), self.ip.remote_end(tuple)))
    }

    /// The owner of the connection between these two ends, unless it is of one link.
    pub fn owner_between(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<u64> {
        let tuple = FourTuple::new(local.ip(), local.port(), remote.ip(), remote.port());
        let index = self.tcp.demux.find(&tuple)?;
        let record = self.tcp.connections.get(at(index))?;
        record.has(Flags::OWNED).then_some(record.owner)
    }

    fn find(&self, id: ConnectionId) -> Result<&ConnectionRecord, Error> {
        let record = self
            .tcp
            .connections
            .get(at(id.index))
            .ok_or(Error::NotFound)?;
        let is_it = record.has(Flags::USED) && record.generation == id.generation;
        if is_it {
            Ok(record)
        } else {
            Err(Error::NotFound)
        }
    }

    /// The row of a connection that a program holds.
    fn check(&self, id: ConnectionId) -> Result<u32, Error> {
        if self.find(id)?.has(Flags::OWNED) {
            Ok(id.index)
        } else {
            Err(Error::NotFound)
        }
    }

    /// A station is gone with all its connections, as its host says: ours to it end as if it had reset them, and
    /// it is asked for anew when it is needed. What is in TIME-WAIT stays.
    pub fn lose_station(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        address: IpAddr,
        host: &mut dyn Host,
    ) {
        self.ip
            .hear_of_neighbour(interface, address, ExternalNeighbour::Forgotten);
        for index in 0..*self.tcp.connections_used {
            let record = self.tcp.record(index);
            let is_ended = record.has(Flags::DETACHED) || !record.has(Flags::USED);
            let asks = record.tcp.state() == State::SynSent;
            if !is_ended && !asks && record.tuple.remote() == address {
                // What is left to be said is not worth a question on the link.
                self.tcp
                    .change(index, |record| record.set(Flags::LOSE, true));
                self.tcp.run(
                    &mut self.ip,
                    now,
                    index,
                    host,
                    tcp::Connection::handle_peer_gone,
                );
            }
        }
    }
}
