//! Accepting: look at the header whether a connection waits, then ask the engine for it.

use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use hostif::{Completion, Op};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags};

use crate::engines::session::Opened;
use crate::lock::read;
use crate::readiness::State;
use crate::socket::Socket;
use crate::tcp::socket::TcpSocket;

/// An accepted connection.
pub struct Accepted {
    /// The connection.
    pub socket: Arc<TcpSocket>,
    /// Its backing socket, close-on-exec, at a high number; the caller places it at the lowest free one, unless `is_placed`.
    pub backing: OwnedFd,
    /// The backing socket has the lowest free number, and the flags that were asked for.
    pub is_placed: bool,
    /// The peer.
    pub peer: SocketAddr,
}

impl TcpSocket {
    /// Takes the connection that waits longest, if one waits. EINVAL: the socket does not listen.
    /// Several threads and processes may try at once; who comes too late gets `None`.
    pub fn try_accept(&self) -> Result<Option<Accepted>, Errno> {
        self.try_accept_with(SocketFlags::CLOEXEC)
    }

    /// As `try_accept`, with the flags that the program's descriptor is to have.
    pub fn try_accept_with(&self, flags: SocketFlags) -> Result<Option<Accepted>, Errno> {
        if self.state() != State::Listening {
            return Err(self.take_error().unwrap_or(Errno::INVAL));
        }
        let family = if self.is_v6.load(Ordering::Relaxed) {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        // Where others are faster, once for each part.
        for _ in self.parts() {
            let Some(part) = self.part_to_accept_from() else {
                break;
            };
            match part.try_accept_here(family, flags) {
                Ok(Some(accepted)) => return Ok(Some(accepted)),
                Ok(None) => {}
                // Its engine has ended meanwhile: the others, and the next one, go on.
                Err(_) if part.is_reset() => {}
                Err(error) => return Err(error),
            }
        }
        for part in self.parts() {
            part.on_idle_call();
        }
        Ok(None)
    }

    /// As `try_accept`, on the core of this very socket.
    fn try_accept_here(
        &self,
        family: AddressFamily,
        flags: SocketFlags,
    ) -> Result<Option<Accepted>, Errno> {
        // A fork waits until the connection is known to this process (see `fork`).
        let _opening = read(&self.session().opening);
        self.living()?;
        let backing = self
            .session()
            .take_backing(self.id().core(), family, flags)?;
        match self.session().call(
            self.id(),
            Op::Accept {
                handle: backing.handle,
            },
        )? {
            Completion::Accepted {
                socket,
                region,
                header,
                peer,
                ..
            } => {
                let region = self.session().region(self.id().core(), region);
                let made = region.and_then(|region| {
                    let opened = Opened {
                        id: socket,
                        region,
                        header,
                    };
                    self.session().register(opened, TcpSocket::new)
                });
                match made {
                    Ok(socket) => Ok(Some(Accepted {
                        socket,
                        is_placed: backing.is_in_place,
                        backing: backing.fd.into_owned(),
                        peer,
                    })),
                    Err(error) => {
                        let close = Op::Close {
                            written: 0,
                            consumed: 0,
                        };
                        let _ = self.session().post(socket, close);
                        Err(error)
                    }
                }
            }
            Completion::Done { errno, .. } => {
                self.session().return_backing(backing);
                match Errno::from_raw_os_error(i32::from(errno)) {
                    Errno::AGAIN => Ok(None),
                    error => Err(error),
                }
            }
            Completion::Event { .. } => Err(Errno::PROTO),
        }
    }
}
