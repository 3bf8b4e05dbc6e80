//! Datagram sockets: their positions as plain data, and what arrives for them: records into the receive ring, failures
//! into the error queue. Where there is no free space the newest is lost and counted, as Linux does beyond `SO_RCVBUF`.
//!
//! The engine keeps all positions itself; a program's word is compared with them and never taken for one.

use super::Sockets;
use super::rows::{Kind, at};
use super::shares::Table;
use crate::errno;
use crate::stamps::clock_ns;
use crate::state::rows::Fenced;
use core::net::SocketAddr;
use hostif::datagram::{Failure, RECORD_BYTES, Received, Rings, charged_bytes, record_bytes};
use hostif::window::WindowSpan;
use hostif::{DatagramOptions, MembershipChange, Window, stamp};
use rustix::io::Errno;
use stack::{Datagram, DatagramError, InterfaceId, Membership, UdpId};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// `SO_EE_ORIGIN_LOCAL`, `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6` of linux/errqueue.h.
const ORIGIN_LOCAL: u8 = 1;
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;
/// ENOMSG, which is what an entry says that is no error.
const NO_MESSAGE: u16 = 42;

/// Bytes of either ring at least: small enough to stay in the processor's caches, which a ring passes through as a
/// whole, and enough for the longest datagram.
const RING_BYTES: u32 = 256 * 1024;
/// What a receive queue may be charged unless the program asks for something else (Linux `net.core.rmem_default`).
const RECEIVE_BYTES: u32 = 212_992;
/// The least that a program can ask for (Linux `SOCK_MIN_RCVBUF`).
const MIN_RECEIVE_BYTES: u32 = 2_304;

/// The positions of one socket; the row of the same number as the stack's.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct DatagramRow {
    /// Odd while the row is being changed.
    pub sequence: u32,
    /// Errors told so far.
    pub errors: u16,
    pub reserved: u16,
    /// Records up to here have been placed in the receive ring.
    pub received_end: u64,
    /// Records up to here had been consumed by the program when that was last looked up.
    pub consumed: u64,
    /// Records up to here have been written into the send ring by the program.
    pub written: u64,
    /// Records up to here have been sent.
    pub sent: u64,
    /// Records up to here have been placed in the error queue.
    pub failures_end: u64,
    /// Bytes of the record at `sent` that have been sent already: it is cut into several datagrams.
    pub partial: u32,
    /// Datagrams lost because the receive ring was full.
    pub drops: u32,
    /// Size of the send ring.
    pub send_bytes: u32,
    /// What the receive ring may be charged: at most its size.
    pub receive_bytes: u32,
    /// What was asked of the rings when they were made.
    pub rings: [u32; 2],
}

impl Fenced for DatagramRow {
    fn sequence_mut(&mut self) -> &mut u32 {
        &mut self.sequence
    }
}

const _: () = assert!(size_of::<DatagramRow>() == 72);

impl Sockets {
    /// A socket's membership has changed so.
    pub(crate) fn note_membership(
        &mut self,
        socket: u32,
        interface: InterfaceId,
        change: MembershipChange,
        about: &Membership,
    ) {
        let named = (socket, self.row(socket).generation);
        self.memberships.note(named, interface, change, about);
    }

    /// Whether that change of a socket's membership has happened.
    pub(crate) fn has_changed_membership(
        &self,
        socket: u32,
        interface: InterfaceId,
        change: MembershipChange,
        about: &Membership,
    ) -> bool {
        let named = (socket, self.row(socket).generation);
        self.memberships
            .has_changed(named, interface, change, about)
    }

    /// What is to be done again for a socket after a restart, in this order.
    pub(crate) fn memberships_of(&self, socket: u32) -> Vec<(MembershipChange, Membership)> {
        self.memberships.of(socket)
    }
}

impl Sockets {
    /// What the program chooses for a datagram socket.
    pub(crate) fn set_datagram_options(&mut self, row: u32, options: &DatagramOptions) {
        self.datagram_options[at(row)] = options.encode();
        self.companion(row).datagram_options = *options;
    }

    /// The positions of a socket.
    pub fn datagram(&self, id: UdpId) -> &DatagramRow {
        &self.datagrams[at(id.index)]
    }

    /// Changes them; see [`Self::change`].
    pub fn change_datagram<R>(
        &mut self,
        id: UdpId,
        change: impl FnOnce(&mut DatagramRow) -> R,
    ) -> R {
        let row = &mut self.datagrams[at(id.index)];
        self.undo_datagram.change(id.index, row, change)
    }

    /// Gives a socket that was just bound its rings; `None`: the region has no windows left.
    pub(crate) fn give_rings(
        &mut self,
        row: u32,
        id: UdpId,
        options: &DatagramOptions,
    ) -> Option<()> {
        let (region_number, header) = (self.row(row).region, self.row(row).header);
        if !self.regions.has_capacity(region_number, Table::Datagrams) {
            return None;
        }
        let pair = self.regions.take_pair(region_number)?;
        let region = self.regions.find(region_number)?;
        let (send, receive) = region.window_pair(pair)?;
        let asked = [options.send_bytes, options.receive_bytes].map(|bytes| bytes.max(RING_BYTES));
        let rings = Rings::new(send, receive, asked[0], asked[1]);
        region
            .socket_header(header)?
            .engine_set_windows(rings.send, rings.receive);
        self.regions.take(region_number, Table::Datagrams);
        // Before the socket's row names them: whoever goes on finds both or neither.
        self.change_datagram(id, |row| {
            *row = DatagramRow {
                sequence: row.sequence,
                send_bytes: rings.send.size,
                receive_bytes: receive_limit(options, &rings),
                rings: asked,
                ..DatagramRow::new_zeroed()
            };
        });
        self.change(row, |record| {
            record.pair_plus_one = pair + 1;
            record.kind = Kind::Datagram;
            record.object_index = id.index;
            record.object_generation = id.generation;
        });
        self.companion(row).rings = Some(rings);
        Some(())
    }
}

impl Sockets {
    /// Places a datagram; `false`: the ring is full.
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
        let size = u64::from(rings.receive.size);
        let charge = charged_bytes(len).min(size);
        let has_capacity = |used: u64| {
            // As Linux: what finds an empty queue is taken whatever it is charged.
            let is_full = used > 0 && used + charge > u64::from(positions.receive_bytes);
            !is_full && used + charge.max(record_bytes(len)) <= size
        };
        if !has_capacity(positions.received_end - positions.consumed)
            && !has_capacity(self.look_up_waiting(row, id))
        {
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
        self.expect_signal(row);
        self.with_header(row, |header| header.engine_set_received_end(end));
        self.count_rx(row);
        true
    }

    /// Looks up how far the program has consumed: it says so in the socket's header and sends no note. How many bytes of records wait. A position
    /// that cannot be, and an older one, change nothing.
    fn look_up_waiting(&mut self, row: u32, id: UdpId) -> u64 {
        let DatagramRow {
            received_end,
            consumed,
            ..
        } = *self.datagram(id);
        let told = self.with_header(row, |header| header.consumed());
        let Some(told) = told.filter(|told| (consumed + 1..=received_end).contains(told)) else {
            return received_end - consumed;
        };
        self.change_datagram(id, |row| row.consumed = told);
        received_end - told
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

    /// Makes the next call on the socket fail with this error.
    pub(crate) fn tell_error(&mut self, row: u32, id: UdpId, errno: u16) {
        let count = self.change_datagram(id, |row| {
            row.errors = row.errors.wrapping_add(1);
            row.errors
        });
        self.expect_signal(row);
        self.with_header(row, |header| header.engine_set_soft_error(errno, count));
        self.count_rx(row);
        self.count_tx(row);
    }

    /// Tells of a datagram that is longer than what goes to its destination (`ip_local_error` of Linux).
    pub(crate) fn queue_too_long(
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
    pub(crate) fn queue_stamps(
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
            self.expect_signal(row);
            self.with_header(row, |header| header.engine_set_failures_end(end));
        }
    }

    fn datagram_of(&self, owner: u64) -> Option<(u32, UdpId)> {
        let row = self.row_of(owner)?;
        Some((row, self.row(row).datagram()?))
    }

    /// Acts on a window of a socket.
    pub(crate) fn with_window<R>(
        &self,
        row: u32,
        span: WindowSpan,
        act: impl FnOnce(Window<'_>) -> R,
    ) -> Option<R> {
        let region = self.regions.find(self.row(row).region)?;
        region.window(span).map(act)
    }
}

/// What a receive ring may be charged.
pub(crate) fn receive_limit(options: &DatagramOptions, rings: &Rings) -> u32 {
    let asked = match options.receive_bytes {
        0 => RECEIVE_BYTES,
        bytes => bytes.max(MIN_RECEIVE_BYTES),
    };
    asked.min(rings.receive.size)
}
