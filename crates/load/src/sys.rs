//! Calls on sockets and epoll that the standard library does not offer, through the C library's symbols, which is where a program
//! under `shunt run` is met: see connect(2), tcp(7), socket(7), epoll(7). rustix would call the system directly and so pass by the
//! library that is measured.

#![allow(unsafe_code)]

use std::{
    io,
    net::{SocketAddrV4, TcpStream},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

pub fn tcp_socket() -> io::Result<OwnedFd> {
    // SAFETY: socket(2) takes no pointer.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: a fresh descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn connect(socket: &OwnedFd, to: SocketAddrV4) -> io::Result<()> {
    // SAFETY: all zeros is a valid sockaddr_in.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family =
        libc::sa_family_t::try_from(libc::AF_INET).expect("invariant: AF_INET is a small number");
    address.sin_port = to.port().to_be();
    address.sin_addr.s_addr = to.ip().to_bits().to_be();
    // SAFETY: the address is a sockaddr_in of the given length and outlives the call.
    check(unsafe {
        libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            length(size_of_val(&address)),
        )
    })
}

/// Connects with a congestion control chosen before, see tcp(7).
pub fn connect_with_congestion(to: SocketAddrV4, name: &str) -> io::Result<TcpStream> {
    let socket = tcp_socket()?;
    // SAFETY: the name is readable for the given length and outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            length(name.len()),
        )
    })
    .map_err(|error| io::Error::new(error.kind(), format!("TCP_CONGESTION {name}: {error}")))?;
    connect(&socket, to)?;
    Ok(TcpStream::from(socket))
}

/// Makes closing a stream a reset that throws away what was not sent, see socket(7) on SO_LINGER.
pub fn abort_on_close(stream: &TcpStream) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the value is a `linger` of the given length and outlives the call.
    check(unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            length(size_of_val(&linger)),
        )
    })
}

/// An epoll descriptor.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// Events that one call returns at most.
const EVENTS: u8 = 255;

impl Epoll {
    pub fn create() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above made this descriptor, and nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Reports a descriptor by this number when it can be read.
    pub fn add(&self, descriptor: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN.unsigned_abs(),
            u64: number,
        };
        // SAFETY: `event` lives through the call, which copies it.
        let result = unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                descriptor.as_raw_fd(),
                &raw mut event,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// The numbers of what can be read, after at most so many milliseconds.
    pub fn wait(&self, timeout_ms: i32) -> io::Result<impl Iterator<Item = u64> + use<>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS as usize];
        // SAFETY: the kernel writes at most EVENTS entries into the array, which has as many.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                i32::from(EVENTS),
                timeout_ms,
            )
        };
        let count = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => 0,
                error => return Err(error),
            },
        };
        Ok(events.into_iter().take(count).map(|event| event.u64))
    }
}

/// How often the calling thread has gone to sleep, see getrusage(2).
pub fn sleeps_of_this_thread() -> u64 {
    u64::try_from(usage(libc::RUSAGE_THREAD).ru_nvcsw).unwrap_or(0)
}

/// Processor time of all children that have ended and were waited for.
pub fn processor_s_of_ended_children() -> f64 {
    let usage = usage(libc::RUSAGE_CHILDREN);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn usage(of: libc::c_int) -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills in a structure of the size it expects; where it failed all of it is zero, which is
    // a value of each of its fields.
    unsafe {
        libc::getrusage(of, usage.as_mut_ptr());
        usage.assume_init()
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn length(len: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(len).expect("invariant: names, addresses and options are short")
}
