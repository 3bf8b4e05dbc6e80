//! What a connection with something to send has waited for (RFC 4898 `tcpEStatsPerfSndLimTime…`, Linux `tcp_chrono_start`):
//! how long it was busy, and how long of that the peer's window held it up.

use crate::time::{Duration, Instant};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// What the sender is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub(crate) enum Doing {
    /// Everything was acknowledged.
    Nothing = 0,
    /// Something is to be sent, or on its way.
    Sending,
    /// The next segment does not fit into the peer's window.
    WindowLimited,
}

/// Times spent so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Chrono {
    since: Instant,
    sending_us: u64,
    limited_us: u64,
    doing: Doing,
    reserved: [u8; 7],
}

impl Chrono {
    /// It does something else from now on.
    #[inline]
    pub(crate) fn turn_to(&mut self, now: Instant, doing: Doing) {
        if self.doing != doing {
            self.change(now, doing);
        }
    }

    #[inline]
    fn change(&mut self, now: Instant, doing: Doing) {
        let running = now.since(self.since).as_us();
        match self.doing {
            Doing::Nothing => {}
            Doing::Sending => self.sending_us += running,
            Doing::WindowLimited => self.limited_us += running,
        }
        (self.since, self.doing) = (now, doing);
    }

    /// The program has written, or a segment has left: not limited by the window any more, and not idle.
    #[inline]
    pub(crate) fn on_sending(&mut self, now: Instant) {
        self.turn_to(now, Doing::Sending);
    }

    fn so_far(&self, now: Instant) -> (u64, u64) {
        let running = now.since(self.since).as_us();
        match self.doing {
            Doing::Nothing => (self.sending_us, self.limited_us),
            Doing::Sending => (self.sending_us + running, self.limited_us),
            Doing::WindowLimited => (self.sending_us, self.limited_us + running),
        }
    }

    /// Time in which there was something to send or to be acknowledged.
    #[must_use]
    pub fn busy(&self, now: Instant) -> Duration {
        let (sending, limited) = self.so_far(now);
        Duration::from_us(sending + limited)
    }

    /// Of that, the time in which the peer's window had no room.
    #[must_use]
    pub fn window_limited(&self, now: Instant) -> Duration {
        Duration::from_us(self.so_far(now).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_and_run_on() {
        let at = |ms: u64| Instant::ZERO + Duration::from_ms(ms);
        let mut chrono = Chrono::new_zeroed();
        assert_eq!(chrono.busy(at(5)), Duration::ZERO);
        chrono.on_sending(at(10));
        chrono.turn_to(at(13), Doing::WindowLimited);
        chrono.turn_to(at(20), Doing::WindowLimited);
        assert_eq!(chrono.busy(at(23)), Duration::from_ms(13));
        assert_eq!(chrono.window_limited(at(23)), Duration::from_ms(10));
        chrono.on_sending(at(30));
        chrono.turn_to(at(31), Doing::Nothing);
        assert_eq!(chrono.busy(at(99)), Duration::from_ms(21));
        assert_eq!(chrono.window_limited(at(99)), Duration::from_ms(17));
    }
}
