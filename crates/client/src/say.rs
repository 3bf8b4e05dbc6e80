//! What this library has to say to a program's user, on the program's standard error: without waiting, without a
//! signal, without memory from the heap.

use std::io::IoSlice;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{AddressFamily, sockopt};

use crate::sys::{self, bit};

/// One line on standard error, if the program has one: see [`say_to`].
pub fn say(text: &str) {
    say_to(sys::borrow(libc::STDERR_FILENO), text);
}

/// One line on the standard error of a program. It never waits for whoever reads it, and no signal tells the program
/// that it could not be written: it is lost then. A connection in that place is for what the program says.
pub fn say_to(stderr: BorrowedFd<'_>, text: &str) {
    let family = sockopt::socket_domain(stderr);
    if matches!(family, Ok(AddressFamily::INET | AddressFamily::INET6)) {
        return;
    }
    let line = [b"shunt: ", text.as_bytes(), b"\n"].map(IoSlice::new);
    // Of a reader that has gone, a limit on the size of files, a terminal that is others'.
    let signals = bit(libc::SIGPIPE) | bit(libc::SIGXFSZ) | bit(libc::SIGTTOU);
    sys::without_signals(signals, &mut || {
        // Wherever the file stands: an offset of -1, see pwritev2(2).
        let tried = rustix::io::pwritev2(stderr, &line, u64::MAX, ReadWriteFlags::NOWAIT);
        if tried.is_err_and(|error| may_be_written(stderr, error)) {
            let _ = rustix::io::writev(stderr, &line);
        }
    });
}

/// After a write that must not wait failed: whether one that may wait will not. So it is with files, with terminals
/// that are not stopped, and with pipes that have room where the kernel is older than 6.4.
fn may_be_written(stderr: BorrowedFd<'_>, error: Errno) -> bool {
    let is_unknown = matches!(error, Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS);
    if !is_unknown && error != Errno::AGAIN {
        return false;
    }
    let kind = rustix::fs::fstat(stderr).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if !is_unknown && matches!(kind, Ok(FileType::Fifo | FileType::Socket)) {
        return false; // Its reader is behind.
    }
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    let at_once = rustix::time::Timespec::default();
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::OUT)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_line_reaches_a_pipe_and_a_file() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        say_to(writer.as_fd(), "one");
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "shunt: one\n");

        let path = std::env::temp_dir().join(format!("shunt-say-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        say_to(file.as_fd(), "one");
        say_to(file.as_fd(), "two");
        let said = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(said, "shunt: one\nshunt: two\n");
    }

    #[test]
    fn a_full_pipe_and_one_without_a_reader_cost_a_line_and_neither_time_nor_a_signal() {
        let (reader, writer) = std::io::pipe().unwrap();
        // Ends: the pipe takes so much and no more.
        for _ in 0..10_000 {
            say_to(
                writer.as_fd(),
                "a line of fifty bytes, or of nearly so many",
            );
        }
        drop(reader);
        let pending = sys::pending_signals();
        say_to(writer.as_fd(), "nobody reads this");
        assert_eq!(sys::pending_signals(), pending);
    }

    #[test]
    fn a_connection_is_not_written_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        say_to(stream.as_fd(), "not for the peer");
        drop(stream);
        let mut came = String::new();
        peer.read_to_string(&mut came).unwrap();
        assert_eq!(came, "");
    }
}
