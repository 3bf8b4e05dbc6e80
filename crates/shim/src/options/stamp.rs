//! SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING, as far as they ask when data has arrived, by the engine's clock.
//! On TCP (Linux `tcp_recv_timestamp`) it is the time of the latest arrival before the call, which may be later
//! than that of the bytes it returns. Times of sending: `stamping`.

use crate::datagram::want;
use crate::socket::Socket;

/// linux/net_tstamp.h.
const RX_SOFTWARE: i32 = 1 << 3;
const SOFTWARE: i32 = 1 << 4;

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

/// Whether the value asks for times of arrival.
pub fn is_asked(name: i32, value: i32) -> bool {
    match name {
        libc::SO_TIMESTAMPING => value & (RX_SOFTWARE | SOFTWARE) == RX_SOFTWARE | SOFTWARE,
        _ => value != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::address::Family;

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
