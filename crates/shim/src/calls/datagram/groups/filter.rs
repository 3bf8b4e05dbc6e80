//! All sources of a membership at once: `IP_MSFILTER` and `MCAST_MSFILTER` (RFC 3678 §4.1.3, §4.2.2), set and asked
//! for. The engine changes one source after the other; what both lists have is heard all the time.

use core::net::IpAddr;
use std::os::fd::RawFd;

use client::SocketKinds;
use client::engines;
use hostif::MembershipChange;
use rustix::io::Errno;

use super::{change_on_engine, concerned, on_all};
use crate::outcome::Switched;
use crate::socket::{EngineIndex, Socket};
use switch::attached;
use switch::device::Device;
use switch::groups::Membership;
use switch::groups::filter::{Form, SOURCES_MAX, Wanted, answer, parse};

/// setsockopt(2); `None`: it is no such option, or the kernel's alone.
pub fn set(fd: RawFd, socket: &Socket, level: i32, name: i32, value: &[u8]) -> Switched<i32> {
    let Some(form) = Form::of(level, name) else {
        return Ok(None);
    };
    let wanted = parse(form, value)?;
    let all = attached::datagram_networks();
    match concerned(wanted.named, &all) {
        Device::Kernel => Ok(None),
        device => on_all(
            device,
            (&all, true),
            (fd, level, name, value),
            &mut |place| change(socket, &wanted, place),
        ),
    }
}

/// getsockopt(2) with what the program has put into the place for the answer.
pub fn ask(socket: &Socket, level: i32, name: i32, asked: &[u8]) -> Switched<Vec<u8>> {
    let Some(form) = Form::of(level, name) else {
        return Ok(None);
    };
    let Some((group, named)) = form.group(asked) else {
        return Ok(None);
    };
    let all = attached::datagram_networks();
    let serving = engines::serving(SocketKinds::DATAGRAM, &all);
    let known = match concerned(named, &all) {
        Device::Kernel | Device::Loopback(_) => None,
        Device::Engine(place) => known(socket, group, engines::first_on_link(place, serving, &all)),
        Device::Any => serving.iter().find_map(|place| known(socket, group, place)),
    };
    known.map(|known| answer(form, asked, known)).transpose()
}

/// What the socket hears of a group on an engine: everybody but these, or only these.
fn known(socket: &Socket, group: IpAddr, place: EngineIndex) -> Option<(bool, Vec<IpAddr>)> {
    let memberships = socket.memberships();
    let of_group = || {
        let here = |one: &&Membership| (one.group, one.place) == (group, place);
        memberships.iter().filter(here)
    };
    of_group().next()?;
    let sources = of_group().filter_map(|one| one.source).collect();
    Some((of_group().any(|one| one.source.is_none()), sources))
}

fn change(socket: &Socket, wanted: &Wanted, place: EngineIndex) -> Result<(), Errno> {
    use MembershipChange::{Block, Join, Leave, Unblock};
    let one = |change, source| {
        let membership = Membership {
            group: wanted.group,
            source,
            place,
            is_blocked: matches!(change, Block | Unblock),
        };
        change_on_engine(socket, change, membership)
    };
    // Including nobody is leaving (`ip_mc_msfilter`).
    if !wanted.excludes && wanted.sources.is_empty() {
        return one(Leave, None);
    }
    let (excludes, mut before) = known(socket, wanted.group, place).ok_or(Errno::INVAL)?;
    let (add, take) = if wanted.excludes {
        (Block, Unblock)
    } else {
        (Join, Leave)
    };
    let is_new = |source: &&IpAddr| !before.contains(source);
    let new: Vec<IpAddr> = wanted.sources.iter().filter(is_new).copied().collect();
    if excludes != wanted.excludes || before.len() + new.len() > SOURCES_MAX {
        one(Leave, None)?;
        if wanted.excludes {
            one(Join, None)?;
        }
        let all = wanted.sources.iter();
        return all.copied().try_for_each(|source| one(add, Some(source)));
    }
    new.into_iter()
        .try_for_each(|source| one(add, Some(source)))?;
    before.retain(|source| !wanted.sources.contains(source));
    before
        .into_iter()
        .try_for_each(|source| one(take, Some(source)))
}

#[cfg(test)]
mod tests {
    use switch::groups::filter::{IP_MSFILTER, MCAST_EXCLUDE, MCAST_INCLUDE};

    use super::*;

    fn old(mode: u32, count: u32, sources: &[[u8; 4]]) -> Vec<u8> {
        let head = [[239, 1, 2, 3], [10, 0, 0, 2]].concat();
        let numbers = [mode.to_ne_bytes(), count.to_ne_bytes()].concat();
        [head, numbers, sources.concat()].concat()
    }

    #[test]
    fn a_list_replaces_the_one_before() {
        let socket = Socket::datagram(client::address::Family::V4);
        let hears = || known(&socket, IpAddr::from([239, 1, 2, 3]), EngineIndex::FIRST);
        let form = Form::of(libc::IPPROTO_IP, IP_MSFILTER).unwrap();
        let set = |mode, sources: &[[u8; 4]]| {
            let count = u32::try_from(sources.len()).unwrap();
            change(
                &socket,
                &parse(form, &old(mode, count, sources)).unwrap(),
                EngineIndex::FIRST,
            )
        };
        let [a, b, c] = [[10, 0, 0, 7], [10, 0, 0, 8], [10, 0, 0, 9]];
        let listed = |sources: &[[u8; 4]]| -> Vec<IpAddr> {
            sources.iter().map(|one| IpAddr::from(*one)).collect()
        };
        assert_eq!(set(MCAST_EXCLUDE, &[a]), Err(Errno::INVAL), "no member");
        assert_eq!(set(MCAST_INCLUDE, &[]), Err(Errno::ADDRNOTAVAIL));
        let whole = Membership {
            group: IpAddr::from([239, 1, 2, 3]),
            source: None,
            place: EngineIndex::FIRST,
            is_blocked: false,
        };
        change_on_engine(&socket, MembershipChange::Join, whole).unwrap();
        for (mode, sources) in [
            (MCAST_EXCLUDE, &[a, b][..]),
            (MCAST_EXCLUDE, &[b, c]),
            (MCAST_INCLUDE, &[a]),
            (MCAST_INCLUDE, &[a, c]),
            (MCAST_EXCLUDE, &[]),
        ] {
            set(mode, sources).unwrap();
            let (excludes, mut heard) = hears().unwrap();
            heard.sort_unstable();
            assert_eq!((excludes, heard), (mode == MCAST_EXCLUDE, listed(sources)));
        }
        set(MCAST_INCLUDE, &[]).unwrap();
        assert_eq!(hears(), None, "left");
    }
}
