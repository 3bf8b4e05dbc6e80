//! The sockets of the engines behind one of the program's. It is one; of a UDP socket that several engines serve it is
//! one on each (docs/decisions/0032-several-engines.md), and what they have adds up. One whose engine is gone counts no
//! more, unless it is the last.

use std::sync::Arc;

use client::engines::EngineIndex;
use client::{Readiness, Socket, TcpSocket, UdpSocket};
use rustix::io::Errno;

use super::{Sockets, Stream};
use crate::attached;
use crate::readiness::{IN, OUT, RDNORM, WRNORM};

impl Stream {
    /// A UDP socket of these, of which there is at least one.
    pub(super) fn of(sockets: Vec<Arc<UdpSocket>>) -> Stream {
        Stream {
            sockets: Sockets::Udp(sockets.into()),
        }
    }

    /// These sockets as one; `None`: there is none.
    pub fn together(parts: &[Arc<Stream>]) -> Option<Arc<Stream>> {
        let sockets: Vec<_> = parts.iter().flat_map(|part| part.udp().to_vec()).collect();
        (!sockets.is_empty()).then(|| Arc::new(Stream::of(sockets)))
    }

    /// The same sockets, with those of `part`.
    pub fn with(&self, part: &Stream) -> Arc<Stream> {
        // They stand in the order of their engines: so `together` gets them, and so it stays.
        let place = |one: &Arc<UdpSocket>| attached::place_of(one.session()).index();
        let mut living: Vec<_> = self.living_udp().map(Arc::clone).collect();
        if let Some(new) = part.udp().first() {
            let at = living.partition_point(|one| place(one) <= place(new));
            living.insert(at, Arc::clone(new));
        }
        Arc::new(Stream::of(living))
    }

    /// The socket on one engine alone, if that is there.
    pub fn only(&self, place: EngineIndex) -> Option<Arc<Stream>> {
        let part = self.part_at(place).filter(|part| !part.is_reset())?;
        Some(Arc::new(Stream::of(vec![Arc::clone(part)])))
    }

    /// The first of them.
    pub fn first(&self) -> &dyn Socket {
        match &self.sockets {
            Sockets::Tcp(socket) => &**socket,
            Sockets::Udp(sockets) => &*sockets[0],
        }
    }

    /// All of them, living or not.
    pub fn parts(&self) -> impl Iterator<Item = &dyn Socket> {
        let tcp = self.tcp().ok().map(|socket| socket as &dyn Socket);
        let udp = self.udp().iter().map(|socket| &**socket as &dyn Socket);
        tcp.into_iter().chain(udp)
    }

    /// Of a UDP socket those whose engines are there; if none is, the first.
    pub(super) fn living_udp(&self) -> impl Iterator<Item = &Arc<UdpSocket>> {
        let all = self.udp();
        let is_alone = all.len() < 2 || all.iter().all(|one| one.is_reset());
        let counts = move |(index, one): &(usize, &Arc<UdpSocket>)| {
            if is_alone {
                *index == 0
            } else {
                !one.is_reset()
            }
        };
        all.iter().enumerate().filter(counts).map(|(_, one)| one)
    }

    /// Those whose engines are there; if none is, the first.
    fn living(&self) -> impl Iterator<Item = &dyn Socket> {
        let tcp = self.tcp().ok().map(|socket| socket as &dyn Socket);
        let udp = self.living_udp().map(|socket| &**socket as &dyn Socket);
        tcp.into_iter().chain(udp)
    }

    /// Whether the engine of one of them is gone.
    pub fn has_lost_part(&self) -> bool {
        self.parts().any(|part| part.core().is_reset())
    }

    /// The socket on an engine.
    pub(super) fn part_at(&self, place: EngineIndex) -> Option<&Arc<UdpSocket>> {
        self.living_udp()
            .find(|one| attached::place_of(one.session()) == place)
    }

    /// The engines that it is on, in the order of their priority.
    pub fn places(&self) -> Vec<EngineIndex> {
        let sessions = self.living().map(|one| one.core().session());
        sessions.map(attached::place_of).collect()
    }

    /// The engines that are gone, and whether all of them are there again.
    pub fn lost_places(&self) -> (Vec<EngineIndex>, bool) {
        let lost = || {
            let parts = self.parts().map(Socket::core);
            parts
                .filter(|core| core.is_reset())
                .map(|core| core.session())
        };
        let are_there = !lost().any(|session| session.is_dead());
        (lost().map(attached::place_of).collect(), are_there)
    }

    /// All of them, with references of their own.
    pub fn sockets(&self) -> Vec<Arc<dyn Socket>> {
        match &self.sockets {
            Sockets::Tcp(socket) => vec![Arc::<TcpSocket>::clone(socket)],
            Sockets::Udp(sockets) => sockets.iter().map(|one| Arc::clone(one) as _).collect(),
        }
    }

    /// The event bits that hold now. Where OUT does not, an event follows when it does.
    pub fn events(&self) -> u32 {
        if self.is_lost_listener() {
            return 0;
        }
        let ready = if self.is_single() {
            self.first().readiness()
        } else {
            of_all(self.living().map(|one| one.readiness()))
        };
        let bits = ready.bits();
        let twin = |bit, other| if bits & bit != 0 { other } else { 0 };
        bits | twin(IN, RDNORM) | twin(OUT, WRNORM)
    }

    /// Whether an error waits to be fetched.
    pub fn has_error(&self) -> bool {
        !self.is_lost_listener() && self.living().any(|one| one.has_error())
    }

    /// Takes the pending error.
    pub fn take_error(&self) -> Option<Errno> {
        if self.is_lost_listener() {
            return None;
        }
        self.living().find_map(|one| one.take_error())
    }

    /// Whether another thread has closed it.
    pub fn is_closed(&self) -> bool {
        self.living().any(|one| one.core().is_closed())
    }

    /// Bytes written and not acknowledged.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.living()
            .map(|one| one.core().unacknowledged_bytes())
            .sum()
    }

    /// The number of events that made it readable. Wraps around.
    pub fn rx_events(&self) -> u32 {
        let all = self.living().map(|one| one.rx_events());
        all.fold(0, u32::wrapping_add)
    }

    /// A look has found nothing: a program that looks again and again without ever waiting runs an engine inside it, too.
    pub fn on_idle_look(&self) {
        self.living().for_each(|one| one.core().on_idle_call());
    }

    /// The same of a call that receives datagrams.
    pub fn on_idle_receive(&self) {
        match self.only_udp() {
            Some(only) => only.on_idle_receive(),
            None => self.on_idle_look(),
        }
    }

    /// The UDP socket, where it is on one engine alone.
    pub fn only_udp(&self) -> Option<&UdpSocket> {
        match self.udp() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// A descriptor of it is about to leave in a message.
    pub fn share(&self) {
        self.parts().for_each(Socket::share);
    }

    /// Drops this process's hold as close(2) does.
    pub fn close(&self) {
        self.parts().for_each(Socket::close);
    }

    /// As `close`, of the sockets that are not the other's too.
    pub fn close_but(&self, other: &Stream) {
        let is_others = |part: &dyn Socket| {
            let mut others = other.parts().map(Socket::core);
            others.any(|one| std::ptr::eq(one, part.core()))
        };
        let gone = self.parts().filter(|part| !is_others(*part));
        gone.for_each(Socket::close);
    }
}

/// A datagram may be for any of them: one that has no room makes a sender wait.
fn of_all(parts: impl Iterator<Item = Readiness>) -> Readiness {
    let (mut any, mut has_capacity) = (Readiness::empty(), true);
    for ready in parts {
        any |= ready;
        has_capacity &= ready.contains(Readiness::OUT);
    }
    any.set(Readiness::OUT, has_capacity);
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_has_is_there_and_room_is_there_if_all_have_it() {
        let all = |parts: &[Readiness]| of_all(parts.iter().copied());
        let (readable, writable) = (Readiness::IN, Readiness::OUT);
        assert_eq!(all(&[writable, writable]), writable);
        assert_eq!(all(&[readable | writable, writable]), readable | writable);
        assert_eq!(
            all(&[writable, readable | Readiness::ERR]),
            readable | Readiness::ERR
        );
    }
}
