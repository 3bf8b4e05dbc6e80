//! sendto(2) with an address, sendmsg(2) and sendmmsg(2), in the order of checks that Linux has in `udp_sendmsg`.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use client::address::{self, Family, Name};
use client::datagram_messages::{self as messages, Wishes};
use client::route::{self, EngineNetworks, Owner, Stack};
use client::{HeardBy, Outgoing, Readiness};
use rustix::fd::AsFd;
use rustix::io::Errno;

use super::message::{Place, count, flags, has_several};
use super::{Blocked, Datagrams, Peer, sys};

impl Datagrams {
    /// Carries a sending call out, as far as it goes without waiting: what it returns, or EAGAIN.
    pub fn send(&mut self, blocked: &mut Blocked, networks: &EngineNetworks) -> Result<i64, Errno> {
        let (call, number) = (blocked.call, blocked.number);
        let flags = flags(&call, number);
        while blocked.done < count(&call, number) {
            let place = Place::of(&call, number, blocked.done)?;
            let sent = self.send_one(blocked, &place, flags, networks);
            match sent {
                Ok(sent) if !has_several(number) => {
                    return i64::try_from(sent).map_err(|_| Errno::INVAL);
                }
                Ok(sent) => place.write_len(call.caller, sent)?,
                Err(error) if blocked.done > 0 && error != Errno::AGAIN => break,
                Err(error) => return Err(error),
            }
            blocked.done += 1;
        }
        i64::try_from(blocked.done).map_err(|_| Errno::INVAL)
    }

    fn send_one(
        &mut self,
        blocked: &Blocked,
        place: &Place,
        flags: i32,
        networks: &EngineNetworks,
    ) -> Result<usize, Errno> {
        let caller = blocked.call.caller;
        if flags & libc::MSG_OOB != 0 && self.family == Family::V4 {
            return Err(Errno::OPNOTSUPP);
        }
        let payload = place.read_payload(caller)?;
        let (name, control) = (place.read_name(caller)?, place.read_control(caller)?);
        let to = match self.destination(&name, &control, networks)? {
            To::Engine(to) => to,
            To::Kernel => {
                return sys::send(self.backing.as_fd(), &payload, &name, &control, flags);
            }
        };
        let Some(remote) = to.or_else(|| self.socket.peer_address()) else {
            return Err(Errno::DESTADDRREQ);
        };
        let family = address::family(remote);
        let wishes = messages::parse(&control, family)?;
        if !is_of_engine(&wishes, networks) {
            self.leave_to_kernel(remote)?;
            return sys::send(self.backing.as_fd(), &payload, &name, &control, flags);
        }
        if flags & libc::MSG_OOB != 0 && family == Family::V4 {
            return Err(Errno::OPNOTSUPP);
        }
        if let Some(SocketAddr::V4(to)) = to
            && networks.is_broadcast(*to.ip())
            && !self.options.engine.broadcast
        {
            return Err(Errno::ACCESS);
        }
        let segment_bytes = wishes.segment_bytes.unwrap_or(self.options.segment_bytes);
        self.check_length(&payload, segment_bytes, &wishes, (remote, to), networks)?;
        let outgoing = Outgoing {
            destination: to,
            source: wishes.source,
            interface: wishes.interface,
            tos: wishes.tos,
            ttl: wishes.ttl,
            segment_bytes: if payload.len() > usize::from(segment_bytes) {
                segment_bytes
            } else {
                0
            },
            ..Outgoing::default()
        };
        self.push(&outgoing, &payload)
    }

    fn push(&mut self, outgoing: &Outgoing, payload: &[u8]) -> Result<usize, Errno> {
        let noted = self.error.take();
        if let Some(error) = noted {
            return Err(error);
        }
        match self
            .socket
            .outbox()?
            .push(outgoing, &[IoSlice::new(payload)])
        {
            Err(Errno::AGAIN) => {
                // Asks to be told when there is room.
                let _ = self.socket.readiness().contains(Readiness::OUT);
                Err(Errno::AGAIN)
            }
            sent => sent,
        }
    }

    fn check_length(
        &self,
        payload: &[u8],
        segment_bytes: u16,
        wishes: &Wishes,
        (remote, named): (SocketAddr, Option<SocketAddr>),
        networks: &EngineNetworks,
    ) -> Result<(), Errno> {
        let family = address::family(remote);
        let options = match family {
            Family::V4 => self.options.engine.v4,
            Family::V6 => self.options.engine.v6,
        };
        let discovery = i32::from(options.mtu_discovery);
        let whole =
            wishes.whole || [libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_PROBE].contains(&discovery);
        let (len, mtu) = (payload.len(), networks.mtu_bytes);
        let checked = messages::check_length(family, len, usize::from(segment_bytes), whole, mtu);
        if checked == Err(Errno::MSGSIZE) && options.error_queue {
            // It tells the port of the connected peer only (`inet_dport`).
            let connected = self.socket.peer_address().map_or(0, |peer| peer.port());
            let mut told = remote;
            if named.is_some() && remote.is_ipv4() {
                told.set_port(connected);
            }
            let _ = self.socket.note_too_long(told);
        }
        checked
    }

    /// Whom a name means, and by which stack.
    fn destination(
        &self,
        name: &[u8],
        control: &[u8],
        networks: &EngineNetworks,
    ) -> Result<To, Errno> {
        if name.is_empty() {
            return match self.peer {
                Peer::None => Err(Errno::DESTADDRREQ),
                Peer::Engine => Ok(To::Engine(None)),
                Peer::Kernel => Ok(To::Kernel),
            };
        }
        let to = match parse(name, self.family)? {
            Name::Ip(to) if to.port() == 0 => return Err(Errno::INVAL),
            Name::Ip(to) => to,
            _ => return Ok(To::Kernel),
        };
        let asked = self.asked(to, control);
        if asked == Some(HeardBy::Kernel) {
            return Ok(To::Kernel);
        }
        if asked.is_some() || self.is_engines(to, networks) {
            return Ok(To::Engine(Some(to)));
        }
        self.leave_to_kernel(to).map(|()| To::Kernel)
    }

    /// The stack at whose address a peer has asked, where there is more than one: the answer is from there, wherever the
    /// routes lead. Not where the program says itself from which.
    fn asked(&self, to: SocketAddr, control: &[u8]) -> Option<HeardBy> {
        let wishes = messages::parse(control, address::family(to));
        let has_chosen = wishes.is_ok_and(|one| one.interface != 0 || one.source.is_some());
        if has_chosen || self.owner != Owner::Any || self.peer != Peer::None {
            return None;
        }
        let asked = self.heard.answer_by(to);
        asked.filter(|by| *by != HeardBy::Kernel || !self.engine_only)
    }

    /// Whether the kernel may carry what the engine does not: ENETUNREACH where the policy forbids it, but for what stays
    /// on this host, and for groups, which are the kernel's.
    pub fn leave_to_kernel(&self, to: SocketAddr) -> Result<(), Errno> {
        let ip = to.ip();
        let is_kernels = ip.is_loopback() || ip.is_unspecified() || ip.is_multicast();
        if self.engine_only && !is_kernels {
            return Err(Errno::NETUNREACH);
        }
        Ok(())
    }

    /// Whether the engine reaches it, for this socket.
    pub fn is_engines(&self, to: SocketAddr, networks: &EngineNetworks) -> bool {
        let is_local = to.ip().is_loopback() || to.ip().is_unspecified();
        if is_local || (self.family == Family::V6 && self.options.engine.v6_only && to.is_ipv4()) {
            return false;
        }
        self.owner == Owner::Engine || reaches(to, networks)
    }
}

/// See `Datagrams::destination`.
enum To {
    Kernel,
    /// `None`: the connected peer.
    Engine(Option<SocketAddr>),
}

/// Whether the engine and not the kernel carries a datagram there. Groups are the kernel's.
pub fn reaches(to: SocketAddr, networks: &EngineNetworks) -> bool {
    !to.ip().is_multicast() && route::stack_for(to, networks) == Stack::Engine
}

/// Reads a destination; a socket of AF_INET6 takes names of AF_INET too (`udpv6_sendmsg`).
pub fn parse(name: &[u8], family: Family) -> Result<Name, Errno> {
    match address::parse(name, family)? {
        Name::Other if family == Family::V6 => address::parse(name, Family::V4),
        parsed => Ok(parsed),
    }
}

/// Whether the interface and the address to send from are the engine's, where a program names them.
fn is_of_engine(wishes: &Wishes, networks: &EngineNetworks) -> bool {
    let owns = |source: IpAddr| networks.interfaces.iter().any(|one| one.address == source);
    (wishes.interface == 0 || wishes.interface == networks.scope_id)
        && wishes.source.is_none_or(owns)
}
