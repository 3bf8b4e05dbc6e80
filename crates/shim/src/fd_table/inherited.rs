//! Descriptors that come from elsewhere: what a program has from the one that executed it, and what arrives with
//! SCM_RIGHTS (docs/decisions/0037-descriptors-that-are-handed-on.md). Only which numbers are IP sockets is noted at
//! first; the first call on one of them asks the engines about all that wait.
//!
//! Nothing but the descriptor is needed to go on with a connection: addresses, positions and what was shut down lie in
//! memory that its engine shares, and options are asked from the backing socket.

#[path = "inherited/sys.rs"]
mod arriving;

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::address::Family;
use client::engines;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::calls::listen::listen;
use crate::calls::options;
use crate::calls::sigio;
use crate::fd_table::descriptors;
use crate::fd_table::file::{File, Kind};
use crate::fd_table::unknown;
use crate::inline;
use crate::policy::policy;
use crate::report;
use crate::socket::{Owner, Socket};
use crate::{calls::create, sys};
use switch::attached;
use switch::backing;
use switch::bind::Bound;
use switch::readiness::Phase;
use switch::stream::Stream;

pub use arriving::{each_right, has_control, table_len};

/// Held by the thread that asks.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Notes the IP sockets among the descriptors that the program was started with. Before `main`: neither allocates nor
/// locks.
pub fn at_load() {
    arriving::each_descriptor(&mut expect);
}

/// A number that has come from elsewhere.
pub fn expect(fd: RawFd) {
    // Asked past a supervisor, who answers for the pairs that it has put in the place of sockets.
    let option = |name| {
        let mut value = [0; size_of::<i32>()];
        let asked = backing::option(fd, libc::SOL_SOCKET, name, &mut value);
        asked.ok().map(|_| i32::from_ne_bytes(value))
    };
    let is_ip = || {
        matches!(
            option(libc::SO_DOMAIN),
            Some(libc::AF_INET | libc::AF_INET6)
        )
    };
    let is_ours = || {
        matches!(
            option(libc::SO_TYPE),
            Some(libc::SOCK_STREAM | libc::SOCK_DGRAM)
        )
    };
    if is_ip() && is_ours() && unknown::note(fd, ask_for) {
        descriptors::follow(fd);
    }
}

/// Keeps everybody from asking, across a fork.
pub fn hold() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn ask_for(fd: RawFd) {
    // Calls that this very work makes are about the kernel's socket.
    if !unknown::waits(fd) || IS_ASKING.get() || crate::process::is_borrowed_memory() {
        return;
    }
    let _turn = hold();
    if !unknown::waits(fd) {
        return;
    }
    IS_ASKING.set(true);
    ask_for_all();
    IS_ASKING.set(false);
}

fn ask_for_all() {
    let may_ask = policy().may_accelerate()
        && create::attach(client::SocketKinds::STREAM).is_ok_and(|follow| follow);
    let waiting: Vec<RawFd> = unknown::numbers().collect();
    // Several numbers of one socket are one open file.
    let mut known: Vec<(u64, Option<Arc<File>>)> = Vec::new();
    for fd in waiting {
        let cookie = sys::borrow(fd).and_then(sockopt::socket_cookie);
        let file = match cookie {
            Ok(cookie) if may_ask => {
                let before = known.iter().find(|(one, _)| *one == cookie);
                let file = before.map_or_else(|| file_of(fd), |(_, file)| file.clone());
                known.push((cookie, file.clone()));
                file
            }
            _ => None,
        };
        match file {
            Some(file) => {
                descriptors::insert(fd, file);
                listen_again(fd);
            }
            None => descriptors::forget(fd),
        }
        unknown::forget(fd);
    }
}

/// What stands behind a number; `None`: the kernel serves it.
fn file_of(fd: RawFd) -> Option<Arc<File>> {
    let backing = sys::borrow(fd).ok()?;
    let is_v6 = sockopt::socket_domain(backing) == Ok(AddressFamily::INET6);
    let family = if is_v6 { Family::V6 } else { Family::V4 };
    let is_stream = sockopt::socket_type(backing) == Ok(SocketType::STREAM);
    match adopt(fd, is_stream) {
        Ok(Found::Begins) => undecided(fd, family),
        Ok(Found::Nothing) if is_stream => match state_of(fd)? {
            TCP_CLOSE => undecided(fd, family),
            TCP_LISTEN => undecided(fd, family).filter(was_heard_by_an_engine),
            _ => None,
        },
        Ok(Found::Stream(stream)) if is_stream => {
            // One that this process sent to itself, or has besides.
            if let Some(file) = descriptors::file_with(&stream) {
                return Some(file);
            }
            let socket = Socket::inherited(family, stream);
            socket.set_shared();
            options::recover(fd, &socket);
            sigio::recover(fd, &socket);
            Some(File::new(Kind::Socket(socket)))
        }
        Ok(_) => None,
        Err(error) => {
            report::line(&refusal(fd, error));
            None
        }
    }
}

fn refusal(fd: RawFd, error: Errno) -> String {
    let hint = match error {
        Errno::ACCESS => ", another user has its socket: try `shunt run --supervise only`",
        _ => "",
    };
    format!("descriptor {fd} cannot be used here: {error}{hint}")
}

/// linux/tcp_states.h.
const TCP_CLOSE: u8 = 7;
const TCP_LISTEN: u8 = 10;

/// The state of the kernel's socket, if it is one of TCP.
fn state_of(fd: RawFd) -> Option<u8> {
    let mut state = [0];
    let asked = backing::option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state);
    asked.ok().map(|_| state[0])
}

/// Whether a listener of which no engine knows had one, which has ended: with the program that executed this one, perhaps. The kernel hears
/// nothing at an address that only an engine has; somebody who has an engine inside listens on every address on it too.
fn was_heard_by_an_engine(file: &Arc<File>) -> bool {
    let bound = file.socket().and_then(Socket::bound);
    bound.is_some_and(|bound| bound.owner == Owner::Engine || inline::is_wanted())
}

/// Listens on an engine, where the kernel listens for it and no engine does.
fn listen_again(fd: RawFd) {
    /// Where `struct tcp_info` of a listener tells the backlog (`tcpi_sacked`, tcp_get_info).
    const BACKLOG: usize = 28;
    let mut info = [0; BACKLOG + 4];
    let file = descriptors::known(fd);
    let socket = file.as_ref().and_then(|file| file.socket());
    let is_undecided = socket.is_some_and(|socket| socket.borrow_stream().is_none());
    if !is_undecided || state_of(fd) != Some(TCP_LISTEN) {
        return;
    }
    let asked = backing::option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info);
    let backlog = asked.ok().and_then(|_| info.last_chunk());
    let backlog = backlog.map_or(libc::SOMAXCONN, |bytes| i32::from_ne_bytes(*bytes));
    if let Err(error) = listen(fd, backlog) {
        report::line(&format!("descriptor {fd} listens on no engine: {error}"));
    }
}

/// What an engine has for a descriptor.
pub enum Found {
    Nothing,
    Stream(Arc<Stream>),
    /// Another program is in listen(2), or ended there.
    Begins,
}

/// What an engine has for it. One that listens in the kernel, or is bound there, may be on its way to the engine, by another
/// program that is in listen(2): that takes a moment.
pub fn adopt(fd: RawFd, is_stream: bool) -> Result<Found, Errno> {
    const LOOKS: usize = 10;
    const PAUSE: Duration = Duration::from_millis(2);
    let backing = sys::borrow(fd)?;
    let mut found = Found::Nothing;
    for _ in 0..LOOKS {
        let adopted = if is_stream {
            Stream::adopt(backing)?
        } else {
            Stream::adopt_datagrams(backing)?
        };
        let state = state_of(fd);
        let listens = state == Some(TCP_LISTEN);
        let begins = |stream: &Stream| {
            let is_towards_nobody = state.is_some() && stream.peer().is_none();
            match stream.phase() {
                Phase::Connecting => listens || is_towards_nobody,
                // It began between two looks, and its other cores are not known here.
                Phase::Listening => !stream.takes_part_in_listening(),
                _ => false,
            }
        };
        found = match adopted {
            Some(stream) if begins(&stream) => Found::Begins,
            Some(stream) => return Ok(Found::Stream(stream)),
            None if listens => Found::Nothing,
            None => return Ok(Found::Nothing),
        };
        std::thread::sleep(PAUSE);
    }
    Ok(found)
}

/// A TCP socket that neither listens nor has a peer, or is about to: which stack has it is not decided yet.
fn undecided(fd: RawFd, family: Family) -> Option<Arc<File>> {
    let socket = Socket::new(family);
    socket.set_shared();
    let address = backing::local_of(sys::borrow(fd).ok()?).ok()?;
    if address.port() != 0 {
        let all = attached::stream_networks();
        let (owner, place) = engines::owner(address.ip(), &all)?;
        socket.set_bound(Bound {
            address,
            owner,
            place,
        });
    }
    options::recover(fd, &socket);
    sigio::recover(fd, &socket);
    Some(File::new(Kind::Socket(socket)))
}

/// A descriptor leaves in a message: its socket may be held elsewhere from now on.
pub fn leave(fd: RawFd) {
    let file = descriptors::lookup(fd);
    let Some(socket) = file.as_ref().and_then(|file| file.socket()) else {
        return;
    };
    socket.pay_options(fd);
    socket.set_shared();
    if let Some(stream) = socket.stream() {
        stream.share();
    }
}

/// All descriptors are about to be another process's too.
pub fn leave_all() {
    for fd in descriptors::tracked_in(0, RawFd::MAX) {
        let file = descriptors::known(fd);
        if let Some(socket) = file.as_ref().and_then(|file| file.socket()) {
            socket.pay_options(fd);
        }
    }
}

/// This program's engine ends with it, and what it knows of O_NONBLOCK of its listeners: the kernel's sockets tell the next
/// program; `on`: not any more, since there is none.
pub fn hide_nonblocking(on: bool) {
    for fd in descriptors::tracked_in(0, RawFd::MAX) {
        let file = descriptors::known(fd);
        let socket = file.as_ref().and_then(|file| file.socket());
        let Some((socket, stream)) = socket.and_then(|one| Some((one, one.stream()?))) else {
            continue;
        };
        // A number that is closed meanwhile tells nobody.
        let _ = socket.hide_nonblocking(fd, &stream, on);
    }
}

/// A descriptor has come in a message: nothing older stands behind its number.
pub fn arrive(fd: RawFd) {
    descriptors::forget(fd);
    expect(fd);
}
