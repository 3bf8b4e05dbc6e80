//! Sending: frames into the first queue's ring, large segments whole through the packet socket or cut.
//!
//! The kernel is told once for many frames (`AfXdp::kick`); the caller decides when.

use std::io;
use std::time::Instant;

use ::wire::ethernet;

use super::AfXdp;
use super::queue::{PIECES_MAX, broken};
use super::sys::CHUNK_BYTES;
use crate::driver::{Driver as _, PartialChecksum, TxFrame};
use crate::offload::{Cuts, Pieces};

/// What came of sending one frame.
enum Sent {
    Taken,
    Dropped,
    Busy,
}

impl AfXdp {
    pub(super) fn send(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        for (taken, frame) in frames.iter().enumerate() {
            match self.send_one(frame)? {
                Sent::Taken => self.ring_retry.on_taken(),
                Sent::Dropped => self.counters.tx_dropped += 1,
                Sent::Busy => {
                    self.counters.tx_busy += 1;
                    self.ring_retry.on_busy();
                    return Ok(taken);
                }
            }
        }
        Ok(frames.len())
    }

    /// The interface takes or brings nothing: said once, until it was looked at.
    pub(super) fn miss(&mut self, error: &io::Error) -> io::Result<()> {
        if std::mem::replace(&mut self.is_away, true) {
            return Ok(());
        }
        let text = format!("interface {:?} is down or gone: {error}", self.interface);
        Err(io::Error::new(io::ErrorKind::NetworkUnreachable, text))
    }

    /// Has the kernel send what waits. `false`: the device is busy.
    pub(super) fn kick(&mut self) -> io::Result<bool> {
        let Some(queue) = self.queues.first_mut() else {
            return Ok(true);
        };
        if !queue.is_unkicked {
            return Ok(true);
        }
        match queue.kick() {
            Ok(done) => Ok(done),
            // What is in the ring leaves when the interface is up again, or goes with it.
            Err(error) => match error.raw_os_error() {
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EBADF) => {
                    self.miss(&error).map(|()| true)
                }
                _ => Err(error),
            },
        }
    }

    /// Whether there is room for `pieces`, if need be after the device was told to send.
    fn make_space(&mut self, pieces: usize) -> io::Result<bool> {
        let Some(queue) = self.queues.first_mut().filter(|_| !self.is_held) else {
            return Ok(false);
        };
        let mut has_capacity = queue.room().map_err(broken)? >= pieces;
        if !has_capacity {
            self.kick()?;
            let queue = self.queues.first_mut().expect("invariant: as above");
            has_capacity = queue.room().map_err(broken)? >= pieces;
        }
        if has_capacity {
            self.stall.on_room();
        }
        Ok(has_capacity)
    }

    /// The ring took nothing: the frame has to wait, or goes by the packet socket where the ring has stopped.
    fn send_around(&mut self, frame: &TxFrame<'_>) -> io::Result<Sent> {
        if self.is_away {
            return Ok(Sent::Dropped);
        }
        if !self.stall.on_full(Instant::now()) {
            return Ok(Sent::Busy);
        }
        self.send_by_packet(frame)
    }

    fn send_by_packet(&mut self, frame: &TxFrame<'_>) -> io::Result<Sent> {
        let taken = self.packet.tx_burst(std::slice::from_ref(frame))?;
        Ok(if taken == 1 { Sent::Taken } else { Sent::Busy })
    }

    fn send_one(&mut self, frame: &TxFrame<'_>) -> io::Result<Sent> {
        if self.queues.is_empty() {
            return self.send_by_packet(frame);
        }
        if frame.is_large() {
            return if self.mixes {
                self.send_whole(frame)
            } else {
                self.send_cut(frame)
            };
        }
        let len = frame.frame_len();
        let is_outside = |sum: PartialChecksum| {
            usize::from(sum.start) + usize::from(sum.offset) + 2 > len.min(CHUNK_BYTES)
        };
        if self.is_too_long(len) || frame.checksum.is_some_and(is_outside) {
            return Ok(Sent::Dropped);
        }
        let pieces = len.div_ceil(CHUNK_BYTES);
        if pieces > self.pieces_max() {
            return self.send_whole(frame);
        }
        if !self.make_space(pieces)? {
            return self.send_around(frame);
        }
        self.put(len, Pieces::of(frame));
        self.count_sent(len);
        Ok(Sent::Taken)
    }

    /// The kernel drops longer ones, and a frame has so many pieces at most.
    fn is_too_long(&self, len: usize) -> bool {
        let most = usize::try_from(self.caps.mtu).unwrap_or(usize::MAX);
        len.saturating_sub(ethernet::Header::LEN) > most || len > PIECES_MAX * CHUNK_BYTES
    }

    /// Pieces of a frame that the ring takes; 0 without a ring.
    fn pieces_max(&self) -> usize {
        self.queues.first().map_or(0, |queue| queue.pieces_max)
    }

    /// A frame through the packet socket, behind everything that waits here.
    fn send_whole(&mut self, frame: &TxFrame<'_>) -> io::Result<Sent> {
        if !self.kick()? {
            return self.send_around(frame);
        }
        self.send_by_packet(frame)
    }

    /// A large segment cut to frames: all of it or, where the ring never had room for all, as much as there
    /// is; the peer asks for the rest.
    fn send_cut(&mut self, frame: &TxFrame<'_>) -> io::Result<Sent> {
        let Ok(cuts) = Cuts::of(frame) else {
            return Ok(Sent::Dropped);
        };
        let pieces = cuts.frame_len(0).div_ceil(CHUNK_BYTES);
        if self.is_too_long(cuts.frame_len(0)) {
            return Ok(Sent::Dropped);
        }
        if pieces > self.pieces_max() {
            return self.send_whole(frame);
        }
        if !self.make_space(pieces)? {
            return self.send_around(frame);
        }
        for index in 0..cuts.count() {
            if !self.make_space(pieces)? {
                self.counters.tx_dropped += 1;
                break;
            }
            let len = cuts.frame_len(index);
            self.put(len, Pieces::of_cut(frame, &cuts, index));
        }
        self.count_sent(frame.frame_len());
        Ok(Sent::Taken)
    }

    /// Puts a frame into the ring, which must have room.
    fn put(&mut self, len: usize, pieces: Pieces<'_, '_>) {
        if let Some(queue) = self.queues.first_mut() {
            queue.put(len, pieces);
        }
    }

    fn count_sent(&mut self, len: usize) {
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
    }
}
