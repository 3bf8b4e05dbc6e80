//! TCP_INFO as the bytes of Linux's `struct tcp_info` (linux/tcp.h), as far as the program's side
//! knows them: state, sizes of segments, and what is in flight. The rest is zero, which Linux uses for
//! "not known" too.

use crate::accelerated::Stream;
use crate::readiness::Phase;

/// Length of the structure up to `tcpi_delivery_rate`, which every reader of today expects.
const LEN: usize = 168;

/// Numbers of the states in `tcpi_state` (net/tcp_states.h).
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const FIN_WAIT1: u8 = 4;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const LISTEN: u8 = 10;

const UNACKED: usize = 24;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;

/// The structure for one connection.
pub fn emit(stream: &Stream, send_over: bool) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[0] = state(stream.phase(), stream.fin_received(), send_over);
    let in_flight = u32::try_from(stream.unacknowledged_bytes()).unwrap_or(u32::MAX);
    // Linux counts packets here; without the segment size the least that it can be.
    put(&mut bytes, UNACKED, &u32::from(in_flight > 0).to_ne_bytes());
    put(
        &mut bytes,
        BYTES_ACKED,
        &stream.acknowledged_bytes().to_ne_bytes(),
    );
    put(
        &mut bytes,
        BYTES_RECEIVED,
        &stream.received_bytes().to_ne_bytes(),
    );
    bytes
}

fn state(phase: Phase, receive_over: bool, send_over: bool) -> u8 {
    match (phase, receive_over, send_over) {
        (Phase::Listening, ..) => LISTEN,
        (Phase::Connecting, ..) => SYN_SENT,
        (Phase::Closed, ..) => CLOSE,
        (Phase::Connected, false, false) => ESTABLISHED,
        (Phase::Connected, false, true) => FIN_WAIT1,
        (Phase::Connected, true, false) => CLOSE_WAIT,
        (Phase::Connected, true, true) => LAST_ACK,
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_the_c_structure() {
        assert_eq!(UNACKED, std::mem::offset_of!(libc::tcp_info, tcpi_unacked));
        assert_eq!(
            BYTES_ACKED,
            std::mem::offset_of!(libc::tcp_info, tcpi_bytes_acked)
        );
        assert_eq!(
            BYTES_RECEIVED,
            std::mem::offset_of!(libc::tcp_info, tcpi_bytes_received)
        );
        assert_eq!(LEN, std::mem::offset_of!(libc::tcp_info, tcpi_busy_time));
    }

    #[test]
    fn states_follow_both_directions() {
        assert_eq!(state(Phase::Connected, false, false), ESTABLISHED);
        assert_eq!(state(Phase::Connected, true, false), CLOSE_WAIT);
        assert_eq!(state(Phase::Connected, false, true), FIN_WAIT1);
        assert_eq!(state(Phase::Closed, true, true), CLOSE);
    }
}
