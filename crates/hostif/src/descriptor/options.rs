//! The socket options that a program can change, as one command. See tcp(7) and socket(7).
//!
//! The shim keeps the kernel's own view of them on the backing socket; this is what the engine acts on.

use super::{Malformed, high, join, low};

/// Options to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OptionChanges {
    /// TCP_NODELAY.
    pub no_delay: Option<bool>,
    /// SO_KEEPALIVE.
    pub keep_alive: Option<bool>,
    /// TCP_KEEPIDLE, in seconds.
    pub keep_idle_s: Option<u32>,
    /// TCP_KEEPINTVL, in seconds.
    pub keep_interval_s: Option<u32>,
    /// TCP_KEEPCNT.
    pub keep_count: Option<u32>,
    /// TCP_USER_TIMEOUT, in milliseconds.
    pub user_timeout_ms: Option<u32>,
    /// SO_LINGER: `Some(None)` switches it off, `Some(Some(seconds))` on.
    pub linger_s: Option<Option<u32>>,
    /// SO_RCVBUF.
    pub receive_buffer_bytes: Option<u32>,
    /// SO_SNDBUF.
    pub send_buffer_bytes: Option<u32>,
    /// TCP_CONGESTION, a number of [`crate::figures::congestion`].
    pub congestion: Option<u8>,
    /// SO_MAX_PACING_RATE, bytes per second; the largest number: no limit.
    pub max_pacing_rate: Option<u32>,
}

/// Declares the options with the codes by which they travel.
macro_rules! socket_options {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal,)*) => {
        /// An option that is changed by itself, with a number as its value.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum SocketOption {
            $($(#[doc = $doc])* $name = $code,)*
        }

        impl SocketOption {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub(super) const fn code(self) -> u8 {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            pub(super) const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

socket_options! {
    /// `TCP_CORK`: 0 or 1.
    Cork = 1,
    /// `TCP_QUICKACK`: 0 or 1.
    QuickAck = 2,
    /// `TCP_MAXSEG`, bytes.
    MaxSegment = 3,
    /// `TCP_NOTSENT_LOWAT`, bytes.
    NotSentLowWater = 4,
    /// `TCP_LINGER2`, seconds; the largest value: an orphan does not wait at all.
    FinTimeout = 5,
    /// `TCP_SYNCNT`.
    SynCount = 6,
    /// `TCP_WINDOW_CLAMP`, bytes.
    WindowClamp = 7,
    /// `TCP_DEFER_ACCEPT`, seconds.
    DeferAccept = 8,
    /// `TCP_SAVE_SYN`: 0 or 1.
    SaveSyn = 9,
    /// `IP_TOS`.
    TypeOfService = 10,
    /// `IP_TTL`.
    TimeToLive = 11,
    /// `TCP_FASTOPEN`: how many requests may be open at once.
    FastOpen = 13,
    /// `SO_TIMESTAMP` and its like: 0 or 1, whether the header tells when data arrived.
    ArrivalTimes = 14,
    /// Not an option: what a sending call that moved less than it was asked to wants to hear of its last byte, see
    /// [`crate::stamp::pack`].
    Stamp = 15,
}

const NO_DELAY: u32 = 1;
const KEEP_ALIVE: u32 = 1 << 1;
const KEEP_IDLE: u32 = 1 << 2;
const KEEP_INTERVAL: u32 = 1 << 3;
const KEEP_COUNT: u32 = 1 << 4;
const USER_TIMEOUT: u32 = 1 << 5;
const LINGER: u32 = 1 << 6;
const RECEIVE_BUFFER: u32 = 1 << 7;
const SEND_BUFFER: u32 = 1 << 8;
const CONGESTION: u32 = 1 << 9;
const PACING_RATE: u32 = 1 << 10;
const ALL: u32 = (1 << 11) - 1;
/// Where the switches lie beside the mask.
const SWITCHES_SHIFT: u32 = 11;
/// Nothing lies between the switches and the number of the congestion control.
const UNUSED: u32 = 0x00fc_0000;
/// Where that number lies.
const CONGESTION_SHIFT: u32 = 24;

impl OptionChanges {
    /// As five words: mask and switches beside how much was written, then the numbers in pairs.
    pub(super) fn encode(&self, written_low: u32) -> [u64; 5] {
        let given = |present: bool, bit: u32| if present { bit } else { 0 };
        let mask = given(self.no_delay.is_some(), NO_DELAY)
            | given(self.keep_alive.is_some(), KEEP_ALIVE)
            | given(self.keep_idle_s.is_some(), KEEP_IDLE)
            | given(self.keep_interval_s.is_some(), KEEP_INTERVAL)
            | given(self.keep_count.is_some(), KEEP_COUNT)
            | given(self.user_timeout_ms.is_some(), USER_TIMEOUT)
            | given(self.linger_s.is_some(), LINGER)
            | given(self.receive_buffer_bytes.is_some(), RECEIVE_BUFFER)
            | given(self.send_buffer_bytes.is_some(), SEND_BUFFER)
            | given(self.congestion.is_some(), CONGESTION)
            | given(self.max_pacing_rate.is_some(), PACING_RATE);
        let linger = self.linger_s.flatten();
        let switches = given(self.no_delay == Some(true), NO_DELAY)
            | given(self.keep_alive == Some(true), KEEP_ALIVE)
            | given(linger.is_some(), LINGER);
        let congestion = u32::from(self.congestion.unwrap_or(0)) << CONGESTION_SHIFT;
        let number = |value: Option<u32>| value.unwrap_or(0);
        [
            join(mask | switches << SWITCHES_SHIFT | congestion, written_low),
            join(number(self.keep_idle_s), number(self.keep_interval_s)),
            join(number(self.keep_count), number(self.user_timeout_ms)),
            join(number(linger), number(self.receive_buffer_bytes)),
            join(number(self.send_buffer_bytes), number(self.max_pacing_rate)),
        ]
    }

    pub(super) fn decode(words: [u64; 5]) -> Result<(OptionChanges, u32), Malformed> {
        let first = low(words[0]);
        let (mask, switches) = (first & ALL, first >> SWITCHES_SHIFT);
        if first & UNUSED != 0 {
            return Err(Malformed);
        }
        let switch = |bit: u32| (mask & bit != 0).then_some(switches & bit != 0);
        let number = |bit: u32, value: u32| (mask & bit != 0).then_some(value);
        let changes = OptionChanges {
            no_delay: switch(NO_DELAY),
            keep_alive: switch(KEEP_ALIVE),
            keep_idle_s: number(KEEP_IDLE, low(words[1])),
            keep_interval_s: number(KEEP_INTERVAL, high(words[1])),
            keep_count: number(KEEP_COUNT, low(words[2])),
            user_timeout_ms: number(USER_TIMEOUT, high(words[2])),
            linger_s: switch(LINGER).map(|on| on.then_some(low(words[3]))),
            receive_buffer_bytes: number(RECEIVE_BUFFER, high(words[3])),
            send_buffer_bytes: number(SEND_BUFFER, low(words[4])),
            congestion: (mask & CONGESTION != 0)
                .then(|| (first >> CONGESTION_SHIFT).to_le_bytes()[0]),
            max_pacing_rate: number(PACING_RATE, high(words[4])),
        };
        Ok((changes, high(words[0])))
    }
}
