//! Memory that cannot be read any more, and an interface that cannot cut segments.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use nic::SharedSlice;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Switches TCP segmentation offload off, as `ethtool -K INTERFACE tso off` does.
pub fn switch_segmentation_off(interface: &str) {
    // linux/ethtool.h: ETHTOOL_STSO; linux/sockios.h: SIOCETHTOOL.
    let mut value = [0x1f_u32, 0];
    // SAFETY: `ifreq` is plain C data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: the request and the value it points at outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &raw mut request) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// `len` bytes of a mapped file that has been cut short: reading them is SIGBUS here and EFAULT in the
/// kernel.
pub fn cut_short(len: usize) -> SharedSlice<'static> {
    let file = rustix::fs::memfd_create(c"cut short", MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: the kernel chooses a free place; the mapping stays until the process ends, and the span
    // is given to the kernel only.
    unsafe {
        let start = rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            0,
        );
        SharedSlice::from_raw(start.unwrap().cast(), len)
    }
}
