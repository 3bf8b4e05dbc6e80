//! Whose network a socket is of: a port that somebody holds in a network namespace of his own is none of ours.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys;

/// Whether a socket belongs to the network namespace in which this was asked first. A kernel before 5.14 cannot tell
/// them apart, and then every socket does.
///
/// # Errors
/// It is no socket.
pub fn is_of_own_network(socket: BorrowedFd<'_>) -> io::Result<bool> {
    static OWN: OnceLock<u64> = OnceLock::new();
    let cookie = match sys::network_cookie(socket) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => return Ok(true),
        cookie => cookie?,
    };
    if let Some(own) = OWN.get() {
        return Ok(*own == cookie);
    }
    let own = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let own = sys::network_cookie(own.as_fd())?;
    Ok(*OWN.get_or_init(|| own) == cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_one_network_know_each_other() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(is_of_own_network(socket.as_fd()).unwrap());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(is_of_own_network(file.as_fd()).is_err());
    }
}
