//! A socket's header: 320 bytes that engine and programs share, one cache line per writer and purpose.
//!
//! Lines 0, 1 and 4 are the engine's: it writes them and never reads them back. Lines 2 and 3 are the
//! program's (but for `receive_place`, beside which the program reads), shared by every process that holds
//! the socket, so positions are absolute stream offsets.
//! The engine takes positions only from descriptors; the three words it reads here, `tx_wanted`, `marks` and
//! `failures_taken`, can spoil nothing but the writer's own notifications and error queue.
//!
//! Every store that announces something is a release and every load an acquire. Waking a sleeper is
//! done by `sync::doorbell`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::id::SocketId;
use crate::sync::lock::RegionLock;
use crate::window::WindowSpan;

mod addresses;
mod byte_channels;
mod calls;
mod datagram;
mod engine;
mod place;
mod signals;

pub use byte_channels::{LaneState, SlotName};
pub use calls::Calls;

bitflags::bitflags! {
    /// The state of a socket as the engine publishes it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u32 {
        /// A connect is under way.
        const CONNECTING = 1;
        /// The connection stands (stays set when it ends). Windows and addresses are valid.
        const CONNECTED = 1 << 1;
        /// The socket listens.
        const LISTENING = 1 << 2;
        /// The peer's FIN has arrived: `received_end` is final.
        const FIN = 1 << 3;
        /// The connection or the connect failed: see `error`.
        const ERROR = 1 << 4;
        /// Nothing goes in either direction any more.
        const HUP = 1 << 5;
        /// Urgent data waits.
        const URGENT = 1 << 6;
        /// The connection is over and acknowledged (TIME-WAIT or closed).
        const CLOSED = 1 << 7;
        /// A datagram socket that is bound: its windows hold records. With CONNECTED it has a peer.
        const DATAGRAM = 1 << 8;
        /// The peer has acknowledged our FIN, or never will.
        const FIN_DONE = 1 << 9;
        /// The peer may wait for the ACK of what can be read: the engine wants to hear when all of it has been (RFC 9293
        /// §3.7.4; Linux `tcp_cleanup_rbuf`). It may stand when the ACK has left.
        const ACK_WAITS = 1 << 10;
    }
}

/// What the program side has shut down, in its own line.
pub const SHUT_READ: u32 = 1;
/// See [`SHUT_READ`].
pub const SHUT_WRITE: u32 = 2;
/// Among the marks: a thread waits for data, so that nobody has to be sent a signal for it (`SOCKWQ_ASYNC_WAITDATA` of
/// Linux). The only one of them that the engine reads.
pub const AWAITS_DATA: u32 = 1 << 1;

/// The header as it lies in memory.
#[repr(C, align(64))]
pub(crate) struct RawHeader {
    // Line 0: engine, changing.
    flags: AtomicU32,
    error: AtomicU32,
    received_end: AtomicU64,
    acknowledged: AtomicU64,
    rx_events: AtomicU32,
    tx_events: AtomicU32,
    accept_ready: AtomicU32,
    /// Congestion control, plus one; 0: not said.
    congestion: AtomicU32,
    id: AtomicU64,
    urgent_end: AtomicU64,
    failures_end: AtomicU64,
    // Line 1: engine, set before CONNECTED.
    send_offset: AtomicU64,
    receive_offset: AtomicU64,
    send_size: AtomicU32,
    receive_size: AtomicU32,
    local: [AtomicU64; 2],
    remote: [AtomicU64; 2],
    families_ports: AtomicU64,
    // Line 2: program, receiving.
    receive_lock: AtomicU32,
    error_taken: AtomicU32,
    consumed: AtomicU64,
    urgent_taken: AtomicU64,
    /// The engine's, seldom: where the receive window begins (low half) and how much of it is offered.
    receive_place: AtomicU64,
    /// Consumed position of the incoming byte channel.
    byte_channel_consumed: AtomicU64,
    consumed_in_place: AtomicU32,
    padding_2: u32,
    /// Calls that took bytes.
    reads: AtomicU64,
    failures_taken: AtomicU64,
    // Line 3: program, sending.
    send_lock: AtomicU32,
    tx_wanted: AtomicU32,
    written: AtomicU64,
    shut: AtomicU32,
    /// What the holders of a socket have to agree on; the engine reads [`AWAITS_DATA`] only.
    marks: AtomicU32,
    /// Written position of the outgoing byte channel.
    byte_channel_written: AtomicU64,
    /// Consumed position of the outgoing byte channel at the last look.
    byte_channel_freed: AtomicU64,
    byte_channel_state: AtomicU32,
    padding_3: u32,
    /// Calls that gave bytes.
    writes: AtomicU64,
    /// Stream offset of the byte at the beginning of the send window.
    send_base: AtomicU64,
    // Line 4: engine, for those who ask.
    sent: AtomicU64,
    send_limit: AtomicU32,
    /// Times of sending that the program has not fetched.
    stamps: AtomicU32,
    arrived_at_ns: AtomicU64,
    /// The slot of a connection to a neighbour; 0: none.
    slot: AtomicU64,
    /// Of a listener: when the connection came that waits longest to be accepted, microseconds.
    accept_since_us: AtomicU64,
    /// Polls in which something happened for which a signal may be due, and for how many of them signals were sent.
    signals_due: AtomicU32,
    signals_sent: AtomicU32,
    padding_5: [u64; 2],
}

const _: () = assert!(core::mem::size_of::<RawHeader>() == 320);
const _: () = assert!(core::mem::offset_of!(RawHeader, send_offset) == 64);
const _: () = assert!(core::mem::offset_of!(RawHeader, receive_lock) == 128);
const _: () = assert!(core::mem::offset_of!(RawHeader, send_lock) == 192);
const _: () = assert!(core::mem::offset_of!(RawHeader, sent) == 256);

/// A view of one socket's header.
#[derive(Clone, Copy)]
pub struct SocketHeader<'a> {
    raw: &'a RawHeader,
}

/// What the engine does with a header.
impl<'a> SocketHeader<'a> {
    pub(crate) fn new(raw: &'a RawHeader) -> SocketHeader<'a> {
        SocketHeader { raw }
    }

    pub(crate) fn raw(self) -> &'a RawHeader {
        self.raw
    }
}

/// What a program does with a header.
impl<'a> SocketHeader<'a> {
    /// Whether the header still belongs to `id`.
    #[must_use]
    pub fn is_of(&self, id: SocketId) -> bool {
        self.raw.id.load(Ordering::Acquire) == id.to_bits()
    }

    /// The socket's state.
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags::from_bits_truncate(self.raw.flags.load(Ordering::Acquire))
    }

    /// The errno behind `Flags::ERROR`, taken or not.
    #[must_use]
    pub fn error(&self) -> u32 {
        self.raw.error.load(Ordering::Acquire)
    }

    /// Name of the congestion control, once the engine has said it.
    #[must_use]
    pub fn congestion(&self) -> Option<&'static str> {
        let code = self.raw.congestion.load(Ordering::Acquire).checked_sub(1)?;
        crate::figures::congestion::name(u8::try_from(code).ok()?)
    }

    /// Whether the error is still to be reported (SO_ERROR reports it once).
    #[must_use]
    pub fn error_pending(&self) -> bool {
        self.flags().contains(Flags::ERROR) && self.raw.error_taken.load(Ordering::Acquire) == 0
    }

    /// Takes the pending error; only one of several callers gets it.
    #[must_use]
    pub fn program_take_error(&self) -> Option<u32> {
        (self.flags().contains(Flags::ERROR) && self.raw.error_taken.swap(1, Ordering::AcqRel) == 0)
            .then(|| self.error())
    }

    /// Makes the next error count again, before another connect.
    pub fn program_forget_error(&self) {
        self.raw.error_taken.store(0, Ordering::Release);
    }

    /// Bytes up to this stream offset have arrived.
    #[must_use]
    pub fn received_end(&self) -> u64 {
        self.raw.received_end.load(Ordering::Acquire)
    }

    /// Bytes up to this stream offset have been acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.raw.acknowledged.load(Ordering::Acquire)
    }

    /// Stream offset after the peer's last urgent byte; 0: there was none.
    #[must_use]
    pub fn urgent_end(&self) -> u64 {
        self.raw.urgent_end.load(Ordering::Acquire)
    }

    /// `urgent_end` of the urgent byte that was received out of band last.
    #[must_use]
    pub fn urgent_taken(&self) -> u64 {
        self.raw.urgent_taken.load(Ordering::Acquire)
    }

    /// Notes that the urgent byte before `end` was received out of band.
    pub fn program_set_urgent_taken(&self, end: u64) {
        self.raw.urgent_taken.store(end, Ordering::Release);
    }

    /// When the latest data arrived, in nanoseconds since 1970; 0: nobody asked.
    #[must_use]
    pub fn arrived_at_ns(&self) -> u64 {
        self.raw.arrived_at_ns.load(Ordering::Acquire)
    }

    /// Bytes up to this stream offset have left at least once.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.raw.sent.load(Ordering::Acquire)
    }

    /// How often the socket became readable.
    #[must_use]
    pub fn rx_events(&self) -> u32 {
        self.raw.rx_events.load(Ordering::Acquire)
    }

    /// How often the socket became writable.
    #[must_use]
    pub fn tx_events(&self) -> u32 {
        self.raw.tx_events.load(Ordering::Acquire)
    }

    /// Connections that wait to be accepted.
    #[must_use]
    pub fn accept_ready(&self) -> u32 {
        self.raw.accept_ready.load(Ordering::Acquire)
    }

    /// Since when the oldest of them waits, microseconds of the engines' clock. It may be that of another one where
    /// connections come and go meanwhile.
    pub fn accept_since_us(&self) -> u64 {
        self.raw.accept_since_us.load(Ordering::Relaxed)
    }

    /// The send and the receive window; to be checked with `Region::window`.
    #[must_use]
    pub fn windows(&self) -> (WindowSpan, WindowSpan) {
        let size = self.raw.receive_size.load(Ordering::Acquire);
        let receive = WindowSpan {
            offset: self.raw.receive_offset.load(Ordering::Relaxed),
            size,
        };
        let send = WindowSpan {
            offset: self.raw.send_offset.load(Ordering::Relaxed),
            size: self.raw.send_size.load(Ordering::Relaxed),
        };
        (send, receive)
    }

    /// The lock of the receive side.
    #[must_use]
    pub fn receive_lock(&self) -> RegionLock<'a> {
        RegionLock::new(&self.raw.receive_lock)
    }

    /// The lock of the send side.
    #[must_use]
    pub fn send_lock(&self) -> RegionLock<'a> {
        RegionLock::new(&self.raw.send_lock)
    }

    /// Bytes up to this stream offset have been consumed.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.raw.consumed.load(Ordering::Acquire)
    }

    /// Holder of the receive lock: moves the consumed position.
    pub fn program_set_consumed(&self, end: u64) {
        self.raw.consumed.store(end, Ordering::Release);
    }

    /// One who copies what was received: moves the consumed position, if it is still where the copy began. Otherwise somebody else
    /// has taken the lock over, and the copy is worth nothing.
    #[must_use]
    pub fn program_advance_consumed(&self, start: u64, end: u64) -> bool {
        self.raw
            .consumed
            .compare_exchange(start, end, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Holder of the receive lock: whether what was consumed last was read in the window, without a copy.
    pub fn program_set_consumed_in_place(&self, in_place: bool) {
        let (word, value) = (&self.raw.consumed_in_place, u32::from(in_place));
        if word.load(Ordering::Relaxed) != value {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// See [`Self::program_set_consumed_in_place`].
    #[must_use]
    pub fn is_consumed_in_place(&self) -> bool {
        self.raw.consumed_in_place.load(Ordering::Relaxed) != 0
    }

    /// Bytes up to this stream offset have been written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.raw.written.load(Ordering::Acquire)
    }

    /// Holder of the send lock: moves the written position.
    pub fn program_set_written(&self, end: u64) {
        self.raw.written.store(end, Ordering::Release);
    }

    /// Asks the engine for an event when space gets free. Look at `acknowledged` again after this.
    pub fn program_want_tx(&self) {
        self.raw.tx_wanted.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// How many times of sending wait.
    #[must_use]
    pub fn stamps(&self) -> u32 {
        self.raw.stamps.load(Ordering::Acquire)
    }

    /// What has been shut down: [`SHUT_READ`], [`SHUT_WRITE`].
    #[must_use]
    pub fn shut(&self) -> u32 {
        self.raw.shut.load(Ordering::Acquire)
    }

    /// What the holders have noted for each other.
    #[must_use]
    pub fn marks(&self) -> u32 {
        self.raw.marks.load(Ordering::Acquire)
    }

    /// Notes something, or takes it back.
    pub fn program_mark(&self, marks: u32, on: bool) {
        if on {
            self.raw.marks.fetch_or(marks, Ordering::AcqRel);
        } else {
            self.raw.marks.fetch_and(!marks, Ordering::AcqRel);
        }
    }

    /// Adds to what has been shut down and returns what was before.
    pub fn program_shut(&self, how: u32) -> u32 {
        self.raw.shut.fetch_or(how, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests;
