//! The interface ioctls of netdevice(7): MTU, hardware address, flags; and randomness.
//!
//! Names are checked here; which interface is meant is the caller's business.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::NAME_BYTES_MAX;

/// Not in the libc crate; linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    // SAFETY: `ifreq` is plain C data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    Ok(request)
}

fn call(socket: &impl AsFd, operation: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: each operation of this file takes a pointer to one `ifreq`, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), operation, request) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

pub(super) fn mtu(socket: &impl AsFd, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    call(socket, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: after SIOCGIFMTU the union holds `ifru_mtu`.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

pub(super) fn set_mtu(socket: &impl AsFd, name: &str, mtu: u32) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu =
        i32::try_from(mtu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    call(socket, libc::SIOCSIFMTU, &mut request)
}

/// `IFF_UP`.
pub(super) fn is_up(socket: &impl AsFd, name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    call(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: after SIOCGIFFLAGS the union holds `ifru_flags`.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
}

/// The hardware type (`ARPHRD_*`) and the first six bytes of the address.
pub(super) fn hardware_address(socket: &impl AsFd, name: &str) -> io::Result<(u16, [u8; 6])> {
    let mut request = request(name)?;
    call(socket, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: after SIOCGIFHWADDR the union holds `ifru_hwaddr`.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut bytes = [0; 6];
    for (byte, source) in bytes.iter_mut().zip(address.sa_data) {
        [*byte] = source.to_ne_bytes();
    }
    Ok((address.sa_family, bytes))
}

/// Whether TCP segmentation offload is on, see ethtool(8) `-k`; no where the interface does not say.
pub(super) fn cuts_segments(socket: &impl AsFd, name: &str) -> bool {
    // linux/ethtool.h: ETHTOOL_GTSO, answered in the second word.
    let mut value = [0x1e_u32, 0];
    let Ok(mut request) = request(name) else {
        return false;
    };
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    let asked = call(socket, SIOCETHTOOL, &mut request);
    // Read only now: the kernel has written through the pointer in the request.
    asked.is_ok() && value[1] != 0
}

/// Receive queues in use, see ethtool(8) `-l`; one where the interface does not say.
pub(super) fn rx_queues(socket: &impl AsFd, name: &str) -> u32 {
    // linux/ethtool.h: ETHTOOL_GCHANNELS and `struct ethtool_channels`, which ends with what is in use:
    // for receiving, for sending, for other things, for both.
    let mut channels = [0x3c_u32, 0, 0, 0, 0, 0, 0, 0, 0];
    let Ok(mut request) = request(name) else {
        return 1;
    };
    request.ifr_ifru.ifru_data = channels.as_mut_ptr().cast();
    let asked = call(socket, SIOCETHTOOL, &mut request);
    // Read only now: the kernel has written through the pointer in the request.
    match asked {
        Ok(()) => channels[5].saturating_add(channels[8]).max(1),
        Err(_) => 1,
    }
}

pub(super) fn set_up(socket: &impl AsFd, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    call(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: after SIOCGIFFLAGS the union holds `ifru_flags`, which is then written back.
    unsafe {
        let up = i16::try_from(libc::IFF_UP).expect("invariant: IFF_UP is 1");
        request.ifr_ifru.ifru_flags |= up;
    }
    call(socket, libc::SIOCSIFFLAGS, &mut request)
}

/// Random bytes from the system.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: pointer and length describe `bytes`, which the kernel fills.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    match usize::try_from(filled) {
        // getrandom(2): requests of up to 256 bytes are never cut short.
        Ok(count) if count == N => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}
