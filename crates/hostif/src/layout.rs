//! Where things lie in a region. Both sides compute the same offsets from the same few numbers.
//!
//! Order: header page · sleep words (128 B) · rings (cmd, snd, rcv, cpl) · socket
//! headers · window pairs. Each part starts on a page. This file maps no memory.

/// Page size that offsets are aligned to.
pub const PAGE_BYTES: u64 = 4096;
/// Size of one ring slot.
pub const SLOT_BYTES: u64 = 64;
/// Bytes before the slots of a ring (the consumer's index, on a cache line of its own).
pub const RING_PREFIX_BYTES: u64 = 64;
/// Size of one socket header.
pub const SOCKET_HEADER_BYTES: u64 = 320;
/// Where in the header page answers to queries lie.
pub const ANSWER_OFFSET: u64 = 1024;
/// Words of an answer at most.
pub const ANSWER_WORDS: usize = 64;
/// Sleep words: the engine's and the program's, a cache line each.
pub const SLEEP_BLOCK_BYTES: u64 = 128;
/// No region is larger than this (64 TiB would not fit a process's address space beside others).
pub const MAX_REGION_BYTES: u64 = 1 << 42;

/// Entries of each ring; powers of two between 2 and 65536.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingEntries {
    /// Commands, program to engine.
    pub command: u32,
    /// `Written` notes, program to engine.
    pub send: u32,
    /// `Consumed` notes, program to engine.
    pub receive: u32,
    /// Completions and events, engine to program.
    pub completion: u32,
}

/// The numbers that a region's layout follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Sizes of the rings.
    pub ring_entries: RingEntries,
    /// Number of socket headers.
    pub socket_headers: u32,
    /// Number of send and receive window pairs.
    pub window_pairs: u32,
    /// Bytes of each send window; a power of two, at least a page.
    pub send_window_bytes: u32,
    /// Bytes of each receive window; a power of two, at least a page.
    pub receive_window_bytes: u32,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            ring_entries: RingEntries {
                command: 1024,
                send: 1024,
                receive: 1024,
                completion: 4096,
            },
            socket_headers: 16384,
            window_pairs: 16384,
            send_window_bytes: 1024 * 1024,
            receive_window_bytes: 1024 * 1024,
        }
    }
}

/// One of the four rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingKind {
    /// Commands, program to engine.
    Command,
    /// `Written` notes, program to engine.
    Send,
    /// `Consumed` notes, program to engine.
    Receive,
    /// Completions and events, engine to program.
    Completion,
}

const RING_ORDER: [RingKind; 4] = [
    RingKind::Command,
    RingKind::Send,
    RingKind::Receive,
    RingKind::Completion,
];

/// Why numbers make no layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A count or size is zero, not a power of two, or out of its bounds.
    #[error("the region's {0} is out of bounds")]
    OutOfBounds(&'static str),
    /// The whole would be larger than [`MAX_REGION_BYTES`].
    #[error("the region would be too large")]
    TooLarge,
}

impl Layout {
    /// Checks every number; all offsets of a checked layout fit in a `u64` without overflow.
    pub fn check(&self) -> Result<(), LayoutError> {
        let within = |value: u32, low: u32, high: u32, name| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(LayoutError::OutOfBounds(name))
            }
        };
        let power = |value: u32, low: u32, high: u32, name| {
            within(value, low, high, name)?;
            if value.is_power_of_two() {
                Ok(())
            } else {
                Err(LayoutError::OutOfBounds(name))
            }
        };
        for kind in RING_ORDER {
            power(self.entries(kind), 2, 65536, "ring size")?;
        }
        within(self.socket_headers, 1, 1 << 22, "number of socket headers")?;
        within(self.window_pairs, 1, 1 << 22, "number of window pairs")?;
        power(self.send_window_bytes, 4096, 1 << 30, "send window size")?;
        power(
            self.receive_window_bytes,
            4096,
            1 << 30,
            "receive window size",
        )?;
        if self.region_bytes() > MAX_REGION_BYTES {
            Err(LayoutError::TooLarge)
        } else {
            Ok(())
        }
    }

    /// Entries of one kind of ring.
    #[must_use]
    pub fn entries(&self, kind: RingKind) -> u32 {
        match kind {
            RingKind::Command => self.ring_entries.command,
            RingKind::Send => self.ring_entries.send,
            RingKind::Receive => self.ring_entries.receive,
            RingKind::Completion => self.ring_entries.completion,
        }
    }

    /// Offset of the sleep words.
    #[must_use]
    pub fn sleep_block(&self) -> u64 {
        PAGE_BYTES
    }

    fn rings_start(&self) -> u64 {
        page_up(PAGE_BYTES + SLEEP_BLOCK_BYTES)
    }

    fn ring_bytes(&self, kind: RingKind) -> u64 {
        page_up(RING_PREFIX_BYTES + u64::from(self.entries(kind)) * SLOT_BYTES)
    }

    /// Offset of a ring.
    #[must_use]
    pub fn ring(&self, kind: RingKind) -> u64 {
        let before: u64 = RING_ORDER
            .iter()
            .take_while(|other| **other != kind)
            .map(|other| self.ring_bytes(*other))
            .sum();
        self.rings_start() + before
    }

    /// Offset of the first socket header.
    #[must_use]
    pub fn headers_start(&self) -> u64 {
        let rings: u64 = RING_ORDER.iter().map(|kind| self.ring_bytes(*kind)).sum();
        self.rings_start() + rings
    }

    /// Offset of a socket header; `None` when there is none with that index.
    #[must_use]
    pub fn socket_header(&self, index: u32) -> Option<u64> {
        (index < self.socket_headers)
            .then(|| self.headers_start() + u64::from(index) * SOCKET_HEADER_BYTES)
    }

    /// Offset of the first window; all bytes from here on are windows.
    #[must_use]
    pub fn windows_start(&self) -> u64 {
        page_up(self.headers_start() + u64::from(self.socket_headers) * SOCKET_HEADER_BYTES)
    }

    /// Offsets of the send and the receive window of a pair; `None` when there is no such pair.
    #[must_use]
    pub fn window_pair(&self, index: u32) -> Option<(u64, u64)> {
        (index < self.window_pairs).then(|| {
            let start = self.windows_start() + u64::from(index) * self.pair_stride();
            (start, start + u64::from(self.send_window_bytes))
        })
    }

    /// From one pair to the next: a power of two, so that a group of pairs is one too. What lies between two pairs is
    /// never touched and takes no memory.
    #[must_use]
    pub fn pair_stride(&self) -> u64 {
        let pair = u64::from(self.send_window_bytes) + u64::from(self.receive_window_bytes);
        pair.next_power_of_two()
    }

    /// Size of the whole region.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.windows_start() + u64::from(self.window_pairs) * self.pair_stride()
    }
}

fn page_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_layout_is_valid_and_its_parts_do_not_overlap() {
        let layout = Layout::default();
        layout.check().unwrap();
        let mut last_end = layout.sleep_block() + SLEEP_BLOCK_BYTES;
        for kind in RING_ORDER {
            let start = layout.ring(kind);
            assert!(start >= last_end && start.is_multiple_of(PAGE_BYTES));
            last_end = start + RING_PREFIX_BYTES + u64::from(layout.entries(kind)) * SLOT_BYTES;
        }
        assert!(layout.socket_header(0).unwrap() >= last_end);
        let last = layout.socket_header(layout.socket_headers - 1).unwrap();
        assert!(layout.windows_start() >= last + SOCKET_HEADER_BYTES);
        let (_, receive) = layout.window_pair(layout.window_pairs - 1).unwrap();
        assert_eq!(
            receive + u64::from(layout.receive_window_bytes),
            layout.region_bytes()
        );
        assert_eq!(layout.socket_header(layout.socket_headers), None);
        assert_eq!(layout.window_pair(layout.window_pairs), None);
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        let good = Layout::default();
        assert!(
            Layout {
                send_window_bytes: 5000,
                ..good
            }
            .check()
            .is_err()
        );
        assert!(
            Layout {
                socket_headers: u32::MAX,
                ..good
            }
            .check()
            .is_err()
        );
        let huge = Layout {
            window_pairs: 1 << 22,
            send_window_bytes: 1 << 30,
            ..good
        };
        assert_eq!(huge.check(), Err(LayoutError::TooLarge));
        let entries = RingEntries {
            send: 3,
            ..good.ring_entries
        };
        assert!(
            Layout {
                ring_entries: entries,
                ..good
            }
            .check()
            .is_err()
        );
    }
}
