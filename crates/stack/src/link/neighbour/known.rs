//! The way of nearly every packet through the neighbour cache: its neighbour is known, and nothing is due.

use super::{NeighbourState, Neighbours, REACHABLE};
use crate::containers::intrusive::at;
use tcp::Instant;
use wire::ethernet;

impl Neighbours {
    /// [`Self::ready`] of one of that generation that waits for nothing; `None`: ask there.
    #[inline(always)]
    pub(crate) fn known(
        &mut self,
        now: Instant,
        n: u32,
        generation: u32,
    ) -> Option<ethernet::Address> {
        let entry = self.entries.get_mut(at(n))?;
        let is_good = match entry.state {
            NeighbourState::Permanent => true,
            NeighbourState::Reachable => now.since(entry.confirmed_at) <= REACHABLE,
            _ => false,
        };
        let waits_for_nothing = entry.generation == generation && !entry.deadline.is_set();
        (is_good && waits_for_nothing).then(|| {
            entry.used_at = now;
            entry.hardware
        })
    }
}
