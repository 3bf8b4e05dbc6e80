//! Sending datagrams: records into the send ring, one note for all that were written under one lock.

use std::io::IoSlice;

use hostif::datagram::{Outgoing, PAYLOAD_MAX, RECORD_BYTES, record_bytes};
use hostif::header::SHUT_WRITE;
use hostif::{SocketHeader, Written};
use rustix::io::Errno;

use crate::engines::attachment::SMALL_BYTES;
use crate::socket::{LockedWindow, Socket};
use crate::udp::socket::UdpSocket;

/// Records on their way into a send ring, with its lock held. The engine hears of them when it is dropped.
pub struct DatagramSender<'a> {
    ring: LockedWindow<'a>,
    start: u64,
    end: u64,
}

impl UdpSocket {
    /// A way into the send ring.
    ///
    /// # Errors
    /// The pending error; EPIPE after a shutdown; ECONNRESET: the engine is gone.
    pub fn sender(&self) -> Result<DatagramSender<'_>, Errno> {
        if let Some(error) = self.take_error() {
            return Err(error);
        }
        if self.header().shut() & SHUT_WRITE != 0 {
            return Err(Errno::PIPE);
        }
        let attachment = self.attachment()?;
        let ring = self.lock_send_window(attachment, self.rings()?.send)?;
        let start = ring.header.written();
        Ok(DatagramSender {
            ring,
            start,
            end: start,
        })
    }
}

impl DatagramSender<'_> {
    /// Writes one datagram; its length is that of `slices`. Returns how long that is.
    ///
    /// # Errors
    /// EAGAIN: the ring is full; EMSGSIZE: it never fits.
    pub fn push(&mut self, record: &Outgoing, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        let short = u32::try_from(len).ok().filter(|len| *len <= PAYLOAD_MAX);
        let record = Outgoing {
            len: short.ok_or(Errno::MSGSIZE)?,
            ..*record
        };
        let bytes = record_bytes(record.len);
        let size = self.ring.window.size() as u64;
        if bytes > size {
            return Err(Errno::MSGSIZE);
        }
        let fits = |header: &SocketHeader<'_>| {
            self.end.saturating_sub(header.acknowledged()) + bytes <= size
        };
        if !fits(&self.ring.header) {
            self.ring.header.program_want_tx();
            if !fits(&self.ring.header) {
                return Err(Errno::AGAIN);
            }
        }
        self.ring.window.copy_in(self.end, &record.encode());
        let mut at = self.end + RECORD_BYTES as u64;
        for slice in slices {
            at += self.ring.window.copy_in(at, slice) as u64;
        }
        self.end += bytes;
        Ok(len)
    }
}

impl Drop for DatagramSender<'_> {
    fn drop(&mut self) {
        if self.end == self.start {
            return;
        }
        let LockedWindow {
            id,
            attachment,
            ref header,
            ..
        } = self.ring;
        let note = Written::plain(id, self.start, self.end);
        let is_small = self.end - self.start <= SMALL_BYTES as u64;
        // Still under the lock, and before the position, as for streams: who sees it finds the note in a ring, or it is sent. It fails
        // only when the engine is gone, and then the next call says so.
        let is_told = if is_small {
            attachment.tell_of_datagram(&note)
        } else {
            attachment.push(&attachment.sends, &note).is_ok()
        };
        if is_told {
            header.program_set_written(self.end);
            header.program_count_write();
        }
        if is_told && !is_small {
            attachment.ring_engine();
        }
    }
}
