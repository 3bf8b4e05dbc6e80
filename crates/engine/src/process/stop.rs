//! The end of an engine that was told to end: no peer is left with a connection that nobody serves.
//!
//! What programs hold ends with RST, here and at the peer, as what a host that shuts its programs down with unread data would
//! say (RFC 9293 §3.5.3). What they have closed already has a moment to finish: bytes and FIN that are on their way.

use crate::core::EngineCore;
use crate::process::core_loop::CoreLoop;
use crate::start_error::StartError;
use rustix::io::Errno;
use tcp::{Duration, Instant};

/// How long closed connections may take to end.
const LAST_WORDS: Duration = Duration::from_ms(500);
/// How long the loop sleeps between two looks at most, microseconds.
const LOOK_US: u64 = 1_000;

impl EngineCore {
    /// Resets the connections that programs hold, and those that nobody has accepted.
    pub(crate) fn reset_connections(&mut self, now: Instant) {
        self.layer.sockets.set_now(now);
        // What waits to be accepted goes with its listener.
        let listeners: Vec<_> = self
            .layer
            .stack
            .listeners()
            .map(|row| row.listener)
            .collect();
        for listener in listeners {
            let _ = self
                .layer
                .stack
                .stop_listening(now, listener, &mut self.layer.sockets);
        }
        let held = self.layer.stack.connections().filter(|row| row.is_owned);
        let held: Vec<_> = held.map(|row| (row.connection, row.owner)).collect();
        for (connection, owner) in held {
            if let Some(row) = self.layer.sockets.row_of(owner) {
                self.layer.sockets.fail(row, Errno::CONNRESET);
            }
            // One that is over already needs no end.
            let _ = self
                .layer
                .stack
                .abort(now, connection, &mut self.layer.sockets);
        }
    }

    /// Whether a connection has not ended yet, or a segment waits for the device.
    pub(crate) fn has_last_words(&self) -> bool {
        self.layer.has_backlog() || self.layer.stack.connections().next().is_some()
    }
}

impl CoreLoop {
    /// Tells the peers that this is the end.
    ///
    /// # Errors
    /// A system call that cannot fail failed.
    pub(crate) fn take_leave(&mut self) -> Result<(), StartError> {
        let begun = self.now();
        self.core.reset_connections(begun);
        loop {
            let now = self.now();
            self.core.poll(now, None);
            if !self.core.has_last_words() || now >= begun + LAST_WORDS {
                return Ok(());
            }
            let timeout_us = self.prepare_sleep(now)?.min(LOOK_US);
            self.wait(now, timeout_us, true)?;
        }
    }
}
