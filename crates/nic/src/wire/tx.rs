//! Sending: frames are copied into the ring, whole.

use std::io;

use super::error::broken;
use super::ring::Pushed;
use super::{WireEnd, sleeping};
use crate::driver::TxFrame;

impl WireEnd {
    pub(super) fn send(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        self.blocked = false;
        let mut taken = 0;
        for frame in frames {
            match self.outgoing.push(&self.region, frame).map_err(broken)? {
                Pushed::Whole => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += frame.frame_len() as u64;
                }
                Pushed::Never => self.counters.tx_dropped += 1,
                Pushed::NoRoom => {
                    self.counters.tx_busy += 1;
                    self.blocked = true;
                    break;
                }
            }
            taken += 1;
        }
        if taken > 0 {
            self.ring_if(sleeping(1 - self.side))?;
        }
        Ok(taken)
    }
}
