//! Receiving: frames of the queues' rings, and of the packet socket that goes with them.

use std::io;

use ::wire::ethernet;

use super::queue::{Queue, broken};
use super::{AfXdp, checksum};
use crate::driver::{Driver as _, RxChecksum, RxFrame};
use crate::whole_tcp::is_whole_tcp;

impl AfXdp {
    pub(super) fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let slept = std::mem::take(&mut self.slept);
        // First and a part only, so that neither keeps the other waiting.
        let mut received = self.receive_by_packet_socket(budget.div_ceil(4), sink)?;
        let Self {
            queues,
            counters,
            caps,
            believes_partial,
            ..
        } = self;
        let longest = usize::try_from(caps.mtu)
            .unwrap_or(usize::MAX)
            .saturating_add(ethernet::Header::LEN);
        for queue in queues {
            let left = budget.saturating_sub(received);
            let seen = queue.receive(left, &mut |bytes, arrived_at_ns| {
                let segment_size = checksum::segment_size(bytes, caps.mtu);
                if bytes.len() > longest && segment_size.is_none() {
                    // Datagrams that were never cut, and nothing says where.
                    counters.rx_dropped += 1;
                    return;
                }
                let checksum = if *believes_partial {
                    checksum::state(bytes)
                } else {
                    RxChecksum::Unknown
                };
                counters.rx_frames += 1;
                counters.rx_bytes += bytes.len() as u64;
                received += 1;
                sink(RxFrame {
                    bytes,
                    checksum,
                    segment_size,
                    arrived_at_ns,
                });
            });
            seen.map_err(broken)?;
        }
        if received == 0 && slept {
            let mut errors = self.queues.iter().filter_map(Queue::pending_error);
            if let Some(error) = errors.next_back() {
                self.miss(&error)?;
            }
        }
        Ok(received)
    }

    /// What the XDP program left to the kernel: with several cores also what the device had put into another core's queue.
    fn receive_by_packet_socket(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        if self.caps.queues == 1 || self.queues.is_empty() {
            return self.packet.rx_burst(budget, sink);
        }
        let mut elsewhere = 0;
        let received = self.packet.rx_burst(budget, &mut |frame| {
            elsewhere += u64::from(is_whole_tcp(frame.bytes));
            sink(frame);
        })?;
        self.counters.rx_elsewhere += elsewhere;
        Ok(received)
    }
}
