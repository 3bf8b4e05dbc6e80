//! Each call of a script as a call of libc.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use super::{Agent, Command, Socket, errno, locked, options, pattern, setup, sys};
use crate::parse;

/// Most bytes that one call may move.
const MAX_BYTES: usize = 64 << 20;

/// Makes a call; the result as a number or a word.
pub(super) fn make(agent: &Agent, command: &Command) -> String {
    let result = match command.name.as_str() {
        "sysctl" | "mtu" | "quiet" | "address6" | "mac" | "up" => setup::perform(command),
        "socket" => create(agent, command),
        "accept" => accept(agent, command),
        _ => match agent.socket(&command.socket) {
            Some(socket) => on_socket(agent, command, &socket),
            None => Err(libc::EBADF),
        },
    };
    result.unwrap_or_else(errno::name)
}

type Made = Result<String, i32>;

fn number(result: Result<i64, i32>) -> Made {
    result.map(|number| number.to_string())
}

impl Agent {
    fn socket(&self, name: &str) -> Option<Arc<Socket>> {
        locked(&self.sockets).get(name).cloned()
    }

    fn keep(&self, command: &Command, fd: RawFd) -> Made {
        let socket = Socket {
            fd,
            position: Mutex::new((0, 0)),
        };
        if let Some(name) = &command.makes {
            locked(&self.sockets).insert(name.clone(), Arc::new(socket));
        }
        Ok("0".to_owned())
    }
}

fn create(agent: &Agent, command: &Command) -> Made {
    let non_blocking = command.argument(0) == Some("NONBLOCK");
    let fd = sys::socket(agent.addresses.host.is_ipv6(), non_blocking)?;
    agent.keep(command, fd)
}

fn accept(agent: &Agent, command: &Command) -> Made {
    let listener = agent.socket(&command.socket).ok_or(libc::EBADF)?;
    let non_blocking = command.argument(0) == Some("NONBLOCK");
    let fd = sys::accept(listener.fd, non_blocking)?;
    agent.keep(command, fd)
}

fn on_socket(agent: &Agent, command: &Command, socket: &Socket) -> Made {
    let fd = socket.fd;
    let amount = |index: usize| {
        let text = command.argument(index)?;
        text.parse::<usize>().ok().filter(|len| *len <= MAX_BYTES)
    };
    match command.name.as_str() {
        "bind" => number(sys::bind(
            fd,
            agent.addresses.own(bound_port(agent, command)?),
        )),
        "listen" => {
            let backlog = amount(0).unwrap_or(16);
            number(sys::listen(fd, i32::try_from(backlog).unwrap_or(i32::MAX)))
        }
        "connect" => {
            let flow = command.argument(0).and_then(|text| text.strip_prefix('@'));
            let flow = parse::flow(flow).map_err(|_| libc::EINVAL)?;
            number(sys::connect(fd, agent.addresses.remote(flow)))
        }
        "write" | "send" | "sendto" => send(agent, command, socket, amount(0).ok_or(libc::EINVAL)?),
        "read" | "recv" => receive(command, socket, amount(0).unwrap_or(65_536)),
        "shutdown" => {
            let how = match command.argument(0) {
                Some("RD") => libc::SHUT_RD,
                Some("WR") => libc::SHUT_WR,
                Some("RDWR") => libc::SHUT_RDWR,
                _ => return Err(libc::EINVAL),
            };
            number(sys::shutdown(fd, how))
        }
        "close" => number(sys::close(fd)),
        "setsockopt" => {
            let name = command.argument(0).ok_or(libc::EINVAL)?;
            number(options::set(
                fd,
                name,
                command.argument(1),
                command.argument(2),
            ))
        }
        "getsockopt" => options::get(fd, command.argument(0).ok_or(libc::EINVAL)?),
        "error" => {
            let bytes = sys::get_option(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
            match bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
                Some(0) => Ok("0".to_owned()),
                Some(error) => Err(error),
                None => Err(libc::EINVAL),
            }
        }
        "info" => options::info(fd, command.argument(0).ok_or(libc::EINVAL)?),
        "outq" => number(sys::ask(fd, libc::TIOCOUTQ)),
        "inq" => number(sys::ask(fd, libc::FIONREAD)),
        "atmark" => number(sys::ask(fd, sys::SIOCATMARK)),
        "nonblock" => number(sys::set_non_blocking(fd)),
        "poll" => poll(command, fd),
        "seek" => {
            let position = amount(0).ok_or(libc::EINVAL)?;
            locked(&socket.position).1 = u64::try_from(position).map_err(|_| libc::EINVAL)?;
            Ok("0".to_owned())
        }
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// The script's port, `+N` from it, or `any`.
fn bound_port(agent: &Agent, command: &Command) -> Result<u16, i32> {
    match command.argument(0) {
        None => Ok(agent.addresses.port),
        Some("any") => Ok(0),
        Some(text) => {
            let offset: u16 = text.parse().map_err(|_| libc::EINVAL)?;
            Ok(agent.addresses.port.saturating_add(offset))
        }
    }
}

fn message_flags(text: Option<&str>) -> Result<i32, i32> {
    let mut bits = libc::MSG_NOSIGNAL;
    for word in text
        .unwrap_or_default()
        .split('|')
        .filter(|word| !word.is_empty())
    {
        bits |= match word {
            "OOB" => libc::MSG_OOB,
            "PEEK" => libc::MSG_PEEK,
            "WAITALL" => libc::MSG_WAITALL,
            "DONTWAIT" => libc::MSG_DONTWAIT,
            "MORE" => libc::MSG_MORE,
            "EOR" => libc::MSG_EOR,
            "TRUNC" => libc::MSG_TRUNC,
            "FASTOPEN" => libc::MSG_FASTOPEN,
            _ => return Err(libc::EINVAL),
        };
    }
    Ok(bits)
}

fn send(agent: &Agent, command: &Command, socket: &Socket, len: usize) -> Made {
    let start = locked(&socket.position).0;
    let bytes: Vec<u8> = (start..).take(len).map(pattern).collect();
    let sent = match command.name.as_str() {
        "write" => sys::write(socket.fd, &bytes),
        "sendto" => {
            let flags = message_flags(command.argument(1))?;
            sys::send_to(socket.fd, &bytes, flags, agent.addresses.remote(1))
        }
        _ => sys::send(socket.fd, &bytes, message_flags(command.argument(1))?),
    }?;
    locked(&socket.position).0 += u64::try_from(sent).unwrap_or(0);
    Ok(sent.to_string())
}

fn receive(command: &Command, socket: &Socket, len: usize) -> Made {
    let mut bytes = vec![0; len];
    let flags = message_flags(command.argument(1))?;
    let received = if command.name == "read" {
        sys::read(socket.fd, &mut bytes)
    } else {
        sys::receive(socket.fd, &mut bytes, flags)
    }?;
    // An urgent byte is not part of the stream; truncated bytes were never copied.
    if flags & (libc::MSG_OOB | libc::MSG_TRUNC) == 0 {
        let mut position = locked(&socket.position);
        let right = bytes.iter().take(received).zip(position.1..);
        if let Some((_, wrong)) = right.into_iter().find(|(byte, at)| **byte != pattern(*at)) {
            return Ok(format!("GARBLED@{wrong}"));
        }
        if flags & libc::MSG_PEEK == 0 {
            position.1 += u64::try_from(received).unwrap_or(0);
        }
    }
    Ok(received.to_string())
}

const EVENTS: [(&str, i16); 6] = [
    ("IN", libc::POLLIN),
    ("PRI", libc::POLLPRI),
    ("OUT", libc::POLLOUT),
    ("ERR", libc::POLLERR),
    ("HUP", libc::POLLHUP),
    ("RDHUP", libc::POLLRDHUP),
];

/// `poll(s)`: what is so now. `poll(s, IN|OUT)`: waits for it; with a third argument at most so many ms.
fn poll(command: &Command, fd: RawFd) -> Made {
    let (events, timeout_ms) = match command.argument(0) {
        None => (EVENTS.iter().fold(0, |all, (_, bit)| all | bit), 0),
        Some(words) => {
            let wanted = words.split('|').try_fold(0, |all, word| {
                let found = EVENTS.iter().find(|(name, _)| *name == word);
                found.map(|(_, bit)| all | bit).ok_or(libc::EINVAL)
            })?;
            let limit = command.argument(1).and_then(|text| text.parse().ok());
            (wanted, limit.unwrap_or(-1))
        }
    };
    let ready = sys::poll(fd, events, timeout_ms)?;
    let names: Vec<&str> = EVENTS
        .iter()
        .filter(|(_, bit)| ready & bit != 0)
        .map(|(name, _)| *name)
        .collect();
    Ok(if names.is_empty() {
        "NONE".to_owned()
    } else {
        names.join("|")
    })
}
