//! System calls by the C library's symbols, which is where a program under `shunt run` is met (rustix would pass by them),
//! and what the standard library does not offer: control messages of cmsg(3), packet(7), sched(7), mlock(2), the time-stamp
//! counter.

#![allow(unsafe_code)]

use std::{
    io,
    mem::{self, MaybeUninit},
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use socket2::{SockRef, Socket};

/// A socket; closed on exec.
pub fn socket(
    family: libc::c_int,
    kind: libc::c_int,
    protocol: libc::c_int,
) -> io::Result<OwnedFd> {
    let (domain, kind) = (family.into(), (kind | libc::SOCK_CLOEXEC).into());
    Ok(Socket::new_raw(domain, kind, Some(protocol.into()))?.into())
}

pub fn family(address: IpAddr) -> libc::c_int {
    match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    }
}

/// Connects; a socket that does not block says EINPROGRESS.
pub fn connect(socket: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    SockRef::from(&socket).connect(&to.into())
}

/// Gives a socket its address.
pub fn bind(socket: BorrowedFd<'_>, at: SocketAddr) -> io::Result<()> {
    SockRef::from(&socket).bind(&at.into())
}

/// Lets a socket be connected to.
pub fn listen(socket: BorrowedFd<'_>, backlog: libc::c_int) -> io::Result<()> {
    SockRef::from(&socket).listen(backlog)
}

/// Receives with flags of recv(2).
pub fn recv(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    // SAFETY: the buffer is writable for its length.
    let count = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            flags,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Sends with flags of send(2); a connection that has ended is an error and no signal.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], flags: libc::c_int) -> io::Result<usize> {
    SockRef::from(&socket).send_with_flags(bytes, flags | libc::MSG_NOSIGNAL)
}

/// Waits for events of poll(2) on up to so many sockets, for a time at most; which ones have any.
pub fn wait(sockets: &mut [libc::pollfd], time: Duration) -> io::Result<usize> {
    let time = libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    let count = libc::nfds_t::try_from(sockets.len()).expect("invariant: a count of sockets");
    // SAFETY: the entries are writable for their count, the time outlives the call, and no mask is passed.
    let ready = unsafe {
        libc::ppoll(
            sockets.as_mut_ptr(),
            count,
            &raw const time,
            std::ptr::null(),
        )
    };
    match usize::try_from(ready) {
        Ok(ready) => Ok(ready),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// Sets an option that is a number.
pub fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_option(socket, level, name, &value)
}

/// How long recv(2) waits.
pub fn set_receive_timeout(socket: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    SockRef::from(&socket).set_read_timeout(Some(time))
}

/// Makes closing a connection a reset, so that nothing of it stays behind, see socket(7) on SO_LINGER.
pub fn reset_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))
}

/// Passes these types of ICMPv6 alone to a raw socket, RFC 3542 §3.2.
pub fn filter_icmpv6(socket: BorrowedFd<'_>, passed: &[u8]) -> io::Result<()> {
    let mut filter = [u32::MAX; 8];
    for kind in passed {
        filter[usize::from(kind >> 5)] &= !(1 << (kind & 31));
    }
    const ICMPV6_FILTER: libc::c_int = 1;
    set_option(socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &filter)
}

fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (value, length) = ((&raw const *value).cast(), length_of(size_of::<T>()));
    // SAFETY: the value is readable for its length and outlives the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) })
}

/// The error that a socket holds, SO_ERROR of socket(7); 0 where it holds none.
pub fn pending_error(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let error = SockRef::from(&socket).take_error()?;
    Ok(error.and_then(|error| error.raw_os_error()).unwrap_or(0))
}

/// A control message of cmsg(3).
#[derive(Debug, Clone, Copy)]
pub struct ControlMessage<'a> {
    /// Its level and type.
    pub of: (libc::c_int, libc::c_int),
    pub data: &'a [u8],
}

/// Room for control messages: three times, an error and an address; twice what they take.
const CONTROL_WORDS: usize = 64;

/// Receives with flags of recvmsg(2), and hands over each control message.
pub fn receive_message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: libc::c_int,
    mut each: impl FnMut(ControlMessage<'_>),
) -> io::Result<usize> {
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
    // SAFETY: the message is as recvmsg(2) left it, and its control buffer outlives the loop.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers inside the control buffer, with as many bytes behind each
        // as its length says.
        let found = unsafe {
            let bytes = (*header)
                .cmsg_len
                .saturating_sub(libc::CMSG_LEN(0) as usize);
            ControlMessage {
                of: ((*header).cmsg_level, (*header).cmsg_type),
                data: std::slice::from_raw_parts(libc::CMSG_DATA(header), bytes),
            }
        };
        each(found);
        // SAFETY: as for CMSG_FIRSTHDR.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(count)
}

/// A packet socket for frames of one EtherType on one interface, see packet(7).
pub fn packet_socket(interface_index: u32, ether_type: u16) -> io::Result<OwnedFd> {
    // Protocol 0 receives nothing until it is bound.
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    // SAFETY: all zeros is a value of a sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = short(libc::AF_PACKET);
    address.sll_protocol = ether_type.to_be();
    address.sll_ifindex =
        i32::try_from(interface_index).map_err(|_| io::ErrorKind::InvalidInput)?;
    let length = length_of(size_of::<libc::sockaddr_ll>());
    // SAFETY: the address is readable for its length and outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// Schedules the calling thread before all others that are not real-time, see SCHED_FIFO of sched(7).
pub fn schedule_first() -> io::Result<()> {
    // The lowest priority suffices: it comes before every thread that is not real-time.
    // SAFETY: no pointer is passed.
    let priority = unsafe { libc::sched_get_priority_min(libc::SCHED_FIFO) };
    check(priority)?;
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the parameter outlives the call.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) })
}

/// Whether it is.
pub fn is_scheduled_first() -> bool {
    // SAFETY: no pointer is passed.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_FIFO }
}

/// Keeps all memory of this process from being paged out, see mlock(2).
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: no pointer is passed.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) })
}

/// How often the calling thread gave its processor up, and how often it was taken away, see getrusage(2).
pub fn switches_of_this_thread() -> (u64, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills in a structure of the size it expects; where it failed all of it is zero, which is a value.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
    (count(usage.ru_nvcsw), count(usage.ru_nivcsw))
}

/// The time-stamp counter, read after all earlier instructions; 0 on processors of other kinds.
#[inline]
pub fn time_stamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut processor = 0;
        // SAFETY: the processor has the instruction: `clock.rs` asks /proc/cpuinfo before it calls this.
        unsafe { std::arch::x86_64::__rdtscp(&raw mut processor) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn length_of(length: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(length).expect("invariant: options and addresses are short")
}

fn short(family: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).expect("invariant: families are small numbers")
}
