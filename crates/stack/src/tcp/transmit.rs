//! Who sends next: a queue of connections that have something to send, each with a turn of a few
//! segments, so that one bulk transfer does not delay a thousand small answers.
//!
//! A connection stands in the queue at most once; one that waits for a neighbour leaves it until it is
//! woken. A segment that the interface refused is kept (one for the whole stack) and goes first next
//! time, so that a busy interface reorders nothing. A busy interface holds up the others.

use super::Refused;
use super::Tcp;
use crate::containers::intrusive::at;
use crate::containers::templates::Way;
use crate::egress::{Busy, Egress, Frame, PartialChecksum, Payload};
use crate::host::Host;
use crate::ip::Ip;
use crate::ip::path::Gate;
use crate::link::interface::InterfaceId;
use crate::link::output::{Envelope, PACKET_MAX, ip_header_len, packet_max, segments};
use crate::tables::{ConnectionRecord, Flags, Touched};
use tcp::{Instant, PlainStep, PlainTransmit, Transmit, TransmitLimits, UndoPart};
use wire::ethernet;

/// Segments of one turn.
const QUANTUM: usize = 4;
/// A TCP header without options, and one with all that fit.
const TCP_HEADER_MIN: u16 = 20;
const TCP_HEADER_MAX: u32 = 60;

/// A connection in its turn.
struct Sender {
    index: u32,
    /// Where it sends; `None`: that is lost.
    open: Option<(InterfaceId, ethernet::Address)>,
    /// As soon as they were asked for.
    limits: Option<TransmitLimits>,
}

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
            self.transmit_turns += 1;
            let quantum = QUANTUM.min(budget - sent);
            let turn = self.take_turn(ip, now, index, quantum, &mut sent, egress);
            let record = self.record(index);
            if record.tcp.socket_options().notsent_low_water > 0 {
                host.on_sent(record.owner, record.tcp.sent());
            }
            match turn {
                Turn::Over => self.end_of_sending(ip, now, index, host),
                Turn::More => ip.flows.senders.push(index),
                Turn::Busy => {
                    ip.flows.senders.push(index);
                    break;
                }
            }
        }
        // What was asked for on the way leaves with the same burst.
        ip.link.send_questions(egress);
        sent
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
        if let Gate::Open(interface, hardware) =
            ip.gate(now, at(index), &self.connections[at(index)].tuple)
        {
            let envelope = envelope(self.record(index), interface, hardware);
            let done = self.send_from(ip, now, index, &envelope, &refused.transmit, egress);
            if done.is_err() {
                self.refused = Some(refused);
                return done;
            }
            *sent += 1;
        }
        Ok(())
    }

    /// One turn of a connection, and its timers afterwards.
    fn take_turn(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        quantum: usize,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        if self.only_acknowledges(index) {
            return self.acknowledge(ip, now, index, sent, egress);
        }
        let turn = self.transmit(ip, now, index, quantum, sent, egress);
        self.arm(ip, index);
        turn
    }

    /// Whether all that connection `index` may send is an ACK with a plain header.
    #[inline]
    fn only_acknowledges(&self, index: u32) -> bool {
        #[cfg(test)]
        if self.sends_long {
            return false;
        }
        let record = self.record(index);
        let unusual = Flags::LOSE | Flags::DRAINING | Flags::RESETTING;
        record.flags() & (unusual | Flags::USED) == Flags::USED && record.tcp.only_acknowledges()
    }

    /// The turn of a connection that only acknowledges. That stops a timer, which stays in the wheel as any that stops.
    fn acknowledge(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        let row = at(index);
        if ip.flows.is_waiting(row) || !self.record(index).tcp.owes_ack() {
            return Turn::Over;
        }
        let open = match ip.gate(now, row, &self.connections[row].tuple) {
            Gate::Open(interface, hardware) => Some((interface, hardware)),
            Gate::Lost => None,
            Gate::Waiting => return Turn::Over,
        };
        let touched = Touched::Part(UndoPart::Ack);
        let plain = self.change_touched(index, touched, |record| record.tcp.take_ack(now));
        if let Err(Busy) = self.send_plain(ip, index, open, &plain, egress) {
            return self.refuse(index, plain.into());
        }
        *sent += 1;
        Turn::Over
    }

    #[inline]
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
            Gate::Open(interface, hardware) => Some((interface, hardware)),
            Gate::Lost => None,
            Gate::Waiting => return Turn::Over,
        };
        let mut sender = Sender {
            index,
            open,
            limits: None,
        };
        let is_plain = self.sends_plainly(index);
        for _ in 0..quantum {
            let step = if is_plain {
                self.next_plain(ip, now, &mut sender, egress)
            } else if self.record(index).tcp.may_transmit() {
                PlainStep::GoesLong
            } else {
                PlainStep::Nothing
            };
            match step {
                PlainStep::Leaves(plain) => {
                    let done = self.send_plain(ip, index, sender.open, &plain, egress);
                    if let Err(Busy) = done {
                        return self.refuse(index, plain.into());
                    }
                }
                PlainStep::Nothing => return Turn::Over,
                PlainStep::GoesLong => {
                    let limits = self.limits_of(ip, now, &mut sender, egress);
                    let transmit = self.fly(index, |record, blocks| {
                        record.tcp.poll_transmit(now, &limits, blocks)
                    });
                    let Some(transmit) = transmit else {
                        return Turn::Over;
                    };
                    let done = self.send_any(ip, now, &sender, &transmit, egress);
                    if let Err(Busy) = done {
                        return self.refuse(index, transmit);
                    }
                }
            }
            *sent += 1;
        }
        Turn::More
    }

    /// The interface takes nothing now: this goes first next time.
    #[cold]
    fn refuse(&mut self, index: u32, transmit: Transmit) -> Turn {
        self.refused = Some(Refused {
            connection: self.record(index).id(index),
            transmit,
        });
        Turn::Busy
    }

    /// Whether connection `index` sends plainly in this turn.
    #[inline]
    fn sends_plainly(&self, index: u32) -> bool {
        #[cfg(test)]
        if self.sends_long {
            return false;
        }
        self.record(index).tcp.sends_plainly()
    }

    /// What connection `sender.index`, which sends plainly, sends next.
    #[inline]
    fn next_plain(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        sender: &mut Sender,
        egress: &dyn Egress,
    ) -> PlainStep {
        let tcp = &mut self.connections[at(sender.index)].tcp;
        if tcp.rests() {
            return PlainStep::Nothing;
        }
        let has_data = tcp.has_data_to_send();
        let limits = has_data.then(|| self.limits_of(ip, now, sender, egress));
        self.fly(sender.index, |record, blocks| {
            record.tcp.poll_plain(now, limits.as_ref(), blocks)
        })
    }

    fn limits_of(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        sender: &mut Sender,
        egress: &dyn Egress,
    ) -> TransmitLimits {
        if let Some(limits) = sender.limits {
            return limits;
        }
        let interface = sender.open.map(|(interface, _)| interface);
        let limits = self.limits(ip, now, sender.index, interface, egress);
        *sender.limits.insert(limits)
    }

    #[inline]
    fn send_plain(
        &mut self,
        ip: &mut Ip,
        index: u32,
        open: Option<(InterfaceId, ethernet::Address)>,
        plain: &PlainTransmit,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let Some((interface, hardware)) = open else {
            ip.link.counters.ip_out_discards += 1;
            return Ok(());
        };
        let record = &mut self.connections[at(index)];
        let way = Way {
            connection: index,
            interface,
            hardware,
            generation: ip.link.interfaces.generation(),
        };
        let make = || {
            let envelope = envelope(record, interface, hardware);
            ip.link.template(&envelope)
        };
        let template = self.templates.of(&way, record, make);
        let start = u16::try_from(template.tcp_at()).expect("invariant: behind two headers");
        let ports = [record.tuple.local_port(), record.tuple.remote_port()];
        let frame = Frame {
            interface,
            headers: template.emit(record.identification, ports, &plain.header, at(plain.len)),
            payload: payload_of(record, index, plain.offset, plain.len),
            checksum: Some(PartialChecksum {
                start,
                offset: wire::tcp::CHECKSUM_OFFSET,
            }),
            segment_size: plain.segment_size,
        };
        egress.transmit(&frame)?;
        let packets = segments(plain.len, plain.segment_size);
        ip.link.count_segments(packets);
        note_packets(record, packets);
        Ok(())
    }

    fn send_any(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        sender: &Sender,
        transmit: &Transmit,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let Some((interface, hardware)) = sender.open else {
            ip.link.counters.ip_out_discards += 1;
            return Ok(());
        };
        let envelope = envelope(self.record(sender.index), interface, hardware);
        self.send_from(ip, now, sender.index, &envelope, transmit, egress)
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
    fn end_of_sending(&mut self, ip: &mut Ip, now: Instant, index: u32, host: &mut dyn Host) {
        let flags = self.record(index).flags();
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
        envelope: &Envelope,
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
        let envelope = &Envelope {
            tos: transmit.ecn.in_tos(envelope.tos),
            identification: record.identification,
            ..*envelope
        };
        let header = wire::tcp::Header {
            source_port: record.tuple.local_port(),
            destination_port: record.tuple.remote_port(),
            ..transmit.header
        };
        let (len, segment_size) = (transmit.len, transmit.segment_size);
        let payload = payload_of(record, index, transmit.offset, len);
        let emit = |out: &mut [u8]| header.emit(out);
        ip.link
            .send_tcp(envelope, emit, payload, len, segment_size, egress)?;
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
fn envelope(
    record: &ConnectionRecord,
    interface: InterfaceId,
    hardware: ethernet::Address,
) -> Envelope {
    Envelope {
        interface,
        hardware,
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
