//! Whether the engine that has a name gives way to one that is about to start with it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hostif::control::{self, Reply, Request};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};
use rustix::process::Pid;

/// How long an engine may take to answer, and how long to end: longer than it gives itself.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Its descriptors are closed one after the other: the channel may be closed so much earlier than its names.
const LAST_DESCRIPTORS: Duration = Duration::from_millis(200);
/// As long as the kernel is seen to end the process: on a busy machine each packet socket may take it tens of milliseconds.
const EXIT: Duration = Duration::from_secs(5);
/// How often it is looked whether they are closed.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What is to be expected of an engine's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Succession {
    /// No engine has it, or the one that had it has ended; a caller that finds it taken asks again.
    Free,
    /// An engine serves there, and the program should use it.
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
    let start = Instant::now();
    let mut owner = None;
    loop {
        match control::listen(&name) {
            Err(Errno::ADDRINUSE) => {}
            claimed => return claimed,
        }
        owner = owner.or_else(|| control::channel::try_connect(&name).ok());
        let pid = owner.as_ref().and_then(listening_process);
        if !may_let_go(pid, start) {
            return Err(Errno::ADDRINUSE);
        }
        std::thread::sleep(LOOK_AGAIN);
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

/// Until the process at the channel's other end listens no more at that name. Another engine there is to be asked again.
fn wait_for_end(name: &str, channel: &OwnedFd) -> Succession {
    let ended = listening_process(channel);
    let start = Instant::now();
    loop {
        match control::channel::try_connect(name) {
            Ok(now) if listening_process(&now) == ended => {}
            // Nobody takes anything in any more.
            Err(Errno::AGAIN) => {}
            Ok(_) | Err(_) => return Succession::Free,
        }
        if !may_let_go(ended, start) {
            return Succession::Serves;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The process that listens at the channel's other end, or did.
fn listening_process(channel: &OwnedFd) -> Option<Pid> {
    sockopt::socket_peercred(channel).ok().map(|peer| peer.pid)
}

/// Whether it is worth waiting on for a process that has names since `start`, and may be about to end.
fn may_let_go(pid: Option<Pid>, start: Instant) -> bool {
    let waited = start.elapsed();
    waited < LAST_DESCRIPTORS || (waited < EXIT && pid.is_some_and(is_ending))
}

/// Whether the kernel is ending a thread of that process and has not closed its descriptors yet, as far as /proc tells.
fn is_ending(pid: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let threads = threads.into_iter().flatten().flatten();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok())
        .any(|stat| is_exiting(&stat))
}

/// proc_pid_stat(5): the third field is the state, the ninth the flags.
fn is_exiting(stat: &str) -> bool {
    /// linux/sched.h.
    const PF_EXITING: u32 = 4;
    // The second is the name in brackets, which may contain anything.
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return false;
    };
    let mut fields = fields.split(' ');
    let has_closed = matches!(fields.next(), Some("Z" | "X"));
    let flags = fields.nth(5).and_then(|text| text.parse::<u32>().ok());
    !has_closed && flags.is_some_and(|flags| flags & PF_EXITING != 0)
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
    fn a_process_is_waited_for_while_the_kernel_closes_its_descriptors() {
        let stat = |state: &str, flags: u32| {
            format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 90 0 0 0 1 2 0 0 20 0 3 0 12")
        };
        assert!(is_exiting(&stat("R", 0x0040_0044)));
        assert!(!is_exiting(&stat("S", 0x0040_0040)));
        assert!(!is_exiting(&stat("Z", 0x0040_0044)));
        assert!(!is_exiting(""));
        // Of this process other tests' threads may be ending.
        let own = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert!(!is_exiting(&own));
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
