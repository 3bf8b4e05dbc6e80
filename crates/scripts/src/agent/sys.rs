//! libc's socket functions, by their C names: a preloaded library must see them. Crates that make the
//! system call themselves would pass it by.

#![allow(unsafe_code)]

use std::mem::{size_of, zeroed};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

/// Not in the libc crate; asm-generic/sockios.h.
pub(super) const SIOCATMARK: libc::c_ulong = 0x8905;

type Result<T> = std::result::Result<T, i32>;

fn errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

fn checked(result: libc::c_int) -> Result<i64> {
    if result < 0 {
        Err(errno())
    } else {
        Ok(result.into())
    }
}

fn counted(result: libc::ssize_t) -> Result<usize> {
    usize::try_from(result).map_err(|_| errno())
}

fn length<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("invariant: addresses and options are small")
}

/// Calls `body` with the address in C's form.
fn with_address<T>(
    address: SocketAddr,
    body: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> T,
) -> T {
    match address {
        SocketAddr::V4(address) => {
            // SAFETY: `sockaddr_in` is plain C data for which all zeros is a valid value.
            let mut raw: libc::sockaddr_in = unsafe { zeroed() };
            raw.sin_family =
                libc::sa_family_t::try_from(libc::AF_INET).expect("invariant: it is 2");
            raw.sin_port = address.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
            body((&raw const raw).cast(), length::<libc::sockaddr_in>())
        }
        SocketAddr::V6(address) => {
            // SAFETY: `sockaddr_in6` is plain C data for which all zeros is a valid value.
            let mut raw: libc::sockaddr_in6 = unsafe { zeroed() };
            raw.sin6_family =
                libc::sa_family_t::try_from(libc::AF_INET6).expect("invariant: it is 10");
            raw.sin6_port = address.port().to_be();
            raw.sin6_addr.s6_addr = address.ip().octets();
            body((&raw const raw).cast(), length::<libc::sockaddr_in6>())
        }
    }
}

pub(super) fn socket(is_v6: bool, non_blocking: bool) -> Result<RawFd> {
    let domain = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    let flags = if non_blocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0) };
    checked(fd).map(|_| fd)
}

pub(super) fn accept(fd: RawFd, non_blocking: bool) -> Result<RawFd> {
    let flags = if non_blocking { libc::SOCK_NONBLOCK } else { 0 };
    let none = std::ptr::null_mut();
    // SAFETY: no address is asked for, so nothing is written.
    let fd = unsafe { libc::accept4(fd, none, std::ptr::null_mut(), libc::SOCK_CLOEXEC | flags) };
    checked(fd).map(|_| fd)
}

pub(super) fn bind(fd: RawFd, address: SocketAddr) -> Result<i64> {
    // SAFETY: pointer and length describe an address that outlives the call.
    checked(with_address(address, |raw, len| unsafe {
        libc::bind(fd, raw, len)
    }))
}

pub(super) fn connect(fd: RawFd, address: SocketAddr) -> Result<i64> {
    // SAFETY: pointer and length describe an address that outlives the call.
    checked(with_address(address, |raw, len| unsafe {
        libc::connect(fd, raw, len)
    }))
}

pub(super) fn listen(fd: RawFd, backlog: i32) -> Result<i64> {
    // SAFETY: takes no pointer.
    checked(unsafe { libc::listen(fd, backlog) })
}

pub(super) fn shutdown(fd: RawFd, how: i32) -> Result<i64> {
    // SAFETY: takes no pointer.
    checked(unsafe { libc::shutdown(fd, how) })
}

pub(super) fn close(fd: RawFd) -> Result<i64> {
    // SAFETY: the descriptor was made by a call of the script; nothing else in this process owns it.
    checked(unsafe { libc::close(fd) })
}

pub(super) fn write(fd: RawFd, bytes: &[u8]) -> Result<usize> {
    // SAFETY: pointer and length describe `bytes`, which is only read.
    counted(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

pub(super) fn send(fd: RawFd, bytes: &[u8], flags: i32) -> Result<usize> {
    // SAFETY: pointer and length describe `bytes`, which is only read.
    counted(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) })
}

pub(super) fn send_to(fd: RawFd, bytes: &[u8], flags: i32, to: SocketAddr) -> Result<usize> {
    counted(with_address(to, |raw, len| {
        // SAFETY: both pairs of pointer and length describe memory that is only read and outlives the call.
        unsafe { libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, raw, len) }
    }))
}

pub(super) fn read(fd: RawFd, bytes: &mut [u8]) -> Result<usize> {
    // SAFETY: pointer and length describe `bytes`, which is ours to be written.
    counted(unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) })
}

pub(super) fn receive(fd: RawFd, bytes: &mut [u8], flags: i32) -> Result<usize> {
    // SAFETY: pointer and length describe `bytes`, which is ours to be written.
    counted(unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags) })
}

pub(super) fn set_option(fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<i64> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: pointer and length describe `value`, which is only read.
    checked(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), len) })
}

pub(super) fn get_option(fd: RawFd, level: i32, name: i32) -> Result<Vec<u8>> {
    let mut bytes = vec![0_u8; 256];
    let mut len: libc::socklen_t = 256;
    // SAFETY: pointer and length describe `bytes`; `len` is written with how much of it was filled.
    checked(unsafe { libc::getsockopt(fd, level, name, bytes.as_mut_ptr().cast(), &raw mut len) })?;
    bytes.truncate(usize::try_from(len).map_err(|_| libc::EINVAL)?);
    Ok(bytes)
}

/// An ioctl that answers with an int.
pub(super) fn ask(fd: RawFd, request: libc::c_ulong) -> Result<i64> {
    let mut answer: libc::c_int = 0;
    // SAFETY: each request that is asked here writes one int.
    checked(unsafe { libc::ioctl(fd, request, &raw mut answer) })?;
    Ok(answer.into())
}

pub(super) fn set_non_blocking(fd: RawFd) -> Result<i64> {
    // SAFETY: takes no pointer.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    checked(flags)?;
    // SAFETY: takes no pointer.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

/// poll(2) of one descriptor.
pub(super) fn poll(fd: RawFd, events: i16, timeout_ms: i32) -> Result<i16> {
    let mut one = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: one element, which outlives the call.
    checked(unsafe { libc::poll(&raw mut one, 1, timeout_ms) })?;
    Ok(one.revents)
}

fn request(interface: &str) -> Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain C data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(libc::EINVAL);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

fn interface_call(number: libc::c_ulong, request: &mut libc::ifreq) -> Result<()> {
    let fd = socket(false, false)?;
    // SAFETY: the request is an `ifreq` whose pointer, where the call uses one, outlives it.
    let result = checked(unsafe { libc::ioctl(fd, number, std::ptr::from_mut(request)) });
    close(fd)?;
    result.map(|_| ())
}

pub(super) fn set_mtu(interface: &str, mtu: i32) -> Result<()> {
    let mut request = request(interface)?;
    request.ifr_ifru.ifru_mtu = mtu;
    interface_call(libc::SIOCSIFMTU, &mut request)
}

pub(super) fn mac(interface: &str) -> Result<[u8; 6]> {
    let mut request = request(interface)?;
    interface_call(libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: SIOCGIFHWADDR has filled this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(address.sa_data) {
        [*to] = from.to_ne_bytes();
    }
    Ok(mac)
}

/// Checksums are made and segments cut before the interface, see ethtool(8) `-K`.
pub(super) fn switch_offloads_off(interface: &str) -> Result<()> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    // linux/ethtool.h: ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_STXCSUM
    for command in [0x1f_u32, 0x24, 0x17] {
        let mut value = [command, 0];
        let mut request = request(interface)?;
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        interface_call(SIOCETHTOOL, &mut request)?;
    }
    Ok(())
}

/// linux/ipv6.h: `struct in6_ifreq`.
#[repr(C)]
struct AddressRequest {
    address: [u8; 16],
    prefix_len: u32,
    interface: libc::c_int,
}

pub(super) fn add_address6(interface: &str, address: Ipv6Addr) -> Result<()> {
    let mut by_name = request(interface)?;
    interface_call(libc::SIOCGIFINDEX, &mut by_name)?;
    let request = AddressRequest {
        address: address.octets(),
        prefix_len: 64,
        // SAFETY: SIOCGIFINDEX has filled this member.
        interface: unsafe { by_name.ifr_ifru.ifru_ifindex },
    };
    let fd = socket(true, false)?;
    // SAFETY: SIOCSIFADDR on an IPv6 socket reads one `in6_ifreq`.
    let result = checked(unsafe { libc::ioctl(fd, libc::SIOCSIFADDR, &raw const request) });
    close(fd)?;
    result.map(|_| ())
}
