//! TCP Fast Open (RFC 7413): data in the SYN, and data before the handshake is over.
//!
//! Whether a cookie is known, and which one is right, is the `stack`'s affair: where one is to leave, the segment
//! has a request in its place. Here is what the two SYNs may carry and what becomes of their data. What
//! the SYN-ACK does not acknowledge counts as never sent, so that it leaves at once as new data (§4.2.1).

use crate::{
    connection::Connection,
    events::Events,
    receive::receive_window::ReceiveWindow,
    send::{
        flight_pool::FlightPool,
        segment::{Transmit, TransmitLimits},
    },
    state::{FastOpen, State, TellsCookie},
    time::Instant,
};
use wire::tcp::{FastOpenCookie, Options};

impl Connection {
    /// What the connection has to do with Fast Open.
    pub const fn fast_open(&self) -> FastOpen {
        self.fast_open
    }

    /// The first SYN-ACK is to tell the peer its cookie (RFC 7413 §4.1.2), in the form in which it was asked for.
    pub const fn tell_cookie(&mut self, is_experimental: bool) {
        self.tells_cookie = if is_experimental {
            TellsCookie::AsExperiment
        } else {
            TellsCookie::Yes
        };
    }

    /// Bytes that the SYN can take along, where the path carries `path_mss`. The cookie came with the peer's MSS.
    pub fn syn_capacity(&self, path_mss: u16) -> u32 {
        // As Linux: whatever the path may add to the options has room.
        let room = usize::from(self.snd.mss.min(path_mss)).saturating_sub(Options::MAX_LEN);
        u32::try_from(room).unwrap_or(0)
    }

    /// Whether the SYN waits for the program's first bytes.
    pub(crate) const fn holds_syn(&self) -> bool {
        matches!(self.fast_open, FastOpen::Holding)
            && self.snd.written <= 1
            && !self.snd.fin_requested
    }

    /// What the SYN or SYN-ACK that leaves for the first time has of Fast Open: its option, and how many
    /// bytes of data. Later ones have neither (RFC 7413 §4.2.1: the first may have been lost for its sake).
    pub(crate) fn open_first_syn(&mut self, path_mss: u16) -> (Option<FastOpenCookie>, u32) {
        let told = core::mem::take(&mut self.tells_cookie);
        let asks = matches!(self.fast_open, FastOpen::Asking | FastOpen::Holding);
        let request = FastOpenCookie::REQUEST.in_form(told == TellsCookie::AsExperiment);
        let option = (asks || told != TellsCookie::No).then_some(request);
        if self.fast_open != FastOpen::Holding {
            return (option, 0);
        }
        self.fast_open = FastOpen::Sent;
        let written = u32::try_from(self.snd.written - 1).unwrap_or(u32::MAX);
        (option, written.min(self.syn_capacity(path_mss)))
    }

    /// The SYN-ACK acknowledges our numbers up to position `ack`.
    pub(crate) fn take_syn_acknowledgement(&mut self, ack: u64) {
        if self.fast_open == FastOpen::Sent && ack > 1 {
            self.fast_open = FastOpen::Accepted;
        }
        self.snd.una = ack;
        self.snd.nxt = ack;
        self.snd.max = ack;
        self.snd.window_ack = ack;
    }

    /// Takes the data of the SYN that [`Self::accept`] was called for (RFC 7413 §4.2.2): its cookie was
    /// right. The program may use the connection from now on.
    pub fn open_fast(&mut self, payload: &[u8], window: &mut dyn ReceiveWindow) -> Events {
        self.fast_open = FastOpen::Serving;
        self.start_congestion(self.timers.last_received, false);
        let offered = self.rcv.advertised_edge - self.rcv.nxt;
        let room = usize::try_from(offered.min(u64::from(self.rcv.capacity))).unwrap_or(usize::MAX);
        let taken = &payload[..payload.len().min(room)];
        let mut events = Events::ESTABLISHED | Events::WRITABLE | Events::TRANSMIT;
        if !taken.is_empty() {
            window.write(0, taken);
            self.rcv.syn_data_came = true;
            self.rcv.nxt += u64::try_from(taken.len()).unwrap_or(0);
            self.counters
                .count_in(self.timers.last_received, taken.len(), u16::MAX);
            events |= Events::READABLE;
        }
        events
    }

    /// What may leave while the handshake is not over, besides the SYN-ACK.
    pub(crate) fn transmit_early(
        &mut self,
        now: Instant,
        limits: &TransmitLimits,
        pool: &mut dyn FlightPool,
    ) -> Option<Transmit> {
        if self.fast_open == FastOpen::Serving
            && let Some(data) = self.transmit_data(now, limits, pool)
        {
            return Some(data);
        }
        self.transmit_owed_ack(now)
    }

    /// The handshake is over.
    pub(crate) fn finish_fast_open(&mut self) {
        if self.fast_open == FastOpen::Serving {
            self.fast_open = FastOpen::Served;
        }
    }

    /// Whether data went with a SYN in either direction and arrived (TCPI_OPT_SYN_DATA).
    pub(crate) const fn is_syn_data_taken(&self) -> bool {
        matches!(self.fast_open, FastOpen::Accepted) || self.rcv.syn_data_came
    }

    /// Whether something on the path may swallow what belongs to Fast Open: the connection used it, and nothing
    /// was acknowledged for the third time in a row, or until it was given up (Linux `tcp_fastopen_active_detect_blackhole`).
    pub fn suspects_fast_open(&self) -> bool {
        let used = matches!(self.fast_open, FastOpen::Sent | FastOpen::Accepted);
        let silent = self.timers.retries == 3 || self.state == State::Closed;
        used && silent
    }

    /// The SYN with data, or what answered it, was lost: the peer acknowledged a later SYN and none of the
    /// data.
    pub fn lost_syn_data(&self) -> bool {
        self.fast_open == FastOpen::Sent && self.timers.syn_retransmitted
    }
}
