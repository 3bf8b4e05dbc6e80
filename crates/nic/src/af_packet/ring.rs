//! The receive ring: which frame is next, and where to go on with a ring that another process has used.
//!
//! The kernel fills frames one after the other, and we give them back in the same order. Before a frame is looked at it
//! gets a number, the next one each time, in a word of its header that the kernel clears when it fills the frame. So a
//! process that takes the ring up knows which frame the one before was about, and where the kernel fills next.

mod sys;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::sys::drop_queued;
use sys::Mapping;
pub(super) use sys::RxFrame;

/// Memory that the kernel allocates in one piece for small frames of the ring.
const BLOCK_BYTES: u32 = 64 * 1024;

/// The size of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of each frame.
    pub frame_bytes: u32,
    /// How many there are.
    pub frame_count: u32,
}

impl Geometry {
    /// As many frames as whole blocks hold.
    pub(super) fn new(frame_bytes: u32, frame_count: u32) -> Self {
        let whole = Self {
            frame_bytes,
            frame_count,
        };
        let frame_count = frame_count - frame_count % whole.frames_per_block();
        Self {
            frame_bytes,
            frame_count,
        }
    }

    /// Frames that divide [`BLOCK_BYTES`] lie in blocks of that, others in a block each.
    fn frames_per_block(self) -> u32 {
        if self.frame_bytes > 0 && BLOCK_BYTES.is_multiple_of(self.frame_bytes) {
            (BLOCK_BYTES / self.frame_bytes).min(self.frame_count.max(1))
        } else {
            1
        }
    }
}

/// See the file's head.
pub(super) struct Ring {
    mapping: Mapping,
    next: usize,
    /// Of the frame that was looked at last; 0: none was.
    number: u32,
}

impl Ring {
    /// Asks the socket for a ring.
    pub(super) fn make(socket: &OwnedFd, geometry: Geometry) -> io::Result<Self> {
        Self::request(socket.as_fd(), geometry)?;
        Self::map(socket, geometry)
    }

    /// As [`Self::make`], for another process.
    pub(super) fn request(socket: BorrowedFd<'_>, geometry: Geometry) -> io::Result<()> {
        Mapping::request(socket, geometry)
    }

    /// The ring that the socket has and nobody has used.
    pub(super) fn map(socket: &OwnedFd, geometry: Geometry) -> io::Result<Self> {
        Ok(Self {
            mapping: Mapping::map(socket, geometry)?,
            next: 0,
            number: 0,
        })
    }

    /// Takes up the ring that the socket has, where another process has stopped; `None`: where that was cannot be told.
    /// The frame that it was about is given back: it may be what has ended that process.
    pub(super) fn take_up(socket: &OwnedFd, geometry: Geometry) -> io::Result<Option<Self>> {
        let mapping = Mapping::map(socket, geometry)?;
        let place = place(mapping.frame_count(), |index| Seen {
            is_ready: mapping.frame(index).is_ready(),
            number: mapping.frame(index).note().load(Ordering::Relaxed),
        });
        let Some((next, number)) = place else {
            return Ok(None);
        };
        let mut ring = Self {
            mapping,
            next,
            number,
        };
        let frame = ring.mapping.frame(next);
        if frame.is_ready() && frame.note().load(Ordering::Relaxed) != 0 {
            // A long one is in the socket's queue as well, unless it was received.
            if let Some(slot) = frame.slot().filter(|slot| slot.copied) {
                drop_queued(socket.as_fd(), slot.bytes);
            }
            ring.release();
        }
        Ok(Some(ring))
    }

    /// Whether there is a next frame.
    pub(super) fn is_ready(&self) -> bool {
        self.mapping.frame(self.next).is_ready()
    }

    /// The next frame, if there is one; `None` in it: its header points outside it.
    #[inline(always)]
    pub(super) fn look(&mut self) -> Option<Option<RxFrame<'_>>> {
        let frame = self.mapping.frame(self.next);
        if !frame.is_ready() {
            return None;
        }
        self.number = self.number.wrapping_add(1).max(1);
        frame.note().store(self.number, Ordering::Relaxed);
        Some(frame.slot())
    }

    /// Gives the next frame back to the kernel.
    pub(super) fn release(&mut self) {
        self.mapping.release(self.next);
        self.next += 1;
        if self.next == self.mapping.frame_count() {
            self.next = 0;
        }
    }
}

/// What a process that takes up a ring sees of a frame.
#[derive(Clone, Copy)]
struct Seen {
    is_ready: bool,
    number: u32,
}

/// The next frame, and the number of the last one; `None`: all are ready, and which came first is not to be seen. The kernel may
/// fill frames meanwhile.
fn place(count: usize, see: impl Fn(usize) -> Seen) -> Option<(usize, u32)> {
    let before = |index: usize| index.checked_sub(1).unwrap_or(count - 1);
    let frames = || (0..count).map(|index| (index, see(index)));
    let is_later = |one: u32, other: u32| other == 0 || one.wrapping_sub(other) < u32::MAX / 2;
    let mut last = (None, 0);
    for (index, frame) in frames() {
        if frame.number != 0 && is_later(frame.number, last.1) {
            last = (Some(index), frame.number);
        }
    }
    let Some((ready, _)) = frames().find(|(_, frame)| frame.is_ready) else {
        let next = last.0.map_or(0, |index| (index + 1) % count);
        return Some((next, last.1));
    };
    let mut next = ready;
    for _ in 0..count {
        if !see(before(next)).is_ready {
            return Some((next, last.1));
        }
        next = before(next);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As text: `-` the kernel's, `r` ready, `x` ready and looked at; the number of the last one in place of the mark of one that
    /// was given back.
    fn place_of(frames: &str) -> Option<(usize, u32)> {
        let seen: Vec<Seen> = frames
            .split(' ')
            .map(|frame| Seen {
                is_ready: frame.starts_with(['r', 'x']),
                number: frame
                    .trim_start_matches(['r', 'x', '-'])
                    .parse()
                    .unwrap_or(0),
            })
            .collect();
        place(seen.len(), |index| seen[index])
    }

    #[test]
    fn a_ring_is_taken_up_at_the_frame_that_was_filled_first_or_is_filled_next() {
        let cases = [
            ("- - - -", Some((0, 0))),
            ("1 2 - -", Some((2, 2))),
            ("5 6 3 4", Some((2, 6))),
            ("4 5 6 3", Some((3, 6))),
            ("3 4 5 6", Some((0, 6))),
            ("r - - -", Some((0, 0))),
            ("1 2 r r", Some((2, 2))),
            ("r 6 7 r", Some((3, 7))),
            ("1 x2 r -", Some((1, 2))),
            ("r r x7 r", None),
            ("4294967294 4294967295 1 4294967293", Some((3, 1))),
        ];
        for (frames, place) in cases {
            assert_eq!(place_of(frames), place, "{frames}");
        }
    }

    #[test]
    fn a_frame_that_is_filled_while_the_ring_is_looked_at_is_not_taken_for_the_first() {
        use std::cell::Cell;
        // The kernel fills both after the first was looked at.
        let looks = Cell::new(0);
        let see = |index: usize| {
            looks.set(looks.get() + 1);
            // A first pass over four frames, and one look.
            let is_filled = looks.get() > 5 && (index == 0 || index == 1);
            Seen {
                is_ready: is_filled,
                number: if index == 3 { 9 } else { 0 },
            }
        };
        assert_eq!(place(4, see), Some((0, 9)));
    }
}
