//! The socket pair behind a served descriptor: one end is the program's, the other the supervisor's.
//!
//! A pair can be written to as soon as it exists, a TCP socket once it is connected. So while a connect is
//! under way the program's end is stuffed: bytes that nobody means to read hold it unwritable until the
//! supervisor takes them out. See unix(7); `unix_writable` of Linux wants a quarter of the send buffer used.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, send,
    socketpair, sockopt,
};
use switch::backing;

/// Send buffer of either end. The kernel counts 768 bytes and more for each write: its default would be full
/// after 278 writes of one byte, where TCP puts them together.
const BUFFER_BYTES: usize = 512 * 1024;

/// The smallest: single writes of a few bytes have room, however little the program wants to wait.
const SMALLEST_BYTES: usize = 16 * 1024;

/// What a write takes at least of the send buffer, with all that the kernel counts (768 bytes were seen).
const WRITE_BYTES: usize = 1024;

/// What an end is stuffed with.
static PIECE: [u8; 32 * 1024] = [0; 32 * 1024];

/// Both ends, before the program has its own.
pub struct Pair {
    /// The program's.
    pub programs: OwnedFd,
    /// The supervisor's, which never blocks.
    pub ours: OwnedFd,
    /// The number that names the program's end, whatever its descriptor becomes.
    pub cookie: u64,
}

impl Pair {
    /// A pair whose program's end blocks or not.
    pub fn new(nonblocking: bool) -> Result<Pair, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (programs, ours) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        for end in [&programs, &ours] {
            raise_send_buffer(end.as_fd())?;
        }
        set_nonblocking(programs.as_fd(), nonblocking)?;
        let cookie = crate::sys::cookie(&programs)?;
        Ok(Pair {
            programs,
            ours,
            cookie,
        })
    }

    /// Names the program's end by the socket in whose place it stands.
    pub fn name_after(&self, backing: BorrowedFd<'_>) {
        if let Some(name) = name_after(backing) {
            // Only `shunt explain` misses it.
            let _ = rustix::net::bind(&self.programs, &name);
        }
    }

    /// Makes the program's end unwritable; how many bytes have to be taken out again.
    pub fn stuff(&self) -> Result<usize, Errno> {
        let mut stuffed = 0;
        while is_writable(self.programs.as_fd()) {
            stuffed += send(&self.programs, &PIECE, SendFlags::DONTWAIT)?;
        }
        Ok(stuffed)
    }

    /// As `stuff`, until nothing goes in: then there will be a signal when it is writable (`SOCKWQ_ASYNC_NOSPACE`).
    pub fn stuff_fully(&self) -> Result<usize, Errno> {
        let mut stuffed = self.stuff()?;
        loop {
            match send(&self.programs, &PIECE, SendFlags::DONTWAIT) {
                Ok(sent) => stuffed += sent,
                Err(Errno::AGAIN) => return Ok(stuffed),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The name of an end of a pair that stands in the place of a socket. See `hostif::PAIR_PREFIX`.
pub fn name_after(backing: BorrowedFd<'_>) -> Option<SocketAddrUnix> {
    let inode = rustix::fs::fstat(backing).ok()?.st_ino;
    let name = format!("{}{inode}", hostif::PAIR_PREFIX);
    SocketAddrUnix::new_abstract_name(name.trim_start_matches('@').as_bytes()).ok()
}

/// Sizes the program's send buffer for what the program lets wait at most: SO_SNDBUF, and TCP_NOTSENT_LOWAT (0: no bound), where they
/// were set. A writer that waits goes on if that is more.
pub fn size_send_buffer(end: BorrowedFd<'_>, asked: Option<u32>, unsent: Option<u32>) {
    let bounds = [asked, unsent.filter(|bytes| *bytes > 0)];
    let bytes = bounds.into_iter().flatten().min();
    let bytes = bytes.map_or(BUFFER_BYTES, |bytes| {
        usize::try_from(bytes).unwrap_or(BUFFER_BYTES)
    });
    // It fails of no end of a pair.
    let _ = set_send_buffer(end, bytes.clamp(SMALLEST_BYTES, BUFFER_BYTES));
}

/// How many bytes of the program's may stay in the pair, however it has written them, while it stays writable: a quarter
/// of its buffer (`unix_writable`). Peeking goes on behind them from now on; 0: this kernel cannot.
pub fn seen_max(ours: BorrowedFd<'_>, programs: BorrowedFd<'_>) -> usize {
    let mut offset = [0; 4];
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    let is_known = backing::option(ours, level, name, &mut offset).is_ok();
    let is_set = i32::from_ne_bytes(offset) >= 0;
    if !is_known || (!is_set && backing::set_option(ours, level, name, &[0; 4]).is_err()) {
        return 0;
    }
    let bytes = sockopt::socket_send_buffer_size(programs).unwrap_or(0);
    bytes / 4 / WRITE_BYTES
}

/// See `BUFFER_BYTES`.
pub fn raise_send_buffer(end: BorrowedFd<'_>) -> Result<(), Errno> {
    set_send_buffer(end, BUFFER_BYTES)
}

fn set_send_buffer(end: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
    // Beyond the system's limit where the supervisor may, else up to it.
    sockopt::set_socket_send_buffer_size_force(end, bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(end, bytes))
}

/// Takes out what `stuff` put in.
pub fn unstuff(ours: BorrowedFd<'_>, mut bytes: usize) -> Result<(), Errno> {
    let mut place = [0_u8; 32 * 1024];
    while bytes > 0 {
        let len = place.len().min(bytes);
        let (taken, _) = recv(ours, &mut place[..len], RecvFlags::DONTWAIT)?;
        if taken == 0 {
            return Err(Errno::PIPE);
        }
        bytes -= taken;
    }
    Ok(())
}

/// O_NONBLOCK.
pub fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> Result<(), Errno> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(fd)?;
    fcntl_setfl(
        fd,
        if on {
            flags | OFlags::NONBLOCK
        } else {
            flags - OFlags::NONBLOCK
        },
    )
}

/// Whether O_NONBLOCK is set.
pub fn is_nonblocking(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
}

fn is_writable(fd: BorrowedFd<'_>) -> bool {
    has_events(fd, PollFlags::OUT)
}

/// Whether both directions of an end are over (unix(7)).
pub fn is_hung_up(end: BorrowedFd<'_>) -> bool {
    has_events(end, PollFlags::HUP)
}

fn has_events(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
    let mut set = [PollFd::from_borrowed_fd(fd, events)];
    let now = Timespec::default();
    poll(&mut set, Some(&now)).is_ok() && set[0].revents().contains(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuffed_end_is_not_writable_until_it_is_unstuffed_and_keeps_what_came_after() {
        let pair = Pair::new(true).unwrap();
        assert!(is_writable(pair.programs.as_fd()));
        let stuffed = pair.stuff().unwrap();
        assert!(!is_writable(pair.programs.as_fd()));
        assert!(stuffed < BUFFER_BYTES);
        send(&pair.programs, b"early", SendFlags::DONTWAIT).unwrap();
        unstuff(pair.ours.as_fd(), stuffed).unwrap();
        assert!(is_writable(pair.programs.as_fd()));
        let mut place = [0; 16];
        let (taken, _) = recv(&pair.ours, &mut place, RecvFlags::DONTWAIT).unwrap();
        assert_eq!(&place[..taken], b"early");
    }

    #[test]
    fn a_fully_stuffed_end_takes_nothing_until_it_is_unstuffed() {
        let pair = Pair::new(true).unwrap();
        let stuffed = pair.stuff_fully().unwrap();
        let sent = send(&pair.programs, b"early", SendFlags::DONTWAIT);
        assert_eq!(sent, Err(Errno::AGAIN));
        unstuff(pair.ours.as_fd(), stuffed).unwrap();
        assert!(is_writable(pair.programs.as_fd()));
    }

    /// The bytes end by a shutdown(2) too, which is no close: its FIN goes, and a reset may not take its place.
    #[test]
    fn an_end_is_hung_up_by_a_close_as_soon_as_the_bytes_end_and_not_by_a_shutdown() {
        let is_at_end =
            |ours: &OwnedFd| recv(ours, &mut [0; 1], RecvFlags::DONTWAIT).unwrap().0 == 0;
        let pair = Pair::new(true).unwrap();
        assert!(!is_hung_up(pair.ours.as_fd()));
        rustix::net::shutdown(&pair.programs, rustix::net::Shutdown::Write).unwrap();
        assert!(is_at_end(&pair.ours) && !is_hung_up(pair.ours.as_fd()));
        let pair = Pair::new(true).unwrap();
        drop(pair.programs);
        assert!(is_at_end(&pair.ours) && is_hung_up(pair.ours.as_fd()));
    }

    #[test]
    fn the_programs_end_is_named_by_the_socket_it_replaces() {
        let backing = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let pair = Pair::new(false).unwrap();
        pair.name_after(backing.as_fd());
        let inode = rustix::fs::fstat(&backing).unwrap().st_ino;
        let name = rustix::net::getsockname(&pair.programs).unwrap();
        let name = SocketAddrUnix::try_from(name).unwrap();
        let expected = format!("shunt/pair/{inode}");
        assert_eq!(name.abstract_name(), Some(expected.as_bytes()));
    }

    #[test]
    fn single_bytes_do_not_fill_the_pair_soon() {
        let pair = Pair::new(true).unwrap();
        for written in 0..600 {
            let sent = send(&pair.programs, b"x", SendFlags::DONTWAIT);
            assert_eq!(sent, Ok(1), "after {written}");
        }
    }

    #[test]
    fn the_program_decides_whether_its_end_blocks() {
        for nonblocking in [false, true] {
            let pair = Pair::new(nonblocking).unwrap();
            assert_eq!(is_nonblocking(pair.programs.as_fd()), nonblocking);
            assert!(is_nonblocking(pair.ours.as_fd()));
        }
    }
}
