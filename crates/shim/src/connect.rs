//! connect(2): the last moment to decide which stack a socket is on. The states and their errno are
//! those of `__inet_stream_connect` in Linux.

use core::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::accelerated::{self, Stream};
use crate::address::{self, Family, Name};
use crate::datagram;
use crate::descriptors;
use crate::device::{self, Device};
use crate::name;
use crate::outcome::Switched;
use crate::policy::{Policy, policy};
use crate::readiness::Phase;
use crate::route::{self, Stack};
use crate::socket::{Owner, Socket};
use crate::sys;
use crate::transfer::{Call, Wait, with_stream};

/// connect(2).
pub fn connect(fd: RawFd, name: &[u8]) -> Switched<i32> {
    let Some(file) = descriptors::lookup(fd) else {
        return Ok(None);
    };
    let Some(socket) = file.socket() else {
        return Ok(None);
    };
    if socket.is_datagram() {
        return datagram::connect(fd, socket, datagram::parse(name, socket.family())?);
    }
    let name = address::parse(name, socket.family())?;
    if let Some(stream) = socket.stream() {
        return again(fd, socket, &stream, name).map(Some);
    }
    let Name::Ip(destination) = name else {
        return Ok(None);
    };
    // TCP_FASTOPEN_CONNECT: with a cookie there is nothing to wait for before the first write.
    let is_fast = socket
        .log
        .is_on(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
    let opened = match open_towards(fd, socket, destination, is_fast) {
        Err(Errno::OPNOTSUPP) if is_fast => open_towards(fd, socket, destination, false),
        opened => opened,
    };
    let Some(stream) = opened? else {
        return Ok(None);
    };
    if stream.holds_syn() {
        return Ok(Some(0));
    }
    if socket.is_nonblocking(fd)? {
        // However fast the answer came: Linux holds the socket during the call and sees it afterwards.
        return Err(Errno::INPROGRESS);
    }
    wait(fd, Errno::INPROGRESS).map(Some)
}

/// Starts to connect a socket that is undecided, with Fast Open or without; `None`: the kernel has to.
pub fn open_towards(
    fd: RawFd,
    socket: &Socket,
    destination: SocketAddr,
    is_fast: bool,
) -> Result<Option<Arc<Stream>>, Errno> {
    if socket.family() == Family::V6 && destination.is_ipv4() && is_v6_only(fd)? {
        return Ok(None); // The kernel says why not.
    }
    match stack_for(fd, socket, destination)? {
        Stack::Engine => begin(fd, socket, destination, is_fast).map(Some),
        Stack::Kernel => {
            socket.leave_to_kernel();
            descriptors::forget(fd);
            Ok(None)
        }
    }
}

fn is_v6_only(fd: RawFd) -> Result<bool, Errno> {
    sockopt::ipv6_v6only(sys::borrow(fd)?)
}

fn stack_for(fd: RawFd, socket: &Socket, destination: SocketAddr) -> Result<Stack, Errno> {
    // Bound to an address of the engine: nobody else could send from it.
    if socket
        .bound()
        .is_some_and(|bound| bound.owner == Owner::Engine)
    {
        return Ok(Stack::Engine);
    }
    let stack = match device::of(fd, socket) {
        Device::Any => route::stack_for(destination, &accelerated::networks()),
        Device::Engine => Stack::Engine,
        Device::Kernel => Stack::Kernel,
    };
    let loopback = destination.ip().is_loopback() || destination.ip().is_unspecified();
    if stack == Stack::Kernel && policy().policy == Policy::EngineOnly && !loopback {
        return Err(Errno::NETUNREACH);
    }
    Ok(stack)
}

fn begin(
    fd: RawFd,
    socket: &Socket,
    destination: SocketAddr,
    is_fast: bool,
) -> Result<Arc<Stream>, Errno> {
    let backing = sys::borrow(fd)?;
    let local = match socket.bound() {
        Some(bound) => bound.address,
        None => {
            // The backing socket holds the port as long as the connection has it. ANY rather than the
            // engine's address: after a failed connect the program may go to a kernel destination.
            let any = name::local_of(backing)?;
            if any.port() == 0 {
                accelerated::bind_towards(backing, destination)?;
            }
            name::local_of(backing)?
        }
    };
    let stream = Stream::open_towards(backing, local, destination)?;
    socket.log.apply(&stream);
    if is_fast {
        stream.connect_fast(local, destination)?;
    } else {
        stream.connect(local, destination)?;
    }
    socket.decide(Arc::clone(&stream));
    Ok(stream)
}

/// Another connect on a socket that an engine serves.
fn again(fd: RawFd, socket: &Socket, stream: &Stream, name: Name) -> Result<i32, Errno> {
    if name == Name::Unspecified {
        stream.abort();
        socket.undecide();
        return Ok(0);
    }
    match stream.phase() {
        Phase::Listening => Err(Errno::ISCONN),
        Phase::Connecting if stream.holds_syn() => Err(Errno::ISCONN),
        Phase::Connecting => wait(fd, Errno::ALREADY),
        Phase::Connected if socket.report_connected() => Err(Errno::ISCONN),
        Phase::Connected => Ok(0),
        Phase::Closed => conclude(socket, stream),
    }
}

/// Waits until the connect is decided, if the socket may block; else says `pending`.
fn wait(fd: RawFd, pending: Errno) -> Result<i32, Errno> {
    let waited = with_stream(fd, wait_on)?;
    match waited {
        Some(Ok(())) => Ok(0),
        Some(Err(Errno::AGAIN)) => Err(pending),
        Some(Err(error)) => Err(error),
        // Closed or undone by another thread meanwhile.
        None => Err(Errno::BADF),
    }
}

fn wait_on(call: &Call<'_>) -> Result<Result<(), Errno>, Errno> {
    let mut sleeps = Wait::new(false);
    loop {
        match call.stream().phase() {
            Phase::Connecting => {}
            Phase::Closed => return Ok(conclude(call.socket(), call.stream()).map(drop)),
            Phase::Connected | Phase::Listening => {
                call.socket().report_connected();
                return Ok(Ok(()));
            }
        }
        let news = || call.stream().phase() != Phase::Connecting;
        if let Err(error) = sleeps.sleep(call, &news, call.socket().send_timeout()) {
            return Ok(Err(error));
        }
    }
}

/// The connection is closed: reports why, and lets the program try again if it never stood.
fn conclude(socket: &Socket, stream: &Stream) -> Result<i32, Errno> {
    let error = stream.take_error();
    if socket.was_connected() {
        return Err(error.unwrap_or(Errno::ISCONN));
    }
    socket.undecide();
    Err(error.unwrap_or(Errno::CONNABORTED))
}
