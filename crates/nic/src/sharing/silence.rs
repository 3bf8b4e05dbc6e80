//! Where BPF is not permitted: the kernel gets what the engine gets, and a classic filter on its socket of the
//! same port throws away what came by the engine's interface, without an answer. A TCP socket has to listen for that.

use std::io;
use std::os::fd::BorrowedFd;

use crate::af_packet::bpf::{Instruction, JUMP_IF_EQUAL, LOAD_WORD, RETURN};
use crate::af_packet::sys::set_filter;

/// `SKF_AD_OFF + SKF_AD_IFINDEX` of linux/filter.h.
const INTERFACE: u32 = 0xffff_f000 + 8;

/// Has a socket of the kernel hear nothing from interface number `interface`.
///
/// # Errors
/// The kernel refuses the filter.
pub fn silence(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    set_filter(socket, Some(&program(interface)))
}

/// Takes that away.
///
/// # Errors
/// It is no socket.
pub fn let_speak(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_filter(socket, None)
}

const fn plain(code: u16, operand: u32) -> Instruction {
    Instruction {
        code,
        jump_true: 0,
        jump_false: 0,
        operand,
    }
}

const fn program(interface: u32) -> [Instruction; 4] {
    [
        plain(LOAD_WORD, INTERFACE),
        Instruction {
            code: JUMP_IF_EQUAL,
            jump_true: 0,
            jump_false: 1,
            operand: interface,
        },
        plain(RETURN, 0),
        plain(RETURN, u32::MAX),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    #[test]
    fn a_silenced_socket_hears_nothing_from_that_interface() {
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
        silence(socket.as_fd(), 1).unwrap();
        assert!(!hears());
        silence(socket.as_fd(), 77).unwrap();
        assert!(hears());
        silence(socket.as_fd(), 1).unwrap();
        let_speak(socket.as_fd()).unwrap();
        assert!(hears());
    }
}
