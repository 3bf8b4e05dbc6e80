//! The connection itself: its plain data, its events, and the calls of its program.
//!
//! Each RFC concept has a file of its own that adds methods to [`Connection`]; this one holds the
//! type, the entry points for time and for the program's positions, and nothing about segments.

use crate::{
    chrono::Chrono,
    config::SocketOptions,
    congestion::{Congestion, ecn::EcnState},
    counters::Counters,
    events::{ConnectionError, Events},
    receive::{
        ranges::RangeSlot,
        receiver::{QUICK_ACKS, RECENT, Receiver},
    },
    recovery::{
        phase::Recovery, probe::Probe, prr::Prr, rack::Rack, rate::Rate, rtt::RttEstimator,
        undo::Undo,
    },
    send::{pmtud::PathSearch, sender::Sender},
    state::{FastOpen, State, TellsCookie},
    time::Instant,
    timers::Timers,
};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// How a program has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// As usual.
    #[default]
    Plain,
    /// More follows at once: a partial segment waits, 200 ms at most (`MSG_MORE`).
    More,
    /// The last byte is urgent (`MSG_OOB`).
    Urgent,
    /// A record ends with the last byte: no segment goes beyond it (`MSG_EOR`).
    EndOfRecord,
}

/// A program's position that cannot be: behind the last one, or beyond its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stream offset {given} is outside {lowest}..={highest}")]
pub struct OffsetError {
    /// What the program said.
    pub given: u64,
    /// Lowest offset that would have been valid.
    pub lowest: u64,
    /// Highest offset that would have been valid.
    pub highest: u64,
}

/// One TCP connection (the transmission control block of RFC 9293 §3.3.1).
///
/// Plain data: no pointer, no heap. The derived traits prove it.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Connection {
    pub(crate) state: State,
    /// Opened by a peer's SYN rather than by our program.
    pub(crate) passive: bool,
    /// The program has closed its side: nobody reads or hears events any more.
    pub(crate) orphan: bool,
    pub(crate) error_code: u8,
    /// A reset that kills the connection waits to be sent.
    pub(crate) reset_owed: bool,
    /// A reset in answer to an unacceptable ACK waits, with this sequence number (RFC 9293 §3.10.7.3).
    pub(crate) reset_reply_owed: bool,
    /// What ICMP said while it was not to be believed, for the timeout that may follow; 0: nothing.
    pub(crate) soft_error_code: u8,
    /// The peer has acknowledged our SYN-ACK and sent nothing yet (`TCP_DEFER_ACCEPT`).
    pub(crate) deferred: bool,
    /// The program has said that it will write more at once (`MSG_MORE`).
    pub(crate) more_follows: bool,
    pub(crate) fast_open: FastOpen,
    /// The first SYN-ACK carries a Fast Open cookie.
    pub(crate) tells_cookie: TellsCookie,
    /// The program wants nothing more that the peer sends.
    pub(crate) read_shut: bool,
    pub(crate) search: PathSearch,
    pub(crate) reset_reply_seq: u32,
    pub(crate) timestamp_offset: u32,
    pub(crate) snd: Sender,
    pub(crate) timers: Timers,
    pub(crate) rtt: RttEstimator,
    pub(crate) congestion: Congestion,
    pub(crate) rate: Rate,
    /// Before this time no paced segment leaves.
    pub(crate) departure: Instant,
    pub(crate) ecn: EcnState,
    pub(crate) rcv: Receiver,
    pub(crate) recovery: Recovery,
    pub(crate) rack: Rack,
    pub(crate) probe: Probe,
    pub(crate) prr: Prr,
    pub(crate) undo: Undo,
    pub(crate) options: SocketOptions,
    pub(crate) counters: Counters,
    pub(crate) chrono: Chrono,
}

/// The contract of `docs/` and of the `stack`: an idle connection costs less than 2 KiB.
const _: () = assert!(size_of::<Connection>() <= 1_664);

impl Default for Connection {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Connection {
    /// State (RFC 9293 §3.3.2).
    pub const fn state(&self) -> State {
        self.state
    }

    /// Why the connection failed, if it did.
    pub const fn error(&self) -> Option<ConnectionError> {
        ConnectionError::from_code(self.error_code)
    }

    /// Stream offset up to which the program may read.
    pub fn readable_end(&self) -> u64 {
        self.rcv.readable_end()
    }

    /// Stream offset up to which the peer has acknowledged: below it the send window is free.
    pub fn acknowledged(&self) -> u64 {
        self.snd.acknowledged()
    }

    /// Stream offset up to which the program has written.
    pub fn written(&self) -> u64 {
        self.snd.written_offset()
    }

    /// Stream offset up to which the program has consumed.
    pub fn consumed(&self) -> u64 {
        self.rcv.consumed_offset()
    }

    /// Bytes of the receive window that are offered to the peer, at most.
    pub fn offered_window(&self) -> u64 {
        self.receive_capacity()
    }

    /// Whether a reset is still to be sent.
    pub fn owes_reset(&self) -> bool {
        self.reset_owed
    }

    /// Whether nothing of the peer's lies in the receive window: all that came was consumed.
    pub fn is_drained(&self) -> bool {
        self.rcv.out_of_order.is_empty() && self.consumed() == self.readable_end()
    }

    /// Whether the peer's FIN was reached: after [`Self::readable_end`] there is nothing more.
    pub const fn fin_received(&self) -> bool {
        self.rcv.fin_reached
    }

    /// The block for ranges that the connection holds (see [`ReceiveWindow::claim_block`]); 0: none.
    pub const fn block(&self) -> u32 {
        self.rcv.out_of_order.block()
    }

    /// The connection is over, or its block is lost: names the block, which is the caller's again.
    pub fn leave_block(&mut self) -> u32 {
        let room = self.rcv.out_of_order.leave_block();
        if room > 0 {
            self.rcv.recent = [RangeSlot::default(); RECENT];
        }
        room
    }

    /// The block for what is in flight that the connection holds (see [`FlightPool`]); 0: none.
    pub const fn flight_block(&self) -> u32 {
        self.snd.sent.block()
    }

    /// The connection is over, or its block is lost: names the block, which is the caller's again.
    pub fn leave_flight_block(&mut self) -> u32 {
        self.snd.sent.leave_block()
    }

    /// Stream offset one past the peer's urgent byte, if it announced one (RFC 9293 §3.8.5).
    pub fn urgent_end(&self) -> Option<u64> {
        self.rcv.urgent_end()
    }

    /// Whether the program has closed its side.
    pub const fn is_orphan(&self) -> bool {
        self.orphan
    }

    /// Changes what the program may change.
    pub fn set_options(&mut self, now: Instant, options: &SocketOptions) -> Events {
        if options.congestion != self.options.congestion {
            let srtt_us = self.rtt.srtt_us().unwrap_or(0);
            self.congestion.choose(options.congestion, now, srtt_us);
        }
        let is_corked_anew = options.cork != self.options.cork;
        if is_corked_anew {
            self.push_what_may_leave();
        }
        self.options = *options;
        if is_corked_anew {
            self.push_what_may_leave();
        }
        if !options.cork {
            self.timers.cork = Instant::NEVER;
        }
        self.arm_keepalive(now);
        Events::TRANSMIT
    }

    /// The program has set `TCP_NODELAY`: what it has written leaves, even from under a cork (Linux
    /// `tcp_sock_set_nodelay`).
    pub fn push(&mut self) -> Events {
        self.snd.is_pushed = true;
        Events::TRANSMIT
    }

    /// Where a cork comes or goes (Linux `__tcp_sock_set_cork`): what would leave if somebody sent at once leaves, whatever the
    /// program does before anybody does.
    fn push_what_may_leave(&mut self) {
        if !self.is_held_back() && self.passes_nagle() {
            self.snd.is_pushed = true;
        }
    }

    /// What the program may change, as it stands.
    pub const fn socket_options(&self) -> &SocketOptions {
        &self.options
    }

    /// Stream offset up to which bytes have left at least once.
    pub fn sent(&self) -> u64 {
        self.snd.max.saturating_sub(1).min(self.written())
    }

    /// `TCP_QUICKACK`: in-order data is acknowledged at once for a while, or as if the program answered it.
    pub fn set_quick_ack(&mut self, on: bool) -> Events {
        self.rcv.quick_acks = if on { QUICK_ACKS } else { 0 };
        self.rcv.answers = !on;
        if on && self.timers.delayed_ack.is_set() {
            self.rcv.ack_now = true;
            return Events::TRANSMIT;
        }
        Events::empty()
    }

    /// As [`Self::handle_written_as`] in plain mode.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn handle_written(&mut self, now: Instant, end: u64) -> Result<Events, OffsetError> {
        self.handle_written_as(now, end, WriteMode::Plain)
    }

    /// The program has placed bytes in its send window up to stream offset `end`.
    ///
    /// # Errors
    /// `end` lies behind the last one, beyond the window, or after the program's own FIN.
    #[inline(always)]
    pub fn handle_written_as(
        &mut self,
        now: Instant,
        end: u64,
        mode: WriteMode,
    ) -> Result<Events, OffsetError> {
        let lowest = self.snd.written_offset();
        let highest = if self.snd.fin_requested {
            lowest
        } else {
            self.snd.acknowledged() + u64::from(self.snd.capacity)
        };
        if end < lowest || end > highest {
            return Err(OffsetError {
                given: end,
                lowest,
                highest,
            });
        }
        if end == lowest || !self.state.can_send() {
            return Ok(Events::empty());
        }
        self.restart_after_idle(now);
        if self.snd.acknowledged() == lowest {
            self.chrono.on_sending(now);
        }
        if self.snd.is_pushed && self.snd.max < self.snd.written {
            self.snd.end_record();
        }
        self.snd.written = end + 1;
        self.snd.is_pushed = false;
        self.more_follows = mode == WriteMode::More;
        self.snd.is_tail_unpushed = self.more_follows;
        match mode {
            WriteMode::Plain | WriteMode::More => {}
            WriteMode::EndOfRecord => self.snd.end_record(),
            // RFC 9293 §3.8.5 as hosts have it: the pointer names the byte after the urgent one.
            WriteMode::Urgent => self.snd.urgent = self.snd.written,
        }
        Ok(Events::TRANSMIT)
    }

    /// As [`Self::handle_consumed_below`] with no ceiling but the window's capacity.
    ///
    /// # Errors
    /// As there.
    pub fn handle_consumed(&mut self, now: Instant, end: u64) -> Result<Events, OffsetError> {
        self.handle_consumed_below(now, end, u32::MAX)
    }

    /// The program has consumed bytes of its receive window up to stream offset `end`. The window offered
    /// may grow for that, not above `ceiling` bytes.
    ///
    /// # Errors
    /// `end` lies behind the last one or beyond what was received.
    #[inline(always)]
    pub fn handle_consumed_below(
        &mut self,
        now: Instant,
        end: u64,
        ceiling: u32,
    ) -> Result<Events, OffsetError> {
        let (lowest, highest) = (self.rcv.consumed_offset(), self.rcv.readable_end());
        if end < lowest || end > highest {
            return Err(OffsetError {
                given: end,
                lowest,
                highest,
            });
        }
        if end == lowest {
            return Ok(Events::empty());
        }
        self.rcv.consumed = end + 1;
        self.tune_receive_window(now, ceiling);
        let mut events = Events::empty();
        events.set(
            Events::TRANSMIT,
            self.window_update_due() || self.ack_due_when_drained(),
        );
        Ok(events)
    }

    pub(crate) fn fail(&mut self, error: ConnectionError) -> Events {
        self.error_code = error.code();
        self.enter_closed();
        Events::ERROR | Events::CLOSED | Events::TRANSMIT
    }

    /// Nobody answers. What a router has said is the better reason (RFC 1122 §4.2.3.9).
    pub(crate) fn time_out(&mut self) -> Events {
        let reason = ConnectionError::from_code(self.soft_error_code);
        self.fail(reason.unwrap_or(ConnectionError::TimedOut))
    }

    pub(crate) fn enter_closed(&mut self) {
        self.state = State::Closed;
        self.timers = Timers::unset();
        self.rcv.ack_now = false;
        self.rcv.duplicate_acks_owed = 0;
    }
}
