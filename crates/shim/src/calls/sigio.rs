//! Signal-driven I/O: F_SETOWN, F_SETOWN_EX, F_SETSIG, O_ASYNC, and the ioctls that mean the same (fcntl(2), socket(7)).
//!
//! The kernel judges and keeps all of it on the backing socket, and answers what is asked. What happens to an
//! accelerated socket happens on another descriptor, which the engine provides: the same is set there
//! (docs/decisions/0044-signals-by-a-pair.md).

mod sys;

use std::os::fd::{AsRawFd as _, RawFd};

use crate::fd_table::descriptors;
use crate::report;
use crate::socket::Socket;
use switch::stream::Stream;

/// Whether the command says who gets which signal for what.
pub fn is_setting(command: i32) -> bool {
    matches!(command, libc::F_SETOWN | F_SETOWN_EX | F_SETSIG)
}

/// As `is_setting`, of ioctl(2).
pub fn is_ioctl(request: u64) -> bool {
    matches!(request, libc::FIOASYNC | FIOSETOWN | SIOCSPGRP)
}

/// F_SETOWN_EX and F_SETSIG (linux/fcntl.h).
const F_SETOWN_EX: i32 = 15;
const F_SETSIG: i32 = 10;
/// The two are one (asm/sockios.h).
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;

/// The program has changed one of these settings.
pub fn follow(fd: RawFd) {
    // A child of vfork has the parent's table, but descriptors of its own.
    if crate::process::is_borrowed_memory() {
        return;
    }
    let Some(file) = descriptors::lookup(fd) else {
        return;
    };
    let Some(socket) = file.socket() else {
        return;
    };
    socket.set_signalled();
    if let Some(stream) = socket.stream() {
        apply(fd, socket, &stream);
    }
}

/// F_SETFL: O_ASYNC may have changed.
pub fn follow_flags(fd: RawFd, flags: i32) {
    let was_on =
        descriptors::lookup(fd).is_some_and(|file| file.socket().is_some_and(Socket::is_signalled));
    if was_on || flags & libc::O_ASYNC != 0 {
        follow(fd);
    }
}

/// A call has seen something of the socket: when this returns, the signals for that were sent.
pub fn settle(socket: &Socket, stream: &Stream) {
    if socket.is_signalled() {
        stream.await_signals();
    }
}

/// The socket has got an engine's side, or has come from elsewhere.
pub fn apply(fd: RawFd, socket: &Socket, stream: &Stream) {
    if !socket.is_signalled() {
        return;
    }
    let settled = stream.signal_ends().and_then(|ends| {
        let settings = sys::Settings::of(fd)?;
        // What has happened until now is told to those who were to hear it.
        stream.await_signals();
        ends.iter()
            .try_for_each(|end| settings.set(end.as_raw_fd(), fd))
    });
    match settled {
        Ok(()) => stream.expect_signal(),
        // Its connections are gone, as the next call on it says.
        Err(rustix::io::Errno::CONNRESET) => {}
        Err(error) => report::line(&format!(
            "nobody is signalled of events of descriptor {fd}: {error}"
        )),
    }
}

/// Of a descriptor that has come from elsewhere: whether signals are to be sent for it.
pub fn recover(fd: RawFd, socket: &Socket) {
    if sys::Settings::of(fd).is_ok_and(|settings| settings.is_any()) {
        socket.set_signalled();
    }
}
