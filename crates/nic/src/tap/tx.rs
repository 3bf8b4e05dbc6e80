//! Sending: one gathering write for each frame, large segments whole.

use std::io;
use std::os::fd::AsFd as _;

use super::{Tap, sys};
use crate::driver::TxFrame;

impl Tap {
    pub(super) fn send(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        for (taken, frame) in frames.iter().enumerate() {
            let Err(error) = sys::send(self.fd.as_fd(), frame) else {
                self.retry.on_taken();
                self.counters.tx_frames += 1;
                self.counters.tx_bytes += frame.frame_len() as u64;
                continue;
            };
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {
                    self.counters.tx_busy += 1;
                    self.retry.on_busy();
                    return Ok(taken);
                }
                // The frame contradicts itself, or the file that its payload lies in was cut short
                // (EFAULT): no retry would send it.
                Some(libc::EINVAL | libc::EMSGSIZE | libc::EFAULT) => {
                    self.counters.tx_dropped += 1;
                }
                // EIO while it is down, EBADFD once it is gone.
                _ => {
                    self.counters.tx_dropped += 1;
                    self.miss(&error)?;
                }
            }
        }
        Ok(frames.len())
    }
}
