//! socket(2): which sockets the switch follows, and the first contact with the engine.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use client::SocketKinds;
use client::engines::{Engines, Placement};
use hostif::LOOPBACK_VARIABLE;
use rustix::io::Errno;

use crate::abi::entries::refused;
use crate::comeback;
use crate::fd_table::descriptors;
use crate::fd_table::file::{File, Kind};
use crate::outcome::beside;
use crate::policy::policy;
use crate::report;
use crate::socket::Socket;
use crate::sys;
use crate::wait::lost_engines;
use client::address::Family;
use switch::attached;

/// What could serve a socket of this kind, if anything but the kernel may.
pub fn candidate(domain: i32, kind: i32, protocol: i32) -> Option<SocketKinds> {
    switch::kind::of(domain, kind, protocol).filter(|_| policy().may_accelerate())
}

/// Whether sockets of this kind are to be followed: attaches on the first question. ENETDOWN where there
/// is no engine and the user demanded one, EPROTONOSUPPORT where the user demanded one that lacks the protocol.
pub fn attach(kinds: SocketKinds) -> Result<bool, Errno> {
    if attached::all().is_none()
        && let Err(errno) = spare_descriptors()
    {
        return without_descriptors(errno);
    }
    match attached::attach(engines) {
        Ok(()) if attached::serve(kinds) => {
            refused::say();
            Ok(true)
        }
        // The engine was started without the protocol (`--protocols`): the kernel has it.
        Ok(()) if policy().is_engine_only() => Err(Errno::PROTONOSUPPORT),
        Ok(()) => Ok(false),
        Err(reason) => {
            if let Some(reason) = reason {
                let instead = if policy().require_engine {
                    "SHUNT_REQUIRE=1 refuses sockets"
                } else {
                    "using the kernel"
                };
                report::line(&format!(
                    "no engine ({reason}); {instead}. Start one with `shunt engine`, or name it with \
                     SHUNT_ENGINE"
                ));
            }
            if policy().require_engine {
                Err(Errno::NETDOWN)
            } else {
                Ok(false)
            }
        }
    }
}

/// Descriptors that attaching to an engine process takes, at most.
const ATTACHMENT_DESCRIPTORS: usize = 8;
/// Those that an engine inside the program has too.
const INLINE_DESCRIPTORS: usize = 32;

/// Whether the process can be attached: an attempt that ends for lack of descriptors would leave it to the kernel for good.
fn spare_descriptors() -> Result<(), Errno> {
    let open = |_| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    let count = match crate::inline::is_wanted() {
        true => ATTACHMENT_DESCRIPTORS + INLINE_DESCRIPTORS,
        false => ATTACHMENT_DESCRIPTORS,
    };
    let spare: Result<Vec<_>, Errno> = (0..count).map(open).collect();
    spare.map(drop)
}

/// This socket is refused, or the kernel's; the next one finds its engine if there are descriptors by then.
fn without_descriptors(errno: Errno) -> Result<bool, Errno> {
    static SAID: AtomicBool = AtomicBool::new(false);
    if policy().require_engine {
        return Err(errno);
    }
    if !SAID.swap(true, Ordering::Relaxed) {
        report::line(&format!(
            "too few file descriptors are free for an engine ({errno}); using the kernel until there are more. `ulimit -n` raises the limit"
        ));
    }
    Ok(false)
}

/// An engine in another program may end, with that program, before this one is attached to it: so often one is started.
const STARTS: u32 = 16;

/// The engines that the environment names, and why none is there.
fn engines() -> Result<(Engines, Option<String>), String> {
    crate::inline::start()?;
    lost_engines::expect(comeback::bring_all_back);
    let look = || Engines::look_for(&client::engine_names(), Placement::wanted());
    let (mut engines, mut missing) = look();
    let mut starts = 1;
    while missing.is_some() && crate::inline::is_wanted() && starts < STARTS {
        crate::inline::start()?;
        (engines, missing) = look();
        starts += 1;
    }
    let uses_loopback =
        hostif::environment::text(LOOPBACK_VARIABLE).is_some_and(|text| text == "1");
    Ok((engines.with_loopback(uses_loopback), missing))
}

/// Whether a socket that the kernel has made, and that is not followed, must not be: raw ones, other protocols.
pub fn is_refused(domain: i32) -> bool {
    switch::kind::is_internet(domain) && policy().is_engine_only()
}

/// The kernel has refused a socket: whether an engine inside has given numbers back, so that it is worth another try.
pub fn has_spared() -> bool {
    let is_full = sys::errno() == libc::EMFILE;
    let mut spared = false;
    if is_full {
        beside(|| spared = client::inline_engine::spare_descriptors());
    }
    spared
}

/// The kernel has made the backing socket: follow it.
pub fn created(fd: RawFd, domain: i32, kind: i32) {
    let family = if domain == libc::AF_INET6 {
        Family::V6
    } else {
        Family::V4
    };
    let socket = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        libc::SOCK_DGRAM => Socket::datagram(family),
        _ => Socket::new(family),
    };
    socket.set_made_nonblocking(kind & libc::SOCK_NONBLOCK != 0);
    socket.set_unnamed();
    descriptors::insert(fd, File::new(Kind::Socket(socket)));
}
