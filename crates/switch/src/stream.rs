//! A socket on engines, for whom its program's descriptor stands: a connection or a listener, or a UDP socket, which may be on
//! several (`parts`).

mod datagram;
mod fast_open;
mod options;
mod parts;
mod sys;

use core::net::SocketAddr;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use client::engines::EngineIndex;
use client::inline_engine::Held;
use client::{SharedFile, ShutdownHow, State, TcpSocket, UdpSocket, UserBuffer, WriteMode};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::attached;
use crate::readiness::Phase;

pub use datagram::Arrived;

/// A connection that a listener accepted.
pub struct Accepted {
    /// The connection.
    pub stream: Arc<Stream>,
    /// Its backing socket, at a high number unless `is_placed`.
    pub backing: OwnedFd,
    /// The backing socket has the lowest free number, and the flags that were asked for.
    pub is_placed: bool,
    /// The peer.
    pub peer: SocketAddr,
}

/// A socket on the engine: a connection or a listener, or a UDP socket.
pub struct Stream {
    sockets: Sockets,
}

enum Sockets {
    Tcp(Arc<TcpSocket>),
    /// One for each of its engines, at least one (`parts`).
    Udp(Box<[Arc<UdpSocket>]>),
}

impl From<Arc<TcpSocket>> for Stream {
    fn from(socket: Arc<TcpSocket>) -> Stream {
        Stream {
            sockets: Sockets::Tcp(socket),
        }
    }
}

impl Stream {
    /// Makes a TCP socket of an engine's behind the backing socket.
    pub fn open(place: EngineIndex, backing: BorrowedFd<'_>) -> Result<Arc<Stream>, Errno> {
        let socket = TcpSocket::open(attached::session(place)?, backing)?;
        Ok(Arc::new(socket.into()))
    }

    /// The TCP socket that a descriptor from elsewhere stands for.
    pub fn adopt(backing: BorrowedFd<'_>) -> Result<Option<Arc<Stream>>, Errno> {
        let adopted = attached::adopt(backing)?;
        Ok(adopted.map(|socket| Arc::new(socket.into())))
    }

    /// The connection or listener. EOPNOTSUPP: it is a UDP socket.
    pub fn tcp(&self) -> Result<&TcpSocket, Errno> {
        match &self.sockets {
            Sockets::Tcp(socket) => Ok(socket),
            Sockets::Udp(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// The sockets of a UDP socket; of others none.
    fn udp(&self) -> &[Arc<UdpSocket>] {
        match &self.sockets {
            Sockets::Tcp(_) => &[],
            Sockets::Udp(sockets) => sockets,
        }
    }

    /// Whether it is a single socket of an engine.
    pub fn is_single(&self) -> bool {
        self.udp().len() < 2
    }

    /// Whether both are the same socket of the same engine.
    pub fn is(&self, other: &Stream) -> bool {
        std::ptr::eq(self.first().core(), other.first().core())
    }

    /// Whether a holder of the socket has set this mark.
    pub fn is_marked(&self, mark: u32) -> bool {
        self.tcp().is_ok_and(|socket| socket.marks() & mark != 0)
    }

    /// Sets a mark that all of its holders see, or takes it back.
    pub fn mark(&self, mark: u32, on: bool) {
        self.first().mark(mark, on);
    }

    /// Which directions were shut down: reading, writing.
    pub fn shut(&self) -> (bool, bool) {
        self.first().core().shut()
    }

    /// The engine that it is on.
    pub fn place(&self) -> EngineIndex {
        attached::place_of(self.first().core().session())
    }

    /// Lets the engine read a file that the program sends from; `None`: it does not.
    pub fn share_file(&self, file: BorrowedFd<'_>) -> Option<SharedFile> {
        self.tcp().ok()?.share_file(file).ok()
    }

    /// Whether the part of the engine that serves this stream has the file.
    pub fn has_file(&self, file: &SharedFile) -> bool {
        self.tcp().is_ok_and(|socket| file.is_for(socket))
    }

    /// Whether the next byte to be read is the urgent one.
    pub fn is_at_mark(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::is_at_mark)
    }

    /// Whether the next byte is the urgent one, and there.
    pub fn is_before_urgent(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::is_before_urgent)
    }

    /// Receives the urgent byte out of band.
    pub fn try_receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        self.tcp()?.try_recv_urgent(peek)
    }

    /// Bytes that FIONREAD counts.
    pub fn queued_bytes(&self) -> usize {
        self.tcp().map_or(0, TcpSocket::queued_bytes)
    }

    /// Takes an address and port that the backing socket holds, to listen there.
    pub fn prepare_to_listen(
        &self,
        backing: BorrowedFd<'_>,
        local: SocketAddr,
    ) -> Result<(), Errno> {
        let socket = self.tcp()?;
        socket.bind(local)?;
        socket.prepare_to_listen(backing)
    }

    /// Listens there; where `is_on_all`, on all other engines that serve TCP too.
    pub fn listen(
        &self,
        backing: BorrowedFd<'_>,
        backlog: i32,
        is_on_all: bool,
    ) -> Result<(), Errno> {
        let others = match is_on_all {
            true => attached::others(self.place()),
            false => Vec::new(),
        };
        self.tcp()?.listen_beside(backing, length(backlog), &others)
    }

    /// Changes the backlog of a listener.
    pub fn set_backlog(&self, backing: BorrowedFd<'_>, backlog: i32) -> Result<(), Errno> {
        self.tcp()?.listen(backing, length(backlog))
    }

    /// Takes a connection if one waits. `flags`: what the program's descriptor is to have.
    pub fn try_accept(&self, flags: SocketFlags) -> Result<Option<Accepted>, Errno> {
        let accepted = match self.tcp()?.try_accept_with(flags) {
            // None can come before there is an engine again.
            Err(_) if self.is_lost_listener() => None,
            accepted => accepted?,
        };
        let Some(accepted) = accepted else {
            return Ok(None);
        };
        let stream = Arc::new(accepted.socket.into());
        Ok(Some(Accepted {
            stream,
            backing: accepted.backing,
            is_placed: accepted.is_placed,
            peer: accepted.peer,
        }))
    }

    /// Whether this process listens with it, on all cores; of one that is adopted its phase alone does not tell.
    pub fn takes_part_in_listening(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::takes_part_in_listening)
    }

    /// Whether it listens, and no engine is there that it listens on.
    pub fn is_lost_listener(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::is_lost_listener)
    }

    /// Whether an engine is gone on which it listened.
    pub fn misses_engine(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::misses_engine)
    }

    /// Listens on those that came in their place; whether none is missing any more.
    pub fn listen_again(&self, backing: BorrowedFd<'_>) -> bool {
        self.tcp()
            .map_or(true, |socket| socket.listen_again(backing))
    }

    /// Where the connection stands.
    pub fn phase(&self) -> Phase {
        match self.first().state() {
            // A stream is made to connect or to listen at once: what has not begun is about to.
            State::Idle | State::Connecting => Phase::Connecting,
            State::Connected => Phase::Connected,
            State::Listening => Phase::Listening,
            State::Closed if self.is_lost_listener() => Phase::Listening,
            State::Closed => Phase::Closed,
        }
    }

    /// Whether a connection waits to be accepted.
    pub fn has_connection(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::has_connection)
    }

    /// Bytes that wait to be read.
    pub fn readable_bytes(&self) -> usize {
        self.tcp().map_or(0, TcpSocket::readable_bytes)
    }

    /// Name of the congestion control.
    pub fn congestion(&self) -> Option<&'static str> {
        self.tcp().ok()?.congestion()
    }

    /// Whether the connection stands, and nothing but bytes can come to who reads.
    pub fn is_flowing(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::is_flowing)
    }

    /// Whether the peer's FIN has arrived.
    pub fn fin_received(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::fin_received)
    }

    /// Whether the peer has acknowledged our FIN, or never will.
    pub fn fin_is_done(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::fin_is_done)
    }

    /// Receives what is there; 0 is nothing, whatever the reason, and leaves a pending error alone.
    pub fn try_receive(&self, slices: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let socket = self.tcp()?;
        if socket.readable_bytes() == 0 {
            return Ok(0);
        }
        or_nothing(socket.try_recv(slices, peek))
    }

    /// As [`Self::try_receive`], where bytes are there and nothing else is to be said; `None`, with nothing done: it is not so.
    #[inline]
    pub fn take_at_once(&self, slices: &mut [IoSliceMut<'_>]) -> Option<usize> {
        self.tcp().ok()?.take_at_once(slices)
    }

    /// What lies behind the first `filled` bytes of `slices`, as a buffer that the engine may fill while the thread waits.
    pub fn lend<'a, 'b>(
        &'a self,
        slices: &'a mut [IoSliceMut<'b>],
        filled: usize,
    ) -> Result<UserBuffer<'a, 'b>, Errno> {
        Ok(UserBuffer::new(self.tcp()?, slices, filled))
    }

    /// Whether nothing but bytes can come, all of them by way of the engine, if it lives.
    #[inline(always)]
    pub fn awaits_bytes(&self) -> bool {
        match &self.sockets {
            Sockets::Tcp(socket) => socket.awaits_bytes(),
            Sockets::Udp(_) => false,
        }
    }

    /// Where nothing is there and it [awaits bytes](Self::awaits_bytes): polls an engine inside this process once, which may place what comes in
    /// `slices`. How many bytes it placed, and whether that is all that has arrived.
    #[inline(always)]
    pub fn receive_at_once(&self, slices: &mut [IoSliceMut<'_>], held: Held) -> (usize, bool) {
        match &self.sockets {
            Sockets::Tcp(socket) => socket.receive_at_once(slices, held),
            Sockets::Udp(_) => (0, false),
        }
    }

    /// Throws away up to `max` bytes.
    pub fn discard(&self, max: usize) -> Result<usize, Errno> {
        let socket = self.tcp()?;
        if socket.readable_bytes() == 0 {
            return Ok(0);
        }
        or_nothing(socket.discard(max))
    }

    /// A call found nothing to receive and will say so: the chance to notice that the engine is gone.
    pub fn on_nothing_received(&self) -> Result<(), Errno> {
        let socket = self.tcp()?;
        if socket.is_flowing() {
            socket.on_nothing_received();
            return Ok(());
        }
        or_nothing(socket.try_recv(&mut [], true)).map(drop)
    }

    /// Sends what fits; 0 is a full window.
    pub fn try_send(&self, slices: &[IoSlice<'_>], mode: WriteMode) -> Result<usize, Errno> {
        or_nothing(self.tcp()?.try_send_as(slices, mode))
    }

    /// Sends all `total` bytes if nothing is in the way; false, with nothing done: `try_send` says what is.
    #[inline(always)]
    pub fn send_at_once(&self, slices: &[IoSlice<'_>], total: usize, held: Held) -> bool {
        match &self.sockets {
            Sockets::Tcp(socket) => socket.send_at_once(slices, total, held),
            Sockets::Udp(_) => false,
        }
    }

    /// As `try_send`, for a program that asks when the bytes leave (`hostif::stamp`).
    pub fn try_send_stamped(
        &self,
        slices: &[IoSlice<'_>],
        mode: WriteMode,
        stamps: u8,
    ) -> Result<usize, Errno> {
        or_nothing(self.tcp()?.try_send_stamped(slices, mode, stamps))
    }

    /// Reads up to `max` bytes of a file straight into the send window, from `offset` or else from the
    /// file's position. `None` at the end of the file, `Some(0)` for a full window. The window stays
    /// locked while the disk is read, so another sender on this socket waits, as it would in Linux.
    pub fn fill(
        &self,
        file: BorrowedFd<'_>,
        offset: Option<u64>,
        max: usize,
    ) -> Result<Option<usize>, Errno> {
        let space = match self.tcp()?.send_space(max) {
            Ok(space) => space,
            Err(Errno::AGAIN) => return Ok(Some(0)),
            Err(error) => return Err(error),
        };
        match sys::read_into(&space, file, offset)? {
            0 => Ok(None),
            bytes => space.commit(bytes).map(Some),
        }
    }

    /// Writes up to `max` bytes that have arrived straight into a file; 0 is the end of the stream. The window stays
    /// locked meanwhile, as in `fill`. EAGAIN: nothing has arrived.
    pub fn spill(&self, file: BorrowedFd<'_>, offset: u64, max: usize) -> Result<usize, Errno> {
        let Some(mut arrived) = self.tcp()?.borrow(max)? else {
            return Ok(0);
        };
        arrived.count_as_copied();
        let written = sys::write_from(&arrived, file, offset)?;
        arrived.consume(written)
    }

    /// Sends what fits of a shared file from `offset`; 0 is a full window. ESTALE: no longer shared.
    pub fn send_file(&self, file: &SharedFile, offset: u64, max: usize) -> Result<usize, Errno> {
        or_nothing(self.tcp()?.send_file(file, offset, max))
    }

    /// Bytes that fit now, unless somebody else sends them first.
    pub fn send_room(&self) -> usize {
        self.tcp().map_or(0, TcpSocket::send_capacity_bytes)
    }

    /// Whether no other process has it.
    pub fn is_held_alone(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::is_held_alone)
    }

    /// Ends directions.
    pub fn shutdown(&self, how: ShutdownHow) -> Result<(), Errno> {
        self.tcp()?.shutdown(how)
    }

    /// Ends the connection with RST.
    pub fn abort(&self) {
        if let Ok(socket) = self.tcp() {
            socket.abort();
        }
    }

    /// The local address, once known.
    pub fn local(&self) -> Option<SocketAddr> {
        self.first().core().local_address()
    }

    /// The peer, once known.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.first().core().peer_address()
    }
}

/// Linux reads a negative backlog as the largest.
pub fn length(backlog: i32) -> u32 {
    u32::try_from(backlog).unwrap_or(u32::MAX)
}

fn or_nothing(result: Result<usize, Errno>) -> Result<usize, Errno> {
    match result {
        Err(Errno::AGAIN) => Ok(0),
        result => result,
    }
}
