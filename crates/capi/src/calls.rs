//! What the functions of `shunt.h` do, on handles and with Rust's types.

use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Mutex};

use client::Errno;
use native::{Engine, Event, Poller, Readiness, TcpListener, TcpStream, UdpSocket, to_errno};

use crate::object::{Object, Stream, Waiting, duration};
use crate::table;

/// What a call returns.
pub type Outcome<T> = Result<T, Errno>;

fn plain<T>(result: std::io::Result<T>) -> Outcome<T> {
    result.map_err(|error| to_errno(&error))
}

/// `shunt_attach`
pub fn attach(name: Option<&str>) -> Outcome<i64> {
    let engine = match name {
        Some(name) => plain(Engine::attach(name))?,
        None => plain(Engine::from_environment())?,
    };
    table::insert(Object::Engine(engine))
}

/// `shunt_close`
pub fn close(handle: i64) -> Outcome<()> {
    table::remove(handle).map(drop)
}

fn insert_stream(stream: TcpStream) -> Outcome<i64> {
    table::insert(Object::Stream(Waiting::new(Stream::new(stream))))
}

/// `shunt_connect`
pub fn connect(engine: i64, remote: SocketAddr, timeout_ms: i32) -> Outcome<i64> {
    let engine = table::find(engine)?.engine()?;
    let stream = match duration(timeout_ms) {
        Some(timeout) => TcpStream::connect_timeout(engine, remote, timeout),
        None => TcpStream::connect(engine, remote),
    };
    insert_stream(plain(stream)?)
}

/// `shunt_connect_start`
pub fn connect_start(engine: i64, remote: SocketAddr, local: Option<SocketAddr>) -> Outcome<i64> {
    let engine = table::find(engine)?.engine()?;
    insert_stream(plain(TcpStream::start_connect(engine, remote, local))?)
}

/// `shunt_connect_outcome`
pub fn connect_outcome(socket: i64) -> Outcome<()> {
    let object = table::find(socket)?;
    if plain(object.stream()?.inner.control.connect_outcome())? {
        Ok(())
    } else {
        Err(Errno::INPROGRESS)
    }
}

/// `shunt_listen`
pub fn listen(engine: i64, local: SocketAddr, backlog: i32) -> Outcome<i64> {
    let engine = table::find(engine)?.engine()?;
    // As listen(2) of Linux reads a negative one.
    let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
    let listener = plain(TcpListener::bind(engine, local, backlog))?;
    table::insert(Object::Listener(Waiting::new(listener)))
}

/// `shunt_accept`
pub fn accept(listener: i64) -> Outcome<(i64, SocketAddr)> {
    let object = table::find(listener)?;
    let listener = object.listener()?;
    let accepted = if listener.waits() {
        listener.inner.accept()
    } else {
        listener.inner.try_accept()
    };
    let (stream, peer) = plain(accepted)?;
    Ok((insert_stream(stream)?, peer))
}

/// `shunt_udp`
pub fn udp(engine: i64, local: SocketAddr) -> Outcome<i64> {
    let engine = table::find(engine)?.engine()?;
    let socket = plain(UdpSocket::bind(engine, local))?;
    table::insert(Object::Udp(Waiting::new(socket)))
}

/// `shunt_udp_connect`
pub fn udp_connect(socket: i64, peer: SocketAddr) -> Outcome<()> {
    plain(table::find(socket)?.udp()?.inner.connect(peer))
}

/// `shunt_shutdown`
pub fn shutdown(socket: i64, how: i32) -> Outcome<()> {
    // SHUT_RD, SHUT_WR, SHUT_RDWR of shutdown(2).
    let how = match how {
        0 => Shutdown::Read,
        1 => Shutdown::Write,
        2 => Shutdown::Both,
        _ => return Err(Errno::INVAL),
    };
    plain(table::find(socket)?.stream()?.inner.control.shutdown(how))
}

/// `shunt_abort`
pub fn abort(socket: i64) -> Outcome<()> {
    table::find(socket)?.stream()?;
    let object = table::remove(socket)?;
    object.stream()?.inner.control.abort();
    Ok(())
}

/// `shunt_set_timeout`
pub fn set_timeout(socket: i64, timeout_ms: i32) -> Outcome<()> {
    match &*table::find(socket)? {
        Object::Stream(one) => one.inner.control.set_timeout(one.set(timeout_ms)),
        Object::Listener(one) => one.inner.set_timeout(one.set(timeout_ms)),
        Object::Udp(one) => one.inner.set_timeout(one.set(timeout_ms)),
        _ => return Err(Errno::NOTSOCK),
    }
    Ok(())
}

/// `shunt_set_nodelay`
pub fn set_nodelay(socket: i64, on: bool) -> Outcome<()> {
    plain(table::find(socket)?.stream()?.inner.control.set_nodelay(on))
}

/// `shunt_local_name`
pub fn local_name(socket: i64) -> Outcome<SocketAddr> {
    plain(match &*table::find(socket)? {
        Object::Stream(one) => one.inner.control.local_addr(),
        Object::Listener(one) => one.inner.local_addr(),
        Object::Udp(one) => one.inner.local_addr(),
        _ => return Err(Errno::NOTSOCK),
    })
}

/// `shunt_peer_name`
pub fn peer_name(socket: i64) -> Outcome<SocketAddr> {
    plain(match &*table::find(socket)? {
        Object::Stream(one) => one.inner.control.peer_addr(),
        Object::Udp(one) => one.inner.peer_addr(),
        Object::Listener(_) => return Err(Errno::NOTCONN),
        _ => return Err(Errno::NOTSOCK),
    })
}

/// `shunt_send`
pub fn send(socket: i64, bytes: &[u8]) -> Outcome<usize> {
    let object = table::find(socket)?;
    if let Object::Udp(udp) = &*object {
        return plain(send_datagram(udp, bytes, None));
    }
    let stream = object.stream()?;
    let mut sending = stream.inner.sending()?;
    let half = sending.half().ok_or(Errno::BUSY)?;
    plain(if stream.waits() {
        half.send(bytes)
    } else {
        half.try_send(bytes)
    })
}

fn send_datagram(
    udp: &Waiting<UdpSocket>,
    bytes: &[u8],
    destination: Option<SocketAddr>,
) -> std::io::Result<usize> {
    match destination {
        _ if !udp.waits() => udp.inner.try_send(bytes, destination),
        Some(destination) => udp.inner.send_to(bytes, destination),
        None => udp.inner.send(bytes),
    }
}

/// `shunt_send_to`
pub fn send_to(socket: i64, bytes: &[u8], destination: SocketAddr) -> Outcome<usize> {
    let object = table::find(socket)?;
    plain(send_datagram(object.udp()?, bytes, Some(destination)))
}

/// `shunt_receive`
pub fn receive(socket: i64, bytes: &mut [u8]) -> Outcome<usize> {
    let object = table::find(socket)?;
    if let Object::Udp(_) = &*object {
        return receive_from(socket, bytes).map(|(len, _)| len);
    }
    let stream = object.stream()?;
    let mut receiving = stream.inner.receiving()?;
    let half = receiving.half().ok_or(Errno::BUSY)?;
    plain(if stream.waits() {
        half.receive(bytes)
    } else {
        half.try_receive(bytes)
    })
}

/// `shunt_receive_from`
pub fn receive_from(socket: i64, bytes: &mut [u8]) -> Outcome<(usize, SocketAddr)> {
    let object = table::find(socket)?;
    let udp = object.udp()?;
    plain(if udp.waits() {
        udp.inner.receive(bytes)
    } else {
        udp.inner.try_receive(bytes)
    })
}

/// `shunt_commit`
pub fn commit(socket: i64, bytes: usize) -> Outcome<()> {
    let object = table::find(socket)?;
    let piece = object.stream()?.inner.sending()?.take();
    plain(piece.ok_or(Errno::INVAL)?.commit(bytes))
}

/// `shunt_consume`
pub fn consume(socket: i64, bytes: usize) -> Outcome<()> {
    let object = table::find(socket)?;
    let piece = object.stream()?.inner.receiving()?.take();
    plain(piece.ok_or(Errno::INVAL)?.consume(bytes))
}

/// `shunt_readiness`
pub fn readiness(socket: i64) -> Outcome<u32> {
    Ok(table::find(socket)?.pollable()?.readiness().bits())
}

/// `shunt_poller`
pub fn poller(engine: i64) -> Outcome<i64> {
    let engine = table::find(engine)?.engine()?;
    table::insert(Object::Poller(Mutex::new(plain(Poller::new(engine))?)))
}

/// `shunt_poller_add`
pub fn poller_add(poller: i64, socket: i64, token: u64, interest: u32) -> Outcome<()> {
    let (poller, socket) = (table::find(poller)?, table::find(socket)?);
    let interest = Readiness::from_bits(interest).ok_or(Errno::INVAL)?;
    plain(poller.poller()?.add(socket.pollable()?, token, interest))
}

/// `shunt_poller_modify`
pub fn poller_modify(poller: i64, token: u64, interest: u32) -> Outcome<()> {
    let interest = Readiness::from_bits(interest).ok_or(Errno::INVAL)?;
    plain(table::find(poller)?.poller()?.modify(token, interest))
}

/// `shunt_poller_remove`
pub fn poller_remove(poller: i64, token: u64) -> Outcome<()> {
    plain(table::find(poller)?.poller()?.remove(token))
}

/// `shunt_poller_wait`
pub fn poller_wait(poller: i64, events: &mut [Event], timeout_ms: i32) -> Outcome<usize> {
    let object: Arc<Object> = table::find(poller)?;
    let mut poller = object.poller()?;
    plain(poller.wait(events, duration(timeout_ms)))
}

/// `shunt_poller_descriptor`
pub fn poller_descriptor(poller: i64) -> Outcome<i32> {
    Ok(table::find(poller)?.poller()?.as_fd().as_raw_fd())
}

/// `shunt_poller_arm`
pub fn poller_arm(poller: i64) -> Outcome<()> {
    plain(table::find(poller)?.poller()?.arm())
}

/// `shunt_poller_disarm`
pub fn poller_disarm(poller: i64) -> Outcome<()> {
    table::find(poller)?.poller()?.disarm();
    Ok(())
}
