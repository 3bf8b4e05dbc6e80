//! A connection between the two ends: TCP as it is, or TLS 1.3 over it.
//!
//! One thread reads and others write. With TLS a lock is held for the records, never while the socket is waited for
//! to read.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::lock::lock;
use crate::protocol::write_all;
use crate::sys::{self, Retry, retried};
use crate::tls::EXPORTED_BYTES;

/// Bytes that are read from the socket at a time: some records.
const RAW_BYTES: usize = 64 * 1024;

/// With so many bytes there a receiver goes on without waiting.
const ENOUGH_BYTES: usize = 128 * 1024;
/// And where it has to wait, then for so many.
const GATHERED_BYTES: usize = 1 << 20;
/// What may be on its way to a receiver from the beginning: while it takes the bytes that it was woken for, the sender
/// goes on. The system raises it by itself only as fast as bytes are taken.
const WINDOW_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    tls: Option<Arc<Mutex<Secured>>>,
}

/// The state of TLS, and bytes of the socket that it has not seen.
#[derive(Debug)]
struct Secured {
    tls: rustls::Connection,
    raw: Vec<u8>,
    start: usize,
    end: usize,
}

impl Secured {
    /// Has TLS look at some of the bytes. It takes no more than it may hold until they are read.
    fn take_in(&mut self) -> io::Result<()> {
        let mut bytes = &self.raw[self.start..self.end];
        self.start += self.tls.read_tls(&mut bytes)?;
        self.tls.process_new_packets().map_err(io::Error::other)?;
        Ok(())
    }
}

impl Connection {
    /// TCP alone.
    pub fn plain(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }

    /// With TLS, once the two ends have agreed on keys, in so much time.
    pub fn secured(
        socket: TcpStream,
        tls: impl Into<rustls::Connection>,
        patience: Duration,
    ) -> Result<Self, Error> {
        let mut tls = tls.into();
        let mut both = Hurried {
            from: &socket,
            socket: &socket,
            until: Instant::now() + patience,
        };
        while tls.is_handshaking() {
            let done = tls.complete_io(&mut both);
            done.map_err(|error| Error::Encryption(format!("agreeing on keys (TLS): {error}")))?;
        }
        Ok(Self {
            socket,
            tls: Some(Arc::new(Mutex::new(Secured {
                tls,
                raw: Vec::new(),
                start: 0,
                end: 0,
            }))),
        })
    }

    /// Something that both ends know and nobody between them: empty without TLS (RFC 9266 tells why proofs need it).
    pub fn exported(&self) -> Result<Vec<u8>, Error> {
        let Some(tls) = &self.tls else {
            return Ok(Vec::new());
        };
        let bytes = lock(tls).tls.export_keying_material(
            [0; EXPORTED_BYTES],
            b"EXPORTER-shunt-mover",
            None,
        );
        let bytes = bytes.map_err(|_| Error::Protocol("no keys were agreed on"))?;
        Ok(bytes.to_vec())
    }

    /// Whether the socket's bytes are those of the messages, so that the kernel may put a file's pages there.
    pub fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Whether there is something to read that the socket does not know of any more.
    pub fn has_buffered(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| {
            let held = lock(tls);
            held.start < held.end || !held.tls.wants_read()
        })
    }

    /// The same connection once more.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            tls: self.tls.clone(),
        })
    }

    /// Writes all of it; more will follow at once.
    pub fn write_before_more(&self, mut bytes: &[u8]) -> Result<(), Error> {
        if !self.is_plain() {
            return write_all(&mut { self }, bytes);
        }
        let send = |bytes: &[u8]| retried(|| sys::send_before_more(self.socket.as_fd(), bytes));
        while !bytes.is_empty() {
            let count = send(bytes).map_err(Error::lost("sending to the peer"))?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Makes room for what is to come.
    pub fn widen(&self) {
        sys::widen(self.socket.as_fd(), WINDOW_BYTES);
    }

    /// Waits for a good part of `certain` bytes that the peer has begun to send, so that this thread is not woken for
    /// each segment. With TLS it does not wait here.
    pub fn gather(&self, certain: usize) -> Result<(), Error> {
        if self.is_plain() {
            let wanted = certain.min(GATHERED_BYTES);
            sys::gather(self.socket.as_fd(), wanted.min(ENOUGH_BYTES), wanted)
                .map_err(Error::lost("receiving from the peer"))?;
        }
        Ok(())
    }

    /// Ends it in both directions, which wakes whoever waits for it.
    pub fn close(&self) {
        // Closed already, perhaps.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Who is at the other end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Has what stays on this host go without pacing: there is no path to be gentle to, and a congestion control that
    /// paces (bbr) sets a timer for each burst, which costs more processor time than the bytes.
    pub fn suit_this_host(&self) {
        let ends = (self.socket.local_addr(), self.socket.peer_addr());
        if matches!(ends, (Ok(own), Ok(peer)) if own.ip() == peer.ip()) {
            sys::do_not_pace(self.socket.as_fd());
        }
    }

    /// How long a read or a write waits.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.socket.set_nodelay(true)?;
        self.socket.set_read_timeout(patience)?;
        self.socket.set_write_timeout(patience)
    }

    /// Its reading side, for a peer that has so much time for everything.
    pub fn hurried(&self, patience: Duration) -> Hurried<'_, &Self> {
        Hurried {
            from: self,
            socket: &self.socket,
            until: Instant::now() + patience,
        }
    }

    fn read_secured(&self, secured: &Mutex<Secured>, into: &mut [u8]) -> io::Result<usize> {
        let mut held = lock(secured);
        loop {
            match held.tls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if held.start == held.end {
                let mut raw = std::mem::take(&mut held.raw);
                drop(held);
                raw.resize(RAW_BYTES, 0);
                let read = (&self.socket).read(&mut raw);
                held = lock(secured);
                held.raw = raw;
                (held.start, held.end) = (0, *read.as_ref().unwrap_or(&0));
                // An end without a word of farewell is one that comes too early for those who read messages.
                if read? == 0 {
                    return Ok(0);
                }
            }
            held.take_in()?;
            self.flush_secured(&mut held.tls)?;
        }
    }

    /// What TLS itself has to say, or was given to say.
    fn flush_secured(&self, tls: &mut rustls::Connection) -> io::Result<()> {
        let retry = Retry::new();
        while tls.wants_write() {
            match tls.write_tls(&mut &self.socket) {
                Err(error) if !retry.again(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A connection, or its socket, whose peer has so much time for all that it has to say, also if it says it byte by byte.
#[derive(Debug)]
pub struct Hurried<'a, T> {
    from: T,
    socket: &'a TcpStream,
    until: Instant,
}

impl<T: Read> Read for Hurried<'_, T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.from.read(into)
    }
}

impl<T: Write> Write for Hurried<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.from.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.from.flush()
    }
}

impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Read for &Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => (&self.socket).read(into),
            Some(tls) => self.read_secured(tls, into),
        }
    }
}

impl Write for &Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return (&self.socket).write(bytes);
        };
        let mut held = lock(tls);
        let count = held.tls.writer().write(bytes)?;
        self.flush_secured(&mut held.tls)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &self.tls {
            None => Ok(()),
            Some(tls) => self.flush_secured(&mut lock(tls).tls),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
