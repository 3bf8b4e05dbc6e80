//! A TCP segment arrives: checksum, whose it is, and the answer when it is nobody's
//! (RFC 9293 §3.10.7.1).

use super::Tcp;
use super::handshake::{NoCookie, Syn};
use super::lifecycle::{UNUSUAL, hasten};
use super::window::AtWork;
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::{at, slot};
use crate::egress::Egress;
use crate::host::Host;
use crate::ip::Ip;
use crate::ip::arrival::Arrival;
use crate::tables::{Flags, Touched};
use tcp::{Connection, Events, FastOpen, Instant, PlainArrival, State, UndoPart};
use wire::ecn::Ecn;
use wire::ipv4::Protocol;
use wire::tcp::{Flags as TcpFlags, Header, Plain};

/// A segment whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) header: &'a Header,
    pub(crate) payload: &'a [u8],
    /// What routers have said of congestion (RFC 3168 §5).
    pub(crate) mark: Ecn,
}

/// Reads a segment whose checksum `is_right`.
pub(crate) fn parse_tcp<'p>(
    ip: &mut Ip,
    segment: &'p [u8],
    is_right: impl FnOnce(&[u8]) -> bool,
) -> Option<(Header, &'p [u8])> {
    ip.link.counters.tcp_in_segs += 1;
    if !is_right(segment) {
        ip.link.counters.tcp_in_csum_errors += 1;
        ip.link.counters.tcp_in_errs += 1;
        return None;
    }
    let parsed = Header::parse(segment).ok();
    if parsed.is_none() {
        ip.link.counters.tcp_in_errs += 1;
    }
    parsed
}

/// Counts a round trip that was measured since there were so many.
#[inline(always)]
fn count_round_trip(ip: &mut Ip, tcp: &Connection, measured: u32) {
    if tcp.round_trips() != measured {
        ip.link.round_trips.add(tcp.latest_round_trip_us());
    }
}

impl AtWork<'_, '_> {
    /// Takes in a plain segment that acknowledges more, up to `ack`.
    #[inline(never)]
    fn take_plain_ack(
        mut self,
        ip: &mut Ip,
        now: Instant,
        (plain, payload): (&Plain, &[u8]),
        ack: u64,
        host: &mut dyn Host,
    ) {
        let measured = self.row.tcp.round_trips();
        let events = self.receive(Touched::Row, host, |record, window| {
            record.tcp.take_plain_ack(now, plain, payload, ack, window)
        });
        let (index, tcp) = (self.index, &self.row.tcp);
        ip.confirm_path(now, at(index));
        if tcp.may_transmit() {
            ip.flows.queue(index);
        }
        hasten(ip, index, tcp.flight_deadline().min(tcp.ack_deadline()));
        count_round_trip(ip, tcp, measured);
        self.tell(events, host);
    }

    /// Tells the owner that bytes came or were acknowledged.
    #[inline(always)]
    fn tell(self, events: Events, host: &mut dyn Host) {
        let row = self.row;
        host.on_events(row.id(self.index), row.owner, events, &row.tcp);
    }
}

impl Tcp<'_> {
    pub(crate) fn handle_tcp(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        arrival: &Arrival<'_>,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        if arrival.is_to_group() {
            ip.link.counters.tcp_in_segs += 1;
            return; // RFC 9293 §3.9.2.3: a connection has two ends.
        }
        let is_right = |segment: &[u8]| {
            let verify = wire::checksum::verify;
            !arrival.must_verify()
                || verify(arrival.source, arrival.destination, Protocol::TCP, segment)
        };
        let Some((header, payload)) = parse_tcp(ip, arrival.payload, is_right) else {
            return;
        };
        let segment = Segment {
            header: &header,
            payload,
            mark: Ecn::from_tos(arrival.dscp_ecn),
        };
        let tuple = FourTuple::new(
            arrival.destination,
            header.destination_port,
            arrival.source,
            header.source_port,
        )
        .on_link(arrival.link_of(&ip.link.interfaces));
        let mut iss_at_least = None;
        if let Some(found) = self.demux.find(&tuple) {
            let connections = slot(self.connections.len());
            let Some(w) = found.checked_sub(connections) else {
                self.handle_in_connection(ip, now, found, &segment, host);
                self.expect_more(ip, arrival, found);
                return;
            };
            iss_at_least = self.handle_in_time_wait(ip, now, w, arrival, &segment, egress);
            // Only a SYN for a listener whose queues have space reopens; without one TIME-WAIT goes on and stays silent.
            let listener = self.listeners.listening.find(&tuple);
            let is_full = |listener| self.listeners.is_half_open_full(listener);
            if iss_at_least.is_none() || listener.is_none_or(is_full) {
                return;
            }
            ip.link.counters.time_wait_recycled += 1;
            self.forget_time_wait(ip, w);
        }
        let kind = header.flags & (TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN);
        match self.listeners.listening.find(&tuple) {
            // RFC 9293 §3.10.7.2; a SYN with FIN is a scan (Linux drops it as well).
            Some(listener) if kind == TcpFlags::SYN => {
                let mut limited = header;
                ip.link.config.offers.limit(&mut limited);
                let syn = Syn {
                    listener,
                    tuple,
                    header: &limited,
                    iss_at_least,
                    payload,
                };
                self.handle_syn(ip, now, arrival, &syn, host, egress);
            }
            Some(listener)
                if kind & !TcpFlags::FIN == TcpFlags::ACK
                    && self.expects_cookies(now, listener) =>
            {
                match self.handle_cookie(ip, now, arrival, (listener, tuple), &header, host) {
                    Ok(Some(index)) => self.handle_in_connection(ip, now, index, &segment, host),
                    Ok(None) => {}
                    Err(NoCookie) => self.reset(ip, arrival, &header, payload.len(), egress),
                }
            }
            Some(_) if !kind.contains(TcpFlags::ACK) => {}
            _ => self.reset(ip, arrival, &header, payload.len(), egress),
        }
    }

    /// Segments like this one, which went to connection `index`, go there by the short way.
    pub(super) fn expect_more(&mut self, ip: &Ip, arrival: &Arrival<'_>, index: u32) {
        let record = self.record(index);
        if record.has(Flags::USED) && !record.has(Flags::DETACHED) {
            let generation = ip.link.interfaces.generation();
            let interface = arrival.interface;
            self.demux
                .predictions
                .learn(interface, arrival.frame, generation, index);
        }
    }

    /// A segment for connection `index`.
    pub(crate) fn handle_in_connection(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        segment: &Segment<'_>,
        host: &mut dyn Host,
    ) {
        let Segment {
            header,
            payload,
            mark,
        } = *segment;
        let record = &self.connections[at(index)];
        let before = record.tcp.state();
        // The last ACK of a handshake waits outside while the accept queue is full.
        if record.has(Flags::HALF_OPEN)
            && !header.flags.intersects(TcpFlags::RST | TcpFlags::SYN)
            && self.listeners.is_accept_queue_full(record.listener())
        {
            ip.link.counters.listen_overflows += 1;
            let is_deferred = self.defer_last_ack(now, index, segment);
            ip.link.counters.listen_drops += u64::from(!is_deferred);
            return;
        }
        if header.flags.contains(TcpFlags::URG) {
            host.on_urgent(record.owner);
        }
        let (acknowledged, measured) = (record.tcp.acknowledged(), record.tcp.round_trips());
        let mut work = self.at_work(index);
        let events = work.receive(Touched::Row, host, |record, window| {
            let tcp = &mut record.tcp;
            tcp.handle_marked_segment(now, mark, header, payload, window)
        });
        count_round_trip(ip, &work.row.tcp, measured);
        if work.row.tcp.acknowledged() > acknowledged {
            // Its path is good.
            ip.confirm_path(now, at(index));
        }
        if before == State::SynSent
            && events.contains(Events::ESTABLISHED)
            && self.record(index).tcp.fast_open() != FastOpen::Off
        {
            self.learn_fast_open(ip, now, index, header);
        }
        self.apply(ip, now, index, before, events, host);
    }

    /// A segment for connection `index`: its header, which is plain, and its payload.
    #[inline(always)]
    pub(crate) fn handle_plain(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        mark: Ecn,
        (plain, payload): (&Plain, &[u8]),
        host: &mut dyn Host,
    ) {
        let mut work = self.at_work(index);
        if work.row.flags().intersects(UNUSUAL) {
            return self.handle_plain_long(ip, now, index, mark, (plain, payload), host);
        }
        match work.row.tcp.judge_plain(plain, payload.len()) {
            PlainArrival::Data => {
                let touched = Touched::Part(UndoPart::Data);
                let events = work.receive(touched, host, |record, window| {
                    record.tcp.take_plain_data(now, plain, payload, window)
                });
                // An ACK is due at once, or a timer runs for it.
                if events.contains(Events::TRANSMIT) {
                    ip.flows.queue(index);
                } else {
                    hasten(ip, index, work.row.tcp.ack_deadline());
                }
                work.tell(events, host);
            }
            PlainArrival::Ack(ack) => work.take_plain_ack(ip, now, (plain, payload), ack, host),
            PlainArrival::GoesLong => {
                self.handle_plain_long(ip, now, index, mark, (plain, payload), host);
            }
        }
    }

    /// [`Self::handle_plain`] of one that says more than a short way can take.
    #[inline(never)]
    fn handle_plain_long(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        mark: Ecn,
        (plain, payload): (&Plain, &[u8]),
        host: &mut dyn Host,
    ) {
        let segment = Segment {
            header: &plain.header(),
            payload,
            mark,
        };
        self.handle_in_connection(ip, now, index, &segment, host);
    }

    /// Whether a listener, a connection or its TIME-WAIT has the local TCP port.
    pub(crate) fn holds_port(&self, port: u16) -> bool {
        self.listeners.listening.has_port(port) || self.ports.users(port) > 0
    }

    fn reset(
        &mut self,
        ip: &mut Ip,
        arrival: &Arrival<'_>,
        header: &Header,
        payload_len: usize,
        egress: &mut dyn Egress,
    ) {
        // Where the kernel has the same packet it answers for every port but ours.
        if ip.link.config.shares_addresses && !self.holds_port(header.destination_port) {
            return;
        }
        let Some(reply) = tcp::reset_reply(header, payload_len) else {
            return;
        };
        if ip.link.send_control(&arrival.reply(), &reply, egress) {
            ip.link.counters.tcp_out_rsts += 1;
        }
    }
}
