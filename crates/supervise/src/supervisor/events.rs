//! The events that the supervisor waits for: its ends of pairs, their lives, the kernel's connections for a listener.

use std::collections::HashSet;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsRawFd as _, BorrowedFd};
use rustix::io::Errno;

use crate::interest;
use crate::supervisor::{BUFFER_BYTES, Served, Supervisor};

/// Events that are taken at once.
const EVENTS: usize = 256;
/// Set in the event of a listener's backing socket: the kernel has connections for it.
const KERNELS: u64 = 1 << 63;

impl Supervisor {
    /// Watches our end of a pair from now on.
    pub fn watch(&self, end: BorrowedFd<'_>, key: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, end, EventData::new_u64(key), flags)
    }

    /// Notices from now on when the last process closes that end (`reap`).
    pub fn watch_life(&self, programs: BorrowedFd<'_>, key: u64) -> Result<(), Errno> {
        let flags = EventFlags::ONESHOT;
        epoll::add(&self.alive, programs, EventData::new_u64(key), flags)
    }

    /// Ends UDP sockets that no process has open any more.
    pub fn reap(&mut self) {
        let is_datagrams =
            |(key, served): (&u64, &Served)| matches!(served, Served::Datagrams(_)).then_some(*key);
        let keys: Vec<u64> = self.served.iter().filter_map(is_datagrams).collect();
        if keys.is_empty() {
            return;
        }
        let path = format!("/proc/self/fdinfo/{}", self.alive.as_raw_fd());
        // Where it cannot be read, all are taken to be alive.
        let Ok(text) = std::fs::read_to_string(path) else {
            return;
        };
        let alive: HashSet<u64> = text.lines().filter_map(interest::data).collect();
        let mut buffer = vec![0; BUFFER_BYTES];
        for key in keys {
            if !alive.contains(&key) {
                self.drop_datagrams(key, &mut buffer);
            }
        }
    }

    /// Watches for the kernel's connections for a listener from now on.
    pub fn watch_kernels(&self, backing: BorrowedFd<'_>, key: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(
            &self.epoll,
            backing,
            EventData::new_u64(key | KERNELS),
            flags,
        )
    }

    /// Stops watching for them: the socket is the program's again.
    pub fn ignore_kernels(&self, backing: BorrowedFd<'_>) {
        // It was not heard of where the kernel has none for it.
        let _ = epoll::delete(&self.epoll, backing);
    }

    /// Notes all that has happened on our ends of pairs.
    pub fn take_events(&mut self) {
        let mut events = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; EVENTS];
        let now = Timespec::default();
        // Each is news once: there are no more than ends.
        while let Ok(count) = epoll::wait(&self.epoll, &mut events[..], Some(&now)) {
            for event in &events[..count] {
                self.note_event(event.flags, event.data.u64());
            }
            if count < EVENTS {
                return;
            }
        }
    }

    fn note_event(&mut self, flags: EventFlags, data: u64) {
        let (key, is_kernels) = (data & !KERNELS, data & KERNELS != 0);
        match self.served.get_mut(&key) {
            Some(Served::Relay(relay)) => {
                relay.on_events(flags);
                relay.bell.ring();
            }
            Some(Served::Queue(_)) if !is_kernels && flags.contains(EventFlags::HUP) => {
                self.drop_queue(key);
            }
            Some(Served::Queue(queue)) => queue.bell.ring(),
            Some(Served::Datagrams(datagrams)) => datagrams.bell.ring(),
            None => {}
        }
    }
}
