//! sendfile(2) onto an accelerated socket: the file is read straight into the send window, so its
//! bytes are copied once.

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::outcome::Switched;
use crate::transfer::{Part, with_stream};

/// Linux moves at most this much in one call (MAX_RW_COUNT).
const MAX_COUNT: usize = 0x7fff_f000;

/// Sends up to `count` bytes of `file`: from `offset`, which is moved on, or from the file's position.
pub fn sendfile(
    socket: RawFd,
    file: RawFd,
    offset: Option<&mut libc::off64_t>,
    count: usize,
) -> Switched<usize> {
    with_stream(socket, |call| {
        let start = match &offset {
            Some(offset) => Some(u64::try_from(**offset).map_err(|_| Errno::INVAL)?),
            None => None,
        };
        let moved = call.push(count.min(MAX_COUNT), true, false, &mut |done, left| {
            let from = start.map(|start| start + done as u64);
            Ok(match call.stream().fill(file, from, left)? {
                None => Part::End,
                Some(0) => Part::Full,
                Some(bytes) => Part::Moved(bytes),
            })
        })?;
        if let Some(offset) = offset {
            *offset += libc::off64_t::try_from(moved).unwrap_or(0);
        }
        Ok(moved)
    })
}
