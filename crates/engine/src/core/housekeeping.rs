//! Slow work, a little each second: memory of idle windows goes back to the system, backing sockets
//! whose TIME-WAIT has ended are dropped.

use crate::core::EngineCore;
use crate::sockets::rows::Kind;
use hostif::lock::MAX_SESSION;
use nic::Presence;
use tcp::{Duration, Instant};

/// Time between rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Sockets looked at in one round.
const ROWS_PER_ROUND: u32 = 4_096;
/// Traffic since the last time that makes giving memory back worth two system calls.
const WORTHWHILE_BYTES: u64 = 64 * 1024;

/// What a connection is offered while memory is short.
const SHORT_BYTES: u32 = 64 * 1024;

/// When the next round is due, and where it goes on.
#[derive(Debug, Default)]
pub struct Housekeeping {
    next: Instant,
    row: u32,
    /// What was logged of the device.
    complaints: Vec<String>,
    /// Windows take more memory than they shall.
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
        self.watch_queues(now);
        self.follow_device(now);
        self.follow_sysctls();
        self.log_complaints();
        if let Some(shared) = &mut self.layer.shared {
            shared.keep(now, &mut self.layer.stack);
        }
        let used = self.layer.sockets.used();
        for _ in 0..ROWS_PER_ROUND.min(used) {
            let row = self.housekeeping.row % used;
            self.housekeeping.row = (row + 1) % used;
            if self.layer.sockets.row(row).kind == Kind::Connection {
                self.free_idle_windows(now, row);
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

    /// Whether anything arrives while frames leave.
    fn watch_queues(&mut self, now: Instant) {
        let counters = self.layer.link.driver.counters();
        let passed = (counters.rx_frames, counters.tx_frames);
        let has_connections = self.layer.stack.connections().next().is_some();
        self.layer.link.queues.look(now, passed, has_connections);
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
        let found = self.layer.link.driver.attend();
        self.follow_mtu();
        let Some((presence, is_another)) = self.layer.link.device.on_found(found) else {
            return;
        };
        if let Presence::Back { index } = found {
            let hardware = self.layer.link.driver.caps().hardware_address;
            // The interface was made when the core was.
            let _ = self
                .layer
                .stack
                .exchange_device(now, self.layer.interface, hardware);
            if let Some(shared) = &mut self.layer.shared {
                shared.move_to(index);
            }
        }
        // What is not well is among the complaints.
        if presence == Presence::Up && self.shard.core == 0 {
            let interface = &self.config.interface;
            tracing::info!(interface, is_another, "the device is there again");
        }
    }

    /// Where addresses are shared the kernel tells the MTU with them.
    fn follow_mtu(&mut self) {
        let mtu = self.layer.link.driver.caps().mtu;
        if self.layer.shared.is_none() && self.layer.link.device.has_new_mtu(mtu) {
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            // Too small a link for IP: as it was.
            let _ = self.layer.stack.set_mtu(self.layer.interface, mtu);
        }
    }

    /// While windows take more memory than they shall, no offer grows and new ones are small.
    fn watch_memory(&mut self) {
        let most = self.config.limits.window_memory_bytes;
        let is_short = self.layer.sockets.regions.allocated_bytes() > most;
        if is_short != self.housekeeping.is_short {
            self.housekeeping.is_short = is_short;
            let ceiling = if is_short { SHORT_BYTES } else { u32::MAX };
            self.layer.stack.set_window_ceiling(ceiling);
            self.layer.sockets.set_window_ceiling(ceiling);
            tracing::warn!(is_short, "memory of windows");
        }
    }

    /// A connection that moved nothing since the last round and holds nothing in its windows.
    fn free_idle_windows(&mut self, now: Instant, row: u32) {
        let record = *self.layer.sockets.row(row);
        let Some((connection, pair)) = record.connection().zip(record.pair()) else {
            return;
        };
        self.layer.look_consumed(now, row);
        let (Ok(view), Ok(info)) = (
            self.layer.stack.view(connection),
            self.layer.stack.info(connection),
        ) else {
            return;
        };
        let seen = &mut self.layer.sockets.companion(row).seen;
        let moved = seen.received != view.readable_end || seen.acknowledged != view.acknowledged;
        seen.received = view.readable_end;
        seen.acknowledged = view.acknowledged;
        let total = view.readable_end + view.acknowledged;
        let is_empty = info.receive_queue == 0 && info.send_queue == 0 && info.out_of_order == 0;
        if moved || !is_empty || total - seen.freed_at < WORTHWHILE_BYTES {
            return;
        }
        // On this thread, since what arrives meanwhile would be lost: only of those whose programs can be trusted with it.
        let owner = self.layer.sockets.regions.owner(record.region);
        if !owner.is_some_and(|user| user.is_direct() || user.is_trusted()) {
            return;
        }
        let Some(region) = self.layer.sockets.regions.find(record.region) else {
            return;
        };
        let Some((send, receive)) = region.window_pair(pair) else {
            return;
        };
        let Some(header) = region.socket_header(record.header) else {
            return;
        };
        // The program places bytes before it says so: only under its lock is the window really empty.
        if !header.send_lock().try_lock(MAX_SESSION) {
            return;
        }
        let nothing_new =
            header.written() == view.acknowledged && header.consumed() == view.readable_end;
        let freed =
            nothing_new && region.punch_hole(send).is_ok() && region.punch_hole(receive).is_ok();
        header.send_lock().unlock(MAX_SESSION);
        if freed {
            self.layer.sockets.companion(row).seen.freed_at = total;
        }
    }
}
