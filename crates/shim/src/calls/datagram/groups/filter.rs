//! All sources of a membership at once: `IP_MSFILTER` and `MCAST_MSFILTER` (RFC 3678 §4.1.3, §4.2.2), set and asked
//! for. The engine changes one source after the other; what both lists have is heard all the time.

use core::net::IpAddr;
use std::os::fd::RawFd;

use client::SocketKinds;
use client::engines;
use hostif::MembershipChange;
use rustix::io::Errno;

use super::super::membership::Membership;
use super::{Named, by_address, change_on_engine, concerned, index, on_all, stored_address, v4};
use crate::accelerated;
use crate::calls::device::Device;
use crate::outcome::Switched;
use crate::socket::{EngineIndex, Socket};

/// linux/in.h.
const IP_MSFILTER: i32 = 41;
const MCAST_MSFILTER: i32 = 48;
const MCAST_INCLUDE: u32 = 1;
const MCAST_EXCLUDE: u32 = 0;
/// Sources of one filter at most, as the engine has it (Linux: `mld_max_msf`).
const SOURCES_MAX: usize = 64;

/// How the two structures lie in memory.
struct Form {
    /// Where the mode stands, with the number of sources behind it.
    mode_at: usize,
    source_bytes: usize,
}

/// struct ip_msfilter: group, interface, mode, number, sources.
const OLD: Form = Form {
    mode_at: 8,
    source_bytes: 4,
};
/// struct group_filter: index, group, mode, number, sources.
const NEW: Form = Form {
    mode_at: 136,
    source_bytes: 128,
};

impl Form {
    fn of(level: i32, name: i32) -> Option<&'static Form> {
        match (level, name) {
            (libc::IPPROTO_IP, IP_MSFILTER) => Some(&OLD),
            (libc::IPPROTO_IP | libc::IPPROTO_IPV6, MCAST_MSFILTER) => Some(&NEW),
            _ => None,
        }
    }

    fn is_old(&self) -> bool {
        self.source_bytes == OLD.source_bytes
    }

    const fn head_bytes(&self) -> usize {
        self.mode_at + 8
    }

    fn group(&self, value: &[u8]) -> Option<(IpAddr, Named)> {
        if self.is_old() {
            Some((v4(value, 0)?.into(), by_address(v4(value, 4)?)))
        } else {
            Some((stored_address(value, 8)?, index(value, 0)?))
        }
    }

    fn number(value: &[u8], at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*value.get(at..)?.first_chunk()?))
    }

    fn source(&self, value: &[u8], n: usize) -> Option<IpAddr> {
        let at = self.head_bytes() + n * self.source_bytes;
        if self.is_old() {
            Some(v4(value, at)?.into())
        } else {
            stored_address(value, at)
        }
    }

    fn put_source(&self, source: IpAddr, to: &mut Vec<u8>) {
        let start = to.len();
        match (self.is_old(), source) {
            (true, IpAddr::V4(source)) => to.extend_from_slice(&source.octets()),
            _ => {
                let name = client::address::emit(
                    (source, 0).into(),
                    client::address::family((source, 0).into()),
                    0,
                );
                to.extend_from_slice(name.as_bytes());
            }
        }
        to.resize(start + self.source_bytes, 0);
    }
}

/// Whether the option is about all sources at once.
pub fn is_filter(level: i32, name: i32) -> bool {
    Form::of(level, name).is_some()
}

/// What a program asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    group: IpAddr,
    named: Named,
    excludes: bool,
    sources: Vec<IpAddr>,
}

fn parse(form: &Form, value: &[u8]) -> Result<Wanted, Errno> {
    let (group, named) = form.group(value).ok_or(Errno::INVAL)?;
    let mode = Form::number(value, form.mode_at).ok_or(Errno::INVAL)?;
    let count = Form::number(value, form.mode_at + 4).ok_or(Errno::INVAL)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > SOURCES_MAX {
        return Err(Errno::NOBUFS);
    }
    if value.len() < form.head_bytes() + count * form.source_bytes
        || !matches!(mode, MCAST_INCLUDE | MCAST_EXCLUDE)
        || !group.is_multicast()
    {
        return Err(Errno::INVAL);
    }
    let mut sources: Vec<IpAddr> = (0..count)
        .map(|n| form.source(value, n))
        .collect::<Option<_>>()
        .ok_or(Errno::ADDRNOTAVAIL)?;
    sources.sort_unstable();
    sources.dedup();
    Ok(Wanted {
        group,
        named,
        excludes: mode == MCAST_EXCLUDE,
        sources,
    })
}

/// setsockopt(2); `None`: it is no such option, or the kernel's alone.
pub fn set(fd: RawFd, socket: &Socket, level: i32, name: i32, value: &[u8]) -> Switched<i32> {
    let Some(form) = Form::of(level, name) else {
        return Ok(None);
    };
    let wanted = parse(form, value)?;
    let all = accelerated::datagram_networks();
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
    let all = accelerated::datagram_networks();
    let serving = engines::serving(SocketKinds::DATAGRAM, &all);
    let known = match concerned(named, &all) {
        Device::Kernel | Device::Loopback(_) => None,
        Device::Engine(place) => known(socket, group, engines::first_on_link(place, serving, &all)),
        Device::Any => serving.iter().find_map(|place| known(socket, group, place)),
    };
    let Some((excludes, sources)) = known else {
        return Ok(None);
    };
    let room = Form::number(asked, form.mode_at + 4).ok_or(Errno::INVAL)?;
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let mode = if excludes {
        MCAST_EXCLUDE
    } else {
        MCAST_INCLUDE
    };
    let count = u32::try_from(sources.len()).unwrap_or(u32::MAX);
    let mut answer = asked[..form.mode_at].to_vec();
    answer.extend_from_slice(&mode.to_ne_bytes());
    answer.extend_from_slice(&count.to_ne_bytes());
    for source in sources.into_iter().take(room) {
        form.put_source(source, &mut answer);
    }
    Ok(Some(answer))
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
    use super::*;

    fn old(mode: u32, count: u32, sources: &[[u8; 4]]) -> Vec<u8> {
        let head = [[239, 1, 2, 3], [10, 0, 0, 2]].concat();
        let numbers = [mode.to_ne_bytes(), count.to_ne_bytes()].concat();
        [head, numbers, sources.concat()].concat()
    }

    #[test]
    fn both_forms_of_a_filter_are_understood() {
        let value = old(MCAST_EXCLUDE, 2, &[[10, 0, 0, 9], [10, 0, 0, 8]]);
        let wanted = parse(&OLD, &value).unwrap();
        assert!(wanted.excludes);
        assert_eq!(
            wanted.sources,
            [IpAddr::from([10, 0, 0, 8]), IpAddr::from([10, 0, 0, 9])]
        );
        let mut value = vec![0; 272];
        value[..4].copy_from_slice(&7_u32.to_ne_bytes());
        for (at, last) in [(8, 0x10_u8), (144, 9)] {
            value[at..at + 2].copy_from_slice(&10_u16.to_ne_bytes());
            value[at + 8] = if at == 8 { 0xff } else { 0xfd };
            value[at + 23] = last;
        }
        value[136] = 1;
        value[140] = 1;
        let wanted = parse(&NEW, &value).unwrap();
        assert_eq!((wanted.named, wanted.excludes), (Named::Index(7), false));
        assert_eq!(wanted.sources, ["fd00::9".parse::<IpAddr>().unwrap()]);
        let mut again = Vec::new();
        NEW.put_source(wanted.sources[0], &mut again);
        assert_eq!(again, value[144..]);
    }

    #[test]
    fn what_cannot_be_a_filter_is_refused() {
        let refused = |value: &[u8]| parse(&OLD, value).unwrap_err();
        assert_eq!(refused(&old(2, 0, &[])), Errno::INVAL);
        assert_eq!(refused(&old(0, 1, &[])), Errno::INVAL, "cut");
        assert_eq!(refused(&old(0, 65, &[])), Errno::NOBUFS);
        assert_eq!(refused(&old(0, u32::MAX, &[])), Errno::NOBUFS);
        assert_eq!(refused(&old(0, 0, &[])[..15]), Errno::INVAL);
    }

    #[test]
    fn a_list_replaces_the_one_before() {
        let socket = Socket::datagram(client::address::Family::V4);
        let hears = || known(&socket, IpAddr::from([239, 1, 2, 3]), EngineIndex::FIRST);
        let set = |mode, sources: &[[u8; 4]]| {
            let count = u32::try_from(sources.len()).unwrap();
            change(
                &socket,
                &parse(&OLD, &old(mode, count, sources)).unwrap(),
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
