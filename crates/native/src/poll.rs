//! Looking at many sockets at once, as poll(2) does, but in shared memory: with a timeout of zero no system call
//! is made. For sets that stay the same [`Poller`](crate::Poller) looks at those only of which there is news.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Awaited, Errno, Readiness, Session, Socket, Until};
use hostif::ENGINES_MAX;

use crate::engine;
use crate::error::from_errno;
use crate::{ReceiveHalf, SendHalf, StreamControl, TcpListener, TcpStream, UdpSocket};

/// A socket whose readiness can be asked.
pub trait Pollable: sealed::HasSocket {
    /// What holds now, as poll(2) would say it. No system call.
    fn readiness(&self) -> Readiness {
        self.engine_socket().readiness()
    }
}

pub(crate) mod sealed {
    use super::{Arc, Socket};

    /// What stands behind it.
    pub trait HasSocket {
        /// The engine's socket.
        fn engine_socket(&self) -> &dyn Socket;

        /// The same, for who keeps it.
        fn share_engine_socket(&self) -> Arc<dyn Socket>;
    }
}

macro_rules! pollable {
    ($($kind:ty: |$one:ident| $socket:expr),* $(,)?) => {$(
        impl Pollable for $kind {}
        impl sealed::HasSocket for $kind {
            fn engine_socket(&self) -> &dyn Socket {
                let $one = self;
                &**$socket
            }

            fn share_engine_socket(&self) -> Arc<dyn Socket> {
                let $one = self;
                $socket.clone()
            }
        }
    )*};
}

pollable! {
    TcpStream: |one| one.socket(),
    StreamControl: |one| one.socket(),
    TcpListener: |one| one.any_socket(),
    UdpSocket: |one| one.any_socket(),
    SendHalf: |one| (&one.core().socket),
    ReceiveHalf: |one| (&one.core().socket),
}

/// One of the sockets that are looked at.
pub struct Polled<'a> {
    /// The socket.
    pub socket: &'a dyn Pollable,
    /// What is asked; errors and the end are told always.
    pub interest: Readiness,
    /// What holds, of that.
    pub ready: Readiness,
}

impl Polled<'_> {
    fn look(&mut self) -> bool {
        let wanted = self.interest | Readiness::ERR | Readiness::HUP;
        self.ready = self.socket.engine_socket().readiness() & wanted;
        !self.ready.is_empty()
    }
}

fn count(polled: &mut [Polled<'_>]) -> usize {
    let mut ready = 0;
    for one in polled {
        ready += usize::from(one.look());
    }
    ready
}

/// How many of the sockets are ready; with a timeout waits until one is. `None`: for ever; zero: no system call.
///
/// # Errors
/// EINTR: a signal handler ran; EINVAL: they are on more than eight engines.
pub fn poll(polled: &mut [Polled<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let sockets = polled.iter().map(|one| one.socket.engine_socket().core());
    engine::each_of(sockets, Session::reap);
    let ready = count(polled);
    if ready > 0 {
        return Ok(ready);
    }
    if timeout == Some(Duration::ZERO) {
        let sockets = polled.iter().map(|one| one.socket.engine_socket().core());
        engine::each_of(sockets, Session::look_alive);
        return Ok(0);
    }
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let sockets: Vec<Arc<dyn Socket>> = polled
        .iter()
        .map(|one| one.socket.share_engine_socket())
        .collect();
    let mut engines: Vec<&Session> = Vec::new();
    engine::each_of(sockets.iter().map(|one| one.core()), |session| {
        if !engines.iter().any(|one| core::ptr::eq(*one, session)) {
            engines.push(session);
        }
    });
    if engines.len() > ENGINES_MAX {
        return Err(from_errno(Errno::INVAL));
    }
    let sockets: Vec<&dyn Awaited> = sockets.iter().map(|one| &**one as _).collect();
    let until = Until {
        deadline,
        ready: &mut || count(polled) > 0,
        before_sleep: &mut || {},
    };
    match client::wait_on(&engines, &sockets, &mut [], None, until) {
        Ok(_) => Ok(count(polled)),
        Err(error) => Err(from_errno(error)),
    }
}
