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
            rx_events: AtomicU32::new(socket.rx_events()),
            tx_events: AtomicU32::new(socket.core().tx_events()),
        };
        socket.observe(OBSERVER, Arc::new(edges));
    }
}

/// Turns the engine's events on one socket into those that epoll knows.
struct EdgeEvents {
    watchers: Arc<Watchers>,
    socket: Weak<dyn Socket>,
    rx_events: AtomicU32,
    tx_events: AtomicU32,
}

impl Observer for EdgeEvents {
    fn on_ready(&self) {
        let Some(socket) = self.socket.upgrade() else {
            return;
        };
        let news = |seen: &AtomicU32, now: u32| seen.swap(now, Ordering::Relaxed) != now;
        let received = news(&self.rx_events, socket.rx_events());
        let sent = news(&self.tx_events, socket.core().tx_events());
        let mut changed = 0;
        if received {
            changed |= IN | RDNORM | RDHUP | PRI;
        }
        if sent {
            changed |= OUT | WRNORM;
        }
        // A change of state wakes every interest, as sk_state_change does.
        if changed == 0 || socket.state() == State::Closed {
            changed = u32::MAX;
        }
        self.watchers.notify(changed);
    }
}
