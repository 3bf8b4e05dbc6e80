//! What is looked at now and then: the device, its queues, windows that lie idle.

use super::SocketLayer;
use hostif::sync::lock::MAX_SESSION;
use nic::Presence;
use tcp::Instant;

/// Traffic since the last time that makes giving memory back worth two system calls.
const WORTHWHILE_BYTES: u64 = 64 * 1024;

impl SocketLayer {
    /// Looks at the device. What it is now, and whether it was another one until then; `None`: it is as it was.
    pub(crate) fn follow_device(&mut self, now: Instant) -> Option<(Presence, bool)> {
        let found = self.link.driver.attend();
        self.follow_mtu();
        let news = self.link.device.on_found(found)?;
        if let Presence::Back { index } = found {
            let hardware = self.link.driver.caps().hardware_address;
            // The interface was made when the core was.
            let _ = self.stack.exchange_device(now, self.interface, hardware);
            if let Some(shared) = &mut self.shared {
                shared.move_to(index);
            }
        }
        Some(news)
    }

    /// Where addresses are shared the kernel tells the MTU with them.
    fn follow_mtu(&mut self) {
        let mtu = self.link.driver.caps().mtu;
        if self.shared.is_none() && self.link.device.has_new_mtu(mtu) {
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            // Too small a link for IP: as it was.
            let _ = self.stack.set_mtu(self.interface, mtu);
        }
    }

    /// Whether anything arrives while frames leave.
    pub(crate) fn watch_queues(&mut self, now: Instant) {
        let counters = self.link.driver.counters();
        let passed = (counters.rx_frames, counters.tx_frames);
        let has_connections = self.stack.connections().next().is_some();
        self.link.queues.look(now, passed, has_connections);
    }

    /// A connection that moved nothing since the last round and holds nothing in its windows.
    pub(crate) fn free_idle_windows(&mut self, now: Instant, row: u32) {
        let record = *self.sockets.row(row);
        let Some((connection, pair)) = record.connection().zip(record.pair()) else {
            return;
        };
        self.look_consumed(now, row);
        let (Ok(view), Ok(info)) = (self.stack.view(connection), self.stack.info(connection))
        else {
            return;
        };
        let seen = &mut self.sockets.companion(row).seen;
        let moved = seen.received != view.readable_end || seen.acknowledged != view.acknowledged;
        seen.received = view.readable_end;
        seen.acknowledged = view.acknowledged;
        let total = view.readable_end + view.acknowledged;
        let is_empty = info.receive_queue == 0 && info.send_queue == 0 && info.out_of_order == 0;
        if moved || !is_empty || total - seen.freed_at < WORTHWHILE_BYTES {
            return;
        }
        // On this thread, since what arrives meanwhile would be lost: only of those whose programs can be trusted with it.
        let owner = self.sockets.regions.owner(record.region);
        if !owner.is_some_and(|user| user.is_asked_here()) {
            return;
        }
        let Some(region) = self.sockets.regions.find(record.region) else {
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
            self.sockets.companion(row).seen.freed_at = total;
        }
    }
}
