//! Whether the engine that has a name gives way to one that is about to start with it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hostif::control::{self, Reply, Request};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};

/// How long an engine may take to answer, and how long to end: longer than it gives itself.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Its descriptors are closed one after the other: the channel may be so much earlier than its names.
const LAST_DESCRIPTORS: Duration = Duration::from_millis(200);
/// How often it is looked whether they are closed.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What is to be expected of an engine's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Succession {
    /// Nobody has it, or nobody any more, or another since; whoever finds it taken asks again.
    Free,
    /// An engine serves there, and this one had better use it.
    Serves,
    /// As `Serves`; it was left behind, and has not got rid of what it has to send.
    Unfinished,
}

/// The name that an engine holds while it owns an address in this network namespace.
#[must_use]
pub fn claim_name(address: IpAddr) -> String {
    format!("@shunt/address/{address}")
}

/// Claims an address for an engine that is about to start. Nobody accepts what connects to it.
///
/// # Errors
/// ADDRINUSE: another engine has it, and not one that is just about to end.
pub fn claim(address: IpAddr) -> Result<OwnedFd, Errno> {
    let name = claim_name(address);
    let deadline = Instant::now() + LAST_DESCRIPTORS;
    loop {
        match control::listen(&name) {
            Err(Errno::ADDRINUSE) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
            claimed => return claimed,
        }
    }
}

/// Asks for the end of the engine of that name. It grants that if an ended program has left it behind and no other uses it.
#[must_use]
pub fn take_over(name: &str) -> Succession {
    let channel = match control::connect(name) {
        Ok(channel) => channel,
        Err(Errno::CONNREFUSED | Errno::NOENT) => return Succession::Free,
        Err(_) => return Succession::Serves,
    };
    let timeout = sockopt::Timeout::Recv;
    let asked = sockopt::set_socket_timeout(&channel, timeout, Some(PATIENCE))
        .and_then(|()| control::send(channel.as_fd(), &Request::Yield.encode(), &[]));
    match asked {
        Ok(()) => {}
        // It ended before it took the channel in.
        Err(Errno::PIPE | Errno::CONNRESET) => return wait_for_end(name, &channel),
        Err(_) => return Succession::Serves,
    }
    match answer(&channel) {
        Ok(Some(Reply::Yields)) => {}
        // It ended meanwhile.
        Ok(None) | Err(Errno::CONNRESET) => return wait_for_end(name, &channel),
        Ok(Some(_)) | Err(_) => return Succession::Serves,
    }
    match answer(&channel) {
        Ok(None) | Err(Errno::CONNRESET) => wait_for_end(name, &channel),
        Ok(Some(_)) | Err(_) => Succession::Unfinished,
    }
}

/// The next message; `None`: the channel has ended.
fn answer(channel: &OwnedFd) -> Result<Option<Reply>, Errno> {
    let received = control::receive(channel.as_fd(), RecvFlags::empty())?;
    if received.bytes.is_empty() {
        return Ok(None);
    }
    Reply::decode(&received.bytes)
        .map(Some)
        .map_err(|_| Errno::PROTO)
}

/// Until the process at the channel's other end listens no more at that name. Who listens there instead is to be asked anew.
fn wait_for_end(name: &str, channel: &OwnedFd) -> Succession {
    let listener = |channel: &OwnedFd| sockopt::socket_peercred(channel).map(|peer| peer.pid);
    let ended = listener(channel);
    let deadline = Instant::now() + LAST_DESCRIPTORS;
    loop {
        match control::channel::try_connect(name) {
            Ok(now) if listener(&now) == ended => {}
            // Nobody takes anything in any more.
            Err(Errno::AGAIN) => {}
            Ok(_) | Err(_) => return Succession::Free,
        }
        if Instant::now() >= deadline {
            return Succession::Serves;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::accept;

    fn unused_name(test: &str) -> String {
        format!("@shunt/test/{test}/{}", std::process::id())
    }

    /// Asks, while somebody at that name answers each request with the next of the replies and then ends.
    fn asked(test: &str, replies: Vec<Reply>) -> Succession {
        let name = unused_name(test);
        let listener = control::listen(&name).unwrap();
        let engine = std::thread::spawn(move || {
            let channel = loop {
                match accept(&listener) {
                    Err(Errno::AGAIN) => std::thread::yield_now(),
                    accepted => break accepted.unwrap(),
                }
            };
            let request = control::receive(channel.as_fd(), RecvFlags::empty()).unwrap();
            assert_eq!(Request::decode(&request.bytes), Ok(Request::Yield));
            for reply in replies {
                control::send(channel.as_fd(), &reply.encode(), &[]).unwrap();
            }
        });
        let succession = take_over(&name);
        engine.join().unwrap();
        succession
    }

    #[test]
    fn a_name_that_nobody_has_is_free() {
        let name = unused_name("nobody");
        assert_eq!(take_over(&name), Succession::Free);
    }

    #[test]
    fn who_listens_and_takes_nothing_in_is_not_waited_for_without_end() {
        let name = unused_name("full");
        let listener = control::listen(&name).unwrap();
        while control::channel::try_connect(&name).is_ok() {}
        assert_eq!(take_over(&name), Succession::Serves);
        drop(listener);
        assert_eq!(take_over(&name), Succession::Free);
    }

    #[test]
    fn an_address_is_claimed_once_its_last_owner_lets_go() {
        let address = IpAddr::from([192, 0, 2, 77]);
        let first = claim(address).unwrap();
        assert_eq!(claim(address).unwrap_err(), Errno::ADDRINUSE);
        let letting_go = std::thread::spawn(move || drop(first));
        let second = claim(address);
        letting_go.join().unwrap();
        assert!(second.is_ok());
    }

    #[test]
    fn an_engine_that_ends_leaves_its_name_and_one_that_refuses_keeps_it() {
        assert_eq!(asked("yields", vec![Reply::Yields]), Succession::Free);
        assert_eq!(asked("ended", Vec::new()), Succession::Free);
        let (errno, text) = (16, "this engine's program runs".to_owned());
        let refused = vec![Reply::Refused { errno, text }];
        assert_eq!(asked("refuses", refused), Succession::Serves);
    }
}
