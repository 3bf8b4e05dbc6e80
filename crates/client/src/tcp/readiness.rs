//! Where a TCP socket stands and what poll(2) and epoll(7) say about it, computed from its header: `tcp_poll` of Linux.

use core::sync::atomic::Ordering;

use hostif::header::{SHUT_READ, SHUT_WRITE};
use hostif::window::is_writable;
use hostif::{Flags, SocketHeader, SocketId, SocketOption};
use rustix::io::Errno;

use crate::engines::session::Session;
use crate::readiness::{Readiness, State};
use crate::socket::{Socket, SocketCore};
use crate::tcp::socket::TcpSocket;
use crate::wait::Awaited;

impl Awaited for TcpSocket {
    fn visit_parts(&self, visit: &mut dyn FnMut(&Session, SocketId)) {
        self.parts()
            .for_each(|part| visit(part.session(), part.id()));
    }

    fn hears_past_engine(&self) -> bool {
        self.meet_byte_channels().is_some()
    }

    fn request_news(&self) {
        self.await_byte_channel();
    }
}

impl Socket for TcpSocket {
    fn core(&self) -> &SocketCore {
        self
    }

    fn state(&self) -> State {
        if self.is_reset() {
            return if self.is_served_elsewhere() {
                State::Listening
            } else {
                State::Closed
            };
        }
        self.told_state()
    }

    fn await_signals(&self) {
        self.parts().for_each(|part| part.core().await_signals());
    }

    fn readiness(&self) -> Readiness {
        if let Some(usual) = self.usual_readiness() {
            return usual;
        }
        let header = self.header();
        let state = self.state();
        let mut ready = Readiness::empty();
        ready.set(Readiness::ERR, self.has_error());
        match state {
            State::Listening => {
                ready.set(Readiness::IN, self.has_connection());
                return ready;
            }
            State::Connecting => {
                // As Linux: a sending call would be taken at once.
                ready.set(Readiness::OUT, self.syn_capacity() > 0);
                return ready;
            }
            State::Idle => return ready | Readiness::OUT | Readiness::HUP,
            State::Connected | State::Closed => {}
        }
        let closed = state == State::Closed;
        let receive_over = closed || self.is_receive_over();
        let send_over = closed || header.shut() & SHUT_WRITE != 0;
        ready.set(Readiness::IN, receive_over || self.is_readable());
        ready.set(Readiness::RDHUP, receive_over);
        ready.set(Readiness::HUP, receive_over && send_over);
        ready.set(Readiness::OUT, send_over || self.is_writable());
        ready.set(
            Readiness::PRI,
            self.urgent().is_some_and(|byte| byte.is_readable),
        );
        ready
    }

    fn has_error(&self) -> bool {
        self.header().error_pending() || self.is_reset_unreported() && !self.is_served_elsewhere()
    }

    fn take_error(&self) -> Option<Errno> {
        self.take_error_by(
            |header| header.program_take_error(),
            || self.is_served_elsewhere(),
        )
    }

    fn rx_events(&self) -> u32 {
        // Who asks for this wants to hear of the next bytes too.
        self.await_byte_channel();
        self.parts()
            .fold(0, |sum, part| sum.wrapping_add(part.header().rx_events()))
    }

    fn mark(&self, marks: u32, on: bool) {
        for part in self.all_parts() {
            part.header().program_mark(marks, on);
        }
    }

    fn close(&self) {
        if !self.set_closed() {
            return;
        }
        // The first core ends the kernel's part of a listener, which hears for the others otherwise.
        let listens = self.header().flags().contains(Flags::LISTENING);
        if self.release(listens) && listens {
            self.session().on_listener_closed();
        }
        self.close_per_core();
    }
}

impl TcpSocket {
    /// What the processes that hold the socket have noted for each other.
    #[must_use]
    pub fn marks(&self) -> u32 {
        self.parts().next().unwrap_or(self).header().marks()
    }

    /// Name of the congestion control that the engine uses.
    #[must_use]
    pub fn congestion(&self) -> Option<&'static str> {
        self.header().congestion()
    }

    /// Whether the connection stands, and nothing but bytes can come to who reads: no end, no error, nothing urgent.
    #[must_use]
    pub fn is_flowing(&self) -> bool {
        self.is_told_to_flow() && !self.is_reset()
    }

    /// Whether bytes may come by the engine, and nothing else, as that tells, which may be gone.
    #[inline(always)]
    pub fn awaits_bytes(&self) -> bool {
        self.is_told_to_flow() && self.byte_channels().is_none()
    }

    /// [`Self::is_flowing`], as the engine tells it, which may be gone.
    #[inline]
    pub(crate) fn is_told_to_flow(&self) -> bool {
        const LOOKED_AT: Flags = Flags::CONNECTED
            .union(Flags::LISTENING)
            .union(Flags::FIN)
            .union(Flags::ERROR)
            .union(Flags::HUP)
            .union(Flags::URGENT)
            .union(Flags::CLOSED);
        let header = self.header();
        header.flags().intersection(LOOKED_AT) == Flags::CONNECTED && header.shut() & SHUT_READ == 0
    }

    /// Of a connection that stands in both directions, has no byte channel, has never seen urgent data, and may be written to:
    /// nearly always. `None`: it is not so, or may not be.
    #[inline]
    fn usual_readiness(&self) -> Option<Readiness> {
        let (send, _) = self.known_spans()?;
        let header = self.header();
        let used = header.written().saturating_sub(header.acknowledged());
        let is_usual = self.is_flowing()
            && header.shut() == 0
            && header.urgent_end() == 0
            && self.byte_channels().is_none()
            && self.unsent_limit.load(Ordering::Relaxed) == 0
            && is_writable(header.send_limit(send.size), used);
        let mut ready = Readiness::OUT;
        ready.set(Readiness::IN, header.received_end() > header.consumed());
        is_usual.then_some(ready)
    }

    /// The program has looked for bytes in vain: now and then that is a reason to look after the engine.
    pub fn on_nothing_received(&self) {
        self.on_idle_call();
    }

    /// Whether the peer's FIN has arrived. Bytes before it may still be there.
    #[must_use]
    pub fn fin_received(&self) -> bool {
        self.header().flags().contains(Flags::FIN)
    }

    /// Whether the peer has acknowledged our FIN, or never will.
    #[must_use]
    pub fn fin_is_done(&self) -> bool {
        self.is_reset() || self.header().flags().contains(Flags::FIN_DONE)
    }

    /// Whether nothing more will come: FIN, or shut down for reading.
    pub(crate) fn is_receive_over(&self) -> bool {
        self.fin_received() || self.header().shut() & SHUT_READ != 0
    }

    /// Whether enough of the send window is free (half of what is used, as in Linux). If not, the engine
    /// is asked to tell when it is.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let Some((send, _)) = self.spans() else {
            return false;
        };
        let header = self.header();
        let enough = |header: &SocketHeader<'_>| {
            let written = header.written();
            let has_capacity = is_writable(
                header.send_limit(send.size),
                written.saturating_sub(header.acknowledged()),
            );
            // Who waits is woken when half of it has left (Linux `tcp_stream_memory_free`).
            has_capacity
                && self
                    .unsent(header)
                    .is_none_or(|(unsent, limit)| unsent.saturating_mul(2) < limit)
        };
        if let Some(is_writable) = self.is_byte_channel_writable() {
            return is_writable;
        }
        if enough(&header) {
            return true;
        }
        header.program_want_tx();
        enough(&header)
    }

    /// Bytes that were written and have not left, and TCP_NOTSENT_LOWAT; `None`: nothing bounds them.
    pub(crate) fn unsent(&self, header: &SocketHeader<'_>) -> Option<(u64, u64)> {
        let limit = self.unsent_limit.load(Ordering::Relaxed);
        let unsent = header.written().saturating_sub(header.sent());
        (limit > 0).then_some((unsent, u64::from(limit)))
    }

    /// Whether a connection waits to be accepted.
    #[must_use]
    pub fn has_connection(&self) -> bool {
        let waits = |part: &TcpSocket| !part.is_reset() && part.header().accept_ready() > 0;
        self.parts().any(waits)
    }

    /// Sets TCP_NOTSENT_LOWAT, in the engine and for this process. 0: no limit.
    pub fn set_unsent_limit(&self, bytes: u32) -> Result<(), Errno> {
        let (option, value) = (SocketOption::NotSentLowWater, u64::from(bytes));
        if self.header().written() > 0 {
            // How far it has sent is told from then on only.
            self.call(self.option_command(option, value))?;
        } else {
            self.set_option(option, value)?;
        }
        self.unsent_limit.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes that a read would get, also beyond the urgent byte; that one itself is not counted at the
    /// mark unless the program wants it in line (`tcp_poll`).
    #[must_use]
    #[inline]
    pub fn readable_bytes(&self) -> usize {
        let header = self.header();
        let consumed = header.consumed();
        let there = header.received_end().saturating_sub(consumed);
        let skipped = there > 0 && self.is_skipped(consumed);
        let there = there - u64::from(skipped) + self.byte_channel_bytes();
        usize::try_from(there).unwrap_or(usize::MAX)
    }

    /// Bytes that wait to be read (FIONREAD): up to the urgent byte, if that lies ahead (`tcp_inq`).
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        let header = self.header();
        let (consumed, end) = (header.consumed(), header.received_end());
        let end = match self.urgent() {
            Some(byte) if byte.position < end && !self.urgent_in_line() => byte.position,
            _ => end,
        };
        let there = end.saturating_sub(consumed) + self.byte_channel_bytes();
        usize::try_from(there).unwrap_or(usize::MAX)
    }

    /// Bytes that fit into the send window now; 0 while there is none.
    #[must_use]
    pub fn send_capacity_bytes(&self) -> usize {
        if let Some((capacity, used)) = self.byte_channel_use() {
            return usize::try_from(capacity.saturating_sub(used)).unwrap_or(0);
        }
        let limit = usize::try_from(self.send_window_bytes()).unwrap_or(0);
        limit.saturating_sub(self.unacknowledged_bytes())
    }

    /// Bytes of the send window that may be filled; 0 while there is none.
    #[must_use]
    pub fn send_window_bytes(&self) -> u32 {
        self.spans()
            .map_or(0, |(send, _)| self.header().send_limit(send.size))
    }

    /// Bytes of the receive window that the peer may fill; 0 while there is none.
    #[must_use]
    pub fn receive_window_bytes(&self) -> u32 {
        self.spans().map_or(0, |(_, receive)| {
            self.header().receive_place(0, receive.size).1
        })
    }

    /// When the latest data arrived, in nanoseconds since 1970; 0: the engine was not asked to say.
    #[must_use]
    pub fn arrived_at_ns(&self) -> u64 {
        self.header().arrived_at_ns()
    }

    /// Bytes that the peer has acknowledged since the connection stands.
    #[must_use]
    pub fn acknowledged_bytes(&self) -> u64 {
        let header = self.header();
        header.acknowledged() + header.byte_channel_written()
    }

    /// Bytes that have arrived since the connection stands.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        let header = self.header();
        header.received_end() + header.byte_channel_consumed() + self.byte_channel_bytes()
    }
}
