//! bind(2), getsockname(2), getpeername(2).

use core::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::calls::datagram;
use crate::calls::transfer::with_stream;
use crate::fd_table::descriptors;
use crate::outcome::Switched;
use crate::policy::policy;
use crate::socket::{EngineIndex, Owner, Socket};
use crate::sys;
use client::address::{self, Emitted, Family, Name};
use client::engines;
use client::route::EngineNetworks;
use switch::attached;
use switch::backing;
use switch::bind::Bound;
use switch::readiness::Phase;

/// bind(2).
pub fn bind(fd: RawFd, name: &[u8]) -> Switched<i32> {
    let Some(file) = descriptors::lookup(fd) else {
        return Ok(None);
    };
    let Some(socket) = file.socket() else {
        return Ok(None);
    };
    socket.take_unnamed();
    let Name::Ip(address) = address::parse(name, socket.family())? else {
        return Ok(None);
    };
    let (owner, is_broadcast) = owner_of(socket, address.ip());
    socket.shed();
    if socket.borrow_stream().is_some() || socket.bound().is_some() {
        // Linux looks at the address first, but not with IPv6 (`__inet6_bind`): one that is not the kernel's either gets its
        // answer there.
        return if owner.is_some() || socket.family() == Family::V6 {
            Err(Errno::INVAL)
        } else {
            Ok(None)
        };
    }
    let Some((owner, place)) = owner else {
        if policy().is_engine_only() && !address.ip().is_loopback() {
            return Err(Errno::ADDRNOTAVAIL);
        }
        socket.leave_to_kernel();
        descriptors::forget(fd);
        return Ok(None);
    };
    let backing = sys::borrow(fd)?;
    if owner == Owner::Engine || is_broadcast {
        backing::bind_freely(backing, address, socket.family())?;
    } else {
        backing::bind_as(backing, address, socket.family())?;
    }
    let mut address = backing::local_of(backing)?;
    if socket.is_datagram() && address.port() == 0 {
        address = backing::bind_port(backing, address)?;
    }
    let bound = Bound {
        address,
        owner,
        place,
    };
    if socket.is_datagram() {
        datagram::bind(fd, socket, bound)?;
    } else {
        socket.set_bound(bound);
    }
    Ok(Some(0))
}

/// Who has an address that a program binds to, of the kernel (`None`) and the engines; and whether it reaches
/// every host of a network.
fn owner_of(socket: &Socket, ip: IpAddr) -> (Option<(Owner, EngineIndex)>, bool) {
    let all = if socket.is_datagram() {
        attached::datagram_networks()
    } else {
        attached::stream_networks()
    };
    let is_broadcast =
        |one: &Arc<EngineNetworks>| matches!(ip, IpAddr::V4(ip) if one.is_broadcast(ip));
    let is_broadcast = all.iter().any(is_broadcast);
    let owner = if socket.is_datagram() && (is_broadcast || ip.is_multicast()) {
        // It is no host's: what arrives for it on any stack is meant.
        Some((Owner::Any, EngineIndex::FIRST))
    } else {
        engines::owner(ip, &all)
    };
    (owner, is_broadcast)
}

/// getsockname(2) of an accelerated connection; a socket that is only bound is asked in the kernel.
pub fn local(fd: RawFd) -> Switched<Emitted> {
    let known = with_stream(fd, |call| {
        let local = specific(call.stream().local());
        let place = call.stream().place();
        Ok(local.map(|address| shown(address, call.socket().family(), place)))
    })?;
    match known {
        None => Ok(datagram::names(fd).and_then(|names| names.local())),
        known => Ok(known.flatten()),
    }
}

/// An address of a connection on that engine, as the program sees it.
pub fn shown(address: SocketAddr, family: Family, place: EngineIndex) -> Emitted {
    let scope_id = match address.ip() {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => attached::networks_of(place).scope_id,
        _ => 0,
    };
    address::emit(address, family, scope_id)
}

/// getpeername(2).
pub fn peer(fd: RawFd) -> Switched<Emitted> {
    let known = with_stream(fd, |call| {
        // Linux has no peer in TCP_CLOSE, nor before the connection stands.
        if call.stream().phase() == Phase::Connected {
            let peer = specific(call.stream().peer()).ok_or(Errno::NOTCONN)?;
            let place = call.stream().place();
            Ok(shown(peer, call.socket().family(), place))
        } else {
            Err(Errno::NOTCONN)
        }
    })?;
    match known {
        None => Ok(datagram::names(fd).and_then(|names| names.peer())),
        known => Ok(known),
    }
}

/// An address that says something.
pub fn specific(address: Option<SocketAddr>) -> Option<SocketAddr> {
    address.filter(|address| !address.ip().is_unspecified())
}
