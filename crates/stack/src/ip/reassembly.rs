//! Fragments are put together: a table of packets that have come in part (RFC 791 §3.2, RFC 1122 §3.3.2,
//! RFC 8200 §4.5; RFC 815 for the question, RFC 5722 and RFC 9099 §2.1.2 for what attackers do with it).
//!
//! Bounds: packets, bytes (in blocks of 2 KiB from a pool that is laid out at start), a quarter of both
//! for one peer, 30 s of IPv4 and 60 s of IPv6. When something must go it is the oldest: an honest packet
//! is complete within milliseconds, so who floods the table displaces himself. Work per fragment is that
//! of copying it; nothing is allocated.
//!
//! A fragment that overlaps others is dropped with its packet. One that is there already with the same
//! bytes is a duplicate, and ignored (RFC 8200 §4.5 allows it, Linux does it).
//!
//! What a header means, and what a sender is told, is `fragments.rs`.

use crate::address::{masked, needs_zone};
use crate::config::Config;
use crate::containers::demux::{Demux, FourTuple};
use crate::containers::intrusive::{Links, ListHead, at, slot, zeroed};
use crate::counters::Counters;
use crate::link::interface::InterfaceId;
use core::net::IpAddr;
use row::{BLOCK, HEADERS_MAX, Overlap, PAYLOAD_MAX, Row, UNIT};
use siphasher::sip::SipHasher13;
use tcp::{Duration, Instant};
use wire::ecn::Ecn;
use wire::ethernet;
use zerocopy::FromZeros;

mod row;
#[cfg(test)]
mod tests;

/// How long fragments of IPv4 are kept (Linux `ipfrag_time`; RFC 1122 §3.3.2 would have 60 s to 120 s).
const LIFETIME_V4: Duration = Duration::from_secs(30);
/// RFC 8200 §4.5.
const LIFETIME_V6: Duration = Duration::from_secs(60);
/// Counted together: peers whose hash is the same.
const PEERS: usize = 256;
/// Bytes of the longest packet that is ever put together, and of the buffer for it.
pub(crate) const ASSEMBLED_MAX: usize = HEADERS_MAX + PAYLOAD_MAX;

/// A fragment, its headers read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// Which packet it is a part of: the two hosts, and protocol and identification in place of ports.
    pub(crate) key: FourTuple,
    /// Everything in front of `bytes`, from the IP header on.
    pub(crate) headers: &'a [u8],
    /// IPv6: where in `headers` the byte stands that announces the fragment header.
    pub(crate) named_at: usize,
    /// Where `bytes` belongs.
    pub(crate) offset: u16,
    /// It is not the last one.
    pub(crate) more: bool,
    pub(crate) bytes: &'a [u8],
    pub(crate) ecn: Ecn,
    pub(crate) interface: InterfaceId,
    pub(crate) station: ethernet::Address,
}

/// A packet of which a part has come: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partial(u32);

/// A packet that was put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assembled {
    /// Bytes of the first fragment's headers, in front of the data.
    pub(crate) headers_len: usize,
    /// IPv6: where the byte stands that announced the fragment header.
    pub(crate) named_at: usize,
    /// Headers and data.
    pub(crate) len: usize,
    pub(crate) ecn: Ecn,
}

/// What is counted for one peer, or several.
#[derive(Clone, Copy, Debug, FromZeros)]
struct Share {
    blocks: u32,
    rows: ListHead,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Reassembly {
    rows: Vec<Row>,
    index: Demux,
    free_rows: Vec<u32>,
    pool: Vec<u8>,
    free_blocks: Vec<u16>,
    shares: Vec<Share>,
    share_links: Links,
    /// Rows by age: of IPv4, of IPv6.
    ages: [ListHead; 2],
    age_links: Links,
    hasher: SipHasher13,
}

impl Reassembly {
    /// An empty table with the bounds of `config`.
    pub(crate) fn new(config: &Config) -> Self {
        let rows = config.fragmented_packets_max;
        let blocks = u16::try_from(config.fragment_bytes_max / BLOCK).unwrap_or(u16::MAX - 1);
        Self {
            rows: zeroed(rows),
            index: Demux::new(rows, &config.subkey(b"fragments")),
            // Popped from the end: the low ones first, so that the rest is never touched.
            free_rows: (0..slot(rows)).rev().collect(),
            pool: zeroed(usize::from(blocks) * BLOCK),
            free_blocks: (0..blocks).rev().collect(),
            shares: zeroed(PEERS),
            share_links: Links::new(rows),
            ages: [ListHead::EMPTY; 2],
            age_links: Links::new(rows),
            hasher: SipHasher13::new_with_key(&config.subkey(b"fragment peers")),
        }
    }

    /// Takes in a fragment; returns its packet if that is complete now. Its offset is a multiple of eight,
    /// its length too unless it is the last one, and it ends within the longest packet.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        piece: &Piece<'_>,
        counters: &mut Counters,
    ) -> Option<Partial> {
        let end = u16::try_from(usize::from(piece.offset) + piece.bytes.len()).ok()?;
        if end == piece.offset {
            return None;
        }
        let n = match self.index.find(&piece.key) {
            Some(n) => n,
            None => self.open(now, piece, counters)?,
        };
        if self.rows[at(n)].is_refused() {
            return None;
        }
        if !self.rows[at(n)].agrees_on_length(end, !piece.more) {
            self.refuse(n, piece, counters);
            return None;
        }
        match self.rows[at(n)].overlap(piece.offset, end) {
            Overlap::Full if self.holds(n, piece) => return None,
            Overlap::None => {}
            // RFC 5722 §4, RFC 8200 §4.5.
            Overlap::Full | Overlap::Partial => {
                counters.reasm_overlaps += 1;
                self.refuse(n, piece, counters);
                return None;
            }
        }
        if !self.store(n, piece, counters) {
            return None;
        }
        let row = &mut self.rows[at(n)];
        row.mark(piece.offset, end, !piece.more);
        row.add_mark(piece.ecn);
        if piece.offset == 0 {
            row.named_at = u16::try_from(piece.named_at).unwrap_or(0);
            row.first_len = end;
            if !row.set_headers(piece.headers) {
                self.refuse(n, piece, counters);
                return None;
            }
        }
        self.rows[at(n)].complete().map(|_| Partial(n))
    }

    /// Writes a complete packet, its headers as those of the first fragment, to the start of `out`, and
    /// forgets it. `None`: its fragments contradict each other.
    pub(crate) fn assemble(&mut self, Partial(n): Partial, out: &mut [u8]) -> Option<Assembled> {
        let row = &self.rows[at(n)];
        let total = usize::from(row.complete()?);
        let headers = row.headers();
        let headers_len = headers.len();
        let first_ecn = match *headers {
            [first, second, ..] if first >> 4 == 6 => Ecn::from_tos(first << 4 | second >> 4),
            [_, second, ..] => Ecn::from_tos(second),
            _ => Ecn::NotEct,
        };
        let (ecn, named_at) = (row.ecn(first_ecn), usize::from(row.named_at));
        out[..headers_len].copy_from_slice(headers);
        for start in (0..total).step_by(BLOCK) {
            let len = BLOCK.min(total - start);
            let place = &mut out[headers_len + start..][..len];
            place.copy_from_slice(&self.block(n, start)[..len]);
        }
        self.forget(n);
        Some(Assembled {
            headers_len,
            named_at,
            len: headers_len + total,
            ecn: ecn?,
        })
    }

    /// When the oldest packet is given up.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let oldest = self.ages.iter().filter_map(ListHead::first);
        let until = oldest.map(|n| self.rows[at(n)].until_us).min();
        until.map(Instant::from_us)
    }

    /// A packet whose time is over.
    pub(crate) fn expired(&self, now: Instant) -> Option<Partial> {
        let mut oldest = self.ages.iter().filter_map(ListHead::first);
        let is_over = |n: &u32| self.rows[at(*n)].until_us <= now.as_us();
        oldest.find(is_over).map(Partial)
    }

    /// The hosts of a packet that is not complete, and how it came.
    pub(crate) fn came_by(
        &self,
        Partial(n): Partial,
    ) -> (FourTuple, InterfaceId, ethernet::Address) {
        let (interface, station) = self.rows[at(n)].came_by();
        (*self.index.tuple(n), interface, station)
    }

    /// Writes the start of the first fragment to `out`; returns how much. 0: it is not there, or must not
    /// be spoken of.
    pub(crate) fn quote(&self, Partial(n): Partial, out: &mut [u8]) -> usize {
        let row = &self.rows[at(n)];
        let headers = row.headers();
        if headers.is_empty() || row.is_refused() {
            return 0;
        }
        let data = &self.block(n, 0)[..BLOCK.min(usize::from(row.first_len))];
        let mut len = 0;
        for (place, byte) in out.iter_mut().zip(headers.iter().chain(data)) {
            *place = *byte;
            len += 1;
        }
        len
    }

    /// Forgets a packet. True: it was a refusal that is forgotten.
    pub(crate) fn give_up(&mut self, Partial(n): Partial) -> bool {
        let was_refused = self.rows[at(n)].is_refused();
        self.forget(n);
        was_refused
    }

    /// Whether nothing is kept, and nothing has leaked.
    #[cfg(any(test, fuzzing, feature = "fuzzing"))]
    pub(crate) fn is_empty(&self) -> bool {
        let is_unused = |share: &Share| share.blocks == 0 && share.rows.len() == 0;
        self.free_rows.len() == self.rows.len()
            && self.free_blocks.len() == self.pool.len() / BLOCK
            && self.shares.iter().all(is_unused)
            && self.next_deadline().is_none()
    }

    /// A row for a new packet; `None`: there is no room for any.
    fn open(&mut self, now: Instant, piece: &Piece<'_>, counters: &mut Counters) -> Option<u32> {
        let peer = self.share_of(piece.key.remote());
        let share = quarter(self.rows.len());
        while at(self.shares[usize::from(peer)].rows.len()) >= share {
            let oldest = self.shares[usize::from(peer)].rows.first()?;
            self.evict(oldest, counters);
        }
        if self.free_rows.is_empty() {
            let oldest = self.oldest()?;
            self.evict(oldest, counters);
        }
        let n = self.free_rows.pop()?;
        let (lifetime, age) = match piece.key.remote() {
            IpAddr::V4(_) => (LIFETIME_V4, 0),
            IpAddr::V6(_) => (LIFETIME_V6, 1),
        };
        let until = now + lifetime;
        self.rows[at(n)].open(until.as_us(), peer, (piece.interface, piece.station));
        self.index.insert(&piece.key, n);
        self.age_links.push_back(&mut self.ages[age], n);
        let rows = &mut self.shares[usize::from(peer)].rows;
        self.share_links.push_back(rows, n);
        Some(n)
    }

    /// Copies the bytes of a fragment to their place; false: there was no room, and its packet is gone.
    fn store(&mut self, n: u32, piece: &Piece<'_>, counters: &mut Counters) -> bool {
        let (mut start, mut bytes) = (usize::from(piece.offset), piece.bytes);
        while !bytes.is_empty() {
            if self.rows[at(n)].block_of(start).is_none() && !self.add_block(n, start, counters) {
                return false;
            }
            let from = start % BLOCK;
            let len = bytes.len().min(BLOCK - from);
            let (now, later) = bytes.split_at(len);
            self.block_mut(n, start)[from..from + len].copy_from_slice(now);
            (start, bytes) = (start + len, later);
        }
        true
    }

    /// Gives row `n` a block for byte `start`; false: only at its own cost, and it is gone.
    fn add_block(&mut self, n: u32, start: usize, counters: &mut Counters) -> bool {
        let peer = usize::from(self.rows[at(n)].peer);
        let share = quarter(self.pool.len() / BLOCK);
        loop {
            let has_share = at(self.shares[peer].blocks) < share;
            if has_share && let Some(block) = self.free_blocks.pop() {
                self.rows[at(n)].set_block(start, block);
                self.shares[peer].blocks += 1;
                return true;
            }
            let victim = if has_share {
                self.oldest()
            } else {
                self.shares[peer].rows.first()
            };
            let victim = victim.unwrap_or(n);
            self.evict(victim, counters);
            if victim == n {
                return false;
            }
        }
    }

    /// Whether the bytes of a fragment are there already, the same.
    fn holds(&self, n: u32, piece: &Piece<'_>) -> bool {
        let (mut start, mut bytes) = (usize::from(piece.offset), piece.bytes);
        while !bytes.is_empty() {
            let from = start % BLOCK;
            let len = bytes.len().min(BLOCK - from);
            let (now, later) = bytes.split_at(len);
            if self.block(n, start)[from..from + len] != *now {
                return false;
            }
            (start, bytes) = (start + len, later);
        }
        true
    }

    /// The packet is discarded, and of IPv6 what is still to come of it too (RFC 5722 §4). The short
    /// identification of IPv4 comes again within its time (RFC 4963), so there the next is another.
    fn refuse(&mut self, n: u32, piece: &Piece<'_>, counters: &mut Counters) {
        count_failure(piece.key.remote(), counters);
        if piece.key.remote().is_ipv4() {
            self.forget(n);
        } else {
            self.release_blocks(n);
            self.rows[at(n)].refuse();
        }
    }

    fn evict(&mut self, n: u32, counters: &mut Counters) {
        if !self.rows[at(n)].is_refused() {
            count_failure(self.index.tuple(n).remote(), counters);
        }
        self.forget(n);
    }

    fn forget(&mut self, n: u32) {
        self.release_blocks(n);
        let is_v6 = self.index.tuple(n).remote().is_ipv6();
        self.age_links.remove(&mut self.ages[usize::from(is_v6)], n);
        let peer = usize::from(self.rows[at(n)].peer);
        self.share_links.remove(&mut self.shares[peer].rows, n);
        self.index.remove(n);
        self.free_rows.push(n);
    }

    fn release_blocks(&mut self, n: u32) {
        let row = &mut self.rows[at(n)];
        let share = &mut self.shares[usize::from(row.peer)];
        share.blocks -= u32::from(row.blocks_used);
        self.free_blocks.extend(row.take_blocks());
    }

    /// The packet that has been there longest, as its lifetime sees it.
    fn oldest(&self) -> Option<u32> {
        let oldest = self.ages.iter().filter_map(ListHead::first);
        oldest.min_by_key(|n| self.rows[at(*n)].until_us)
    }

    /// Which share a peer counts in. Hosts of one IPv6 subnet have as many addresses as they like, so they
    /// count together.
    fn share_of(&self, peer: IpAddr) -> u16 {
        let hash = match peer {
            IpAddr::V6(own) if !needs_zone(peer) => match masked(own.into(), 64) {
                IpAddr::V6(subnet) => self.hasher.hash(&subnet.octets()),
                IpAddr::V4(_) => 0,
            },
            IpAddr::V6(own) => self.hasher.hash(&own.octets()),
            IpAddr::V4(own) => self.hasher.hash(&own.octets()),
        };
        let [low, ..] = hash.to_le_bytes();
        low.into()
    }

    fn block(&self, n: u32, start: usize) -> &[u8] {
        let block = self.rows[at(n)].block_of(start);
        let block = block.expect("invariant: what is marked has a block");
        &self.pool[usize::from(block) * BLOCK..][..BLOCK]
    }

    fn block_mut(&mut self, n: u32, start: usize) -> &mut [u8] {
        let block = self.rows[at(n)].block_of(start);
        let block = block.expect("invariant: a block was added");
        &mut self.pool[usize::from(block) * BLOCK..][..BLOCK]
    }
}

const _: () = assert!(PEERS == 1 << u8::BITS && BLOCK.is_multiple_of(UNIT));

/// What one peer may have of so many.
fn quarter(all: usize) -> usize {
    (all / 4).max(1)
}

fn count_failure(peer: IpAddr, counters: &mut Counters) {
    if peer.is_ipv4() {
        counters.ip_reasm_fails += 1;
    } else {
        counters.ip6_reasm_fails += 1;
    }
}
