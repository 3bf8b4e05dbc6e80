//! Receiving: frames of this core's queue, those that other cores have handed over, and for them theirs.

use super::sys::Mbuf;
use super::{BURST, Dpdk};
use crate::driver::{Counters, RxFrame};
use crate::whole_tcp::is_whole_tcp;

impl Dpdk {
    pub(super) fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.wake();
        let (mut looked_at, mut handed) = (0, 0);
        while looked_at < budget {
            if self.received.is_empty() {
                self.fetch();
            }
            if self.received.is_empty() {
                break;
            }
            let Self {
                received,
                counters,
                whole,
                ..
            } = self;
            let count = received.len().min(budget - looked_at);
            for mbuf in received.drain(..count) {
                handed += usize::from(deliver(&mbuf, counters, whole, sink));
            }
            looked_at += count;
            if count < usize::from(BURST) {
                break;
            }
        }
        handed
    }

    /// Looks for frames of this core, and hands others theirs.
    pub(super) fn fetch(&mut self) {
        let Some(attached) = &self.attached else {
            return;
        };
        let (port, queue) = (&attached.port, self.queue);
        let Some(core_of_frame) = &self.core_of_frame else {
            port.receive(queue, &mut self.received, BURST);
            return;
        };
        let inboxes = &attached.inboxes;
        if let Some(inbox) = inboxes.get(usize::from(queue)) {
            inbox.take(&mut self.received, BURST);
        }
        port.receive(queue, &mut self.arrived, BURST);
        for mbuf in self.arrived.drain(..) {
            let core = core_of_frame(mbuf.look().first) % self.caps.queues;
            if core == queue {
                self.received.push(mbuf);
                continue;
            }
            self.counters.rx_elsewhere += u64::from(is_whole_tcp(mbuf.look().first));
            if !inboxes[usize::from(core)].put(mbuf) {
                self.counters.rx_dropped += 1;
            }
        }
    }
}

/// Whether the sink got it.
fn deliver(
    mbuf: &Mbuf,
    counters: &mut Counters,
    whole: &mut [u8],
    sink: &mut dyn FnMut(RxFrame<'_>),
) -> bool {
    let look = mbuf.look();
    let bytes = if look.len == look.first.len() {
        look.first
    } else if look.len <= whole.len() {
        let len = mbuf.gather(&mut whole[..look.len]);
        &whole[..len]
    } else {
        counters.rx_dropped += 1;
        return false;
    };
    counters.rx_frames += 1;
    counters.rx_bytes += bytes.len() as u64;
    sink(RxFrame {
        bytes,
        checksum: look.checksum,
        segment_size: None,
        arrived_at_ns: None,
    });
    true
}
