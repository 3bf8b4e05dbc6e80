//! The stack's [`Host`]: what happens to connections, listeners and datagrams, told to sockets and their
//! headers.

use super::Sockets;
use super::rows::at;
use crate::errno;
use crate::sockets::rows::{Kind, Marks};
use core::net::SocketAddr;
use hostif::Flags;
use hostif::stages::{Mark, mark};
use stack::{
    AcceptReady, ConnectionId, Datagram, DatagramError, Detour, Host, Incoming, ListenerId,
};
use tcp::{Connection, Events, State};

impl Sockets {
    /// Before a program hears that its connection is over; in TIME-WAIT the kernel is still to be silent.
    fn release_closed(&mut self, row: u32, state: State) {
        self.set_mark(row, Marks::IN_TIME_WAIT, state == State::TimeWait);
        if state == State::Closed {
            self.release_backing(row);
        }
    }

    /// The connection stands: it may be one to a neighbour.
    fn on_established(&mut self, row: u32) {
        self.established.push(row);
        self.unpublish(row, Flags::CONNECTING);
        self.spare_backing_if_enough(row);
    }

    /// How far the connection has received, and the peer acknowledged.
    fn publish_positions(&mut self, row: u32, events: Events, tcp: &Connection) {
        self.expect_signal(row);
        if events.contains(Events::URGENT) {
            // Before its byte can be read, which is no part of the stream.
            let end = tcp.urgent_end().unwrap_or(0);
            self.with_header(row, |header| header.engine_set_urgent_end(end));
        }
        if events.contains(Events::READABLE) {
            if self.row(row).tells_arrival {
                let at_ns = self.wall_clock_ns();
                self.with_header(row, |header| header.engine_set_arrived_at(at_ns));
            }
            mark(Mark::Readable);
            // Before the bytes can be read.
            let told = self.row(row).published & Flags::ACK_WAITS.bits() != 0;
            match (tcp.ack_waits_for_reader(), told) {
                (true, false) => self.publish(row, Flags::ACK_WAITS),
                (false, true) => self.unpublish(row, Flags::ACK_WAITS),
                _ => {}
            }
            self.with_header(row, |header| {
                header.engine_set_received_end(tcp.readable_end())
            });
        }
        if events.contains(Events::WRITABLE) {
            self.with_header(row, |header| {
                header.engine_set_acknowledged(tcp.acknowledged())
            });
        }
    }

    /// What has happened besides new positions, which are published.
    #[inline(never)]
    fn take_events(&mut self, row: u32, events: Events, tcp: &Connection) {
        self.dirty.note_rare();
        let (mut flags, state) = (Flags::empty(), tcp.state());
        if self.companions[at(row)].hears_acks != 0
            && events.intersects(Events::WRITABLE | Events::CLOSED)
        {
            let is_over = state == State::Closed;
            let acknowledged = if is_over {
                u64::MAX
            } else {
                tcp.acknowledged()
            };
            self.acknowledged.push((row, acknowledged));
        }
        if events.contains(Events::ESTABLISHED) {
            flags |= Flags::CONNECTED;
            self.on_established(row);
        }
        if tcp.fin_received() {
            flags |= Flags::FIN;
        }
        if events.contains(Events::URGENT) {
            flags |= Flags::URGENT;
            self.note_urgent(row);
        }
        if let Some(error) = tcp.error() {
            let errno = errno::code(errno::of_connection(error));
            self.with_header(row, |header| header.engine_set_error(errno));
            flags |= Flags::ERROR;
        }
        if matches!(state, State::Closed | State::TimeWait) {
            self.release_closed(row, state);
            flags |= Flags::HUP | Flags::CLOSED;
        }
        let fin_is_done = matches!(state, State::FinWait2 | State::Closed | State::TimeWait);
        if fin_is_done && self.row(row).published & Flags::FIN_DONE.bits() == 0 {
            // Somebody may wait for this in close (SO_LINGER).
            flags |= Flags::FIN_DONE;
            self.count_tx(row);
        }
        if !flags.is_empty() {
            self.publish(row, flags);
        }
        let for_readers = Events::READABLE
            | Events::FIN
            | Events::ERROR
            | Events::URGENT
            | Events::CLOSED
            | Events::TIME_WAIT;
        if events.intersects(for_readers) {
            self.count_rx(row);
        }
        let opens = events.intersects(Events::ESTABLISHED | Events::ERROR | Events::CLOSED);
        let lacked_capacity = !opens && events.contains(Events::WRITABLE) && self.is_tx_wanted(row);
        if lacked_capacity {
            self.note_lack_of_capacity(row);
        }
        if opens || lacked_capacity {
            self.count_tx(row);
        }
    }

    /// Bytes have arrived or were acknowledged on a connection that stands, and nothing else is to be told: what nearly all events
    /// are, with each thing looked up once. False, with nothing done: it is not so.
    #[inline(always)]
    fn take_plain_events(
        &mut self,
        connection: ConnectionId,
        owner: u64,
        events: Events,
        tcp: &Connection,
    ) -> bool {
        let Some(row) = self.row_of(owner) else {
            return false;
        };
        let (record, companion) = (&mut self.rows[at(row)], &self.companions[at(row)]);
        let Some(place) = &companion.place else {
            return false;
        };
        let told = record.published & Flags::ACK_WAITS.bits() != 0;
        let is_usual = record.connection() == Some(connection)
            && record.kind != Kind::Arriving
            && !record.tells_arrival
            && companion.hears_acks == 0
            && companion.signals.is_none()
            && told == tcp.ack_waits_for_reader()
            && is_plain(events, tcp);
        if !is_usual {
            return false;
        }
        let header = place.header();
        if events.contains(Events::READABLE) {
            mark(Mark::Readable);
            header.engine_set_received_end(tcp.readable_end());
            record.rx_events = record.rx_events.wrapping_add(1);
            header.engine_set_rx_events(record.rx_events);
            self.dirty.mark(row);
        }
        if events.contains(Events::WRITABLE) {
            header.engine_set_acknowledged(tcp.acknowledged());
            if header.engine_take_tx_wanted() {
                self.give_capacity(row);
            }
        }
        true
    }

    /// There is space again for which a program waits.
    #[inline(never)]
    fn give_capacity(&mut self, row: u32) {
        self.dirty.note_rare();
        self.note_lack_of_capacity(row);
        self.count_tx(row);
    }

    /// What has happened to a connection, whatever it is.
    #[inline(never)]
    fn take_any_events(
        &mut self,
        connection: ConnectionId,
        owner: u64,
        events: Events,
        tcp: &Connection,
    ) {
        let Some(row) = self.row_of(owner) else {
            return;
        };
        if self.row(row).kind == Kind::Arriving {
            self.adopt(row, connection);
        } else if self.row(row).connection() != Some(connection) {
            return;
        }
        self.publish_positions(row, events, tcp);
        self.take_events(row, events, tcp);
    }

    /// Whether a program waits for space; it is told once.
    #[inline]
    fn is_tx_wanted(&self, row: u32) -> bool {
        self.with_header(row, |header| header.engine_take_tx_wanted()) == Some(true)
    }
}

/// Whether bytes have arrived or were acknowledged on a connection that stands in both directions, and nothing else has happened.
#[inline]
fn is_plain(events: Events, tcp: &Connection) -> bool {
    let others = Events::READABLE | Events::WRITABLE | Events::TRANSMIT;
    (events - others).is_empty() && tcp.state() == State::Established && tcp.error().is_none()
}

impl Host for Sockets {
    fn receive(&mut self, owner: u64, offset: u64, data: &[u8]) {
        mark(Mark::Placed);
        let Some(row) = self.row_of(owner) else {
            return;
        };
        let Some(span) = self.companions[at(row)].receive else {
            return;
        };
        if let Some(window) = self
            .regions
            .find(self.row(row).region)
            .and_then(|region| region.window(span))
        {
            let base = self.row(row).receive_base;
            let placed = window.copy_in(offset.wrapping_sub(u64::from(base)), data);
            self.copies.on_placed(placed as u64);
        }
    }

    fn on_events(
        &mut self,
        connection: ConnectionId,
        owner: u64,
        events: Events,
        tcp: &Connection,
    ) {
        if !self.take_plain_events(connection, owner, events, tcp) {
            self.take_any_events(connection, owner, events, tcp);
        }
    }

    fn on_incoming(
        &mut self,
        _listener: ListenerId,
        listener_owner: u64,
        _peer: SocketAddr,
    ) -> Option<Incoming> {
        let listener = self.row_of(listener_owner)?;
        let parent = *self.row(listener);
        let row = self.create(parent.region, Kind::Arriving)?;
        self.change(row, |record| {
            record.options = parent.options;
            record.linger = parent.linger;
            record.linger_s = parent.linger_s;
            (record.ttl, record.tos) = (parent.ttl, parent.tos);
            record.save_syn = parent.save_syn;
            record.tells_arrival = parent.tells_arrival;
            record.send_limit = parent.send_limit;
        });
        let Some((receive_capacity, send_capacity)) = self.give_windows(row) else {
            self.destroy(row);
            return None;
        };
        self.publish_congestion(row);
        let owner = self.id(row)?.to_bits();
        Some(Incoming {
            owner,
            receive_capacity,
            send_capacity,
            options: parent.options,
            ip: parent.ip(),
        })
    }

    fn on_syn(&mut self, owner: u64, headers: &[u8]) {
        if let Some(row) = self.row_of(owner)
            && self.row(row).save_syn
        {
            self.companions[at(row)].saved_syn = Some(headers.into());
        }
    }

    fn on_sent(&mut self, owner: u64, sent: u64) {
        if let Some(row) = self.row_of(owner) {
            self.note_sent(row, sent);
        }
    }

    fn on_accept_ready(&mut self, _: ListenerId, listener_owner: u64, ready: AcceptReady) {
        let Some(row) = self.row_of(listener_owner) else {
            return;
        };
        self.expect_signal(row);
        self.publish_accept_ready(row, ready);
        self.count_rx(row);
    }

    fn on_datagram(&mut self, owner: u64, datagram: &Datagram<'_>) -> bool {
        self.place_datagram(owner, datagram)
    }

    fn on_datagram_error(&mut self, owner: u64, error: &DatagramError<'_>) {
        self.place_failure(owner, error);
    }

    fn on_released(&mut self, connection: ConnectionId, owner: u64) {
        let Some(row) = self.row_of(owner) else {
            return;
        };
        // A socket that has connected again since is not this connection's any more.
        let is_its =
            self.row(row).connection() == Some(connection) || self.row(row).kind == Kind::Arriving;
        let is_held = !self.holders(row).is_empty() || self.has(row, Marks::ORPHAN);
        if !is_its || is_held {
            return;
        }
        if self.row(row).active
            && self.has(row, Marks::IN_TIME_WAIT)
            && !self.is_port_chosen(row)
            && let Some(backing) = self.take_backing(row)
        {
            self.keep_lingering(backing);
        }
        self.destroy(row);
    }

    fn try_hold_port(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.is_own(local, remote)
    }

    fn try_pass_on(&mut self, detour: &Detour<'_>) -> bool {
        self.home.try_pass_on(detour)
    }
}
