//! Receiving: frames are copied out of the ring before anybody looks at them.

use std::io;

use super::error::broken;
use super::{WireEnd, wants_room};
use crate::driver::{RxChecksum, RxFrame};

impl WireEnd {
    pub(super) fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        self.wake()?;
        let mut received = 0;
        while received < budget {
            let popped = self
                .incoming
                .pop(&self.region, &mut self.buffer)
                .map_err(broken)?;
            let Some(record) = popped else { break };
            let checksum = if record.partial {
                RxChecksum::Partial
            } else {
                RxChecksum::Unknown
            };
            let bytes = &self.buffer[..record.len];
            sink(RxFrame {
                bytes,
                checksum,
                segment_size: record.segment_size,
                arrived_at_ns: None,
            });
            received += 1;
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += record.len as u64;
        }
        if received > 0 {
            self.ring_if(wants_room(1 - self.side))?;
        }
        Ok(received)
    }
}
