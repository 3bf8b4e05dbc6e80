//! What a program asks of its connections: the operations of the socket interface, without errno and
//! without descriptors.
//!
//! Every operation names its connection by a [`ConnectionId`]; a stale one is [`Error::NotFound`].

use crate::config::IpOptions;
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::at;
use crate::egress::Egress;
use crate::error::Error;
use crate::host::{ConnectionView, Host, ReceiveUse};
use crate::link::interface::InterfaceId;
use crate::link::neighbour::ExternalNeighbour;
use crate::stack::Stack;
use crate::tables::{ConnectionId, ConnectionRecord, Flags, Touched};
use core::net::{IpAddr, SocketAddr};
use tcp::{CongestionInfo, Events, Info, Instant, SocketOptions, State, UndoPart, WriteMode};

impl Stack<'_> {
    /// The program has placed bytes in its send window up to stream offset `end`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the offset cannot be; [`Error::NotFound`].
    pub fn written(&mut self, now: Instant, id: ConnectionId, end: u64) -> Result<(), Error> {
        self.written_as(now, id, end, WriteMode::Plain)
    }

    /// Like [`Stack::written`], with more to say of how it was written.
    ///
    /// # Errors
    /// As [`Stack::written`].
    #[inline]
    pub fn written_as(
        &mut self,
        now: Instant,
        id: ConnectionId,
        end: u64,
        mode: WriteMode,
    ) -> Result<(), Error> {
        let index = self.check(id)?;
        let events = self
            .tcp
            .change(index, |record| record.tcp.handle_written_as(now, end, mode))
            .map_err(|_| Error::InvalidArgument)?;
        // No timer moves before something leaves, and nobody has to be told.
        if events.contains(Events::TRANSMIT) {
            self.ip.flows.queue(index);
        }
        Ok(())
    }

    /// As [`Stack::written`], of bytes from where the stream is known to be written, `start`. `None`, with nothing done: it is
    /// not so, or no more can be written.
    pub fn written_next(
        &mut self,
        now: Instant,
        id: ConnectionId,
        start: u64,
        end: u64,
    ) -> Option<()> {
        let is_next = self.is_written_next(id, start, end);
        is_next.then(|| self.written(now, id, end).ok()).flatten()
    }

    /// The same, and [`Stack::poll_transmit`] after it. Says how many segments left.
    #[inline(always)]
    pub fn write_and_transmit(
        &mut self,
        now: Instant,
        id: ConnectionId,
        (start, end): (u64, u64),
        (host, egress): (&mut dyn Host, &mut dyn Egress),
        budget: usize,
    ) -> Option<usize> {
        if !self.is_written_next(id, start, end) {
            return None;
        }
        if self.wants_transmit() || self.ip.flows.is_waiting(at(id.index)) {
            self.written(now, id, end).ok()?;
            return Some(self.poll_transmit(now, host, egress, budget));
        }
        let Self { tcp, ip, .. } = self;
        let written = tcp.change(id.index, |record| record.tcp.handle_written(now, end));
        written.ok()?;
        // Nobody waits before it, so that it need not wait.
        Some(tcp.transmit_alone(ip, now, id.index, host, egress, budget))
    }

    #[inline(always)]
    fn is_written_next(&self, id: ConnectionId, start: u64, end: u64) -> bool {
        self.find(id).is_ok_and(|record| {
            record.has(Flags::OWNED)
                && record.tcp.written() == start
                && start < end
                && record.tcp.state().can_send()
        })
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
    pub fn consumed(&mut self, now: Instant, id: ConnectionId, end: u64) -> Result<(), Error> {
        let ceiling = self.tcp.window_ceiling;
        let index = self.check(id)?;
        let events = self
            .tcp
            .change_touched(index, Touched::Part(UndoPart::Consumed), |record| {
                record.tcp.handle_consumed_below(now, end, ceiling)
            })
            .map_err(|_| Error::InvalidArgument)?;
        // An ACK is all that comes of it: no timer moves, and nobody has to be told.
        if events.contains(Events::TRANSMIT) {
            self.ip.flows.queue(index);
        }
        Ok(())
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

    /// The program closes the connection: what it wrote is still delivered, then the row is
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

    /// The program closes the connection and wants it reset. What it has written goes ahead of the reset as
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
        self.tcp.mark(index, Flags::RESETTING, true);
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

    /// Where the connection stands.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    #[inline]
    pub fn view(&self, id: ConnectionId) -> Result<ConnectionView, Error> {
        Ok(self.connection(id)?.into())
    }

    /// The connection itself.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    #[inline]
    pub fn connection(&self, id: ConnectionId) -> Result<&tcp::Connection, Error> {
        Ok(&self.find(id)?.tcp)
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

    #[inline]
    pub(super) fn find(&self, id: ConnectionId) -> Result<&ConnectionRecord, Error> {
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
                self.tcp.mark(index, Flags::LOSE, true);
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
