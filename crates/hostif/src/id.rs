//! The name of a socket: an engine core, a row of that core's table, and the generation of that row.
//!
//! A name whose generation is old belongs to a socket that is gone; both sides drop what carries it.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::{HashMap, HashSet};

/// Bits of an index, or of a region's number, below those that name the core.
const CORE_SHIFT: u32 = 26;

/// Rows that a core's socket table may have.
pub const ROWS_MAX: u32 = 1 << CORE_SHIFT;

/// Number `n` of a core as a number that no other core of the engine gives out; `n` wraps around.
#[must_use]
pub fn number_of_core(core: u16, n: u32) -> u32 {
    u32::from(core) << CORE_SHIFT | (n % ROWS_MAX)
}

/// Names a socket of one engine, across all its programs and for all time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SocketId {
    /// Core and row, see [`SocketId::core`] and [`SocketId::row`].
    pub index: u32,
    /// How often that entry has been used; never 0.
    pub generation: u32,
}

impl SocketId {
    /// Makes a name; `None` when the generation is 0, which no socket has.
    #[must_use]
    pub fn new(index: u32, generation: u32) -> Option<SocketId> {
        (generation != 0).then_some(SocketId { index, generation })
    }

    /// The name of the socket in a core's row; `None` as for [`SocketId::new`].
    #[must_use]
    pub fn of_core(core: u16, row: u32, generation: u32) -> Option<SocketId> {
        SocketId::new(number_of_core(core, row), generation)
    }

    /// The engine core that serves the socket.
    #[must_use]
    pub fn core(self) -> u16 {
        u16::try_from(self.index >> CORE_SHIFT).unwrap_or(0)
    }

    /// The row in that core's table.
    #[must_use]
    pub fn row(self) -> u32 {
        self.index % ROWS_MAX
    }

    /// The name as it stands in descriptors and headers; never 0.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.index) | (u64::from(self.generation) << 32)
    }

    /// Reads a name back; `None` for bits that name no socket.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<SocketId> {
        SocketId::new(crate::descriptor::low(bits), crate::descriptor::high(bits))
    }
}

/// Hashes names and numbers that an engine gives out: nobody can choose them so that they collide, so
/// one multiplication will do.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        // Fibonacci hashing.
        self.0 = (self.0.rotate_left(32) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A table by such a name.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;
/// A set of such names.
pub type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

#[cfg(test)]
mod tests {
    use super::{ROWS_MAX, SocketId};

    #[test]
    fn a_name_tells_core_and_row() {
        let id = SocketId::of_core(63, ROWS_MAX - 1, 5).unwrap();
        assert_eq!((id.core(), id.row()), (63, ROWS_MAX - 1));
        assert_eq!(SocketId::of_core(0, 7, 5), SocketId::new(7, 5));
    }

    #[test]
    fn bits_name_the_same_socket_and_zero_names_none() {
        let id = SocketId::new(7, 9).unwrap();
        assert_eq!(SocketId::from_bits(id.to_bits()), Some(id));
        assert_eq!(SocketId::from_bits(0), None);
        assert_eq!(SocketId::from_bits(12), None);
    }
}
