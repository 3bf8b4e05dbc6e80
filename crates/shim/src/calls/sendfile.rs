//! sendfile(2) onto an accelerated socket. Of a large file that is in the page cache only the place is
//! told to the engine, which sends from there; anything else is read straight into the send window, so
//! that its bytes are copied once.

mod shared;
mod sys;

use std::io::IoSlice;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::calls::datagram;
use crate::calls::splice::DATAGRAM_MAX;
use crate::calls::transfer::{Call, SendStep, with_stream};
use crate::outcome::Switched;
use crate::sys::borrow;
use shared::Known;
use switch::stream::Stream;

/// Linux moves at most this much in one call (MAX_RW_COUNT).
const MAX_COUNT: usize = 0x7fff_f000;
/// From here on a call is worth the look at the file.
const BY_REFERENCE_MIN: u64 = 128 * 1024;
/// From here on what is left of a file is worth the message that shares it.
const SHARE_MIN: u64 = 1024 * 1024;
/// At least this much of the file is looked at, even where the window has less free space.
const PART_MIN: usize = 64 * 1024;

/// Sends up to `count` bytes of `file`: from `offset`, which is moved on, or from the file's position.
pub fn sendfile(
    socket: RawFd,
    file: RawFd,
    mut offset: Option<&mut libc::off64_t>,
    count: usize,
) -> Switched<usize> {
    let moved = with_stream(socket, |call| {
        as_stream(call, file, offset.as_deref_mut(), count.min(MAX_COUNT))
    });
    match moved.map_err(|error| file_or(file, error))? {
        None => as_datagram(socket, file, offset, count),
        moved => Ok(moved),
    }
}

/// What is wrong with the file, of which Linux looks first whether it can be read (`do_sendfile`); or else what the socket said.
fn file_or(file: RawFd, error: Errno) -> Errno {
    let is_of_moment = matches!(error, Errno::AGAIN | Errno::INTR);
    if is_of_moment || borrow(file).is_ok_and(is_readable) {
        error
    } else {
        Errno::BADF
    }
}

fn is_readable(file: BorrowedFd<'_>) -> bool {
    let is_open_for_it =
        |flags: OFlags| !flags.contains(OFlags::PATH) && flags & OFlags::RWMODE != OFlags::WRONLY;
    rustix::fs::fcntl_getfl(file).is_ok_and(is_open_for_it)
}

fn as_stream(
    call: &Call<'_>,
    file: RawFd,
    offset: Option<&mut libc::off64_t>,
    count: usize,
) -> Result<usize, Errno> {
    let start = match &offset {
        Some(offset) => Some(u64::try_from(**offset).map_err(|_| Errno::INVAL)?),
        None => None,
    };
    let reference = Reference::find(call.stream(), file, start, count);
    let moved = call.push(count, true, false, &mut |done, left| {
        if let Some(reference) = &reference
            && let Some(part) = reference.send(call.stream(), done as u64, left)?
        {
            return Ok(part);
        }
        let from = start.map(|start| start + done as u64);
        Ok(
            match call.stream().fill(crate::sys::borrow(file)?, from, left)? {
                None => SendStep::End,
                Some(0) => SendStep::Full,
                Some(bytes) => SendStep::Moved(bytes),
            },
        )
    })?;
    if let Some(offset) = offset {
        *offset += libc::off64_t::try_from(moved).unwrap_or(0);
    }
    Ok(moved)
}

/// One datagram, as long as a splice through a pipe would make it.
fn as_datagram(
    socket: RawFd,
    file: RawFd,
    offset: Option<&mut libc::off64_t>,
    count: usize,
) -> Switched<usize> {
    if !datagram::sends_to_engine(socket) {
        return Ok(None);
    }
    let mut bytes = vec![0; count.min(DATAGRAM_MAX)];
    let file = borrow(file)?;
    let read = match &offset {
        Some(offset) => {
            let start = u64::try_from(**offset).map_err(|_| Errno::INVAL)?;
            rustix::io::pread(file, &mut bytes, start)?
        }
        None => rustix::io::read(file, &mut bytes)?,
    };
    if read == 0 {
        return Ok(Some(0));
    }
    let sent = datagram::send(socket, &[IoSlice::new(&bytes[..read])], 0)?;
    if let Some(offset) = offset {
        *offset += libc::off64_t::try_from(sent.unwrap_or(0)).unwrap_or(0);
    }
    Ok(sent)
}

/// A file that the engine can send from.
struct Reference {
    known: Arc<Known>,
    file: RawFd,
    start: u64,
    size: u64,
    /// The file's own position is where it starts, and moves on.
    moves_position: bool,
}

impl Reference {
    /// `None`: by the window, which also finds out what is wrong with the file.
    fn find(stream: &Stream, file: RawFd, offset: Option<u64>, count: usize) -> Option<Reference> {
        if (count as u64) < BY_REFERENCE_MIN {
            return None;
        }
        let borrowed = borrow(file).ok()?;
        let stat = rustix::fs::fstat(borrowed).ok()?;
        let size = u64::try_from(stat.st_size).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size < BY_REFERENCE_MIN
        {
            return None;
        }
        if !is_readable(borrowed) {
            return None;
        }
        let start = match offset {
            Some(offset) => offset,
            None => rustix::fs::tell(borrowed).ok()?,
        };
        let left = size.saturating_sub(start);
        if left < BY_REFERENCE_MIN {
            return None;
        }
        Some(Reference {
            known: shared::find(stream, borrowed, &stat, left >= SHARE_MIN)?,
            file,
            start,
            size,
            moves_position: offset.is_none(),
        })
    }

    /// Sends what fits, `done` bytes after the start; `None`: by the window.
    fn send(&self, stream: &Stream, done: u64, left: usize) -> Result<Option<SendStep>, Errno> {
        let from = self.start + done;
        let Some(there) = self.size.checked_sub(from).filter(|there| *there > 0) else {
            return Ok(None);
        };
        let there = usize::try_from(there).unwrap_or(usize::MAX);
        let wanted = left.min(there).min(stream.send_room().max(PART_MIN));
        let file = borrow(self.file)?;
        let Some(shared) = self.known.file() else {
            return Ok(None);
        };
        if !sys::is_cached(file, from, wanted as u64) {
            return Ok(None);
        }
        match stream.send_file(shared, from, wanted) {
            Ok(0) => Ok(Some(SendStep::Full)),
            Ok(bytes) => {
                if self.moves_position {
                    rustix::fs::seek(file, SeekFrom::Current(i64::try_from(bytes).unwrap_or(0)))?;
                }
                Ok(Some(SendStep::Moved(bytes)))
            }
            // The engine was lost, or this is a child: the next call shares the file anew.
            Err(Errno::STALE) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
