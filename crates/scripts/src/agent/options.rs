//! Socket options by name, and TCP_INFO's fields.

use super::sys;

/// How an option's value looks in memory.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Number,
    /// Milliseconds in the script.
    TimeValue,
    /// Switch and seconds.
    Linger,
    Text,
}

const OPTIONS: &[(&str, i32, i32, Form)] = &[
    (
        "SO_KEEPALIVE",
        libc::SOL_SOCKET,
        libc::SO_KEEPALIVE,
        Form::Number,
    ),
    ("SO_LINGER", libc::SOL_SOCKET, libc::SO_LINGER, Form::Linger),
    ("SO_RCVBUF", libc::SOL_SOCKET, libc::SO_RCVBUF, Form::Number),
    ("SO_SNDBUF", libc::SOL_SOCKET, libc::SO_SNDBUF, Form::Number),
    (
        "SO_RCVLOWAT",
        libc::SOL_SOCKET,
        libc::SO_RCVLOWAT,
        Form::Number,
    ),
    (
        "SO_RCVTIMEO",
        libc::SOL_SOCKET,
        libc::SO_RCVTIMEO,
        Form::TimeValue,
    ),
    (
        "SO_SNDTIMEO",
        libc::SOL_SOCKET,
        libc::SO_SNDTIMEO,
        Form::TimeValue,
    ),
    (
        "SO_OOBINLINE",
        libc::SOL_SOCKET,
        libc::SO_OOBINLINE,
        Form::Number,
    ),
    (
        "SO_REUSEADDR",
        libc::SOL_SOCKET,
        libc::SO_REUSEADDR,
        Form::Number,
    ),
    (
        "SO_REUSEPORT",
        libc::SOL_SOCKET,
        libc::SO_REUSEPORT,
        Form::Number,
    ),
    (
        "SO_ACCEPTCONN",
        libc::SOL_SOCKET,
        libc::SO_ACCEPTCONN,
        Form::Number,
    ),
    (
        "TCP_NODELAY",
        libc::IPPROTO_TCP,
        libc::TCP_NODELAY,
        Form::Number,
    ),
    ("TCP_CORK", libc::IPPROTO_TCP, libc::TCP_CORK, Form::Number),
    (
        "TCP_QUICKACK",
        libc::IPPROTO_TCP,
        libc::TCP_QUICKACK,
        Form::Number,
    ),
    (
        "TCP_DEFER_ACCEPT",
        libc::IPPROTO_TCP,
        libc::TCP_DEFER_ACCEPT,
        Form::Number,
    ),
    (
        "TCP_MAXSEG",
        libc::IPPROTO_TCP,
        libc::TCP_MAXSEG,
        Form::Number,
    ),
    (
        "TCP_KEEPIDLE",
        libc::IPPROTO_TCP,
        libc::TCP_KEEPIDLE,
        Form::Number,
    ),
    (
        "TCP_KEEPINTVL",
        libc::IPPROTO_TCP,
        libc::TCP_KEEPINTVL,
        Form::Number,
    ),
    (
        "TCP_KEEPCNT",
        libc::IPPROTO_TCP,
        libc::TCP_KEEPCNT,
        Form::Number,
    ),
    (
        "TCP_SYNCNT",
        libc::IPPROTO_TCP,
        libc::TCP_SYNCNT,
        Form::Number,
    ),
    (
        "TCP_LINGER2",
        libc::IPPROTO_TCP,
        libc::TCP_LINGER2,
        Form::Number,
    ),
    (
        "TCP_WINDOW_CLAMP",
        libc::IPPROTO_TCP,
        libc::TCP_WINDOW_CLAMP,
        Form::Number,
    ),
    (
        "TCP_CONGESTION",
        libc::IPPROTO_TCP,
        libc::TCP_CONGESTION,
        Form::Text,
    ),
    (
        "TCP_USER_TIMEOUT",
        libc::IPPROTO_TCP,
        libc::TCP_USER_TIMEOUT,
        Form::Number,
    ),
    (
        "TCP_FASTOPEN",
        libc::IPPROTO_TCP,
        libc::TCP_FASTOPEN,
        Form::Number,
    ),
    (
        "TCP_FASTOPEN_CONNECT",
        libc::IPPROTO_TCP,
        libc::TCP_FASTOPEN_CONNECT,
        Form::Number,
    ),
    (
        "TCP_NOTSENT_LOWAT",
        libc::IPPROTO_TCP,
        libc::TCP_NOTSENT_LOWAT,
        Form::Number,
    ),
    (
        "TCP_SAVE_SYN",
        libc::IPPROTO_TCP,
        libc::TCP_SAVE_SYN,
        Form::Number,
    ),
    ("IP_TOS", libc::IPPROTO_IP, libc::IP_TOS, Form::Number),
    ("IP_MTU", libc::IPPROTO_IP, libc::IP_MTU, Form::Number),
    (
        "IP_MTU_DISCOVER",
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        Form::Number,
    ),
    (
        "IPV6_V6ONLY",
        libc::IPPROTO_IPV6,
        libc::IPV6_V6ONLY,
        Form::Number,
    ),
    ("IPV6_MTU", libc::IPPROTO_IPV6, libc::IPV6_MTU, Form::Number),
];

fn find(name: &str) -> Result<(i32, i32, Form), i32> {
    let found = OPTIONS.iter().find(|(known, ..)| *known == name);
    let (_, level, number, form) = found.ok_or(libc::ENOPROTOOPT)?;
    Ok((*level, *number, *form))
}

fn number(text: Option<&str>) -> Result<i32, i32> {
    text.and_then(|text| text.parse().ok()).ok_or(libc::EINVAL)
}

/// setsockopt(2) by name, with one value, or SO_LINGER's two.
pub(super) fn set(
    fd: i32,
    name: &str,
    value: Option<&str>,
    second: Option<&str>,
) -> Result<i64, i32> {
    let (level, option, form) = find(name)?;
    let bytes = match form {
        Form::Number => number(value)?.to_ne_bytes().to_vec(),
        Form::Linger => [number(value)?.to_ne_bytes(), number(second)?.to_ne_bytes()].concat(),
        Form::Text => value.ok_or(libc::EINVAL)?.as_bytes().to_vec(),
        Form::TimeValue => {
            let milliseconds = i64::from(number(value)?);
            let parts = [milliseconds / 1_000, milliseconds % 1_000 * 1_000];
            parts.iter().flat_map(|part| part.to_ne_bytes()).collect()
        }
    };
    sys::set_option(fd, level, option, &bytes)
}

/// getsockopt(2) by name: a number, or a word.
pub(super) fn get(fd: i32, name: &str) -> Result<String, i32> {
    let (level, option, form) = find(name)?;
    let bytes = sys::get_option(fd, level, option)?;
    if form == Form::Text {
        let text: Vec<u8> = bytes.into_iter().take_while(|byte| *byte != 0).collect();
        return Ok(String::from_utf8_lossy(&text).to_uppercase());
    }
    let first = bytes.first_chunk().ok_or(libc::EINVAL)?;
    Ok(i32::from_ne_bytes(*first).to_string())
}

const STATES: [&str; 12] = [
    "NONE",
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
];

/// Where the 32-bit fields stand, see `struct tcp_info` in linux/tcp.h.
const FIELDS: &[(&str, usize)] = &[
    ("rto", 8),
    ("snd_mss", 16),
    ("unacked", 24),
    ("sacked", 28),
    ("lost", 32),
    ("retrans", 36),
    ("pmtu", 60),
    ("rtt", 68),
    ("ssthresh", 76),
    ("cwnd", 80),
    ("advmss", 84),
    ("reordering", 88),
    ("total_retrans", 100),
];

/// One field of TCP_INFO.
pub(super) fn info(fd: i32, field: &str) -> Result<String, i32> {
    let bytes = sys::get_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    let byte = |at: usize| bytes.get(at).copied().ok_or(libc::EINVAL);
    match field {
        "state" => {
            let state = usize::from(byte(0)?);
            Ok(STATES.get(state).copied().unwrap_or("NONE").to_owned())
        }
        "ca_state" => Ok(byte(1)?.to_string()),
        "retransmits" => Ok(byte(2)?.to_string()),
        "probes" => Ok(byte(3)?.to_string()),
        "backoff" => Ok(byte(4)?.to_string()),
        "options" => Ok(byte(5)?.to_string()),
        _ => {
            let found = FIELDS.iter().find(|(known, _)| *known == field);
            let (_, at) = found.ok_or(libc::ENOPROTOOPT)?;
            let four = bytes.get(*at..*at + 4).ok_or(libc::EINVAL)?;
            Ok(u32::from_ne_bytes(four.try_into().map_err(|_| libc::EINVAL)?).to_string())
        }
    }
}
