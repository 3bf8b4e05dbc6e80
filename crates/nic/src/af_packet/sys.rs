//! The system calls of packet(7): socket options, gathering transmit.
//!
//! Everything that touches memory shared with the kernel is here; policy is in `mod.rs`.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::driver::{SPANS_MAX, TxFrame};
use crate::shared_slice::SharedSlice;
use crate::sys::{self, done, invalid};
use crate::vnet;
use bpf::classic::Instruction;
use rustix::net::{RecvFlags, SendFlags, recv};

/// The virtio header, the frame's headers, and its payload spans.
const SPANS: usize = 2 + SPANS_MAX;

pub(super) fn set_option<T>(fd: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_PACKET, option, value)
}

/// Binds to every protocol of one interface: on veth, ETH_P_ALL is 1.6 µs a round trip faster than
/// ETH_P_IP.
pub(super) fn bind(fd: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain C data for which all zeros is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).expect("invariant: AF_PACKET is 17");
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL)
        .expect("invariant: it is 3")
        .to_be();
    address.sll_ifindex = libc::c_int::try_from(interface).map_err(invalid)?;
    // SAFETY: the structure of this family.
    unsafe { sys::bind(fd, &address) }
}

/// Whether the socket is bound to interface number `interface`: no more, once that has gone.
pub(super) fn is_bound(fd: BorrowedFd<'_>, interface: u32) -> bool {
    // SAFETY: `sockaddr_ll` is plain C data for which all zeros is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len =
        libc::socklen_t::try_from(size_of_val(&address)).expect("invariant: an address is small");
    // SAFETY: pointer and length describe `address`, which the kernel fills and which outlives the call.
    let result =
        unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    result == 0 && u32::try_from(address.sll_ifindex) == Ok(interface)
}

/// Makes the device let in what is sent to a group of stations, or stop doing so. Memberships are counted.
pub(super) fn change_membership(
    fd: BorrowedFd<'_>,
    interface: u32,
    group: [u8; 6],
    listen: bool,
) -> io::Result<()> {
    let mut address = [0; 8];
    address[..6].copy_from_slice(&group);
    let request = libc::packet_mreq {
        mr_ifindex: libc::c_int::try_from(interface).map_err(invalid)?,
        mr_type: u16::try_from(libc::PACKET_MR_MULTICAST).expect("invariant: it is 0"),
        mr_alen: 6,
        mr_address: address,
    };
    let option = if listen {
        libc::PACKET_ADD_MEMBERSHIP
    } else {
        libc::PACKET_DROP_MEMBERSHIP
    };
    set_option(fd, option, &request)
}

/// The kernel's `PACKET_FANOUT_FLAG_IGNORE_OUTGOING`: a group does not take it from its sockets.
const IGNORE_OUTGOING: u32 = 0x4000;
const UNIQUE_ID: u32 = 0x2000;
const KIND: u32 = libc::PACKET_FANOUT_CBPF | IGNORE_OUTGOING;

/// Makes a bound socket the first of a new group, which `program` distributes frames over.
pub(super) fn found_group(fd: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<Group> {
    set_option(fd, libc::PACKET_FANOUT, &((KIND | UNIQUE_ID) << 16))?;
    let made = group(fd)?.ok_or(io::ErrorKind::InvalidData)?;
    bpf::classic::attach_fanout(fd, program)?;
    Ok(made)
}

/// The group that a packet socket belongs to.
pub(super) fn group(fd: BorrowedFd<'_>) -> io::Result<Option<Group>> {
    // SAFETY: the option is a number.
    let group: u32 = unsafe { sys::option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT)? };
    // Zero without a group; the kind of one is in the upper half.
    Ok((group != 0).then_some(Group(group & 0xffff)))
}

/// A group's number in its network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group(u32);

/// Makes a bound socket the next of a group.
pub(super) fn join_group(fd: BorrowedFd<'_>, group: Group) -> io::Result<()> {
    set_option(fd, libc::PACKET_FANOUT, &(KIND << 16 | group.0))
}

/// Frames lost for want of ring space since the last call: reading resets the kernel's count.
pub(super) fn take_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the structure of this option.
    let stats: libc::tpacket_stats =
        unsafe { sys::option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)? };
    Ok(stats.tp_drops)
}

fn gather(offload: &[u8; vnet::LEN], frame: &TxFrame<'_>) -> [libc::iovec; SPANS] {
    [
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
    ]
}

fn message(spans: &mut [libc::iovec; SPANS]) -> libc::msghdr {
    // SAFETY: `msghdr` is plain C data for which all zeros (no name, no control data) is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // Each span costs the kernel a copy and a check, and the last ones are mostly empty.
    let empty = spans.iter().rev().take_while(|span| span.iov_len == 0);
    let count = SPANS - empty.count();
    message.msg_iov = spans.as_mut_ptr();
    message.msg_iovlen = count as _;
    message
}

/// Frames up to this size are put together here: gathering costs the kernel more than the copy.
const SMALL_BYTES: usize = 256;

/// The length of a frame that may be sent in one piece, headers, payload and all.
#[inline(always)]
pub(super) fn small_len(frame: &TxFrame<'_>) -> Option<usize> {
    let len = frame.frame_len();
    let is_small = vnet::LEN + len <= SMALL_BYTES;
    (is_small && !frame.payload.iter().any(SharedSlice::is_for_kernel)).then_some(len)
}

/// Sends a frame that is [small](small_len), in one piece with the virtio header.
#[inline(always)]
pub(super) fn send_small(fd: BorrowedFd<'_>, frame: &TxFrame<'_>) -> io::Result<()> {
    let mut bytes = [MaybeUninit::uninit(); SMALL_BYTES];
    bytes[..vnet::LEN].write_copy_of_slice(&vnet::emit(frame));
    let mut end = vnet::LEN + frame.headers.len();
    bytes[vnet::LEN..end].write_copy_of_slice(frame.headers);
    for span in &frame.payload {
        if !span.is_empty() {
            end += span.copy_to_unwritten(&mut bytes[end..]);
        }
    }
    // SAFETY: so many bytes were written.
    let written = unsafe { bytes[..end].assume_init_ref() };
    rustix::net::send(fd, written, SendFlags::DONTWAIT)?;
    Ok(())
}

/// Sends one frame, gathered by the kernel straight from where its parts lie.
pub(super) fn send(fd: BorrowedFd<'_>, frame: &TxFrame<'_>) -> io::Result<()> {
    match small_len(frame) {
        Some(_) => send_small(fd, frame),
        None => send_gathered(fd, &vnet::emit(frame), frame),
    }
}

#[inline(never)]
fn send_gathered(
    fd: BorrowedFd<'_>,
    offload: &[u8; vnet::LEN],
    frame: &TxFrame<'_>,
) -> io::Result<()> {
    let mut spans = gather(offload, frame);
    let message = message(&mut spans);
    // Not libc's sendmsg, which may be the symbol of a library around this code, and looks for cancellation.
    // SAFETY: `message` points at `spans`, and they at the virtio header, the headers and the
    // payload spans, all of which outlive the call; sending only reads them.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendmsg,
            fd.as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT,
        )
    };
    done(sent)
}

/// A frame from a socket's queue.
pub(super) struct Queued {
    /// Bytes of virtio header and frame; more than the buffer if it was cut.
    pub len: usize,
    /// A VLAN tag was taken out of the frame.
    pub tagged: bool,
    /// When it came, in nanoseconds since 1970.
    pub arrived_at_ns: Option<u64>,
}

/// Drops the next frame of the socket's queue if its first bytes are `start`.
pub(super) fn drop_queued(fd: BorrowedFd<'_>, start: &[u8]) {
    let mut found = vec![0; vnet::LEN + start.len()];
    let flags = RecvFlags::DONTWAIT;
    if let Ok((len, _)) = recv(fd, &mut found[..], flags | RecvFlags::PEEK)
        && found[..len].get(vnet::LEN..) == Some(start)
    {
        // It was there just now.
        let _ = recv(fd, &mut found[..1], flags);
    }
}

/// What the kernel says beside a frame.
const CONTROL_WORDS: usize = 16;

/// Has the kernel say of each frame from the queue whether it had a tag, and when it came.
pub(super) fn ask_beside(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::PACKET_AUXDATA, &1_i32)?;
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)
}

/// The next frame of the socket's queue; `None`: there is none. An error is told once, as that the interface went down.
pub(super) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<Queued>> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut span = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: `msghdr` is plain C data for which all zeros (no name) is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut span;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: `message` points at the buffer and the control data, both of that size, which outlive the call.
    let received =
        unsafe { libc::syscall(libc::SYS_recvmsg, fd.as_raw_fd(), &raw mut message, flags) };
    let Ok(len) = usize::try_from(received) else {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM) => Ok(None),
            _ => Err(error),
        };
    };
    let (mut tagged, mut arrived_at_ns) = (false, None);
    // SAFETY: the kernel has written `message` and its control data, which the macros follow; each structure is read where the
    // kernel says that one of that kind lies, wherever it is aligned.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(header) = at.as_ref() {
            let data = libc::CMSG_DATA(at);
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    let beside = data.cast::<libc::tpacket_auxdata>().read_unaligned();
                    tagged = beside.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
                }
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                    arrived_at_ns = ns_of(data.cast::<libc::timespec>().read_unaligned());
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&raw const message, at);
        }
    }
    Ok(Some(Queued {
        len,
        tagged,
        arrived_at_ns,
    }))
}

fn ns_of(time: libc::timespec) -> Option<u64> {
    let (s, ns) = (
        u64::try_from(time.tv_sec).ok()?,
        u64::try_from(time.tv_nsec).ok()?,
    );
    s.checked_mul(1_000_000_000)?.checked_add(ns)
}
