//! TIME-WAIT as a compact record (RFC 9293 §3.6.1, RFC 6191, RFC 1337).

use crate::{
    connection::Connection,
    seq::SeqNumber,
    time::{Duration, Instant},
};
use wire::tcp::{Flags, Header, Options, Timestamps};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// Twice the maximum segment lifetime, with Linux's 30 s for it (see docs/rfc.md).
pub const TIME_WAIT_LENGTH: Duration = Duration::from_secs(60);
/// How old TIME-WAIT must be before this end may open the four-tuple again: Linux's `tcp_tw_reuse_delay`.
const REUSE_DELAY: Duration = Duration::from_secs(1);
/// ACKs for stray segments, at most one in this time: two such ends must not answer each other for ever.
const REPLY_INTERVAL: Duration = Duration::from_ms(500);

/// What must be remembered of a closed connection.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct TimeWait {
    deadline: Instant,
    reply_after: Instant,
    snd_nxt: SeqNumber,
    rcv_nxt: SeqNumber,
    ts_recent: u32,
    timestamp_offset: u32,
    window: u16,
    timestamps: bool,
    reserved: [u8; 5],
}

const _: () = assert!(size_of::<TimeWait>() <= 64);

/// What a segment means to a connection in TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWaitAction {
    /// Nothing.
    Ignore,
    /// The peer has ended the connection: a reset of exactly the number that is expected.
    Reset,
    /// Send this header (ports 0) back.
    Reply(Header),
    /// A new SYN may open the four-tuple again; its ISS must be at least this far along.
    Reopen {
        /// Lowest acceptable initial sequence number.
        iss_at_least: SeqNumber,
    },
}

impl Connection {
    /// The compact record of a connection that has reached TIME-WAIT.
    pub fn time_wait(&mut self, now: Instant) -> TimeWait {
        TimeWait {
            deadline: now + TIME_WAIT_LENGTH,
            reply_after: Instant::ZERO,
            snd_nxt: SeqNumber(self.snd.space.wire(self.snd.max)),
            rcv_nxt: SeqNumber(self.rcv.space.wire(self.rcv.nxt)),
            ts_recent: self.rcv.ts_recent,
            timestamp_offset: self.timestamp_offset,
            window: self.take_window_field(),
            timestamps: self.rcv.timestamps,
            reserved: [0; 5],
        }
    }
}

impl TimeWait {
    /// When the record may be forgotten.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether this end may open the four-tuple again, and how far along its ISS must then be at least: with
    /// timestamps the segments of before are recognised (RFC 6191 §2, RFC 7323 §5), whoever sends the SYN.
    pub fn reopen(&self, now: Instant) -> Option<SeqNumber> {
        let is_old = now + TIME_WAIT_LENGTH >= self.deadline + REUSE_DELAY;
        (self.timestamps && is_old).then(|| self.iss_at_least())
    }

    /// Beyond every window that the peer may have had.
    fn iss_at_least(&self) -> SeqNumber {
        self.snd_nxt.advance(65_537)
    }

    /// Takes in a segment for the four-tuple.
    pub fn handle_segment(
        &mut self,
        now: Instant,
        header: &Header,
        payload_len: usize,
    ) -> TimeWaitAction {
        if header.flags.contains(Flags::RST) {
            // RFC 5961 §3.2: no other number counts.
            return if header.seq == self.rcv_nxt.0 {
                TimeWaitAction::Reset
            } else {
                TimeWaitAction::Ignore
            };
        }
        if header.flags.contains(Flags::SYN)
            && !header.flags.contains(Flags::ACK)
            && self.may_reopen(header)
        {
            return TimeWaitAction::Reopen {
                iss_at_least: self.iss_at_least(),
            };
        }
        if self.repeats_fin(header, payload_len) {
            // RFC 9293 §3.10.7.4: acknowledge the repeated FIN and begin again.
            self.deadline = now + TIME_WAIT_LENGTH;
        } else if payload_len == 0
            && !header.flags.intersects(Flags::SYN | Flags::FIN)
            && header.seq == self.rcv_nxt.0
        {
            return TimeWaitAction::Ignore;
        }
        if now < self.reply_after {
            return TimeWaitAction::Ignore;
        }
        self.reply_after = now + REPLY_INTERVAL;
        TimeWaitAction::Reply(self.acknowledgement(now))
    }

    /// Whether the peer's FIN comes once more, with as much before it as the peer likes to repeat. One elsewhere
    /// is of somebody who does not know the numbers.
    fn repeats_fin(&self, header: &Header, payload_len: usize) -> bool {
        let fin_at = u32::try_from(payload_len).map(|len| header.seq.wrapping_add(len));
        header.flags.contains(Flags::FIN)
            && !header.flags.contains(Flags::SYN)
            && fin_at.is_ok_and(|fin_at| fin_at.wrapping_add(1) == self.rcv_nxt.0)
    }

    /// RFC 6191 §2: a later timestamp, or without timestamps a later sequence number.
    fn may_reopen(&self, header: &Header) -> bool {
        match header.options.timestamps.filter(|_| self.timestamps) {
            Some(timestamps) => {
                SeqNumber(timestamps.value).is_after(SeqNumber(self.ts_recent))
                    || (timestamps.value == self.ts_recent
                        && SeqNumber(header.seq).is_after(self.rcv_nxt))
            }
            None => SeqNumber(header.seq).is_after(self.rcv_nxt),
        }
    }

    fn acknowledgement(&self, now: Instant) -> Header {
        let timestamps = self.timestamps.then(|| Timestamps {
            value: now.as_timestamp_ms().wrapping_add(self.timestamp_offset),
            echo: self.ts_recent,
        });
        Header {
            seq: self.snd_nxt.0,
            ack: self.rcv_nxt.0,
            flags: Flags::ACK,
            window: self.window,
            options: Options {
                timestamps,
                ..Options::default()
            },
            ..Header::default()
        }
    }
}
