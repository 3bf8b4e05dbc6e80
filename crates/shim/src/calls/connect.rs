//! connect(2): the last moment to decide which stack a socket is on. The states and their errno are
//! those of `__inet_stream_connect` in Linux.

use core::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt;

use crate::calls::datagram;
use crate::calls::sigio;
use crate::calls::transfer::{Call, Wait, with_stream};
use crate::fd_table::descriptors;
use crate::outcome::Switched;
use crate::policy::policy;
use crate::socket::Socket;
use crate::sys;
use client::ShutdownHow;
use client::TcpSocket;
use client::address::{self, Family, Name};
use client::route;
use switch::attached;
use switch::backing;
use switch::connect::{LocalEnd, PORT_RANGE, Request, Towards};
use switch::readiness::Phase;
use switch::stream::Stream;

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
    socket.pay_options(fd);
    if socket.family() == Family::V6 && destination.is_ipv4() && is_v6_only(fd)? {
        return Ok(None); // The kernel says why not.
    }
    crate::calls::options::note_v6_only(fd, socket);
    let Some(engines) = attached::all() else {
        leave_to_kernel(fd, socket);
        return Ok(None);
    };
    let request = Request {
        destination,
        local: socket.bound().into(),
        device: socket.device(fd, &engines.stream_networks()),
        is_engine_only: policy().is_engine_only(),
    };
    let towards = request.decide(engines)?;
    let unnamed = socket
        .take_unnamed()
        .then(|| backing::any_of(socket.family()));
    if unnamed.is_none() {
        forget_choice(fd, socket, destination)?;
    }
    let Some(towards) = towards else {
        leave_to_kernel(fd, socket);
        return Ok(None);
    };
    let backing = sys::borrow(fd)?;
    let begin = |tcp, local| begin(backing, socket, &towards, local, (opening, tcp));
    let (level, name) = PORT_RANGE;
    let from = LocalEnd {
        backing,
        local: unnamed,
        has_range: socket.log.has(level, name),
    };
    match towards.open(engines, &from, begin) {
        Ok(stream) => {
            socket.decide(Arc::clone(&stream));
            Ok(Some(stream))
        }
        Err(error) if towards.is_for_the_kernel(error) => {
            leave_to_kernel(fd, socket);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn leave_to_kernel(fd: RawFd, socket: &Socket) {
    socket.leave_to_kernel();
    descriptors::forget(fd);
}

/// An earlier connect over loopback may have left the backing socket with an address of it, which reaches nothing else: it
/// gets another port, on any address. Where it cannot the kernel says what comes of that.
fn forget_choice(fd: RawFd, socket: &Socket, destination: SocketAddr) -> Result<(), Errno> {
    if socket.bound().is_some() || route::is_loopback(destination.ip()) {
        return Ok(());
    }
    let backing = sys::borrow(fd)?;
    let local = backing::local_of(backing)?;
    if local.ip().is_loopback() {
        // Only a socket that has listened lets go of a port that the kernel chose (`tcp_disconnect`).
        backing::listen(backing, 0)?;
        rustix::net::connect_unspec(backing)?;
        let _ = backing::bind_as(backing, backing::any_of(socket.family()), socket.family());
    }
    Ok(())
}

fn is_v6_only(fd: RawFd) -> Result<bool, Errno> {
    sockopt::ipv6_v6only(sys::borrow(fd)?)
}

/// A connection on an engine's socket, with all that the program has set.
fn begin(
    backing: BorrowedFd<'_>,
    socket: &Socket,
    towards: &Towards,
    local: SocketAddr,
    (opening, tcp): (Opening, Arc<TcpSocket>),
) -> Result<Arc<Stream>, Errno> {
    let stream = Arc::new(Stream::from(Arc::clone(&tcp)));
    socket.log.apply(&stream);
    sigio::apply(backing.as_raw_fd(), socket, &stream);
    if opening == Opening::Plain || towards.is_on_both() {
        towards.connect(&tcp, local)?;
    } else {
        let has_data = opening == Opening::Fast;
        tcp.connect_fast(towards.destination, Some(local), has_data)?;
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
                stream.shutdown(ShutdownHow::Read)?;
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
    if stream.phase() == Phase::Connecting {
        stream.on_idle_look();
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

/// The connection is closed: reports why, and lets the program try again if it was never established.
fn conclude(socket: &Socket, stream: &Stream) -> Result<i32, Errno> {
    if socket.was_connected() {
        return Err(Errno::ISCONN);
    }
    let error = stream.take_error();
    socket.undecide();
    Err(error.unwrap_or(Errno::CONNABORTED))
}
