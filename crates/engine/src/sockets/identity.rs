//! Which kernel socket a descriptor is, read from the descriptor itself, and the engine's sockets by that.
//!
//! Seldom asked for, so a socket is entered when somebody asks, not when it is made.

use super::Sockets;
use crate::programs::users::ProgramFd;
use crate::sockets::rows::{Kind, Marks};
use hostif::id::IdMap;
use hostif::{Flags, SocketId};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::sockopt;

/// A kernel socket. SO_COOKIE was counted by network namespace before Linux 5.11: whoever makes namespaces could make
/// equal ones, but not the inode's number too, which the system counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    cookie: u64,
    inode: u64,
}

impl Identity {
    /// That behind a descriptor.
    ///
    /// # Errors
    /// It is no socket.
    pub fn of(fd: impl AsFd) -> Result<Self, Errno> {
        let cookie = sockopt::socket_cookie(&fd)?;
        let inode = rustix::fs::fstat(&fd)?.st_ino;
        Ok(Self { cookie, inode })
    }
}

/// Sockets with one backing socket that are known, of a program that makes more: the first of them and the newest.
const ONE_BACKING_MAX: usize = 8;

/// The engine's sockets by their backing sockets. Entries of sockets that are gone are found out by their names, and
/// thrown away when they have become as many as there are sockets.
#[derive(Default)]
pub(super) struct Identities {
    known: IdMap<u64, Vec<(u64, SocketId)>>,
    /// Sockets whose backing has not been looked at, the newest last.
    pub(super) unread: Vec<SocketId>,
    /// No duplicate was kept since all were spared that can be: who is at its limit asks again and again.
    are_spared: bool,
    /// By inode alone, after a restart: orphans, whose backing sockets nobody can look at.
    orphans: IdMap<u64, SocketId>,
}

impl Sockets {
    /// The engine's duplicate of a socket's backing socket.
    pub fn set_backing(&mut self, row: u32, backing: ProgramFd) {
        self.keep_backing(row, Some(backing));
        self.identities.are_spared = false;
        let Some(id) = self.id(row) else { return };
        if self.identities.unread.len() >= 2 * self.count() {
            let mut unread = core::mem::take(&mut self.identities.unread);
            unread.retain(|id| self.find(*id).is_some());
            self.identities.unread = unread;
        }
        self.identities.unread.push(id);
    }

    /// A connection stands, or was accepted: where an engine inside a program holds enough, it lets go of its duplicate.
    #[inline]
    pub(crate) fn spare_backing_if_enough(&mut self, row: u32) {
        let backing = self.companion(row).backing.as_ref();
        if backing.is_some_and(|backing| backing.user().holds_enough()) {
            self.spare_backing(row);
        }
    }

    /// Lets go of the engine's duplicate of a connection's backing socket, unless that holds a port, or descriptors of it may be open
    /// elsewhere. Its identity is read before, so that other programs can still take the connection up while one holds it. Whether
    /// there was one.
    fn spare_backing(&mut self, row: u32) -> bool {
        let record = self.row(row);
        let stands = record.connection().is_some()
            && record.published & Flags::CONNECTING.bits() == 0
            && !record.has(Marks::SHARED);
        if !stands || self.holds_port(row) {
            return false;
        }
        self.read_identities();
        self.take_backing(row).is_some()
    }

    /// The program around this engine has no number left: lets go of all duplicates of connections' backing sockets, also of those that
    /// stand from now on. Whether there were any.
    pub(crate) fn spare_backings(&mut self) -> bool {
        let mut any = false;
        if core::mem::replace(&mut self.identities.are_spared, true) {
            return any;
        }
        for row in 0..self.used() {
            let backing = self.companion(row).backing.as_ref();
            if let Some(backing) = backing {
                backing.user().spare_all();
                any |= self.spare_backing(row);
            }
        }
        any
    }

    /// The socket whose backing socket that is. Of several (a connection may close while its descriptor connects
    /// again) the newest, but a listener comes first: of processes that come back to one together, those that come late find
    /// it although they have opened a socket of their own meanwhile.
    pub fn backed_by(&mut self, identity: Identity) -> Option<u32> {
        self.read_identities();
        let Some(known) = self.identities.known.get(&identity.cookie) else {
            let id = *self.identities.orphans.get(&identity.inode)?;
            return self.find(id).filter(|row| self.has(*row, Marks::ORPHAN));
        };
        let is_it = |(inode, id): &(u64, SocketId)| {
            let row = self.find(*id)?;
            (*inode == identity.inode).then_some(row)
        };
        let listens = |row: &u32| self.row(*row).kind == Kind::Listener;
        let mut rows = known.iter().rev().filter_map(is_it);
        let newest = rows.next()?;
        Some(
            core::iter::once(newest)
                .chain(rows)
                .find(listens)
                .unwrap_or(newest),
        )
    }

    /// After a restart: an orphan whose backing socket has that inode. Who takes it up is of its own user, so it does no harm that the system may count
    /// inodes anew after 2^32 of them.
    pub(crate) fn know_orphan(&mut self, id: SocketId, inode: u64) {
        self.identities.orphans.insert(inode, id);
    }

    /// Enters the sockets that are new.
    pub fn read_identities(&mut self) {
        for id in core::mem::take(&mut self.identities.unread) {
            let Some(row) = self.find(id) else { continue };
            let backing = self.companion(row).backing.as_ref();
            if let Some(Ok(Identity { cookie, inode })) =
                backing.map(|backing| Identity::of(&**backing))
            {
                let mut known = self.identities.known.remove(&cookie).unwrap_or_default();
                known.retain(|(_, one)| *one != id && self.find(*one).is_some());
                if known.len() == ONE_BACKING_MAX {
                    known.remove(1);
                }
                known.push((inode, id));
                self.identities.known.insert(cookie, known);
            }
        }
        if self.identities.known.len() >= 2 * self.count().max(64) {
            let mut known = core::mem::take(&mut self.identities.known);
            known.retain(|_, all| all.iter().any(|(_, id)| self.find(*id).is_some()));
            self.identities.known = known;
        }
    }
}
