//! Reading small parts of a file here and there by few system calls.

use std::io::{self, Read, Seek, SeekFrom};

/// Bytes that are read at once. Headers, notes and the loader's name of a program lie within its first page.
const WINDOW_BYTES: usize = 8 << 10;

/// A file, and a part of it that was read. Larger reads go past that.
pub struct Window<R> {
    file: R,
    /// Where the next read begins.
    position: u64,
    /// Where in the file `bytes` lie.
    start: u64,
    bytes: Vec<u8>,
}

impl<R: Read + Seek> Window<R> {
    pub fn new(file: R) -> Self {
        Self {
            file,
            position: 0,
            start: 0,
            bytes: Vec::new(),
        }
    }

    /// What was read already from the position on.
    fn known(&self) -> &[u8] {
        let skipped = self.position.checked_sub(self.start);
        let skipped = skipped.and_then(|skipped| usize::try_from(skipped).ok());
        skipped
            .and_then(|skipped| self.bytes.get(skipped..))
            .unwrap_or_default()
    }
}

impl<R: Read + Seek> Read for Window<R> {
    // It is called in a dozen places, once for each program that is started: its code is not worth as many copies.
    #[inline(never)]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.known().is_empty() {
            self.file.seek(SeekFrom::Start(self.position))?;
            if buffer.len() >= WINDOW_BYTES {
                let read = self.file.read(buffer)?;
                self.position += read as u64;
                return Ok(read);
            }
            self.start = self.position;
            self.bytes.resize(WINDOW_BYTES, 0);
            let read = self.file.read(&mut self.bytes);
            self.bytes.truncate(*read.as_ref().unwrap_or(&0));
            read?;
        }
        let known = self.known();
        let read = known.len().min(buffer.len());
        buffer[..read].copy_from_slice(&known[..read]);
        self.position += read as u64;
        Ok(read)
    }
}

impl<R: Read + Seek> Seek for Window<R> {
    #[inline(never)]
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = match to {
            SeekFrom::Start(position) => position,
            SeekFrom::Current(by) => self
                .position
                .checked_add_signed(by)
                .ok_or(io::ErrorKind::InvalidInput)?,
            SeekFrom::End(_) => self.file.seek(to)?,
        };
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Counts what is asked of it.
    struct Counting<R>(R, usize);

    impl<R: Read> Read for Counting<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            self.0.read(buffer)
        }
    }

    impl<R: Seek> Seek for Counting<R> {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn parts_of_one_page_are_read_once() {
        let content: Vec<u8> = (0..=255).cycle().take(WINDOW_BYTES).collect();
        let mut window = Window::new(Counting(io::Cursor::new(content), 0));
        let mut part = [0; 4];
        for position in [0, 64, 4_000, 8] {
            window.seek(SeekFrom::Start(position)).unwrap();
            window.read_exact(&mut part).unwrap();
            assert_eq!(u64::from(part[0]), position % 256);
        }
        assert_eq!(window.file.1, 1);
    }

    proptest! {
        #[test]
        fn reads_as_the_file_itself_would(parts in prop::collection::vec((0_usize..40_000, 0_usize..20_000), 1..20)) {
            let content: Vec<u8> = (0..=250).cycle().take(30_000).collect();
            let mut window = Window::new(io::Cursor::new(content.clone()));
            for (position, len) in parts {
                window.seek(SeekFrom::Start(position as u64)).unwrap();
                let mut read = Vec::new();
                window.by_ref().take(len as u64).read_to_end(&mut read).unwrap();
                let begin = content.len().min(position);
                let end = content.len().min(begin + len);
                prop_assert_eq!(&read[..], &content[begin..end]);
            }
        }
    }
}
