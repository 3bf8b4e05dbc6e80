//! connect(2): the last moment to decide which stack a socket is on. The states and their errno are
//! those of `__inet_stream_connect` in Linux.

use core::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::accelerated::{self, Shut, Stream};
use crate::calls::datagram;
use crate::calls::device::{self, Device};
use crate::calls::name;
use crate::calls::sigio;
use crate::calls::transfer::{Call, Wait, with_stream};
use crate::fd_table::descriptors;
use crate::outcome::Switched;
use crate::policy::policy;
use crate::socket::{Bound, EngineIndex, Owner, Socket};
use crate::sys;
use crate::wait::readiness::Phase;
use client::address::{self, Family, Name};
use client::engines::{self, Candidates, Flow};
use client::route;
use hostif::Transport;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// As any.
    Plain,
    /// With Fast Open (RFC 7413): bytes for the SYN follow.
    Fast,
    /// With Fast Open, for its cookie alone.
    ForCookie,
}

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
    let parsed = address::parse(name, socket.family());
    socket.shed();
    if let Some(stream) = socket.stream() {
        // Linux reads no more than the family of such an address.
        let name = match parsed {
            Err(_) if name.len() >= size_of::<libc::sa_family_t>() => Name::Other,
            parsed => parsed?,
        };
        if name == Name::Unspecified {
            return disconnect(fd, socket, &stream);
        }
        return again(fd, socket, &stream).map(Some);
    }
    let name = parsed?;
    let Name::Ip(destination) = name else {
        return Ok(None);
    };
    // TCP_FASTOPEN_CONNECT: with a cookie there is nothing to wait for before the first write.
    let is_fast = socket
        .log
        .is_on(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
    let open = |opening| open_towards(fd, socket, destination, opening);
    let opened = match is_fast {
        true => match open(Opening::Fast) {
            Err(Errno::OPNOTSUPP) => open(Opening::Plain),
            opened => opened,
        },
        false => open(Opening::Plain),
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
    opening: Opening,
) -> Result<Option<Arc<Stream>>, Errno> {
    if socket.family() == Family::V6 && destination.is_ipv4() && is_v6_only(fd)? {
        return Ok(None); // The kernel says why not.
    }
    crate::calls::options::note_v6_only(fd, socket);
    let candidates = candidates_for(fd, socket, destination)?;
    if candidates.is_empty() {
        forget_choice(fd, socket, destination)?;
        socket.leave_to_kernel();
        descriptors::forget(fd);
        return Ok(None);
    }
    let destination = route::resolved(destination);
    forget_choice(fd, socket, destination)?;
    let all = accelerated::stream_networks();
    let is_heard = !engines::stays_here(destination.ip(), &all)
        || candidates
            .first()
            .is_some_and(|place| accelerated::holds(place, Transport::Tcp, destination));
    if !is_heard && may_be_the_kernels(socket) {
        socket.leave_to_kernel();
        descriptors::forget(fd);
        return Ok(None);
    }
    match begin(fd, socket, destination, opening, candidates) {
        Err(error)
            if engines::is_for_the_kernel(error, destination, &all)
                && may_be_the_kernels(socket) =>
        {
            socket.leave_to_kernel();
            descriptors::forget(fd);
            Ok(None)
        }
        begun => begun.map(Some),
    }
}

/// An earlier connect over loopback may have left the backing socket with an address of it, which reaches nothing else: it
/// gets another port, on any address. Where it cannot the kernel says what comes of that.
fn forget_choice(fd: RawFd, socket: &Socket, destination: SocketAddr) -> Result<(), Errno> {
    if socket.bound().is_some() || route::is_loopback(destination.ip()) {
        return Ok(());
    }
    let backing = sys::borrow(fd)?;
    let local = name::local_of(backing)?;
    if local.ip().is_loopback() {
        // Only a socket that has listened lets go of a port that the kernel chose (`tcp_disconnect`).
        sys::listen(backing, 0)?;
        rustix::net::connect_unspec(backing)?;
        let _ = name::bind_as(backing, name::any_of(socket.family()), socket.family());
    }
    Ok(())
}

/// Whether the kernel may carry a connection that no engine can: it cannot send from an engine's own address.
fn may_be_the_kernels(socket: &Socket) -> bool {
    let is_an_engines = |bound: Bound| bound.owner == Owner::Engine;
    !policy().is_engine_only() && !socket.bound().is_some_and(is_an_engines)
}

fn is_v6_only(fd: RawFd) -> Result<bool, Errno> {
    sockopt::ipv6_v6only(sys::borrow(fd)?)
}

/// The engines that could carry a connection; none: it is the kernel's.
fn candidates_for(
    fd: RawFd,
    socket: &Socket,
    destination: SocketAddr,
) -> Result<Candidates, Errno> {
    let all = accelerated::stream_networks();
    let bound = socket.bound();
    // Bound to an address of an engine: nobody else could send from it.
    if let Some(bound) = bound.filter(|bound| bound.owner == Owner::Engine) {
        return Ok(Candidates::only(bound.place));
    }
    let is_local = route::is_loopback(destination.ip());
    if !is_local && bound.is_some_and(|bound| bound.address.ip().is_loopback()) {
        // It reaches nothing else, and the kernel says so.
        return Ok(Candidates::default());
    }
    let is_set = |name| socket.log.has(libc::SOL_SOCKET, name);
    let candidates = match device::of(fd, is_set, &all) {
        Device::Any => {
            let closest = engines::closest(destination, &all);
            // An address that the kernel shares with one engine is not another engine's.
            match bound.filter(|bound| !bound.address.ip().is_unspecified()) {
                Some(bound) => closest.limited_to(bound.place),
                None => closest,
            }
        }
        Device::Engine(place) => Candidates::only(place),
        Device::Loopback(place) if engines::stays_here(destination.ip(), &all) => {
            Candidates::only(place)
        }
        // By `lo` nobody else is reached, and the kernel says so.
        Device::Loopback(_) => return Ok(Candidates::default()),
        Device::Kernel => Candidates::default(),
    };
    if candidates.is_empty() && policy().is_engine_only() && !is_local {
        return Err(Errno::NETUNREACH);
    }
    Ok(candidates)
}

fn begin(
    fd: RawFd,
    socket: &Socket,
    destination: SocketAddr,
    opening: Opening,
    candidates: Candidates,
) -> Result<Arc<Stream>, Errno> {
    let backing = sys::borrow(fd)?;
    if accelerated::place_by_port() && name::local_of(backing)?.port() == 0 {
        accelerated::bind_towards(EngineIndex::FIRST, backing, destination)?;
    }
    let flow = Flow {
        local: name::local_of(backing)?,
        remote: destination,
    };
    let begin_on = |place| begin_on(place, backing, socket, destination, opening);
    let stream = accelerated::first_that_opens(candidates, flow, begin_on)?;
    socket.decide(Arc::clone(&stream));
    Ok(stream)
}

fn begin_on(
    place: EngineIndex,
    backing: BorrowedFd<'_>,
    socket: &Socket,
    destination: SocketAddr,
    opening: Opening,
) -> Result<Arc<Stream>, Errno> {
    let local = match socket.bound() {
        Some(bound) => bound.address,
        None => {
            // The backing socket holds the port as long as the connection has it. ANY rather than the
            // engine's address: after a failed connect the program may go to a kernel destination. Not on loopback, where
            // every address has ports of its own.
            let any = name::local_of(backing)?;
            if any.port() == 0 {
                accelerated::bind_towards(place, backing, destination)?;
            }
            name::local_of(backing)?
        }
    };
    let stream = Stream::open_towards(place, backing, local, destination)?;
    socket.log.apply(&stream);
    sigio::apply(backing.as_raw_fd(), socket, &stream);
    let is_on_both = engines::stays_here(destination.ip(), &accelerated::stream_networks());
    if is_on_both && may_be_the_kernels(socket) {
        stream.connect_heard(local, destination)?;
    } else if opening == Opening::Plain {
        stream.connect(local, destination)?;
    } else {
        stream.connect_fast(local, destination, opening == Opening::Fast)?;
    }
    Ok(stream)
}

/// connect(2) with AF_UNSPEC on a socket that an engine serves (`tcp_disconnect`).
fn disconnect(fd: RawFd, socket: &Socket, stream: &Stream) -> Switched<i32> {
    match stream.phase() {
        Phase::Connected | Phase::Connecting => socket.spend(stream),
        Phase::Closed => socket.undecide(),
        Phase::Listening => {
            if !stream.is_lost_listener() {
                stream.shutdown(Shut::Read)?;
            }
            socket.stop_listening(fd, stream)?;
            // The backing socket listens as well.
            return Ok(None);
        }
    }
    Ok(Some(0))
}

/// Another connect on a socket that an engine serves.
fn again(fd: RawFd, socket: &Socket, stream: &Stream) -> Result<i32, Errno> {
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
    if socket.was_connected() {
        return Err(Errno::ISCONN);
    }
    let error = stream.take_error();
    socket.undecide();
    Err(error.unwrap_or(Errno::CONNABORTED))
}
