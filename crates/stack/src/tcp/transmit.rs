//! Who sends next: a queue of connections that have something to send, each with a turn of a few
//! segments, so that one bulk transfer does not delay a thousand small answers.
//!
//! A connection stands in the queue at most once; one that waits for a neighbour leaves it until it is
//! woken. What the interface refused of a turn is kept (once for the whole stack) and goes first next
//! time, so that a busy interface reorders nothing. A busy interface holds up the others.

mod plain;

use super::Refused;
use super::Tcp;
use crate::containers::intrusive::at;
use crate::egress::{Busy, Egress, Payload};
use crate::host::Host;
use crate::ip::Ip;
use crate::ip::path::{Gate, Station};
use crate::link::interface::InterfaceId;
use crate::link::output::{Envelope, PACKET_MAX, ip_header_len, packet_max, segments};
use crate::tables::{ConnectionRecord, Flags};
use tcp::{Instant, Transmit, TransmitLimits};

/// Segments of one turn.
const QUANTUM: usize = 4;
/// A TCP header without options, and one with all that fit.
const TCP_HEADER_MIN: u16 = 20;
const TCP_HEADER_MAX: u32 = 60;

/// What a turn has to look at: [`Tcp::end_of_sending`].
const UNUSUAL: Flags = Flags::LOSE.union(Flags::DRAINING).union(Flags::RESETTING);

/// How a turn ended.
enum Turn {
    /// Nothing is left to send, or the connection waits.
    Over,
    /// There may be more.
    More,
    /// The interface is busy.
    Busy,
}

impl Tcp<'_> {
    /// Gives connections their turns to send: at most `budget` segments. Returns how many there were, lost ones
    /// included.
    pub(crate) fn poll_transmit(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
        budget: usize,
    ) -> usize {
        let mut sent = 0;
        if self.refused.is_some() && self.send_refused(ip, now, &mut sent, egress).is_err() {
            return sent;
        }
        while sent < budget {
            let Some(index) = ip.flows.senders.pop() else {
                break;
            };
            let left = budget - sent;
            let turn = self.give_turn(ip, now, index, left, (&mut sent, host), egress);
            if matches!(turn, Turn::Busy) {
                break;
            }
        }
        if ip.link.has_questions() {
            // What was asked for on the way leaves with the same burst.
            ip.link.send_questions(egress);
        }
        sent
    }

    /// As [`Self::poll_transmit`], where connection `index` alone, which is not queued, has something to send.
    #[inline(always)]
    pub(crate) fn transmit_alone(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
        budget: usize,
    ) -> usize {
        let mut sent = 0;
        self.give_turn(ip, now, index, budget, (&mut sent, host), egress);
        if ip.flows.senders.len() > 0 || ip.link.has_questions() {
            sent += self.poll_transmit(ip, now, host, egress, budget.saturating_sub(sent));
        }
        sent
    }

    /// Gives a connection, which is not queued, its turn; it is queued again where that does not end what it has to send.
    #[inline(always)]
    fn give_turn(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        left: usize,
        (sent, host): (&mut usize, &mut dyn Host),
        egress: &mut dyn Egress,
    ) -> Turn {
        self.transmit_turns += 1;
        let turn = self.take_turn(ip, now, index, QUANTUM.min(left), sent, egress);
        let record = self.record(index);
        if record.tcp.socket_options().notsent_low_water > 0 {
            host.on_sent(record.owner, record.tcp.sent());
        }
        let flags = record.flags();
        match turn {
            Turn::Over if flags.intersects(UNUSUAL) => {
                self.end_of_sending(ip, now, index, flags, host);
            }
            Turn::Over => {}
            Turn::More | Turn::Busy => ip.flows.senders.push(index),
        }
        turn
    }

    /// Sends the segment that the interface has refused before, if it still may; refused again, it is kept.
    #[cold]
    fn send_refused(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let Some(refused) = self.refused.take() else {
            return Ok(());
        };
        let index = refused.connection.index;
        let record = self.record(index);
        if record.generation != refused.connection.generation
            || !record.has(Flags::USED)
            || ip.flows.is_waiting(at(index))
        {
            return Ok(());
        }
        if let Gate::Open(station) = ip.gate(now, at(index), &self.connections[at(index)].tuple) {
            let mut left = refused.transmit;
            loop {
                let (first, rest) = left.cut(refused.piece);
                let done = self.send_from(ip, now, index, station, &first, egress);
                if done.is_err() {
                    self.refused = Some(Refused {
                        transmit: left,
                        ..refused
                    });
                    return done;
                }
                *sent += 1;
                let Some(rest) = rest else { break };
                left = rest;
            }
        }
        Ok(())
    }

    /// One turn of a connection, and its timers afterwards.
    #[inline(always)]
    fn take_turn(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        quantum: usize,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        if self.sends_plainly(index) {
            return self.take_plain_turn(ip, now, index, quantum, sent, egress);
        }
        self.take_long_turn(ip, now, index, quantum, sent, egress)
    }

    #[inline(never)]
    fn take_long_turn(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        quantum: usize,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        let turn = self.transmit(ip, now, index, quantum, sent, egress);
        self.arm(ip, index);
        turn
    }

    fn transmit(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        quantum: usize,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        let flags = self.record(index).flags();
        if !flags.contains(Flags::USED) || ip.flows.is_waiting(at(index)) {
            return Turn::Over;
        }
        let gate = if flags.contains(Flags::LOSE) {
            Gate::Lost
        } else {
            ip.gate(now, at(index), &self.connections[at(index)].tuple)
        };
        let open = match gate {
            Gate::Open(station) => Some(station),
            Gate::Lost => None,
            Gate::Waiting => return Turn::Over,
        };
        self.transmit_to(ip, now, (index, open), quantum, sent, egress)
    }

    /// What a connection sends that has no way to go is lost.
    #[cold]
    fn transmit_lost(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        quantum: usize,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        let turn = self.transmit_to(ip, now, (index, None), quantum, sent, egress);
        self.arm(ip, index);
        turn
    }

    /// What connection `index` sends by the long way, if it is not lost.
    fn transmit_to(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        (index, open): (u32, Option<Station>),
        quantum: usize,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        let mut limits = None;
        for _ in 0..quantum {
            if !self.record(index).tcp.may_transmit() {
                return Turn::Over;
            }
            let limits = limits.get_or_insert_with(|| {
                let interface = open.map(Station::interface);
                self.limits(ip, now, index, interface, egress)
            });
            // It is large, and handed back it would be copied.
            let mut transmit = None;
            self.fly(index, |record, blocks| {
                transmit = record.tcp.poll_transmit(now, limits, blocks);
            });
            let Some(transmit) = &transmit else {
                return Turn::Over;
            };
            if let Some(station) = open {
                let done = self.send_from(ip, now, index, station, transmit, egress);
                if let Err(Busy) = done {
                    return self.refuse(index, *transmit, transmit.len);
                }
            } else {
                ip.link.counters.ip_out_discards += 1;
            }
            *sent += 1;
        }
        Turn::More
    }

    /// The interface takes nothing now: this goes first next time, at most `piece` bytes at once.
    #[cold]
    fn refuse(&mut self, index: u32, transmit: Transmit, piece: u32) -> Turn {
        self.refused = Some(Refused {
            connection: self.record(index).id(index),
            transmit,
            piece,
        });
        Turn::Busy
    }

    /// How large segments of connection `index` may be; without an interface they are lost anyway.
    fn limits(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        interface: Option<InterfaceId>,
        egress: &dyn Egress,
    ) -> TransmitLimits {
        let remote = self.record(index).tuple.remote();
        let ip_header = ip_header_len(remote);
        let headers_max = u32::from(ip_header) + TCP_HEADER_MAX;
        match interface {
            Some(interface) => {
                let mtu = self.path_mtu(ip, now, at(index), interface);
                let mss = mtu.saturating_sub(ip_header + TCP_HEADER_MIN);
                let cut_by_device = egress.caps(interface).max_segment_bytes;
                let device = cut_by_device.min(packet_max(remote));
                TransmitLimits {
                    mss,
                    max_payload: device.saturating_sub(headers_max).max(u32::from(mss)),
                }
            }
            None => TransmitLimits {
                mss: crate::ip::path::path_mtu_min(remote) - ip_header - TCP_HEADER_MIN,
                max_payload: PACKET_MAX - headers_max,
            },
        }
    }

    /// A connection has nothing more to send now. One that is detached has no other purpose.
    #[inline(never)]
    fn end_of_sending(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        flags: Flags,
        host: &mut dyn Host,
    ) {
        if flags.contains(Flags::USED | Flags::RESETTING) {
            self.mark(index, Flags::RESETTING, false);
            if !flags.contains(Flags::DETACHED) {
                self.run(ip, now, index, host, tcp::Connection::abort);
                return;
            }
        }
        if flags.contains(Flags::LOSE) {
            self.mark(index, Flags::LOSE, false);
        }
        // Its last segment may wait for a neighbour's address.
        let is_waiting = ip.flows.is_waiting(at(index)) && self.record(index).tcp.owes_reset();
        if flags.contains(Flags::USED | Flags::DRAINING) && !is_waiting {
            self.mark(index, Flags::DRAINING, false);
            ip.forget_path(at(index));
            if !flags.intersects(Flags::OWNED | Flags::READY) {
                self.release(ip, index, host);
            }
        }
    }

    fn send_from(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        station: Station,
        transmit: &Transmit,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let with_cookie;
        let transmit = if transmit.header.options.fast_open.is_some() {
            with_cookie = self.with_cookie(ip, now, index, transmit);
            &with_cookie
        } else {
            transmit
        };
        let record = &mut self.connections[at(index)];
        let mut envelope = envelope(record, station);
        envelope.tos = transmit.ecn.in_tos(envelope.tos);
        let [a, b] = record.tuple.local_port().to_be_bytes();
        let [c, d] = record.tuple.remote_port().to_be_bytes();
        let (len, segment_size) = (transmit.len, transmit.segment_size);
        let payload = payload_of(record, index, transmit.offset, len);
        let emit = |out: &mut [u8]| {
            let header_len = transmit.header.emit(out);
            out[..4].copy_from_slice(&[a, b, c, d]);
            header_len
        };
        ip.link
            .send_tcp(&envelope, emit, payload, len, segment_size, egress)?;
        note_packets(record, segments(len, segment_size));
        Ok(())
    }

    /// Largest packet towards the peer of connection `index`.
    fn path_mtu(&mut self, ip: &mut Ip, now: Instant, index: usize, interface: InterfaceId) -> u16 {
        let record = &mut self.connections[index];
        let mtu = ip.link_mtu(interface, record.tuple.remote());
        if record.path_mtu == 0 {
            return mtu;
        }
        if record.path_mtu_until <= now {
            record.path_mtu = 0;
            return mtu;
        }
        record.path_mtu.min(mtu)
    }
}

/// The bytes of a send window that leave with a segment.
fn payload_of(record: &ConnectionRecord, index: u32, offset: u64, len: u32) -> Payload<'static> {
    if len == 0 {
        return Payload::None;
    }
    Payload::Window {
        connection: record.id(index),
        owner: record.owner,
        offset,
        len,
    }
}

/// Where a connection's packets go and what their IP headers say.
fn envelope(record: &ConnectionRecord, station: Station) -> Envelope {
    Envelope {
        interface: station.interface(),
        hardware: station.hardware(),
        source: record.tuple.local(),
        destination: record.tuple.remote(),
        ttl: record.ttl,
        tos: record.tos,
        identification: record.identification,
        flow_label: record.flow_label,
    }
}

/// A path that clears DF and fragments must not mix up our packets (RFC 6864 §5.3).
#[inline]
fn note_packets(record: &mut ConnectionRecord, packets: u32) {
    let packets = u16::try_from(packets).unwrap_or(1);
    record.identification = record.identification.wrapping_add(packets);
}
