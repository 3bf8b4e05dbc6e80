//! A TCP segment arrives: checksum, whose it is, and the answer when it is nobody's
//! (RFC 9293 §3.10.7.1).

use crate::containers::demux::FourTuple;
use crate::containers::intrusive::at;
use crate::egress::{Egress, Payload};
use crate::handshake::{NoCookie, Syn};
use crate::host::Host;
use crate::ip::arrival::Arrival;
use crate::stack::Stack;
use crate::tables::Flags;
use core::net::IpAddr;
use tcp::{Events, FastOpen, Instant, State};
use wire::ecn::Ecn;
use wire::ipv4::Protocol;
use wire::tcp::{Flags as TcpFlags, Header};

impl Stack<'_> {
    pub(crate) fn handle_tcp(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        let (source, destination) = (arrival.source, arrival.destination);
        if arrival.is_to_group() {
            self.ip.link.counters.tcp_in_segs += 1;
            return; // RFC 9293 §3.9.2.3: a connection has two ends.
        }
        let parsed = self.parse_tcp(
            (source, destination),
            arrival.payload,
            arrival.must_verify(),
        );
        let Some((header, payload)) = parsed else {
            return;
        };
        let mark = Ecn::from_tos(arrival.dscp_ecn);
        let tuple = FourTuple::new(
            destination,
            header.destination_port,
            source,
            header.source_port,
        )
        .on_link(arrival.link_of(&self.ip.link.interfaces));
        let mut iss_at_least = None;
        if let Some(found) = self.demux.find(&tuple) {
            let connections = crate::containers::intrusive::slot(self.tables.connections.len());
            let Some(w) = found.checked_sub(connections) else {
                self.handle_in_connection(now, found, mark, &header, payload, host);
                self.expect_more(arrival, found);
                return;
            };
            iss_at_least =
                self.handle_in_time_wait(now, w, arrival, &header, payload.len(), egress);
            // Only a SYN for a listener with room reopens; without one TIME-WAIT goes on and stays silent.
            let has_room = |listener| !self.is_half_open_full(listener);
            if iss_at_least.is_none() || !self.find_listener(&tuple).is_some_and(has_room) {
                return;
            }
            self.ip.link.counters.time_wait_recycled += 1;
            self.forget_time_wait(w);
        }
        let kind = header.flags & (TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN);
        match self.find_listener(&tuple) {
            // RFC 9293 §3.10.7.2; a SYN with FIN is a scan (Linux drops it as well).
            Some(listener) if kind == TcpFlags::SYN => {
                let mut limited = header;
                self.ip.link.config.offers.limit(&mut limited);
                let syn = Syn {
                    tuple,
                    header: &limited,
                    iss_at_least,
                    payload,
                };
                self.handle_syn(now, listener, arrival, &syn, host, egress);
            }
            Some(listener)
                if kind & !TcpFlags::FIN == TcpFlags::ACK
                    && self.expects_cookies(now, listener) =>
            {
                match self.handle_cookie(now, listener, tuple, &header, host) {
                    Ok(Some(index)) => {
                        self.handle_in_connection(now, index, mark, &header, payload, host)
                    }
                    Ok(None) => {}
                    Err(NoCookie) => self.reset(arrival, &header, payload.len(), egress),
                }
            }
            Some(_) if !kind.contains(TcpFlags::ACK) => {}
            _ => self.reset(arrival, &header, payload.len(), egress),
        }
    }

    /// Verifies, if that is still to be done, and reads a segment from `ends.0` to `ends.1`.
    pub(crate) fn parse_tcp<'p>(
        &mut self,
        ends: (IpAddr, IpAddr),
        segment: &'p [u8],
        must_verify: bool,
    ) -> Option<(Header, &'p [u8])> {
        self.ip.link.counters.tcp_in_segs += 1;
        if must_verify && !wire::checksum::verify(ends.0, ends.1, Protocol::TCP, segment) {
            self.ip.link.counters.tcp_in_csum_errors += 1;
            self.ip.link.counters.tcp_in_errs += 1;
            return None;
        }
        let parsed = Header::parse(segment).ok();
        if parsed.is_none() {
            self.ip.link.counters.tcp_in_errs += 1;
        }
        parsed
    }

    /// Segments like this one, which went to connection `index`, go there by the short way.
    fn expect_more(&mut self, arrival: &Arrival<'_>, index: u32) {
        let record = self.record(index);
        if let Some(key) = &arrival.key
            && record.has(Flags::USED)
            && !record.has(Flags::DETACHED)
        {
            let generation = self.ip.link.interfaces.generation();
            self.demux.predictions.learn(key, generation, index);
        }
    }

    pub(crate) fn handle_in_connection(
        &mut self,
        now: Instant,
        index: u32,
        mark: Ecn,
        header: &Header,
        payload: &[u8],
        host: &mut dyn Host,
    ) {
        let record = self.record(index);
        let (before, acknowledged) = (record.tcp.state(), record.tcp.acknowledged());
        // As Linux: the last ACK of a handshake waits outside while the accept queue is full.
        if record.has(Flags::HALF_OPEN)
            && !header.flags.intersects(TcpFlags::RST | TcpFlags::SYN)
            && self.is_accept_queue_full(record.listener())
        {
            self.ip.link.counters.listen_overflows += 1;
            self.ip.link.counters.listen_drops += 1;
            return;
        }
        if header.flags.contains(TcpFlags::URG) {
            host.on_urgent(self.record(index).owner);
        }
        let events = self.receive(index, host, |record, window| {
            record
                .tcp
                .handle_marked_segment(now, mark, header, payload, window)
        });
        if self.record(index).tcp.acknowledged() > acknowledged {
            self.ip.confirm_path(now, at(index));
        }
        if before == State::SynSent
            && events.contains(Events::ESTABLISHED)
            && self.record(index).tcp.fast_open() != FastOpen::Off
        {
            self.learn_fast_open(now, index, header);
        }
        self.apply(now, index, before, events, host);
    }

    /// Whether a listener, a connection or its TIME-WAIT has the local TCP port.
    pub fn holds_port(&self, port: u16) -> bool {
        self.listening.has_port(port) || self.ports.users(port) > 0
    }

    fn reset(
        &mut self,
        arrival: &Arrival<'_>,
        header: &Header,
        payload_len: usize,
        egress: &mut dyn Egress,
    ) {
        // Where the kernel has the same packet it answers for every port but ours.
        if self.ip.link.config.shares_addresses && !self.holds_port(header.destination_port) {
            return;
        }
        let Some(reply) = tcp::reset_reply(header, payload_len) else {
            return;
        };
        if self
            .ip
            .link
            .send_tcp(&arrival.reply(), &reply, Payload::None, 0, None, egress)
            .is_ok()
        {
            self.ip.link.counters.tcp_out_rsts += 1;
        }
    }
}
