//! A file's bytes straight into a send window, and out of a receive window into a file.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use client::{ReceivedBytes, SendSpace};
use rustix::io::Errno;

/// pread(2) into the space, or read(2) at the file's own position; stops at a short read.
pub fn read_into(
    space: &SendSpace<'_>,
    file: BorrowedFd<'_>,
    offset: Option<u64>,
) -> Result<usize, Errno> {
    let mut done = 0;
    for (start, len) in space.spans() {
        if len == 0 {
            continue;
        }
        // SAFETY: the span lies in the mapped window and is this thread's to write until the space is
        // committed or dropped. The engine may read it meanwhile, in another process: it sends only
        // what is committed. The bytes are treated as uninitialised and written by the kernel.
        let target =
            unsafe { std::slice::from_raw_parts_mut(start.cast::<MaybeUninit<u8>>(), len) };
        let result = match offset {
            Some(offset) => rustix::io::pread(file, target, offset + done as u64),
            None => rustix::io::read(file, target),
        };
        match result {
            Ok((filled, _)) => {
                done += filled.len();
                if filled.len() < len {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// pwrite(2) of what has arrived; stops at a short write.
pub fn write_from(
    arrived: &ReceivedBytes<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
) -> Result<usize, Errno> {
    let mut done = 0;
    for bytes in arrived.slices() {
        if bytes.is_empty() {
            continue;
        }
        match rustix::io::pwrite(file, bytes, offset + done as u64) {
            Ok(count) => {
                done += count;
                if count < bytes.len() {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
