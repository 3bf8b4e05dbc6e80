//! The timers of all layers, in one wheel.

use super::wheel::Wheel;
use tcp::Instant;

/// Whose a timer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A row of the connection table.
    Connection(u32),
    /// A row of the TIME-WAIT table.
    TimeWait(u32),
    /// An entry of the neighbour cache.
    Neighbour(u32),
    /// The next event of an interface, its addresses or what its routers said.
    Interfaces,
    /// The next report about a group.
    Multicast,
    /// The oldest packet whose fragments are not all there.
    Fragments,
}

/// A wheel, and where in it the timers of each table begin.
#[derive(Debug)]
pub(crate) struct Timers {
    wheel: Wheel,
    time_waits_at: u32,
    neighbours_at: u32,
    others_at: u32,
}

impl Timers {
    /// Timers for tables of these lengths.
    pub(crate) fn new(connections: u32, time_waits: u32, neighbours: u32) -> Self {
        let others_at = connections + time_waits + neighbours;
        Self {
            wheel: Wheel::new(super::intrusive::at(others_at + 3)),
            time_waits_at: connections,
            neighbours_at: connections + time_waits,
            others_at,
        }
    }

    #[inline]
    const fn number(&self, timer: Timer) -> u32 {
        match timer {
            Timer::Connection(index) => index,
            Timer::TimeWait(w) => self.time_waits_at + w,
            Timer::Neighbour(n) => self.neighbours_at + n,
            Timer::Interfaces => self.others_at,
            Timer::Multicast => self.others_at + 1,
            Timer::Fragments => self.others_at + 2,
        }
    }

    /// When a timer expires; [`Instant::NEVER`]: it is not set.
    #[inline]
    pub(crate) fn deadline(&self, timer: Timer) -> Instant {
        let deadline_us = self.wheel.deadline_us(self.number(timer));
        deadline_us.map_or(Instant::NEVER, Instant::from_us)
    }

    /// Sets a timer, or cancels it.
    #[inline]
    pub(crate) fn set(&mut self, timer: Timer, deadline: Option<Instant>) {
        let number = self.number(timer);
        match deadline {
            Some(deadline) => self.wheel.set(number, deadline.as_us()),
            None => self.wheel.cancel(number),
        }
    }

    /// Sets a timer whose deadline comes closer: rare, since most are pushed back (`Tcp::arm`).
    #[cold]
    pub(crate) fn move_to(&mut self, timer: Timer, deadline: Instant) {
        self.set(timer, Some(deadline));
    }

    /// The next timer that has expired by `now`; it is no longer set.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<Timer> {
        let number = self.wheel.pop_expired(now.as_us())?;
        Some(match number {
            index if index < self.time_waits_at => Timer::Connection(index),
            w if w < self.neighbours_at => Timer::TimeWait(w - self.time_waits_at),
            n if n < self.others_at => Timer::Neighbour(n - self.neighbours_at),
            other => match other - self.others_at {
                0 => Timer::Interfaces,
                1 => Timer::Multicast,
                _ => Timer::Fragments,
            },
        })
    }

    /// When [`Timers::pop_expired`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.wheel.next_deadline_us().map(Instant::from_us)
    }

    /// Timers looked at or moved so far.
    pub(crate) const fn steps(&self) -> u64 {
        self.wheel.steps()
    }
}
