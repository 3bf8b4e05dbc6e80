//! Opening: a kernel socket that holds the port stands behind each socket of an engine.

use core::net::SocketAddr;
use std::sync::{Arc, Weak};

use hostif::control::{Reply, Request};
use hostif::{Region, SocketId};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::engines::session::Session;
use crate::lock::{lock, read};
use crate::tcp::socket::TcpSocket;

impl Session {
    /// Makes an engine socket for a backing socket (SOCK_STREAM), which the engine gets a
    /// duplicate of. For a connection see [`Session::open_towards`].
    pub fn open(&'static self, backing: BorrowedFd<'_>) -> Result<Arc<TcpSocket>, Errno> {
        self.open_at(0, backing)
    }

    /// As `open`, on a core.
    pub(crate) fn open_at(
        &'static self,
        core: u16,
        backing: BorrowedFd<'_>,
    ) -> Result<Arc<TcpSocket>, Errno> {
        let _opening = read(&self.opening);
        match self.request(core, &Request::Open { count: 1 }, &[backing])? {
            (Reply::Opened(list), _) => {
                let opened = list.first().ok_or(Errno::PROTO)?;
                let region = self.living(core)?.region.clone();
                if opened.socket.core() != core {
                    return Err(Errno::PROTO);
                }
                self.make_socket(opened.socket, region, opened.header)
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// A socket object for an engine's socket.
    pub(crate) fn make_socket(
        &'static self,
        id: SocketId,
        region: Region,
        header: u32,
    ) -> Result<Arc<TcpSocket>, Errno> {
        let socket = TcpSocket::new(self, id, region, header)?;
        let known: Weak<TcpSocket> = Arc::downgrade(&socket);
        lock(&self.registry).insert(id, known);
        Ok(socket)
    }

    /// Makes an engine socket on the core that serves the connection from `local`, a port that the backing
    /// socket holds, to `remote`.
    pub fn open_towards(
        &'static self,
        backing: BorrowedFd<'_>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Arc<TcpSocket>, Errno> {
        let steering = self.attachments()?.steering;
        let local = self.placed(local, remote)?;
        self.open_at(steering.core_of(local, remote), backing)
    }
}
