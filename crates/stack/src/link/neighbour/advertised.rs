//! What a neighbour advertisement changes in the cache (RFC 4861 §7.2.5).

use super::{NeighbourState, Neighbours};
use crate::containers::intrusive::at;
use tcp::Instant;
use wire::ethernet;

impl Neighbours {
    /// Neighbour `n` has advertised itself, with its hardware address if it said so.
    pub(crate) fn advertised(
        &mut self,
        now: Instant,
        n: u32,
        hardware: Option<ethernet::Address>,
        solicited: bool,
        overrides: bool,
    ) {
        use NeighbourState as S;
        let entry = &mut self.entries[at(n)];
        match (entry.state, hardware) {
            // Nobody asked, or nobody asks any more: then it says nothing.
            (S::Permanent | S::Failed, _) | (S::Incomplete, None) => return,
            (S::Incomplete, Some(hardware)) => return self.heard(now, n, hardware, solicited),
            _ => {}
        }
        let differs = hardware.is_some_and(|hardware| hardware != entry.hardware);
        if differs && !overrides {
            // Two answers: the first stays, but it is no longer sure.
            if entry.state == S::Reachable {
                entry.state = S::Stale;
            }
            return;
        }
        if differs || solicited {
            let hardware = hardware.unwrap_or(entry.hardware);
            self.heard(now, n, hardware, solicited);
        }
    }
}
