//! One packet whose fragments are being collected: which eight-byte units are there, and in which blocks
//! (RFC 791 §3.2; RFC 815 asks the same question with a list of holes).
//!
//! Plain rows: whose they are, how old, and what they cost is the table's.

use crate::link::interface::InterfaceId;
use wire::ecn::Ecn;
use wire::ethernet;
use zerocopy::FromZeros;

/// Bytes of a unit: fragments start at multiples of it (RFC 791 §3.1, RFC 8200 §4.5).
pub(super) const UNIT: usize = 8;
/// Bytes of a block of the pool.
pub(super) const BLOCK: usize = 2_048;
/// No payload of an IP packet is longer.
pub(super) const PAYLOAD_MAX: usize = 65_535;
/// Blocks of the longest packet.
pub(super) const BLOCKS_MAX: usize = PAYLOAD_MAX.div_ceil(BLOCK);
/// Units of the longest packet, in words of 64.
const WORDS: usize = PAYLOAD_MAX.div_ceil(UNIT * 64);
/// Headers in front of the fragmented part at most, the fragment header of IPv6 included. IPv4 has 60.
pub(super) const HEADERS_MAX: usize = 192;

/// A row. All zero: free.
#[derive(Clone, Copy, Debug, FromZeros)]
pub(super) struct Row {
    /// Units that are there.
    units: [u64; WORDS],
    /// Block + 1 of each stretch of [`BLOCK`] bytes, 0 for none.
    blocks: [u16; BLOCKS_MAX],
    /// What stood in front of the first fragment's data.
    headers: [u8; HEADERS_MAX],
    /// Bytes of `headers`; 0: the first fragment is not there.
    pub(super) headers_len: u16,
    /// IPv6: where in `headers` the byte stands that announces the fragment header.
    pub(super) named_at: u16,
    /// Bytes of data of the first fragment.
    pub(super) first_len: u16,
    /// Bytes of the whole; 0: the last fragment is not there.
    total: u16,
    /// Units in `units`.
    have: u16,
    /// One past the last byte that is there.
    end: u16,
    /// A bit for each ECN codepoint that came.
    marks: u8,
    /// Refused as a whole: what is still to come of it is as well (RFC 5722 §4). 0 or 1.
    is_refused: u8,
    /// Which share of the table it counts in.
    pub(super) peer: u16,
    /// Blocks in `blocks`.
    pub(super) blocks_used: u16,
    /// When it is given up, µs.
    pub(super) until_us: u64,
    /// By which interface it comes, and from which station.
    interface: u16,
    station: [u8; 6],
}

/// How a fragment stands to what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    None,
    /// All of it is there already.
    Full,
    /// Some of it.
    Partial,
}

impl Row {
    /// Makes it the row of a packet that comes by `interface`.
    pub(super) fn open(
        &mut self,
        until_us: u64,
        peer: u16,
        came: (InterfaceId, ethernet::Address),
    ) {
        // The headers are read up to their length only.
        self.units.fill(0);
        self.blocks.fill(0);
        (self.headers_len, self.named_at, self.first_len) = (0, 0, 0);
        (self.total, self.have, self.end) = (0, 0, 0);
        (self.marks, self.is_refused, self.blocks_used) = (0, 0, 0);
        (self.until_us, self.peer) = (until_us, peer);
        (self.interface, self.station) = (came.0.0, came.1.0);
    }

    pub(super) fn came_by(&self) -> (InterfaceId, ethernet::Address) {
        (InterfaceId(self.interface), ethernet::Address(self.station))
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused != 0
    }

    pub(super) fn refuse(&mut self) {
        self.is_refused = 1;
    }

    /// What stood in front of the first fragment's data; nothing while that is missing.
    pub(super) fn headers(&self) -> &[u8] {
        &self.headers[..usize::from(self.headers_len)]
    }

    /// Keeps what stands in front of the first fragment's data; false: it is too long.
    pub(super) fn set_headers(&mut self, headers: &[u8]) -> bool {
        let (Some(place), Ok(len)) = (
            self.headers.get_mut(..headers.len()),
            u16::try_from(headers.len()),
        ) else {
            return false;
        };
        place.copy_from_slice(headers);
        self.headers_len = len;
        true
    }

    /// The bytes from `start` to `end` are not beyond the end, nor a second end at another place.
    pub(super) fn agrees_on_length(&self, end: u16, is_last: bool) -> bool {
        if is_last {
            self.end <= end && (self.total == 0 || self.total == end)
        } else {
            self.total == 0 || end <= self.total
        }
    }

    /// How the units that hold the bytes from `start` to `end` stand to what is there.
    pub(super) fn overlap(&self, start: u16, end: u16) -> Overlap {
        let mut there = 0;
        for (word, mask) in spans(start, end) {
            there += (self.units[word] & mask).count_ones();
        }
        match there {
            0 => Overlap::None,
            all if all == units_between(start, end) => Overlap::Full,
            _ => Overlap::Partial,
        }
    }

    /// Notes that the bytes from `start` to `end` are there.
    pub(super) fn mark(&mut self, start: u16, end: u16, is_last: bool) {
        for (word, mask) in spans(start, end) {
            self.units[word] |= mask;
        }
        self.have += u16::try_from(units_between(start, end)).unwrap_or(0);
        self.end = self.end.max(end);
        if is_last {
            self.total = end;
        }
    }

    /// Bytes of the whole, once all of it is there.
    pub(super) fn complete(&self) -> Option<u16> {
        let all = usize::from(self.total).div_ceil(UNIT);
        (self.total > 0 && usize::from(self.have) == all && self.headers_len > 0)
            .then_some(self.total)
    }

    pub(super) fn add_mark(&mut self, ecn: Ecn) {
        self.marks |= 1 << ecn as u8;
    }

    /// The ECN bits of the whole (RFC 3168 §5.3); `None`: fragments of one packet cannot have come with
    /// these, so it is dropped (as Linux's `ip_frag_ecn_table`).
    pub(super) fn ecn(&self, first: Ecn) -> Option<Ecn> {
        const NOT_ECT: u8 = 1 << Ecn::NotEct as u8;
        const CE: u8 = 1 << Ecn::Ce as u8;
        match self.marks {
            NOT_ECT => Some(Ecn::NotEct),
            marks if marks & NOT_ECT != 0 => None,
            marks if marks & CE != 0 => Some(Ecn::Ce),
            _ => Some(first),
        }
    }

    /// The block of the stretch that byte `at` lies in.
    pub(super) fn block_of(&self, at: usize) -> Option<u16> {
        self.blocks[at / BLOCK].checked_sub(1)
    }

    pub(super) fn set_block(&mut self, at: usize, block: u16) {
        self.blocks[at / BLOCK] = block + 1;
        self.blocks_used += 1;
    }

    /// Its blocks; it has none afterwards.
    pub(super) fn take_blocks(&mut self) -> impl Iterator<Item = u16> + use<> {
        self.blocks_used = 0;
        let blocks = core::mem::replace(&mut self.blocks, [0; BLOCKS_MAX]);
        blocks.into_iter().filter_map(|block| block.checked_sub(1))
    }
}

/// Units that the bytes from `start` to `end` touch. `start` is a multiple of a unit.
fn units_between(start: u16, end: u16) -> u32 {
    u32::from(end).div_ceil(8) - u32::from(start) / 8
}

/// Words of the bitmap, with the bits that stand for the bytes from `start` to `end`.
fn spans(start: u16, end: u16) -> impl Iterator<Item = (usize, u64)> {
    let first = usize::from(start) / UNIT;
    let past = usize::from(end).div_ceil(UNIT);
    (first / 64..past.div_ceil(64)).map(move |word| {
        let from = first.saturating_sub(word * 64);
        let to = (past - word * 64).min(64);
        (word, (u64::MAX << from) & (u64::MAX >> (64 - to)))
    })
}
