//! Receiving: frames from the mapped ring, longer ones from the socket itself; before there is a ring, see `queue.rs`.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};

use super::AfPacket;
use crate::driver::RxFrame;
use crate::vnet;

impl AfPacket {
    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        if self.queue.is_some() || self.slept {
            return self.receive_any(budget, sink);
        }
        let (_, received) = self.receive_from_ring(budget, sink)?;
        Ok(received)
    }

    /// The same, after a sleep, and where the first socket may have frames.
    #[inline(never)]
    fn receive_any(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let (mut handled, mut received) = (0, 0);
        if self.queue.is_some() {
            (handled, received) = self.receive_queued(budget, sink)?;
        }
        // What the first socket has left comes before what is in the ring, and frames that the ring has again are passed first.
        if self.queue.is_none() {
            let (more_handled, more_received) = self.receive_from_ring(budget - handled, sink)?;
            handled += more_handled;
            received += more_received;
        }
        // Woken and nothing there: poll(2) also reports that the interface went away.
        if std::mem::take(&mut self.slept)
            && handled == 0
            && let Err(error) = sockopt::socket_error(&self.socket)?
        {
            self.miss(&error.into())?;
        }
        Ok(received)
    }

    /// How many frames the ring had, and how many of them were delivered.
    #[inline(always)]
    fn receive_from_ring(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<(usize, usize)> {
        let (mut handled, mut received, mut failure) = (0, 0, None);
        while handled < budget
            && let Some(ring) = self.ring.as_mut()
            && let Some(slot) = ring.look()
        {
            let long = &mut self.long;
            let socket = self.socket.as_fd();
            let delivered = slot.and_then(|slot| {
                let (offload, bytes) = if slot.copied {
                    receive_long(socket, long, slot.frame_len, &mut failure)?
                } else {
                    (slot.offload, slot.bytes)
                };
                let (checksum, segment_size) = vnet::parse(offload)?;
                let whole = slot.frame_len == bytes.len();
                (whole && !slot.tagged).then(|| {
                    sink(RxFrame {
                        bytes,
                        checksum,
                        segment_size,
                        arrived_at_ns: Some(slot.arrived_at_ns),
                    });
                    bytes.len()
                })
            });
            ring.release();
            handled += 1;
            match delivered {
                Some(len) => {
                    received += 1;
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += len as u64;
                }
                None => self.counters.rx_dropped += 1,
            }
        }
        match failure {
            None => Ok((handled, received)),
            Some(error) => self.miss(&error).map(|()| (handled, received)),
        }
    }
}

/// The virtio header and the frame that did not fit the ring. Such frames wait in the socket in the order
/// of their places in the ring. That the interface went down the next call tells, whatever it asks for, and only once: the frame is still
/// there then.
#[inline(never)]
fn receive_long<'b>(
    socket: BorrowedFd<'_>,
    buffer: &'b mut Vec<u8>,
    frame_len: usize,
    failure: &mut Option<io::Error>,
) -> Option<(&'b [u8], &'b [u8])> {
    let len = frame_len.checked_add(vnet::LEN)?;
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    let mut receive = || recv(socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT);
    let received = receive().or_else(|errno| match errno {
        Errno::NETDOWN => {
            *failure = Some(errno.into());
            receive()
        }
        other => Err(other),
    });
    let received = received.ok()?.1;
    buffer.get(..received)?.split_at_checked(vnet::LEN)
}
