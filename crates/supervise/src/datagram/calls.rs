//! connect(2), setsockopt(2), getsockopt(2), shutdown(2) and the names of a UDP socket that is served.

use std::net::SocketAddr;

use client::address::{Family, Name};
use client::route::{self, EngineNetworks};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use super::filter::{DuplicateFilter, GET};
use super::{Datagrams, Options, Peer};
use switch::backing;
use switch::backing::{connect_as, local_of};
use switch::datagram::parse;

/// Options of the socket's own level whose meaning lies on the program's end of the pair.
pub const OF_DESCRIPTOR: [i32; 3] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, libc::SO_PEEK_OFF];

/// Bytes of `struct ip6_mtuinfo`.
const MTU_INFO: usize = 32;

impl Datagrams {
    /// connect(2): another peer, or none.
    pub fn connect(
        &mut self,
        name: &[u8],
        programs: BorrowedFd<'_>,
        networks: &EngineNetworks,
    ) -> Result<(), Errno> {
        let mut buffer = vec![0; usize::from(u16::MAX)];
        while self.move_up(&mut buffer) {}
        match parse(name, self.family)? {
            Name::Ip(to) if self.could_be_engines(to, networks) => {
                if let SocketAddr::V4(v4) = to
                    && networks.is_broadcast(*v4.ip())
                    && !self.options.engine.broadcast
                {
                    return Err(Errno::ACCESS);
                }
                let to = route::resolved(to);
                self.socket.connect(to, None)?;
                self.peer = Peer::Engine;
                if self.is_on_both(to, networks) {
                    // Each datagram goes where its peer is then, and both are heard.
                    connect_as(self.backing.as_fd(), to, self.family)?;
                    self.peer = Peer::Both;
                }
            }
            Name::Ip(to) => {
                self.leave_to_kernel(to)?;
                rustix::net::connect(&self.backing, &to)?;
                self.peer = Peer::Kernel;
            }
            Name::Unspecified => {
                let _ = rustix::net::connect_unspec(&self.backing);
                let _ = self.socket.disconnect();
                self.peer = Peer::None;
            }
            Name::Other => return Err(Errno::AFNOSUPPORT),
        }
        self.link(programs, self.peer != Peer::None)
    }

    /// setsockopt(2): the backing socket keeps it, and what the engine acts on is read from there.
    pub fn set_option(
        &mut self,
        programs: BorrowedFd<'_>,
        (level, name): (i32, i32),
        value: &[u8],
    ) -> Result<(), Errno> {
        let corks = (level, name) == (libc::IPPROTO_UDP, libc::UDP_CORK);
        if corks {
            // What was written before is sent as it was to be.
            let mut buffer = vec![0; usize::from(u16::MAX)];
            while self.move_up(&mut buffer) {}
        }
        let filter = self.duplicates.as_mut();
        if let Some(refusal) = filter.and_then(|filter| filter.refusal((level, name), value)) {
            return Err(refusal);
        }
        backing::set_option(self.backing.as_fd(), level, name, value)?;
        if let Some(filter) = self.duplicates.as_mut() {
            filter.follow(self.backing.as_fd(), (level, name))?;
        }
        if level == libc::SOL_SOCKET && OF_DESCRIPTOR.contains(&name) {
            backing::set_option(programs, level, name, value)?;
        }
        let options = Options::of(self.backing.as_fd(), self.family);
        if options.engine != self.options.engine {
            self.socket.set_datagram_options(&options.engine)?;
        }
        self.options = options;
        if corks && !options.is_corked {
            self.uncork()?;
        }
        Ok(())
    }

    /// getsockopt(2).
    pub fn option(
        &mut self,
        programs: BorrowedFd<'_>,
        (level, name): (i32, i32),
        asked: Vec<u8>,
    ) -> Result<Vec<u8>, Errno> {
        let room = asked.len();
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let error = self.take_error(programs);
                error.map_or(0, Errno::raw_os_error)
            }
            (libc::IPPROTO_IP, libc::IP_MTU) | (libc::IPPROTO_IPV6, libc::IPV6_MTU)
                if self.is_engines_peer() =>
            {
                i32::try_from(self.socket.path_mtu()?).unwrap_or(i32::MAX)
            }
            crate::options::PEEK_OFFSET => {
                let mut value = [0; 4];
                backing::option(programs, level, name, &mut value)?;
                i32::from_ne_bytes(value)
            }
            GET if self
                .duplicates
                .as_ref()
                .is_some_and(DuplicateFilter::stands) =>
            {
                return Ok(Vec::new());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PATHMTU)
                if self.is_engines_peer() && self.family == Family::V6 && room >= MTU_INFO =>
            {
                // An address, of which nothing is said, and the MTU.
                let mtu = u32::try_from(self.socket.path_mtu()?).unwrap_or(u32::MAX);
                return Ok([&[0; MTU_INFO - 4][..], &mtu.to_ne_bytes()].concat());
            }
            (level, name) => {
                let mut value = asked;
                let len = backing::option(self.backing.as_fd(), level, name, &mut value)?;
                value.truncate(len);
                return Ok(value);
            }
        };
        let mut value = number.to_ne_bytes().to_vec();
        value.truncate(room);
        Ok(value)
    }

    /// shutdown(2): ENOTCONN without a peer, although it takes effect even then (`inet_shutdown`).
    pub fn shutdown(&mut self, programs: BorrowedFd<'_>, how: i32) -> Result<i64, Errno> {
        use rustix::net::Shutdown;
        let (direction, read, write) = match how {
            libc::SHUT_RD => (Shutdown::Read, true, false),
            libc::SHUT_WR => (Shutdown::Write, false, true),
            libc::SHUT_RDWR => (Shutdown::Both, true, true),
            _ => return Err(Errno::INVAL),
        };
        let mut buffer = vec![0; usize::from(u16::MAX)];
        while self.move_up(&mut buffer) {}
        self.is_shut |= read;
        self.is_mute |= write;
        self.socket.shutdown(read, write);
        rustix::net::shutdown(programs, direction)?;
        match self.peer {
            Peer::None => Err(Errno::NOTCONN),
            Peer::Engine | Peer::Both | Peer::Kernel => Ok(0),
        }
    }

    /// The two ends, where they are not the backing socket's.
    pub fn name(&self, is_local: bool) -> Result<SocketAddr, Errno> {
        if is_local {
            let known = self.socket.local_address();
            let known =
                known.filter(|known| self.peer != Peer::Kernel && !known.ip().is_unspecified());
            return known.map_or_else(|| local_of(self.backing.as_fd()), Ok);
        }
        match self.peer {
            Peer::None => Err(Errno::NOTCONN),
            Peer::Engine | Peer::Both => {
                // One of port 0 is none (`inet_getname`).
                let peer = self.socket.peer_address().filter(|peer| peer.port() != 0);
                peer.ok_or(Errno::NOTCONN)
            }
            Peer::Kernel => {
                let peer = rustix::net::getpeername(&self.backing)?.ok_or(Errno::NOTCONN)?;
                let peer = SocketAddr::try_from(peer).map_err(|_| Errno::INVAL)?;
                Ok(client::address::canonical(peer))
            }
        }
    }
}
