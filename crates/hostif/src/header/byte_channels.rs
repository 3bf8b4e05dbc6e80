//! How far a connection to a neighbour has come in its byte channels (`byte_channel.rs`), and which slot it has. The positions are here
//! and not beside the bytes, where the neighbour could change them.

use core::sync::atomic::Ordering;

use super::SocketHeader;
use crate::descriptor::{high, join, low};

/// Which memory, which slot of it, and which side of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotName {
    /// The engine's number of the memory; not 0.
    pub channel_region: u32,
    /// The slot.
    pub slot: u32,
    /// 0 or 1.
    pub side: u8,
}

/// Where the outgoing byte channel stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneState {
    /// Everything has gone by segments.
    Unused,
    /// Everything goes by the byte channel.
    Open,
    /// Everything goes by segments again.
    Over,
}

const SIDE_SHIFT: u32 = 31;

impl SlotName {
    /// As one word, not 0.
    fn to_bits(self) -> u64 {
        let side = u32::from(self.side & 1) << SIDE_SHIFT;
        join(self.slot | side, self.channel_region)
    }

    /// Of such a word; `None`: of 0.
    fn from_bits(word: u64) -> Option<Self> {
        let (slot, channel_region) = (low(word), high(word));
        (channel_region != 0).then_some(Self {
            channel_region,
            slot: slot & !(1 << SIDE_SHIFT),
            side: u8::from(slot >> SIDE_SHIFT != 0),
        })
    }
}

impl SocketHeader<'_> {
    pub(super) fn reset_byte_channels(&self) {
        self.raw.byte_channel_state.store(0, Ordering::Relaxed);
        for word in [
            &self.raw.byte_channel_consumed,
            &self.raw.byte_channel_written,
            &self.raw.byte_channel_freed,
            &self.raw.slot,
        ] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The connection has this slot from now on, or none.
    pub fn engine_set_slot(&self, name: Option<SlotName>) {
        let word = name.map_or(0, SlotName::to_bits);
        self.raw.slot.store(word, Ordering::Release);
    }

    /// The slot of a connection to another program of this host.
    #[must_use]
    pub fn slot(&self) -> Option<SlotName> {
        SlotName::from_bits(self.raw.slot.load(Ordering::Acquire))
    }

    /// Bytes of the incoming byte channel that were consumed.
    #[must_use]
    pub fn byte_channel_consumed(&self) -> u64 {
        self.raw.byte_channel_consumed.load(Ordering::Acquire)
    }

    /// Holder of the receive lock: moves that position.
    pub fn program_set_byte_channel_consumed(&self, end: u64) {
        self.raw.byte_channel_consumed.store(end, Ordering::Release);
    }

    /// Bytes of the outgoing byte channel that were written.
    #[must_use]
    pub fn byte_channel_written(&self) -> u64 {
        self.raw.byte_channel_written.load(Ordering::Acquire)
    }

    /// Holder of the send lock: moves that position.
    pub fn program_set_byte_channel_written(&self, end: u64) {
        self.raw.byte_channel_written.store(end, Ordering::Release);
    }

    /// How much of the outgoing byte channel was consumed when its sender last looked.
    #[must_use]
    pub fn byte_channel_freed(&self) -> u64 {
        self.raw.byte_channel_freed.load(Ordering::Acquire)
    }

    /// Holder of the send lock: notes that.
    pub fn program_set_byte_channel_freed(&self, end: u64) {
        self.raw.byte_channel_freed.store(end, Ordering::Release);
    }

    /// Where the outgoing byte channel stands.
    #[must_use]
    pub fn byte_channel_state(&self) -> LaneState {
        match self.raw.byte_channel_state.load(Ordering::Acquire) {
            0 => LaneState::Unused,
            1 => LaneState::Open,
            _ => LaneState::Over,
        }
    }

    /// Holder of the send lock: changes that.
    pub fn program_set_byte_channel_state(&self, state: LaneState) {
        let code = match state {
            LaneState::Unused => 0,
            LaneState::Open => 1,
            LaneState::Over => 2,
        };
        self.raw.byte_channel_state.store(code, Ordering::Release);
    }
}
