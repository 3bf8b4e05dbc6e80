//! When a UDP socket comes to an engine: at bind, at connect, or with the first datagram; and the calls of the
//! supervisor that concern one that is there.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use client::address::{Family, Name};
use client::engines;
use client::route::{EngineNetworks, Owner};
use client::{Socket, SocketKinds, UdpSocket};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use super::filter::DuplicateFilter;
use super::message::{self, MessageLayout};
use super::send::{is_this_hosts, reaches};
use super::{DatagramPair, Datagrams, Options};
use crate::pair::is_nonblocking;
use crate::relay::Step;
use crate::stopped_call::{BLOCKED_MAX, Blocked, Call, Outcome};
use crate::supervisor::{Served, Supervisor};
use switch::backing;
use switch::backing::{any_of, bind_freely, bind_port, family_of_udp, local_of};
use switch::datagram::{LOOPBACK_BROADCAST, parse};
use switch::device::index_of;
use switch::groups::is_about_groups;

/// Sockets of which it is remembered that they are in groups.
const LEFT_MAX: usize = 4096;

/// A socket that an engine is to serve.
struct Candidate {
    fd: OwnedFd,
    family: Family,
    place: engines::EngineIndex,
    networks: Arc<EngineNetworks>,
}

impl Supervisor {
    /// The engine that serves UDP, for a socket of a call; `None`: there is none.
    fn candidate(
        &mut self,
        call: &Call,
        (fd, family): (OwnedFd, Family),
        local: IpAddr,
    ) -> Result<Option<Candidate>, Errno> {
        if self.left.contains(&crate::sys::cookie(&fd)?) {
            return Ok(None);
        }
        let Some(engines) = self.engine_access.open(call.caller)? else {
            return Ok(None);
        };
        let Some(place) = engines.first_for(SocketKinds::DATAGRAM) else {
            return if self.engine_access.is_engine_only() {
                Err(Errno::PROTONOSUPPORT)
            } else {
                Ok(None)
            };
        };
        let networks = Arc::clone(&engines.datagram_networks()[place.index()]);
        // On ANY it hears what comes by its device alone.
        let is_elsewhere = index_of(fd.as_fd()).is_some_and(|device| device != networks.scope_id);
        if is_elsewhere && local.is_unspecified() {
            return if self.engine_access.is_engine_only() {
                Err(Errno::ADDRNOTAVAIL)
            } else {
                Ok(None)
            };
        }
        Ok(Some(Candidate {
            fd,
            family,
            place,
            networks,
        }))
    }

    /// bind(2) of a UDP socket, which the kernel carries out first.
    pub fn bind_datagrams(
        &mut self,
        call: &Call,
        (fd, family): (OwnedFd, Family),
        address: SocketAddr,
    ) -> Result<Outcome, Errno> {
        // What the program has closed holds no port, and has no share in a group.
        self.drop_closed_at(address);
        let is_kernels = address.ip().is_loopback() && !self.engine_access.has_loopback();
        if is_kernels || address.ip().is_multicast() || address.ip() == LOOPBACK_BROADCAST {
            return Ok(Outcome::Continue);
        }
        let Some(candidate) = self.candidate(call, (fd, family), address.ip())? else {
            return Ok(Outcome::Continue);
        };
        let owner = client::route::owner(address.ip(), &candidate.networks);
        let Some(owner) = owner else {
            return if self.engine_access.is_engine_only() {
                Err(Errno::ADDRNOTAVAIL)
            } else {
                Ok(Outcome::Continue)
            };
        };
        if !call.caller.may_bind(address.port()) {
            return Ok(Outcome::Continue);
        }
        let cookie = crate::sys::cookie(&candidate.fd)?;
        if !self.unheard.take_bound(cookie) {
            let backing = candidate.fd.as_fd();
            bind_freely(backing, address, family)?;
            let local = local_of(backing)?;
            if local.port() == 0 {
                bind_port(backing, local)?;
            }
        }
        let served = self.serve(call, candidate, owner);
        if let Err(Errno::NOENT | Errno::SRCH) = served {
            // A signal took the call back.
            self.unheard.keep_bound(cookie);
        }
        served.map(|_| Outcome::Return(0))
    }

    /// Puts a bound socket on its engine; the key of it.
    fn serve(&mut self, call: &Call, candidate: Candidate, owner: Owner) -> Result<u64, Errno> {
        let Candidate {
            fd: backing,
            family,
            place,
            networks,
        } = candidate;
        let options = Options::of(backing.as_fd(), family);
        let nonblocking = is_nonblocking(backing.as_fd());
        let Some(engines) = self.engine_access.open(call.caller)? else {
            return Err(Errno::NETDOWN);
        };
        let socket = UdpSocket::open(engines.session(place)?, backing.as_fd())?;
        socket.set_datagram_options(&options.engine)?;
        socket.bind(local_of(backing.as_fd())?)?;
        let duplicates = match owner {
            Owner::Any => DuplicateFilter::attach(backing.as_fd(), &networks)?,
            _ => None,
        };
        let pair = DatagramPair::new(backing.as_fd(), nonblocking)?;
        for name in super::calls::OF_DESCRIPTOR {
            let mut value = [0; 16];
            let len = backing::option(backing.as_fd(), libc::SOL_SOCKET, name, &mut value)?;
            backing::set_option(pair.programs.as_fd(), libc::SOL_SOCKET, name, &value[..len])?;
        }
        let key = pair.cookie;
        let bell = self.news.listen_to(&*socket, key);
        let parts = ((socket, place), (backing, family));
        let (mut datagrams, programs) =
            Datagrams::new(parts.0, parts.1, owner, options, pair, bell);
        datagrams.engine_only = self.engine_access.is_engine_only();
        datagrams.duplicates = duplicates;
        self.watch(datagrams.ours(), key)?;
        self.watch_kernels(datagrams.backing.as_fd(), key)?;
        let at = (call.caller, call.fd);
        let exchanged = self.exchange(call.id, at, datagrams.backing.as_fd(), programs.as_fd());
        if exchanged.is_err() {
            // A signal took the call back: it comes again, with the same socket.
            self.ignore_kernels(datagrams.backing.as_fd());
        }
        exchanged?;
        self.watch_life(programs.as_fd(), key)?;
        datagrams.bell.ring();
        self.served
            .insert(key, Served::Datagrams(Box::new(datagrams)));
        Ok(key)
    }

    /// Binds where the program has not, and serves the socket: what it names is an engine's.
    fn serve_towards(
        &mut self,
        call: &Call,
        (fd, family): (OwnedFd, Family),
        destination: SocketAddr,
    ) -> Result<Option<u64>, Errno> {
        let local = local_of(fd.as_fd())?;
        let is_local = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
        let is_loopback = is_local(destination.ip()) || local.ip().is_loopback();
        if is_loopback && !self.engine_access.has_loopback() {
            return Ok(None);
        }
        let Some(candidate) = self.candidate(call, (fd, family), local.ip())? else {
            return Ok(None);
        };
        if !reaches(destination, &candidate.networks) {
            // Groups, and what loopback does not have, are the kernel's whatever the policy is.
            let is_kernels = destination.ip().is_multicast() || is_loopback;
            let is_refused = self.engine_access.is_engine_only() && !is_kernels;
            return if is_refused {
                Err(Errno::NETUNREACH)
            } else {
                Ok(None)
            };
        }
        let Some(owner) = client::route::owner(local.ip(), &candidate.networks) else {
            return Ok(None);
        };
        if local.port() == 0 {
            rustix::net::bind(&candidate.fd, &any_of(family))?;
        }
        self.serve(call, candidate, owner).map(Some)
    }

    /// connect(2) of a UDP socket, served or not.
    pub fn connect_datagrams(
        &mut self,
        call: &Call,
        (fd, key): (OwnedFd, u64),
        name: &[u8],
    ) -> Result<Outcome, Errno> {
        let (key, programs) = match (self.served.contains_key(&key), family_of_udp(fd.as_fd())) {
            (true, _) => (key, fd),
            (false, Some(family)) => {
                let Ok(Name::Ip(destination)) = parse(name, family) else {
                    return Ok(Outcome::Continue);
                };
                let Some(key) = self.serve_towards(call, (fd, family), destination)? else {
                    return Ok(Outcome::Continue);
                };
                (key, call.caller.descriptor(call.fd)?)
            }
            (false, None) => return Ok(Outcome::Continue),
        };
        let networks = self.networks_of(key)?;
        let Some(Served::Datagrams(datagrams)) = self.served.get_mut(&key) else {
            return Ok(Outcome::Continue);
        };
        let connected = datagrams.connect(name, programs.as_fd(), &networks);
        datagrams.bell.ring();
        connected?;
        // A port that the program has not chosen goes with the peer (`__udp_disconnect`): it is as new.
        // What was shut stays shut.
        let is_new = local_of(datagrams.backing.as_fd())?.port() == 0;
        if is_new && !datagrams.is_shut && !datagrams.is_mute {
            self.give_back_datagrams(call, programs.as_fd(), key)?;
        }
        Ok(Outcome::Return(0))
    }

    fn networks_of(&self, key: u64) -> Result<Arc<EngineNetworks>, Errno> {
        let Some(Served::Datagrams(datagrams)) = self.served.get(&key) else {
            return Err(Errno::BADF);
        };
        let all = self
            .engine_access
            .datagram_networks()
            .ok_or(Errno::NETDOWN)?;
        let own = all.get(datagrams.place.index());
        own.map(Arc::clone).ok_or(Errno::NETDOWN)
    }

    /// A call that receives or sends messages with names.
    pub fn message(&mut self, call: &Call, number: i64) -> Result<Outcome, Errno> {
        let Some((fd, key)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        if let Some(answer) = self.lapsed(call, number, key) {
            return answer.map(Outcome::Return);
        }
        let (programs, key) = match self.served.get(&key) {
            Some(Served::Datagrams(_)) => (fd, key),
            Some(Served::Relay(_) | Served::Queue(_)) => {
                return self.stream_message(call, number, (fd, key));
            }
            None => {
                if let Some(outcome) = self.netlink_message(call, number, (fd.as_fd(), key))? {
                    return Ok(outcome);
                }
                self.refuse_fast_open(call, number, fd.as_fd())?;
                match self.serve_sender(call, number, fd)? {
                    Some(key) => (call.caller.descriptor(call.fd)?, key),
                    None => return Ok(Outcome::Continue),
                }
            }
        };
        let mut blocked = Blocked {
            call: *call,
            number,
            done: 0,
            partial: 0,
            deadline: None,
        };
        self.reap_before(&blocked, key);
        match self.attempt(key, &mut blocked, programs.as_fd()) {
            Err(Errno::AGAIN) => {}
            done => return done.map(Outcome::Return),
        }
        let never_waits = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE;
        let flags = message::flags(call, number);
        let waits = flags & never_waits == 0 && !is_nonblocking(programs.as_fd());
        let is_enough = blocked.done > 0
            && (!waits || message::sends(number) || flags & libc::MSG_WAITFORONE != 0);
        if is_enough {
            let done = i64::try_from(blocked.done).map_err(|_| Errno::INVAL)?;
            return Ok(Outcome::Return(done));
        }
        let Some(Served::Datagrams(datagrams)) = self.served.get_mut(&key) else {
            return Err(Errno::BADF);
        };
        if !waits || datagrams.blocked.len() >= BLOCKED_MAX {
            return Err(Errno::AGAIN);
        }
        blocked.deadline = datagrams.deadline(number);
        datagrams.blocked.push(blocked);
        self.waited_for.insert(key);
        Ok(Outcome::Later)
    }

    /// A socket that sends its first datagram to somebody an engine reaches is served from then on.
    fn serve_sender(
        &mut self,
        call: &Call,
        number: i64,
        fd: OwnedFd,
    ) -> Result<Option<u64>, Errno> {
        if !message::sends(number) || message::count(call, number) == 0 {
            return Ok(None);
        }
        let Some(family) = family_of_udp(fd.as_fd()) else {
            return Ok(None);
        };
        let name =
            MessageLayout::of(call, number, 0).and_then(|place| place.read_name(call.caller));
        // What is wrong with the call the kernel says.
        match name.and_then(|name| parse(&name, family)) {
            Ok(Name::Ip(to)) if to.port() != 0 => self.serve_towards(call, (fd, family), to),
            _ => Ok(None),
        }
    }

    /// What the program has closed shall not hear what it sends to itself.
    fn reap_before(&mut self, blocked: &Blocked, key: u64) {
        if message::sends(blocked.number)
            && let Ok(networks) = self.networks_of(key)
            && let Ok(place) = MessageLayout::of(&blocked.call, blocked.number, 0)
            && let Ok(name) = place.read_name(blocked.call.caller)
            && let Some(Served::Datagrams(datagrams)) = self.served.get(&key)
            && let Ok(Name::Ip(to)) = parse(&name, datagrams.family)
            && is_this_hosts(to.ip(), &networks)
        {
            self.drop_closed_at(to);
        }
    }

    /// Moves what can be moved on a UDP socket.
    pub fn poll_datagrams(&mut self, key: u64, buffer: &mut [u8]) -> Step {
        self.reap_at_peer(key, buffer);
        let Some(Served::Datagrams(datagrams)) = self.served.get_mut(&key) else {
            return Step::Idle;
        };
        let step = datagrams.poll(buffer);
        self.serve_blocked(key);
        step
    }

    /// Nor shall it hear what a socket sends that has its peer there.
    fn reap_at_peer(&mut self, key: u64, buffer: &mut [u8]) {
        let Some(Served::Datagrams(sender)) = self.served.get(&key) else {
            return;
        };
        let Some(port) = sender.port_on_this_host() else {
            return;
        };
        let is_gone = |served: &Served| match served {
            Served::Datagrams(one) => one.local_port() == Some(port) && !one.is_open(),
            Served::Relay(_) | Served::Queue(_) => false,
        };
        let served = self.served.iter();
        let gone: Vec<u64> = served
            .filter(|(other, served)| **other != key && is_gone(served))
            .map(|(other, _)| *other)
            .collect();
        for other in gone {
            self.drop_datagrams(other, buffer);
        }
    }

    fn attempt(
        &mut self,
        key: u64,
        blocked: &mut Blocked,
        programs: BorrowedFd<'_>,
    ) -> Result<i64, Errno> {
        let networks = self.networks_of(key)?;
        let Some(Served::Datagrams(datagrams)) = self.served.get_mut(&key) else {
            return Err(Errno::BADF);
        };
        if !message::sends(blocked.number) {
            return datagrams.receive(blocked, programs);
        }
        let mut buffer = vec![0; usize::from(u16::MAX)];
        // What was written before goes first.
        while datagrams.move_up(&mut buffer) {}
        datagrams.send(blocked, &networks)
    }

    /// Leaves a UDP socket to the kernel as a whole when it sets an option of groups: at its number stands the kernel's
    /// socket again. What waits in the pair is lost.
    pub fn leave_groups_to_kernel(
        &mut self,
        call: &Call,
        (fd, key): (BorrowedFd<'_>, u64),
        option: (i32, i32),
    ) -> Result<(), Errno> {
        if !is_about_groups(option) {
            return Ok(());
        }
        if self.left.len() >= LEFT_MAX {
            self.left.clear();
        }
        let left = match self.served.get(&key) {
            Some(Served::Datagrams(datagrams)) => crate::sys::cookie(&datagrams.backing)?,
            _ if family_of_udp(fd).is_some() => key,
            _ => return Ok(()),
        };
        self.left.insert(left);
        self.give_back_datagrams(call, fd, key)
    }

    /// Puts the kernel's socket back where the caller has a UDP socket that is served.
    fn give_back_datagrams(
        &mut self,
        call: &Call,
        fd: BorrowedFd<'_>,
        key: u64,
    ) -> Result<(), Errno> {
        let Some(Served::Datagrams(datagrams)) = self.served.get(&key) else {
            return Ok(());
        };
        let backing = rustix::io::fcntl_dupfd_cloexec(&datagrams.backing, 0)?;
        self.ignore_kernels(datagrams.backing.as_fd());
        crate::pair::set_nonblocking(backing.as_fd(), is_nonblocking(fd))?;
        self.exchange(call.id, (call.caller, call.fd), fd, backing.as_fd())?;
        self.drop_datagrams(key, &mut vec![0; usize::from(u16::MAX)]);
        // There is none where the engine is on no link of this kernel.
        let off = [0; 4];
        let _ = backing::set_option(
            backing.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_DETACH_FILTER,
            &off,
        );
        Ok(())
    }

    /// Tries the calls that wait on a socket once more.
    pub fn serve_blocked(&mut self, key: u64) {
        let Some(Served::Datagrams(datagrams)) = self.served.get_mut(&key) else {
            return;
        };
        for mut blocked in std::mem::take(&mut datagrams.blocked) {
            let call = blocked.call;
            if !crate::sys::waits(self.listener.as_fd(), call.id) {
                self.unheard.lapse(&blocked);
                continue;
            }
            let answer = match call.caller.same_socket(call.fd, key) {
                Some(programs) => self.attempt(key, &mut blocked, programs.as_fd()),
                None => Err(Errno::BADF),
            };
            let is_enough = blocked.done > 0
                && message::flags(&call, blocked.number) & libc::MSG_WAITFORONE != 0;
            match answer {
                Err(Errno::AGAIN) if !is_enough => {
                    if let Some(Served::Datagrams(datagrams)) = self.served.get_mut(&key) {
                        datagrams.blocked.push(blocked);
                    }
                }
                Err(Errno::AGAIN) => {
                    let done = i64::try_from(blocked.done).unwrap_or(0);
                    self.reply_blocked(&blocked, Some(Ok(done)));
                }
                answer => self.reply_blocked(&blocked, Some(answer)),
            }
        }
    }

    /// Every process has closed the socket: what it wrote is sent, and it is gone.
    pub fn drop_datagrams(&mut self, key: u64, buffer: &mut [u8]) {
        if let Some(Served::Datagrams(mut datagrams)) = self.let_go(key) {
            while datagrams.move_up(buffer) {}
            datagrams.socket.close();
        }
    }
}
