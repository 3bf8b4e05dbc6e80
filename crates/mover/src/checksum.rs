//! Hashes of blocks and of the whole.
//!
//! With BLAKE3 a block's hash is the chaining value of its part of BLAKE3's own tree, and the hash of the whole
//! is what `b3sum` prints for the file. With XXH3, which finds accidents only, a block's hash is XXH3-128, and
//! that of the whole is XXH3-128 over those of its blocks.

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// A hash, of a block or of the whole; XXH3 fills the first half.
pub type Digest = [u8; 32];

/// How blocks are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// Cryptographic, and what `b3sum` prints.
    #[default]
    Blake3,
    /// Faster; finds accidents, not forgery.
    Xxh3,
}

/// Which block of what is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPosition {
    /// First byte of the block in the file; a multiple of the block size, which is a power of two of 1 KiB at least.
    pub offset: u64,
    /// The block is the whole file.
    pub is_only: bool,
}

impl BlockPosition {
    /// That of a file's only block.
    pub const WHOLE: Self = Self {
        offset: 0,
        is_only: true,
    };
}

pub enum BlockHasher {
    /// See [`Algorithm::Blake3`].
    Blake3(Box<blake3::Hasher>, bool),
    /// See [`Algorithm::Xxh3`].
    Xxh3(Box<XxHash3_128>),
}

impl BlockHasher {
    /// The hash of a file that is one block.
    pub fn digest(algorithm: Algorithm, bytes: &[u8]) -> Digest {
        let mut hasher = Self::new(algorithm, BlockPosition::WHOLE);
        hasher.update(bytes);
        hasher.finish()
    }

    /// Before the first byte of a block.
    pub fn new(algorithm: Algorithm, place: BlockPosition) -> Self {
        match algorithm {
            Algorithm::Blake3 => {
                let mut hasher = blake3::Hasher::new();
                hasher.set_input_offset(place.offset);
                Self::Blake3(Box::new(hasher), place.is_only)
            }
            Algorithm::Xxh3 => Self::Xxh3(Box::new(XxHash3_128::new())),
        }
    }

    /// The next bytes of it.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher, _) => drop(hasher.update(bytes)),
            Self::Xxh3(hasher) => hasher.write(bytes),
        }
    }

    /// Bytes that it is best given at a time where they come from memory: of BLAKE3 as many as it hashes side by side.
    pub fn stride_bytes(&self) -> usize {
        match self {
            Self::Blake3(..) => 16 * 1024,
            Self::Xxh3(_) => 4 * 1024,
        }
    }

    /// The hash of what was given.
    pub fn finish(&self) -> Digest {
        match self {
            Self::Blake3(hasher, true) => *hasher.finalize().as_bytes(),
            Self::Blake3(hasher, false) => hasher.finalize_non_root(),
            Self::Xxh3(hasher) => widen(hasher.finish_128()),
        }
    }
}

fn widen(hash: u128) -> Digest {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(&hash.to_be_bytes());
    digest
}

/// The hash of the whole from those of its blocks, all of the same size but the last.
pub fn whole(algorithm: Algorithm, blocks: &[Digest]) -> Digest {
    match (algorithm, blocks) {
        (Algorithm::Blake3, []) => *blake3::hash(&[]).as_bytes(),
        (Algorithm::Blake3, [only]) => *only,
        (Algorithm::Blake3, blocks) => {
            let (left, right) = blocks.split_at(left_count(blocks.len()));
            let (left, right) = (subtree(left), subtree(right));
            *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
        }
        (Algorithm::Xxh3, blocks) => {
            let mut hasher = XxHash3_128::new();
            for block in blocks {
                hasher.write(&block[..16]);
            }
            widen(hasher.finish_128())
        }
    }
}

/// BLAKE3's trees are full on the left.
fn left_count(blocks: usize) -> usize {
    blocks.next_power_of_two() / 2
}

fn subtree(blocks: &[Digest]) -> Digest {
    match blocks {
        [only] => *only,
        blocks => {
            let (left, right) = blocks.split_at(left_count(blocks.len()));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// For people: as many digits as the algorithm has.
pub fn hex(algorithm: Algorithm, digest: &Digest) -> String {
    let len = match algorithm {
        Algorithm::Blake3 => 32,
        Algorithm::Xxh3 => 16,
    };
    digest[..len]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_blocks(algorithm: Algorithm, bytes: &[u8], block_bytes: usize) -> Vec<Digest> {
        let hash = |(index, block): (usize, &[u8])| {
            let place = BlockPosition {
                offset: (index * block_bytes) as u64,
                is_only: bytes.len() <= block_bytes,
            };
            let mut hasher = BlockHasher::new(algorithm, place);
            let (left, right) = block.split_at(block.len() / 3);
            hasher.update(left);
            hasher.update(right);
            hasher.finish()
        };
        bytes.chunks(block_bytes).enumerate().map(hash).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_whole_is_what_b3sum_says(len in 0..40_000_usize, power in 0..4_u32) {
            let bytes: Vec<u8> = (0..len).map(|at| ((at * at) >> 3).to_le_bytes()[0]).collect();
            let blocks = in_blocks(Algorithm::Blake3, &bytes, 1_024 << power);
            let expected = blake3::hash(&bytes);
            prop_assert_eq!(whole(Algorithm::Blake3, &blocks), *expected.as_bytes());
        }
    }

    #[test]
    fn xxh3_of_the_whole_follows_every_block_and_their_order() {
        let blocks = in_blocks(Algorithm::Xxh3, &[7; 5_000], 1_024);
        let mut swapped = blocks.clone();
        swapped.swap(0, 4);
        assert_eq!(blocks.len(), 5);
        assert_ne!(
            whole(Algorithm::Xxh3, &blocks),
            whole(Algorithm::Xxh3, &swapped)
        );
        assert_ne!(
            whole(Algorithm::Xxh3, &blocks),
            whole(Algorithm::Xxh3, &blocks[..4])
        );
        assert_eq!(hex(Algorithm::Xxh3, &blocks[0]).len(), 32);
    }
}
