//! Selective acknowledgement: the sender's scoreboard (RFC 2018 §5, RFC 6675 §4).

use crate::connection::Connection;
use wire::tcp::Header;

/// DupThresh (RFC 6675 §2).
pub(crate) const DUP_THRESH: usize = 3;

impl Connection {
    /// Takes the blocks of an ACK into the scoreboard. `true`: they told something new.
    pub(crate) fn update_scoreboard(&mut self, header: &Header) -> bool {
        if !self.rcv.sack {
            return false;
        }
        let before = self.snd.sacked.total();
        for (left, right) in header.options.sack.iter() {
            let (Some(start), Some(end)) = (
                self.snd.space.position(left, self.snd.una),
                self.snd.space.position(right, self.snd.una),
            ) else {
                continue;
            };
            // A block at or below SND.UNA is a D-SACK (RFC 2883), one beyond what we sent is a lie.
            if start > self.snd.una && start < end && end <= self.snd.max {
                self.snd.sacked.insert(start, end);
            }
        }
        self.snd.sacked.total() > before
    }

    /// IsLost (RFC 6675 §4): every position below the result that is not SACKed counts as lost.
    pub(crate) fn lost_edge(&self) -> u64 {
        let enough = 2 * u64::from(self.snd.segment_payload);
        let mut bytes = 0;
        for (above, range) in self.snd.sacked.as_slice().iter().rev().enumerate() {
            bytes += range.len();
            if above + 1 >= DUP_THRESH || bytes > enough {
                return range.start;
            }
        }
        self.snd.una
    }

    /// SetPipe (RFC 6675 §4): bytes that are thought to be in the network.
    pub(crate) fn pipe(&self) -> u64 {
        let (una, nxt) = (self.snd.una, self.snd.nxt);
        if !self.rcv.sack {
            // Without SACK each duplicate ACK stands for a segment that left (RFC 5681 §3.2 step 4).
            let left = u64::from(self.snd.duplicate_acks) * u64::from(self.snd.segment_payload);
            return (nxt - una).saturating_sub(left);
        }
        if self.snd.sacked.is_empty() {
            return nxt - una;
        }
        let from = self.recovery.high_rxt.max(una);
        let edge = self.lost_edge().min(nxt);
        let lost = edge.saturating_sub(from) - self.snd.sacked.covered(from, edge.max(from));
        (nxt - una)
            .saturating_sub(self.snd.sacked.covered(una, nxt))
            .saturating_sub(lost)
    }

    /// The first hole at or after `from` and below `limit`, as `[start, end)`.
    pub(crate) fn hole_after(&self, from: u64, limit: u64) -> Option<(u64, u64)> {
        let mut start = from;
        for range in self.snd.sacked.as_slice() {
            if start < range.start {
                break;
            }
            start = start.max(range.end);
        }
        if start >= limit {
            return None;
        }
        let next = self
            .snd
            .sacked
            .as_slice()
            .iter()
            .map(|range| range.start)
            .find(|&edge| edge > start);
        Some((start, next.unwrap_or(limit).min(limit)))
    }
}
