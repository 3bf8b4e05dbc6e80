//! All sources of a membership at once: `IP_MSFILTER` and `MCAST_MSFILTER` (RFC 3678 §4.1.3, §4.2.2).

use core::net::IpAddr;

use rustix::io::Errno;

use super::{Named, by_address, index, stored_address, v4};

/// linux/in.h.
pub const IP_MSFILTER: i32 = 41;
/// linux/in.h, of both families.
pub const MCAST_MSFILTER: i32 = 48;
/// These sources alone are heard.
pub const MCAST_INCLUDE: u32 = 1;
/// Everybody but these sources is heard.
pub const MCAST_EXCLUDE: u32 = 0;
/// Sources of one filter at most, as the engine has it (Linux: `mld_max_msf`).
pub const SOURCES_MAX: usize = 64;

/// How the two structures lie in memory.
pub struct Form {
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
    /// The form of an option's value; `None`: it is no such option.
    pub fn of(level: i32, name: i32) -> Option<&'static Form> {
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

    /// The group that a value names, and the interface.
    pub fn group(&self, value: &[u8]) -> Option<(IpAddr, Named)> {
        if self.is_old() {
            Some((v4(value, 0)?.into(), by_address(v4(value, 4)?)))
        } else {
            Some((stored_address(value, 8)?, index(value, 0)?))
        }
    }

    pub(crate) fn number(value: &[u8], at: usize) -> Option<u32> {
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

    pub(crate) fn put_source(&self, source: IpAddr, to: &mut Vec<u8>) {
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
pub struct Wanted {
    /// The group.
    pub group: IpAddr,
    /// The interface.
    pub named: Named,
    /// All sources but these are received from, and not only these.
    pub excludes: bool,
    /// The sources, each once.
    pub sources: Vec<IpAddr>,
}

/// What a value asks for.
pub fn parse(form: &Form, value: &[u8]) -> Result<Wanted, Errno> {
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

/// The answer for who asks with the head of a structure: which sources are received from, as far as `room` goes.
pub fn answer(
    form: &Form,
    asked: &[u8],
    (excludes, sources): (bool, Vec<IpAddr>),
) -> Result<Vec<u8>, Errno> {
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
    Ok(answer)
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
}
