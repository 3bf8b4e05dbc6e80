//! The memory that two programs of one host map for the bytes between them: a sealed memory file for
//! [`SLOTS`] connections, each of which has a byte channel (`byte_channel.rs`) in either direction. See memfd_create(2).
//!
//! Between two engines the one that makes the file is side 0. Sides give out slots of their own half, so that they need not
//! agree; a slot is free again when neither uses it and the other has heard of its last use. Where one engine serves both programs
//! it gives out all slots itself. Pages are touched when they are used.

use std::sync::Arc;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};

use crate::byte_channel::{BYTE_CHANNEL_BYTES, BYTE_CHANNEL_WORDS, ByteChannel};
use crate::cursor::Cells;
use crate::region::RegionError;
use crate::sync::Ordering;
use crate::sys::{self, Mapping};
use crate::window::Window;

/// Connections between two neighbours whose bytes pass through memory; those beyond go by segments.
pub const SLOTS: u32 = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"SHUNTAR1");
const PAGE_BYTES: u64 = 4096;
/// Words of a slot before its byte channels: who uses it, and which offers of it the other side has seen.
const SLOT_PREFIX_WORDS: usize = 64;
const SLOT_WORDS: usize = SLOT_PREFIX_WORDS + 2 * BYTE_CHANNEL_WORDS;
const SLOTS_AT: u64 = PAGE_BYTES;
const BYTES_AT: u64 = SLOTS_AT + SLOTS as u64 * SLOT_WORDS as u64 * 8;
const AREA_BYTES: u64 = BYTES_AT + SLOTS as u64 * 2 * BYTE_CHANNEL_BYTES as u64;
const _: () = assert!(BYTES_AT.is_multiple_of(PAGE_BYTES));

// Words of the prefix, a pair of cache lines for each side.
const USED: usize = 0;
/// How often the side that gives the slot out has offered it.
const OFFERED: usize = 1;
/// How many of the other side's offers this side has seen.
const HEARD: usize = 2;
const OF_SIDE: usize = 16;

/// The memory between two neighbours.
#[derive(Clone)]
pub struct ChannelRegion {
    memory: Arc<Mapping>,
    file: Option<Arc<OwnedFd>>,
}

/// One direction of a slot.
pub struct ChannelPair {
    memory: Arc<Mapping>,
    /// Its words.
    pub byte_channel: ByteChannel,
    bytes_at: u64,
}

impl ChannelRegion {
    /// Makes the memory, for [`ChannelRegion::adopt`] once it is needed; the maker is side 0.
    ///
    /// # Errors
    /// A system call failed.
    pub fn create() -> Result<OwnedFd, RegionError> {
        let file = sys::create(c"shunt-channel_region", AREA_BYTES)?;
        let memory = Arc::new(Mapping::new(file.as_fd(), AREA_BYTES)?);
        let channel_region = ChannelRegion { memory, file: None };
        channel_region.words(0, 1)[0].store(MAGIC, Ordering::Release);
        Ok(file)
    }

    /// Maps memory that a neighbour, or the own engine, has handed over.
    ///
    /// # Errors
    /// It is something else, or cannot be mapped.
    pub fn map(file: BorrowedFd<'_>) -> Result<ChannelRegion, RegionError> {
        let memory = Mapping::adopt(file, AREA_BYTES)?;
        let channel_region = ChannelRegion { memory, file: None };
        if channel_region.words(0, 1)[0].load(Ordering::Acquire) == MAGIC {
            Ok(channel_region)
        } else {
            Err(RegionError::Foreign)
        }
    }

    /// As [`ChannelRegion::map`], keeping the file to hand it on.
    ///
    /// # Errors
    /// As there.
    pub fn adopt(file: OwnedFd) -> Result<ChannelRegion, RegionError> {
        let channel_region = ChannelRegion::map(file.as_fd())?;
        Ok(ChannelRegion {
            file: Some(Arc::new(file)),
            ..channel_region
        })
    }

    /// The memory file; only an engine keeps it.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    fn words(&self, offset: u64, words: usize) -> Cells {
        self.memory
            .cells(offset, words)
            .expect("invariant: slots are checked, and lie within the region")
    }

    fn slot_at(slot: u32) -> Option<u64> {
        (slot < SLOTS).then(|| SLOTS_AT + u64::from(slot) * SLOT_WORDS as u64 * 8)
    }

    /// Who uses a slot; `None`: there is no such slot.
    #[must_use]
    pub fn uses(&self, slot: u32) -> Option<Uses> {
        let words = self.words(Self::slot_at(slot)?, SLOT_PREFIX_WORDS);
        Some(Uses { words })
    }

    /// What `side` sends by a slot, and what it receives by it; `None`: there is no such slot.
    #[must_use]
    pub fn channel_pairs(&self, slot: u32, side: u8) -> Option<(ChannelPair, ChannelPair)> {
        let words_at = Self::slot_at(slot)? + SLOT_PREFIX_WORDS as u64 * 8;
        let channel_pair = |direction: u64| ChannelPair {
            memory: Arc::clone(&self.memory),
            byte_channel: ByteChannel::new(self.words(
                words_at + direction * BYTE_CHANNEL_WORDS as u64 * 8,
                BYTE_CHANNEL_WORDS,
            )),
            bytes_at: BYTES_AT + (u64::from(slot) * 2 + direction) * u64::from(BYTE_CHANNEL_BYTES),
        };
        let (out, back) = (u64::from(side & 1), u64::from(side & 1) ^ 1);
        Some((channel_pair(out), channel_pair(back)))
    }
}

impl ChannelPair {
    /// Its bytes: byte `k` of the byte channel lies at offset `k`.
    #[must_use]
    pub fn bytes(&self) -> Window<'_> {
        self.memory
            .window(self.bytes_at, BYTE_CHANNEL_BYTES)
            .expect(
                "invariant: byte channels are a power of two of bytes, and lie within the region",
            )
    }
}

/// Who uses a slot, as both sides tell each other.
pub struct Uses {
    words: Cells,
}

impl Uses {
    fn of(&self, side: u8, word: usize) -> &crate::sync::AtomicU64 {
        &self.words[usize::from(side & 1) * OF_SIDE + word]
    }

    /// Side `side` gives its slot out: false if the other one may still use it.
    #[must_use]
    pub fn try_offer(&self, side: u8) -> bool {
        let (offered, other) = (self.of(side, OFFERED), side ^ 1);
        let count = offered.load(Ordering::Relaxed);
        let is_heard = self.of(other, HEARD).load(Ordering::Acquire) == count;
        if !is_heard || self.of(other, USED).load(Ordering::Acquire) != 0 {
            return false;
        }
        offered.store(count.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// Side `side` has seen an offer, and takes it or not.
    pub fn hear(&self, side: u8, takes: bool) {
        if takes {
            self.of(side, USED).store(1, Ordering::Relaxed);
        }
        let heard = self.of(side, HEARD);
        let count = heard.load(Ordering::Relaxed).wrapping_add(1);
        heard.store(count, Ordering::Release);
    }

    /// Side `side` no longer uses it.
    pub fn release(&self, side: u8) {
        self.of(side, USED).store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_sends_the_other_receives_and_slots_do_not_touch() {
        let made = ChannelRegion::adopt(ChannelRegion::create().unwrap()).unwrap();
        let mapped = ChannelRegion::map(made.file().unwrap()).unwrap();
        for slot in 0..SLOTS {
            let (out, _) = made.channel_pairs(slot, 0).unwrap();
            let (_, into) = mapped.channel_pairs(slot, 1).unwrap();
            out.byte_channel.reset();
            assert_eq!(out.bytes().copy_in(7, &slot.to_le_bytes()), 4);
            assert!(out.byte_channel.publish(11), "the first bytes are told of");
            assert_eq!(into.byte_channel.available(0), Ok(11));
        }
        for slot in 0..SLOTS {
            let (_, into) = mapped.channel_pairs(slot, 1).unwrap();
            let (mut bytes, mut back) = ([0; 4], [1; 4]);
            into.bytes().copy_out(7, &mut bytes);
            assert_eq!(bytes, slot.to_le_bytes());
            made.channel_pairs(slot, 0)
                .unwrap()
                .1
                .bytes()
                .copy_out(7, &mut back);
            assert_eq!(back, [0; 4]);
        }
        assert!(made.channel_pairs(SLOTS, 0).is_none() && made.uses(SLOTS).is_none());
    }

    #[test]
    fn a_slot_is_free_again_when_both_have_left_and_the_offer_was_heard() {
        let channel_region = ChannelRegion::adopt(ChannelRegion::create().unwrap()).unwrap();
        let uses = channel_region.uses(3).unwrap();
        assert!(uses.try_offer(0));
        assert!(!uses.try_offer(0), "nobody has heard it");
        uses.hear(1, true);
        assert!(!uses.try_offer(0), "it is used");
        uses.release(1);
        assert!(uses.try_offer(0));
        uses.hear(1, false);
        assert!(uses.try_offer(0));
    }

    #[test]
    fn another_file_is_no_channel_region() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("other", flags).unwrap();
        rustix::fs::ftruncate(&file, AREA_BYTES).unwrap();
        assert!(
            ChannelRegion::map(file.as_fd()).is_err(),
            "it is not sealed"
        );
        let sealed = sys::create(c"other", AREA_BYTES).unwrap();
        assert!(
            ChannelRegion::map(sealed.as_fd()).is_err(),
            "it has no mark"
        );
        let short = sys::create(c"other", PAGE_BYTES).unwrap();
        assert!(
            ChannelRegion::map(short.as_fd()).is_err(),
            "it is too short"
        );
    }
}
