//! How long a call may sleep, and what a signal does to it.
//!
//! Linux restarts an interrupted recv, send, accept or connect if the handler that ran has SA_RESTART
//! and the socket has no timeout (signal(7)); poll, select and epoll_wait are never restarted. The handler runs where the
//! call ends, and there it is decided (`outcome`).

use std::time::{Duration, Instant};

use rustix::io::Errno;

/// The call was interrupted and has done nothing: it begins anew, unless a handler without SA_RESTART has run (signal(7)).
/// The kernel's own name for that, ERESTARTSYS, which no program ever sees.
pub const RESTART: Errno = Errno::from_raw_os_error(512);

/// The signal mask of ppoll, pselect and epoll_pwait, installed for the sleep only.
pub type SignalMask<'a> = Option<&'a libc::sigset_t>;

/// The moment a call gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Sleep as long as it takes.
    Never,
    /// Do not sleep.
    Now,
    /// Sleep until then.
    At(Instant),
}

impl Deadline {
    /// After a timeout of the program.
    pub fn after(timeout: Duration) -> Deadline {
        if timeout.is_zero() {
            return Deadline::Now;
        }
        // Beyond what the clock can say is as good as never.
        Instant::now()
            .checked_add(timeout)
            .map_or(Deadline::Never, Deadline::At)
    }

    /// After a socket's timeout, which is absent where 0.
    pub fn after_option(timeout: Option<Duration>) -> Deadline {
        timeout.map_or(Deadline::Never, Deadline::after)
    }

    /// As poll(2) and epoll_wait(2) take it: negative is never.
    pub fn from_ms(timeout_ms: i32) -> Deadline {
        u64::try_from(timeout_ms).map_or(Deadline::Never, |ms| {
            Deadline::after(Duration::from_millis(ms))
        })
    }

    /// As ppoll(2) takes it: absent is never, and an impossible value is EINVAL.
    pub fn from_timespec(timeout: Option<libc::timespec>) -> Result<Deadline, Errno> {
        let Some(timeout) = timeout else {
            return Ok(Deadline::Never);
        };
        let seconds = u64::try_from(timeout.tv_sec).map_err(|_| Errno::INVAL)?;
        let nanos = u32::try_from(timeout.tv_nsec).map_err(|_| Errno::INVAL)?;
        if nanos >= 1_000_000_000 {
            return Err(Errno::INVAL);
        }
        Ok(Deadline::after(Duration::new(seconds, nanos)))
    }

    /// As select(2) takes it; microseconds beyond a second carry over, as Linux has it.
    pub fn from_timeval(timeout: Option<libc::timeval>) -> Result<Deadline, Errno> {
        let Some(timeout) = timeout else {
            return Ok(Deadline::Never);
        };
        let seconds = u64::try_from(timeout.tv_sec).map_err(|_| Errno::INVAL)?;
        let micros = u64::try_from(timeout.tv_usec).map_err(|_| Errno::INVAL)?;
        Ok(Deadline::after(
            Duration::from_secs(seconds) + Duration::from_micros(micros),
        ))
    }

    /// Whether it is time to give up.
    pub fn is_over(self) -> bool {
        match self {
            Deadline::Never => false,
            Deadline::Now => true,
            Deadline::At(moment) => Instant::now() >= moment,
        }
    }

    /// What is left, for the timeout that select(2) writes back.
    pub fn remaining(self) -> Option<Duration> {
        match self {
            Deadline::Never => None,
            Deadline::Now => Some(Duration::ZERO),
            Deadline::At(moment) => Some(moment.saturating_duration_since(Instant::now())),
        }
    }
}

/// What a sleep of a socket call that was interrupted ends the call with.
pub fn after_interruption(deadline: Deadline) -> Errno {
    // A socket timeout rules restarting out (sock_intr_errno).
    if deadline == Deadline::Never {
        RESTART
    } else {
        Errno::INTR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_each_call_become_deadlines() {
        assert_eq!(Deadline::from_ms(-1), Deadline::Never);
        assert_eq!(Deadline::from_ms(0), Deadline::Now);
        assert!(matches!(Deadline::from_ms(10), Deadline::At(_)));
        let spec =
            |tv_sec, tv_nsec| Deadline::from_timespec(Some(libc::timespec { tv_sec, tv_nsec }));
        assert_eq!(spec(0, 0), Ok(Deadline::Now));
        assert_eq!(spec(-1, 0), Err(Errno::INVAL));
        assert_eq!(spec(0, 1_000_000_000), Err(Errno::INVAL));
        assert_eq!(Deadline::from_timespec(None), Ok(Deadline::Never));
        let val = |tv_sec, tv_usec| Deadline::from_timeval(Some(libc::timeval { tv_sec, tv_usec }));
        assert!(
            matches!(val(0, 2_000_000), Ok(Deadline::At(_))),
            "microseconds may exceed a second"
        );
        assert_eq!(val(0, -1), Err(Errno::INVAL));
    }

    #[test]
    fn an_endless_timeout_is_never() {
        assert_eq!(Deadline::after(Duration::MAX), Deadline::Never);
        assert_eq!(Deadline::after_option(None), Deadline::Never);
    }

    #[test]
    fn a_deadline_knows_what_is_left() {
        assert_eq!(Deadline::Never.remaining(), None);
        assert_eq!(Deadline::Now.remaining(), Some(Duration::ZERO));
        let soon = Deadline::after(Duration::from_secs(60));
        assert!(
            soon.remaining()
                .is_some_and(|left| left > Duration::from_secs(50))
                && !soon.is_over()
        );
    }

    #[test]
    fn a_timeout_rules_restarting_out() {
        let timeout = Deadline::after(Duration::from_secs(1));
        assert_eq!(after_interruption(timeout), Errno::INTR);
        assert_eq!(after_interruption(Deadline::Never), RESTART);
    }
}
