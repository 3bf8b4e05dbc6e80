//! Receiving datagrams: records out of the receive ring and of the error queue.

use std::io::IoSliceMut;

use hostif::Window;
use hostif::datagram::{Failure, RECORD_BYTES, RawRecord, Received, record_bytes};
use rustix::io::Errno;

use crate::engines::inline_engine::{DirectReceive, InlineEngine};
use crate::engines::session::Session;
use crate::socket::LockedWindow;
use crate::threads::signal_deferral::SignalMask;
use crate::udp::socket::UdpSocket;
use crate::wait::sleep::Woken;
use crate::wait::{Until, wait_with_buffer};

/// Records of a receive ring, with its lock held. The engine looks up which were taken when the ring seems full.
pub struct DatagramReceiver<'a> {
    ring: LockedWindow<'a>,
    start: u64,
    taken: u64,
}

/// A record and how much of its payload was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered<T> {
    /// All but the payload.
    pub record: T,
    /// Bytes copied.
    pub copied: usize,
    /// Some did not fit (MSG_TRUNC).
    pub is_cut: bool,
}

impl<T> Delivered<T> {
    /// What `slices` have room for of `len` bytes, from byte `from` on, of which `copied` were copied (`udp_recvmsg`).
    fn new(record: T, (from, len): (u64, u32), copied: usize, room: usize) -> Delivered<T> {
        let (room, len) = (room as u64, u64::from(len));
        Delivered {
            record,
            copied,
            is_cut: room < len && room <= len - from,
        }
    }
}

fn capacity_of(slices: &[IoSliceMut<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

impl UdpSocket {
    /// A way into the receive ring; `None`: it is empty.
    ///
    /// # Errors
    /// ECONNRESET: the engine is gone.
    pub fn receiver(&self) -> Result<Option<DatagramReceiver<'_>>, Errno> {
        if self.readable_bytes() == 0 {
            return Ok(None);
        }
        let attachment = self.attachment()?;
        let ring = self.lock_receive_window(attachment, self.rings()?.receive)?;
        let start = ring.header.consumed();
        Ok(Some(DatagramReceiver {
            ring,
            start,
            taken: start,
        }))
    }

    /// Bytes of the first datagram that waits; `None`: none does.
    ///
    /// # Errors
    /// As [`Self::receiver`].
    pub fn next_bytes(&self) -> Result<Option<usize>, Errno> {
        let Some(receiver) = self.receiver()? else {
            return Ok(None);
        };
        let next = receiver.look()?;
        Ok(next.map(|record| usize::try_from(record.len).unwrap_or(0)))
    }

    /// Takes the oldest entry of the error queue; `None`: it is empty.
    ///
    /// # Errors
    /// ECONNRESET: the engine is gone.
    pub fn take_failure(
        &self,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<Option<Delivered<Failure>>, Errno> {
        if !self.has_failures() {
            return Ok(None);
        }
        let attachment = self.attachment()?;
        let errors = self.rings()?.errors;
        let window = self.region().window(errors).ok_or(Errno::PROTO)?;
        let header = self.header();
        let _held = self.hold(attachment, header.receive_lock())?;
        let (end, taken) = header.failures();
        if end == taken {
            return Ok(None);
        }
        let mut raw: RawRecord = [0; RECORD_BYTES];
        window.copy_out(taken, &mut raw);
        let record = Failure::decode(&raw).map_err(|_| Errno::PROTO)?;
        let room = capacity_of(slices);
        let copied = copy(&window, taken, (0, record.len), slices);
        let next = taken + record_bytes(record.len);
        header.program_set_failures_taken(next);
        if next == end {
            // With the last entry the pending error is gone too (sock_dequeue_err_skb).
            let _ = header.program_take_soft_error();
        }
        let whole = (0, record.len);
        Ok(Some(Delivered::new(record, whole, copied, room)))
    }
}

impl UdpSocket {
    /// A call that receives has found nothing: as [`SocketCore::on_idle_call`](crate::SocketCore::on_idle_call).
    pub fn on_idle_receive(&self) {
        self.on_idle_call_of(Some(self));
    }
}

impl DirectReceive for UdpSocket {
    fn poll(&self, inline_engine: &dyn InlineEngine) {
        match self.attachment_of_living() {
            Some(attachment) => inline_engine.poll_for_datagrams((attachment.session, self.id())),
            None => inline_engine.poll(),
        }
    }
}

/// As [`wait_on`](crate::wait_on), for a UDP socket that `until` looks at itself.
pub fn wait_for_datagrams(
    sessions: &[&Session],
    socket: &UdpSocket,
    kernel: &mut [libc::pollfd],
    mask: SignalMask<'_>,
    until: Until<'_>,
) -> Result<Woken, Errno> {
    wait_with_buffer(sessions, &[socket], kernel, mask, until, Some(socket))
}

impl DatagramReceiver<'_> {
    /// The next record without its payload.
    fn look(&self) -> Result<Option<Received>, Errno> {
        self.look_at(self.taken)
    }

    fn look_at(&self, start: u64) -> Result<Option<Received>, Errno> {
        let left = self.ring.header.received_end().saturating_sub(start);
        if left == 0 {
            return Ok(None);
        }
        let mut raw: RawRecord = [0; RECORD_BYTES];
        self.ring.window.copy_out(start, &mut raw);
        let record = Received::decode(&raw).map_err(|_| Errno::PROTO)?;
        // Another holder of the socket may have scribbled there.
        if u64::from(record.room) > left {
            return Err(Errno::PROTO);
        }
        Ok(Some(record))
    }

    /// Copies the next datagram out, as far as `slices` go; `None`: there is none. With `peek`
    /// it stays.
    ///
    /// # Errors
    /// EPROTO: another holder has damaged the ring.
    pub fn next(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Option<Delivered<Received>>, Errno> {
        let Some(record) = self.look()? else {
            return Ok(None);
        };
        let (room, whole) = (capacity_of(slices), (0, record.len));
        let copied = copy(&self.ring.window, self.taken, whole, slices);
        if !peek {
            self.taken += u64::from(record.room);
        }
        Ok(Some(Delivered::new(record, whole, copied, room)))
    }

    /// Looks at what waits from byte `offset` of it all on (SO_PEEK_OFF); `None`: there is no more. `seen` is where what was ever looked
    /// at so ends: of that, empty datagrams are passed over too (`__skb_try_recv_from_queue`).
    ///
    /// # Errors
    /// EPROTO: another holder has damaged the ring.
    pub fn look_from(
        &self,
        offset: u64,
        seen: &mut u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<Option<Delivered<Received>>, Errno> {
        let (mut start, mut before) = (self.taken, offset);
        while let Some(record) = self.look_at(start)? {
            let (len, end) = (u64::from(record.len), start + u64::from(record.room));
            if before >= len && (before > 0 || end <= *seen) {
                before -= len;
                start = end;
                continue;
            }
            *seen = end.max(*seen);
            let (room, part) = (capacity_of(slices), (before, record.len));
            let copied = copy(&self.ring.window, start, part, slices);
            return Ok(Some(Delivered::new(record, part, copied, room)));
        }
        Ok(None)
    }
}

impl Drop for DatagramReceiver<'_> {
    fn drop(&mut self) {
        if self.taken == self.start {
            return;
        }
        self.ring.header.program_set_consumed(self.taken);
        self.ring.header.program_count_read();
    }
}

/// Copies the payload of the record at `start`, of `len` bytes from byte `from` on; returns how much of it there was room for.
fn copy(
    window: &Window<'_>,
    start: u64,
    (from, len): (u64, u32),
    slices: &mut [IoSliceMut<'_>],
) -> usize {
    let len = usize::try_from(u64::from(len).saturating_sub(from)).unwrap_or(0);
    let payload = start + RECORD_BYTES as u64 + from;
    let mut done = 0;
    for slice in slices {
        let part = slice.len().min(len - done);
        done += window.copy_out(payload + done as u64, &mut slice[..part]);
        if done == len {
            break;
        }
    }
    done
}
