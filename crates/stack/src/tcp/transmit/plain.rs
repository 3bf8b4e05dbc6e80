//! The turn of a connection that sends plainly: new data and ACKs behind headers from a template, several segments by one
//! decision. A property test (`tests/tcp/prediction.rs`) holds it against the long way, `transmit.rs`.

use super::super::lifecycle::hasten;
use super::{Tcp, Turn, UNUSUAL, envelope, note_packets, payload_of};
use crate::containers::intrusive::at;
use crate::containers::templates::Way;
use crate::egress::{Busy, Egress, Frame, PartialChecksum};
use crate::ip::Ip;
use crate::ip::path::Gate;
use crate::link::output::segments;
use crate::tables::{ConnectionRecord, Flags, Touched};
use tcp::{Instant, PlainTransmit, TransmitLimits, UndoPart};
use wire::template::Template;

impl Tcp<'_> {
    /// Whether connection `index` sends plainly in this turn.
    #[inline(always)]
    pub(super) fn sends_plainly(&self, index: u32) -> bool {
        #[cfg(test)]
        if self.sends_long {
            return false;
        }
        let record = self.record(index);
        record.flags() & (UNUSUAL | Flags::USED) == Flags::USED && record.tcp.sends_plainly()
    }

    /// The turn of connection `index`, which sends plainly.
    #[inline(always)]
    pub(super) fn take_plain_turn(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        quantum: usize,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        let row = at(index);
        if ip.flows.is_waiting(row) {
            return Turn::Over;
        }
        let way = match ip.gate(now, row, &self.connections[row].tuple) {
            Gate::Open(station) => Way {
                connection: index,
                station,
                generation: ip.link.interfaces.generation(),
            },
            Gate::Lost => return self.transmit_lost(ip, now, index, quantum, sent, egress),
            Gate::Waiting => return Turn::Over,
        };
        let tcp = &mut self.connections[row].tcp;
        if !tcp.has_unsent_data() {
            if tcp.rests() {
                return Turn::Over;
            }
            return self.acknowledge(ip, now, &way, sent, egress);
        }
        let turn = self.send_data(ip, now, &way, quantum, sent, egress);
        hasten(ip, index, self.record(index).tcp.flight_deadline());
        turn
    }

    /// The turn of a connection that only acknowledges. That stops a timer, which stays in the wheel as any that stops.
    #[inline(never)]
    fn acknowledge(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        way: &Way,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        let touched = Touched::Part(UndoPart::Ack);
        let plain = self.change_touched(way.connection, touched, |record| record.tcp.take_ack(now));
        let (record, template) = self.template(ip, way);
        template.begin(&plain.header);
        match send_piece(ip, way, record, template, &plain, egress) {
            Ok(()) => {
                *sent += 1;
                Turn::Over
            }
            Err(Busy) => self.refuse(way.connection, plain.into(), 0),
        }
    }

    /// What was written leaves: nearly always one piece, and nothing is left.
    #[inline(never)]
    fn send_data(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        way: &Way,
        quantum: usize,
        sent: &mut usize,
        egress: &mut dyn Egress,
    ) -> Turn {
        let index = way.connection;
        let limits = self.limits(ip, now, index, Some(way.station.interface()), egress);
        let plain = self.fly(index, |record, blocks| {
            record.tcp.poll_plain(now, &limits, quantum, blocks)
        });
        // Where it lies: moved it would be copied.
        let Some(mut plain) = plain else {
            return Turn::Over;
        };
        let (record, template) = self.template(ip, way);
        template.begin(&plain.header);
        if let Err(Busy) = send_piece(ip, way, record, template, &plain, egress) {
            return self.refuse(index, plain.into(), plain.piece);
        }
        let end = *sent + quantum;
        *sent += 1;
        if !plain.advance() && self.connections[at(index)].tcp.rests() {
            return Turn::Over;
        }
        self.send_rest(ip, now, way, (&limits, end), (plain, sent), egress)
    }

    /// What follows the first piece in a turn: the rest of `plain`, and more, until `end` segments have left.
    #[inline(never)]
    fn send_rest(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        way: &Way,
        (limits, end): (&TransmitLimits, usize),
        (mut plain, sent): (PlainTransmit, &mut usize),
        egress: &mut dyn Egress,
    ) -> Turn {
        let index = way.connection;
        let mut has_more = plain.len > 0;
        loop {
            let (record, template) = self.template(ip, way);
            template.begin(&plain.header);
            while has_more {
                let done = send_piece(ip, way, record, template, &plain, egress);
                if let Err(Busy) = done {
                    return self.refuse(index, plain.into(), plain.piece);
                }
                *sent += 1;
                has_more = plain.advance();
            }
            if self.connections[at(index)].tcp.rests() {
                return Turn::Over;
            }
            if *sent >= end {
                return Turn::More;
            }
            let left = end - *sent;
            let more = self.fly(index, |record, blocks| {
                record.tcp.poll_plain(now, limits, left, blocks)
            });
            let Some(more) = more else {
                return Turn::Over;
            };
            (plain, has_more) = (more, true);
        }
    }

    /// The row of a connection and the headers of what it sends.
    #[inline(always)]
    fn template(&mut self, ip: &Ip, way: &Way) -> (&mut ConnectionRecord, &mut Template) {
        let record = &mut self.connections[at(way.connection)];
        let template = self.templates.of(way, record, || make(ip, record, way));
        (record, template)
    }
}

/// Sends what is handed to the device first.
#[inline(always)]
fn send_piece(
    ip: &mut Ip,
    way: &Way,
    record: &mut ConnectionRecord,
    template: &mut Template,
    plain: &PlainTransmit,
    egress: &mut dyn Egress,
) -> Result<(), Busy> {
    let (len, is_pushed) = plain.first_piece();
    let frame = Frame {
        interface: way.station.interface(),
        checksum: Some(PartialChecksum {
            start: template.tcp_at(),
            offset: wire::tcp::CHECKSUM_OFFSET,
        }),
        headers: template.emit(record.identification, (plain.header.seq, is_pushed), len),
        payload: payload_of(record, way.connection, plain.offset, len),
        segment_size: plain.segment_size,
    };
    egress.transmit(&frame)?;
    let packets = segments(len, plain.segment_size);
    ip.link.count_segments(packets);
    note_packets(record, packets);
    Ok(())
}

#[cold]
#[inline(never)]
fn make(ip: &Ip, record: &ConnectionRecord, way: &Way) -> Template {
    let envelope = envelope(record, way.station);
    let ports = [record.tuple.local_port(), record.tuple.remote_port()];
    ip.link.template(&envelope, ports)
}
