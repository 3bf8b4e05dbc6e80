//! The file that is served: every eight bytes of it differ, so that no shift or swap goes unseen. And the directory where it is.

use std::{
    fs::{self, DirBuilder, File},
    io::{BufWriter, Write},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use load::interrupt::Interrupt;
use sha2::{Digest, Sha256};

/// Its name in the scratch directory and in URLs.
pub const FILE_NAME: &str = "content.bin";

const BLOCK_BYTES: usize = 1 << 20;

/// A file of known content.
#[derive(Debug)]
pub struct Content {
    pub bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
}

impl Content {
    pub fn create(directory: &Path, bytes: u64, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let path = directory.join(FILE_NAME);
        let context = || {
            format!(
                "writing {} MiB to {} (--size asks for less, TMPDIR names another place)",
                bytes >> 20,
                path.display()
            )
        };
        let mut file =
            BufWriter::with_capacity(BLOCK_BYTES, File::create(&path).with_context(context)?);
        let mut hash = Sha256::new();
        let mut block = vec![0_u8; BLOCK_BYTES];
        let mut written = 0_u64;
        while written < bytes {
            interrupt.check()?;
            for (index, word) in (written / 8..).zip(block.chunks_exact_mut(8)) {
                word.copy_from_slice(&mixed(index).to_le_bytes());
            }
            let len =
                usize::try_from(bytes - written).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
            hash.update(&block[..len]);
            file.write_all(&block[..len]).with_context(context)?;
            written += u64::try_from(len).context("block size")?;
        }
        file.flush().with_context(context)?;
        let sha256 = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Self { bytes, sha256 })
    }

    /// What fetching it in this time means, in Gbit/s.
    pub fn gigabits_per_second(&self, seconds: f64) -> f64 {
        let bits = self.bytes as f64 * 8.0;
        bits / seconds / 1e9
    }
}

/// SplitMix64's finalizer: a permutation of all 64-bit numbers, so no two blocks of eight are equal.
fn mixed(index: u64) -> u64 {
    let mut z = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Parses a size such as 4096, 256M or 1G (powers of 1024).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let error = || format!("{text:?} is no size; write for example 4096, 256M or 1G");
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| error())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(error)?;
    if bytes == 0 { Err(error()) } else { Ok(bytes) }
}

/// A directory that is removed with everything in it.
#[derive(Debug)]
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Makes it.
    pub fn create() -> anyhow::Result<Self> {
        // Servers read it after a change of user, hence readable for all.
        let path = std::env::temp_dir().join(format!("shunt-bench-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o755)
            .create(&path)
            .with_context(|| {
                format!("creating {} (set TMPDIR to another place)", path.display())
            })?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            note!("shunt: removing {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_and_without_suffix() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("256M"), Ok(256 << 20));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        for text in ["", "G", "0", "-1", "1.5G", "99999999999G"] {
            assert!(parse_size(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn neighbouring_words_differ() {
        let words: std::collections::BTreeSet<u64> = (0..10_000).map(mixed).collect();
        assert_eq!(words.len(), 10_000);
    }
}
