//! SIOCGIFCONF and the questions for one interface's address (netdevice(7)): what the kernel has answered, and the engines'
//! addresses with it.

use std::ffi::{c_int, c_ulong, c_void};
use std::mem::offset_of;

use client::addresses::Own;
use client::addresses::netdevice::{self, ENTRY, NAME};
use libc::{ifconf, ifreq};
use rustix::io::Errno;

use super::own;
use crate::outcome::Switched;
use crate::policy::policy;
use crate::sys::{self, Inside};

/// Whether a program's request is for addresses of IPv4, and the engines' have to be looked at after the kernel's answer.
pub fn is_asked(request: c_ulong) -> bool {
    netdevice::is_asked(request) && !Inside::is_active() && policy().may_accelerate()
}

/// The bytes that a program's buffer for a list has, before the kernel is asked: it writes there what it has used.
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
    let Some(value) = netdevice::answer(request, &asked, &own(socket)) else {
        return Ok(None);
    };
    let place = argument.wrapping_byte_add(offset_of!(ifreq, ifr_ifru));
    sys::copy_out(place, &value)?;
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
    for entry in netdevice::entries(all) {
        if start != 0 {
            if room.saturating_sub(used) < ENTRY {
                break;
            }
            let place = std::ptr::with_exposed_provenance_mut::<c_void>(start.wrapping_add(used));
            sys::copy_out(place, &entry)?;
        }
        used += ENTRY;
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
