//! A TCP socket of the program: undecided, on an engine, or left to the kernel (DESIGN §4).
//!
//! The decision falls late: at bind to a specific address, at listen, or at connect. Until then every
//! call goes to the backing socket, whose answers are by definition the kernel's. A socket whose
//! connect failed is undecided again, as Linux allows another connect.

pub(crate) mod corked;
mod datagram;
pub(crate) mod last_arrival;
mod peek;
mod settings;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

use corked::Corked;
use last_arrival::LastArrival;

use crate::calls::error_queue::Completions;
use crate::calls::options::Answer;
use crate::calls::stamping::Stamping;
use crate::epoll::Watchers;
use crate::sys;
use crate::wait::sleeping;
use client::address::Family;
use client::engines::AllNetworks;
use client::route;
use client::{Heard, Loaded, Shared};
use switch::bind::Bound;
use switch::device::{self, Chosen, Device, SO_BINDTOIFINDEX};
use switch::groups::Membership;
use switch::options::Log;
use switch::readiness::{ERR, HUP, IN, OUT, Phase, RDHUP, RDNORM, WRBAND, WRNORM};
use switch::stream::Stream;

pub use client::engines::EngineIndex;
pub use client::route::Owner;
pub use datagram::NoFragments;
pub use settings::AT_ONCE_US;

/// The program left the socket to the kernel for good.
const KERNEL: u32 = 1;
/// The backing socket listens too and its connections are the program's.
const KERNEL_LISTENS: u32 = 1 << 1;
/// Among the marks of a stream, which all of its holders see: O_NONBLOCK of a listener with [`KERNEL_LISTENS`], whose
/// backing socket is always non-blocking.
const NONBLOCKING: u32 = 1;

/// shutdown(SHUT_RD) was called.
const RECEIVE_SHUT: u32 = 1 << 3;
/// shutdown(SHUT_WR) was called.
const SEND_SHUT: u32 = 1 << 4;
/// connect has reported success (Linux: SS_CONNECTED): the next one is EISCONN.
const CONNECT_REPORTED: u32 = 1 << 5;
/// The last accept took from the engine: the kernel's queue comes first next time.
const KERNEL_FIRST: u32 = 1 << 6;
/// TCP_SAVED_SYN has been fetched: a second time there is nothing (tcp(7)).
const SYN_TAKEN: u32 = 1 << 7;
/// Signals may be sent for events (`calls::sigio`).
const SIGNALLED: u32 = 1 << 8;
/// The program has undone a connection: its stream tells an error only, and another connect may replace it.
const SPENT: u32 = 1 << 9;
/// The backing socket was made here and not given a name since.
const UNNAMED: u32 = 1 << 10;
/// Of an accepted connection: the backing socket has not been given what it has from its listener.
const OWES_OPTIONS: u32 = 1 << 11;

/// In place of a number of departures: another process has the open file, or had it before this one.
const SHARED: u32 = u32::MAX;

/// The state of one socket. Calls on data touch atomics only.
pub struct Socket {
    family: Family,
    flags: AtomicU32,
    /// How often this process's files had become another's when it was made, or [`SHARED`].
    made_after: AtomicU32,
    /// What is known of O_NONBLOCK: [`KNOWN_OFF`], [`KNOWN_ON`] or neither, and in the bits above, how often that has changed.
    known_blocking: AtomicU32,
    /// SO_RCVLOWAT.
    receive_low_water: AtomicU32,
    /// SO_RCVBUF.
    receive_limit: AtomicU32,
    /// SO_PEEK_OFF; below 0: off.
    peek_offset: AtomicI32,
    /// Of a UDP socket's ring, where what was looked at with SO_PEEK_OFF ends.
    peeked_end: AtomicU64,
    /// SO_RCVTIMEO in µs, or [`AT_ONCE_US`]; 0 is none.
    receive_timeout_us: AtomicU64,
    /// SO_SNDTIMEO in µs, or [`AT_ONCE_US`]; 0 is none.
    send_timeout_us: AtomicU64,
    bound: Shared<Bound>,
    stream: Shared<Stream>,
    /// It is a UDP socket.
    is_datagram: bool,
    /// What a program asks for with each datagram (`client::datagram_messages::want`).
    wanted: AtomicU32,
    /// UDP_SEGMENT.
    segment_bytes: AtomicU32,
    /// Receiving calls so far.
    receives: AtomicU32,
    /// The stack whose datagram a call has peeked at: the next call takes that one.
    pub looked_at: Chosen,
    /// Of a UDP socket, whose interface it is bound to (SO_BINDTODEVICE).
    pub bound_device: Chosen,
    /// Of a UDP socket on several stacks: by which it has heard from whom.
    pub heard: Heard,
    /// When the datagram that it received last arrived.
    pub last_arrival: LastArrival,
    /// Whose interface IP_MULTICAST_IF and IPV6_MULTICAST_IF name.
    multicast: [Chosen; 2],
    /// Groups that it is in on the engine, or will be.
    memberships: Shared<Vec<Membership>>,
    /// The datagram that is being put together.
    corked: Shared<Corked>,
    /// Options that the program has set.
    pub log: Log,
    /// What waits on the error queue of a TCP socket.
    pub completions: Completions,
    /// SO_TIMESTAMPING of what it sends.
    pub stamping: Stamping,
    /// The epoll interests in this socket.
    pub watchers: Arc<Watchers>,
}

impl Default for Socket {
    fn default() -> Self {
        Self {
            family: Family::V4,
            flags: AtomicU32::new(0),
            made_after: AtomicU32::new(crate::process::departures()),
            known_blocking: AtomicU32::new(0),
            receive_low_water: AtomicU32::new(1),
            receive_limit: AtomicU32::new(u32::MAX),
            peek_offset: AtomicI32::new(-1),
            peeked_end: AtomicU64::new(0),
            receive_timeout_us: AtomicU64::new(0),
            send_timeout_us: AtomicU64::new(0),
            bound: Shared::empty(),
            stream: Shared::empty(),
            is_datagram: false,
            wanted: AtomicU32::new(0),
            segment_bytes: AtomicU32::new(0),
            receives: AtomicU32::new(0),
            looked_at: Chosen::none(),
            bound_device: Chosen::none(),
            heard: Heard::default(),
            last_arrival: LastArrival::default(),
            multicast: [Chosen::none(), Chosen::none()],
            memberships: Shared::empty(),
            corked: Shared::empty(),
            log: Log::default(),
            completions: Completions::default(),
            stamping: Stamping::default(),
            watchers: Arc::default(),
        }
    }
}

impl Socket {
    /// A socket that nothing was done with.
    pub fn new(family: Family) -> Socket {
        Socket {
            family,
            ..Socket::default()
        }
    }

    /// Its family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether signals may be sent for events.
    pub fn is_signalled(&self) -> bool {
        self.has(SIGNALLED)
    }

    /// The program has set who gets signals (F_SETOWN).
    pub fn set_signalled(&self) {
        self.set(SIGNALLED, true);
    }

    /// A connection that a listener accepted: it has the listener's options, as tcp(7) says.
    pub fn accepted(listener: &Socket, stream: Arc<Stream>) -> Socket {
        let socket = Socket::new(listener.family);
        socket
            .receive_low_water
            .store(listener.low_water(), Ordering::Relaxed);
        let limit = listener.receive_limit.load(Ordering::Relaxed);
        socket.receive_limit.store(limit, Ordering::Relaxed);
        socket.set_peek_offset(listener.peek_offset());
        socket.set_wanted(listener.wanted(), true);
        socket.stamping.adopt(&listener.stamping);
        let copy = |from: &AtomicU64, to: &AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&listener.receive_timeout_us, &socket.receive_timeout_us);
        copy(&listener.send_timeout_us, &socket.send_timeout_us);
        socket.log.adopt(&listener.log);
        socket.set(CONNECT_REPORTED | OWES_OPTIONS, true);
        socket.stream.store(Some(stream));
        socket
    }

    /// What came from another program with the descriptor.
    pub fn inherited(family: Family, stream: Arc<Stream>) -> Socket {
        let socket = Socket::new(family);
        let phase = stream.phase();
        let (receive, send) = stream.shut();
        socket.set_shut(receive, send);
        socket.set(
            CONNECT_REPORTED,
            matches!(phase, Phase::Connected | Phase::Closed),
        );
        let local = stream.local();
        let is_on_any = local.is_some_and(|local| route::is_loopback(local.ip()));
        socket.set(KERNEL_LISTENS, phase == Phase::Listening && is_on_any);
        socket.stream.store(Some(stream));
        socket
    }

    /// Whether it is on this stream.
    pub fn is_on(&self, stream: &Stream) -> bool {
        let own = self.borrow_stream();
        own.as_ref().is_some_and(|own| own.is(stream))
    }

    fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    fn set(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// Whether the socket was left to the kernel.
    pub fn is_kernel(&self) -> bool {
        self.has(KERNEL)
    }

    /// Leaves the socket to the kernel for good.
    pub fn leave_to_kernel(&self) {
        self.set(KERNEL, true);
        self.watchers.left_to_kernel();
    }

    /// The engine's side of it, once decided.
    pub fn stream(&self) -> Option<Arc<Stream>> {
        self.stream.load_full()
    }

    /// As [`Self::stream`], without touching the reference count; for calls that do not sleep.
    pub fn borrow_stream(&self) -> Loaded<'_, Stream> {
        self.stream.load()
    }

    /// The program has undone its connection (Linux `tcp_disconnect`): the next calls are told an error, and the
    /// socket may have another one.
    pub fn spend(&self, stream: &Stream) {
        stream.abort();
        self.set(SPENT, true);
        self.watchers.notify(u32::MAX);
    }

    /// Whether the connection was undone.
    pub fn is_spent(&self) -> bool {
        self.has(SPENT)
    }

    /// Forgets a connection that was undone, before the next connect or listen.
    pub fn shed(&self) {
        if self.is_spent() {
            self.undecide();
        }
    }

    /// The engine serves it from now on, together with the kernel if that has connections for it too. What it had on engines
    /// before and has no more is closed.
    pub fn decide(&self, stream: Arc<Stream>) {
        if self.is_datagram && (self.receive_shut() || self.send_shut()) {
            stream.shut_datagrams(self.receive_shut(), self.send_shut());
        }
        if !self.watchers.is_empty() {
            // What has happened so far is told once, by the move. Reports of it that come later would be a
            // second edge.
            sleeping::reap();
            crate::epoll::observe(&stream, &self.watchers);
        }
        if let Some(before) = self.stream.swap(Some(Arc::clone(&stream))) {
            before.close_but(&stream);
        }
        if self.is_on_both() {
            self.watchers.moved_to_both();
        } else {
            self.watchers.moved_to_engine();
        }
    }

    /// A connect failed or was undone: the program may try another destination, on any stack.
    pub fn undecide(&self) {
        if let Some(stream) = self.stream.swap(None) {
            // What a UDP socket has shut stays so, whatever its peer is.
            let shut = if self.is_datagram {
                0
            } else {
                RECEIVE_SHUT | SEND_SHUT
            };
            let gone = shut | SPENT | CONNECT_REPORTED | datagram::KERNEL_RECEIVES;
            self.flags.fetch_and(!gone, Ordering::Relaxed);
            self.watchers.moved_to_kernel();
            stream.close();
        }
    }

    /// The backing socket is new.
    pub fn set_unnamed(&self) {
        self.set(UNNAMED, true);
    }

    /// Whether it is known to have no name: nobody else has had it, and nothing that gives it one was called before. From now
    /// on it is not known.
    pub fn take_unnamed(&self) -> bool {
        let was_unnamed = self.flags.fetch_and(!UNNAMED, Ordering::Relaxed) & UNNAMED != 0;
        was_unnamed && !self.is_shared()
    }

    /// Where it is bound, if the program bound it.
    pub fn bound(&self) -> Option<Bound> {
        self.bound.load().as_deref().copied()
    }

    /// Whose interface it is bound to, if the program has set that.
    pub fn device(&self, fd: RawFd, all: &AllNetworks) -> Device {
        let is_set = |name| self.log.has(libc::SOL_SOCKET, name);
        match is_set(libc::SO_BINDTODEVICE) || is_set(SO_BINDTOIFINDEX) {
            true => device::of(fd, all),
            false => Device::Any,
        }
    }

    /// Remembers a bind.
    pub fn set_bound(&self, bound: Bound) {
        self.bound.store(Some(Arc::new(bound)));
    }

    /// Forgets it: the kernel has taken the port back.
    pub fn forget_bound(&self) {
        self.bound.store(None);
    }

    /// Whether the kernel has a part in it besides the engine.
    pub fn is_on_both(&self) -> bool {
        self.has(KERNEL_LISTENS | datagram::KERNEL_RECEIVES)
    }

    /// Whether connections arrive on the backing socket too.
    pub fn kernel_listens(&self) -> bool {
        self.has(KERNEL_LISTENS)
    }

    /// Connections arrive on the backing socket too; it becomes non-blocking, so that an accept never
    /// sleeps in the kernel, deaf to the engine, after another process took the connection.
    pub fn set_kernel_listens(&self, fd: RawFd, stream: &Stream) -> Result<(), Errno> {
        let backing = sys::borrow(fd)?;
        let flags = rustix::fs::fcntl_getfl(backing)?;
        stream.mark(NONBLOCKING, flags.contains(OFlags::NONBLOCK));
        rustix::fs::fcntl_setfl(backing, flags | OFlags::NONBLOCK)?;
        self.set(KERNEL_LISTENS, true);
        Ok(())
    }

    /// The listener of `stream` has stopped: it may listen again, or connect. Its O_NONBLOCK is the program's again.
    pub fn stop_listening(&self, fd: RawFd, stream: &Stream) -> Result<(), Errno> {
        self.hide_nonblocking(fd, stream, false)?;
        self.set(KERNEL_LISTENS, false);
        self.undecide();
        Ok(())
    }

    /// Whether O_NONBLOCK of the backing socket is set whatever the program has set, where the kernel listens on it too.
    pub fn hide_nonblocking(&self, fd: RawFd, stream: &Stream, on: bool) -> Result<(), Errno> {
        if self.kernel_listens() {
            let backing = sys::borrow(fd)?;
            let mut flags = rustix::fs::fcntl_getfl(backing)?;
            flags.set(OFlags::NONBLOCK, on || stream.is_marked(NONBLOCKING));
            rustix::fs::fcntl_setfl(backing, flags)?;
        }
        Ok(())
    }

    /// Whether the kernel's queue of connections comes first this time; alternates.
    pub fn kernel_accepts_first(&self) -> bool {
        self.flags.fetch_xor(KERNEL_FIRST, Ordering::Relaxed) & KERNEL_FIRST != 0
    }

    /// Whether shutdown(SHUT_RD) was called.
    pub fn receive_shut(&self) -> bool {
        self.has(RECEIVE_SHUT)
    }

    /// Whether shutdown(SHUT_WR) was called.
    pub fn send_shut(&self) -> bool {
        self.has(SEND_SHUT)
    }

    /// Whether a call that receives waits for as long as it takes, and for nothing but bytes.
    #[inline]
    pub fn receives_plainly(&self) -> bool {
        const UNUSUAL: u32 = RECEIVE_SHUT | SPENT | SIGNALLED | KERNEL_LISTENS;
        let is_usual = self.flags.load(Ordering::Relaxed) & UNUSUAL == 0;
        is_usual && self.low_water() <= 1 && self.receive_timeout().is_none()
    }

    /// Remembers a shutdown.
    pub fn set_shut(&self, receive: bool, send: bool) {
        let flags = if receive { RECEIVE_SHUT } else { 0 } | if send { SEND_SHUT } else { 0 };
        self.set(flags, true);
    }

    /// Whether connect has reported success.
    pub fn was_connected(&self) -> bool {
        self.has(CONNECT_REPORTED)
    }

    /// Whether connect has already reported success, and notes that it has now.
    pub fn report_connected(&self) -> bool {
        self.flags.fetch_or(CONNECT_REPORTED, Ordering::Relaxed) & CONNECT_REPORTED != 0
    }

    /// TCP_SAVED_SYN: once, then nothing. A place that is too small leaves it there (tcp(7)).
    pub fn take_saved_syn(&self, stream: &Stream, room: usize) -> Result<Answer, Errno> {
        let saved = if self.has(SYN_TAKEN) {
            Vec::new()
        } else {
            stream.saved_syn()?
        };
        if saved.len() > room {
            return Ok(Answer::Needs(saved.len()));
        }
        self.set(SYN_TAKEN, true);
        Ok(Answer::Value(saved))
    }

    /// The event bits that hold now.
    pub fn events(&self, stream: &Stream) -> u32 {
        let mut events = stream.events();
        if self.is_datagram {
            // `datagram_poll` says all three.
            return events | if events & OUT != 0 { WRBAND } else { 0 };
        }
        if self.completions.wait() || self.stamping.is_used() && stream.waiting_stamps() > 0 {
            events |= ERR;
        }
        if self.is_spent() {
            return events & ERR | OUT | WRNORM | HUP;
        }
        // Fewer bytes than SO_RCVLOWAT are not news, unless no more will come (tcp_poll).
        let too_few = self.low_water() > 1
            && events & RDHUP == 0
            && stream.phase() == Phase::Connected
            && stream.readable_bytes() < self.low_water_of(stream);
        if too_few {
            events & !(IN | RDNORM)
        } else {
            events
        }
    }

    /// SO_RCVLOWAT, but for a window that is half full: it may not become fuller, as the peer waits for more room.
    fn low_water_of(&self, stream: &Stream) -> usize {
        let most = stream
            .receive_window_bytes()
            .min(self.receive_limit.load(Ordering::Relaxed))
            / 2;
        usize::try_from(self.low_water().min(most)).unwrap_or(usize::MAX)
    }

    /// The last reference is gone.
    pub fn release(&self) {
        self.watchers.clear();
        if let Some(stream) = self.stream.swap(None) {
            stream.close();
        }
    }
}
