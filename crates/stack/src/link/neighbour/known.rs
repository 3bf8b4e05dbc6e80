//! The way of nearly every packet through the neighbour cache: its neighbour is known, and nothing is due.

use super::{NeighbourState, Neighbours, REACHABLE};
use crate::containers::intrusive::at;
use tcp::Instant;
use wire::ethernet;

impl Neighbours {
    /// [`Self::ready`] of one of that generation for which nothing is to be begun; `None`: ask there.
    #[inline(always)]
    pub(crate) fn known(
        &mut self,
        now: Instant,
        n: u32,
        generation: u32,
    ) -> Option<ethernet::Address> {
        let entry = self.entries.get_mut(at(n))?;
        let is_armed = entry.deadline.is_set();
        let is_good = match entry.state {
            NeighbourState::Permanent => !is_armed,
            NeighbourState::Reachable => !is_armed && now.since(entry.confirmed_at) <= REACHABLE,
            // RFC 4861 §7.3.3: packets go meanwhile, and nothing is to be done but to wait for the deadline.
            NeighbourState::Delay | NeighbourState::Probe => is_armed,
            _ => false,
        };
        (is_good && entry.generation == generation).then(|| {
            entry.used_at = now;
            entry.hardware
        })
    }
}
