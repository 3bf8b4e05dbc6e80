//! Packets with descriptors over a Unix SOCK_SEQPACKET socket. See unix(7) and cmsg(3).
//!
//! Descriptors that arrive are close-on-exec and owned at once, so none leaks whatever follows.

use core::mem::MaybeUninit;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Gid, Mode};
use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sockopt,
};

use super::message::MESSAGE_BYTES;

/// Most descriptors in one packet that the kernel takes (`SCM_MAX_FD`). The buffer takes all of them: what does not fit
/// the kernel closes at once, which a socket with SO_LINGER makes a wait.
const MAX_DESCRIPTORS: usize = 253;

/// A packet that arrived. Empty bytes: the other side has closed.
#[derive(Debug)]
pub struct Received {
    /// The message.
    pub bytes: Vec<u8>,
    /// The descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
    /// It was longer than any message, or there were descriptors for which this process has no free number.
    pub is_cut: bool,
}

/// Sends one packet; never raises SIGPIPE and never waits: AGAIN means that the other side does not
/// take what it asked for.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let parts = [IoSlice::new(bytes)];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(socket, &parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            Ok(sent) if sent == bytes.len() => return Ok(()),
            Ok(_) => return Err(Errno::MSGSIZE),
            Err(errno) => return Err(errno),
        }
    }
}

/// As [`receive_any`], of a whole packet; one that is cut is `MSGSIZE`.
pub fn receive(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<Received> {
    let received = receive_any(socket, flags)?;
    if received.is_cut {
        return Err(Errno::MSGSIZE);
    }
    Ok(received)
}

/// Receives one packet; waits unless the socket is non-blocking or `flags` say not to.
pub fn receive_any(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<Received> {
    let mut bytes = vec![0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = item {
            descriptors.extend(list);
        }
    }
    bytes.truncate(message.bytes);
    Ok(Received {
        bytes,
        descriptors,
        is_cut: message
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC),
    })
}

/// The address behind a name: `@name` is abstract, anything else a path.
fn address(name: &str) -> Result<SocketAddrUnix> {
    match name.strip_prefix('@') {
        Some(abstract_name) => SocketAddrUnix::new_abstract_name(abstract_name.as_bytes()),
        None => SocketAddrUnix::new(name),
    }
}

/// Who may connect to a control socket that has a path, as the kernel asks for permission to write (unix(7)). An abstract
/// name has no permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits; else what the umask leaves of 0777.
    pub mode: Option<u32>,
    /// The group's number; else this process's.
    pub group: Option<u32>,
}

/// Engine: a listening control socket. A path must not exist yet.
pub fn listen(name: &str) -> Result<OwnedFd> {
    listen_for(name, SocketAccess::default())
}

/// The same, for some only. INVAL where an abstract name is to have permissions.
pub fn listen_for(name: &str, access: SocketAccess) -> Result<OwnedFd> {
    if name.starts_with('@') && access != SocketAccess::default() {
        return Err(Errno::INVAL);
    }
    let address = address(name)?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    match access.mode {
        None => rustix::net::bind(&socket, &address)?,
        Some(mode) => {
            // The file never has other permissions than these.
            let usual = rustix::process::umask(Mode::from_raw_mode(!mode & 0o777));
            let bound = rustix::net::bind(&socket, &address);
            rustix::process::umask(usual);
            bound?;
        }
    }
    if let Some(group) = access.group {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(CWD, name, None, Some(Gid::from_raw(group)), flags)?;
    }
    // Nobody can connect before, whatever the group was.
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

/// How long whoever listens may leave a connection in a full backlog.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Program: a control channel to the engine of that name. AGAIN where whoever listens does not keep up.
pub fn connect(name: &str) -> Result<OwnedFd> {
    connect_with(name, SocketFlags::CLOEXEC)
}

/// As [`connect`] for those who must not wait. Calls on the socket do not wait either.
pub fn try_connect(name: &str) -> Result<OwnedFd> {
    connect_with(name, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

fn connect_with(name: &str, flags: SocketFlags) -> Result<OwnedFd> {
    let address = address(name)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    let timeout = sockopt::Timeout::Send;
    // See unix(7): connect(2) waits for so long.
    sockopt::set_socket_timeout(&socket, timeout, Some(CONNECT_TIMEOUT))?;
    rustix::net::connect(&socket, &address)?;
    sockopt::set_socket_timeout(&socket, timeout, None)?;
    Ok(socket)
}
