//! The only door to the engine: everything the switch wants from `client`, in the switch's own terms.
//!
//! One session per process, made by the first socket that could be accelerated. The rest of the crate
//! knows streams, phases and sleeps, and nothing of rings and regions.

mod datagram;
mod fast_open;
mod options;
mod sys;

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use client::{Observer, Session, Sharing, ShutdownHow, State, TcpSocket};
use rustix::io::Errno;

use crate::epoll::Watchers;
use crate::readiness::{IN, OUT, PRI, Phase, RDHUP, RDNORM, WRNORM};
use crate::route::{EngineNetworks, Network};
use crate::sleep::{Deadline, SignalMask};

pub use client::{PrivateFd, SharedFile, WriteMode};

/// How long the engine's list of addresses serves before it is asked again.
const NETWORKS_AGE: Duration = Duration::from_secs(5);
/// The same where the addresses are the kernel's, who changes them when it likes.
const SHARED_NETWORKS_AGE: Duration = Duration::from_secs(1);
/// Name of the switch among the observers of a socket.
const OBSERVER: u64 = 0;

static SESSION: OnceLock<Option<&'static Session>> = OnceLock::new();

fn session() -> Option<&'static Session> {
    SESSION.get().copied().flatten()
}

/// Attaches the process to its engine. `Err` says why there is none, the first time only.
pub fn attach() -> Result<(), Option<String>> {
    let mut reason = None;
    let session = SESSION.get_or_init(|| {
        let attached = crate::inline::start().and_then(|()| {
            Session::attach(&client::engine_name()).map_err(|error| error.to_string())
        });
        attached.map_err(|error| reason = Some(error)).ok()
    });
    let session = session.ok_or(reason)?;
    if session.is_dead() {
        static TOLD: AtomicBool = AtomicBool::new(false);
        session
            .attach_again()
            .map_err(|error| (!TOLD.swap(true, Ordering::Relaxed)).then(|| error.to_string()))?;
        TOLD.store(false, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether a number is one of the library's own.
pub fn is_private(fd: RawFd) -> bool {
    client::is_private(fd)
}

/// An engine inside the program is about to close a private number.
pub fn on_private_closed(fd: RawFd) {
    client::unmark(fd);
}

/// No private descriptor has a lower number.
pub fn first_private() -> RawFd {
    client::first_private()
}

/// The engine's addresses; nothing without an engine.
pub fn networks() -> Arc<EngineNetworks> {
    // No mutex: it might be locked by another thread when this one forks.
    static CACHE: ArcSwapOption<(Instant, Arc<EngineNetworks>)> = ArcSwapOption::const_empty();
    let now = Instant::now();
    if let Some(cached) = CACHE.load().as_ref()
        && now.saturating_duration_since(cached.0) < age(&cached.1)
    {
        return Arc::clone(&cached.1);
    }
    let networks = Arc::new(session().and_then(ask_networks).unwrap_or_default());
    CACHE.store(Some(Arc::new((now, Arc::clone(&networks)))));
    networks
}

fn age(networks: &EngineNetworks) -> Duration {
    match networks.sharing {
        Sharing::Owned => NETWORKS_AGE,
        Sharing::Steered | Sharing::Doubled => SHARED_NETWORKS_AGE,
    }
}

fn ask_networks(session: &Session) -> Option<EngineNetworks> {
    let own = session.addresses().ok()?;
    let interfaces = own.addresses.iter().map(|one| Network {
        address: one.address,
        prefix_len: one.prefix_len,
    });
    Some(EngineNetworks {
        interfaces: interfaces.collect(),
        has_gateway_v4: own.gateways.iter().any(IpAddr::is_ipv4),
        has_gateway_v6: own.gateways.iter().any(IpAddr::is_ipv6),
        scope_id: own.scope_id,
        kinds: own.kinds,
        sharing: own.sharing,
        mtu_bytes: own
            .addresses
            .iter()
            .map(|one| usize::try_from(one.mtu_bytes).unwrap_or(usize::MAX))
            .min()
            .unwrap_or(usize::MAX),
    })
}

/// Gives the backing socket of a connection to `remote` a local port, on any address.
pub fn bind_towards(backing: BorrowedFd<'_>, remote: SocketAddr) -> Result<(), Errno> {
    session()
        .ok_or(Errno::NETDOWN)?
        .bind_towards(backing, remote)
}

/// Takes what the engine has reported, without sleeping.
pub fn reap() {
    if let Some(session) = session() {
        session.reap();
    }
}

/// Sleeps until there is `news`, a descriptor of `kernel` is ready, or the deadline is over. `news` is
/// asked again after each event of the `streams`. EINTR after a signal handler ran.
pub fn sleep(
    streams: &[&Stream],
    kernel: &mut [libc::pollfd],
    mask: SignalMask<'_>,
    deadline: Deadline,
    news: &mut dyn FnMut() -> bool,
) -> Result<(), Errno> {
    let deadline = match deadline {
        Deadline::Never => None,
        Deadline::At(moment) => Some(moment),
        Deadline::Now => return crate::sys::poll_now(kernel).map(drop),
    };
    let Some(session) = session() else {
        return Err(Errno::NETDOWN);
    };
    let woken = match streams {
        [stream] => session.wait(&[&stream.socket], kernel, mask, deadline, news),
        _ => {
            let sockets: Vec<&TcpSocket> = streams.iter().map(|one| &*one.socket).collect();
            session.wait(&sockets, kernel, mask, deadline, news)
        }
    };
    woken.map(drop)
}

/// Before fork(2).
pub fn fork_prepare() {
    if let Some(session) = session() {
        session.fork_prepare();
    }
}

/// After it, in the parent.
pub fn fork_parent() {
    if let Some(session) = session() {
        session.fork_parent();
    }
}

/// After it, in the child.
pub fn fork_child() {
    if let Some(session) = session() {
        session.fork_child();
    }
}

/// Which direction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shut {
    /// SHUT_RD.
    Read,
    /// SHUT_WR.
    Write,
    /// SHUT_RDWR.
    Both,
}

/// A connection that a listener accepted.
pub struct Accepted {
    /// The connection.
    pub stream: Arc<Stream>,
    /// Its backing socket, at a high number.
    pub backing: OwnedFd,
    /// The peer.
    pub peer: SocketAddr,
}

/// A socket on the engine.
pub struct Stream {
    socket: Arc<TcpSocket>,
}

impl Stream {
    /// Makes an engine's socket behind the backing socket.
    pub fn open(backing: BorrowedFd<'_>) -> Result<Arc<Stream>, Errno> {
        let socket = session().ok_or(Errno::NETDOWN)?.open(backing)?;
        Ok(Arc::new(Stream { socket }))
    }

    /// As `open`, for a connection from a local port that the backing socket holds.
    pub fn open_towards(
        backing: BorrowedFd<'_>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Arc<Stream>, Errno> {
        let session = session().ok_or(Errno::NETDOWN)?;
        let socket = session.open_towards(backing, local, remote)?;
        Ok(Arc::new(Stream { socket }))
    }

    /// Lets the engine read a file that the program sends from; `None`: it does not.
    pub fn share_file(&self, file: BorrowedFd<'_>) -> Option<SharedFile> {
        self.socket.share_file(file).ok()
    }

    /// Whether the part of the engine that serves this stream has the file.
    pub fn has_file(&self, file: &SharedFile) -> bool {
        file.is_for(&self.socket)
    }

    /// Tells the watchers of every event from now on.
    pub fn observe(&self, watchers: Arc<Watchers>) {
        let bell = Bell {
            watchers,
            socket: Arc::downgrade(&self.socket),
            rx_events: AtomicU32::new(self.socket.rx_events()),
            tx_events: AtomicU32::new(self.socket.tx_events()),
        };
        self.socket.observe(OBSERVER, Arc::new(bell));
    }

    /// Whether the next byte to be read is the urgent one.
    pub fn is_at_mark(&self) -> bool {
        self.socket.is_at_mark()
    }

    /// Receives the urgent byte out of band.
    pub fn try_receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        self.socket.try_recv_urgent(peek)
    }

    /// Bytes that FIONREAD counts.
    pub fn queued_bytes(&self) -> usize {
        self.socket.queued_bytes()
    }

    /// Starts to connect from a local port that the backing socket holds.
    pub fn connect(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), Errno> {
        self.socket.connect(remote, Some(local))
    }

    /// Listens on an address and port that the backing socket holds.
    pub fn listen(
        &self,
        backing: BorrowedFd<'_>,
        local: SocketAddr,
        backlog: i32,
    ) -> Result<(), Errno> {
        self.socket.bind(local)?;
        self.set_backlog(backing, backlog)
    }

    /// Changes the backlog of a listener, or makes one of what is bound.
    pub fn set_backlog(&self, backing: BorrowedFd<'_>, backlog: i32) -> Result<(), Errno> {
        // Linux reads a negative backlog as the largest.
        let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
        self.socket.listen(backing, backlog)
    }

    /// Takes a connection if one waits.
    pub fn try_accept(&self) -> Result<Option<Accepted>, Errno> {
        let Some(accepted) = self.socket.try_accept()? else {
            return Ok(None);
        };
        let stream = Arc::new(Stream {
            socket: accepted.socket,
        });
        Ok(Some(Accepted {
            stream,
            backing: accepted.backing,
            peer: accepted.peer,
        }))
    }

    /// Where the connection stands.
    pub fn phase(&self) -> Phase {
        match self.socket.state() {
            // A stream is made to connect or to listen at once: what has not begun is about to.
            State::Idle | State::Connecting => Phase::Connecting,
            State::Connected => Phase::Connected,
            State::Listening => Phase::Listening,
            State::Closed => Phase::Closed,
        }
    }

    /// Whether a connection waits to be accepted.
    pub fn has_connection(&self) -> bool {
        self.socket.has_connection()
    }

    /// Bytes that wait to be read.
    pub fn readable_bytes(&self) -> usize {
        self.socket.readable_bytes()
    }

    /// The event bits that hold now. Where OUT does not, an event follows when it does.
    pub fn events(&self) -> u32 {
        let bits = self.socket.readiness().bits();
        let twin = |bit, other| if bits & bit != 0 { other } else { 0 };
        bits | twin(IN, RDNORM) | twin(OUT, WRNORM)
    }

    /// Name of the congestion control.
    pub fn congestion(&self) -> Option<&'static str> {
        self.socket.congestion()
    }

    /// Whether the peer's FIN has arrived.
    pub fn fin_received(&self) -> bool {
        self.socket.fin_received()
    }

    /// Whether the peer has acknowledged our FIN, or never will.
    pub fn fin_is_done(&self) -> bool {
        self.socket.fin_is_done()
    }

    /// Whether an error waits to be fetched.
    pub fn has_error(&self) -> bool {
        self.socket.has_error()
    }

    /// Fetches it.
    pub fn take_error(&self) -> Option<Errno> {
        self.socket.take_error()
    }

    /// Receives what is there; 0 is nothing, whatever the reason, and leaves a pending error alone.
    pub fn try_receive(&self, slices: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        if self.socket.readable_bytes() == 0 {
            return Ok(0);
        }
        or_nothing(self.socket.try_recv(slices, peek))
    }

    /// Throws away up to `max` bytes.
    pub fn discard(&self, max: usize) -> Result<usize, Errno> {
        if self.socket.readable_bytes() == 0 {
            return Ok(0);
        }
        or_nothing(self.socket.discard(max))
    }

    /// A call found nothing to receive and will say so: the chance to notice that the engine is gone.
    pub fn on_nothing_received(&self) -> Result<(), Errno> {
        or_nothing(self.socket.try_recv(&mut [], true)).map(drop)
    }

    /// Sends what fits; 0 is a full window.
    pub fn try_send(&self, slices: &[IoSlice<'_>], mode: WriteMode) -> Result<usize, Errno> {
        or_nothing(self.socket.try_send_as(slices, mode))
    }

    /// Reads up to `max` bytes of a file straight into the send window, from `offset` or else from the
    /// file's position. `None` at the end of the file, `Some(0)` for a full window. The window stays
    /// locked while the disk is read, so another sender on this socket waits, as it would in Linux.
    pub fn fill(
        &self,
        file: RawFd,
        offset: Option<u64>,
        max: usize,
    ) -> Result<Option<usize>, Errno> {
        let space = match self.socket.send_space(max) {
            Ok(space) => space,
            Err(Errno::AGAIN) => return Ok(Some(0)),
            Err(error) => return Err(error),
        };
        match sys::read_into(&space, file, offset)? {
            0 => Ok(None),
            bytes => space.commit(bytes).map(Some),
        }
    }

    /// Sends what fits of a shared file from `offset`; 0 is a full window. ESTALE: no longer shared.
    pub fn send_file(&self, file: &SharedFile, offset: u64, max: usize) -> Result<usize, Errno> {
        or_nothing(self.socket.send_file(file, offset, max))
    }

    /// Bytes that fit now, unless somebody else sends them first.
    pub fn send_room(&self) -> usize {
        self.socket.send_room_bytes()
    }

    /// Ends directions.
    pub fn shutdown(&self, how: Shut) -> Result<(), Errno> {
        self.socket.shutdown(match how {
            Shut::Read => ShutdownHow::Read,
            Shut::Write => ShutdownHow::Write,
            Shut::Both => ShutdownHow::Both,
        })
    }

    /// Lets go of the connection as close(2) does.
    pub fn close(&self) {
        self.socket.close();
    }

    /// Ends the connection with RST.
    pub fn abort(&self) {
        self.socket.abort();
    }

    /// The local address, once known.
    pub fn local(&self) -> Option<SocketAddr> {
        self.socket.local_address()
    }

    /// The peer, once known.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.socket.peer_address()
    }

    /// Bytes written and not acknowledged.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.socket.unacknowledged_bytes()
    }
}

fn or_nothing(result: Result<usize, Errno>) -> Result<usize, Errno> {
    match result {
        Err(Errno::AGAIN) => Ok(0),
        result => result,
    }
}

/// Turns the engine's events on one socket into those that epoll knows.
struct Bell {
    watchers: Arc<Watchers>,
    socket: Weak<TcpSocket>,
    rx_events: AtomicU32,
    tx_events: AtomicU32,
}

impl Observer for Bell {
    fn on_ready(&self) {
        let Some(socket) = self.socket.upgrade() else {
            return;
        };
        let news = |seen: &AtomicU32, now: u32| seen.swap(now, Ordering::Relaxed) != now;
        let received = news(&self.rx_events, socket.rx_events());
        let sent = news(&self.tx_events, socket.tx_events());
        let mut changed = 0;
        if received {
            changed |= IN | RDNORM | RDHUP | PRI;
        }
        if sent {
            changed |= OUT | WRNORM;
        }
        // A change of state wakes every interest, as sk_state_change does.
        if changed == 0 || socket.state() == State::Closed {
            changed = u32::MAX;
        }
        self.watchers.notify(changed);
    }
}
