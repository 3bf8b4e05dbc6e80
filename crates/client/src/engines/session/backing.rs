//! Backing sockets for connections that listeners will accept (DESIGN §4): real kernel sockets, made in
//! batches and known to an engine core by handles, so that an accept costs no round trip for one. With an engine inside the
//! process there is no such trip, and one is made for each.

use hostif::Op;
use hostif::control::{Reply, Request};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Resource;

use crate::engines::inline_engine;
use crate::engines::session::Session;
use crate::engines::session::pool::Backing;
use crate::lock::lock;
use crate::private::PrivateFd;

/// The first batch of a process that may never see a connection.
const FIRST_BATCH: usize = 4;
/// Later batches.
const BATCH: usize = 32;

impl Session {
    /// A backing socket for an accept on a core, with these flags if it is made for this one.
    pub(crate) fn take_backing(
        &self,
        core: u16,
        family: AddressFamily,
        flags: SocketFlags,
    ) -> Result<Backing, Errno> {
        let wanted = {
            let mut pool = lock(&self.pool);
            if let Some(backing) = pool.of(core, family).pop() {
                return Ok(backing);
            }
            if pool.refilled { BATCH } else { FIRST_BATCH }
        };
        if inline_engine::is_here() {
            return self.make_in_place(core, family, flags);
        }
        // Two threads may do this at once: then there are more in stock.
        let sockets = match make_sockets(family, wanted.min(batch_limit())) {
            // What lies ready for other cores, or the other family, may be all that is in the way.
            Err(Errno::MFILE) if self.give_back_ready() => make_sockets(family, 1)?,
            made => made?,
        };
        let count = u16::try_from(sockets.len()).map_err(|_| Errno::INVAL)?;
        let borrowed: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        let (reply, _) = self.request(core, &Request::Prepare { count }, &borrowed)?;
        match reply {
            Reply::Prepared {
                first,
                count: prepared,
            } if prepared == count => {
                let mut pool = lock(&self.pool);
                let ready = (first..).zip(sockets).map(|(handle, fd)| Backing {
                    core,
                    family,
                    handle,
                    fd,
                    is_in_place: false,
                });
                pool.of(core, family).extend(ready);
                pool.refilled = true;
                pool.of(core, family).pop().ok_or(Errno::MFILE)
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// To tell an engine in this process of one more costs nothing: it is made where the program will have it.
    fn make_in_place(
        &self,
        core: u16,
        family: AddressFamily,
        flags: SocketFlags,
    ) -> Result<Backing, Errno> {
        let make = || rustix::net::socket_with(family, SocketType::STREAM, flags, None);
        let fd = PrivateFd::in_place(inline_engine::with_spared_descriptors(make)?);
        match self.request(core, &Request::Prepare { count: 1 }, &[fd.as_fd()])? {
            (Reply::Prepared { first, .. }, _) => Ok(Backing {
                core,
                family,
                handle: first,
                fd,
                is_in_place: true,
            }),
            _ => Err(Errno::PROTO),
        }
    }

    /// The accept found no connection.
    pub(crate) fn return_backing(&self, backing: Backing) {
        if backing.is_in_place {
            let handle = backing.handle;
            // It fails only when the engine is gone, and the handle with it.
            let _ = self.post_to(backing.core, None, Op::CloseBacking { handle });
            return;
        }
        lock(&self.pool)
            .of(backing.core, backing.family)
            .push(backing);
    }

    /// One more listener.
    pub(crate) fn on_listener_opened(&self) {
        lock(&self.pool).listeners += 1;
    }

    /// One less; without any, the sockets are given back.
    pub(crate) fn on_listener_closed(&self) {
        let is_last = {
            let mut pool = lock(&self.pool);
            pool.listeners = pool.listeners.saturating_sub(1);
            pool.listeners == 0
        };
        if is_last {
            self.give_back_ready();
        }
    }

    /// Gives back all sockets that wait; whether there were any.
    fn give_back_ready(&self) -> bool {
        let given_back = core::mem::take(&mut lock(&self.pool).ready);
        let mut any = false;
        for backing in given_back.into_iter().flatten().flatten() {
            any = true;
            // It fails only when the engine is gone, and the handle with it.
            let _ = self.post_to(
                backing.core,
                None,
                Op::CloseBacking {
                    handle: backing.handle,
                },
            );
        }
        any
    }
}

/// No more than a thirty-second of the program's descriptors lie ready at once: they are its own to use.
fn batch_limit() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    (limit.unwrap_or(usize::MAX) / 32).max(1)
}

/// As many sockets as the limit of open files allows, at least one.
fn make_sockets(family: AddressFamily, wanted: usize) -> Result<Vec<PrivateFd>, Errno> {
    let mut sockets = Vec::with_capacity(wanted);
    while sockets.len() < wanted {
        let made = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        match made {
            Ok(fd) => sockets.push(PrivateFd::new(fd)),
            Err(errno) if sockets.is_empty() => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(sockets)
}
