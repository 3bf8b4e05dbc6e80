//! Segments and ICMP errors: `in SYN 0 win 65535 <mss 1460>`, `out ACK 1:1001 ack 1`.

use crate::expression::Expression;
use crate::frame::flags;
use crate::frame::icmp::Error;
use crate::script::{Action, Cookie, Ecn, Icmp, Match, Options, Segment, TcpOption};

/// The words of a line; `<…>` is one.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<Option<&'a str>, String> {
        let text = self.rest.trim_start();
        if text.is_empty() {
            return Ok(None);
        }
        let end = if text.starts_with('<') {
            text.find('>')
                .map(|at| at + 1)
                .ok_or("options end with >")?
        } else {
            text.find(char::is_whitespace).unwrap_or(text.len())
        };
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        Ok(Some(word))
    }

    fn argument(&mut self, name: &str) -> Result<&'a str, String> {
        self.next()?.ok_or_else(|| format!("{name} needs a value"))
    }
}

/// What follows `in`.
pub(super) fn arriving(flow: u16, text: &str) -> Result<Action, String> {
    if let Some(rest) = text.strip_prefix("ICMP ") {
        return icmp(flow, rest).map(Action::IcmpIn);
    }
    segment(flow, text, Direction::In).map(Action::In)
}

/// What follows `out`.
pub(super) fn expected(flow: u16, text: &str) -> Result<Segment, String> {
    segment(flow, text, Direction::Out)
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    In,
    Out,
}

fn segment(flow: u16, text: &str, direction: Direction) -> Result<Segment, String> {
    let mut words = Words { rest: text };
    let first = words
        .next()?
        .ok_or("control bits are missing, such as SYN+ACK")?;
    let mut segment = Segment {
        flow,
        ..Segment::default()
    };
    for word in first.split('+') {
        let (word, bits) = match word.strip_prefix("no") {
            Some(word) => (word, &mut segment.clear),
            None => (word, &mut segment.flags),
        };
        *bits |= flags::by_name(word).ok_or_else(|| format!("{word:?} is no control bit"))?;
    }
    while let Some(word) = words.next()? {
        match word {
            "ack" => segment.ack = Some(number(words.argument(word)?)?),
            "win" => segment.window = Some(number(words.argument(word)?)?),
            "urg" => segment.urgent = Some(number(words.argument(word)?)?),
            "ecn" => segment.ecn = Some(ecn(words.argument(word)?)?),
            "df" => segment.df = Some(true),
            "nodf" => segment.df = Some(false),
            "badsum" if direction == Direction::In => segment.bad_checksum = true,
            _ if word.starts_with('<') => segment.options = Some(options(word, direction)?),
            _ if segment.seq.is_none() => range(word, &mut segment)?,
            _ => return Err(format!("{word:?} was not expected here")),
        }
    }
    Ok(segment)
}

/// `SEQ`, `SEQ:END` or `SEQ:END/SIZE`.
fn range(word: &str, segment: &mut Segment) -> Result<(), String> {
    let Some((seq, end)) = word.split_once(':') else {
        segment.seq = Some(number(word)?);
        segment.len = Some(Match::Is(Expression::from(0), None));
        return Ok(());
    };
    let (end, size) = match end.split_once('/') {
        Some((end, size)) => (end, Some(Expression::parse(size)?)),
        None => (end, None),
    };
    segment.seq = Some(number(seq)?);
    segment.len = Some(match (&segment.seq, end) {
        (_, "*") => Match::Any,
        (Some(Match::Is(seq, None)), _) => Match::Is(Expression::parse(end)?.minus(seq), None),
        _ => {
            return Err(format!(
                "{word:?}: the length is known only from a number on"
            ));
        }
    });
    segment.train = size;
    Ok(())
}

/// `*`, `5`, `5~2`, `>5`, `=name`.
pub(super) fn number(word: &str) -> Result<Match, String> {
    let word = word.trim();
    Ok(if word == "*" {
        Match::Any
    } else if let Some(rest) = word.strip_prefix('>') {
        Match::Above(Expression::parse(rest)?)
    } else if let Some(name) = word.strip_prefix('=') {
        // Checked as a name would be where it is used.
        Expression::parse(&format!("${name}"))?;
        Match::Bind(name.to_owned())
    } else if let Some((middle, tolerance)) = word.split_once('~') {
        Match::Is(
            Expression::parse(middle)?,
            Some(Expression::parse(tolerance)?),
        )
    } else {
        Match::Is(Expression::parse(word)?, None)
    })
}

fn ecn(word: &str) -> Result<Ecn, String> {
    Ok(match word {
        "no" => Ecn::Not,
        "ect0" => Ecn::Ect0,
        "ect1" => Ecn::Ect1,
        "ce" => Ecn::Ce,
        _ => return Err(format!("{word:?}: ecn is no, ect0, ect1 or ce")),
    })
}

fn options(word: &str, direction: Direction) -> Result<Options, String> {
    let inner = word.trim_start_matches('<').trim_end_matches('>').trim();
    let mut options = Options::default();
    for part in inner
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        match part {
            "..." if direction == Direction::Out => options.open_ended = true,
            _ => options.list.push(option(part, direction)?),
        }
    }
    Ok(options)
}

fn option(text: &str, direction: Direction) -> Result<TcpOption, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let arriving = direction == Direction::In;
    Ok(match words.as_slice() {
        ["mss", value] => TcpOption::Mss(number(value)?),
        ["ws", value] => TcpOption::WindowScale(number(value)?),
        ["sackok"] => TcpOption::SackPermitted,
        ["ts", "auto"] if arriving => TcpOption::TimestampsAuto,
        ["ts", value, echo] => TcpOption::Timestamps(number(value)?, number(echo)?),
        ["nots"] if arriving => TcpOption::NoTimestamps,
        ["sack", blocks @ ..] if !blocks.is_empty() && blocks.len() <= 4 => {
            let block = |text: &&str| {
                let (left, right) = text.split_once(':').ok_or("a SACK block is LEFT:RIGHT")?;
                Ok::<_, String>((number(left)?, number(right)?))
            };
            TcpOption::Sack(blocks.iter().map(block).collect::<Result<_, _>>()?)
        }
        ["fo"] => TcpOption::FastOpen(Cookie::Request),
        ["fo", "cookie"] => TcpOption::FastOpen(Cookie::Remembered),
        ["fo", bytes] => TcpOption::FastOpen(Cookie::Bytes(hex(bytes)?)),
        ["nop"] if arriving => TcpOption::Nop,
        ["raw", kind, bytes] if arriving => {
            let kind = kind
                .parse()
                .map_err(|_| format!("{kind:?} is no kind of option"))?;
            TcpOption::Raw(kind, hex(bytes)?)
        }
        _ => return Err(format!("{text:?} is no option that is known here")),
    })
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("{text:?} is no even number of hexadecimal digits, at most 80");
    if !text.len().is_multiple_of(2) || text.len() > 80 || !text.is_ascii() {
        return Err(wrong());
    }
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong());
    (0..text.len()).step_by(2).map(byte).collect()
}

/// What follows `in ICMP`: `too-big 1200 about 1`, `port-unreachable about 0`.
fn icmp(flow: u16, text: &str) -> Result<Icmp, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (kind, mtu, about) = match words.as_slice() {
        ["too-big", mtu, "about", seq] => (Error::TooBig, Some(Expression::parse(mtu)?), seq),
        [kind, "about", seq] => {
            let kind = match *kind {
                "net-unreachable" => Error::NetUnreachable,
                "host-unreachable" => Error::HostUnreachable,
                "protocol-unreachable" => Error::ProtocolUnreachable,
                "port-unreachable" => Error::PortUnreachable,
                "prohibited" => Error::Prohibited,
                "time-exceeded" => Error::TimeExceeded,
                "source-quench" => Error::SourceQuench,
                _ => return Err(format!("{kind:?} is no ICMP error that is known here")),
            };
            (kind, None, seq)
        }
        _ => return Err("an ICMP error is KIND about SEQ, or too-big MTU about SEQ".to_owned()),
    };
    Ok(Icmp {
        flow,
        kind,
        mtu,
        about: Expression::parse(about)?,
    })
}
