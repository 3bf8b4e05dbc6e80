//! Options of a served socket. Until it is served the program sets them on its own kernel socket; then they
//! are read from there and told to the engine. Afterwards setsockopt(2) and getsockopt(2) come here: the
//! backing socket keeps every option, so that the kernel checks and answers; the few that mean something
//! to the pair are set there too.

use client::options::{int, note, translate};
use client::{OptionChanges, Socket, State, TcpSocket};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use switch::backing;
use switch::options::{OF_LISTENER, names_what_is_the_programs};

use crate::pair;

/// Longest value that is carried over.
const VALUE_MAX: usize = 64;

/// It moves with what is read, on the program's end of the pair.
pub const PEEK_OFFSET: (i32, i32) = (libc::SOL_SOCKET, libc::SO_PEEK_OFF);

/// What a connection may have been given before it was served, and inherits from its listener.
const CARRIED: [(i32, i32); 29] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    PEEK_OFFSET,
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
    (libc::IPPROTO_TCP, libc::TCP_INQ),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
];

/// A socket for IPv6 alone may become so by its address.
pub const V6_ONLY: (i32, i32) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);

/// Levels, and the last number of each that may be an option which a connection has from its listener (`sk_clone`).
const LEVELS: [(i32, i32); 4] = [
    (libc::SOL_SOCKET, 90),
    (libc::IPPROTO_IP, 60),
    (libc::IPPROTO_TCP, 60),
    (libc::IPPROTO_IPV6, 80),
];

/// Options whose meaning lies on the descriptor: how long a call on it waits, for how much, and where the urgent byte is.
const OF_DESCRIPTOR: [(i32, i32); 5] = [
    PEEK_OFFSET,
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
];

const SEND_BUFFER: (i32, i32) = (libc::SOL_SOCKET, libc::SO_SNDBUF);
const NOT_SENT: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
/// asm-generic/socket.h: which buffers were sized by the program, by the bits of linux/socket.h.
const SO_BUF_LOCK: i32 = 72;
const SOCK_SNDBUF_LOCK: u32 = 1;
const SOCK_RCVBUF_LOCK: u32 = 2;

/// The options of a socket that differ from those of a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(i32, i32, Vec<u8>)>);

impl Settings {
    /// Reads those that an engine or a pair acts on.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Settings, Errno> {
        Ok(Settings::among(
            CARRIED.into_iter(),
            socket,
            fresh_like(socket)?.as_fd(),
        ))
    }

    /// Reads them all, of a socket that is to listen.
    pub fn of_listener(socket: BorrowedFd<'_>) -> Result<Settings, Errno> {
        let all = LEVELS
            .into_iter()
            .flat_map(|(level, last)| (1..=last).map(move |name| (level, name)));
        let all = all.filter(|one| CARRIED.contains(one) || !OF_LISTENER.contains(one));
        Ok(Settings::among(all, socket, fresh_like(socket)?.as_fd()))
    }

    /// `fresh` is a socket of the same family that nothing was done with.
    fn among(
        options: impl Iterator<Item = (i32, i32)>,
        socket: BorrowedFd<'_>,
        fresh: BorrowedFd<'_>,
    ) -> Settings {
        let read = |fd, (level, name)| {
            let mut value = [0; VALUE_MAX];
            let len = backing::option(fd, level, name, &mut value).ok()?;
            Some(value[..len.min(VALUE_MAX)].to_vec())
        };
        let changed = options.filter_map(|option| {
            let value = read(socket, option)?;
            // A buffer may have been given the size that a new one has.
            let is_other = read(fresh, option).as_ref() != Some(&value) || is_sized(socket, option);
            is_other.then_some((option.0, option.1, value))
        });
        // Some can only be asked for (SO_COOKIE).
        let can_be_set = |(level, name, value): &(i32, i32, Vec<u8>)| {
            backing::set_option(fresh, *level, *name, value) != Err(Errno::NOPROTOOPT)
        };
        Settings(changed.map(as_set).filter(can_be_set).collect())
    }

    /// Notes one more that was set on the listener, if its value means something later.
    pub fn record(&mut self, (level, name): (i32, i32), value: &[u8]) {
        if names_what_is_the_programs(level, name) {
            return;
        }
        self.0.retain(|one| (one.0, one.1) != (level, name));
        self.0.push((level, name, value.to_vec()));
    }

    /// Sets them on the kernel socket of a connection.
    pub fn set_on(&self, socket: BorrowedFd<'_>) {
        let inherited = |one: &&(i32, i32, Vec<u8>)| !OF_LISTENER.contains(&(one.0, one.1));
        for (level, name, value) in self.0.iter().filter(inherited) {
            // What cannot be set twice was not inheritable.
            let _ = backing::set_option(socket, *level, *name, value);
        }
    }

    /// Sets those that lie on the descriptor on the program's end of a pair.
    pub fn set_on_descriptor(&self, end: BorrowedFd<'_>) {
        let value = |option: (i32, i32)| {
            let found = self.0.iter().find(|one| (one.0, one.1) == option);
            found.and_then(|one| int(&one.2)).map(i32::cast_unsigned)
        };
        let (asked, unsent) = (value(SEND_BUFFER), value(NOT_SENT));
        if asked.is_some() || unsent.is_some() {
            pair::size_send_buffer(end, asked, unsent);
        }
        for (level, name, value) in &self.0 {
            if OF_DESCRIPTOR.contains(&(*level, *name)) {
                let _ = backing::set_option(end, *level, *name, value);
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

/// A socket of the same kind with which nothing was done.
fn fresh_like(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let family = rustix::net::sockopt::socket_domain(socket)?;
    let kind = rustix::net::SocketType::STREAM;
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

/// Whether an option is the size of a buffer that the program has chosen.
fn is_sized(socket: BorrowedFd<'_>, (level, name): (i32, i32)) -> bool {
    let bit = match (level, name) {
        SEND_BUFFER => SOCK_SNDBUF_LOCK,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => SOCK_RCVBUF_LOCK,
        _ => return false,
    };
    let mut lock = [0; 4];
    backing::option(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &mut lock).is_ok()
        && u32::from_ne_bytes(lock) & bit != 0
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

/// Whether an option bounds what may wait to be sent.
pub fn bounds_sending((level, name): (i32, i32)) -> bool {
    let forced = (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE);
    [SEND_BUFFER, forced, NOT_SENT].contains(&(level, name))
}

/// Bounds what may wait in the pair as the options of the program's own socket do.
pub fn bound_sending(backing: BorrowedFd<'_>, programs: BorrowedFd<'_>) {
    let number = |(level, name)| {
        let mut value = [0; 4];
        backing::option(backing, level, name, &mut value).ok()?;
        Some(u32::from_ne_bytes(value))
    };
    // The kernel answers with its overhead.
    let asked = number(SEND_BUFFER)
        .filter(|_| is_sized(backing, SEND_BUFFER))
        .map(|bytes| bytes / 2);
    pair::size_send_buffer(programs, asked, number(NOT_SENT));
}

/// setsockopt(2) on a served socket: `programs` is the program's end of the pair.
pub fn set(
    socket: &TcpSocket,
    backing: BorrowedFd<'_>,
    programs: BorrowedFd<'_>,
    (level, name): (i32, i32),
    value: &[u8],
) -> Result<(), Errno> {
    backing::set_option(backing, level, name, value)?;
    if OF_DESCRIPTOR.contains(&(level, name)) {
        backing::set_option(programs, level, name, value)?;
    }
    let mut changes = OptionChanges::default();
    if note(&mut changes, level, name, value) {
        socket.set_options(&changes)?;
    } else {
        tell_single(socket, level, name, value);
    }
    Ok(())
}

/// getsockopt(2) on a served socket, for a value no longer than what stands where it is to be. SO_ERROR the caller answers.
pub fn ask(
    socket: &TcpSocket,
    backing: BorrowedFd<'_>,
    (level, name): (i32, i32),
    asked: Vec<u8>,
) -> Result<Vec<u8>, Errno> {
    let (room, mut value) = (asked.len(), asked);
    let is_connected = socket.state() == State::Connected;
    let len = match (
        backing::option(backing, level, name, &mut value),
        (level, name),
    ) {
        // The backing socket has no route.
        (Err(Errno::NOTCONN), (libc::IPPROTO_IP, libc::IP_MTU))
        | (Err(Errno::NOTCONN), (libc::IPPROTO_IPV6, libc::IPV6_MTU | libc::IPV6_PATHMTU))
            if is_connected =>
        {
            let mtu = i32::try_from(socket.figures()?.pmtu).unwrap_or(i32::MAX);
            // `struct ip6_mtuinfo`: an address, of which nothing is said, and the MTU.
            let before = if name == libc::IPV6_PATHMTU { 28 } else { 0 };
            value = [&[0; 28][..before], &mtu.to_ne_bytes()].concat();
            room.min(value.len())
        }
        // What the peer may fill now, where the program has set none (`tcp_rcv_space_adjust`).
        (Ok(len), (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP))
            if is_connected && int(&value) == Some(0) =>
        {
            let bytes = i32::try_from(socket.receive_window_bytes()).unwrap_or(i32::MAX);
            value = bytes.to_ne_bytes().to_vec();
            len
        }
        (told, _) => told?,
    };
    value.truncate(len);
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
        return Ok(client::tcp_info::emit(&socket.figures()?, len));
    }
    if (level, name) == client::options::CONGESTION_INFO {
        let mut info = client::congestion_info::emit(socket.congestion_figures()?);
        info.truncate(room);
        return Ok(info);
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
    backing::option(backing.as_fd(), libc::SOL_SOCKET, name, &mut value).ok()?;
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

    /// Its length counts instructions: a buffer of three bytes would get twenty-four.
    #[test]
    fn a_filter_is_not_read_into_a_buffer_that_is_too_small_for_it() {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        // BPF_RET | BPF_K: the whole packet.
        let filter = [[0x06, 0, 0, 0, 0xff, 0xff, 0, 0_u8]; 3];
        let at = (filter.as_ptr() as usize).to_ne_bytes();
        let program = [&3_u16.to_ne_bytes()[..], &[0; 6], &at].concat();
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
        let none = backing::option(socket.as_fd(), level, libc::SO_GET_FILTER, &mut [0; 3]);
        assert_eq!(none, Ok(0));
        backing::set_option(socket.as_fd(), level, name, &program).unwrap();
        let mut value = [0xaa; 64];
        let asked = backing::option(socket.as_fd(), level, libc::SO_GET_FILTER, &mut value[..3]);
        assert_eq!((asked, value), (Err(Errno::NOPROTOOPT), [0xaa; 64]));
    }

    #[test]
    fn what_was_set_is_carried_over_and_nothing_else() {
        let make = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let (set, fresh) = (make(), make());
        assert_eq!(
            Settings::among(CARRIED.into_iter(), fresh.as_fd(), make().as_fd()),
            Settings::default()
        );
        sockopt::set_tcp_nodelay(&set, true).unwrap();
        sockopt::set_socket_recv_buffer_size(&set, 10_000).unwrap();
        let usual = sockopt::socket_send_buffer_size(&set).unwrap();
        sockopt::set_socket_send_buffer_size(&set, usual / 2).unwrap();
        let settings = Settings::among(CARRIED.into_iter(), set.as_fd(), fresh.as_fd());
        assert_eq!(settings.0.len(), 3);
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
