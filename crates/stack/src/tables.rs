//! The plain data of the stack: everything that a restarted engine needs to go on.
//!
//! Rows hold no pointer and no derived index. A row's `sequence` is odd while the row is being
//! changed, so that whoever finds it after a crash knows that it cannot be trusted. A high-water mark
//! keeps rows that were never used untouched, so that they cost no memory. The memory itself belongs
//! to the caller (a mapped region, or [`HeapTables`]).

mod undo;

pub(crate) use undo::Touched;
pub use undo::UndoRow;

use crate::address::PackedAddress;
use crate::config::IpOptions;
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::at;
use crate::error::Error;
use crate::udp::record::UdpRecord;
use bitflags::bitflags;
use core::net::IpAddr;
use core::sync::atomic::{Ordering, compiler_fence};
use tcp::{Instant, RangeSlot, Run, TimeWait};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Layout version of the rows; a region of another version cannot be taken over.
pub const TABLES_VERSION: u32 = 8;
/// Rows for connections unless the caller wants others.
pub const CONNECTIONS_DEFAULT: usize = 65_536;
/// Rows for listeners unless the caller wants others.
pub const LISTENERS_DEFAULT: usize = 1_024;
/// Rows for TIME-WAIT unless the caller wants others.
pub const TIME_WAITS_DEFAULT: usize = 131_072;

/// Blocks for ranges: 32 MiB of addresses, of which only what was ever used costs memory.
pub const RANGE_ROOMS_DEFAULT: usize = 256;
/// Ranges in one block: every other segment of a window of 32 MiB is missing.
pub const RANGE_BLOCK_SLOTS: usize = 16_384;
/// Blocks for what is in flight: 48 MiB of addresses, of which only what was ever used costs memory.
pub const FLIGHT_ROOMS_DEFAULT: usize = 4_096;
/// Runs in one block. Each ACK in recovery looks at all that are in use: this bounds what it costs.
pub const FLIGHT_BLOCK_RUNS: usize = 1_024;

/// Names a connection; stale once the row was given to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// Row.
    pub index: u32,
    /// Which use of the row.
    pub generation: u32,
}

/// Names a listener; stale once the row was given to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    /// Row.
    pub index: u32,
    /// Which use of the row.
    pub generation: u32,
}

/// Whose listeners share an end: those of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReusePort {
    /// The user to whom the program's socket belongs.
    pub user: u32,
}

bitflags! {
    /// State of a row beyond the state of its TCP connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Flags: u16 {
        /// The row holds a connection.
        const USED = 1;
        /// A program holds it: the row stays until the program closes.
        const OWNED = 1 << 1;
        /// A listener's connection before the end of the handshake.
        const HALF_OPEN = 1 << 2;
        /// In a listener's accept queue.
        const READY = 1 << 3;
        /// Closed or in TIME-WAIT: no segment finds it any more.
        const DETACHED = 1 << 4;
        /// Detached, and its last segments have not left yet.
        const DRAINING = 1 << 5;
        /// What it sends next cannot be delivered and is to be lost (see `transmit.rs`).
        const LOSE = 1 << 6;
        /// A crash interrupted a change of the row: it must be given up.
        const INTERRUPTED = 1 << 7;
        /// Opened by a SYN with data, and its handshake is not over: its listener counts it.
        const FAST_OPEN = 1 << 8;
        /// To be reset once what the windows let out has been sent.
        const RESETTING = 1 << 9;
    }
}

/// How far each table was ever used.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TablesHeader {
    pub(crate) version: u32,
    pub(crate) connections_used: u32,
    pub(crate) listeners_used: u32,
    pub(crate) time_waits_used: u32,
    pub(crate) udp_used: u32,
    pub(crate) range_blocks_used: u32,
    pub(crate) flight_blocks_used: u32,
}

/// The block that a connection holds while more arrives beyond holes than its row can say
/// ([`tcp::ReceiveWindow::claim_block`]).
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct RangeBlock {
    pub(crate) slots: [RangeSlot; RANGE_BLOCK_SLOTS],
}

/// The block that a connection holds while it has more in flight than its row can say ([`tcp::FlightPool`]).
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct FlightBlock {
    pub(crate) runs: [Run; FLIGHT_BLOCK_RUNS],
}

/// A connection.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectionRecord {
    pub(crate) sequence: u32,
    pub(crate) generation: u32,
    pub(crate) owner: u64,
    /// When it entered its listener's queue; orders the queue.
    pub(crate) queued_at: Instant,
    /// When the lowered path MTU may be forgotten (RFC 1191 §6.3).
    pub(crate) path_mtu_until: Instant,
    pub(crate) tuple: FourTuple,
    pub(crate) listener_index: u32,
    pub(crate) listener_generation: u32,
    /// 0: the interface's.
    pub(crate) path_mtu: u16,
    /// Next IP identification (RFC 6864 §4.1 lets atomic datagrams have any).
    pub(crate) identification: u16,
    flags: u16,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    /// IPv6 flow label (RFC 6437 §3).
    pub(crate) flow_label: u32,
    pub(crate) tcp: tcp::Connection,
}

/// A listener.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ListenerRecord {
    pub(crate) sequence: u32,
    pub(crate) generation: u32,
    pub(crate) owner: u64,
    /// With whom it may share its end, if `reuse_port` is 1 (`SO_REUSEPORT`).
    pub(crate) sharer: u32,
    pub(crate) reuse_port: u32,
    pub(crate) address: PackedAddress,
    pub(crate) port: u16,
    /// 1: the row holds a listener.
    pub(crate) used: u8,
    /// 1: for all addresses of IPv6, and not those of IPv4 (`IPV6_V6ONLY`).
    pub(crate) v6_only: u8,
    pub(crate) backlog: u32,
    /// `TCP_FASTOPEN`.
    pub(crate) fast_open_max: u32,
    /// Keys of Fast Open cookies in use; 0: the stack's own.
    pub(crate) fast_open_key_count: u32,
    /// `TCP_FASTOPEN_KEY`, the newest first.
    pub(crate) fast_open_keys: [[u8; 16]; crate::config::FAST_OPEN_KEYS_MAX],
}

/// A connection in TIME-WAIT.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct TimeWaitRecord {
    pub(crate) sequence: u32,
    pub(crate) tuple: FourTuple,
    /// 1: the row holds a connection.
    pub(crate) used: u16,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) flow_label: u32,
    pub(crate) since: Instant,
    pub(crate) tcp: TimeWait,
}

/// A row that says when it is being changed.
pub(crate) trait Row {
    fn sequence_mut(&mut self) -> &mut u32;

    /// Changes the row; a crash in between leaves its sequence odd.
    #[inline(always)]
    fn change<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        *self.sequence_mut() |= 1;
        // Nobody reads concurrently; only the order of the writes in program order matters, for a
        // process that is killed between two of them.
        compiler_fence(Ordering::SeqCst);
        let result = change(self);
        compiler_fence(Ordering::SeqCst);
        let sequence = self.sequence_mut();
        *sequence = (*sequence | 1).wrapping_add(1);
        result
    }

    /// Whether the last change was not finished; forgets it.
    fn take_interrupted(&mut self) -> bool {
        let sequence = self.sequence_mut();
        let interrupted = *sequence % 2 == 1;
        *sequence = sequence.wrapping_add(u32::from(interrupted));
        interrupted
    }
}

impl Row for ConnectionRecord {
    fn sequence_mut(&mut self) -> &mut u32 {
        &mut self.sequence
    }
}

impl Row for ListenerRecord {
    fn sequence_mut(&mut self) -> &mut u32 {
        &mut self.sequence
    }
}

impl Row for TimeWaitRecord {
    fn sequence_mut(&mut self) -> &mut u32 {
        &mut self.sequence
    }
}

impl ListenerRecord {
    /// Where it listens.
    pub(crate) const fn address(&self) -> IpAddr {
        self.address.address()
    }

    /// With whom it may share its end.
    pub(crate) fn sharer(&self) -> Option<ReusePort> {
        (self.reuse_port == 1).then_some(ReusePort { user: self.sharer })
    }
}

impl ConnectionRecord {
    pub(crate) fn flags(&self) -> Flags {
        Flags::from_bits_truncate(self.flags)
    }

    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags().contains(flags)
    }

    pub(crate) fn set(&mut self, flags: Flags, on: bool) {
        let mut all = self.flags();
        all.set(flags, on);
        self.flags = all.bits();
    }

    /// One flag in the place of another, in one store: whoever goes on finds one of them.
    pub(crate) fn replace(&mut self, old: Flags, new: Flags) {
        self.flags = ((self.flags() - old) | new).bits();
    }

    pub(crate) const fn listener(&self) -> ListenerId {
        ListenerId {
            index: self.listener_index,
            generation: self.listener_generation,
        }
    }

    pub(crate) const fn id(&self, index: u32) -> ConnectionId {
        ConnectionId {
            index,
            generation: self.generation,
        }
    }

    pub(crate) const fn set_ip(&mut self, ip: IpOptions) {
        self.ttl = ip.ttl;
        // RFC 3168 §5: the two low bits belong to congestion notification.
        self.tos = ip.tos & !3;
    }
}

/// The memory that a stack works on, borrowed from the caller. Never used rows are all zero.
#[derive(Debug)]
pub struct Tables<'m> {
    /// How far the tables were ever used.
    pub header: &'m mut TablesHeader,
    /// Connections.
    pub connections: &'m mut [ConnectionRecord],
    /// Listeners.
    pub listeners: &'m mut [ListenerRecord],
    /// Connections in TIME-WAIT.
    pub time_waits: &'m mut [TimeWaitRecord],
    /// UDP sockets.
    pub udp: &'m mut [UdpRecord],
    /// Blocks for connections that receive beyond many holes.
    pub range_blocks: &'m mut [RangeBlock],
    /// Blocks for connections that send more than a little.
    pub flight_blocks: &'m mut [FlightBlock],
    /// Present where connections are to survive a crash that interrupts a change of theirs.
    pub undo: Option<&'m mut UndoRow>,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Connections that go on.
    pub connections: u32,
    /// Listeners that go on.
    pub listeners: u32,
    /// TIME-WAIT records that go on.
    pub time_waits: u32,
    /// UDP sockets that go on.
    pub udp_sockets: u32,
    /// Connections and listeners given up because a change of their row was interrupted.
    pub interrupted: u32,
}

impl Tables<'_> {
    /// Whether the sizes can be indexed and the high-water marks lie within.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let tables = [
            (self.header.connections_used, self.connections.len()),
            (self.header.listeners_used, self.listeners.len()),
            (self.header.time_waits_used, self.time_waits.len()),
            (self.header.udp_used, self.udp.len()),
            (self.header.range_blocks_used, self.range_blocks.len()),
            (self.header.flight_blocks_used, self.flight_blocks.len()),
        ];
        // All timers share one index space of 31 bits.
        let fits = tables.iter().map(|(_, len)| len).sum::<usize>() < 1 << 30;
        let within = tables
            .iter()
            .all(|(used, len)| usize::try_from(*used).is_ok_and(|used| used <= *len));
        if fits && within {
            Ok(())
        } else {
            Err(Error::InvalidArgument)
        }
    }
}

/// Tables in ordinary memory, for inline mode and tests.
#[derive(Debug)]
pub struct HeapTables {
    header: TablesHeader,
    connections: Vec<ConnectionRecord>,
    listeners: Vec<ListenerRecord>,
    time_waits: Vec<TimeWaitRecord>,
    udp: Vec<UdpRecord>,
    range_blocks: Vec<RangeBlock>,
    flight_blocks: Vec<FlightBlock>,
    undo: Option<Box<UndoRow>>,
}

impl HeapTables {
    /// Tables with so many rows; rows that are never used cost no memory.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(connections: usize, listeners: usize, time_waits: usize) -> Result<Self, Error> {
        Ok(Self {
            header: TablesHeader::default(),
            connections: ConnectionRecord::new_vec_zeroed(connections)
                .map_err(|_| Error::NoMemory)?,
            listeners: ListenerRecord::new_vec_zeroed(listeners).map_err(|_| Error::NoMemory)?,
            time_waits: TimeWaitRecord::new_vec_zeroed(time_waits).map_err(|_| Error::NoMemory)?,
            udp: Vec::new(),
            range_blocks: RangeBlock::new_vec_zeroed(connections.min(RANGE_ROOMS_DEFAULT))
                .map_err(|_| Error::NoMemory)?,
            flight_blocks: FlightBlock::new_vec_zeroed(connections.min(FLIGHT_ROOMS_DEFAULT))
                .map_err(|_| Error::NoMemory)?,
            undo: None,
        })
    }

    /// As many rows for UDP sockets, of which there are none otherwise.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn with_udp(mut self, sockets: usize) -> Result<Self, Error> {
        self.udp = UdpRecord::new_vec_zeroed(sockets).map_err(|_| Error::NoMemory)?;
        Ok(self)
    }

    /// Changes that are interrupted can be undone.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn with_undo(mut self) -> Result<Self, Error> {
        self.undo = Some(UndoRow::new_box_zeroed().map_err(|_| Error::NoMemory)?);
        Ok(self)
    }

    /// Borrows the tables for a stack.
    pub fn tables(&mut self) -> Tables<'_> {
        Tables {
            header: &mut self.header,
            connections: &mut self.connections,
            listeners: &mut self.listeners,
            time_waits: &mut self.time_waits,
            udp: &mut self.udp,
            range_blocks: &mut self.range_blocks,
            flight_blocks: &mut self.flight_blocks,
            undo: self.undo.as_deref_mut(),
        }
    }
}
