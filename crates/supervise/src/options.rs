//! Options of a served socket. Until it is served the program sets them on its own kernel socket; then they
//! are read from there and told to the engine. Afterwards setsockopt(2) and getsockopt(2) come here: the
//! backing socket keeps every option, so that the kernel checks and answers; the few that mean something
//! to the pair are set there too.

use client::options::{int, note, translate};
use client::{OptionChanges, TcpSocket};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use crate::sys;

/// Longest value that is carried over.
const VALUE_MAX: usize = 64;

/// What a connection may have been given before it was served, and inherits from its listener.
const CARRIED: [(i32, i32); 27] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    (libc::IPPROTO_TCP, libc::TCP_SAVE_SYN),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
];

/// Options whose meaning lies on the descriptor: how long a call on it waits, for how much, and where the urgent byte is.
const OF_DESCRIPTOR: [(i32, i32); 4] = [
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
];

/// The options that a socket has otherwise than a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(i32, i32, Vec<u8>)>);

impl Settings {
    /// Reads them; `fresh` is a socket of the same family that nothing was done with.
    pub fn of(socket: BorrowedFd<'_>, fresh: BorrowedFd<'_>) -> Settings {
        let read = |fd, (level, name)| {
            let mut value = [0; VALUE_MAX];
            let len = sys::option(fd, level, name, &mut value).ok()?;
            Some(value[..len.min(VALUE_MAX)].to_vec())
        };
        let changed = CARRIED.into_iter().filter_map(|option| {
            let value = read(socket, option)?;
            (read(fresh, option).as_ref() != Some(&value)).then_some((option.0, option.1, value))
        });
        Settings(changed.map(as_set).collect())
    }

    /// One more was set.
    pub fn record(&mut self, (level, name): (i32, i32), value: &[u8]) {
        self.0.retain(|one| (one.0, one.1) != (level, name));
        if CARRIED.contains(&(level, name)) {
            self.0.push((level, name, value.to_vec()));
        }
    }

    /// Sets them on a kernel socket.
    pub fn set_on(&self, socket: BorrowedFd<'_>) {
        for (level, name, value) in &self.0 {
            // What cannot be set twice was not inheritable.
            let _ = sys::set_option(socket, *level, *name, value);
        }
    }

    /// Sets those that lie on the descriptor on the program's end of a pair.
    pub fn set_on_descriptor(&self, end: BorrowedFd<'_>) {
        for (level, name, value) in &self.0 {
            if OF_DESCRIPTOR.contains(&(*level, *name)) {
                let _ = sys::set_option(end, *level, *name, value);
            }
        }
    }

    /// Tells the engine of them.
    pub fn tell(&self, socket: &TcpSocket) {
        let mut changes = OptionChanges::default();
        for (level, name, value) in &self.0 {
            if !note(&mut changes, *level, *name, value) {
                tell_single(socket, *level, *name, value);
            }
        }
        // It fails only where the engine is gone, and the socket with it.
        let _ = socket.set_options(&changes);
    }
}

/// The kernel answers a buffer's size with its own overhead (socket(7)): half of it is what sets it.
fn as_set((level, name, value): (i32, i32, Vec<u8>)) -> (i32, i32, Vec<u8>) {
    let is_buffer = level == libc::SOL_SOCKET && [libc::SO_RCVBUF, libc::SO_SNDBUF].contains(&name);
    match int(&value) {
        Some(bytes) if is_buffer => (level, name, (bytes / 2).to_ne_bytes().to_vec()),
        _ => (level, name, value),
    }
}

fn tell_single(socket: &TcpSocket, level: i32, name: i32, value: &[u8]) {
    let Some(number) = int(value) else { return };
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) {
        let _ = socket.set_unsent_limit(number.cast_unsigned());
    } else if let Some((option, value)) = translate(level, name, number) {
        let _ = socket.set_option(option, value);
    }
}

/// setsockopt(2) on a served socket: `programs` is the program's end of the pair.
pub fn set(
    socket: &TcpSocket,
    backing: BorrowedFd<'_>,
    programs: BorrowedFd<'_>,
    (level, name): (i32, i32),
    value: &[u8],
) -> Result<(), Errno> {
    sys::set_option(backing, level, name, value)?;
    if OF_DESCRIPTOR.contains(&(level, name)) {
        sys::set_option(programs, level, name, value)?;
    }
    let mut changes = OptionChanges::default();
    if note(&mut changes, level, name, value) {
        socket.set_options(&changes)?;
    } else {
        tell_single(socket, level, name, value);
    }
    Ok(())
}

/// getsockopt(2) on a served socket, for a value of at most `room` bytes. SO_ERROR is the caller's affair.
pub fn ask(
    socket: &TcpSocket,
    backing: BorrowedFd<'_>,
    (level, name): (i32, i32),
    room: usize,
) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; room];
    let len = sys::option(backing, level, name, &mut value)?;
    value.truncate(len);
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
        return Ok(client::tcp_info::emit(&socket.figures()?, len));
    }
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_MAXSEG)
        && let Ok(figures) = socket.figures()
        && figures.snd_mss > 0
    {
        let mss = i32::try_from(figures.snd_mss).unwrap_or(i32::MAX);
        value = mss.to_ne_bytes().to_vec();
        value.truncate(room);
    }
    Ok(value)
}

/// How long a call on the socket may wait, by one of its time-outs.
pub fn timeout(backing: BorrowedFd<'_>, name: i32) -> Option<std::time::Duration> {
    let mut value = [0; 16];
    sys::option(backing.as_fd(), libc::SOL_SOCKET, name, &mut value).ok()?;
    let (parts, _) = value.as_chunks::<8>();
    let [seconds, micros] = [parts[0], parts[1]].map(i64::from_ne_bytes);
    let time = std::time::Duration::new(
        u64::try_from(seconds).ok()?,
        u32::try_from(micros).ok()?.checked_mul(1000)?,
    );
    (!time.is_zero()).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, socket, sockopt};

    #[test]
    fn what_was_set_is_carried_over_and_nothing_else() {
        let make = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let (set, fresh) = (make(), make());
        assert_eq!(
            Settings::of(fresh.as_fd(), make().as_fd()),
            Settings::default()
        );
        sockopt::set_tcp_nodelay(&set, true).unwrap();
        sockopt::set_socket_recv_buffer_size(&set, 10_000).unwrap();
        let settings = Settings::of(set.as_fd(), fresh.as_fd());
        assert_eq!(settings.0.len(), 2);
        settings.set_on(fresh.as_fd());
        assert!(sockopt::tcp_nodelay(&fresh).unwrap());
        assert_eq!(
            sockopt::socket_recv_buffer_size(&fresh),
            sockopt::socket_recv_buffer_size(&set)
        );
    }

    #[test]
    fn a_time_out_of_nothing_is_none() {
        let set = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert_eq!(timeout(set.as_fd(), libc::SO_RCVTIMEO), None);
        let second = std::time::Duration::from_secs(1);
        sockopt::set_socket_timeout(&set, sockopt::Timeout::Recv, Some(second)).unwrap();
        assert_eq!(timeout(set.as_fd(), libc::SO_RCVTIMEO), Some(second));
        assert_eq!(timeout(set.as_fd(), libc::SO_SNDTIMEO), None);
    }
}
