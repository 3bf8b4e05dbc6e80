//! Congestion control: one small trait, an algorithm per file, and the plain data that holds any of them.
//!
//! Read RFC 5681 first. What was lost is `recovery`'s business, how fast the path delivers `rate`'s; here
//! it is decided how much may be in flight and how fast it leaves. Windows count bytes, so that one ACK
//! for 64 KiB weighs as much as many small ones.

pub(crate) mod ecn;

mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod reno;
mod sample;
mod window;

use crate::time::Instant;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use bbr::Bbr;
use cubic::Cubic;
use dctcp::Dctcp;
use reno::Reno;
pub use reno::initial_window;
pub(crate) use sample::{AckSample, Cause, CongestionEvent, RateSample};
pub(crate) use window::Window;

/// The algorithms there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Algorithm {
    /// RFC 5681.
    Reno = 0,
    /// RFC 9438.
    #[default]
    Cubic = 1,
    /// draft-ietf-ccwg-bbr.
    Bbr = 2,
    /// RFC 8257; asks for ECN.
    Dctcp = 3,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Reno, Self::Cubic, Self::Bbr, Self::Dctcp];

    /// A number that stands for it.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The algorithm of that number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.code() == code)
    }

    /// The name that `TCP_CONGESTION` knows it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Dctcp => "dctcp",
        }
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What an algorithm does with the events of a connection. It keeps its own variables in `self` and
/// changes the [`Window`] that all share.
pub(crate) trait Controller {
    /// The connection begins, or changes to this algorithm: `self` is all zero, `window` stands.
    fn start(&mut self, _window: &mut Window, _now: Instant, _srtt_us: u64) {}

    /// Once for every ACK that told something, after loss was marked.
    fn on_ack(&mut self, window: &mut Window, sample: &AckSample);

    /// Loss was found, or the peer echoed congestion: once per window of data.
    fn on_congestion_event(&mut self, window: &mut Window, event: &CongestionEvent);

    /// Everything that was in flight at the last congestion event is acknowledged.
    fn on_recovery_exit(&mut self, _window: &mut Window, _now: Instant) {}

    /// The retransmission timer fired; `first` in a row.
    fn on_timeout(&mut self, window: &mut Window, event: &CongestionEvent, first: bool);

    /// The last reduction was for nothing (RFC 3522, RFC 2883, RFC 5682).
    fn undo(&mut self, window: &mut Window, _now: Instant) {
        window.restore();
    }

    /// The program begins to send when nothing is in flight; `long`: after more than a retransmission
    /// timeout of silence.
    fn on_idle(&mut self, window: &mut Window, _now: Instant, long: bool) {
        if long {
            window.restart();
        }
    }

    /// Whether it governs the window during recovery itself, instead of PRR (RFC 9937).
    fn owns_recovery(&self) -> bool {
        false
    }
}

/// What an algorithm believes, for `TCP_CC_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionInfo {
    /// It has nothing to tell.
    Nothing,
    /// BBR.
    Bbr {
        /// BBR.bw, bytes per second.
        bandwidth: u64,
        /// BBR.min_rtt, microseconds; `None`: not measured.
        min_rtt_us: Option<u32>,
        /// How much faster than the bandwidth segments leave, in 1/256.
        pacing_gain: u32,
        /// How much more than the product of both may be in flight, in 1/256.
        cwnd_gain: u32,
    },
    /// DCTCP.
    Dctcp {
        /// DCTCP.Alpha, in 1/1024.
        alpha: u32,
        /// Bytes that arrived with a mark since Alpha changed last.
        marked: u64,
        /// Bytes that arrived since then.
        acked: u64,
        /// ECN is in use; otherwise this is Reno.
        is_enabled: bool,
        /// The last packet that the peer sent was marked.
        is_receiving_marks: bool,
    },
}

/// What the handshake has found out about the path.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Payload of a full segment.
    pub mss: u32,
    /// The SYN had to be sent again.
    pub syn_lost: bool,
    /// Microseconds; 0: not known.
    pub srtt_us: u64,
}

/// Words that the variables of the largest algorithm take.
const AREA_WORDS: usize = 25;

/// Congestion control of one connection, whichever algorithm it is.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Congestion {
    window: Window,
    /// The variables of `algorithm`; all zero when it starts.
    area: [u64; AREA_WORDS],
    algorithm: Algorithm,
    reserved: [u8; 7],
}

impl Congestion {
    /// The connection has an MSS: RFC 6928 §2, where a lost SYN leaves one segment.
    pub fn start(&mut self, algorithm: Algorithm, now: Instant, path: &Path) {
        self.window = Window::initial(path.mss, path.syn_lost);
        self.choose(algorithm, now, path.srtt_us);
    }

    /// Changes the algorithm; what the last one found out about the window stands.
    pub fn choose(&mut self, algorithm: Algorithm, now: Instant, srtt_us: u64) {
        self.algorithm = algorithm;
        self.area = [0; AREA_WORDS];
        self.window.pacing_rate = 0;
        self.act(|controller, window| controller.start(window, now, srtt_us));
    }

    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Bytes that may be in flight.
    pub const fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    /// Slow-start threshold, bytes; `u32::MAX` before the first congestion.
    pub const fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    /// Bytes per second at which segments may leave; `None`: as fast as the window allows.
    pub fn pacing_rate(&self) -> Option<u64> {
        (self.window.pacing_rate > 0).then_some(self.window.pacing_rate)
    }

    /// What the algorithm believes; what it does not know of ECN is left out.
    pub fn info(&self) -> CongestionInfo {
        let mut area = self.area;
        match self.algorithm {
            Algorithm::Reno | Algorithm::Cubic => CongestionInfo::Nothing,
            Algorithm::Bbr => view::<Bbr>(&mut area).info(),
            Algorithm::Dctcp => view::<Dctcp>(&mut area).info(),
        }
    }

    /// Payload of a full segment, as the path has it now.
    pub fn set_mss(&mut self, mss: u32) {
        self.window.mss = mss.max(1);
    }

    /// What proportional rate reduction allows during recovery (RFC 9937); an algorithm that governs
    /// recovery itself takes no notice.
    pub fn set_recovery_cwnd(&mut self, bytes: u32) {
        if !self.owns_recovery() {
            self.window.cwnd = bytes.min(window::MAX_CWND);
        }
    }

    pub fn owns_recovery(&mut self) -> bool {
        self.act(|controller, _| controller.owns_recovery())
    }

    #[inline]
    pub fn on_ack(&mut self, sample: &AckSample) {
        if self.algorithm == Algorithm::Cubic {
            // The default, known to the compiler.
            return view::<Cubic>(&mut self.area).on_ack(&mut self.window, sample);
        }
        self.on_other_ack(*sample);
    }

    /// By value: what is told to the default algorithm alone need not be put together in memory.
    #[inline(never)]
    fn on_other_ack(&mut self, sample: AckSample) {
        self.act(|controller, window| controller.on_ack(window, &sample));
    }

    pub fn on_congestion_event(&mut self, event: &CongestionEvent) {
        self.window.remember();
        self.act(|controller, window| controller.on_congestion_event(window, event));
    }

    pub fn on_recovery_exit(&mut self, now: Instant) {
        self.act(|controller, window| controller.on_recovery_exit(window, now));
    }

    pub fn on_timeout(&mut self, event: &CongestionEvent, first: bool) {
        if first {
            self.window.remember();
        }
        self.act(|controller, window| controller.on_timeout(window, event, first));
    }

    /// The last reduction was for nothing.
    pub fn undo(&mut self, now: Instant) {
        self.act(|controller, window| controller.undo(window, now));
    }

    pub fn on_idle(&mut self, now: Instant, long: bool) {
        self.act(|controller, window| controller.on_idle(window, now, long));
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut dyn Controller, &mut Window) -> R) -> R {
        match self.algorithm {
            Algorithm::Reno => act(view::<Reno>(&mut self.area), &mut self.window),
            Algorithm::Cubic => act(view::<Cubic>(&mut self.area), &mut self.window),
            Algorithm::Bbr => act(view::<Bbr>(&mut self.area), &mut self.window),
            Algorithm::Dctcp => act(view::<Dctcp>(&mut self.area), &mut self.window),
        }
    }
}

/// The area as the variables of one algorithm.
fn view<T: FromBytes + IntoBytes + KnownLayout>(area: &mut [u64; AREA_WORDS]) -> &mut T {
    const { assert!(size_of::<T>() <= size_of::<[u64; AREA_WORDS]>() && align_of::<T>() <= 8) };
    let (view, _) = T::mut_from_prefix(area.as_mut_bytes())
        .expect("invariant: every algorithm fits the area and needs no wider alignment");
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_found_by_its_name() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_name(algorithm.name()), Some(algorithm));
        }
        assert_eq!(Algorithm::from_name("vegas"), None);
    }
}
