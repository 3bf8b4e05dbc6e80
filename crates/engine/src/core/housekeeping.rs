//! Slow work, a little each second: memory of idle windows goes back to the system, backing sockets
//! whose TIME-WAIT has ended are dropped.

use crate::core::EngineCore;
use crate::sockets::rows::Kind;
use nic::Presence;
use tcp::{Duration, Instant};

/// Time between rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Sockets looked at in one round.
const ROWS_PER_ROUND: u32 = 4_096;
/// What a connection is offered while memory is short.
const SHORT_BYTES: u32 = 64 * 1024;

/// When the next round is due, and where it goes on.
#[derive(Debug, Default)]
pub struct Housekeeping {
    next: Instant,
    row: u32,
    /// What was logged of the device.
    complaints: Vec<String>,
    /// Windows take more memory than the limit.
    is_short: bool,
}

impl EngineCore {
    /// Does a round if one is due.
    pub(crate) fn keep_house(&mut self, now: Instant) {
        self.programs.unmap_retired();
        if self.layer.link.device.is_doubted {
            self.follow_device(now);
        }
        if now < self.housekeeping.next {
            return;
        }
        self.housekeeping.next = now + INTERVAL;
        self.watch_memory();
        self.layer.sockets.drop_lingering(now);
        self.layer.watch_queues(now);
        self.follow_device(now);
        self.follow_sysctls();
        self.log_complaints();
        if let Some(look_after) = self.config.process.look_after {
            look_after();
        }
        if let Some(shared) = &mut self.layer.shared {
            shared.keep(now, &mut self.layer.stack);
        }
        let used = self.layer.sockets.used();
        for _ in 0..ROWS_PER_ROUND.min(used) {
            let row = self.housekeeping.row % used;
            self.housekeeping.row = (row + 1) % used;
            if self.layer.sockets.row(row).kind == Kind::Connection {
                self.layer.free_idle_windows(now, row);
            }
        }
    }

    /// Looks at the kernel's settings; connections and listeners that begin from now on obey them.
    fn follow_sysctls(&mut self) {
        let Self {
            config, sysctls, ..
        } = self;
        let core = self.shard.core;
        if !sysctls.follow(core, config) {
            return;
        }
        // Neither secret nor core is looked at.
        self.layer.stack.set_modes(&config.of_stack(core, [0; 16]));
        self.layer
            .stack
            .set_common_fast_open_keys(config.fast_open_keys);
        self.layer
            .sockets
            .set_defaults(config.socket_options, config.receive_offer);
    }

    /// What of the device is not as it was, or does not move.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let queues = self.layer.link.queues.complaints(&self.config.interface);
        queues.chain(self.layer.link.driver.complaints()).collect()
    }

    /// Says each once. Groups of frames and MTU are the same at all cores, queues are not.
    fn log_complaints(&mut self) {
        let complaints = match self.shard.core {
            0 => self.complaints(),
            _ => self
                .layer
                .link
                .queues
                .complaints(&self.config.interface)
                .collect(),
        };
        let known = &self.housekeeping.complaints;
        for complaint in complaints.iter().filter(|one| !known.contains(one)) {
            tracing::warn!("{complaint}");
        }
        self.housekeeping.complaints = complaints;
    }

    /// Looks at the device, once a second and when it has failed.
    fn follow_device(&mut self, now: Instant) {
        // What is not well is among the complaints.
        if let Some((Presence::Up, is_another)) = self.layer.follow_device(now)
            && self.shard.core == 0
        {
            let interface = &self.config.interface;
            tracing::info!(interface, is_another, "the device is there again");
        }
    }

    /// While windows take more memory than they shall, no offer grows and new ones are small. From three quarters of it on
    /// programs are told at once of what has come, whatever they asked for, so that they take it (urgent mode).
    fn watch_memory(&mut self) {
        let most = self.config.limits.window_memory_bytes;
        let taken = self.layer.sockets.regions.measure();
        let is_short = taken > most;
        let is_urgent = taken > most / 4 * 3;
        if is_urgent != core::mem::replace(&mut self.programs.urgent_mode, is_urgent) {
            tracing::info!(
                is_urgent,
                "urgent mode: no news wait while memory of windows is past its mark"
            );
        }
        if is_short != self.housekeeping.is_short {
            self.housekeeping.is_short = is_short;
            let ceiling = if is_short { SHORT_BYTES } else { u32::MAX };
            self.layer.stack.set_window_ceiling(ceiling);
            self.layer.sockets.set_window_ceiling(ceiling);
            tracing::warn!(is_short, "memory of windows");
        }
    }
}
