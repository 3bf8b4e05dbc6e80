//! Sending datagrams, in the order of checks that Linux has in `udp_sendmsg`. Each asks the routes which engine, or the
//! kernel, it leaves by.

use std::io::IoSlice;
use std::os::fd::RawFd;

use client::{HeardBy, Outgoing, SocketKinds};
use core::net::{IpAddr, SocketAddr};
use rustix::io::Errno;

use super::{Call, cork, destination, is_forbidden_broadcast, places};
use crate::calls::stamping::{self, Wanted};
use crate::outcome::Switched;
use crate::policy::policy;
use crate::socket::{EngineIndex, NoFragments, Owner, Socket};
use crate::wait::sleep::{Deadline, after_interruption};
use crate::wait::sleeping;
use client::address::{self, Family};
use client::datagram_messages::{self as message, SendAncillary};
use client::engines::{self, AllNetworks, Candidates};
use switch::attached;
use switch::datagram::{has_chosen, has_chosen_engine};
use switch::stream::Stream;

/// linux/socket.h.
const MSG_PROBE: i32 = 0x10;

/// Sends one datagram to whom `name` says, or to the peer.
pub fn send(
    fd: RawFd,
    name: Option<&[u8]>,
    slices: &[IoSlice<'_>],
    control: &[u8],
    flags: i32,
) -> Switched<usize> {
    let Some(call) = Call::begin(fd) else {
        return Ok(None);
    };
    let Some(socket) = call.socket() else {
        return Ok(None);
    };
    if socket.has_corked() {
        return cork::append(fd, socket, slices, flags);
    }
    let has_peer = socket.has_engine_peer();
    let connected = has_peer.then(|| socket.stream()).flatten();
    let to = match name {
        Some(name) => match destination(fd, socket, name)? {
            Some(to) => Some(to),
            None => return Ok(None),
        },
        None => None,
    };
    let Some(peer) = to.or_else(|| connected.as_ref()?.peer()) else {
        return Ok(None);
    };
    // Once for a datagram: asking looks at the clock.
    let all = attached::datagram_networks();
    let candidates = by_routes((socket, &all), (to, connected.as_deref()), peer, control)?;
    if candidates.is_empty() {
        return Ok(None);
    }
    let family = address::family(peer);
    let ancillary = message::parse(control, family)?;
    let candidates = as_wished(candidates, (socket, &all), &ancillary);
    if candidates.is_empty() {
        return match (policy().is_engine_only(), ancillary.source) {
            (false, _) => Ok(None),
            // As Linux says of an IPv6 address that is nobody's here (`ip6_datagram_send_ctl`); of the kernel's own too.
            (true, Some(IpAddr::V6(_))) => Err(Errno::INVAL),
            (true, _) => Err(Errno::NETUNREACH),
        };
    }
    check((socket, &all), to, &ancillary, (family, flags))?;
    let datagram = Datagram {
        call: &call,
        socket,
        all: &all,
        to,
        peer,
        ancillary,
        wanted: socket
            .stamping
            .of_datagram(ancillary.stamps.flags, ancillary.stamps.key),
        flags,
    };
    let len = slices.iter().map(|slice| slice.len()).sum();
    // It only asks whether the way is known (`ip_make_skb`).
    if flags & MSG_PROBE != 0 {
        return Ok(Some(len));
    }
    if cork::is_wanted(socket, flags) {
        return cork::begin(socket, family, name, slices, control).map(|()| Some(len));
    }
    let send = |place| datagram.send_by(place, slices);
    let sent = attached::first_that_sends(candidates, peer.ip(), send);
    if !matches!(sent, Ok(Ok(_))) {
        socket.stamping.take_back(datagram.wanted);
    }
    match sent {
        Err(error) if to.is_some() && is_for_the_kernel(error, socket) => Ok(None),
        sent => sent?.map(Some),
    }
}

/// The engines by which a datagram could leave to whom a call names, or else to the peer; none: it is the kernel's.
fn by_routes(
    (socket, all): (&Socket, &AllNetworks),
    (to, connected): (Option<SocketAddr>, Option<&Stream>),
    peer: SocketAddr,
    control: &[u8],
) -> Result<Candidates, Errno> {
    let own = connected.map(|stream| Candidates::only(stream.place()));
    let Some(to) = to else {
        return Ok(own.map_or_else(Candidates::default, |own| places::heard(own, peer, all)));
    };
    let towards = places::towards(socket, to, all)?;
    let towards = as_asked(towards, (socket, all), to, control);
    // Its own address is that engine's, whomever it speaks to.
    Ok(own.filter(|_| !towards.is_empty()).unwrap_or(towards))
}

/// Refuses what cannot be sent by any stack.
fn check(
    (socket, all): (&Socket, &AllNetworks),
    to: Option<SocketAddr>,
    ancillary: &SendAncillary,
    (family, flags): (Family, i32),
) -> Result<(), Errno> {
    if ancillary.stamps.key.is_some() && socket.stamping.flags() & stamping::OPT_ID == 0 {
        return Err(Errno::INVAL);
    }
    // Only `udp_sendmsg` looks at it.
    if flags & libc::MSG_OOB != 0 && family == Family::V4 {
        return Err(Errno::OPNOTSUPP);
    }
    if to.is_some_and(|to| is_forbidden_broadcast(socket, to, all)) {
        return Err(Errno::ACCESS);
    }
    Ok(())
}

/// A peer that has sent first, to one of several stacks, is answered by that one, wherever the routes lead: from the
/// address that was asked. Not where the program names the address itself.
fn as_asked(
    candidates: Candidates,
    (socket, all): (&Socket, &AllNetworks),
    to: SocketAddr,
    control: &[u8],
) -> Candidates {
    let is_on_all = !socket.has_engine_peer() && socket.kernel_receives();
    // Of who is on this host it is known which stack has him.
    if !is_on_all || has_chosen(control, to) || places::is_on_both(to.ip(), all) {
        return candidates;
    }
    match socket.heard.answer_by(to) {
        Some(HeardBy::Kernel) if !policy().is_engine_only() => Candidates::default(),
        Some(HeardBy::Engine(place)) => {
            let serves = |one: EngineIndex| one == place;
            if engines::serving(SocketKinds::DATAGRAM, all)
                .iter()
                .any(serves)
            {
                Candidates::only(place)
            } else {
                candidates
            }
        }
        _ => candidates,
    }
}

/// Whether the kernel may succeed where the engines failed.
fn is_for_the_kernel(error: Errno, socket: &Socket) -> bool {
    let is_an_engines = socket.has_engine_peer()
        || socket
            .bound()
            .is_some_and(|bound| bound.owner == Owner::Engine);
    engines::is_refusal(error) && !is_an_engines && !policy().is_engine_only()
}

/// Where the program names the interface and the address to send from, the engines that have them, those among the
/// candidates if there are some; none: they are the kernel's.
fn as_wished(
    candidates: Candidates,
    (socket, all): (&Socket, &AllNetworks),
    ancillary: &SendAncillary,
) -> Candidates {
    if ancillary.interface == 0 && ancillary.source.is_none() {
        return candidates;
    }
    let has_both = |place: &EngineIndex| {
        let networks = all.get(place.index());
        networks.is_some_and(|networks| has_chosen_engine(ancillary, networks))
    };
    let among: Candidates = candidates.iter().filter(has_both).collect();
    let bound = socket.bound();
    let is_on_all =
        !socket.has_engine_peer() && bound.is_none_or(|bound| bound.address.ip().is_unspecified());
    if among.is_empty() && is_on_all {
        let serving = engines::serving(SocketKinds::DATAGRAM, all);
        return serving.iter().filter(has_both).collect();
    }
    among
}

/// One datagram without its payload.
struct Datagram<'a> {
    call: &'a Call,
    socket: &'a Socket,
    all: &'a AllNetworks,
    to: Option<SocketAddr>,
    /// Where it goes.
    peer: SocketAddr,
    ancillary: SendAncillary,
    wanted: Wanted,
    flags: i32,
}

impl Datagram<'_> {
    /// Sends it by an engine; the outer error: this engine cannot, and another may.
    fn send_by(
        &self,
        place: EngineIndex,
        slices: &[IoSlice<'_>],
    ) -> Result<Result<usize, Errno>, Errno> {
        let (socket, ancillary) = (self.socket, &self.ancillary);
        let family = address::family(self.peer);
        let segment_bytes = ancillary.segment_bytes.unwrap_or(socket.segment_bytes());
        let len = slices.iter().map(|slice| slice.len()).sum();
        let whole = ancillary.whole || forbids_fragments(socket, family);
        let mtu = match self.peer.ip().is_loopback() {
            true => usize::from(u16::MAX),
            false => self.mtu_bytes(place),
        };
        let is_short = message::check_length(family, len, usize::from(segment_bytes), whole, mtu);
        if is_short == Err(Errno::MSGSIZE) {
            self.tell_of_length(place, len)?;
        }
        is_short?;
        let outgoing = Outgoing {
            destination: self.to,
            source: ancillary.source,
            interface: ancillary.interface,
            tos: ancillary.tos,
            ttl: ancillary.ttl,
            segment_bytes: if len > usize::from(segment_bytes) {
                segment_bytes
            } else {
                0
            },
            stamps: self.wanted.stamps,
            stamp_key: self.wanted.key,
            ..Outgoing::default()
        };
        let stream = places::ensure_at(self.call.fd, socket, place)?;
        // What is pending may be of another engine, and of another datagram.
        if let Some(error) = stream.take_error() {
            return Ok(Err(error));
        }
        match self.push(&stream, place, &outgoing, slices) {
            Err(error @ (Errno::NETDOWN | Errno::CONNRESET)) => Err(error),
            result => Ok(result),
        }
    }

    /// Of the links of that engine.
    fn mtu_bytes(&self, place: EngineIndex) -> usize {
        match self.all.get(place.index()) {
            Some(networks) => networks.mtu_bytes,
            None => attached::networks_of(place).mtu_bytes,
        }
    }

    /// Puts an entry into the error queue too, where the program listens to it (`ip_local_error`, `ipv6_local_error`).
    fn tell_of_length(&self, place: EngineIndex, len: usize) -> Result<(), Errno> {
        let mut destination = self.peer;
        let options = super::engine_options(self.socket);
        let wants = match address::family(destination) {
            // `udp_sendmsg` refuses what no length field can say before it looks at the way.
            Family::V4 => options.v4.error_queue && len <= usize::from(u16::MAX),
            Family::V6 => options.v6.error_queue,
        };
        if wants {
            if self.to.is_some() && destination.is_ipv4() {
                // It tells the port of the connected peer only (`inet_dport`).
                let connected = self.socket.stream().and_then(|stream| stream.peer());
                destination.set_port(connected.map_or(0, |peer| peer.port()));
            }
            let stream = places::ensure_at(self.call.fd, self.socket, place)?;
            stream.note_too_long(place, destination);
        }
        Ok(())
    }

    fn push(
        &self,
        stream: &Stream,
        place: EngineIndex,
        outgoing: &Outgoing,
        slices: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        let mut deadline = None;
        loop {
            match stream.send_datagram(place, outgoing, slices) {
                Err(Errno::AGAIN) => {}
                result => return result,
            }
            let deadline = match deadline {
                Some(deadline) => deadline,
                None if self.flags & libc::MSG_DONTWAIT != 0
                    || self.socket.is_nonblocking(self.call.fd)? =>
                {
                    return Err(Errno::AGAIN);
                }
                None => *deadline.insert(Deadline::after_option(self.socket.send_timeout())),
            };
            if deadline.is_over() {
                return Err(Errno::AGAIN);
            }
            let _open = self.call.file.sleeper();
            let mut news = || stream.takes_datagrams(place);
            match sleeping::sleep(&[stream], &mut [], None, deadline, &mut news) {
                Err(Errno::INTR) => return Err(after_interruption(deadline)),
                result => result?,
            }
        }
    }
}

fn forbids_fragments(socket: &Socket, family: Family) -> bool {
    match family {
        Family::V4 => socket.forbids_fragments(NoFragments::DiscoveryV4),
        Family::V6 => {
            socket.forbids_fragments(NoFragments::DiscoveryV6)
                || socket.forbids_fragments(NoFragments::OptionV6)
        }
    }
}
