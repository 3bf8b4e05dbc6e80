//! A buffer that a thread of the program passes for one poll: what arrives in order on its socket meanwhile is
//! placed there, and not in the receive window, so that it is copied once.
//!
//! The stack hears nothing of it: the bytes count as arrived as ever. That they are consumed as well the header says
//! before the poll is over, so that whoever holds the socket besides reads on behind them, even if the process ends
//! the moment after. The thread holds the receive lock of the socket meanwhile, and notes afterwards what it
//! has consumed. Everything that is not simply the next bytes goes to the window: what comes behind a hole, a segment
//! with the urgent bit and all that follows it, what does not fit the buffer.

use std::io::IoSliceMut;

use core::net::SocketAddr;
use hostif::SocketId;
use hostif::stages::{Mark, mark};
use stack::{
    AcceptReady, ConnectionId, Datagram, DatagramError, Detour, Host, Incoming, ListenerId,
};
use tcp::{Connection, Events};

use super::Sockets;

/// See the file's head.
pub struct UserBuffer<'a, 'b> {
    /// Session of the thread's process, and its socket.
    session: u32,
    socket: SocketId,
    /// Stream offset up to which everything has arrived and was consumed.
    start: u64,
    slices: &'a mut [IoSliceMut<'b>],
    /// Bytes at the slices' start that are full already.
    skipped: usize,
    room: usize,
    placed: usize,
    /// Bytes of the last segment that was placed.
    last: usize,
    is_closed: bool,
    /// Something has arrived that was placed elsewhere.
    has_spilled: bool,
    /// The row of its socket, once the first frame has come; `None` in it: nothing may be placed.
    row: Option<Option<u32>>,
}

impl<'a, 'b> UserBuffer<'a, 'b> {
    /// What lies behind the first `skipped` bytes of `slices`, for what arrives at stream offset `start` and after it.
    pub fn new(
        (session, socket): (u32, SocketId),
        start: u64,
        slices: &'a mut [IoSliceMut<'b>],
        skipped: usize,
    ) -> Self {
        let total = match &*slices {
            [only] => only.len(),
            several => several.iter().map(|slice| slice.len()).sum(),
        };
        Self {
            session,
            socket,
            start,
            slices,
            skipped,
            room: total.saturating_sub(skipped),
            placed: 0,
            last: 0,
            is_closed: false,
            has_spilled: false,
            row: None,
        }
    }

    /// Before the first frame: finds the socket's row, without which nothing is placed.
    pub(crate) fn judge(&mut self, find: impl FnOnce(&Self) -> Option<u32>) {
        if self.row.is_none() {
            let row = find(self);
            self.row = Some(row);
            self.is_closed |= row.is_none();
        }
    }

    /// The row of its socket, if anything may be placed.
    pub(crate) fn row(&self) -> Option<u32> {
        self.row.flatten()
    }

    /// How many bytes lie there now.
    #[must_use]
    pub fn placed(&self) -> usize {
        self.placed
    }

    /// Whether all that has arrived lies there, and that is something.
    #[inline]
    pub(crate) fn has_all(&self) -> bool {
        self.placed > 0 && !self.has_spilled
    }

    pub(crate) fn session(&self) -> u32 {
        self.session
    }

    pub(crate) fn socket(&self) -> SocketId {
        self.socket
    }

    /// Stream offset behind what was placed.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.placed as u64
    }

    /// Nothing (more) is placed.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Another segment like the last would not fit: it is better left where it is, for the next user buffer.
    pub(crate) fn is_spent(&self) -> bool {
        let left = self.room - self.placed;
        left == 0 || self.placed > 0 && (self.is_closed || left < self.last)
    }

    /// Places as much of the bytes at stream offset `offset` as belongs here; how many those were.
    fn place(&mut self, offset: u64, bytes: &[u8]) -> usize {
        if self.is_closed || offset != self.end() {
            return 0;
        }
        let mut before = self.skipped + self.placed;
        if let Some(first) = self.slices.first_mut()
            && let Some(free) = first.get_mut(before..before + bytes.len())
        {
            hostif::copy::copy_slice(bytes, free);
            self.placed += bytes.len();
            self.last = bytes.len();
            return bytes.len();
        }
        let mut rest = bytes;
        for slice in self.slices.iter_mut() {
            let Some(free) = slice.get_mut(before..) else {
                before -= slice.len();
                continue;
            };
            before = 0;
            let (now, later) = rest.split_at(rest.len().min(free.len()));
            hostif::copy::copy_slice(now, &mut free[..now.len()]);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let done = bytes.len() - rest.len();
        self.placed += done;
        self.last = bytes.len();
        self.is_closed = !rest.is_empty();
        done
    }
}

/// The sockets, with a buffer that the thread of one of them has passed.
pub struct WithUserBuffer<'s, 'l, 'a, 'b> {
    pub sockets: &'s mut Sockets,
    pub user_buffer: &'l mut UserBuffer<'a, 'b>,
}

impl Host for WithUserBuffer<'_, '_, '_, '_> {
    fn receive(&mut self, owner: u64, offset: u64, data: &[u8]) {
        let taken = if owner == self.user_buffer.socket.to_bits() {
            mark(Mark::Placed);
            self.user_buffer.place(offset, data)
        } else {
            0
        };
        if taken < data.len() {
            self.user_buffer.has_spilled = true;
            let offset = offset + taken as u64;
            self.sockets.receive(owner, offset, &data[taken..]);
        }
    }

    fn on_urgent(&mut self, owner: u64) {
        if owner == self.user_buffer.socket.to_bits() {
            self.user_buffer.close();
        }
    }

    fn on_events(
        &mut self,
        connection: ConnectionId,
        owner: u64,
        events: Events,
        tcp: &Connection,
    ) {
        self.sockets.on_events(connection, owner, events, tcp);
    }

    fn on_incoming(
        &mut self,
        listener: ListenerId,
        listener_owner: u64,
        peer: SocketAddr,
    ) -> Option<Incoming> {
        self.sockets.on_incoming(listener, listener_owner, peer)
    }

    fn on_syn(&mut self, owner: u64, headers: &[u8]) {
        self.sockets.on_syn(owner, headers);
    }

    fn on_sent(&mut self, owner: u64, sent: u64) {
        self.sockets.on_sent(owner, sent);
    }

    fn on_accept_ready(&mut self, listener: ListenerId, listener_owner: u64, ready: AcceptReady) {
        self.sockets
            .on_accept_ready(listener, listener_owner, ready);
    }

    fn on_released(&mut self, connection: ConnectionId, owner: u64) {
        self.sockets.on_released(connection, owner);
    }

    fn on_datagram(&mut self, owner: u64, datagram: &Datagram<'_>) -> bool {
        self.sockets.on_datagram(owner, datagram)
    }

    fn on_datagram_error(&mut self, owner: u64, error: &DatagramError<'_>) {
        self.sockets.on_datagram_error(owner, error);
    }

    fn try_hold_port(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.sockets.try_hold_port(local, remote)
    }

    fn try_pass_on(&mut self, detour: &Detour<'_>) -> bool {
        self.sockets.try_pass_on(detour)
    }
}

#[cfg(test)]
mod tests;
