//! Finding the engine that a program shall use.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use anyhow::{Context, bail};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

/// The control socket of a reachable engine: the one asked for, or the usual one. Where the usual
/// one does not answer, a private engine is started.
pub fn find(asked: Option<&OsStr>) -> anyhow::Result<OsString> {
    let named = asked
        .map(OsString::from)
        .or_else(|| env::var_os(hostif::ENGINE_VARIABLE).filter(|name| !name.is_empty()));
    if let Some(name) = named {
        let origin = if asked.is_some() {
            "--engine"
        } else {
            hostif::ENGINE_VARIABLE
        };
        if answers(&name)? {
            return Ok(name);
        }
        bail!(
            "no engine answers at {} (from {origin}): start it with `shunt engine`, or leave {origin} out",
            name.to_string_lossy()
        );
    }
    let usual = OsString::from(hostif::DEFAULT_ENGINE_NAME);
    if answers(&usual)? {
        Ok(usual)
    } else {
        start_private_engine()
    }
}

/// Starts an engine for this one program.
fn start_private_engine() -> anyhow::Result<OsString> {
    bail!(
        "no engine answers at {} in this network namespace: start one with \
         `shunt engine --nic IFACE --address ADDRESS/PREFIX`, name another with --engine, \
         or stay on the kernel with --policy kernel-only",
        hostif::DEFAULT_ENGINE_NAME
    )
}

/// True where somebody accepts connections at the address.
fn answers(name: &OsStr) -> anyhow::Result<bool> {
    let context = || format!("engine address {}", name.to_string_lossy());
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddrUnix::new_abstract_name(abstract_name),
        None => SocketAddrUnix::new(name),
    }
    .with_context(context)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .context("creating a Unix socket")?;
    match rustix::net::connect(&socket, &address) {
        // A full backlog (EAGAIN) is a busy engine, not a missing one.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(error).with_context(context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_was_named_and_does_not_answer_is_an_error_that_names_the_flag() {
        let error = find(Some(OsStr::new("@shunt/test/nobody")))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--engine") && error.contains("shunt engine"),
            "{error}"
        );
    }

    #[test]
    fn a_listening_control_socket_is_found() {
        let name = format!("@shunt/test/{}", std::process::id());
        let address = SocketAddrUnix::new_abstract_name(&name.as_bytes()[1..]).unwrap();
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        assert_eq!(find(Some(OsStr::new(&name))).unwrap(), OsString::from(name));
    }
}
