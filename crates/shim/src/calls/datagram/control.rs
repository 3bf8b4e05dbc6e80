//! shutdown(2), ioctl(2) and getsockopt(2) of UDP sockets.

use std::os::fd::RawFd;

use rustix::io::Errno;

use super::Call;
use super::sys::LOOPBACK_MTU;
use crate::calls::options::path_mtu;
use crate::outcome::Switched;
use crate::sys as system;
use switch::device::Device;

/// shutdown(2): nothing goes over the wire; readers and writers wake. ENOTCONN without a peer, although
/// it takes effect even then (`inet_shutdown`).
pub fn shutdown(fd: RawFd, how: i32) -> Switched<i32> {
    let Some(call) = Call::begin(fd) else {
        return Ok(None);
    };
    let Some(served) = call.served() else {
        return Ok(None);
    };
    let (read, write) = match how {
        libc::SHUT_RD => (true, false),
        libc::SHUT_WR => (false, true),
        libc::SHUT_RDWR => (true, true),
        _ => return Err(Errno::INVAL),
    };
    served.socket.set_shut(read, write);
    served.stream.shut_datagrams(read, write);
    served.socket.watchers.notify(u32::MAX);
    if served.socket.has_engine_peer() {
        // It takes effect on the backing socket too, which says that it has no peer.
        let _ = system::shut_backing(fd, how);
        Ok(Some(0))
    } else {
        Ok(None)
    }
}

/// FIONREAD is the length of the next datagram, on whichever stack it is; SIOCOUTQ what has not left.
pub fn ioctl(fd: RawFd, request: u64) -> Switched<i32> {
    let Some(call) = Call::begin(fd) else {
        return Ok(None);
    };
    let Some(served) = call.served() else {
        return Ok(None);
    };
    let bytes = match request {
        libc::FIONREAD => {
            let looked_at = &served.socket.looked_at;
            let first = match looked_at.load() {
                Device::Engine(place) => Some(place),
                Device::Kernel if served.socket.kernel_receives() => return Ok(None),
                Device::Kernel | Device::Loopback(_) | Device::Any => None,
            };
            let turn = served.socket.receive_count();
            let mut next = served.stream.next_datagram_bytes((first, turn))?;
            if next.is_none() {
                served.stream.on_idle_look();
                next = served.stream.next_datagram_bytes((first, turn))?;
            }
            match next {
                Some((bytes, place)) => {
                    looked_at.store(Device::Engine(place));
                    bytes
                }
                None if served.socket.kernel_receives() => {
                    looked_at.store(Device::Kernel);
                    return Ok(None);
                }
                None => 0,
            }
        }
        libc::TIOCOUTQ => {
            served.stream.on_idle_look();
            served.stream.unacknowledged_bytes()
        }
        _ => return Ok(None),
    };
    Ok(Some(i32::try_from(bytes).unwrap_or(i32::MAX)))
}

/// A getsockopt(2) that the kernel would answer wrongly.
pub fn ask(fd: RawFd, level: i32, name: i32) -> Switched<Vec<u8>> {
    let Some(call) = Call::begin(fd) else {
        return Ok(None);
    };
    let Some(served) = call.served() else {
        return Ok(None);
    };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            let error = served.stream.take_error().map(Errno::raw_os_error);
            Ok(error.map(|error| error.to_ne_bytes().to_vec()))
        }
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => {
            Ok(Some(served.socket.peek_offset().to_ne_bytes().to_vec()))
        }
        _ if served.socket.has_engine_peer() => {
            let peer = served.stream.peer();
            let is_loopback = peer.is_some_and(|peer| peer.ip().is_loopback());
            let mtu = || match is_loopback {
                true => Ok(LOOPBACK_MTU.into()),
                false => Ok(served.stream.path_mtu()?),
            };
            path_mtu(served.socket, level, name, &mtu)
        }
        _ => Ok(None),
    }
}
