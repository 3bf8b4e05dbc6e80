//! TAP interfaces on two hosts whose descriptors come out here: whoever holds both can be the cable.
//!
//! Read first: the kernel's `Documentation/networking/tuntap.rst`. Frames have no header in front and
//! no offload is switched on, so that the kernel cuts and sums what it sends: packets of real size.

mod sys;

use std::{io, os::fd::OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{INTERFACE, link::CABLE_INDEX, sys::Namespaces};

/// Makes the TAP interface of a host and returns its descriptor, which does not block.
pub(crate) fn create(namespaces: &Namespaces) -> io::Result<OwnedFd> {
    let request = sys::Request::new(INTERFACE, CABLE_INDEX)?;
    let flags = SocketFlags::CLOEXEC;
    let (ours, childs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    crate::sys::in_child(|| {
        namespaces.join(c"/")?;
        sys::send_descriptor(&childs, sys::open(&request)?)
    })?;
    sys::receive_descriptor(&ours)
}
