//! What an engine does with a header.

use core::sync::atomic::{Ordering, fence};

use super::{Flags, SocketHeader};
use crate::id::SocketId;
use crate::window::WindowSpan;

impl SocketHeader<'_> {
    /// Prepares the header for a new socket: everything 0, then the name.
    pub fn engine_reset(&self, id: SocketId) {
        let raw = self.raw;
        raw.id.store(0, Ordering::Release);
        for word in [
            &raw.flags,
            &raw.error,
            &raw.rx_events,
            &raw.tx_events,
            &raw.accept_ready,
            &raw.congestion,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &raw.send_size,
            &raw.receive_size,
            &raw.receive_lock,
            &raw.error_taken,
            &raw.consumed_in_place,
            &raw.send_limit,
            &raw.stamps,
            &raw.signals_due,
            &raw.signals_sent,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [&raw.send_lock, &raw.tx_wanted, &raw.shut, &raw.marks] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &raw.received_end,
            &raw.acknowledged,
            &raw.send_offset,
            &raw.receive_offset,
            &raw.failures_end,
            &raw.failures_taken,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &raw.urgent_end,
            &raw.urgent_taken,
            &raw.sent,
            &raw.arrived_at_ns,
            &raw.accept_since_us,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        raw.receive_place.store(0, Ordering::Relaxed);
        self.reset_byte_channels();
        self.reset_calls();
        for word in [
            &raw.families_ports,
            &raw.consumed,
            &raw.written,
            &raw.send_base,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in raw.local.iter().chain(&raw.remote) {
            word.store(0, Ordering::Relaxed);
        }
        raw.id.store(id.to_bits(), Ordering::Release);
    }

    /// The socket is gone: whoever still looks sees that the header is nobody's.
    pub fn engine_retire(&self) {
        self.raw.id.store(0, Ordering::Release);
    }

    /// Publishes the state; the last step of any change that a program shall notice as a whole.
    pub fn engine_set_flags(&self, flags: Flags) {
        self.raw.flags.store(flags.bits(), Ordering::Release);
    }

    /// Sets the errno of the failure; set `Flags::ERROR` after it.
    pub fn engine_set_error(&self, errno: u16) {
        self.raw.error.store(u32::from(errno), Ordering::Release);
    }

    /// Bytes up to this stream offset lie in the receive window.
    pub fn engine_set_received_end(&self, end: u64) {
        self.raw.received_end.store(end, Ordering::Release);
    }

    /// Bytes up to this stream offset of the send window are free again.
    pub fn engine_set_acknowledged(&self, end: u64) {
        self.raw.acknowledged.store(end, Ordering::Release);
    }

    /// The peer's last urgent byte ends at this stream offset; before `Flags::URGENT` and its event.
    pub fn engine_set_urgent_end(&self, end: u64) {
        self.raw.urgent_end.store(end, Ordering::Release);
    }

    /// Bytes up to this stream offset have left at least once.
    pub fn engine_set_sent(&self, end: u64) {
        self.raw.sent.store(end, Ordering::Release);
    }

    /// When the latest data arrived, in nanoseconds since 1970; before its end is told.
    pub fn engine_set_arrived_at(&self, at_ns: u64) {
        self.raw.arrived_at_ns.store(at_ns, Ordering::Release);
    }

    /// So many times of sending wait to be fetched ([`crate::Query::Stamp`]).
    pub fn engine_set_stamps(&self, count: u32) {
        self.raw.stamps.store(count, Ordering::Release);
    }

    /// Counts what made the socket readable (the engine keeps the count).
    pub fn engine_set_rx_events(&self, count: u32) {
        self.raw.rx_events.store(count, Ordering::Release);
    }

    /// Counts what made the socket writable (the engine keeps the count).
    pub fn engine_set_tx_events(&self, count: u32) {
        self.raw.tx_events.store(count, Ordering::Release);
    }

    /// Number of connections that wait to be accepted, and since when the oldest of them does by the engines' clock.
    pub fn engine_set_accept_ready(&self, count: u32, since_us: u64) {
        self.raw.accept_since_us.store(since_us, Ordering::Relaxed);
        self.raw.accept_ready.store(count, Ordering::Release);
    }

    /// The congestion control, a number of [`crate::figures::congestion`].
    pub fn engine_set_congestion(&self, code: u8) {
        self.raw
            .congestion
            .store(u32::from(code) + 1, Ordering::Release);
    }

    /// Places the windows; before `Flags::CONNECTED`.
    pub fn engine_set_windows(&self, send: WindowSpan, receive: WindowSpan) {
        self.raw.send_offset.store(send.offset, Ordering::Relaxed);
        self.raw
            .receive_offset
            .store(receive.offset, Ordering::Relaxed);
        self.raw.send_size.store(send.size, Ordering::Relaxed);
        self.raw.receive_size.store(receive.size, Ordering::Release);
    }

    /// After `engine_set_acknowledged` (or CONNECTED) made the socket writable: whether a program waits
    /// for that. If so count a tx event and push `Completion::Event`.
    #[must_use]
    pub fn engine_take_tx_wanted(&self) -> bool {
        fence(Ordering::SeqCst);
        self.raw.tx_wanted.load(Ordering::Relaxed) != 0
            && self.raw.tx_wanted.swap(0, Ordering::AcqRel) != 0
    }

    /// Frees what a dead session still held.
    pub fn engine_release_dead(&self, session: u32) {
        self.receive_lock().release_dead(session);
        self.send_lock().release_dead(session);
    }
}
