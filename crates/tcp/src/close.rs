//! Closing: FIN both ways, half close, orphans, abort (RFC 9293 §3.6, §3.10.4, §3.10.5).

pub(crate) mod keepalive;
pub(crate) mod reset;
pub(crate) mod time_wait;

use crate::{
    config::NO_FIN_TIMEOUT,
    connection::Connection,
    events::{ConnectionError, Events},
    state::State,
    time::{Duration, Instant},
    timers::FIN_WAIT_2_LIMIT,
};

impl Connection {
    /// The program will send no more: a FIN follows its last byte. It may go on reading.
    pub fn shutdown_write(&mut self, _now: Instant) -> Events {
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            State::SynSent | State::SynReceived => {}
            _ => return Events::empty(),
        }
        self.snd.fin_requested = true;
        Events::TRANSMIT
    }

    /// The program will read no more. What arrives is taken all the same, until it has no more to send either.
    pub fn shutdown_read(&mut self) {
        self.read_shut = true;
    }

    /// The program has let go of the connection. What it wrote is still delivered; unread data
    /// turns the close into a reset (RFC 2525 §2.17).
    pub fn close(&mut self, now: Instant) -> Events {
        self.orphan = true;
        match self.state {
            State::Closed => Events::CLOSED,
            State::SynSent => {
                self.enter_closed();
                Events::CLOSED
            }
            _ if self.closes_with_reset() => self.reset_now(),
            _ => {
                let events = self.shutdown_write(now);
                events | self.limit_fin_wait_2(now)
            }
        }
    }

    /// Whether [`Self::close`] ends in a reset, because the program has left data unread.
    pub fn closes_with_reset(&self) -> bool {
        self.rcv.readable_end() > self.rcv.consumed_offset()
            && !matches!(self.state, State::Closed | State::SynSent | State::TimeWait)
    }

    /// Whether bytes or a FIN wait that were never sent, on a connection whose peer may take them.
    pub fn has_unsent(&self) -> bool {
        self.snd.end() > self.snd.max
            && matches!(
                self.state,
                State::Established
                    | State::CloseWait
                    | State::FinWait1
                    | State::Closing
                    | State::LastAck
            )
    }

    /// The program wants the connection gone at once: the peer gets a reset (RFC 9293 §3.10.5).
    pub fn abort(&mut self) -> Events {
        self.orphan = true;
        match self.state {
            State::Closed | State::SynSent | State::TimeWait => {
                self.enter_closed();
                Events::CLOSED
            }
            _ => {
                // The program was told that the connection stands, so the peer's is to be told too: a reset in SYN-RECEIVED
                // would take it from the listener's queue (RFC 9293 §3.10.7.4), where Linux has it for accept(2).
                let has_only_opened = self.snd.max == self.snd.una && self.rcv.nxt == 1;
                let owes_handshake_ack = !self.passive && self.rcv.ack_now && has_only_opened;
                let events = self.reset_now();
                self.rcv.ack_now = owes_handshake_ack;
                events
            }
        }
    }

    /// The handshake's listener is gone: nothing is told to the peer, as in Linux, and what it sends next is nobody's.
    pub fn forget(&mut self) -> Events {
        self.orphan = true;
        self.enter_closed();
        Events::CLOSED
    }

    pub(crate) fn reset_now(&mut self) -> Events {
        self.enter_closed();
        self.reset_owed = true;
        Events::CLOSED | Events::TRANSMIT
    }

    /// A validated ICMP error about this connection (RFC 5461, RFC 5927): fatal while connecting or
    /// when `hard`, otherwise remembered for the timeout that may follow.
    pub fn handle_unreachable(&mut self, error: ConnectionError, hard: bool) -> Events {
        match self.state {
            State::Closed | State::TimeWait => Events::empty(),
            State::SynSent | State::SynReceived => self.fail(error),
            _ if hard => self.fail(error),
            _ => {
                self.soft_error_code = error.code();
                Events::empty()
            }
        }
    }

    /// The peer's FIN is next in order (RFC 9293 §3.10.7.4 eighth check).
    pub(crate) fn reach_fin(&mut self, now: Instant) -> Events {
        if self.rcv.fin == 0 || self.rcv.nxt != self.rcv.fin || self.rcv.fin_reached {
            return Events::empty();
        }
        // Linux answers what comes while its buffer is full at once (`ICSK_ACK_NOMEM`), and has no delay before the first
        // data that comes after the SYN (`icsk_ack.ato`).
        let is_full = self.rcv.advertised_edge <= self.rcv.nxt;
        let has_delay = self.counters.data_segments_in > u32::from(self.rcv.syn_data_came);
        self.rcv.nxt += 1;
        self.rcv.since_due = 0;
        self.rcv.fin_reached = true;
        // Nothing is left to report (Linux `tcp_fin`).
        self.rcv.out_of_order.clear();
        self.rcv.duplicate_end = 0;
        let may_answer = matches!(self.state, State::SynReceived | State::Established);
        if may_answer && has_delay && !is_full {
            // After data the program is likely to answer, or to close too (Linux `tcp_fin`).
            self.delay_ack(now);
        } else {
            self.rcv.ack_now = true;
        }
        let events = Events::FIN | Events::READABLE | Events::TRANSMIT;
        match self.state {
            State::SynReceived | State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => return events | self.enter_time_wait(),
            _ => {}
        }
        events | self.limit_fin_wait_2(now)
    }

    /// Our FIN may just have been acknowledged.
    pub(crate) fn on_fin_acknowledged(&mut self, now: Instant) -> Events {
        if !self.snd.fin_acknowledged() {
            return Events::empty();
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.limit_fin_wait_2(now)
            }
            State::Closing => self.enter_time_wait(),
            State::LastAck => {
                self.enter_closed();
                Events::CLOSED
            }
            _ => Events::empty(),
        }
    }

    fn enter_time_wait(&mut self) -> Events {
        self.state = State::TimeWait;
        self.timers = crate::timers::Timers {
            last_received: self.timers.last_received,
            ..crate::timers::Timers::unset()
        };
        Events::TIME_WAIT
    }

    /// An orphan does not wait for ever in FIN-WAIT-2 (`TCP_LINGER2`).
    fn limit_fin_wait_2(&mut self, now: Instant) -> Events {
        if self.state != State::FinWait2 || !self.orphan || self.timers.linger.is_set() {
            return Events::empty();
        }
        self.timers.linger = match self.options.fin_timeout_s {
            NO_FIN_TIMEOUT => {
                // Linux with a negative TCP_LINGER2: what still comes is answered with a reset.
                self.enter_closed();
                return Events::CLOSED;
            }
            0 => now + FIN_WAIT_2_LIMIT,
            seconds => now + Duration::from_secs(u64::from(seconds)),
        };
        Events::empty()
    }
}
