//! Socket calls: `c = accept(l)`, `send(c, 1000) = 1000`, `read(c, 10) blocks`, `read(c) returns 10`.

use super::segment::number;
use crate::script::{Action, Call, CallResult, Wanted};

/// Name, whether it makes a socket, and how many arguments follow the socket, least and most.
const CALLS: &[(&str, bool, usize, usize)] = &[
    ("socket", true, 0, 1),
    ("accept", true, 0, 1),
    ("bind", false, 0, 1),
    ("listen", false, 0, 1),
    ("connect", false, 0, 1),
    ("write", false, 1, 1),
    ("send", false, 1, 2),
    ("sendto", false, 1, 2),
    ("read", false, 0, 1),
    ("recv", false, 1, 2),
    ("shutdown", false, 1, 1),
    ("close", false, 0, 0),
    ("setsockopt", false, 2, 3),
    ("getsockopt", false, 1, 1),
    ("error", false, 0, 0),
    ("info", false, 1, 1),
    ("outq", false, 0, 0),
    ("inq", false, 0, 0),
    ("atmark", false, 0, 0),
    ("poll", false, 0, 2),
    ("nonblock", false, 0, 0),
    ("seek", false, 1, 1),
];

pub(super) fn parse(text: &str) -> Result<Action, String> {
    let unknown = || format!("{text:?} is neither in, out, silence, a header line nor a call");
    let (head, rest) = text.split_once('(').ok_or_else(unknown)?;
    let (inside, after) = rest.split_once(')').ok_or("a call ends with )")?;
    let (makes, name) = match head.split_once('=') {
        Some((socket, name)) => (Some(socket.trim()), name.trim()),
        None => (None, head.trim()),
    };
    let &(_, is_maker, least, most) = CALLS
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| format!("{name:?} is no call that is known here"))?;
    let mut arguments: Vec<String> = inside
        .split(',')
        .map(str::trim)
        .filter(|one| !one.is_empty())
        .map(str::to_owned)
        .collect();
    if arguments
        .iter()
        .any(|one| one.contains(char::is_whitespace))
    {
        return Err("arguments are separated by commas".to_owned());
    }
    let after = after.trim();
    if name == "socket" {
        // The socket does not exist before the call: it has no first argument.
        arguments.insert(0, "-".to_owned());
    } else if arguments.is_empty() {
        return Err(format!("{name} needs a socket"));
    }
    let socket = arguments.remove(0);
    if let Some(result) = after.strip_prefix("returns") {
        return Ok(Action::Returns {
            name: name.to_owned(),
            socket,
            result: wanted(result.trim())?,
        });
    }
    if makes.is_some() && !is_maker {
        return Err(format!("{name} makes no socket"));
    }
    // One that is to fail makes none.
    if makes.is_none() && is_maker && !after.starts_with('=') {
        return Err(format!(
            "{name} makes a socket: give it a name, as in s = {name}(…)"
        ));
    }
    if arguments.len() < least || arguments.len() > most {
        return Err(format!(
            "{name} takes {least} to {most} arguments after the socket"
        ));
    }
    let result = match after {
        "" => CallResult::Returns(Wanted::Success),
        "blocks" => CallResult::Blocks,
        _ => {
            let text = after.strip_prefix('=');
            CallResult::Returns(wanted(
                text.ok_or_else(|| format!("{after:?} was not expected here"))?
                    .trim(),
            )?)
        }
    };
    Ok(Action::Call(Call {
        makes: makes.map(str::to_owned),
        name: name.to_owned(),
        socket,
        arguments,
        result,
    }))
}

fn wanted(text: &str) -> Result<Wanted, String> {
    let first = text.chars().next().ok_or("a result is missing")?;
    if first.is_ascii_uppercase() && !text.starts_with("MSS") {
        return Ok(Wanted::Word(text.to_owned()));
    }
    number(text).map(Wanted::Number)
}
