//! setsockopt(2) and getsockopt(2). The backing socket keeps every option, so that the kernel checks
//! and answers; what the engine acts on is forwarded to it, and a few answers are the engine's own.
//!
//! What the program has set is also written down, for the moment when the socket is decided and for
//! the connections that inherit from a listener.

mod answer;
mod mapped;
mod rare;
pub mod stamp;

pub use answer::Answer;
pub use rare::{note_v6_only, path_mtu};

use std::os::fd::RawFd;

use client::congestion_info;
use client::options::{CONGESTION, CONGESTION_INFO, int, note};
use hostif::{CongestionFigures, OptionChanges};
use rustix::io::Errno;

use crate::calls::datagram::{self, want};
use crate::calls::stamping;
use crate::calls::transfer::with_stream;
use crate::fd_table::descriptors;
use crate::outcome::Switched;
use crate::socket::{AT_ONCE_US, Socket};
use switch::backing;
use switch::device;
use switch::readiness::{IN, Phase, RDNORM};
use switch::stream::Stream;

/// setsockopt(2).
pub fn set(fd: RawFd, level: i32, name: i32, value: &[u8]) -> Switched<i32> {
    let Some(file) = descriptors::lookup(fd) else {
        return Ok(None);
    };
    let Some(socket) = file.socket() else {
        return Ok(None);
    };
    socket.pay_options(fd);
    if socket.is_datagram()
        && !rare::is_foreign(socket, level)
        && let Some(done) = datagram::groups::set(fd, socket, level, name, value)?
    {
        return Ok(Some(done));
    }
    if let Some(refusal) = rare::refusal(socket, level, name, value) {
        return Err(refusal);
    }
    match counts_bytes(socket, level, name, value)? {
        true => set_on_backing(socket, fd, level, name, &stamping::for_backing(value))?,
        false => set_on_backing(socket, fd, level, name, value)?,
    }
    let granted = rare::granted(fd, level, name);
    let value = granted.as_ref().map_or(value, |granted| granted.as_slice());
    socket.log.record(level, name, value);
    keep(socket, level, name, value);
    if socket.is_datagram() {
        datagram::beside::follow(fd, socket, (level, name))?;
        if device::is_named_by(level, name) {
            datagram::follow_device(fd, socket)?;
        }
        datagram::follow(socket, level, name, value);
        datagram::tell(socket);
        datagram::uncork(fd, socket)?;
        return Ok(Some(0));
    }
    let mut changes = OptionChanges::default();
    with_stream(fd, |call| {
        if note(&mut changes, level, name, value) {
            call.stream().set_options(&changes);
        }
        switch::options::apply(call.stream(), level, name, value);
        Ok(())
    })?;
    Ok(Some(0))
}

fn pay(fd: RawFd) {
    let file = descriptors::lookup(fd);
    if let Some(socket) = file.as_ref().and_then(|file| file.socket()) {
        socket.pay_options(fd);
    }
}

/// setsockopt(2) whose value cannot be read, which the kernel says in most cases.
pub fn set_unreadable(fd: RawFd, level: i32, name: i32, is_null: bool) -> Switched<i32> {
    pay(fd);
    // No value is 0 (`do_ipv6_setsockopt`).
    if is_null
        && level == libc::IPPROTO_IPV6
        && let Some(file) = descriptors::lookup(fd)
        && let Some(socket) = file.socket()
        && let Some(refusal) = rare::refusal(socket, level, name, &[0; 4])
    {
        return Err(refusal);
    }
    Ok(None)
}

/// Whether it is SO_TIMESTAMPING of a connection, which alone can count bytes.
fn counts_bytes(socket: &Socket, level: i32, name: i32, value: &[u8]) -> Result<bool, Errno> {
    let stream = socket.borrow_stream();
    let Some(stream) = stream.as_ref().filter(|_| !socket.is_datagram()) else {
        return Ok(false);
    };
    if level != libc::SOL_SOCKET || !stamp::IS_STAMPING.contains(&name) {
        return Ok(false);
    }
    let flags = int(value).unwrap_or(0).cast_unsigned();
    let begins = flags & stamping::OPT_ID != 0 && socket.stamping.flags() & stamping::OPT_ID == 0;
    match stream.phase() {
        Phase::Closed | Phase::Listening if begins => Err(Errno::INVAL),
        _ => Ok(true),
    }
}

/// The kernel keeps the option. It may lack a congestion control that the engine has, and an accelerated
/// socket cannot have one that only the kernel has.
fn set_on_backing(
    socket: &Socket,
    fd: RawFd,
    level: i32,
    name: i32,
    value: &[u8],
) -> Result<(), Errno> {
    if (level, name) != CONGESTION || socket.is_datagram() {
        return backing::set_option(fd, level, name, value);
    }
    let is_ours = hostif::figures::congestion::code(value).is_some();
    if !is_ours && !value.is_empty() && socket.stream().is_some() {
        return Err(Errno::NOENT);
    }
    let kept = backing::set_option(fd, level, name, value);
    if is_ours { Ok(()) } else { kept }
}

/// Options that a program may have set and that are none by default: a bit pattern of zeros, or `1` where that is what
/// there is.
const RECOVERED: [(i32, i32, usize, u8); 10] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 4, 0),
    (libc::SOL_SOCKET, libc::SO_LINGER, 8, 0),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 4, 0),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 4, 1),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO, 16, 0),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO, 16, 0),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 4, 0),
    (libc::IPPROTO_TCP, libc::TCP_CORK, 4, 0),
    (libc::IPPROTO_TCP, libc::TCP_INQ, 4, 0),
    (libc::IPPROTO_IP, libc::IP_TOS, 4, 0),
];

/// What the program that had the descriptor before has set, as far as the switch acts on it: the kernel knows. What is
/// the engine's is there already.
pub fn recover(fd: RawFd, socket: &Socket) {
    for (level, name, len, default) in RECOVERED {
        let mut value = [0; 16];
        let Ok(len) = backing::option(fd, level, name, &mut value[..len]) else {
            continue;
        };
        let value = &value[..len];
        let is_default = value.split_first() == Some((&default, &[0; 15][..len.saturating_sub(1)]));
        if !is_default {
            socket.log.record(level, name, value);
            keep(socket, level, name, value);
        }
    }
}

/// Options that the switch itself acts on.
fn keep(socket: &Socket, level: i32, name: i32, value: &[u8]) {
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INQ) {
        socket.set_wanted(want::BYTES_LEFT, int(value).is_some_and(|value| value != 0));
    }
    if level != libc::SOL_SOCKET {
        return;
    }
    match name {
        libc::SO_RCVTIMEO => socket.set_receive_timeout_us(timeval_us(value)),
        libc::SO_SNDTIMEO => socket.set_send_timeout_us(timeval_us(value)),
        libc::SO_RCVLOWAT => {
            let bytes = int(value).map_or(1, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
            socket.set_low_water(bytes);
            // What is there may be enough now.
            socket.watchers.notify(IN | RDNORM);
        }
        libc::SO_PEEK_OFF => socket.set_peek_offset(int(value).unwrap_or(-1)),
        libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => {
            let bytes = int(value).and_then(|bytes| u32::try_from(bytes).ok());
            socket.set_receive_limit(bytes.unwrap_or(u32::MAX));
        }
        _ if stamp::IS_STAMPING.contains(&name) => {
            let flags = int(value).unwrap_or(0);
            stamp::follow(socket, libc::SO_TIMESTAMPING, flags);
            let stream = socket.borrow_stream();
            let stream = stream.as_ref().filter(|_| !socket.is_datagram());
            let base = |is_next| stream.map_or(0, |stream| stream.key_base(is_next));
            socket.stamping.follow(flags.cast_unsigned(), &base);
        }
        libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS => {
            stamp::follow(socket, name, int(value).unwrap_or(0));
        }
        _ => {}
    }
}

/// A getsockopt(2) that the kernel would answer wrongly, for a value of at most `room` bytes; `asked`: what stands
/// there, for options that are asked for by more than their name.
pub fn ask(
    fd: RawFd,
    level: i32,
    name: i32,
    room: usize,
    asked: &dyn Fn() -> Vec<u8>,
) -> Switched<Answer> {
    pay(fd);
    if switch::groups::filter::is_filter(level, name)
        && let Some(file) = descriptors::lookup(fd)
        && let Some(socket) = file.socket()
    {
        let answer = datagram::groups::ask(socket, level, name, &asked())?;
        return Ok(answer.map(Answer::Value));
    }
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_SAVED_SYN) {
        return with_stream(fd, |call| call.socket().take_saved_syn(call.stream(), room));
    }
    if (level, name) == mapped::ZEROCOPY_RECEIVE
        && let Some(value) = with_stream(fd, |call| mapped::receive(call, asked()))?.flatten()
    {
        return Ok(Some(Answer::Value(value)));
    }
    if (level, name) == datagram::beside::GET
        && let Some(file) = descriptors::lookup(fd)
        && file.socket().is_some_and(datagram::beside::stands_alone)
    {
        return Ok(Some(Answer::Value(Vec::new())));
    }
    if let Some(value) = rare::of_peer(fd, level, name, room)? {
        return Ok(Some(Answer::Value(value)));
    }
    let is_short = (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_PATHMTU) && room < 32;
    if is_short {
        // EINVAL, which the kernel says before it looks for a peer.
        return Ok(None);
    }
    Ok(ask_value(fd, level, name)?.map(Answer::Value))
}

fn ask_value(fd: RawFd, level: i32, name: i32) -> Switched<Vec<u8>> {
    let answer = with_stream(fd, |call| {
        let stream = call.stream();
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                if stream.phase() == Phase::Connecting {
                    stream.on_idle_look();
                }
                let error = stream.take_error().map_or(0, Errno::raw_os_error);
                Some(error.to_ne_bytes().to_vec())
            }
            (libc::SOL_SOCKET, name) if stamp::IS_STAMPING.contains(&name) => {
                // `struct so_timestamping`, of which the second part is a hardware clock.
                let flags = call.socket().stamping.flags().to_ne_bytes();
                Some([flags, [0; 4]].concat())
            }
            (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => {
                let offset = call.socket().peek_offset();
                Some(offset.to_ne_bytes().to_vec())
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => Some(tcp_info(fd, stream)?),
            CONGESTION_INFO => Some(congestion_info::emit(stream.congestion_figures()?)),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) if stream.phase() == Phase::Connected => {
                let mss = i32::try_from(stream.figures()?.snd_mss).unwrap_or(i32::MAX);
                Some(mss.to_ne_bytes().to_vec())
            }
            (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => {
                rare::window_clamp(&call.socket().log, stream)
            }
            rare::V6_ONLY => rare::not_v6_only(call.socket(), stream),
            (libc::IPPROTO_IP | libc::IPPROTO_IPV6, _) => {
                let mtu = || Ok(stream.figures()?.pmtu);
                rare::path_mtu(call.socket(), level, name, &mtu)?
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) => {
                rare::tuned_buffer(&call.socket().log, stream, name)
            }
            // The engine publishes it a little later.
            CONGESTION => call
                .socket()
                .log
                .congestion()
                .or_else(|| stream.congestion())
                .map(padded_name),
            _ => None,
        })
    })?;
    match answer {
        None if (level, name) == CONGESTION => Ok(chosen_congestion(fd).map(padded_name)),
        None if (level, name) == CONGESTION_INFO => Ok(chosen_congestion(fd)
            .map(CongestionFigures::unstarted)
            .map(congestion_info::emit)),
        None => datagram::control::ask(fd, level, name),
        answer => Ok(answer.flatten()),
    }
}

/// TCP_INFO, as long as this kernel's own.
fn tcp_info(fd: RawFd, stream: &Stream) -> Result<Vec<u8>, Errno> {
    let mut kernels = [0; client::tcp_info::LEN_MAX];
    let len = backing::option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut kernels)?;
    Ok(client::tcp_info::emit(&stream.figures()?, len))
}

/// What the program has chosen for a socket that is not decided yet: the kernel may not have it.
fn chosen_congestion(fd: RawFd) -> Option<&'static str> {
    let file = descriptors::lookup(fd)?;
    file.socket()?.log.congestion()
}

/// A name as the kernel answers it, in TCP_CA_NAME_MAX bytes.
fn padded_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

/// A `timeval` as µs, of which the kernel has found the second part in range. Below zero seconds are no time at all
/// (`sock_set_timeout`).
fn timeval_us(value: &[u8]) -> u64 {
    let part = |at: usize| {
        let bytes = value.get(at..).and_then(|value| value.first_chunk());
        bytes.map_or(0, |bytes| i64::from_ne_bytes(*bytes))
    };
    let Ok(seconds) = u64::try_from(part(0)) else {
        return AT_ONCE_US;
    };
    let micros = u64::try_from(part(8)).unwrap_or(0);
    let all = seconds.saturating_mul(1_000_000).saturating_add(micros);
    all.min(AT_ONCE_US - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeval_is_read_in_microseconds() {
        let value = [2_i64.to_ne_bytes(), 500_000_i64.to_ne_bytes()].concat();
        assert_eq!(timeval_us(&value), 2_500_000);
        assert_eq!(timeval_us(&[0; 16]), 0);
        assert_eq!(timeval_us(&[1]), 0);
        let below = [(-1_i64).to_ne_bytes(), 5_i64.to_ne_bytes()].concat();
        assert_eq!(timeval_us(&below), AT_ONCE_US);
    }
}
