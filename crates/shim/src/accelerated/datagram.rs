//! The door to the engine for datagram sockets.

use core::net::SocketAddr;
use std::io::{IoSlice, IoSliceMut};

use client::{DatagramOptions, Failure, Letter, Outgoing, Received};
use hostif::MembershipChange;
use rustix::io::Errno;

use super::Stream;
use crate::datagram::groups::Membership;

impl Stream {
    /// Takes a local end whose port the backing socket holds.
    pub fn bind(&self, local: SocketAddr) -> Result<(), Errno> {
        self.socket.bind(local).map(drop)
    }

    /// Gives it a peer.
    pub fn set_peer(&self, remote: SocketAddr) -> Result<(), Errno> {
        self.socket.set_peer(remote, None)
    }

    /// Takes the peer away.
    pub fn clear_peer(&self) -> Result<(), Errno> {
        self.socket.clear_peer()
    }

    /// Changes the options.
    pub fn set_datagram_options(&self, options: &DatagramOptions) {
        // It fails only when the engine is gone, which the next call on data reports.
        let _ = self.socket.set_datagram_options(options);
    }

    /// Has the error queue tell of a datagram that was too long.
    pub fn note_too_long(&self, destination: SocketAddr) {
        // As above.
        let _ = self.socket.note_too_long(destination);
    }

    /// Joins a group, leaves it, or changes the sources that it is heard from.
    pub fn change_membership(
        &self,
        change: MembershipChange,
        about: &Membership,
    ) -> Result<(), Errno> {
        self.socket
            .change_membership(change, about.group, about.source, about.interface)
    }

    /// Sends one datagram. EAGAIN: no room now.
    pub fn send_datagram(
        &self,
        outgoing: &Outgoing,
        slices: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        self.socket.outbox()?.push(outgoing, slices)
    }

    /// Takes the next datagram, or only looks at it.
    pub fn receive_datagram(
        &self,
        slices: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Option<Letter<Received>>, Errno> {
        match self.socket.inbox()? {
            Some(mut inbox) => inbox.next(slices, peek),
            None => Ok(None),
        }
    }

    /// Takes the oldest entry of the error queue.
    pub fn take_failure(
        &self,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<Option<Letter<Failure>>, Errno> {
        self.socket.take_failure(slices)
    }

    /// The length of the next datagram.
    pub fn next_datagram_bytes(&self) -> Result<Option<usize>, Errno> {
        self.socket.next_datagram_bytes()
    }

    /// Ends directions.
    pub fn shut_datagrams(&self, read: bool, write: bool) {
        self.socket.shut_datagrams(read, write);
    }
}
