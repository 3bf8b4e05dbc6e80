//! What of a file is in the page cache: cachestat(2), and where that is forbidden (it takes the right to
//! write, or the file's owner) preadv2(2) with RWF_NOWAIT.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// cachestat(2) has this number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;
/// Where cachestat is forbidden one byte in so many is looked at: the kernel reads ahead in runs of this
/// order. A page that is missing in between costs the engine a wait for the disk, nothing else.
const SAMPLE_BYTES: u64 = 128 * 1024;

#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Statistics {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether `len` bytes of the file, at least one, are in memory as far as can be told.
pub fn is_cached(file: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let page = rustix::param::page_size() as u64;
    let range = Range { offset, len };
    let mut statistics = Statistics::default();
    let no_flags: libc::c_uint = 0;
    // SAFETY: both structures are those of the kernel's interface and live through the call, which
    // writes the second one only.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut statistics,
            no_flags,
        )
    };
    let last = offset + len - 1;
    if result == 0 {
        return statistics.cached > last / page - offset / page;
    }
    let samples = (offset..last).step_by(usize::try_from(SAMPLE_BYTES).unwrap_or(usize::MAX));
    crate::sys::errno() == libc::EPERM && samples.chain([last]).all(|offset| has_byte(file, offset))
}

/// Whether a byte can be read without waiting for the disk.
fn has_byte(file: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = [0];
    let mut target = [std::io::IoSliceMut::new(&mut byte)];
    let flags = rustix::io::ReadWriteFlags::NOWAIT;
    rustix::io::preadv2(file, &mut target, offset, flags) == Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn what_was_just_written_is_cached_and_what_lies_beyond_the_end_is_not() {
        let path = std::env::temp_dir().join(format!("shunt-cached-{}", std::process::id()));
        let mut file = std::fs::File::create_new(&path).unwrap();
        file.write_all(&vec![1; 300_000]).unwrap();
        file.rewind().unwrap();
        let readable = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(is_cached(readable.as_fd(), 0, 300_000));
        assert!(is_cached(readable.as_fd(), 4095, 2));
        assert!(!is_cached(readable.as_fd(), 299_999, 100_000));
        assert!(has_byte(readable.as_fd(), 299_999));
        assert!(!has_byte(readable.as_fd(), 300_000));
    }
}
