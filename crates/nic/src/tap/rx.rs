//! Receiving: one read for each frame, with its virtio header.

use std::io;

use super::Tap;
use crate::driver::RxFrame;
use crate::vnet;

impl Tap {
    pub(super) fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut received = 0;
        for _ in 0..budget {
            let len = match rustix::io::read(&self.fd, &mut self.buffer[..]) {
                Ok(len) => len,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                Err(error) => {
                    self.miss(&error.into())?;
                    break;
                }
            };
            let bytes = &self.buffer[..len];
            match vnet::parse(bytes) {
                Some((checksum, segment_size)) => {
                    let bytes = &bytes[vnet::LEN..];
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += bytes.len() as u64;
                    received += 1;
                    sink(RxFrame {
                        bytes,
                        checksum,
                        segment_size,
                        arrived_at_ns: None,
                    });
                }
                None => self.counters.rx_dropped += 1,
            }
        }
        Ok(received)
    }
}
