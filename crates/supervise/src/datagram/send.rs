//! sendto(2) with an address, sendmsg(2) and sendmmsg(2), in the order of checks that Linux has in `udp_sendmsg`.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use client::address::{self, Family, Name};
use client::datagram_messages::{self as messages, SendAncillary};
use client::route::{self, EngineNetworks, Owner, Stack};
use client::{HeardBy, Outgoing, Readiness, Socket};
use hostif::Transport;
use rustix::fd::AsFd;
use rustix::io::Errno;
use switch::datagram::{LOOPBACK_BROADCAST, has_chosen, has_chosen_engine, parse};

use crate::filter::MSG_PROBE;
use crate::stopped_call::Blocked;

use super::cork::Corked;
use super::message::{MessageLayout, count, flags, has_several};
use super::{Datagrams, Peer, sys};

impl Datagrams {
    /// Carries a sending call out, as far as it goes without waiting: what it returns, or EAGAIN.
    pub fn send(&mut self, blocked: &mut Blocked, networks: &EngineNetworks) -> Result<i64, Errno> {
        let (call, number) = (blocked.call, blocked.number);
        let flags = flags(&call, number);
        while blocked.done < count(&call, number) {
            let place = MessageLayout::of(&call, number, blocked.done)?;
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
        place: &MessageLayout,
        flags: i32,
        networks: &EngineNetworks,
    ) -> Result<usize, Errno> {
        let caller = blocked.call.caller;
        if flags & libc::MSG_OOB != 0 && self.family == Family::V4 {
            return Err(Errno::OPNOTSUPP);
        }
        let payload = place.read_payload(caller)?;
        if self.corked.is_some() {
            return self.append(&payload, flags);
        }
        let (name, control) = (place.read_name(caller)?, place.read_control(caller)?);
        if blocked.number == libc::SYS_sendto && place.name.0 != 0 && name.is_empty() {
            return Err(Errno::INVAL);
        }
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
        let ancillary = messages::parse(&control, family)?;
        if !has_chosen_engine(&ancillary, networks) {
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
        let segment_bytes = ancillary
            .segment_bytes
            .unwrap_or(self.options.segment_bytes);
        self.check_length(&payload, segment_bytes, &ancillary, (remote, to), networks)?;
        let outgoing = Outgoing {
            destination: to,
            source: ancillary.source,
            interface: ancillary.interface,
            tos: ancillary.tos,
            ttl: ancillary.ttl,
            segment_bytes: if payload.len() > usize::from(segment_bytes) {
                segment_bytes
            } else {
                0
            },
            ..Outgoing::default()
        };
        // It only asks whether the way is known (`ip_make_skb`).
        if flags & MSG_PROBE != 0 {
            return Ok(payload.len());
        }
        if self.waits_for_more(flags) {
            return self.begin(outgoing, remote, &payload);
        }
        self.push(&outgoing, &payload)
    }

    /// Whether what a call sends waits for more.
    fn waits_for_more(&self, flags: i32) -> bool {
        flags & libc::MSG_MORE != 0 || self.options.is_corked
    }

    /// Starts a datagram of several calls with one that was found to be right.
    fn begin(
        &mut self,
        outgoing: Outgoing,
        remote: SocketAddr,
        payload: &[u8],
    ) -> Result<usize, Errno> {
        let corked = Corked::new(outgoing, address::family(remote), payload)?;
        // A sending call has other things to tell first (`sock_alloc_send_pskb`).
        if let Some(error) = self.error.take().or_else(|| self.socket.take_error()) {
            return Err(error);
        }
        if self.is_mute {
            return Err(Errno::PIPE);
        }
        self.corked = Some(corked);
        Ok(payload.len())
    }

    /// Adds to it, and sends it unless more is to come. What cannot be added throws it away (`ip_flush_pending_frames`).
    pub fn append(&mut self, payload: &[u8], flags: i32) -> Result<usize, Errno> {
        let Some(mut corked) = self.corked.take() else {
            // What is written to a corked socket.
            let peer = self.socket.peer_address().ok_or(Errno::DESTADDRREQ)?;
            return self.begin(Outgoing::default(), peer, payload);
        };
        corked.add(payload)?;
        if self.waits_for_more(flags) {
            self.corked = Some(corked);
            return Ok(payload.len());
        }
        match self.push(&corked.outgoing, &corked.payload) {
            Err(Errno::AGAIN) => {
                // The call comes again.
                let before = corked.payload.len() - payload.len();
                corked.payload.truncate(before);
                self.corked = Some(corked);
                Err(Errno::AGAIN)
            }
            sent => sent.map(|_| payload.len()),
        }
    }

    /// UDP_CORK is off: what has been put together leaves.
    pub fn uncork(&mut self) -> Result<(), Errno> {
        match self.corked {
            Some(_) => self.append(&[], 0).map(drop),
            None => Ok(()),
        }
    }

    /// Hands a datagram to the engine.
    fn push(&mut self, outgoing: &Outgoing, payload: &[u8]) -> Result<usize, Errno> {
        let noted = self.error.take();
        if let Some(error) = noted {
            return Err(error);
        }
        match self
            .socket
            .sender()?
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
        ancillary: &SendAncillary,
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
            ancillary.whole || [libc::IP_PMTUDISC_DO, libc::IP_PMTUDISC_PROBE].contains(&discovery);
        let mtu = match remote.ip().is_loopback() {
            true => usize::from(u16::MAX),
            false => networks.mtu_bytes,
        };
        let len = payload.len();
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

    /// The destination that a name means, and the stack that it leaves by.
    fn destination(
        &self,
        name: &[u8],
        control: &[u8],
        networks: &EngineNetworks,
    ) -> Result<To, Errno> {
        if name.is_empty() {
            return match self.stack_of_peer() {
                Peer::None => Err(Errno::DESTADDRREQ),
                Peer::Engine => Ok(To::Engine(None)),
                Peer::Both | Peer::Kernel => Ok(To::Kernel),
            };
        }
        let to = match parse(name, self.family)? {
            Name::Ip(to) if to.port() == 0 => return Err(Errno::INVAL),
            Name::Ip(to) => route::resolved(to),
            _ => return Ok(To::Kernel),
        };
        // Of who is on this host it is known which stack has him.
        let asked = match self.is_on_both(to, networks) {
            true => None,
            false => self.asked(to, control),
        };
        if asked == Some(HeardBy::Kernel) {
            return Ok(To::Kernel);
        }
        if asked.is_some() || self.is_engines(to, networks) {
            return Ok(To::Engine(Some(to)));
        }
        self.leave_to_kernel(to).map(|()| To::Kernel)
    }

    /// The stack by which a peer has sent first, where there is more than one: the answer is from there, wherever the
    /// routes lead. Not where the program names the source address itself.
    fn asked(&self, to: SocketAddr, control: &[u8]) -> Option<HeardBy> {
        if has_chosen(control, to) || self.owner != Owner::Any || self.peer != Peer::None {
            return None;
        }
        let asked = self.heard.answer_by(to);
        asked.filter(|by| *by != HeardBy::Kernel || !self.engine_only)
    }

    /// Whether the kernel may carry what the engine does not: ENETUNREACH where the policy forbids it, but for what stays
    /// on this host, and for groups, which are the kernel's.
    pub fn leave_to_kernel(&self, to: SocketAddr) -> Result<(), Errno> {
        let ip = to.ip();
        // From loopback nothing reaches another host: the kernel says so.
        let local = self.socket.local_address();
        let is_kernels = ip.is_loopback()
            || ip.is_unspecified()
            || ip.is_multicast()
            || local.is_some_and(|local| local.ip().is_loopback());
        if self.engine_only && !is_kernels {
            return Err(Errno::NETUNREACH);
        }
        Ok(())
    }

    /// Whether the engine carries a datagram to that destination, for this socket.
    pub fn is_engines(&self, to: SocketAddr, networks: &EngineNetworks) -> bool {
        let is_held = || {
            let to = route::resolved(to);
            self.socket.session().holds(Transport::Udp, to)
        };
        self.could_be_engines(to, networks) && (!self.is_on_both(to, networks) || is_held())
    }

    /// As `is_engines`, without asking which stack has a socket there now.
    pub fn could_be_engines(&self, to: SocketAddr, networks: &EngineNetworks) -> bool {
        if self.family == Family::V6 && self.options.engine.v6_only && to.is_ipv4() {
            return false;
        }
        if route::is_loopback(to.ip()) {
            return networks.has_loopback && to.ip() != LOOPBACK_BROADCAST;
        }
        // From loopback nothing reaches another host, which the kernel says.
        let local = self.socket.local_address();
        let is_bound_to_loopback = local.is_some_and(|local| local.ip().is_loopback());
        if is_bound_to_loopback && self.peer == Peer::None && !is_this_hosts(to.ip(), networks) {
            return false;
        }
        self.owner == Owner::Engine || reaches(to, networks)
    }

    /// Whether the kernel has sockets at that address too, and may have this one.
    pub fn is_on_both(&self, to: SocketAddr, networks: &EngineNetworks) -> bool {
        let stays_here = route::is_loopback(to.ip()) || networks.has_as_loopback(to.ip());
        !self.engine_only && stays_here
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
    let is_kernels = to.ip().is_multicast() || to.ip() == LOOPBACK_BROADCAST;
    !is_kernels && route::stack_for(to, networks) == Stack::Engine
}

/// Whether what is sent there stays on this host.
pub fn is_this_hosts(ip: IpAddr, networks: &EngineNetworks) -> bool {
    ip.is_loopback() || networks.interfaces.iter().any(|own| own.address == ip)
}
