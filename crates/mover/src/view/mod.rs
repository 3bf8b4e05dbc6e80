//! A file's pages in the page cache as memory, a window at a time, to hash them where they lie: no copy is made for it.
//!
//! Bytes that are gone when they are looked at (the file was cut off, or its disk cannot be read) end a program by
//! SIGBUS. Here zeros take the place of such a page, and [`View::is_torn`] tells. Each piece is first looked at here and
//! there, so that waiting for the disk is not taken for hashing, and what is gone by then is known before it is hashed.

mod sys;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checksum::BlockHasher;

/// Bytes that are mapped at a time: as many as make remapping cheap, and page tables few.
const WINDOW_BYTES: u64 = 64 << 20;

/// A number that tells an open file from every other one of this process.
pub fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Hashes bytes that are in no cache: a part is fetched while the one before it is hashed.
pub fn hash_ahead(hasher: &mut BlockHasher, bytes: &[u8]) {
    let part_bytes = hasher.stride_bytes();
    let mut parts = bytes.chunks(part_bytes).peekable();
    while let Some(part) = parts.next() {
        if let Some(next) = parts.peek() {
            sys::prefetch(next);
        }
        hasher.update(part);
    }
}

/// The window of one thread.
#[derive(Debug, Default)]
pub struct View {
    window: Option<Window>,
}

#[derive(Debug)]
struct Window {
    /// Which open file, see [`number`].
    source: u64,
    start: u64,
    end: u64,
    mapping: sys::Mapping,
}

impl View {
    /// Bytes of a file of which `size` are to be seen; `None`: they cannot be had this way, and reading tells why.
    pub fn bytes(
        &mut self,
        source: u64,
        file: BorrowedFd<'_>,
        size: u64,
        offset: u64,
        len: usize,
    ) -> Option<&[u8]> {
        let until = offset
            .checked_add(len as u64)
            .filter(|until| *until <= size)?;
        let fits = |window: &Window| {
            window.source == source && window.start <= offset && until <= window.end
        };
        if !self.window.as_ref().is_some_and(fits) {
            // The old one goes before the new one comes: there are not many places for them.
            self.window = None;
            let start = offset - offset % WINDOW_BYTES;
            let end = (start + WINDOW_BYTES).max(until).min(size);
            let mapping = sys::Mapping::new(file, start, usize::try_from(end - start).ok()?)?;
            self.window = Some(Window {
                source,
                start,
                end,
                mapping,
            });
        }
        let window = self.window.as_ref()?;
        let at = usize::try_from(offset - window.start).ok()?;
        window.mapping.bytes(at, len)
    }

    /// Takes a range out of the page tables again, so that the system may drop its pages from the page cache.
    pub fn release(&self, offset: u64, len: usize) {
        let within = |window: &&Window| window.start <= offset && offset < window.end;
        if let Some(window) = self.window.as_ref().filter(within) {
            let at = usize::try_from(offset - window.start).unwrap_or(usize::MAX);
            window.mapping.release(at, len);
        }
    }

    /// Whether something that was looked at since the window was opened was not there.
    pub fn is_torn(&self) -> bool {
        self.window
            .as_ref()
            .is_some_and(|window| window.mapping.is_torn())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::path::PathBuf;

    fn file(name: &str, len: u32) -> (PathBuf, File) {
        let path = std::env::temp_dir().join(format!("shunt-view-{name}-{}", std::process::id()));
        let content: Vec<u8> = (0..len).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, content).unwrap();
        (
            path.clone(),
            File::options().write(true).read(true).open(path).unwrap(),
        )
    }

    #[test]
    fn every_byte_is_seen_across_windows_and_none_beyond_the_end() {
        let (path, file) = file("all", u32::try_from(WINDOW_BYTES / 4).unwrap() + 1_000);
        let size = file.metadata().unwrap().len();
        let content = std::fs::read(&path).unwrap();
        let mut view = View::default();
        for (offset, len) in [
            (0, 5_000),
            (4_095, 2),
            (WINDOW_BYTES - 10, 20),
            (WINDOW_BYTES, 4_000),
            (7, 1 << 20),
        ] {
            let seen = view.bytes(1, file.as_fd(), size, offset, len).unwrap();
            let at = usize::try_from(offset).unwrap();
            assert!(seen == &content[at..at + len], "{offset}");
        }
        assert!(
            view.bytes(1, file.as_fd(), size, WINDOW_BYTES, 4_001)
                .is_none()
        );
        assert!(view.bytes(1, file.as_fd(), size, u64::MAX, 2).is_none());
        assert!(!view.is_torn());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_is_cut_off_is_told_and_does_not_end_the_program() {
        let (path, file) = file("cut", 100_000);
        let size = file.metadata().unwrap().len();
        let mut view = View::default();
        let seen = view.bytes(7, file.as_fd(), size, 0, 300_000).unwrap();
        assert_eq!(seen[0], 0);
        file.set_len(10_000).unwrap();
        // Behind the last page that is left: as if the file was cut off while it is hashed.
        let sum: u64 = seen[4 * 4_096..].iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum, 0);
        assert!(view.is_torn());
        // The same bytes asked for again: an answer, not a signal.
        let mut other = View::default();
        assert!(other.bytes(8, file.as_fd(), size, 0, 300_000).is_none());
        std::fs::remove_file(path).unwrap();
    }
}
