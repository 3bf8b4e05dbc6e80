//! The interface ioctls of netdevice(7), with those of ethtool, and one option of socket(7) that rustix does not have.
//!
//! Names are checked here; which interface is meant is the caller's business.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::interface::NAME_BYTES_MAX;

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
/// `IFF_*` of netdevice(7).
pub(super) fn flags(socket: &impl AsFd, name: &str) -> io::Result<libc::c_int> {
    let mut request = request(name)?;
    call(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: after SIOCGIFFLAGS the union holds `ifru_flags`.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(flags.into())
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

/// A command of ethtool that takes or answers one number, in the second word of `struct ethtool_value`.
pub(super) fn ethtool_value(
    socket: &impl AsFd,
    name: &str,
    command: u32,
    value: u32,
) -> io::Result<u32> {
    let mut words = [command, value];
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    call(socket, SIOCETHTOOL, &mut request)?;
    // Read only now: the kernel has written through the pointer in the request.
    Ok(words[1])
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

/// `ETHTOOL_GDRVINFO`: the driver's name, with zeros behind.
/// Name, version, firmware and bus address of the driver (`struct ethtool_drvinfo`).
pub(super) fn driver_info(socket: &impl AsFd, name: &str) -> io::Result<[[u8; 32]; 4]> {
    // 196 bytes, of which four texts of 32 come after the command.
    let mut info = [0_u32; 49];
    info[0] = 3;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = info.as_mut_ptr().cast();
    call(socket, SIOCETHTOOL, &mut request)?;
    let mut texts = [[0; 32]; 4];
    // Read only now, as above.
    for (to, word) in texts.as_flattened_mut().chunks_exact_mut(4).zip(&info[1..]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(texts)
}

/// `ETHTOOL_GCOALESCE`: microseconds that a received and a sent frame may wait for an interrupt at most
/// (`rx_coalesce_usecs`, `tx_coalesce_usecs` of `struct ethtool_coalesce`).
pub(super) fn coalescing(socket: &impl AsFd, name: &str) -> io::Result<[u32; 2]> {
    let mut settings = [0_u32; 23];
    settings[0] = 0xe;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = settings.as_mut_ptr().cast();
    call(socket, SIOCETHTOOL, &mut request)?;
    // Read only now, as above.
    Ok([settings[1], settings[5]])
}

/// `ETHTOOL_GET_TS_INFO`: `struct ethtool_ts_info`.
pub(super) fn time_stamping(socket: &impl AsFd, name: &str) -> io::Result<[u32; 11]> {
    let mut info = [0_u32; 11];
    info[0] = 0x41;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = info.as_mut_ptr().cast();
    call(socket, SIOCETHTOOL, &mut request)?;
    // Read only now, as above.
    Ok(info)
}

/// `ETHTOOL_GRSSH` or `ETHTOOL_SRSSH`: `struct ethtool_rxfh`, whose third and fourth words say how many words of a table and how
/// many bytes of a key follow its six.
pub(super) fn receive_hash(socket: &impl AsFd, name: &str, words: &mut [u32]) -> io::Result<()> {
    let needed = match words {
        [_, _, entries, key_bytes, _, _, ..] => {
            let (entries, key_bytes) = (usize::try_from(*entries), usize::try_from(*key_bytes));
            let key_words = key_bytes.ok().map(|bytes| bytes.div_ceil(4));
            let behind = entries.ok().zip(key_words);
            behind.and_then(|(entries, key)| entries.checked_add(key)?.checked_add(6))
        }
        _ => None,
    };
    if needed.is_none_or(|needed| needed > words.len()) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut request = request(name)?;
    // The kernel writes no further than the sizes say that were checked just now.
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    call(socket, SIOCETHTOOL, &mut request)
}

/// `ETHTOOL_GRXFH`: what of a flow's packets the card hashes (`RXH_*`), in `data` of `struct ethtool_rxnfc`.
pub(super) fn hashed_fields(socket: &impl AsFd, name: &str, flow: u32) -> io::Result<u64> {
    // The structure has 192 bytes.
    let mut words = [0_u32; 64];
    (words[0], words[1]) = (0x29, flow);
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    call(socket, SIOCETHTOOL, &mut request)?;
    // Read only now, as above.
    let [a, b, c, d] = words[2].to_ne_bytes();
    let [e, f, g, h] = words[3].to_ne_bytes();
    Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
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

/// The number of a socket's network namespace, which no other has as long as the kernel runs.
pub(super) fn network_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut len =
        libc::socklen_t::try_from(size_of_val(&cookie)).expect("invariant: an option is small");
    // SAFETY: pointer and length describe `cookie`, which the kernel fills and which outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(cookie)
    }
}
