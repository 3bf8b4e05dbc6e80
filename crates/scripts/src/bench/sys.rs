//! The packet socket of the scripted peer, see packet(7), and how it comes out of its namespace.

#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

fn set(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("invariant: it is 4");
    // SAFETY: pointer and length describe `value`, which is only read.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A socket that sees every frame which arrives at the interface, each with its time.
pub(super) fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let name = std::ffi::CString::new(interface)
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the name ends with NUL.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 1 << 20)?;
    // What we send must not come back to us.
    set(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    // SAFETY: `sockaddr_ll` is plain C data for which all zeros is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).expect("invariant: it is 17");
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL)
        .expect("invariant: it is 3")
        .to_be();
    address.sll_ifindex = libc::c_int::try_from(index).map_err(invalid)?;
    let len = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(invalid)?;
    // SAFETY: pointer and length describe `address`.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(fd)
    }
}

/// Room for one control message with a time, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The next frame, if one is there: its length in `buffer`, and when it arrived in ns since the epoch.
pub(super) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<(usize, i64)>> {
    let mut control = Control([0; 64]);
    let mut span = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: `msghdr` is plain C data for which all zeros is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut span;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the message describes `buffer` and `control`, which outlive the call and are ours.
    let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let Ok(len) = usize::try_from(len) else {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    };
    // SAFETY: the kernel has filled `message`; its control data lies in `control`.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Err(io::Error::other("a frame came without its time"));
    }
    // SAFETY: the only message asked for is SCM_TIMESTAMPNS, which carries one timespec.
    let time = unsafe {
        libc::CMSG_DATA(header)
            .cast::<libc::timespec>()
            .read_unaligned()
    };
    Ok(Some((len, time.tv_sec * 1_000_000_000 + time.tv_nsec)))
}
