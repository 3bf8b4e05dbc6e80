//! shutdown(2), close(2), and the calls that close on the way: dup2(2), dup3(2), close_range(2).
//!
//! The library's own descriptors live at high numbers. A program that closes everything it does not
//! know (daemons do) must not close them: it is told that it did.

use std::os::fd::RawFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::calls::datagram;
use crate::calls::transfer::with_stream;
use crate::fd_table::descriptors;
use crate::outcome::Switched;
use crate::socket::Socket;
use crate::wait::sleep::Deadline;
use crate::wait::sleeping;
use client::ShutdownHow;
use switch::readiness::Phase;

/// shutdown(2).
pub fn shutdown(fd: RawFd, how: i32) -> Switched<i32> {
    let result = with_stream(fd, |call| {
        let how = match how {
            libc::SHUT_RD => ShutdownHow::Read,
            libc::SHUT_WR => ShutdownHow::Write,
            libc::SHUT_RDWR => ShutdownHow::Both,
            _ => return Err(Errno::INVAL),
        };
        let (stream, socket) = (call.stream(), call.socket());
        match stream.phase() {
            Phase::Connected => {}
            Phase::Connecting => {
                socket.spend(stream);
                return Ok(false);
            }
            Phase::Listening if how == ShutdownHow::Write => return Ok(false),
            Phase::Listening => {
                if !stream.is_lost_listener() {
                    stream.shutdown(how)?;
                }
                // As in the kernel it is where it was before listen, for every process that has it.
                socket.stop_listening(call.fd(), stream)?;
                return Ok(true);
            }
            Phase::Closed => return Err(Errno::NOTCONN),
        }
        stream.shutdown(how)?;
        socket.set_shut(how != ShutdownHow::Write, how != ShutdownHow::Read);
        // Whoever sleeps on the socket or watches it has to look again.
        socket.watchers.notify(u32::MAX);
        Ok(false)
    })?;
    match result {
        None => datagram::control::shutdown(fd, how),
        // The backing socket of a listener stops listening as well.
        Some(true) => Ok(None),
        Some(false) => Ok(Some(0)),
    }
}

/// close(2): lets go of the engine's side; libc then closes the backing socket.
pub fn close(fd: RawFd) -> Switched<i32> {
    // That the call is the program's own was asked at the symbol: from here on it is the library's.
    if client::is_private(fd) {
        return Ok(Some(0));
    }
    release(fd);
    Ok(None)
}

/// close_range(2) without CLOSE_RANGE_CLOEXEC: lets go of what stands in the range, and names the
/// parts that libc may close, with the library's own descriptors left out.
pub fn close_range(first: u32, last: u32, close_part: &mut dyn FnMut(u32, u32)) {
    for fd in descriptors::tracked_in(clamp(first), clamp(last)) {
        release(fd);
    }
    let mut start = first;
    for private in descriptors::private_in(clamp(first), clamp(last)) {
        let private = private.unsigned_abs();
        if start < private {
            close_part(start, private - 1);
        }
        start = private + 1;
    }
    if start <= last {
        close_part(start, last);
    }
}

/// The kernel has made `new` a duplicate of `old`.
pub fn duplicated(old: RawFd, new: RawFd) {
    if old == new {
        return;
    }
    let file = descriptors::lookup(old);
    match file.filter(|file| file.epoll().is_some() || file.socket().is_some()) {
        Some(file) => descriptors::insert(new, file),
        None => descriptors::forget(new),
    }
}

fn release(fd: RawFd) {
    let Some(file) = descriptors::take(fd) else {
        return;
    };
    if let Some(socket) = file.socket()
        && !socket.is_datagram()
        && file.is_last_reference()
    {
        linger(socket);
    }
    file.drop_descriptor();
}

/// SO_LINGER: close waits until the peer has everything, the FIN too, or the time is up (socket(7),
/// Linux `sk_stream_wait_close`).
fn linger(socket: &Socket) {
    let Some(seconds) = socket.log.linger_s().filter(|seconds| *seconds > 0) else {
        return;
    };
    let Some(stream) = socket.stream() else {
        return;
    };
    // Bytes that nobody read turn the close into a reset, which waits for nothing (tcp_close).
    if stream.phase() != Phase::Connected || stream.queued_bytes() > 0 {
        return;
    }
    // Only who closes last waits: a parent lets a child have the connection.
    if !stream.is_held_alone() {
        return;
    }
    if stream.shutdown(ShutdownHow::Write).is_err() {
        return;
    }
    let deadline = Deadline::after(Duration::from_secs(seconds.into()));
    let mut is_done = || stream.fin_is_done() || stream.phase() == Phase::Closed;
    while !is_done() && !deadline.is_over() {
        // Interrupted: Linux gives up waiting as well, and sends the rest in the background.
        if sleeping::sleep(&[&stream], &mut [], None, deadline, &mut is_done).is_err() {
            return;
        }
    }
}

fn clamp(number: u32) -> RawFd {
    RawFd::try_from(number).unwrap_or(RawFd::MAX)
}
