//! Receiving from the queue of a socket that has no ring, until another process has made one for a second socket.
//!
//! Before a packet socket has its ring the kernel waits until no processor is in the middle of a packet (`packet_set_ring` in
//! net/packet/af_packet.c), 10 to 20 ms whatever the ring's size, and twice that when it is closed. A program that fetches one page is
//! over before that. So the first socket has no ring; each frame takes a system call. Once there are many of them the second socket
//! is bound in its place. For some microseconds both receive: what the ring has again is not delivered twice.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::filter::NOTHING;
use super::ring::Ring;
use super::sys::{self, Queued};
use super::{AfPacket, Config, OpenError, geometry, read};
use rustix::net::RecvFlags;

use crate::driver::RxFrame;
use crate::vnet;

/// Frames after which it is looked whether there is a ring, each time.
const FRAMES_PER_LOOK: u32 = 256;
/// Frames that are compared with those in the ring: so many do not arrive between two system calls.
const FRAMES_COMPARED: usize = 256;

/// Of each: less than a frame of any ring holds.
const BYTES_COMPARED: usize = 1024;

/// A socket for which somebody else makes the ring: see [`make_ring`].
pub(super) struct Later {
    /// Neither bound nor with a ring, at first.
    ring_socket: OwnedFd,
    /// Of frames that were received.
    until_look: u32,
    /// The ring is in use.
    tell: fn(),
}

impl Later {
    pub(super) fn new(ring_socket: OwnedFd, tell: fn()) -> Self {
        Self {
            ring_socket,
            until_look: FRAMES_PER_LOOK,
            tell,
        }
    }
}

/// How far the first socket has come.
pub(super) enum Queue {
    /// It is the only one that receives.
    Alone(Later),
    /// It receives nothing more, and what it has comes before what is in the ring; the newest that came from it, as hashes.
    Emptied {
        before: OwnedFd,
        seen: VecDeque<u64>,
        tell: fn(),
    },
    /// The ring begins with frames that were received already: these, as hashes.
    Again(VecDeque<u64>),
}

/// Makes the ring for a second socket of [`AfPacket::ring_socket`] on `interface`, of the size that its driver maps.
///
/// # Errors
/// As [`AfPacket::open`].
pub fn make_ring(interface: &str, socket: BorrowedFd<'_>) -> Result<(), OpenError> {
    let geometry = geometry(&Config::new(interface), &read(interface)?, true);
    Ring::request(socket, geometry).map_err(|source| OpenError::Ring { geometry, source })
}

impl AfPacket {
    /// The second socket, whose ring another process is to make by [`make_ring`]; both processes keep it open.
    #[must_use]
    pub fn ring_socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.queue {
            Some(Queue::Alone(later)) => Some(later.ring_socket.as_fd()),
            _ => None,
        }
    }

    /// Receives what the first socket has, and passes what the ring has again. How many frames these were, and how many of them were
    /// delivered.
    pub(super) fn receive_queued(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<(usize, usize)> {
        match self.queue.take() {
            Some(Queue::Alone(later)) => {
                let done = self.take_from_queue(budget, sink, None);
                let frames = done.as_ref().map_or(0, |done| done.0);
                self.queue = Some(self.look_for_ring(later, frames));
                done
            }
            Some(Queue::Emptied {
                before,
                mut seen,
                tell,
            }) => {
                let own = std::mem::replace(&mut self.socket, before);
                let done = self.take_from_queue(budget, sink, Some(&mut seen));
                let before = std::mem::replace(&mut self.socket, own);
                // One that cannot be read has nothing more to say.
                self.queue = if done.as_ref().is_ok_and(|done| done.0 == budget) {
                    Some(Queue::Emptied { before, seen, tell })
                } else {
                    drop(before);
                    tell();
                    Some(Queue::Again(seen))
                };
                done
            }
            Some(Queue::Again(seen)) => {
                self.queue = self.pass_what_was_seen(seen);
                Ok((0, 0))
            }
            None => Ok((0, 0)),
        }
    }

    fn take_from_queue(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
        mut seen: Option<&mut VecDeque<u64>>,
    ) -> io::Result<(usize, usize)> {
        let (mut handled, mut received) = (0, 0);
        while handled < budget {
            let queued = match sys::receive(self.socket.as_fd(), &mut self.long) {
                Ok(Some(queued)) => queued,
                Ok(None) => break,
                Err(error) => {
                    self.miss(&error)?;
                    break;
                }
            };
            handled += 1;
            if let Some(seen) = &mut seen {
                seen.truncate(FRAMES_COMPARED - 1);
                let frame = self.long.get(vnet::LEN..queued.len).unwrap_or_default();
                seen.push_front(hash_of(frame.len(), frame));
            }
            match deliver(&self.long, &queued, sink) {
                Some(len) => {
                    received += 1;
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += len as u64;
                }
                None => self.counters.rx_dropped += 1,
            }
            // For the next one as long.
            let longest = self.long.len().max(queued.len);
            self.long.resize(longest, 0);
        }
        Ok((handled, received))
    }

    /// Goes on with the second socket if it has a ring.
    fn look_for_ring(&mut self, mut later: Later, frames: usize) -> Queue {
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        later.until_look = later.until_look.saturating_sub(frames);
        if later.until_look > 0 {
            return Queue::Alone(later);
        }
        later.until_look = FRAMES_PER_LOOK;
        let Ok(ring) = Ring::map(&later.ring_socket, self.ring_geometry) else {
            return Queue::Alone(later);
        };
        if self.bind_second(&later.ring_socket).is_err() {
            return Queue::Alone(later);
        }
        // Without room for that the first one receives until it is closed, which is soon.
        let _ = bpf::classic::attach(self.socket.as_fd(), &NOTHING);
        if let Ok(drops) = sys::take_drops(self.socket.as_fd()) {
            let dropped = &self.ring_full;
            dropped.fetch_add(u64::from(drops), Ordering::Relaxed);
        }
        let before = std::mem::replace(&mut self.socket, later.ring_socket);
        self.ring = Some(ring);
        Queue::Emptied {
            before,
            seen: VecDeque::new(),
            tell: later.tell,
        }
    }

    /// Has the second socket receive; where that fails it receives nothing.
    fn bind_second(&self, second: &OwnedFd) -> Result<(), OpenError> {
        self.filter(second.as_fd(), &self.config)?;
        for group in &self.groups {
            sys::change_membership(second.as_fd(), self.index, *group, true)
                .map_err(self.failed("joining a group"))?;
        }
        sys::bind(second.as_fd(), self.index).map_err(self.failed("bind"))
    }

    /// Gives back the frames at the ring's beginning that were delivered already. `None`: it has others now.
    fn pass_what_was_seen(&mut self, mut seen: VecDeque<u64>) -> Option<Queue> {
        let ring = self.ring.as_mut()?;
        while !seen.is_empty()
            && let Some(slot) = ring.look()
        {
            let is_long = slot.as_ref().is_some_and(|slot| slot.copied);
            let hash = slot.map(|slot| hash_of(slot.frame_len, slot.bytes));
            if !pass(&mut seen, hash?) {
                return None;
            }
            if is_long {
                let _ = rustix::net::recv(&self.socket, &mut [0; 1][..], RecvFlags::DONTWAIT);
            }
            ring.release();
        }
        (!seen.is_empty()).then_some(Queue::Again(seen))
    }
}

/// Whether a frame of the ring is one of those that were received, the newest first: it and those before it do not come again.
fn pass(seen: &mut VecDeque<u64>, hash: u64) -> bool {
    let at = seen.iter().rposition(|one| *one == hash);
    seen.truncate(at.unwrap_or(seen.len()));
    at.is_some()
}

/// Of a frame's length and beginning.
fn hash_of(len: usize, frame: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (len, &frame[..len.min(frame.len()).min(BYTES_COMPARED)]).hash(&mut hasher);
    hasher.finish()
}

/// Its length; `None`: it was cut, has a VLAN tag, or its virtio header is wrong.
fn deliver(buffer: &[u8], queued: &Queued, sink: &mut dyn FnMut(RxFrame<'_>)) -> Option<usize> {
    let (offload, bytes) = buffer.get(..queued.len)?.split_at_checked(vnet::LEN)?;
    let (checksum, segment_size) = vnet::parse(offload)?;
    (!queued.tagged).then(|| {
        sink(RxFrame {
            bytes,
            checksum,
            segment_size,
            arrived_at_ns: queued.arrived_at_ns,
        });
        bytes.len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_ring_begins_with_is_passed_once_where_it_was_received() {
        let seen = |numbers: &[u64]| numbers.iter().copied().collect::<VecDeque<u64>>();
        let cases: [(&[u64], &[u64], usize); 6] = [
            (&[], &[1, 2], 0),
            (&[3, 2, 1], &[4, 5], 0),
            // Both had the last two.
            (&[3, 2, 1], &[2, 3, 4], 2),
            (&[3, 2, 1], &[3, 3], 1),
            // Alike, as acknowledgements are: the oldest comes first.
            (&[7, 7, 1], &[7, 7, 7], 2),
            (&[3, 2, 1], &[1, 2, 3, 1], 3),
        ];
        for (received, ring, passed) in cases {
            let mut left = seen(received);
            let count = ring.iter().take_while(|hash| pass(&mut left, **hash));
            assert_eq!(count.count(), passed, "{received:?} {ring:?}");
        }
    }

    #[test]
    fn a_frame_that_the_ring_has_only_in_part_is_the_same() {
        let whole = vec![7; 20_000];
        assert_eq!(hash_of(20_000, &whole), hash_of(20_000, &whole[..16_000]));
        assert_ne!(hash_of(20_000, &whole), hash_of(19_999, &whole[..19_999]));
        assert_ne!(hash_of(2, &[1, 2]), hash_of(2, &[1, 3]));
    }
}
