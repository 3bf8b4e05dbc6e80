//! Calls on sockets that the standard library does not offer: see connect(2), tcp(7), socket(7).

#![allow(unsafe_code)]

use std::{
    io,
    net::{SocketAddrV4, TcpStream},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// A TCP socket. The call is the C library's, so that `shunt run` sees it; so are those below.
pub fn tcp_socket() -> io::Result<OwnedFd> {
    // SAFETY: socket(2) takes no pointer.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: a fresh descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Connects a socket.
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

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn length(len: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(len).expect("invariant: names, addresses and options are short")
}
