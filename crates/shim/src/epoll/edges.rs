//! An engine's events on a socket as the edges that epoll knows.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use client::{Observer, Socket, State};
use switch::readiness::{IN, OUT, PRI, RDHUP, RDNORM, WRNORM};
use switch::stream::Stream;

use super::Watchers;

/// Name of the switch among the observers of a socket.
const OBSERVER: u64 = 0;

/// Tells the watchers of every event on the stream from now on.
pub fn observe(stream: &Stream, watchers: &Arc<Watchers>) {
    for socket in stream.sockets() {
        let edges = EdgeEvents {
            watchers: Arc::clone(watchers),
            socket: Arc::downgrade(&socket),
            told: Told::of(socket.rx_events(), socket.core().tx_events()),
        };
        socket.observe(OBSERVER, Arc::new(edges));
    }
}

/// Turns the engine's events on one socket into those that epoll knows.
struct EdgeEvents {
    watchers: Arc<Watchers>,
    socket: Weak<dyn Socket>,
    told: Told,
}

/// The engine's counts of events, as far as the watchers were told.
struct Told {
    rx_events: AtomicU32,
    tx_events: AtomicU32,
}

impl Told {
    fn of(rx_events: u32, tx_events: u32) -> Self {
        Self {
            rx_events: AtomicU32::new(rx_events),
            tx_events: AtomicU32::new(tx_events),
        }
    }

    /// What is new with these counts. Nothing where an event was counted before its report came, and told with one before it, or when the
    /// watchers began to be told: a second edge of it would be one too many.
    fn news(&self, rx_events: u32, tx_events: u32) -> u32 {
        let is_new = |told: &AtomicU32, now: u32| told.swap(now, Ordering::Relaxed) != now;
        let received = is_new(&self.rx_events, rx_events);
        let sent = is_new(&self.tx_events, tx_events);
        let receives = if received {
            IN | RDNORM | RDHUP | PRI
        } else {
            0
        };
        let sends = if sent { OUT | WRNORM } else { 0 };
        receives | sends
    }
}

impl Observer for EdgeEvents {
    fn on_ready(&self) {
        let Some(socket) = self.socket.upgrade() else {
            return;
        };
        let news = self
            .told
            .news(socket.rx_events(), socket.core().tx_events());
        // The end wakes every interest, as sk_state_change does.
        if socket.state() == State::Closed {
            self.watchers.notify(u32::MAX);
        } else if news != 0 {
            self.watchers.notify(news);
        }
    }

    fn on_change(&self) {
        self.watchers.notify(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_was_told_before_its_report_came_is_no_second_edge() {
        let told = Told::of(3, 1);
        assert_eq!(told.news(3, 1), 0, "counted before the watchers began");
        assert_eq!(told.news(3, 2), OUT | WRNORM);
        assert_eq!(told.news(5, 2), IN | RDNORM | RDHUP | PRI, "two at once");
        assert_eq!(told.news(5, 2), 0, "the report of the second");
    }
}
