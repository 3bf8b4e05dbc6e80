//! The system calls behind a TAP: /dev/net/tun, its ioctls, and passing a descriptor, see unix(7).
//!
//! Everything but [`receive_descriptor`] also runs in a forked child and so neither allocates nor locks.

#![allow(unsafe_code)]

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags,
    },
};

/// What TUNSETIFF and TUNSETIFINDEX are told; built before the fork.
pub(super) struct Request {
    interface: libc::ifreq,
    index: libc::c_uint,
}

impl Request {
    /// An interface of this name and index.
    pub(super) fn new(name: &str, index: u32) -> io::Result<Self> {
        // SAFETY: `ifreq` is plain C data for which all zeros is a valid value.
        let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= interface.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (slot, byte) in interface.ifr_name.iter_mut().zip(name.bytes()) {
            *slot = libc::c_char::from_ne_bytes([byte]);
        }
        let flags = u16::try_from(libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL)
            .expect("invariant: these flags are a C short");
        interface.ifr_ifru.ifru_flags = i16::from_ne_bytes(flags.to_ne_bytes());
        Ok(Self { interface, index })
    }
}

/// Opens the device and attaches it to a new interface.
pub(super) fn open(request: &Request) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(c"/dev/net/tun", flags, Mode::empty())?;
    let mut interface = request.interface;
    // SAFETY: TUNSETIFINDEX reads one unsigned int, TUNSETIFF reads and writes one `ifreq`; both
    // outlive the calls.
    let done = unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::TUNSETIFINDEX,
            &raw const request.index,
        ) >= 0
            && libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut interface) >= 0
    };
    if done {
        Ok(fd)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sends a descriptor to the other end of a socket pair.
pub(super) fn send_descriptor(to: impl AsFd, fd: OwnedFd) -> io::Result<()> {
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let data = [IoSlice::new(b"t")];
    rustix::net::sendmsg(to, &data, &mut control, SendFlags::empty())?;
    Ok(())
}

/// Receives what [`send_descriptor`] sent.
pub(super) fn receive_descriptor(from: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    rustix::net::recvmsg(from, &mut data, &mut control, flags)?;
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    descriptors
        .next()
        .and_then(|mut fds| fds.next())
        .ok_or_else(|| io::Error::other("the helper process sent no descriptor"))
}
