//! SIOCGIFCONF and the questions for one interface's address (netdevice(7)): what the kernel has answered, and the engines'
//! addresses with it.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_ulong, c_void};
use std::net::{IpAddr, Ipv4Addr};

use libc::{ifconf, ifreq, sockaddr, sockaddr_in};
use rustix::io::Errno;

use super::{Own, netlink, own};
use crate::sys;

/// Whether a request is for addresses of IPv4, and the engines' have to be looked at after the kernel's answer.
pub fn is_asked(request: c_ulong) -> bool {
    matches!(
        request,
        libc::SIOCGIFCONF | libc::SIOCGIFADDR | libc::SIOCGIFNETMASK | libc::SIOCGIFBRDADDR
    )
}

/// What a program gets whom the kernel has answered `result`; `room` is what it had for a list.
///
/// # Safety
/// `argument` is valid for the request, which the kernel has served.
pub unsafe fn answered(
    fd: c_int,
    request: c_ulong,
    argument: *mut c_void,
    room: Option<c_int>,
    result: c_int,
) -> c_int {
    let errno = sys::errno();
    let Ok(socket) = sys::borrow(fd) else {
        return result;
    };
    if request == libc::SIOCGIFCONF {
        if result == 0 {
            // SAFETY: the caller's contract.
            unsafe { append(&own(socket), &mut *argument.cast(), room.unwrap_or(0)) };
        }
        return result;
    }
    if result == 0 || errno != Errno::ADDRNOTAVAIL.raw_os_error() {
        sys::set_errno(errno);
        return result;
    }
    // SAFETY: the caller's contract.
    let asked = unsafe { &mut *argument.cast::<ifreq>() };
    let name: Vec<u8> = asked
        .ifr_name
        .iter()
        .map(|byte| byte.cast_unsigned())
        .collect();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let all = own(socket);
    let mut of_name = all.iter().filter(|own| own.name.as_bytes() == name);
    let Some((address, prefix_len)) = of_name.find_map(four) else {
        sys::set_errno(errno);
        return result;
    };
    let mask = u32::MAX
        .checked_shl(32 - u32::from(prefix_len))
        .unwrap_or(0);
    let value = match request {
        libc::SIOCGIFADDR => address,
        libc::SIOCGIFNETMASK => Ipv4Addr::from_bits(mask),
        _ => netlink::broadcast(address, prefix_len).unwrap_or(Ipv4Addr::UNSPECIFIED),
    };
    asked.ifr_ifru.ifru_addr = name_of(value);
    0
}

/// What a program has room for, before the kernel is asked: it writes there what it has used.
///
/// # Safety
/// `argument` is null or valid for the request.
pub unsafe fn room(request: c_ulong, argument: *const c_void) -> Option<c_int> {
    // SAFETY: the caller's contract.
    let asked =
        (request == libc::SIOCGIFCONF).then(|| unsafe { sys::optional(argument.cast::<ifconf>()) });
    asked.flatten().map(|asked| asked.ifc_len)
}

/// # Safety
/// The kernel has filled the list in, which had this room.
unsafe fn append(all: &[Own], list: &mut ifconf, room: c_int) {
    let bytes = c_int::try_from(size_of::<ifreq>()).unwrap_or(c_int::MAX);
    // SAFETY: both of the union are pointers.
    let start = unsafe { list.ifc_ifcu.ifcu_buf };
    for own in all {
        let Some((address, _)) = four(own) else {
            continue;
        };
        let used = list.ifc_len;
        if !start.is_null() {
            if room.saturating_sub(used) < bytes {
                return;
            }
            // SAFETY: all bytes zero are an `ifreq`.
            let mut entry: ifreq = unsafe { std::mem::zeroed() };
            for (place, byte) in entry.ifr_name.iter_mut().zip(own.name.bytes().take(15)) {
                *place = byte.cast_signed();
            }
            entry.ifr_ifru.ifru_addr = name_of(address);
            // SAFETY: within the room that the program has; the kernel has used less.
            unsafe {
                start
                    .add(usize::try_from(used).unwrap_or(0))
                    .cast::<ifreq>()
                    .write_unaligned(entry);
            }
        }
        list.ifc_len = used.saturating_add(bytes);
    }
}

fn four(own: &Own) -> Option<(Ipv4Addr, u8)> {
    match own.address {
        IpAddr::V4(address) => Some((address, own.prefix_len)),
        IpAddr::V6(_) => None,
    }
}

fn name_of(address: Ipv4Addr) -> sockaddr {
    let name = sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0),
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: both are 16 plain bytes.
    unsafe { std::mem::transmute::<sockaddr_in, sockaddr>(name) }
}
