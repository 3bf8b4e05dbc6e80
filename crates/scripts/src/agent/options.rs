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

/// Name, level, number and form of each option.
macro_rules! options {
    ($($form:ident $level:ident: $($name:ident)*;)*) => {
        &[$($((stringify!($name), libc::$level, libc::$name, Form::$form),)*)*]
    };
}

const OPTIONS: &[(&str, i32, i32, Form)] = options! {
    Number SOL_SOCKET: SO_KEEPALIVE SO_RCVBUF SO_SNDBUF SO_RCVLOWAT SO_OOBINLINE SO_REUSEADDR SO_REUSEPORT SO_ACCEPTCONN;
    Linger SOL_SOCKET: SO_LINGER;
    TimeValue SOL_SOCKET: SO_RCVTIMEO SO_SNDTIMEO;
    Number IPPROTO_TCP: TCP_NODELAY TCP_CORK TCP_QUICKACK TCP_DEFER_ACCEPT TCP_MAXSEG TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT;
    Number IPPROTO_TCP: TCP_SYNCNT TCP_LINGER2 TCP_WINDOW_CLAMP TCP_USER_TIMEOUT TCP_FASTOPEN TCP_FASTOPEN_CONNECT;
    Number IPPROTO_TCP: TCP_NOTSENT_LOWAT TCP_SAVE_SYN;
    Text IPPROTO_TCP: TCP_CONGESTION;
    Number IPPROTO_IP: IP_TOS IP_MTU IP_MTU_DISCOVER;
    Number IPPROTO_IPV6: IPV6_V6ONLY IPV6_MTU;
};

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

const STATES: &str = "NONE ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 TIME_WAIT CLOSE CLOSE_WAIT LAST_ACK LISTEN CLOSING";

/// Fields of a byte, behind the state.
const BYTES: [&str; 5] = ["ca_state", "retransmits", "probes", "backoff", "options"];

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
            let name = STATES.split(' ').nth(state);
            Ok(name.unwrap_or("NONE").to_owned())
        }
        _ => {
            if let Some(at) = BYTES.iter().position(|known| *known == field) {
                return Ok(byte(at + 1)?.to_string());
            }
            let found = FIELDS.iter().find(|(known, _)| *known == field);
            let (_, at) = found.ok_or(libc::ENOPROTOOPT)?;
            let four = bytes.get(*at..*at + 4).ok_or(libc::EINVAL)?;
            Ok(u32::from_ne_bytes(four.try_into().map_err(|_| libc::EINVAL)?).to_string())
        }
    }
}
