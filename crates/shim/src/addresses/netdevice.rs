//! SIOCGIFCONF and the questions for one interface's address (netdevice(7)): what the kernel has answered, and the engines'
//! addresses with it.

use std::ffi::{c_int, c_ulong, c_void};
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr};

use libc::{ifconf, ifreq, sockaddr_in};
use rustix::io::Errno;

use super::{Own, netlink, own};
use crate::outcome::Switched;
use crate::policy::policy;
use crate::sys::{self, Inside};

/// Bytes of an interface's name, with the NUL at its end, which an `ifreq` begins with.
const NAME: usize = libc::IFNAMSIZ;

/// Whether a program's request is for addresses of IPv4, and the engines' have to be looked at after the kernel's answer.
pub fn is_asked(request: c_ulong) -> bool {
    let is_for_addresses = matches!(
        request,
        libc::SIOCGIFCONF | libc::SIOCGIFADDR | libc::SIOCGIFNETMASK | libc::SIOCGIFBRDADDR
    );
    is_for_addresses && !Inside::is_active() && policy().may_accelerate()
}

/// The room that a program has for a list, before the kernel is asked: it writes there what it has used.
pub fn room(request: c_ulong, argument: *const c_void) -> Option<c_int> {
    (request == libc::SIOCGIFCONF)
        .then(|| int_at(&sys::copied(argument, size_of::<ifconf>())?))
        .flatten()
}

/// What a program gets whom the kernel has answered with `result` and `errno`, if that is something else; `room` is what it
/// had for a list.
pub fn answered(
    fd: c_int,
    request: c_ulong,
    argument: *mut c_void,
    room: Option<c_int>,
    (result, errno): (c_int, c_int),
) -> Switched<c_int> {
    let socket = sys::borrow(fd)?;
    if let Some(room) = room {
        return if result == 0 {
            append(&own(socket), argument, room)
        } else {
            Ok(None)
        };
    }
    if result == 0 || errno != Errno::ADDRNOTAVAIL.raw_os_error() {
        return Ok(None);
    }
    let asked = sys::copied(argument, NAME).ok_or(Errno::FAULT)?;
    let name = asked.split(|byte| *byte == 0).next().unwrap_or_default();
    let all = own(socket);
    let mut of_name = all.iter().filter(|own| own.name.as_bytes() == name);
    let Some((address, prefix_len)) = of_name.find_map(four) else {
        return Ok(None);
    };
    let mask = u32::MAX
        .checked_shl(32 - u32::from(prefix_len))
        .unwrap_or(0);
    let value = match request {
        libc::SIOCGIFADDR => address,
        libc::SIOCGIFNETMASK => Ipv4Addr::from_bits(mask),
        _ => netlink::broadcast(address, prefix_len).unwrap_or(Ipv4Addr::UNSPECIFIED),
    };
    let place = argument.wrapping_byte_add(offset_of!(ifreq, ifr_ifru));
    sys::copy_out(place, &name_of(value))?;
    Ok(Some(0))
}

/// The kernel has filled the list in, which had this room; without a place it says how much the list needs.
fn append(all: &[Own], list: *mut c_void, room: c_int) -> Switched<c_int> {
    let bytes = sys::copied(list, size_of::<ifconf>()).ok_or(Errno::FAULT)?;
    let mut used = int_at(&bytes)
        .and_then(|used| usize::try_from(used).ok())
        .unwrap_or(0);
    let room = usize::try_from(room).unwrap_or(0);
    let start = bytes[offset_of!(ifconf, ifc_ifcu)..].first_chunk();
    let start = start.map_or(0, |bytes| usize::from_ne_bytes(*bytes));
    for own in all {
        let Some((address, _)) = four(own) else {
            continue;
        };
        if start != 0 {
            if room.saturating_sub(used) < size_of::<ifreq>() {
                break;
            }
            let mut entry = [0; size_of::<ifreq>()];
            for (place, byte) in entry.iter_mut().zip(own.name.bytes().take(NAME - 1)) {
                *place = byte;
            }
            let name = name_of(address);
            entry[NAME..NAME + name.len()].copy_from_slice(&name);
            let place = std::ptr::with_exposed_provenance_mut::<c_void>(start.wrapping_add(used));
            sys::copy_out(place, &entry)?;
        }
        used += size_of::<ifreq>();
    }
    let used = c_int::try_from(used).unwrap_or(c_int::MAX);
    sys::copy_out(list, &used.to_ne_bytes())?;
    Ok(Some(0))
}

/// `ifc_len`, with which an `ifconf` begins.
fn int_at(bytes: &[u8]) -> Option<c_int> {
    bytes
        .first_chunk()
        .map(|bytes| c_int::from_ne_bytes(*bytes))
}

fn four(own: &Own) -> Option<(Ipv4Addr, u8)> {
    match own.address {
        IpAddr::V4(address) => Some((address, own.prefix_len)),
        IpAddr::V6(_) => None,
    }
}

/// A `sockaddr_in` without a port.
fn name_of(address: Ipv4Addr) -> [u8; size_of::<sockaddr_in>()] {
    let mut name = [0; size_of::<sockaddr_in>()];
    let family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0);
    name[..2].copy_from_slice(&family.to_ne_bytes());
    name[4..8].copy_from_slice(&address.octets());
    name
}
