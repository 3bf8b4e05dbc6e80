//! A frame written piece by piece into a device's memory, with one copy of its payload: as it is, or one of those that a
//! large segment is cut to.
//!
//! Payload is summed where it was copied to, so a program that changes its window meanwhile sends other bytes, but never a
//! frame whose checksum does not match them.

use ::wire::checksum::Sum;
use ::wire::virtio::finish_partial;

use super::{Cuts, copy_range, rewrite};
use crate::driver::TxFrame;

/// What of a frame is still to be written.
pub(crate) struct Pieces<'a, 'b> {
    frame: &'a TxFrame<'b>,
    /// With the number of the frame among those that the segment is cut to.
    cuts: Option<(&'a Cuts, usize)>,
    /// Bytes that were written.
    at: usize,
    sum: Sum,
}

impl<'a, 'b> Pieces<'a, 'b> {
    /// The frame as it is, its checksum finished.
    pub(crate) fn of(frame: &'a TxFrame<'b>) -> Self {
        Self {
            frame,
            cuts: None,
            at: 0,
            sum: Sum::new(),
        }
    }

    /// Frame `index` of those that `frame`, of which `cuts` was made, is cut to.
    pub(crate) fn of_cut(frame: &'a TxFrame<'b>, cuts: &'a Cuts, index: usize) -> Self {
        Self {
            cuts: Some((cuts, index)),
            ..Self::of(frame)
        }
    }

    /// Writes as much as `target` takes, which must not be more than is left. Of a large segment the first piece takes all
    /// headers.
    pub(crate) fn write(&mut self, target: &mut [u8]) {
        let headers = self.frame.headers.get(self.at..).unwrap_or_default();
        let (front, back) = target.split_at_mut(headers.len().min(target.len()));
        front.copy_from_slice(&headers[..front.len()]);
        let behind = (self.at + front.len()).saturating_sub(self.frame.headers.len());
        let start = self.cuts.map_or(0, |(cuts, index)| index * cuts.step);
        copy_range(&self.frame.payload, start + behind, back);
        match self.cuts {
            Some((cuts, index)) => {
                if self.at == 0 {
                    self.sum = rewrite(front, &cuts.layout, cuts.of_frame(index));
                }
                self.sum = self.sum.add(back);
            }
            None => {
                if let Some(checksum) = self.frame.checksum {
                    let before = usize::from(checksum.start).saturating_sub(self.at);
                    self.sum = self.sum.add(target.get(before..).unwrap_or_default());
                }
            }
        }
        self.at += target.len();
    }

    /// The checksum, after the last piece, and where in the frame it belongs; `None`: it has none that is to be filled in.
    pub(crate) fn checksum(&self) -> Option<(usize, [u8; 2])> {
        if let Some((cuts, _)) = self.cuts {
            return Some((cuts.layout.checksum(), self.sum.finish().to_be_bytes()));
        }
        let checksum = self.frame.checksum?;
        let at = usize::from(checksum.start) + usize::from(checksum.offset);
        Some((at, finish_partial(self.sum).to_be_bytes()))
    }
}
