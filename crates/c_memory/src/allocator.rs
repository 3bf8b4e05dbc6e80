//! The preloaded library's own memory, from the system and not from libc's malloc: a handler of a signal that came while its thread was in
//! malloc may make calls of this library, and must not wait for malloc's lock (signal-safety(7)).
//!
//! Pieces of a power of two up to [`LARGEST`] are cut off blocks of [`BLOCK`] bytes and used again; what is larger is mapped by
//! itself. Handlers of the program never run while a thread of it is here: allocations are made within calls, which hold
//! them back (`client::SignalDeferral`).

mod sys;

pub use sys::{hold, release};

/// The smallest piece.
const SMALLEST: usize = 16;
/// The largest piece that is cut off a block.
const LARGEST: usize = 32 << 10;
/// How much is asked of the system at once.
const BLOCK: usize = 256 << 10;
/// Sizes of pieces: 16, 32, … 32768.
const SIZES: usize = (LARGEST / SMALLEST).ilog2() as usize + 1;
const PAGE: usize = 4096;

/// Which size of piece serves so many bytes with such an alignment; `None`: it is mapped by itself.
fn size_of_piece(bytes: usize, align: usize) -> Option<usize> {
    let wanted = bytes.max(align).max(SMALLEST);
    (wanted <= LARGEST).then(|| (wanted.next_power_of_two() / SMALLEST).ilog2() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_has_room_for_what_is_asked() {
        assert_eq!(size_of_piece(0, 1), Some(0));
        assert_eq!(size_of_piece(16, 8), Some(0));
        assert_eq!(size_of_piece(17, 8), Some(1));
        assert_eq!(size_of_piece(8, 64), Some(2));
        assert_eq!(size_of_piece(LARGEST, 8), Some(SIZES - 1));
        assert_eq!(size_of_piece(LARGEST + 1, 8), None);
    }
}
