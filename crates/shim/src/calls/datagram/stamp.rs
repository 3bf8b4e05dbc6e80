//! SIOCGSTAMP and SIOCGSTAMPNS: when the datagram that a UDP socket received last has arrived (socket(7), Linux
//! `sock_gettstamp` and `sock_recv_cmsgs`). Arrivals are stamped for it from the first question on: what was received before
//! has the time of that question. What comes with a stamp as a control message (SO_TIMESTAMP and its kin) leaves no other.

use std::os::fd::RawFd;

use rustix::time::{ClockId, clock_gettime};

use super::Call;
use crate::outcome::Switched;
use crate::socket::last_arrival::Answer;

/// linux/sockios.h: the numbers from before 2038 mattered, and those that name a size.
const SIOCGSTAMP: [u64; 2] = [0x8906, 0x8010_8906];
const SIOCGSTAMPNS: [u64; 2] = [0x8907, 0x8010_8907];

/// The two numbers that one of the requests is answered with; `None`: it is none of them, or the kernel's.
pub fn last_arrival(fd: RawFd, request: u64) -> Switched<[u8; 16]> {
    let units_of_ns = if SIOCGSTAMP.contains(&request) {
        1_000
    } else if SIOCGSTAMPNS.contains(&request) {
        1
    } else {
        return Ok(None);
    };
    let Some(call) = Call::begin(fd) else {
        return Ok(None);
    };
    let Some(last) = call.socket().map(|socket| &socket.last_arrival) else {
        return Ok(None);
    };
    if last.ask() {
        // So that it stamps what it will have of the socket.
        super::sys::begin_stamps(fd);
    }
    let at = match last.answer() {
        Answer::Kernels => return Ok(None),
        Answer::Time(at) => at,
        Answer::Now => {
            let at = now_ns();
            last.keep(at);
            at
        }
    };
    let time = [at / 1_000_000_000, at % 1_000_000_000 / units_of_ns];
    let mut answer = [0; 16];
    for (place, part) in answer.chunks_exact_mut(8).zip(time) {
        place.copy_from_slice(&part.to_ne_bytes());
    }
    Ok(Some(answer))
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
