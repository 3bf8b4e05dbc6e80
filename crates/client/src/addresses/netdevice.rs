//! SIOCGIFCONF and the questions for one interface's address (netdevice(7)), in the kernel's structures.

use core::net::{IpAddr, Ipv4Addr};

use libc::{ifreq, sockaddr_in};

use super::{Own, netlink};

/// Bytes of an interface's name, with the NUL at its end, which an `ifreq` begins with.
pub const NAME: usize = libc::IFNAMSIZ;
/// Bytes of an entry of a list.
pub const ENTRY: usize = size_of::<ifreq>();
/// Bytes of an address.
pub const ADDRESS: usize = size_of::<sockaddr_in>();

/// Whether a request of ioctl(2) is for addresses of IPv4, and the engines' have to be looked at after the kernel's answer.
#[must_use]
pub fn is_asked(request: libc::c_ulong) -> bool {
    matches!(
        request,
        libc::SIOCGIFCONF | libc::SIOCGIFADDR | libc::SIOCGIFNETMASK | libc::SIOCGIFBRDADDR
    )
}

/// What a question for one interface is answered with; `None`: no engine has an address there. `asked` begins with
/// the interface's name.
#[must_use]
pub fn answer(request: libc::c_ulong, asked: &[u8], all: &[Own]) -> Option<[u8; ADDRESS]> {
    let asked = &asked[..asked.len().min(NAME)];
    let name = asked.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut of_name = all.iter().filter(|own| own.name.as_bytes() == name);
    let (address, prefix_len) = of_name.find_map(four)?;
    let mask = u32::MAX
        .checked_shl(32 - u32::from(prefix_len))
        .unwrap_or(0);
    let value = match request {
        libc::SIOCGIFADDR => address,
        libc::SIOCGIFNETMASK => Ipv4Addr::from_bits(mask),
        _ => netlink::broadcast(address, prefix_len).unwrap_or(Ipv4Addr::UNSPECIFIED),
    };
    Some(name_of(value))
}

/// The entries of a list, which stand behind the kernel's.
pub fn entries(all: &[Own]) -> impl Iterator<Item = [u8; ENTRY]> {
    all.iter().filter_map(|own| {
        let (address, _) = four(own)?;
        let mut entry = [0; ENTRY];
        for (place, byte) in entry.iter_mut().zip(own.name.bytes().take(NAME - 1)) {
            *place = byte;
        }
        entry[NAME..NAME + ADDRESS].copy_from_slice(&name_of(address));
        Some(entry)
    })
}

fn four(own: &Own) -> Option<(Ipv4Addr, u8)> {
    match own.address {
        IpAddr::V4(address) => Some((address, own.prefix_len)),
        IpAddr::V6(_) => None,
    }
}

/// A `sockaddr_in` without a port.
fn name_of(address: Ipv4Addr) -> [u8; ADDRESS] {
    let mut name = [0; ADDRESS];
    let family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0);
    name[..2].copy_from_slice(&family.to_ne_bytes());
    name[4..8].copy_from_slice(&address.octets());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_asked_for_by_its_name() {
        let own = |name: &str, address: &str| Own {
            index: 3,
            name: name.to_owned(),
            address: address.parse().unwrap(),
            prefix_len: 24,
        };
        let all = [own("eth0", "fe80::9"), own("eth0", "10.0.0.9")];
        let told = |request, name: &[u8]| {
            let told = answer(request, name, &all)?;
            Some([told[4], told[5], told[6], told[7]])
        };
        assert_eq!(told(libc::SIOCGIFADDR, b"eth0\0x"), Some([10, 0, 0, 9]));
        let mask = told(libc::SIOCGIFNETMASK, b"eth0");
        assert_eq!(mask, Some([255, 255, 255, 0]));
        let broadcast = told(libc::SIOCGIFBRDADDR, b"eth0");
        assert_eq!(broadcast, Some([10, 0, 0, 255]));
        assert_eq!(told(libc::SIOCGIFADDR, b"eth"), None);
        assert_eq!(told(libc::SIOCGIFADDR, b"eth0:1"), None);
        let listed: Vec<_> = entries(&all).collect();
        assert_eq!(listed.len(), 1, "IPv6 has no place there");
        assert_eq!(listed[0][..5], *b"eth0\0");
        assert_eq!(listed[0][NAME + 4..NAME + 8], [10, 0, 0, 9]);
    }
}
