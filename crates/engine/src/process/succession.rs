//! An engine that an ended program left behind gives way to the next one at its name and addresses.
//!
//! What the next engine does not need is dropped: TIME-WAIT, and connections whose bytes and FIN the peer has acknowledged
//! (it answers a late segment of theirs with RST, as after a restart of the host). What is not acknowledged yet gets a
//! moment; where that does not suffice this engine goes on, and serves the next program too. No byte is lost.

use crate::core::EngineCore;
use crate::core::report::is_program;
use crate::process::core_loop::CoreLoop;
use crate::programs::{Answered, Refusal, refuse};
use hostif::control::Reply;
use rustix::io::Errno;
use stack::ConnectionRow;
use tcp::{Duration, Instant, State};

/// How long the next program waits for what is still to be acknowledged.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// Whether an engine may end for another, and is about to.
#[derive(Debug, Default)]
pub struct Succession {
    /// Its program has ended.
    pub is_left_behind: bool,
    /// Another waits for its end until then.
    until: Option<Instant>,
}

impl Succession {
    /// While another waits for the end of this engine, nobody begins to rely on it.
    pub(crate) fn refuse_newcomers(&self) -> Result<(), Refusal> {
        match self.until {
            Some(_) => refuse(Errno::BUSY, "this engine is about to end"),
            None => Ok(()),
        }
    }
}

impl EngineCore {
    /// A program that starts wants an engine of its own in this one's place.
    pub(crate) fn yield_to_successor(&mut self, now: Instant) -> Answered {
        if !self.succession.is_left_behind {
            return refuse(Errno::BUSY, "this engine's program runs");
        }
        if self.programs.iter().any(is_program) {
            return refuse(Errno::BUSY, "this engine has other programs");
        }
        self.succession.until.get_or_insert(now + LAST_BYTES);
        Ok((Reply::Yields, Vec::new()))
    }

    /// Whether nothing here needs to go on for a peer or a program.
    fn is_finished(&self) -> bool {
        let layer = &self.layer;
        let stack = &layer.stack;
        let is_open = |row: &ConnectionRow| row.is_owned || has_unacknowledged(row);
        !layer.has_backlog()
            && !stack.connections().any(|row| is_open(&row))
            && stack.listeners().next().is_none()
            && stack.udp_sockets() == 0
    }
}

/// Bytes or a FIN for which the peer's acknowledgment is missing.
fn has_unacknowledged(row: &ConnectionRow) -> bool {
    !matches!(row.info.state, State::FinWait2 | State::Closed)
}

impl CoreLoop {
    /// Another engine waits for the end of this one, which has nothing more to do.
    pub(crate) fn gives_way(&mut self) -> bool {
        let Some(until) = self.core.succession.until else {
            return false;
        };
        if self.core.is_finished() {
            return true;
        }
        if self.now() >= until {
            self.core.succession.until = None;
        }
        false
    }
}
