//! What handles stand for.
//!
//! A stream has a lock for each direction, which a call holds while it works and while it waits: a second call in
//! the same direction is refused (EBUSY), and so is one beside a piece that is out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use client::Errno;
use native::{Engine, Pollable, Poller, StreamControl, TcpListener, TcpStream, UdpSocket};

use crate::ffi::{Receiving, Sending};

/// See the file's head.
pub enum Object {
    /// An engine.
    Engine(Engine),
    /// A listener.
    Listener(Waiting<TcpListener>),
    /// A connection.
    Stream(Waiting<Stream>),
    /// A UDP socket.
    Udp(Waiting<UdpSocket>),
    /// A set of sockets.
    Poller(Mutex<Poller>),
    /// For tests of the table.
    #[cfg(test)]
    Nothing,
}

/// A socket, and whether its calls may wait.
pub struct Waiting<T> {
    /// The socket.
    pub inner: T,
    waits: AtomicBool,
}

impl<T> Waiting<T> {
    /// Calls wait for ever.
    pub fn new(inner: T) -> Waiting<T> {
        Waiting {
            inner,
            waits: AtomicBool::new(true),
        }
    }

    /// Whether calls may wait.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Takes a timeout as C names it (negative: for ever, 0: none) and returns it as the socket does.
    pub fn set(&self, timeout_ms: i32) -> Option<Duration> {
        self.waits.store(timeout_ms != 0, Ordering::Relaxed);
        duration(timeout_ms)
    }
}

/// Milliseconds as C counts them; `None`: for ever.
pub fn duration(timeout_ms: i32) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

/// A connection.
pub struct Stream {
    /// What needs no direction.
    pub control: StreamControl,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
}

impl Stream {
    /// Of a connection.
    pub fn new(stream: TcpStream) -> Stream {
        let control = stream.control();
        let (sending, receiving) = stream.split();
        Stream {
            control,
            sending: Mutex::new(Sending::new(sending)),
            receiving: Mutex::new(Receiving::new(receiving)),
        }
    }

    /// The sending direction. EBUSY: another call has it.
    pub fn sending(&self) -> Result<MutexGuard<'_, Sending>, Errno> {
        try_lock(&self.sending)
    }

    /// The receiving direction. EBUSY: another call has it.
    pub fn receiving(&self) -> Result<MutexGuard<'_, Receiving>, Errno> {
        try_lock(&self.receiving)
    }
}

fn try_lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, Errno> {
    match mutex.try_lock() {
        Ok(held) => Ok(held),
        Err(TryLockError::Poisoned(held)) => Ok(held.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Errno::BUSY),
    }
}

impl Object {
    /// ENOTSOCK-like errors say EINVAL: the handle is good and stands for something else.
    pub fn engine(&self) -> Result<Engine, Errno> {
        match self {
            Object::Engine(engine) => Ok(*engine),
            _ => Err(Errno::INVAL),
        }
    }

    /// A connection. ENOTCONN: it is another kind of socket; ENOTSOCK: none.
    pub fn stream(&self) -> Result<&Waiting<Stream>, Errno> {
        match self {
            Object::Stream(stream) => Ok(stream),
            Object::Listener(_) => Err(Errno::NOTCONN),
            Object::Udp(_) => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::NOTSOCK),
        }
    }

    /// A listener. EINVAL: it is another kind of socket; ENOTSOCK: none.
    pub fn listener(&self) -> Result<&Waiting<TcpListener>, Errno> {
        match self {
            Object::Listener(listener) => Ok(listener),
            Object::Stream(_) | Object::Udp(_) => Err(Errno::INVAL),
            _ => Err(Errno::NOTSOCK),
        }
    }

    /// A UDP socket. EOPNOTSUPP: it is another kind of socket; ENOTSOCK: none.
    pub fn udp(&self) -> Result<&Waiting<UdpSocket>, Errno> {
        match self {
            Object::Udp(udp) => Ok(udp),
            Object::Stream(_) | Object::Listener(_) => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::NOTSOCK),
        }
    }

    /// A set. EINVAL: it is something else; EBUSY: another thread uses it.
    pub fn poller(&self) -> Result<MutexGuard<'_, Poller>, Errno> {
        match self {
            Object::Poller(poller) => try_lock(poller),
            _ => Err(Errno::INVAL),
        }
    }

    /// Any socket. ENOTSOCK: it is none.
    pub fn pollable(&self) -> Result<&dyn Pollable, Errno> {
        match self {
            Object::Stream(stream) => Ok(&stream.inner.control),
            Object::Listener(listener) => Ok(&listener.inner),
            Object::Udp(udp) => Ok(&udp.inner),
            _ => Err(Errno::NOTSOCK),
        }
    }
}
