//! SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING, as far as they ask when data has arrived, by the engine's clock.
//! On TCP (Linux `tcp_recv_timestamp`) it is the time of the latest arrival before the call, which may be later
//! than that of the bytes it returns. Times of sending: `stamping`.

use crate::socket::Socket;
use client::datagram_messages::want;

use switch::options::is_asked;

/// SO_TIMESTAMPING under both of its numbers (asm-generic/socket.h).
pub const IS_STAMPING: [i32; 2] = [libc::SO_TIMESTAMPING, 65];

/// The program has set one of them.
pub fn follow(socket: &Socket, name: i32, value: i32) {
    let what = match name {
        libc::SO_TIMESTAMP => want::TIMESTAMP,
        libc::SO_TIMESTAMPNS => want::TIMESTAMP_NS,
        _ => want::TIMESTAMPING,
    };
    if what != want::TIMESTAMPING {
        // One switch with two units: the last call counts (Linux `__sock_set_timestamps`).
        socket.set_wanted(want::TIMESTAMP | want::TIMESTAMP_NS, false);
    }
    let is_asked = is_asked(name, value);
    if is_asked && what != want::TIMESTAMPING {
        // Off again, SIOCGSTAMP tells times all the same (Linux `sock_enable_timestamp`).
        socket.last_arrival.ask();
    }
    socket.set_wanted(what, is_asked);
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::address::Family;
    use switch::options::{RX_SOFTWARE, SOFTWARE};

    #[test]
    fn only_software_times_of_arrival_are_told() {
        let socket = Socket::new(Family::V4);
        follow(&socket, libc::SO_TIMESTAMPING, RX_SOFTWARE);
        assert_eq!(socket.wanted(), 0);
        follow(&socket, libc::SO_TIMESTAMPING, RX_SOFTWARE | SOFTWARE | 1);
        follow(&socket, libc::SO_TIMESTAMPNS, 1);
        assert_eq!(socket.wanted(), want::TIMESTAMPING | want::TIMESTAMP_NS);
        follow(&socket, libc::SO_TIMESTAMP, 1);
        assert_eq!(socket.wanted(), want::TIMESTAMPING | want::TIMESTAMP);
        follow(&socket, libc::SO_TIMESTAMPNS, 0);
        assert_eq!(socket.wanted(), want::TIMESTAMPING);
    }
}
