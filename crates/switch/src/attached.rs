//! The engines of this process: attached to by the first socket that could be accelerated
//! (docs/decisions/0032-several-engines.md).

use core::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use client::engines::{Candidates, EngineIndex, Engines, Flow, Networks};
use client::route::EngineNetworks;
use client::{Session, SocketKinds, TcpSocket, UdpSocket};
use hostif::Transport;
use rustix::io::Errno;

static ENGINES: OnceLock<Option<Engines>> = OnceLock::new();

/// All of them; `None` before `attach`, or where the one inside the program did not start.
pub fn all() -> Option<&'static Engines> {
    ENGINES.get()?.as_ref()
}

/// Attaches the process to its engines, which `make` makes the first time. `Err`: to none of them, and why, the first time only.
pub fn attach(
    make: impl FnOnce() -> Result<(Engines, Option<String>), String>,
) -> Result<(), Option<String>> {
    let mut reason = None;
    let engines = ENGINES.get_or_init(|| match make() {
        Ok((engines, missing)) => {
            reason = missing;
            Some(engines)
        }
        Err(error) => {
            reason = Some(error);
            None
        }
    });
    match engines {
        Some(engines) => engines.attach_again().map_err(|lost| lost.or(reason)),
        None => Err(reason),
    }
}

/// Looks for those that are gone; whoever makes the next socket hears why they are not there.
pub fn attach_again() {
    if let Some(engines) = all() {
        engines.look_for_lost();
    }
}

/// The sessions, by [`EngineIndex`].
pub fn sessions() -> &'static [&'static Session] {
    all().map_or(&[], Engines::sessions)
}

/// The session with an engine.
pub fn session(place: EngineIndex) -> Result<&'static Session, Errno> {
    all().ok_or(Errno::NETDOWN)?.session(place)
}

/// The index of a session's engine.
pub fn place_of(session: &Session) -> EngineIndex {
    all().map_or(EngineIndex::FIRST, |engines| engines.place_of(session))
}

/// What those that serve TCP own, by [`EngineIndex`].
pub fn stream_networks() -> Networks {
    all().map_or_else(|| Arc::new([]), Engines::stream_networks)
}

/// What each of them owns, by [`EngineIndex`].
pub fn networks() -> Networks {
    all().map_or_else(|| Arc::new([]), Engines::networks)
}

/// What one of them owns.
pub fn networks_of(place: EngineIndex) -> Arc<EngineNetworks> {
    let all = all().map(Engines::networks);
    all.and_then(|all| all.get(place.index()).cloned())
        .unwrap_or_default()
}

/// The first that serves TCP.
pub fn first() -> EngineIndex {
    let place = all().and_then(|engines| engines.first_for(SocketKinds::STREAM));
    place.unwrap_or_default()
}

/// What those that serve UDP own, by [`EngineIndex`]; asked for each datagram.
pub fn datagram_networks() -> Networks {
    all().map_or_else(|| Arc::new([]), Engines::datagram_networks)
}

/// Whether this process uses loopback on an engine.
pub fn has_loopback() -> bool {
    stream_networks().iter().any(|one| one.has_loopback)
}

/// Whether a socket of that engine has an end that the kernel may have a socket at too.
pub fn holds(place: EngineIndex, transport: Transport, end: SocketAddr) -> bool {
    session(place).is_ok_and(|session| session.holds(transport, end))
}

/// Whether any of them serves sockets of this kind.
pub fn serve(kind: SocketKinds) -> bool {
    all().is_some_and(|engines| engines.first_for(kind).is_some())
}

/// The sessions with all other engines that serve TCP and are there.
pub fn others(than: EngineIndex) -> Vec<&'static Session> {
    all().map_or_else(Vec::new, |engines| engines.others(than))
}

/// See [`Engines::first_that_opens`].
pub fn first_that_opens<T>(
    candidates: Candidates,
    flow: Flow,
    open: impl FnMut(EngineIndex) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let engines = all().ok_or(Errno::NETDOWN)?;
    engines.first_that_opens(candidates, flow, open)
}

/// See [`Engines::first_that_sends`].
pub fn first_that_sends<T>(
    candidates: Candidates,
    destination: IpAddr,
    send: impl FnMut(EngineIndex) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let engines = all().ok_or(Errno::NETDOWN)?;
    engines.first_that_sends(candidates, destination, send)
}

/// The TCP socket of an engine that a descriptor stands for.
pub fn adopt(backing: BorrowedFd<'_>) -> Result<Option<Arc<TcpSocket>>, Errno> {
    all().map_or(Ok(None), |engines| TcpSocket::adopt(engines, backing))
}

/// The UDP socket of an engine that a descriptor stands for.
pub fn adopt_datagrams(backing: BorrowedFd<'_>) -> Result<Option<Arc<UdpSocket>>, Errno> {
    all().map_or(Ok(None), |engines| UdpSocket::adopt(engines, backing))
}

/// Another program starts, and may inherit the sockets of this process.
pub fn share_all() {
    if let Some(engines) = all() {
        engines.share_all();
    }
}

/// Before fork(2).
pub fn fork_prepare() {
    if let Some(engines) = all() {
        engines.fork_prepare();
    }
}

/// After it, in the parent.
pub fn fork_parent() {
    if let Some(engines) = all() {
        engines.fork_parent();
    }
}

/// After it, in the child.
pub fn fork_child() {
    if let Some(engines) = all() {
        engines.fork_child();
    }
}
