//! The end of connections whose engine was killed with the program around it: their peers are told, by RST.
//!
//! The tables of an engine are plain data in a memory file, so whoever has that file knows each connection's ends and numbers.
//! A stack is built over them that does nothing but give them up. See docs/decisions/0065-peers-of-a-killed-program.md.

use std::sync::Arc;

use nic::Driver;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd as _, OwnedFd};
use stack::tables::ConnectionId;
use tcp::{Duration, Instant};

use crate::core::EngineCore;
use crate::process::clock::{Origin, STARTED, time_since};
use crate::programs::users::Users;
use crate::start_error::StartError;
use engine_config::Config;
use shards::Shard;
use shards::section::Section;

/// Connections that are reset at a time.
const BATCH: usize = 128;
/// How long the peers of a batch may take to be found by ARP or neighbour discovery; another engine may begin at the address
/// meanwhile.
const LAST_WORDS: Duration = Duration::from_ms(300);

/// Resets the connections of one core in `state`, the file of an engine with the same limits that nobody runs any more. How many
/// there were.
///
/// # Errors
/// [`StartError`]: the file is none of such an engine, or the device cannot be used.
pub fn reset_left(
    mut config: Config,
    state: OwnedFd,
    section: Section,
    driver: Box<dyn Driver>,
) -> Result<usize, StartError> {
    config.limits = config.limits.of_core(section.cores);
    config.left = Some(Arc::new(state));
    let mut secret = [0; 16];
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| StartError::System("get random numbers", errno))?;
    let origin = Origin::now();
    let now = || time_since(origin);
    let mut core = EngineCore::with_shard(
        config,
        Shard::of_left(section),
        Users::direct(),
        driver,
        secret,
        STARTED,
    )?;
    let all = core.layer.stack.connections();
    let all: Vec<_> = all.map(|row| row.connection).collect();
    for batch in all.chunks(BATCH) {
        let until = now() + LAST_WORDS;
        core.abort(now(), batch);
        loop {
            let worked = core.poll(now(), None) > 0;
            if let Some(error) = core.failure() {
                return Err(StartError::Device(error));
            }
            if !core.has_still(batch) || now() >= until {
                break;
            }
            if !worked {
                wait(&core);
            }
        }
    }
    Ok(all.len())
}

/// Until the device has something, a millisecond at most.
fn wait(core: &EngineCore) {
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let device = core.layer.link.driver.wait_fd();
    let mut fds: Vec<PollFd<'_>> = device
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN))
        .collect();
    // A signal is as good as a moment.
    let _ = rustix::event::poll(&mut fds, Some(&moment));
}

impl EngineCore {
    /// Whether the last segment of one of these has not left yet.
    fn has_still(&self, connections: &[ConnectionId]) -> bool {
        let mut all = self.layer.stack.connections();
        self.layer.has_backlog() || all.any(|row| connections.contains(&row.connection))
    }

    /// Gives these connections up, whoever holds them.
    fn abort(&mut self, now: Instant, connections: &[ConnectionId]) {
        let layer = &mut self.layer;
        layer.sockets.set_now(now);
        for connection in connections {
            // One that is over already needs no end.
            let _ = layer.stack.abort(now, *connection, &mut layer.sockets);
        }
    }
}
