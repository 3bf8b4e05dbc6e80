//! Multicast options of UDP sockets (ip(7), ipv6(7), RFC 3493 §5.2, RFC 3678): on which stack a group is
//! joined, and by which one datagrams to groups leave.
//!
//! An option that names an address or an interface of an engine concerns that engine alone, one that names
//! another the kernel alone, and one that names none all of them: then it is enough that one can do it.
//! Of several engines on one link the first joins, so that nothing comes twice.
//! What is joined before a socket is on an engine is joined there when it comes to it.

mod filter;

use core::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use client::engines::{self, AllNetworks};
use client::{Sharing, SocketKinds};
use hostif::MembershipChange;
use rustix::io::Errno;

use crate::outcome::Switched;
use crate::socket::{EngineIndex, Socket};
use client::route::EngineNetworks;
use switch::attached;
use switch::backing;
use switch::device::Device;
use switch::groups::{Change, Membership, Named, parse};

pub use filter::ask;

/// setsockopt(2) of a multicast option; `None`: it is no such option, or the kernel's alone.
pub fn set(fd: RawFd, socket: &Socket, level: i32, name: i32, value: &[u8]) -> Switched<i32> {
    let Some(change) = parse(level, name, value) else {
        return filter::set(fd, socket, level, name, value);
    };
    if matches!(change, Change::Member { group, .. } if !group.is_multicast()) {
        // The kernel says what is wrong with it.
        return Ok(None);
    }
    let all = attached::datagram_networks();
    match change {
        Change::Interface(family, named) => {
            let device = concerned(named, &all);
            // Where the engine's interface is one of the kernel's too, getsockopt answers with it.
            let kernel = backing::set_option(fd, level, name, value);
            if !matches!(device, Device::Engine(_)) {
                kernel?;
            }
            socket.set_multicast_device(family, device);
            super::tell(socket);
            Ok(Some(0))
        }
        Change::Member {
            change,
            group,
            source,
            named,
        } => {
            let device = concerned(named, &all);
            if device == Device::Kernel {
                socket.set_hears_kernel_groups();
                if socket.kernel_receives() {
                    super::beside::attach_again(fd, socket)?;
                }
                return Ok(None);
            }
            let comes = matches!(change, MembershipChange::Join | MembershipChange::Block);
            // Every host has a route to all groups of IPv6 on each link.
            let is_reached = !group.is_ipv4() || {
                let group = SocketAddr::new(group, 0);
                !engines::closest_to_group(group, &all).is_empty()
            };
            let call = (fd, level, name, value);
            on_all(device, (&all, is_reached || !comes), call, &mut |place| {
                let membership = Membership {
                    group,
                    source,
                    place,
                    is_blocked: matches!(
                        change,
                        MembershipChange::Block | MembershipChange::Unblock
                    ),
                };
                change_on_engine(socket, change, membership)
            })
        }
    }
}

/// Changes something about a group on an engine, or on all of them and the kernel: then one success is enough. Where no engine
/// reaches the group, and the kernel does not either, it is on no interface that anybody means (`ip_mc_find_dev`).
fn on_all(
    device: Device,
    (all, is_reached): (&AllNetworks, bool),
    (fd, level, name, value): (RawFd, i32, i32, &[u8]),
    change: &mut dyn FnMut(EngineIndex) -> Result<(), Errno>,
) -> Switched<i32> {
    let kernel = || backing::set_option(fd, level, name, value);
    let serving = engines::serving(SocketKinds::DATAGRAM, all);
    if let Device::Engine(place) = device {
        if all
            .get(place.index())
            .is_some_and(|one| one.sharing != Sharing::Owned)
        {
            // It is the kernel that tells the link who listens to what.
            let _ = kernel();
        }
        return change(engines::first_on_link(place, serving, all)).map(|()| Some(0));
    }
    let result = kernel();
    if result == Err(Errno::NODEV) && !is_reached {
        return Err(Errno::NODEV);
    }
    let hears = |place: &EngineIndex| engines::first_on_link(*place, serving, all) == *place;
    let mut is_done = result.is_ok();
    for place in serving.iter().filter(hears) {
        is_done |= change(place).is_ok();
    }
    if is_done {
        Ok(Some(0))
    } else {
        result.map(|()| None)
    }
}

/// Whose interface an option names.
fn concerned(named: Named, all: &AllNetworks) -> Device {
    let place = match named {
        Named::Any => return Device::Any,
        Named::Address(address) => {
            let owns = |one: &Arc<EngineNetworks>| {
                let mut own = one.interfaces.iter().map(|network| network.address);
                own.any(|one| one == IpAddr::V4(address))
            };
            all.iter().position(owns).and_then(EngineIndex::new)
        }
        Named::Index(index) => engines::of_interface(index, all),
    };
    place.map_or(Device::Kernel, Device::Engine)
}

fn change_on_engine(
    socket: &Socket,
    change: MembershipChange,
    membership: Membership,
) -> Result<(), Errno> {
    let comes = matches!(change, MembershipChange::Join | MembershipChange::Block);
    let stream = socket.stream();
    if let Some(stream) = stream.filter(|stream| stream.is_at(membership.place)) {
        stream.change_membership(change, &membership)?;
    } else {
        let known = socket.memberships();
        let whole = Membership {
            source: None,
            is_blocked: false,
            ..membership
        };
        // The kernel's answers.
        if membership.is_blocked && !known.contains(&whole) {
            return Err(Errno::INVAL);
        }
        let is_known = if change == MembershipChange::Leave && membership.source.is_none() {
            let mut groups = known.iter().map(|one| (one.group, one.place));
            groups.any(|one| one == (membership.group, membership.place))
        } else {
            known.contains(&membership)
        };
        if is_known == comes {
            return Err(if change == MembershipChange::Join {
                Errno::ADDRINUSE
            } else {
                Errno::ADDRNOTAVAIL
            });
        }
    }
    socket.note_membership(comes, membership);
    Ok(())
}
