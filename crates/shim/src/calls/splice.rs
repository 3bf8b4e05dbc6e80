//! splice(2) between a pipe and an accelerated socket, as Linux does it (`tcp_splice_read`, `splice_to_socket`),
//! except that the bytes are copied.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::calls::datagram;
use crate::calls::transfer::{Call, SendStep, with_stream};
use crate::outcome::Switched;
use crate::sys as system;
use crate::sys::borrow;
use crate::wait::sleep::RESTART;
use switch::readiness::RDHUP;

/// A pipe that poll(2) calls writable takes so much without waiting (PIPE_BUF).
const PIPE_BUF: usize = 4096;
/// What a pipe holds, unless somebody has asked for more; no datagram is longer.
pub const DATAGRAM_MAX: usize = 64 * 1024;

/// A flag beside those of Linux, which answers it with EINVAL: from an accelerated connection straight into a file, at
/// an offset, without a pipe. Who knows of it (`shunt recv`) saves a copy, and nobody else can tell.
pub const STRAIGHT: u32 = 1 << 30;

/// Moves up to `len` bytes. Of an offset it only matters whether one was given, except for a file: no other side has
/// any.
pub fn splice(
    from: RawFd,
    from_is_stream: bool,
    to: RawFd,
    to_offset: Option<&i64>,
    len: usize,
    flags: u32,
) -> Switched<usize> {
    if flags == STRAIGHT {
        let offset = to_offset.filter(|_| from_is_stream).ok_or(Errno::INVAL)?;
        let offset = u64::try_from(*offset).map_err(|_| Errno::INVAL)?;
        return with_stream(from, |call| into_file(call, to, offset, len));
    }
    let to_is_stream = to_offset.is_none();
    if len == 0 {
        return Ok(Some(0));
    }
    if flags
        & !(libc::SPLICE_F_MOVE
            | libc::SPLICE_F_NONBLOCK
            | libc::SPLICE_F_MORE
            | libc::SPLICE_F_GIFT)
        != 0
    {
        return Err(Errno::INVAL);
    }
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0;
    // Of a socket that no engine serves the kernel says what is wrong, or waits.
    let is_served = |socket| with_stream(socket, |_| Ok(())).map(|one| one.is_some());
    if is_pipe(to)? {
        if !is_served(from)? && !datagram::is_followed(from) {
            return Ok(None);
        }
        check_ends((from, from_is_stream), (to, to_is_stream), to)?;
        let pipe = borrow(to)?;
        return match with_stream(from, |call| from_socket(call, pipe, len, waits))? {
            None => from_datagrams(from, pipe, len, waits),
            moved => Ok(moved),
        };
    }
    if is_pipe(from)? {
        if !is_served(to)? && !datagram::sends_to_engine(to) {
            return Ok(None);
        }
        check_ends((from, from_is_stream), (to, to_is_stream), from)?;
        return match with_stream(to, |call| to_socket(call, from, len, waits))? {
            None => to_datagrams(to, borrow(from)?, len, waits),
            moved => Ok(moved),
        };
    }
    Ok(None)
}

fn is_pipe(fd: RawFd) -> Result<bool, Errno> {
    let stat = rustix::fs::fstat(borrow(fd)?)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// do_splice, in its order: an offset into a pipe is ESPIPE, the wrong end of it EBADF (it would never be ready), an offset
/// into a socket EINVAL. Both sides with whether they have no offset.
fn check_ends(from: (RawFd, bool), to: (RawFd, bool), pipe: RawFd) -> Result<(), Errno> {
    let (pipe_side, socket_side) = if pipe == from.0 {
        (from, to)
    } else {
        (to, from)
    };
    if !pipe_side.1 {
        return Err(Errno::SPIPE);
    }
    let mode = rustix::fs::fcntl_getfl(borrow(pipe)?)? & OFlags::ACCMODE;
    let wrong = if pipe == from.0 {
        OFlags::WRONLY
    } else {
        OFlags::RDONLY
    };
    if mode == wrong {
        return Err(Errno::BADF);
    }
    socket_side.1.then_some(()).ok_or(Errno::INVAL)
}

/// Waits as recv(2) does, then writes out of the window.
fn into_file(call: &Call<'_>, file: RawFd, offset: u64, len: usize) -> Result<usize, Errno> {
    let stat = rustix::fs::fstat(borrow(file)?)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    loop {
        let mut byte = [0];
        if call.receive(&mut [IoSliceMut::new(&mut byte)], libc::MSG_PEEK)? == 0 {
            return Ok(0);
        }
        match call.stream().spill(system::borrow(file)?, offset, len) {
            // Somebody else took it.
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
}

fn from_socket(
    call: &Call<'_>,
    pipe: BorrowedFd<'_>,
    len: usize,
    waits: bool,
) -> Result<usize, Errno> {
    let mut moved = 0;
    let mut bytes = [0; PIPE_BUF];
    while moved < len {
        // Only the first byte of all is worth a wait, for room as for data.
        if !is_ready(pipe, PollFlags::OUT, waits && moved == 0)? {
            return if moved > 0 {
                Ok(moved)
            } else {
                Err(Errno::AGAIN)
            };
        }
        let part = &mut bytes[..PIPE_BUF.min(len - moved)];
        if call.stream().is_before_urgent() {
            // It is no byte of the stream, and stays where it is (`tcp_read_sock`).
            let is_over = moved > 0 || call.events() & RDHUP != 0;
            let is_at_once = !is_over && call.socket().is_nonblocking(call.fd())?;
            return if is_at_once {
                Err(Errno::AGAIN)
            } else {
                Ok(moved)
            };
        }
        let hurry = if moved > 0 { libc::MSG_DONTWAIT } else { 0 };
        let peeked = call.receive(&mut [IoSliceMut::new(part)], libc::MSG_PEEK | hurry);
        let count = match peeked {
            Ok(0) => return Ok(moved),
            Ok(count) => count,
            Err(_) if moved > 0 => return Ok(moved),
            Err(error) => return Err(error),
        };
        if call.stream().is_before_urgent() {
            // It has come meanwhile.
            continue;
        }
        let written = match rustix::io::write(pipe, &part[..count]) {
            Ok(written) => written,
            Err(_) if moved > 0 => return Ok(moved),
            Err(error) => return Err(error),
        };
        call.stream().discard(written)?;
        moved += written;
    }
    Ok(moved)
}

fn to_socket(call: &Call<'_>, pipe: RawFd, len: usize, waits: bool) -> Result<usize, Errno> {
    call.push(len, true, false, &mut |done, left| {
        // A pipe whose writers are gone is ready, and read(2) tells of its end.
        if !is_ready(borrow(pipe)?, PollFlags::IN, waits && done == 0)? {
            return if done > 0 {
                Ok(SendStep::End)
            } else {
                Err(Errno::AGAIN)
            };
        }
        Ok(
            match call.stream().fill(system::borrow(pipe)?, None, left)? {
                None => SendStep::End,
                Some(0) => SendStep::Full,
                Some(bytes) => SendStep::Moved(bytes),
            },
        )
    })
}

/// One datagram; what does not fit the pipe is lost, as with a short buffer.
fn from_datagrams(socket: RawFd, pipe: BorrowedFd<'_>, len: usize, waits: bool) -> Switched<usize> {
    if !is_ready(pipe, PollFlags::OUT, waits)? {
        return Err(Errno::AGAIN);
    }
    let mut bytes = [0; PIPE_BUF];
    let part = &mut bytes[..PIPE_BUF.min(len)];
    let Some(count) = datagram::receive(socket, &mut [IoSliceMut::new(part)], 0)? else {
        return Ok(None);
    };
    rustix::io::write(pipe, &part[..count]).map(Some)
}

/// Sends one datagram of what one read of the pipe gives.
fn to_datagrams(socket: RawFd, pipe: BorrowedFd<'_>, len: usize, waits: bool) -> Switched<usize> {
    if !is_ready(pipe, PollFlags::IN, waits)? {
        return Err(Errno::AGAIN);
    }
    let mut bytes = vec![0; len.min(DATAGRAM_MAX)];
    let count = rustix::io::read(pipe, &mut bytes)?;
    datagram::send(socket, &[IoSlice::new(&bytes[..count])], 0)
}

fn is_ready(pipe: BorrowedFd<'_>, events: PollFlags, waits: bool) -> Result<bool, Errno> {
    if waits {
        let events = i16::from_ne_bytes(events.bits().to_ne_bytes());
        return match client::wait_for_descriptor(pipe.as_raw_fd(), events) {
            Err(Errno::INTR) => Err(RESTART),
            waited => waited.map(|()| true),
        };
    }
    let timeout = rustix::event::Timespec::default();
    let mut entry = [PollFd::from_borrowed_fd(pipe, events)];
    Ok(rustix::event::poll(&mut entry, Some(&timeout))? > 0)
}
