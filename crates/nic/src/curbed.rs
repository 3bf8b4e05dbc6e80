//! Any driver with some of its offloads off: to measure what they are worth, and for devices and peers with
//! which they do not work. As `ethtool --offload` does for the kernel.
//!
//! What is off is done in software ([`crate::offload`]), so that the frames on the wire and those that the
//! stack sees are as if the device could not do it.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;

use crate::driver::{
    Caps, Counters, Driver, NeighbourChange, Presence, RxChecksum, RxFrame, TxFrame,
};
use crate::offload::{self, Finisher};

/// Which offloads stay off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Curbs {
    /// No large segments out (TSO, LSO).
    pub segmentation: bool,
    /// No merged segments in (GRO, LRO).
    pub merging: bool,
    /// Checksums are filled and verified in software; large segments need the device to fill theirs, so they
    /// are off as well.
    pub checksums: bool,
    /// Payload from multiples of this only, as some devices want it ([`crate::align`]); 0: from anywhere.
    pub align: u16,
}

impl Curbs {
    /// Whether everything stays on.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// `driver` with these off; itself where that is nothing.
    #[must_use]
    pub fn put_on(self, driver: Box<dyn Driver>) -> Box<dyn Driver> {
        if self.is_empty() {
            driver
        } else {
            Box::new(Curbed::new(driver, self))
        }
    }
}

/// A driver with offloads off.
pub struct Curbed<D> {
    inner: D,
    curbs: Curbs,
    caps: Caps,
    finisher: Finisher,
    /// A received frame whose checksum is being filled.
    whole: Vec<u8>,
}

impl<D: Driver> Curbed<D> {
    /// `inner` without what `curbs` names.
    pub fn new(inner: D, curbs: Curbs) -> Self {
        let mut caps = inner.caps().clone();
        if curbs.segmentation || curbs.checksums {
            caps.tso_max_bytes = 0;
        }
        caps.gro &= !curbs.merging;
        if curbs.checksums {
            caps.tx_checksum = false;
            caps.rx_checksum = false;
            // The payload is summed here.
            caps.payload_by_address = false;
        }
        if curbs.align > 1 {
            caps.align = caps.align.max(curbs.align);
        }
        Self {
            inner,
            curbs,
            caps,
            finisher: Finisher::new(),
            whole: Vec::new(),
        }
    }
}

/// Hands on a received frame as a device without the offloads would have delivered it.
fn deliver(
    curbs: Curbs,
    finisher: &mut Finisher,
    whole: &mut Vec<u8>,
    frame: RxFrame<'_>,
    sink: &mut dyn FnMut(RxFrame<'_>),
) {
    let told = |checksum| match checksum {
        RxChecksum::Verified if curbs.checksums => RxChecksum::Unknown,
        checksum => checksum,
    };
    // Cutting fills checksums anew: of a frame that nobody has verified it would hide the damage.
    if curbs.merging
        && frame.checksum != RxChecksum::Unknown
        && let Some(size) = frame.segment_size
    {
        let cut = finisher.unmerge(frame.bytes, size, &mut |bytes| {
            sink(RxFrame {
                bytes,
                checksum: told(RxChecksum::Verified),
                segment_size: None,
            });
        });
        if cut.is_ok() {
            return;
        }
    }
    if curbs.checksums
        && frame.checksum == RxChecksum::Partial
        && let Some(field) = offload::locate_checksum(frame.bytes)
    {
        whole.clear();
        whole.extend_from_slice(frame.bytes);
        if offload::complete_checksum(whole, field).is_ok() {
            sink(RxFrame {
                bytes: whole,
                checksum: RxChecksum::Unknown,
                ..frame
            });
            return;
        }
    }
    sink(RxFrame {
        checksum: told(frame.checksum),
        ..frame
    });
}

impl<D: Driver> Driver for Curbed<D> {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    /// A merged frame counts once, however many it is cut into.
    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let Self {
            inner,
            curbs,
            finisher,
            whole,
            ..
        } = self;
        inner.rx_burst(budget, &mut |frame| {
            deliver(*curbs, finisher, whole, frame, sink);
        })
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        if !self.curbs.checksums {
            return self.inner.tx_burst(frames);
        }
        let Self {
            inner, finisher, ..
        } = self;
        for (taken, frame) in frames.iter().enumerate() {
            let mut sent = Ok(1);
            // A frame that contradicts itself is dropped, as by any driver.
            let _ = finisher.finish(frame, &mut |bytes| {
                sent = inner.tx_burst(&[TxFrame::plain(bytes)]);
            });
            if sent? == 0 {
                return Ok(taken);
            }
        }
        Ok(frames.len())
    }

    fn flush_tx(&mut self) -> io::Result<()> {
        self.inner.flush_tx()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.inner.prepare_wait()
    }

    fn stop_watch(&mut self) -> io::Result<()> {
        self.inner.stop_watch()
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        self.inner.wait_deadline_us()
    }

    fn listen_to(&mut self, group: [u8; 6], listen: bool) -> io::Result<()> {
        self.inner.listen_to(group, listen)
    }

    fn poll_neighbour(&mut self) -> Option<NeighbourChange> {
        self.inner.poll_neighbour()
    }

    fn attend(&mut self) -> Presence {
        let presence = self.inner.attend();
        let caps = self.inner.caps();
        (self.caps.mtu, self.caps.hardware_address) = (caps.mtu, caps.hardware_address);
        presence
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn mode(&self) -> Option<&'static str> {
        self.inner.mode()
    }

    fn complaints(&self) -> Vec<String> {
        self.inner.complaints()
    }
}
