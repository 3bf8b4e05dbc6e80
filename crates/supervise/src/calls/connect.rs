//! bind(2) and connect(2): the last moment to decide which stack a socket is on. Until then it is the program's
//! own kernel socket and nothing of it is remembered here. Then, if an engine serves it, the kernel's socket
//! becomes the backing socket and the program's number shows one end of a pair.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use client::TcpSocket;
use client::address::{self, Family, Name};
use client::engines::Engines;
use client::route::{self, Owner};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::caller::{Caller, FIRST_UNPRIVILEGED_PORT};
use crate::datagram::message;
use crate::options::{self, Settings};
use crate::pair::{Pair, is_nonblocking};
use crate::relay::{Phase, Relay};
use crate::signals::Signals;
use crate::stopped_call::{Call, Outcome, Waiting, low_half};
use crate::supervisor::{Served, Supervisor};
use crate::sys::{self, TargetFd};
use crate::unheard;
use switch::backing::{bind_freely, family_of_tcp, family_of_udp, local_of, set_freebind};
use switch::bind::Local;
use switch::connect::{LocalEnd, PORT_RANGE, Request, Towards};
use switch::device;

/// Longest address that is read.
const NAME_MAX: usize = 128;
/// AF_UNSPEC, with which a name begins that is none.
const UNSPECIFIED: [u8; 2] = [0; 2];

impl Supervisor {
    /// bind(2): an address of the engine's is foreign to the kernel, which takes it all the same when told.
    pub fn bind(&mut self, call: &Call) -> Result<Outcome, Errno> {
        if let Some(bound) = self.bind_again(call) {
            return bound;
        }
        let Some((name, fd, family)) = named_or_served(call) else {
            return Ok(Outcome::Continue);
        };
        let udp = family_of_udp(fd.as_fd());
        if let Some(family) = udp
            && let Ok(Name::Ip(address)) = address::parse(&name, family)
        {
            return self.bind_datagrams(call, (fd, family), address);
        }
        let Some(family) = family else {
            return Ok(Outcome::Continue);
        };
        let Ok(Name::Ip(address)) = address::parse(&name, family) else {
            return Ok(Outcome::Continue);
        };
        if address.ip().is_unspecified() || address.ip().is_loopback() {
            return Ok(Outcome::Continue);
        }
        let Some(engines) = self.engine_access.open(call.caller)? else {
            return Ok(Outcome::Continue);
        };
        // Of what is bound already the kernel says so.
        let is_refused = self.engine_access.is_engine_only() && local_of(fd.as_fd())?.port() == 0;
        match switch::bind::owner(address.ip(), is_refused, &engines.stream_networks())? {
            Some((Owner::Engine, _)) => {}
            Some((Owner::Any, _)) | None => return Ok(Outcome::Continue),
        }
        if (1..FIRST_UNPRIVILEGED_PORT).contains(&address.port()) {
            // Whether the program may have such a port is between it and the kernel.
            set_freebind(fd.as_fd(), family, true)?;
            return Ok(Outcome::Continue);
        }
        bind_freely(fd.as_fd(), address, family).map(|()| Outcome::Return(0))
    }

    /// connect(2).
    pub fn connect(&mut self, call: &Call) -> Result<Outcome, Errno> {
        let Some((name, fd, family)) = named_or_served(call) else {
            return Ok(Outcome::Continue);
        };
        let cookie = sys::cookie(&fd)?;
        let key = self.undelivered.get(&cookie).copied().unwrap_or(cookie);
        match self.served.get(&key) {
            Some(Served::Queue(_)) => {
                if name.first_chunk() == Some(&UNSPECIFIED) {
                    // It listens no more, and the kernel's socket is as it was.
                    self.give_back(call, fd.as_fd(), key)?;
                    return Ok(Outcome::Continue);
                }
                return Err(Errno::ISCONN);
            }
            Some(Served::Relay(_)) if name.first_chunk() == Some(&UNSPECIFIED) => {
                self.undo_connection(call, fd.as_fd(), key)?;
                return Ok(Outcome::Continue);
            }
            Some(Served::Relay(_)) => {
                let told = self.tell_again(call, key);
                return told.unwrap_or_else(|| self.connect_again(call, &fd, key));
            }
            Some(Served::Datagrams(_)) => return self.connect_datagrams(call, (fd, key), &name),
            None if family_of_udp(fd.as_fd()).is_some() => {
                return self.connect_datagrams(call, (fd, key), &name);
            }
            None => {}
        }
        let Some(family) = family else {
            return Ok(Outcome::Continue);
        };
        let Ok(Name::Ip(destination)) = address::parse(&name, family) else {
            return Ok(Outcome::Continue);
        };
        let is_local = route::is_loopback(destination.ip());
        // Asked first: a program whose peers are all on this host never needs an engine, unless it wants loopback there.
        if is_local && !self.engine_access.has_loopback() {
            return Ok(Outcome::Continue);
        }
        if family == Family::V6 && destination.is_ipv4() && sockopt::ipv6_v6only(&fd)? {
            return Ok(Outcome::Continue); // The kernel says why not.
        }
        let Some(engines) = self.engine_access.open(call.caller)? else {
            return Ok(Outcome::Continue);
        };
        let request = self.request(fd.as_fd(), destination, engines)?;
        match request.decide(engines)? {
            Some(towards) => self.begin(call, engines, &towards, fd),
            None => Ok(Outcome::Continue),
        }
    }

    /// What decides which stack a connect of the socket goes to.
    fn request(
        &self,
        fd: BorrowedFd<'_>,
        destination: SocketAddr,
        engines: &Engines,
    ) -> Result<Request, Errno> {
        let all = engines.stream_networks();
        Ok(Request {
            destination,
            local: Local::of(local_of(fd)?, &all),
            device: device::of(fd, &all),
            is_engine_only: self.engine_access.is_engine_only(),
        })
    }

    /// A sending call with MSG_FASTOPEN, which connects: EOPNOTSUPP where an engine carries the connection, as of a kernel
    /// whose `net.ipv4.tcp_fastopen` lacks it. Programs connect and send then.
    pub fn refuse_fast_open(
        &mut self,
        call: &Call,
        number: i64,
        fd: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let is_fast = message::sends(number)
            && message::flags(call, number) & libc::MSG_FASTOPEN != 0
            && message::count(call, number) > 0;
        let Some(family) = family_of_tcp(fd).filter(|_| is_fast) else {
            return Ok(());
        };
        let name = message::MessageLayout::of(call, number, 0)
            .and_then(|place| place.read_name(call.caller));
        let Ok(Name::Ip(destination)) = name.and_then(|name| address::parse(&name, family)) else {
            return Ok(());
        };
        let is_local = route::is_loopback(destination.ip());
        if is_local && !self.engine_access.has_loopback() {
            return Ok(());
        }
        let Some(engines) = self.engine_access.open(call.caller)? else {
            return Ok(());
        };
        let request = self.request(fd, destination, engines)?;
        match request.towards(&engines.stream_networks())? {
            Some(_) => Err(Errno::OPNOTSUPP),
            None => Ok(()),
        }
    }

    fn begin(
        &mut self,
        call: &Call,
        engines: &'static Engines,
        towards: &Towards,
        backing: OwnedFd,
    ) -> Result<Outcome, Errno> {
        let settings = Settings::of(backing.as_fd())?;
        let mut v6_only = [0; 4];
        let (level, name) = options::V6_ONLY;
        let is_v6 = switch::backing::option(backing.as_fd(), level, name, &mut v6_only).is_ok();
        let begin = |socket: Arc<TcpSocket>, local| {
            settings.tell(&socket);
            towards.connect(&socket, local)?;
            Ok(socket)
        };
        let mut range = [0; 4];
        let (level, name) = PORT_RANGE;
        let asked = switch::backing::option(backing.as_fd(), level, name, &mut range);
        let from = LocalEnd {
            backing: backing.as_fd(),
            local: None,
            has_range: asked.is_ok() && range != [0; 4],
        };
        let socket = match towards.open(engines, &from, begin) {
            Err(error) if towards.is_for_the_kernel(error) => return Ok(Outcome::Continue),
            opened => opened?,
        };
        let nonblocking = is_nonblocking(backing.as_fd());
        let pair = Pair::new(nonblocking)?;
        settings.set_on_descriptor(pair.programs.as_fd());
        let key = pair.cookie;
        // Whoever waits in connect cannot write meanwhile.
        let signals = Signals::of(backing.as_fd()).filter(|signals| signals.is_async());
        let stuffed = match signals {
            _ if !nonblocking => 0,
            Some(signals) => {
                // Before it is stuffed: only then the kernel sends a signal when the full pair becomes writable.
                let _ = signals.set_on(pair.programs.as_fd(), call.fd);
                pair.stuff_fully()?
            }
            None => pair.stuff()?,
        };
        self.watch(pair.ours.as_fd(), key)?;
        let bell = self.news.listen_to(&*socket, key);
        bell.ring();
        let backing_cookie = sys::cookie(&backing)?;
        let phase = Phase::Connecting { stuffed };
        let mut relay = Relay::new(socket, backing, pair, phase, (call.caller, call.fd), bell);
        relay.v6_only = is_v6.then_some(v6_only);
        let outcome = if nonblocking {
            match self.deliver(&mut relay, call.id, call.fd) {
                // A signal took the call back. It comes again, and the connection is there already (`tell_again`).
                Err(Errno::NOENT | Errno::SRCH) => {
                    self.undelivered.insert(backing_cookie, key);
                }
                delivered => delivered?,
            }
            // However fast the answer comes: Linux holds the socket during the call and sees it afterwards.
            Err(Errno::INPROGRESS)
        } else {
            relay.waiting.push(waiting(call, &relay, Errno::INPROGRESS));
            self.waited_for.insert(key);
            self.undelivered.insert(backing_cookie, key);
            Ok(Outcome::Later)
        };
        self.served.insert(key, Served::Relay(Box::new(relay)));
        self.connecting.push(key);
        outcome
    }

    /// Puts the program's end of the pair in place of its kernel socket.
    fn deliver(&mut self, relay: &mut Relay, id: u64, fd: i32) -> Result<(), Errno> {
        let Some(programs) = &relay.programs else {
            return Ok(());
        };
        self.exchange(
            id,
            (relay.place.0, fd),
            relay.backing.as_fd(),
            programs.as_fd(),
        )?;
        relay.programs = None;
        Ok(())
    }

    /// Puts an end of a pair in place of the kernel socket at a number of the caller, with all that hangs on it.
    pub fn exchange(
        &mut self,
        id: u64,
        (caller, fd): (Caller, RawFd),
        backing: BorrowedFd<'_>,
        programs: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let closes = caller.closes_on_exec(fd);
        let listener = self.listener.as_fd();
        if let Some(signals) = Signals::of(backing) {
            // Where the supervisor has not the rights that the program had, no signals are sent.
            let _ = signals.set_on(programs, fd);
        }
        let give = || sys::give(listener, id, programs, TargetFd::At(fd), closes).map(drop);
        self.sets.follow(caller, fd, (backing, programs), give)
    }

    /// A connect was answered that a signal had taken back: the same call gets this answer when it comes again.
    pub fn keep_answer(&mut self, call: &Call, answer: Result<i64, Errno>) {
        if unheard::is_undone(answer) {
            return;
        }
        let Some((_, cookie)) = self.socket_of(call) else {
            return;
        };
        let key = self.undelivered.get(&cookie).copied().unwrap_or(cookie);
        if let Some(Served::Relay(relay)) = self.served.get_mut(&key) {
            relay.unheard = Some(answer);
        }
    }

    /// The answer of a connect that the program has not received; `None`: there is none.
    fn tell_again(&mut self, call: &Call, key: u64) -> Option<Result<Outcome, Errno>> {
        let Some(Served::Relay(relay)) = self.served.get_mut(&key) else {
            return None;
        };
        let answer = relay.unheard.take()?;
        relay.reported |= answer.is_ok();
        let Some(Served::Relay(mut relay)) = self.served.remove(&key) else {
            return None;
        };
        let delivered = self.deliver(&mut relay, call.id, call.fd);
        if relay.programs.is_none() {
            self.undelivered
                .retain(|_, undelivered| *undelivered != key);
        }
        self.served.insert(key, Served::Relay(relay));
        Some(match delivered {
            Ok(()) | Err(Errno::NOENT | Errno::SRCH) => answer.map(Outcome::Return),
            Err(error) => Err(error),
        })
    }

    /// Another connect on a socket that is served: the states and their errno are those of
    /// `__inet_stream_connect` in Linux.
    fn connect_again(&mut self, call: &Call, fd: &OwnedFd, key: u64) -> Result<Outcome, Errno> {
        let Some(Served::Relay(mut relay)) = self.served.remove(&key) else {
            return Ok(Outcome::Continue);
        };
        let mut is_undone = false;
        // The same thread's next call after it was told: it comes again because it has not heard.
        let is_doubted = self.doubted.take() == Some(call.fd);
        let outcome = match relay.phase {
            Phase::Connecting { .. } if is_doubted && is_nonblocking(fd.as_fd()) => {
                Err(Errno::INPROGRESS)
            }
            Phase::Connecting { .. } if is_nonblocking(fd.as_fd()) => Err(Errno::ALREADY),
            Phase::Connecting { .. } => {
                relay.waiting.push(waiting(call, &relay, Errno::ALREADY));
                self.waited_for.insert(key);
                Ok(Outcome::Later)
            }
            Phase::Open if relay.reported && is_doubted => Ok(Outcome::Return(0)),
            Phase::Open if relay.reported => Err(Errno::ISCONN),
            Phase::Open => {
                let delivered = self.deliver(&mut relay, call.id, call.fd);
                relay.reported = delivered.is_ok();
                delivered.map(|()| Outcome::Return(0))
            }
            Phase::Over if relay.reported => Err(Errno::ISCONN),
            Phase::Over => {
                // Whoever has been told may try again.
                is_undone = true;
                if relay.programs.is_none() {
                    self.exchange_back(call, fd.as_fd(), relay.backing.as_fd())?;
                }
                Err(relay.error.take().unwrap_or(Errno::CONNABORTED))
            }
        };
        if relay.programs.is_none() || relay.phase == Phase::Over {
            self.undelivered
                .retain(|_, undelivered| *undelivered != key);
        }
        // A connect that failed leaves the program the kernel's socket, as new.
        if !is_undone {
            self.served.insert(key, Served::Relay(relay));
        }
        outcome
    }

    /// A connect was decided: answers those who wait for it.
    pub fn conclude(&mut self, key: u64) {
        let Some(Served::Relay(mut relay)) = self.served.remove(&key) else {
            return;
        };
        for waiting in std::mem::take(&mut relay.waiting) {
            let answer = match relay.phase {
                Phase::Over => Err(relay.error.unwrap_or(Errno::CONNABORTED)),
                _ => self.deliver(&mut relay, waiting.id, waiting.fd).map(|()| 0),
            };
            if self.tell(waiting.id, waiting.caller, Some(answer)).is_ok() {
                relay.reported = true;
                self.unheard.doubt_connect(waiting.caller.tid, waiting.fd);
                if relay.phase == Phase::Over && relay.programs.is_some() {
                    self.undelivered
                        .retain(|_, undelivered| *undelivered != key);
                    return;
                }
            }
        }
        if relay.programs.is_none() {
            self.undelivered
                .retain(|_, undelivered| *undelivered != key);
        }
        self.served.insert(key, Served::Relay(relay));
    }

    /// Nobody is left who could ask for them.
    pub fn drop_undelivered(&mut self) {
        for (_, key) in self.undelivered.drain() {
            self.served.remove(&key);
        }
    }
}

fn waiting(call: &Call, relay: &Relay, late: Errno) -> Waiting {
    let timeout = options::timeout(relay.backing.as_fd(), libc::SO_SNDTIMEO);
    Waiting {
        id: call.id,
        caller: call.caller,
        fd: call.fd,
        deadline: timeout.map(|timeout| Instant::now() + timeout),
        late,
        flags: 0,
        name: (0, 0),
    }
}

/// The address that a call names and the socket that it names it for, with the family of a TCP socket of the kernel's:
/// others may be served. `None`: it is not ours to judge.
fn named_or_served(call: &Call) -> Option<(Vec<u8>, OwnedFd, Option<Family>)> {
    // Of a longer one the kernel says EINVAL.
    let len = usize::try_from(i32::from_ne_bytes(low_half(call.arguments[2]))).ok();
    let len = len.filter(|len| *len <= NAME_MAX)?;
    let name = call.caller.read(call.arguments[1], len).ok()?;
    let family = name.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))?;
    // Most others are for Unix sockets.
    if ![libc::AF_INET, libc::AF_INET6, libc::AF_UNSPEC].contains(&i32::from(family)) {
        return None;
    }
    let fd = call.caller.descriptor(call.fd).ok()?;
    let family = family_of_tcp(fd.as_fd());
    Some((name, fd, family))
}
