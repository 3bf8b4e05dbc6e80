//! Multicast options of UDP sockets (ip(7)): on which stack a group is joined, and by which one datagrams
//! to groups leave.
//!
//! An option that names an address of the engine concerns the engine alone, one that names another the
//! kernel alone, and one that names none both: then it is enough that one of them can do it. What is
//! joined before a socket is on an engine is joined there when it comes to it.

use core::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::accelerated;
use crate::outcome::Switched;
use crate::socket::Socket;
use crate::sys;

/// linux/in.h; MCAST_JOIN_GROUP and its kin are not in the C library's bindings for every target.
const MCAST_JOIN_GROUP: i32 = 42;
const MCAST_LEAVE_GROUP: i32 = 45;
const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;

/// A group that a socket is in, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub group: IpAddr,
    /// The only source, if one was named.
    pub source: Option<IpAddr>,
}

/// Which stacks an option concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concerned {
    Kernel,
    Engine,
    Both,
}

/// An option as it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Member {
        join: bool,
        membership: Membership,
        /// Unspecified: none was named.
        interface: Ipv4Addr,
    },
    /// IP_MULTICAST_IF.
    Interface(Ipv4Addr),
}

/// setsockopt(2) of a multicast option; `None`: it is no such option, or the kernel's alone.
pub fn set(fd: RawFd, socket: &Socket, level: i32, name: i32, value: &[u8]) -> Switched<i32> {
    let Some(change) = parse(level, name, value) else {
        return Ok(None);
    };
    match change {
        Change::Interface(address) => {
            let is_engines = concerned(address) == Concerned::Engine;
            socket.set_engine_multicast(is_engines);
            Ok(is_engines.then_some(0))
        }
        Change::Member {
            join,
            membership,
            interface,
        } => {
            let engine = || change_on_engine(socket, join, membership);
            match concerned(interface) {
                Concerned::Kernel => Ok(None),
                Concerned::Engine => engine().map(|()| Some(0)),
                Concerned::Both => {
                    let kernel = sys::set_option(fd, level, name, value);
                    match (kernel, engine()) {
                        (Ok(()), _) | (_, Ok(())) => Ok(Some(0)),
                        (Err(error), Err(_)) => Err(error),
                    }
                }
            }
        }
    }
}

fn concerned(address: Ipv4Addr) -> Concerned {
    let networks = accelerated::networks();
    let mut own = networks.interfaces.iter().map(|network| network.address);
    if address.is_unspecified() {
        Concerned::Both
    } else if own.any(|one| one == IpAddr::V4(address)) {
        Concerned::Engine
    } else {
        Concerned::Kernel
    }
}

fn change_on_engine(socket: &Socket, join: bool, membership: Membership) -> Result<(), Errno> {
    if let Some(stream) = socket.stream() {
        stream.change_membership(join, membership.group, membership.source)?;
    } else if socket.memberships().contains(&membership) == join {
        return Err(if join {
            Errno::ADDRINUSE
        } else {
            Errno::ADDRNOTAVAIL
        });
    }
    socket.note_membership(join, membership);
    Ok(())
}

fn parse(level: i32, name: i32, value: &[u8]) -> Option<Change> {
    if level != libc::IPPROTO_IP {
        return None;
    }
    let v4 = |at: usize| {
        let bytes = value.get(at..)?.first_chunk::<4>()?;
        Some(Ipv4Addr::from(*bytes))
    };
    let member = |join, group: Ipv4Addr, source: Option<Ipv4Addr>, interface| Change::Member {
        join,
        membership: Membership {
            group: IpAddr::V4(group),
            source: source.map(IpAddr::V4),
        },
        interface,
    };
    // A sockaddr_in in a sockaddr_storage, which begins after the interface's number and its padding.
    let in_storage = |at: usize| {
        let family = value.get(at..)?.first_chunk::<2>()?;
        let is_v4 = i32::from(u16::from_ne_bytes(*family)) == libc::AF_INET;
        is_v4.then(|| v4(at + 4)).flatten()
    };
    let none = Ipv4Addr::UNSPECIFIED;
    match name {
        // struct in_addr, ip_mreq, ip_mreqn.
        libc::IP_MULTICAST_IF if value.len() >= 8 => Some(Change::Interface(v4(4)?)),
        libc::IP_MULTICAST_IF => Some(Change::Interface(v4(0)?)),
        libc::IP_ADD_MEMBERSHIP => Some(member(true, v4(0)?, None, v4(4)?)),
        libc::IP_DROP_MEMBERSHIP => Some(member(false, v4(0)?, None, v4(4)?)),
        // struct ip_mreq_source: group, interface, source.
        libc::IP_ADD_SOURCE_MEMBERSHIP => Some(member(true, v4(0)?, Some(v4(8)?), v4(4)?)),
        libc::IP_DROP_SOURCE_MEMBERSHIP => Some(member(false, v4(0)?, Some(v4(8)?), v4(4)?)),
        MCAST_JOIN_GROUP => Some(member(true, in_storage(8)?, None, none)),
        MCAST_LEAVE_GROUP => Some(member(false, in_storage(8)?, None, none)),
        MCAST_JOIN_SOURCE_GROUP => Some(member(true, in_storage(8)?, Some(in_storage(136)?), none)),
        MCAST_LEAVE_SOURCE_GROUP => {
            Some(member(false, in_storage(8)?, Some(in_storage(136)?), none))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: [u8; 4] = [239, 1, 2, 3];

    fn change(join: bool, source: Option<[u8; 4]>, interface: [u8; 4]) -> Change {
        Change::Member {
            join,
            membership: Membership {
                group: IpAddr::from(GROUP),
                source: source.map(IpAddr::from),
            },
            interface: interface.into(),
        }
    }

    #[test]
    fn all_ways_to_name_a_group_are_understood() {
        let (own, source) = ([10, 0, 0, 2], [10, 0, 0, 9]);
        let ip = libc::IPPROTO_IP;
        let plain = [GROUP, own].concat();
        assert_eq!(
            parse(ip, libc::IP_ADD_MEMBERSHIP, &plain),
            Some(change(true, None, own))
        );
        let of_source = [GROUP, own, source].concat();
        assert_eq!(
            parse(ip, libc::IP_DROP_SOURCE_MEMBERSHIP, &of_source),
            Some(change(false, Some(source), own))
        );
        let mut request = vec![0; 264];
        for (at, address) in [(8, GROUP), (136, source)] {
            request[at..at + 2].copy_from_slice(&2_u16.to_ne_bytes());
            request[at + 4..at + 8].copy_from_slice(&address);
        }
        assert_eq!(
            parse(ip, MCAST_JOIN_SOURCE_GROUP, &request),
            Some(change(true, Some(source), [0; 4]))
        );
        assert_eq!(
            parse(ip, MCAST_LEAVE_GROUP, &request[..136]),
            Some(change(false, None, [0; 4]))
        );
        assert_eq!(
            parse(ip, libc::IP_MULTICAST_IF, &own),
            Some(Change::Interface(own.into()))
        );
        assert_eq!(parse(ip, libc::IP_ADD_MEMBERSHIP, &plain[..7]), None);
    }
}
