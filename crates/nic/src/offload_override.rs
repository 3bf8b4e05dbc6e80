//! Any driver with some of its offloads off: to measure what they are worth, and for devices and peers with
//! which they do not work. As `ethtool --offload` does for the kernel.
//!
//! What is off is done in software ([`crate::offload`]), so that the frames on the wire and those that the
//! stack sees are as if the device could not do it.

#[cfg(test)]
mod tests;

use std::io;

use crate::driver::{Caps, Driver, Presence, RxChecksum, RxFrame, TxFrame};
use crate::forward_driver;
use crate::offload::{self, Finisher};

/// Which offloads stay off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadOverride {
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

impl OffloadOverride {
    /// Whether everything stays on.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// `driver` with these off; itself where that is nothing.
    #[must_use]
    pub fn apply_to(self, driver: Box<dyn Driver>) -> Box<dyn Driver> {
        if self.is_empty() {
            driver
        } else {
            Box::new(Overridden::new(driver, self))
        }
    }
}

/// A driver with offloads off.
pub struct Overridden<D> {
    inner: D,
    overrides: OffloadOverride,
    caps: Caps,
    finisher: Finisher,
    /// A received frame whose checksum is being filled.
    whole: Vec<u8>,
}

impl<D: Driver> Overridden<D> {
    /// `inner` without what `overrides` names.
    pub fn new(inner: D, overrides: OffloadOverride) -> Self {
        let mut caps = inner.caps().clone();
        if overrides.segmentation || overrides.checksums {
            caps.tso_max_bytes = 0;
        }
        caps.gro &= !overrides.merging;
        if overrides.checksums {
            caps.tx_checksum = false;
            caps.rx_checksum = false;
            // The payload is summed here.
            caps.payload_by_address = false;
        }
        if overrides.align > 1 {
            caps.align = caps.align.max(overrides.align);
        }
        Self {
            inner,
            overrides,
            caps,
            finisher: Finisher::new(),
            whole: Vec::new(),
        }
    }
}

/// Hands on a received frame as a device without the offloads would have delivered it.
fn deliver(
    overrides: OffloadOverride,
    finisher: &mut Finisher,
    whole: &mut Vec<u8>,
    frame: RxFrame<'_>,
    sink: &mut dyn FnMut(RxFrame<'_>),
) {
    let told = |checksum| match checksum {
        RxChecksum::Verified if overrides.checksums => RxChecksum::Unknown,
        checksum => checksum,
    };
    // Cutting fills checksums anew: of a frame that nobody has verified it would hide the damage.
    if overrides.merging
        && frame.checksum != RxChecksum::Unknown
        && let Some(size) = frame.segment_size
    {
        let cut = finisher.unmerge(frame.bytes, size, &mut |bytes| {
            sink(RxFrame {
                bytes,
                checksum: told(RxChecksum::Verified),
                segment_size: None,
                arrived_at_ns: None,
            });
        });
        if cut.is_ok() {
            return;
        }
    }
    if overrides.checksums
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

impl<D: Driver> Driver for Overridden<D> {
    forward_driver!(this => this.inner;
        may_have_frames, flush_tx, wait_fd, prepare_wait, stop_watch, wait_deadline_us, listen_to, poll_local_peer, has_peer_news, counters, mode, complaints);

    fn caps(&self) -> &Caps {
        &self.caps
    }

    /// A merged frame counts once, however many it is cut into.
    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let Self {
            inner,
            overrides,
            finisher,
            whole,
            ..
        } = self;
        inner.rx_burst(budget, &mut |frame| {
            deliver(*overrides, finisher, whole, frame, sink);
        })
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        if !self.overrides.checksums {
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

    fn attend(&mut self) -> Presence {
        let presence = self.inner.attend();
        let caps = self.inner.caps();
        (self.caps.mtu, self.caps.hardware_address) = (caps.mtu, caps.hardware_address);
        presence
    }
}
