//! Sequence numbers (RFC 9293 §3.4).
//!
//! On the wire they are 32 bits and wrap. Inside a connection every position is an absolute
//! 64-bit number instead: 0 is the SYN, 1 the first byte of data. [`SequenceSpace`] maps one to the
//! other, so that no other file compares wrapped numbers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A sequence number as it stands in a segment.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// This number advanced by `n`, modulo 2^32.
    #[must_use]
    pub const fn advance(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// Whether this number comes after `other` (RFC 9293 §3.4: within half the space).
    pub const fn is_after(self, other: Self) -> bool {
        let distance = self.0.wrapping_sub(other.0);
        distance != 0 && distance < 1 << 31
    }
}

/// One direction's sequence space: the initial number and the mapping to absolute positions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct SequenceSpace {
    initial: SeqNumber,
}

impl SequenceSpace {
    /// The space that begins with a SYN numbered `initial`.
    pub const fn new(initial: SeqNumber) -> Self {
        Self { initial }
    }

    /// The wire number of absolute position `position`.
    pub fn wire(self, position: u64) -> u32 {
        let [a, b, c, d, ..] = position.to_le_bytes();
        self.initial
            .0
            .wrapping_add(u32::from_le_bytes([a, b, c, d]))
    }

    /// The absolute position of wire number `number`, the one nearest to `near`.
    ///
    /// `None` when the number lies before the space begins.
    pub fn position(self, number: u32, near: u64) -> Option<u64> {
        let distance = number.wrapping_sub(self.wire(near)).cast_signed();
        near.checked_add_signed(i64::from(distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(SeqNumber(3).is_after(SeqNumber(u32::MAX - 2)));
        assert!(!SeqNumber(u32::MAX - 2).is_after(SeqNumber(3)));
        assert!(!SeqNumber(7).is_after(SeqNumber(7)));
    }

    #[test]
    fn numbers_before_the_space_have_no_position() {
        assert_eq!(SequenceSpace::new(SeqNumber(100)).position(99, 0), None);
    }

    proptest! {
        #[test]
        fn position_inverts_wire(initial: u32, near in 0_u64..1 << 50, distance in -(1_i64 << 31) + 1..1_i64 << 31) {
            let space = SequenceSpace::new(SeqNumber(initial));
            if let Some(position) = near.checked_add_signed(distance) {
                prop_assert_eq!(space.position(space.wire(position), near), Some(position));
            }
        }
    }
}
