//! What left the host against what the script expects, and both in the script's own words.

use std::fmt::Write as _;

use crate::agent::pattern;
use crate::expression::Values;
use crate::flow::{Flow, relative};
use crate::frame::{Received, Tcp, TcpOption, flags};
use crate::script::{Cookie, Ecn, Match, Options, Segment, TcpOption as Wanted};

/// What is wrong with a segment: nothing, if the list is empty. Names in the expectation are bound.
pub fn faults(
    wanted: &Segment,
    got: &Received,
    tcp: &Tcp,
    flow: &Flow,
    values: &mut Values,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut note = |fault: Option<String>| faults.extend(fault);
    // Whether a segment is pushed is the sender's affair (RFC 9293 §3.9.1.2) unless the script says more.
    let stated = wanted.flags | wanted.clear;
    let compared = !flags::PSH | stated;
    if tcp.flags & compared != wanted.flags & compared {
        let (wants, is) = (flags::names(wanted.flags), flags::names(tcp.flags));
        note(Some(format!("flags are {is}, not {wants}")));
    }
    let seq = relative(flow.host_isn.unwrap_or(0), tcp.seq);
    let len = i64::try_from(tcp.payload.len()).unwrap_or(i64::MAX);
    note(number("seq", wanted.seq.as_ref(), seq, values));
    note(number("len", wanted.len.as_ref(), len, values));
    if tcp.flags & flags::ACK != 0 {
        let ack = relative(flow.peer_isn, tcp.ack);
        note(number("ack", wanted.ack.as_ref(), ack, values));
    }
    note(number(
        "win",
        wanted.window.as_ref(),
        tcp.window.into(),
        values,
    ));
    note(number(
        "urg",
        wanted.urgent.as_ref(),
        tcp.urgent.into(),
        values,
    ));
    if !tcp.is_checksum_right {
        note(Some("the checksum is wrong".to_owned()));
    }
    let first = if tcp.flags & flags::SYN != 0 {
        seq
    } else {
        seq - 1
    };
    if let Ok(first) = u64::try_from(first) {
        let mut bytes = tcp.payload.iter().zip(first..);
        if let Some((_, at)) = bytes.find(|(byte, at)| **byte != pattern(*at)) {
            note(Some(format!(
                "the byte at position {at} of the stream is wrong"
            )));
        }
    }
    if let Some(ecn) = wanted.ecn.filter(|ecn| code_point(*ecn) != got.ecn) {
        note(Some(format!(
            "the ECN field is {}, not {}",
            got.ecn,
            code_point(ecn)
        )));
    }
    if wanted.df.is_some_and(|df| df != got.df) {
        note(Some(format!(
            "\"don't fragment\" is {}",
            if got.df { "set" } else { "clear" }
        )));
    }
    if let Some(options) = &wanted.options {
        faults.extend(option_faults(options, tcp, flow, values));
    }
    faults
}

/// The two bits of an ECN code point.
pub fn code_point(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::Not => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    }
}

/// A number against what it must be; remembers it where the script names it.
pub fn number(what: &str, wanted: Option<&Match>, is: i64, values: &mut Values) -> Option<String> {
    let value = |expression: &crate::expression::Expression| expression.value(values);
    let verdict = match wanted? {
        Match::Any => Ok(None),
        Match::Is(middle, tolerance) => value(middle).and_then(|middle| {
            let tolerance = tolerance.as_ref().map_or(Ok(0), value)?;
            let is_near = (is - middle).abs() <= tolerance;
            Ok((!is_near).then(|| format!("{what} is {is}, not {middle}")))
        }),
        Match::Above(least) => value(least)
            .map(|least| (is <= least).then(|| format!("{what} is {is}, not more than {least}"))),
        Match::Bind(name) => {
            values.bind(name, is);
            Ok(None)
        }
    };
    verdict.unwrap_or_else(Some)
}

fn option_faults(wanted: &Options, tcp: &Tcp, flow: &Flow, values: &mut Values) -> Vec<String> {
    let mut faults = Vec::new();
    let is_padding = |option: &&TcpOption| matches!(option, TcpOption::Nop | TcpOption::End);
    let mut left: Vec<&TcpOption> = tcp.options.iter().filter(|one| !is_padding(one)).collect();
    for option in &wanted.list {
        let Some(at) = left.iter().position(|one| is_same_kind(option, one)) else {
            faults.push(format!("option {} is missing", option_name(option)));
            continue;
        };
        faults.extend(option_fault(option, left.remove(at), flow, values));
    }
    if !wanted.open_ended {
        for option in left {
            faults.push(format!(
                "option {} was not expected",
                describe_option(option, flow)
            ));
        }
    }
    faults
}

fn is_same_kind(wanted: &Wanted, got: &TcpOption) -> bool {
    matches!(
        (wanted, got),
        (Wanted::Mss(_), TcpOption::Mss(_))
            | (Wanted::WindowScale(_), TcpOption::WindowScale(_))
            | (Wanted::SackPermitted, TcpOption::SackPermitted)
            | (Wanted::Timestamps(..), TcpOption::Timestamps(..))
            | (Wanted::Sack(_), TcpOption::Sack(_))
            | (Wanted::FastOpen(_), TcpOption::FastOpen(_))
    )
}

fn option_name(wanted: &Wanted) -> &'static str {
    match wanted {
        Wanted::Mss(_) => "mss",
        Wanted::WindowScale(_) => "ws",
        Wanted::SackPermitted => "sackok",
        Wanted::Timestamps(..) | Wanted::TimestampsAuto | Wanted::NoTimestamps => "ts",
        Wanted::Sack(_) => "sack",
        Wanted::FastOpen(_) => "fo",
        Wanted::Nop => "nop",
        Wanted::Raw(..) => "raw",
    }
}

fn option_fault(
    wanted: &Wanted,
    got: &TcpOption,
    flow: &Flow,
    values: &mut Values,
) -> Option<String> {
    match (wanted, got) {
        (Wanted::Mss(wanted), TcpOption::Mss(is)) => {
            number("mss", Some(wanted), i64::from(*is), values)
        }
        (Wanted::WindowScale(wanted), TcpOption::WindowScale(is)) => {
            number("ws", Some(wanted), i64::from(*is), values)
        }
        (Wanted::Timestamps(value, echo), TcpOption::Timestamps(is_value, is_echo)) => {
            number("ts value", Some(value), i64::from(*is_value), values)
                .or_else(|| number("ts echo", Some(echo), i64::from(*is_echo), values))
        }
        (Wanted::Sack(blocks), TcpOption::Sack(is)) => {
            if blocks.len() != is.len() {
                return Some(format!(
                    "{} are {} SACK blocks",
                    describe_option(got, flow),
                    is.len()
                ));
            }
            let mut edges = blocks.iter().zip(is);
            edges.find_map(|((left, right), (is_left, is_right))| {
                let edge = |number| relative(flow.peer_isn, number);
                number("SACK left edge", Some(left), edge(*is_left), values)
                    .or_else(|| number("SACK right edge", Some(right), edge(*is_right), values))
            })
        }
        (Wanted::FastOpen(cookie), TcpOption::FastOpen(is)) => {
            let is_right = match cookie {
                Cookie::Request => is.is_empty(),
                Cookie::Bytes(bytes) => bytes == is,
                Cookie::Remembered => !is.is_empty(),
            };
            (!is_right).then(|| format!("the cookie is {}", hex(is)))
        }
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn describe_option(option: &TcpOption, flow: &Flow) -> String {
    match option {
        TcpOption::End => "eol".to_owned(),
        TcpOption::Nop => "nop".to_owned(),
        TcpOption::Mss(value) => format!("mss {value}"),
        TcpOption::WindowScale(value) => format!("ws {value}"),
        TcpOption::SackPermitted => "sackok".to_owned(),
        TcpOption::Timestamps(value, echo) => format!("ts {value} {echo}"),
        TcpOption::Sack(blocks) => blocks
            .iter()
            .fold("sack".to_owned(), |text, (left, right)| {
                let edge = |number| relative(flow.peer_isn, number);
                format!("{text} {}:{}", edge(*left), edge(*right))
            }),
        TcpOption::FastOpen(cookie) if cookie.is_empty() => "fo".to_owned(),
        TcpOption::FastOpen(cookie) => format!("fo {}", hex(cookie)),
        TcpOption::Other(kind, body) => format!("raw {kind} {}", hex(body)),
    }
}

/// A segment of the host as a script would write it.
pub fn describe(got: &Received, tcp: &Tcp, flow: Option<(u16, &Flow)>) -> String {
    let unknown = Flow::new(0, 0, 0);
    let (number, flow) = flow.unwrap_or((0, &unknown));
    let mut text = match number {
        0 => format!("out (to port {})", tcp.destination_port),
        1 => "out".to_owned(),
        _ => format!("out@{number}"),
    };
    let host_isn = flow.host_isn.unwrap_or(if tcp.flags & flags::SYN != 0 {
        tcp.seq
    } else {
        0
    });
    let seq = relative(host_isn, tcp.seq);
    let len = i64::try_from(tcp.payload.len()).unwrap_or(i64::MAX);
    let _ = write!(text, " {} {seq}", flags::names(tcp.flags));
    if len > 0 {
        let _ = write!(text, ":{}", seq + len);
    }
    if tcp.flags & flags::ACK != 0 {
        let _ = write!(text, " ack {}", relative(flow.peer_isn, tcp.ack));
    }
    let _ = write!(text, " win {}", tcp.window);
    if tcp.flags & flags::URG != 0 {
        let _ = write!(text, " urg {}", tcp.urgent);
    }
    let options: Vec<String> = tcp
        .options
        .iter()
        .filter(|option| !matches!(option, TcpOption::Nop | TcpOption::End))
        .map(|option| describe_option(option, flow))
        .collect();
    if !options.is_empty() {
        let _ = write!(text, " <{}>", options.join(", "));
    }
    match got.ecn {
        0 => {}
        1 => text.push_str(" ecn ect1"),
        2 => text.push_str(" ecn ect0"),
        _ => text.push_str(" ecn ce"),
    }
    if !tcp.is_checksum_right {
        text.push_str(" (wrong checksum)");
    }
    text
}
