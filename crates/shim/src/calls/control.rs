//! fcntl(2) and ioctl(2), as far as they concern an accelerated socket.

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::calls::datagram;
use crate::calls::sigio;
use crate::calls::transfer::with_stream;
use crate::fd_table::descriptors;
use crate::outcome::Switched;
use switch::readiness::Phase;

/// SIOCOUTQNSD: bytes not yet sent (linux/sockios.h).
const SIOCOUTQNSD: u64 = 0x894B;
/// SIOCATMARK.
const SIOCATMARK: u64 = 0x8905;

/// What is left to do after libc's own fcntl ran with `result`.
pub fn after_fcntl(fd: RawFd, command: i32, argument: u64, result: i32) -> i32 {
    if result < 0 {
        return result;
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            crate::calls::close::duplicated(fd, result);
            result
        }
        libc::F_GETFL => hidden_flags(fd, result),
        libc::F_SETFL => {
            hide_nonblocking(fd, argument & u64::from(NONBLOCK) != 0);
            sigio::follow_flags(fd, hostif::descriptor::low(argument).cast_signed());
            result
        }
        _ => {
            if sigio::is_setting(command) {
                sigio::follow(fd);
            }
            result
        }
    }
}

const NONBLOCK: u32 = libc::O_NONBLOCK.cast_unsigned();

/// F_GETFL of a listener whose backing socket is non-blocking for the library's sake.
fn hidden_flags(fd: RawFd, flags: i32) -> i32 {
    let Some(file) = descriptors::lookup(fd) else {
        return flags;
    };
    match file.socket() {
        Some(socket) if socket.kernel_listens() => match socket.is_nonblocking(fd) {
            Ok(false) => flags & !libc::O_NONBLOCK,
            _ => flags,
        },
        _ => flags,
    }
}

/// The program sets O_NONBLOCK. On such a listener it is remembered, and kept set in the kernel.
fn hide_nonblocking(fd: RawFd, on: bool) {
    let Some(file) = descriptors::lookup(fd) else {
        return;
    };
    let Some(socket) = file.socket() else {
        return;
    };
    socket.forget_blocking();
    if socket.kernel_listens()
        && let Some(stream) = socket.stream()
    {
        // It fails only if the program has closed the number meanwhile.
        let _ = socket.set_kernel_listens(fd, &stream);
        socket.set_hidden_nonblocking(on);
    }
}

/// An ioctl with an integer as its result, or `None` for those that are the kernel's.
pub fn ioctl(fd: RawFd, request: u64) -> Switched<i32> {
    let answer = with_stream(fd, |call| {
        let stream = call.stream();
        let listening = stream.phase() == Phase::Listening;
        let bytes = match request {
            // FIONREAD and SIOCINQ are one number, as are TIOCOUTQ and SIOCOUTQ.
            libc::FIONREAD => match stream.queued_bytes() {
                0 => {
                    stream.on_idle_look();
                    stream.queued_bytes()
                }
                there => there,
            },
            libc::TIOCOUTQ => {
                stream.on_idle_look();
                stream.unacknowledged_now()
            }
            SIOCOUTQNSD => usize::try_from(stream.figures()?.notsent_bytes).unwrap_or(usize::MAX),
            SIOCATMARK => return Ok(Some(i32::from(stream.is_at_mark()))),
            _ => return Ok(None),
        };
        if listening {
            return Err(Errno::INVAL);
        }
        Ok(Some(i32::try_from(bytes).unwrap_or(i32::MAX)))
    })?;
    match answer {
        None => datagram::control::ioctl(fd, request),
        answer => Ok(answer.flatten()),
    }
}

/// FIONBIO.
pub fn after_nonblocking_ioctl(fd: RawFd, on: bool) {
    hide_nonblocking(fd, on);
}
