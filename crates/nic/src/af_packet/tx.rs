//! Sending: one gathering system call for each frame, large segments whole.

use std::io;
use std::os::fd::AsFd as _;

use super::{AfPacket, sys};
use crate::driver::TxFrame;

impl AfPacket {
    #[inline(always)]
    pub(super) fn send(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        if let [frame] = frames
            && let Some(len) = sys::small_len(frame)
            && sys::send_small(self.socket.as_fd(), frame).is_ok()
        {
            self.retry.on_taken();
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += len as u64;
            return Ok(1);
        }
        self.send_each(frames)
    }

    /// The same, however many there are. A small one that was refused is offered once more, and what that says is judged.
    #[inline(never)]
    fn send_each(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        for (taken, frame) in frames.iter().enumerate() {
            let len = frame.frame_len();
            match sys::send(self.socket.as_fd(), frame) {
                Ok(()) => {
                    self.retry.on_taken();
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += len as u64;
                }
                Err(error) => {
                    if !self.judge_send(&error)? {
                        return Ok(taken);
                    }
                    self.counters.tx_dropped += 1;
                }
            }
        }
        Ok(frames.len())
    }

    /// What a failed send means: try later (`Ok(false)`), skip the frame (`Ok(true)`), look at the device, or give up.
    fn judge_send(&mut self, error: &io::Error) -> io::Result<bool> {
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR | libc::ENOMEM) => {
                if self.retry.is_long() {
                    self.look_for_carrier();
                }
                if self.lacks_carrier {
                    return Ok(true);
                }
                self.counters.tx_busy += 1;
                self.retry.on_busy();
                Ok(false)
            }
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => self.miss(error).map(|()| true),
            // The frame is longer than the link takes, its offload fields contradict it, or the file
            // that its payload lies in was cut short (EFAULT): no retry would send it, and the frames
            // behind it are not to blame.
            Some(libc::EMSGSIZE | libc::EINVAL | libc::EFAULT) => Ok(true),
            _ => Err(io::Error::new(
                error.kind(),
                format!("sending on {:?}: {error}", self.interface),
            )),
        }
    }
}
