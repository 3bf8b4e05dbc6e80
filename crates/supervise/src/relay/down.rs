//! From the peer to the program.

use std::io::IoSliceMut;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use super::{PIECES, Phase, ROUNDS_MAX, Relay};
use crate::filter::SIOCOUTQ;
use crate::sys;

impl Relay {
    /// Moves all that fits the pair.
    pub fn drain_down(&mut self, buffer: &mut [u8]) {
        for _ in 0..ROUNDS_MAX {
            if self.phase != Phase::Open || self.hung_up || !self.move_down(buffer) {
                break;
            }
        }
    }

    /// Moves what has come. True: there may be more.
    pub(super) fn move_down(&mut self, buffer: &mut [u8]) -> bool {
        for _ in 0..PIECES {
            if self.socket.readable_bytes() == 0 {
                if self.socket.fin_received() {
                    self.tell_fin();
                }
                return false;
            }
            let Some(ours) = &self.ours else { return false };
            // After the look at the window: what is urgent is known before it is there.
            let is_urgent = self.socket.is_at_mark();
            self.is_marked = self.is_marked && is_unread(ours.as_fd());
            if is_urgent && self.is_marked {
                // TCP has one mark, and a second one of the pair's would take the first one's place.
                return false;
            }
            let len = if is_urgent { 1 } else { buffer.len() };
            let parts = &mut [IoSliceMut::new(&mut buffer[..len])];
            let Ok(there) = self.socket.try_recv(parts, true) else {
                return false;
            };
            let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            flags.set(SendFlags::OOB, is_urgent);
            let taken = match send(ours, &buffer[..there], flags) {
                Ok(taken) => taken,
                // Shut down for reading: TCP goes on to take what comes.
                Err(Errno::PIPE) => there,
                // A kernel without CONFIG_AF_UNIX_OOB: who reads in line misses the byte as ever.
                Err(Errno::OPNOTSUPP) if is_urgent => there,
                Err(_) => return false,
            };
            let _ = self.socket.discard(taken);
            self.is_marked |= is_urgent;
            self.since_urgent = match self.since_urgent {
                _ if is_urgent => Some(0),
                since => since.map(|since| since.saturating_add(taken)),
            };
            if taken < there {
                return false;
            }
        }
        true
    }

    pub(super) fn tell_fin(&mut self) {
        if let Some(ours) = &self.ours
            && !std::mem::replace(&mut self.fin_told, true)
        {
            // Both directions shut are a hang-up at our end too.
            self.shut_both |= self.refuses;
            // It fails only where the program's end is gone.
            let _ = shutdown(ours, Shutdown::Write);
        }
    }
}

/// Whether anything that was put into the pair is there still, be it the mark of an urgent byte that was taken.
fn is_unread(ours: BorrowedFd<'_>) -> bool {
    sys::ask(ours, SIOCOUTQ).is_ok_and(|bytes| bytes > 0)
}
