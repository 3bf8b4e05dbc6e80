//! The table of connections in TIME-WAIT (RFC 9293 §3.6.1): a small row each, the oldest giving way
//! when it is full, and reuse by a new SYN (RFC 6191).
//!
//! What a segment means to such a connection is `tcp::TimeWait`.

use super::Tcp;
use super::segment::Segment;
use crate::containers::intrusive::{at, slot};
use crate::containers::timers::Timer;
use crate::egress::Egress;
use crate::ip::Ip;
use crate::ip::arrival::Arrival;
use crate::link::output::Envelope;
use crate::tables::Row as _;
use tcp::{Instant, SeqNumber, TimeWaitAction};
use wire::tcp::Header;

impl Tcp<'_> {
    /// The number of TIME-WAIT row `w` among those whom a segment may be for: behind the connections.
    pub(crate) fn time_wait_number(&self, w: u32) -> u32 {
        slot(self.connections.len()) + w
    }

    /// A free row, the oldest one if there is no other; `None` if there are none at all.
    pub(crate) fn take_time_wait_row(&mut self, ip: &mut Ip) -> Option<u32> {
        if let Some(w) = self.time_waits.free.pop() {
            return Some(w);
        }
        let used = &mut *self.time_waits.used;
        if at(*used) < self.time_waits.rows.len() {
            *used += 1;
            return Some(*used - 1);
        }
        let oldest = self.time_waits.order.first()?;
        ip.link.counters.time_wait_overflows += 1;
        self.forget_time_wait(ip, oldest);
        self.time_waits.free.pop()
    }

    /// Ends TIME-WAIT of row `w`.
    pub(crate) fn forget_time_wait(&mut self, ip: &mut Ip, w: u32) {
        let tuple = self.time_waits.rows[at(w)].tuple;
        self.time_waits.rows[at(w)].change(|row| row.used = 0);
        self.demux.remove(self.time_wait_number(w));
        ip.link.timers.set(Timer::TimeWait(w), None);
        self.time_waits.links.remove(&mut self.time_waits.order, w);
        self.ports.remove_user(tuple.local_port());
        self.note_end(ip, tuple);
        self.time_waits.free.push(w);
    }

    pub(crate) fn handle_time_wait_timer(&mut self, ip: &mut Ip, now: Instant, w: u32) {
        let row = &self.time_waits.rows[at(w)];
        if row.used == 0 {
            return;
        }
        let deadline = row.tcp.deadline();
        if deadline <= now {
            self.forget_time_wait(ip, w);
        } else {
            ip.link.timers.set(Timer::TimeWait(w), Some(deadline));
        }
    }

    /// A segment for a connection in TIME-WAIT. `Some`: it is a SYN that may open the four-tuple
    /// again, with an initial sequence number at least this far along.
    pub(crate) fn handle_in_time_wait(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        w: u32,
        arrival: &Arrival<'_>,
        segment: &Segment<'_>,
        egress: &mut dyn Egress,
    ) -> Option<SeqNumber> {
        let row = &mut self.time_waits.rows[at(w)];
        match row.change(|row| {
            row.tcp
                .handle_segment(now, segment.header, segment.payload.len())
        }) {
            TimeWaitAction::Ignore => {}
            // RFC 1337 §3 (F1) has resets ignored; who sent one may want to connect anew, and as Linux that is let by.
            TimeWaitAction::Reset if !ip.link.config.protects_time_wait => {
                self.forget_time_wait(ip, w);
            }
            TimeWaitAction::Reset => {}
            TimeWaitAction::Reopen { iss_at_least } => return Some(iss_at_least),
            TimeWaitAction::Reply(reply) => {
                let (source_port, destination_port) =
                    (row.tuple.local_port(), row.tuple.remote_port());
                let envelope = Envelope {
                    ttl: row.ttl,
                    tos: row.tos,
                    flow_label: row.flow_label,
                    ..arrival.reply()
                };
                let reply = Header {
                    source_port,
                    destination_port,
                    ..reply
                };
                // Lost if the interface is busy: the peer repeats its FIN.
                ip.link.send_control(&envelope, &reply, egress);
            }
        }
        None
    }
}
