//! Where BPF is not permitted: the kernel gets what the engine gets, and a classic filter on its socket of the
//! same port throws away what came by the engine's interface, without an answer. A TCP socket has to listen for that.

use std::io;
use std::os::fd::BorrowedFd;

use bpf::classic::ancillary::INTERFACE;
use bpf::classic::{
    ACCEPT, Instruction, LOAD_WORD, REJECT, RETURN, attach, detach, if_equal, plain,
};

/// Makes a socket of the kernel receive nothing from interface number `interface`.
///
/// # Errors
/// The kernel refuses the filter.
pub fn drop_kernel_copy(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    attach(socket, &program(interface))
}

/// Takes that filter away.
///
/// # Errors
/// It is no socket.
pub fn restore(socket: BorrowedFd<'_>) -> io::Result<()> {
    detach(socket)
}

const fn program(interface: u32) -> [Instruction; 4] {
    [
        plain(LOAD_WORD, INTERFACE),
        if_equal(interface, 0, 1),
        plain(RETURN, REJECT),
        plain(RETURN, ACCEPT),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    #[test]
    fn a_socket_with_the_filter_hears_nothing_from_that_interface() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let wait = Duration::from_millis(50);
        socket.set_read_timeout(Some(wait)).unwrap();
        let address = socket.local_addr().unwrap();
        let hears = || {
            socket.send_to(b"word", address).unwrap();
            socket.recv(&mut [0; 8]).is_ok()
        };
        assert!(hears());
        // The loopback interface is the first of every network namespace.
        drop_kernel_copy(socket.as_fd(), 1).unwrap();
        assert!(!hears());
        drop_kernel_copy(socket.as_fd(), 77).unwrap();
        assert!(hears());
        drop_kernel_copy(socket.as_fd(), 1).unwrap();
        restore(socket.as_fd()).unwrap();
        assert!(hears());
    }
}
