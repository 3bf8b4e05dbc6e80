//! The ioctls of the TUN/TAP device and gathering write.
//!
//! Read first: the kernel's `Documentation/networking/tuntap.rst`. Policy is in `mod.rs`.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::driver::TxFrame;
use crate::sys::{done, invalid};
use crate::vnet;
use netlink::interface::NAME_BYTES_MAX;

/// Name and flags of the interface behind a TAP descriptor.
pub(super) struct Attached {
    pub name: String,
    pub flags: i32,
}

fn flags_of(request: &libc::ifreq) -> i32 {
    // SAFETY: TUNSETIFF and TUNGETIFF leave the flags, a C short, in the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    i32::from(u16::from_ne_bytes(flags.to_ne_bytes()))
}

fn name_of(request: &libc::ifreq) -> String {
    let bytes = request
        .ifr_name
        .iter()
        .map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()));
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Makes the interface, or attaches to an existing one of that name.
pub(super) fn attach(fd: BorrowedFd<'_>, name: Option<&str>, flags: i32) -> io::Result<Attached> {
    let name = name.unwrap_or("");
    if name.len() > NAME_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    // SAFETY: `ifreq` is plain C data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    let flags = u16::try_from(flags).map_err(invalid)?;
    request.ifr_ifru.ifru_flags = i16::from_ne_bytes(flags.to_ne_bytes());
    // SAFETY: TUNSETIFF takes a pointer to an `ifreq`, which outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    done(result)?;
    Ok(Attached {
        name: name_of(&request),
        flags: flags_of(&request),
    })
}

/// What an open descriptor is attached to.
pub(super) fn attached(fd: BorrowedFd<'_>) -> io::Result<Attached> {
    // SAFETY: `ifreq` is plain C data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: TUNGETIFF fills the `ifreq` it is given a pointer to.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETIFF, &raw mut request) };
    done(result)?;
    Ok(Attached {
        name: name_of(&request),
        flags: flags_of(&request),
    })
}

/// Says which unfinished frames we take.
pub(super) fn set_offload(fd: BorrowedFd<'_>, features: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    let result = unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(features),
        )
    };
    done(result)
}

/// Sets the size of the virtio header in front of every frame.
pub(super) fn set_header_len(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let len = libc::c_int::try_from(len).expect("invariant: the header has 10 or 12 bytes");
    // SAFETY: TUNSETVNETHDRSZ reads one int through the pointer.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const len) };
    done(result)
}

/// Sends one frame, gathered by the kernel straight from where its parts lie.
pub(super) fn send(fd: BorrowedFd<'_>, frame: &TxFrame<'_>) -> io::Result<()> {
    let offload = vnet::emit(frame);
    let spans = [
        libc::iovec {
            iov_base: offload.as_ptr().cast_mut().cast(),
            iov_len: offload.len(),
        },
        libc::iovec {
            iov_base: frame.headers.as_ptr().cast_mut().cast(),
            iov_len: frame.headers.len(),
        },
        frame.payload[0].as_iovec(),
        frame.payload[1].as_iovec(),
        frame.payload[2].as_iovec(),
    ];
    let count = libc::c_int::try_from(spans.len()).expect("invariant: five spans");
    // SAFETY: the spans point at the virtio header, the headers and the payload spans, all of
    // which outlive the call; writing only reads them.
    let written = unsafe { libc::writev(fd.as_raw_fd(), spans.as_ptr(), count) };
    done(written)
}
