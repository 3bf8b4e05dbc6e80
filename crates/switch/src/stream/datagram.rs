//! Datagram sockets on engines. One may be on several: what concerns one of them names the engine.

use core::net::SocketAddr;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use client::engines::EngineIndex;
use client::{
    DatagramOptions, Delivered, Failure, Outgoing, Readiness, Received, Socket, UdpSocket,
};
use hostif::MembershipChange;
use rustix::io::Errno;

use super::Stream;
use crate::attached;
use crate::groups::Membership;

/// What was received, and from which engine.
pub struct Arrived<T> {
    /// The datagram, or the entry of the error queue.
    pub letter: Delivered<T>,
    /// The engine that had it.
    pub place: EngineIndex,
}

impl Stream {
    /// Makes a UDP socket of an engine's behind the backing socket.
    pub fn open_datagrams(
        place: EngineIndex,
        backing: BorrowedFd<'_>,
    ) -> Result<Arc<Stream>, Errno> {
        let socket = UdpSocket::open(attached::session(place)?, backing)?;
        Ok(Arc::new(Stream::of(vec![socket])))
    }

    /// The UDP socket that a descriptor from elsewhere stands for.
    pub fn adopt_datagrams(backing: BorrowedFd<'_>) -> Result<Option<Arc<Stream>>, Errno> {
        let adopted = attached::adopt_datagrams(backing)?;
        Ok(adopted.map(|socket| Arc::new(Stream::of(vec![socket]))))
    }

    fn first_udp(&self) -> Result<&UdpSocket, Errno> {
        self.udp()
            .first()
            .map(AsRef::as_ref)
            .ok_or(Errno::OPNOTSUPP)
    }

    fn at(&self, place: EngineIndex) -> Result<&UdpSocket, Errno> {
        self.part_at(place).map(AsRef::as_ref).ok_or(Errno::NETDOWN)
    }

    /// Takes a local end whose port the backing socket holds.
    pub fn bind(&self, local: SocketAddr) -> Result<(), Errno> {
        self.first().core().bind(local).map(drop)
    }

    /// Gives it a peer.
    pub fn set_peer(&self, remote: SocketAddr) -> Result<(), Errno> {
        self.first_udp()?.connect(remote, None)
    }

    /// Takes the peer away.
    pub fn clear_peer(&self) -> Result<(), Errno> {
        self.first_udp()?.disconnect()
    }

    /// Changes the options, which may differ from engine to engine: `options` gets the engine and those before it.
    pub fn set_datagram_options(
        &self,
        options: impl Fn(EngineIndex, &[EngineIndex]) -> DatagramOptions,
    ) {
        let places = self.places();
        for (part, (before, place)) in self.living_udp().zip(places.iter().enumerate()) {
            // It fails only when the engine is gone, which the next call on data reports.
            let _ = part.set_datagram_options(&options(*place, &places[..before]));
        }
    }

    /// The path's MTU towards the peer, bytes.
    pub fn path_mtu(&self) -> Result<u64, Errno> {
        self.first_udp()?.path_mtu()
    }

    /// Has the error queue tell of a datagram that was too long.
    pub fn note_too_long(&self, place: EngineIndex, destination: SocketAddr) {
        if let Ok(part) = self.at(place) {
            // As above.
            let _ = part.note_too_long(destination);
        }
    }

    /// Joins a group, leaves it, or changes the sources that it is heard from.
    pub fn change_membership(
        &self,
        change: MembershipChange,
        about: &Membership,
    ) -> Result<(), Errno> {
        let interface = attached::networks_of(about.place).scope_id;
        self.at(about.place)?
            .change_membership(change, about.group, about.source, interface)
    }

    /// Whether it is on that engine.
    pub fn is_at(&self, place: EngineIndex) -> bool {
        self.part_at(place).is_some()
    }

    /// Sends one datagram. EAGAIN: the ring is full; NETDOWN: it is not on that engine.
    pub fn send_datagram(
        &self,
        place: EngineIndex,
        outgoing: &Outgoing,
        slices: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        self.at(place)?.sender()?.push(outgoing, slices)
    }

    /// Whether a datagram waits.
    pub fn has_datagram(&self) -> bool {
        self.living_udp().any(|part| part.readable_bytes() > 0)
    }

    /// Whether a datagram for an engine goes at once, or fails.
    pub fn takes_datagrams(&self, place: EngineIndex) -> bool {
        let ends = Readiness::OUT | Readiness::ERR | Readiness::HUP;
        self.at(place)
            .map_or(true, |part| part.readiness().intersects(ends))
    }

    /// All of them, from number `turn` on and then from the first.
    fn from(&self, turn: u32) -> impl Iterator<Item = (&UdpSocket, EngineIndex)> {
        let count = self.udp().len().max(1);
        let first = usize::try_from(turn).unwrap_or(0) % count;
        let all = || self.living_udp().map(AsRef::as_ref);
        let in_turn = all().skip(first).chain(all().take(first));
        in_turn.map(|part: &UdpSocket| (part, attached::place_of(part.session())))
    }

    /// Takes the next datagram, or only looks at it: of engine `first` if it has one, else of all in turn.
    pub fn receive_datagram(
        &self,
        (first, turn): (Option<EngineIndex>, u32),
        slices: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Option<Arrived<Received>>, Errno> {
        let mut take = |part: &UdpSocket| match part.receiver()? {
            Some(mut receiver) => receiver.next(slices, peek),
            None => Ok(None),
        };
        if let [only] = self.udp() {
            return Ok(take(only)?.map(|letter| Arrived {
                letter,
                place: attached::place_of(only.session()),
            }));
        }
        let first = first.and_then(|place| Some((self.part_at(place)?.as_ref(), place)));
        for (part, place) in first.into_iter().chain(self.from(turn)) {
            if let Some(letter) = take(part)? {
                return Ok(Some(Arrived { letter, place }));
            }
        }
        Ok(None)
    }

    /// Looks at what waits in the ring, from a byte offset on (SO_PEEK_OFF); of that engine if it is on several.
    pub fn look_at_datagram(
        &self,
        (first, turn): (Option<EngineIndex>, u32),
        (offset, seen): (u64, &mut u64),
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<Option<Arrived<Received>>, Errno> {
        let first = first.and_then(|place| Some((self.part_at(place)?.as_ref(), place)));
        for (part, place) in first.into_iter().chain(self.from(turn)) {
            let Some(receiver) = part.receiver()? else {
                continue;
            };
            if let Some(letter) = receiver.look_from(offset, seen, slices)? {
                return Ok(Some(Arrived { letter, place }));
            }
        }
        Ok(None)
    }

    /// Takes the oldest entry of the error queue.
    pub fn take_failure(
        &self,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<Option<Arrived<Failure>>, Errno> {
        for (part, place) in self.from(0) {
            if let Some(letter) = part.take_failure(slices)? {
                return Ok(Some(Arrived { letter, place }));
            }
        }
        Ok(None)
    }

    /// The length of the next datagram that `receive_datagram` would take, and where it is.
    pub fn next_datagram_bytes(
        &self,
        (first, turn): (Option<EngineIndex>, u32),
    ) -> Result<Option<(usize, EngineIndex)>, Errno> {
        let first = first.and_then(|place| Some((self.part_at(place)?.as_ref(), place)));
        for (part, place) in first.into_iter().chain(self.from(turn)) {
            if let Some(bytes) = part.next_bytes()? {
                return Ok(Some((bytes, place)));
            }
        }
        Ok(None)
    }

    /// Ends directions.
    pub fn shut_datagrams(&self, read: bool, write: bool) {
        for part in self.living_udp() {
            part.shutdown(read, write);
        }
    }
}
