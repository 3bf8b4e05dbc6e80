//! What arrives for datagram sockets: records into the receive ring, failures into the error queue.
//! Where there is no room the newest is lost and counted, as Linux does beyond `SO_RCVBUF`.

use crate::errno;
use crate::sockets::Sockets;
use crate::stamps::clock_ns;
use core::net::SocketAddr;
use hostif::Window;
use hostif::datagram::{Failure, RECORD_BYTES, Received, charged_bytes, record_bytes};
use hostif::stamp;
use hostif::window::WindowSpan;
use rustix::io::Errno;
use stack::{Datagram, DatagramError, UdpId};

/// `SO_EE_ORIGIN_LOCAL`, `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6` of linux/errqueue.h.
const ORIGIN_LOCAL: u8 = 1;
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;
/// ENOMSG, which is what an entry says that is no error.
const NO_MESSAGE: u16 = 42;

impl Sockets {
    /// Places a datagram; `false`: there is no room.
    pub(crate) fn place_datagram(&mut self, owner: u64, datagram: &Datagram<'_>) -> bool {
        let Some((row, id)) = self.datagram_of(owner) else {
            return false;
        };
        let Some(rings) = self.companion(row).rings else {
            return false;
        };
        let Ok(len) = u32::try_from(datagram.payload.len()) else {
            return false;
        };
        let positions = *self.datagram(id);
        let used = positions.received_end - positions.consumed;
        let size = u64::from(rings.receive.size);
        let charge = charged_bytes(len).min(size);
        // As Linux: what finds an empty queue is taken whatever it is charged.
        let is_full = used > 0 && used + charge > u64::from(positions.receive_bytes);
        if is_full || used + charge.max(record_bytes(len)) > size {
            self.change_datagram(id, |row| row.drops = row.drops.wrapping_add(1));
            return false;
        }
        let record = Received {
            len,
            room: u32::try_from(charge).unwrap_or(u32::MAX),
            segment_bytes: datagram.segment_bytes,
            source: datagram.source,
            destination: datagram.destination.ip(),
            interface: datagram.scope_id,
            tos: datagram.tos,
            ttl: datagram.ttl,
            timestamp_ns: self.wall_clock_ns(),
        };
        let start = positions.received_end;
        let placed = self.with_window(row, rings.receive, |window| {
            window.copy_in(start, &record.encode());
            window.copy_in(start + RECORD_BYTES as u64, datagram.payload);
        });
        if placed.is_none() {
            return false;
        }
        let end = start + charge;
        self.change_datagram(id, |row| row.received_end = end);
        self.with_header(row, |header| header.engine_set_received_end(end));
        self.count_rx(row);
        true
    }

    /// Tells a socket what became of a datagram that it sent.
    pub(crate) fn place_failure(&mut self, owner: u64, error: &DatagramError<'_>) {
        let Some((row, id)) = self.datagram_of(owner) else {
            return;
        };
        let errno = errno::code(errno::of_datagram(error.kind));
        if error.is_queued {
            let (kind, code) = error.icmp;
            let failure = Failure {
                len: u32::try_from(error.payload.len()).unwrap_or(0),
                errno,
                origin: match error.destination {
                    SocketAddr::V4(_) => ORIGIN_ICMP,
                    SocketAddr::V6(_) => ORIGIN_ICMP6,
                },
                kind,
                code,
                info: u32::from(error.mtu),
                data: 0,
                destination: error.destination,
                offender: error.offender,
                timestamp_ns: self.wall_clock_ns(),
            };
            self.queue_failure(row, id, &failure, error.payload);
        }
        if error.is_hard {
            self.tell_error(row, id, errno);
        } else {
            self.count_rx(row);
        }
    }

    /// The next call on the socket fails with this.
    pub(crate) fn tell_error(&mut self, row: u32, id: UdpId, errno: u16) {
        let count = self.change_datagram(id, |row| {
            row.errors = row.errors.wrapping_add(1);
            row.errors
        });
        self.with_header(row, |header| header.engine_set_soft_error(errno, count));
        self.count_rx(row);
        self.count_tx(row);
    }

    /// Tells of a datagram that is longer than what goes to its destination (`ip_local_error` of Linux).
    pub(super) fn queue_too_long(
        &mut self,
        row: u32,
        id: UdpId,
        destination: SocketAddr,
        mtu: u16,
    ) {
        let failure = Failure {
            len: 0,
            errno: errno::code(Errno::MSGSIZE),
            origin: ORIGIN_LOCAL,
            kind: 0,
            code: 0,
            info: u32::from(mtu),
            data: 0,
            destination,
            offender: None,
            timestamp_ns: self.wall_clock_ns(),
        };
        self.queue_failure(row, id, &failure, &[]);
        self.count_rx(row);
    }

    /// When a datagram left that `record` describes; `bytes` are the head of its frame, if the program wants to see it.
    pub(super) fn queue_stamps(
        &mut self,
        row: u32,
        id: UdpId,
        (stamps, key): (u8, u32),
        destination: SocketAddr,
        bytes: &[u8],
    ) {
        for (want, what) in [
            (stamp::SCHEDULED, stamp::TOLD_SCHEDULED),
            (stamp::SENT, stamp::TOLD_SENT),
        ] {
            if stamps & want == 0 {
                continue;
            }
            let failure = Failure {
                len: u32::try_from(bytes.len()).unwrap_or(0),
                errno: NO_MESSAGE,
                origin: stamp::ORIGIN,
                kind: 0,
                code: 0,
                info: what.into(),
                data: key,
                destination,
                offender: None,
                timestamp_ns: clock_ns(),
            };
            self.queue_failure(row, id, &failure, bytes);
        }
        self.count_rx(row);
    }

    fn queue_failure(&mut self, row: u32, id: UdpId, failure: &Failure, payload: &[u8]) {
        let Some(rings) = self.companion(row).rings else {
            return;
        };
        let start = self.datagram(id).failures_end;
        let bytes = record_bytes(failure.len);
        // The program's word about what it has taken is good for nothing but its own queue.
        let taken = self.with_header(row, |header| header.engine_failures_taken());
        let used = start.wrapping_sub(taken.unwrap_or(0));
        if used.saturating_add(bytes) > u64::from(rings.errors.size) {
            return;
        }
        let placed = self.with_window(row, rings.errors, |window| {
            window.copy_in(start, &failure.encode());
            window.copy_in(start + RECORD_BYTES as u64, payload);
        });
        if placed.is_some() {
            let end = start + bytes;
            self.change_datagram(id, |row| row.failures_end = end);
            self.with_header(row, |header| header.engine_set_failures_end(end));
        }
    }

    fn datagram_of(&self, owner: u64) -> Option<(u32, UdpId)> {
        let row = self.row_of(owner)?;
        Some((row, self.row(row).datagram()?))
    }

    /// Acts on a window of a socket.
    pub(super) fn with_window<R>(
        &self,
        row: u32,
        span: WindowSpan,
        act: impl FnOnce(Window<'_>) -> R,
    ) -> Option<R> {
        let region = self.regions.find(self.row(row).region)?;
        region.window(span).map(act)
    }
}
