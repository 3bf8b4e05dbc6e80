//! Text to [`Script`]. An error names file and line; no input makes it panic.

mod call;
mod given;
mod segment;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::script::{Action, Event, Family, Need, Reason, Scope, Script, Side, Span, When};

/// Events of one script at most, those that a line stands for counted: a script is read by people.
const MAX_EVENTS: usize = 2_000;
/// Longest time that a line may name: an hour.
const MAX_TIME_S: f64 = 3_600.0;
/// How late what leaves "at once" may be seen: less than any delayed acknowledgment waits.
const AT_ONCE: Duration = Duration::from_millis(30);

/// What is wrong with a script, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{line}: {problem}")]
pub struct ParseError {
    /// The script.
    pub name: String,
    /// Line, from 1.
    pub line: usize,
    /// A sentence.
    pub problem: String,
}

/// Reads a whole script.
///
/// # Errors
/// The first line that is wrong.
pub fn parse(name: &str, text: &str) -> Result<Script, ParseError> {
    let mut script = Script {
        name: name.to_owned(),
        ..Script::default()
    };
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let failed = |problem: String| ParseError {
            name: name.to_owned(),
            line: number,
            problem,
        };
        if number == 1 {
            let about = line.strip_prefix('#').unwrap_or_default().trim();
            if about.is_empty() {
                let why = "the first line is a comment that says which behaviour the script holds";
                return Err(failed(why.to_owned()));
            }
            about.clone_into(&mut script.about);
        }
        let line = without_comment(line).trim();
        if line.is_empty() || header(&mut script, line).map_err(failed)? {
            continue;
        }
        events(line, number, &mut script.events).map_err(failed)?;
        if script.events.len() > MAX_EVENTS {
            return Err(failed(format!("more than {MAX_EVENTS} events")));
        }
    }
    check(&script).map_err(|problem| ParseError {
        name: name.to_owned(),
        line: text.lines().count(),
        problem,
    })?;
    Ok(script)
}

fn without_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(before, _)| before)
}

/// What must hold between lines.
fn check(script: &Script) -> Result<(), String> {
    if script.events.is_empty() {
        return Err("nothing happens in this script".to_owned());
    }
    let one_sided = script.events.iter().any(|event| event.scope.side.is_some());
    if one_sided && script.differs.is_empty() {
        return Err(
            "lines for one side need a line `differs KEY`, whose row in docs/rfc.md explains them"
                .to_owned(),
        );
    }
    let is_skipped = script
        .skip
        .iter()
        .any(|reason| reason.scope.family.is_none());
    if !script.sysctls.is_empty() && script.engine.is_empty() && !is_skipped {
        return Err(
            "a script with `sysctl` says what that is for Shunt: `engine FLAGS`, `engine default` or `skip shunt: why`"
                .to_owned(),
        );
    }
    Ok(())
}

/// Takes a line of the header; false where it is none.
fn header(script: &mut Script, line: &str) -> Result<bool, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match (word, rest) {
        ("sysctl", _) => script.sysctls.push(sysctl(rest)?),
        ("setting", _) => script.settings.push(sysctl(rest)?),
        ("engine", "") => return Err("`engine` needs flags, or `default`".to_owned()),
        ("engine", _) => script.engine = rest.split_whitespace().map(str::to_owned).collect(),
        ("mtu", _) => {
            let mtu = rest.parse().ok().filter(|mtu| (576..=9000).contains(mtu));
            script.mtu = Some(mtu.ok_or("an MTU is a number from 576 to 9000")?);
        }
        ("ip4", "only") => script.only = Some(Family::Ip4),
        ("ip6", "only") => script.only = Some(Family::Ip6),
        ("slow", "") => script.slow = true,
        ("differs", key) if is_key(key) => script.differs.push(key.to_owned()),
        ("differs", _) => {
            return Err("`differs` names one row of docs/rfc.md, such as `probe-octet`".to_owned());
        }
        _ if word.trim_end_matches(':') == "open" => script.open.push(reason(line)?),
        _ if word.trim_end_matches(':') == "skip" => script.skip.push(reason(line)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn is_key(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn sysctl(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a sysctl is NAME=VALUE")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) || value.is_empty() {
        return Err(format!(
            "{text:?}: give a name below net.ipv4 and a value, as in tcp_sack=0"
        ));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// `open: why`, `open ip6: why`, `skip kernel: why`; `open` and `skip` mean Shunt unless they say so.
fn reason(line: &str) -> Result<Reason, String> {
    let (head, text) = line
        .split_once(':')
        .ok_or("a reason follows after a colon")?;
    let mut scope = Scope::default();
    for word in head.split_whitespace().skip(1) {
        one_scope(word, &mut scope)?;
    }
    scope.side.get_or_insert(Side::Shunt);
    let text = text.trim();
    if text.is_empty() {
        return Err("a reason follows after the colon".to_owned());
    }
    Ok(Reason {
        scope,
        text: text.to_owned(),
    })
}

fn one_scope(word: &str, scope: &mut Scope) -> Result<(), String> {
    match word {
        "kernel" => scope.side = Some(Side::Kernel),
        "shunt" => scope.side = Some(Side::Shunt),
        "ip4" => scope.family = Some(Family::Ip4),
        "ip6" => scope.family = Some(Family::Ip6),
        _ => {
            return Err(format!(
                "{word:?} is neither a side (kernel, shunt) nor ip4 or ip6"
            ));
        }
    }
    Ok(())
}

/// Appends what one line stands for.
fn events(line: &str, number: usize, events: &mut Vec<Event>) -> Result<(), String> {
    let (scope, rest) = scope(line)?;
    if let Some(lines) = given::expand(rest)? {
        for line in lines {
            let (when, action) = timed(&line)?;
            events.push(event(number, &line, scope, when, action));
        }
        return Ok(());
    }
    let (when, action) = timed(rest)?;
    events.push(event(number, rest, scope, when, action));
    Ok(())
}

fn event(line: usize, text: &str, scope: Scope, when: When, action: Action) -> Event {
    Event {
        line,
        text: text.to_owned(),
        scope,
        when,
        action,
    }
}

/// Takes `kernel:` and its like from the front.
fn scope(line: &str) -> Result<(Scope, &str), String> {
    let mut scope = Scope::default();
    let mut rest = line;
    while let Some((word, after)) = rest.split_once(':') {
        if word.is_empty()
            || !word
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '4' || c == '6')
        {
            break;
        }
        one_scope(word, &mut scope)?;
        rest = after.trim_start();
    }
    Ok((scope, rest))
}

/// A time, if there is one, and what happens then.
fn timed(text: &str) -> Result<(When, Action), String> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let when = match word.chars().next() {
        Some('+') => When::After(span(&word[1..])?),
        Some('@') => When::At(span(&word[1..])?),
        _ => return Ok((When::AtOnce, action(text)?)),
    };
    Ok((when, action(rest.trim())?))
}

/// `0.2`, `0.2~0.05` or `0.2..0.4`, in seconds.
fn span(text: &str) -> Result<Span, String> {
    if let Some((from, until)) = text.split_once("..") {
        let (from, until) = (seconds(from)?, seconds(until)?);
        if from > until {
            return Err(format!("{text:?} ends before it begins"));
        }
        return Ok(Span {
            nominal: from,
            from,
            until,
        });
    }
    if let Some((middle, tolerance)) = text.split_once('~') {
        let (nominal, tolerance) = (seconds(middle)?, seconds(tolerance)?);
        return Ok(Span {
            nominal,
            from: nominal.saturating_sub(tolerance),
            until: nominal + tolerance,
        });
    }
    let nominal = seconds(text)?;
    Ok(Span {
        nominal,
        // A timer never fires early by more than a tick, and may be seen late on a busy machine.
        from: nominal.saturating_sub(Duration::from_millis(5) + nominal / 20),
        until: nominal + AT_ONCE + nominal / 10,
    })
}

/// How late an event without a time may be seen.
pub fn at_once() -> Span {
    Span {
        nominal: Duration::ZERO,
        from: Duration::ZERO,
        until: AT_ONCE,
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is no time in seconds"))?;
    if !(0.0..=MAX_TIME_S).contains(&number) {
        return Err(format!("{text:?} is not from 0 to {MAX_TIME_S} seconds"));
    }
    Ok(Duration::from_secs_f64(number))
}

fn action(text: &str) -> Result<Action, String> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let (name, flow) = match word.split_once('@') {
        Some((name, flow)) => (name, Some(flow)),
        None => (word, None),
    };
    match name {
        "in" => segment::arriving(self::flow(flow)?, rest),
        "out" | "out?" | "out~" => {
            let segment = segment::expected(self::flow(flow)?, rest)?;
            let need = match name {
                "out" => Need::Next,
                "out?" => Need::Optional,
                _ => Need::AfterAcks,
            };
            Ok(Action::Out { segment, need })
        }
        "silence" => Ok(Action::Silence(seconds(rest)?)),
        "renew" if rest.is_empty() => Ok(Action::Renew(self::flow(flow)?)),
        _ => call::parse(text),
    }
}

/// The number after `@`; flow 1 where there is none.
pub(crate) fn flow(text: Option<&str>) -> Result<u16, String> {
    let Some(text) = text else { return Ok(1) };
    let number = text.parse().ok().filter(|flow| (1..=2_000).contains(flow));
    number.ok_or_else(|| format!("@{text}: a flow is a number from 1 to 2000"))
}
