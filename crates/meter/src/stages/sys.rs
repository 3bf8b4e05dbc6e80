//! Time stamps of the kernel's stack, see `Documentation/networking/timestamping.rst` of the kernel and cmsg(3).

#![allow(unsafe_code)]

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
};

use hostif::stages::Mark;

use crate::sys;

/// linux/net_tstamp.h: SOF_TIMESTAMPING_TX_SOFTWARE, RX_SOFTWARE, SOFTWARE, OPT_ID, TX_SCHED, TX_ACK, OPT_TSONLY.
const WANTED: libc::c_int = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 11;
/// Control messages: three times and a `sock_extended_err`; twice what they take.
const CONTROL_WORDS: usize = 64;
/// linux/errqueue.h: SO_EE_ORIGIN_TIMESTAMPING, and of what kind the stamp is.
const ORIGIN_TIMESTAMPING: u8 = 4;
const KINDS: [(u32, Mark); 3] = [
    (0, Mark::Left),
    (1, Mark::Transmit),
    (2, Mark::Acknowledged),
];

/// What was received, and what its control messages say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stamped {
    /// Bytes of payload.
    pub count: usize,
    /// When, in nanoseconds since 1970.
    pub real_ns: Option<u64>,
    /// What a stamp of the error queue is of.
    pub mark: Option<Mark>,
}

/// Asks for the stamps of a connection.
pub fn enable(socket: BorrowedFd<'_>) -> io::Result<()> {
    sys::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, WANTED)
}

/// Receives with flags of recvmsg(2), with what the control messages say of the time.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<Stamped> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: all zeros is a value of a msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message names buffers that are writable for their lengths and outlive the call.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let mut found = Stamped {
        count,
        ..Stamped::default()
    };
    // SAFETY: the message is as recvmsg(2) left it, and its control buffer outlives the loop.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers inside the control buffer.
        unsafe { decode(header, &mut found) };
        // SAFETY: as for CMSG_FIRSTHDR.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(found)
}

/// # Safety
/// `header` is one of a message that recvmsg(2) has filled in.
unsafe fn decode(header: *const libc::cmsghdr, found: &mut Stamped) {
    // SAFETY: the caller's promise.
    let (level, kind, length) = unsafe {
        (
            (*header).cmsg_level,
            (*header).cmsg_type,
            (*header).cmsg_len,
        )
    };
    let holds = |bytes: usize| length >= size_of::<libc::cmsghdr>() + bytes;
    let is_error = (level == libc::SOL_IP && kind == libc::IP_RECVERR)
        || (level == libc::SOL_IPV6 && kind == libc::IPV6_RECVERR);
    if level == libc::SOL_SOCKET
        && kind == libc::SCM_TIMESTAMPING
        && holds(size_of::<libc::timespec>())
    {
        // SAFETY: the control message has at least one time behind its header, as its length says.
        let time = unsafe {
            libc::CMSG_DATA(header)
                .cast::<libc::timespec>()
                .read_unaligned()
        };
        let part = |number: i64| u64::try_from(number).unwrap_or(0);
        let real_ns = part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec);
        found.real_ns = (real_ns > 0).then_some(real_ns);
    } else if is_error && holds(size_of::<libc::sock_extended_err>()) {
        // SAFETY: the control message has at least a sock_extended_err behind its header, as its length says.
        let error = unsafe {
            libc::CMSG_DATA(header)
                .cast::<libc::sock_extended_err>()
                .read_unaligned()
        };
        if error.ee_origin == ORIGIN_TIMESTAMPING {
            let of = KINDS.iter().find(|(number, _)| *number == error.ee_info);
            found.mark = of.map(|(_, mark)| *mark);
        }
    }
}
