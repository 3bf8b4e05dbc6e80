//! What the kernel knows of one interface — addresses, routes, neighbours, MTU — and word of every change.
//! An engine that shares the interface's addresses with the kernel goes by it. Read first: rtnetlink(7).
//!
//! Two sockets: one hears the kernel's groups, the other asks. After news of addresses, routes or the link
//! everything is read again: that is rare, and nothing can be missed, not even when the kernel had to
//! drop news. Only the main table's routes are read; policy routing (`ip rule`) is not followed.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SocketFlags, bind, recv};
use wire::ethernet;

use crate::message::{AnswerPart, parts};
use crate::rtnetlink;
use crate::socket::{self, PIECE_BYTES, Socket};

/// `RTMGRP_*` of linux/rtnetlink.h: links, neighbours, addresses and routes of both families.
const GROUPS: u32 = 1 | 4 | 0x10 | 0x40 | 0x100 | 0x400;
/// Messages looked at in one call, so that a storm of them does not hold up packets.
const CHANGES_MAX: usize = 64;
/// Routes that are kept, those of the shortest prefixes first.
pub const ROUTES_MAX: usize = 1_000;

/// A route over the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The prefix.
    pub destination: IpAddr,
    /// Bits of it that count.
    pub prefix_len: u8,
    /// The router; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The lower one wins among equally long prefixes.
    pub metric: u32,
    /// The source address that it asks for.
    pub source: Option<IpAddr>,
}

/// The interface as the kernel has it now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Usable addresses with the length of their networks' prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routes of the main table, at most [`ROUTES_MAX`].
    pub routes: Vec<Route>,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// It is switched on.
    pub is_up: bool,
}

/// What the kernel says of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// It has this hardware address. `is_fresh`: it has confirmed that lately.
    At {
        /// The address.
        hardware: ethernet::Address,
        /// No need to have it confirmed.
        is_fresh: bool,
    },
    /// It is being asked.
    Asked,
    /// It does not answer.
    Silent,
    /// Nothing: the kernel has no such entry.
    Unknown,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Addresses, routes or the link itself: read them again.
    Interface,
    /// What is known of a neighbour.
    Neighbour(IpAddr, Neighbour),
}

/// Follows what the kernel has of one interface.
#[derive(Debug)]
pub struct Monitor {
    changes: OwnedFd,
    questions: Socket,
    index: u32,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Follows interface number `index` of the calling thread's network namespace. `relocate_fd` moves descriptors to
    /// the numbers where they stay.
    ///
    /// # Errors
    /// No netlink sockets.
    pub fn follow(index: u32, relocate_fd: fn(OwnedFd) -> OwnedFd) -> io::Result<Self> {
        let changes = relocate_fd(socket::open(None, SocketFlags::NONBLOCK)?);
        bind(&changes, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self {
            changes,
            questions: Socket::open(None)?.moved(relocate_fd),
            index,
            buffer: vec![0; PIECE_BYTES],
        })
    }

    /// The interface was made anew and has this number. Read everything again.
    pub fn move_to(&mut self, index: u32) {
        self.index = index;
    }

    /// Becomes readable when something has changed.
    #[must_use]
    pub fn changes_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// Takes the changes that the kernel has told of. Whether there were any, of other interfaces too.
    ///
    /// # Errors
    /// The socket failed.
    pub fn poll(&mut self, sink: &mut dyn FnMut(Change)) -> io::Result<bool> {
        for turn in 0..CHANGES_MAX {
            let received = recv(
                &self.changes,
                self.buffer.as_mut_slice(),
                RecvFlags::DONTWAIT,
            );
            let len = match received {
                Ok((_, len)) => len.min(self.buffer.len()),
                Err(rustix::io::Errno::AGAIN) => return Ok(turn > 0),
                // Some were dropped because the socket's buffer was full: everything is read again.
                Err(rustix::io::Errno::NOBUFS) => {
                    sink(Change::Interface);
                    continue;
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let bytes = self.buffer.get(..len).unwrap_or_default();
            for (_, part) in parts(bytes) {
                if let AnswerPart::Message(kind, body) = part
                    && let Some(change) = rtnetlink::change(kind, body, self.index)
                {
                    sink(change);
                }
            }
        }
        Ok(true)
    }

    /// Reads everything.
    ///
    /// # Errors
    /// The kernel did not answer.
    pub fn read(&mut self) -> io::Result<Snapshot> {
        let index = self.index;
        let mut snapshot = Snapshot::default();
        self.questions
            .ask(rtnetlink::link(index), &mut |kind, body| {
                if kind == rtnetlink::NEW_LINK
                    && let Some(link) = rtnetlink::of_link(body)
                {
                    (snapshot.mtu, snapshot.is_up) = link;
                }
            })?;
        self.questions
            .ask(rtnetlink::addresses(), &mut |kind, body| {
                if kind == rtnetlink::NEW_ADDRESS {
                    snapshot.addresses.extend(rtnetlink::address(body, index));
                }
            })?;
        self.questions.ask(rtnetlink::routes(), &mut |kind, body| {
            if kind == rtnetlink::NEW_ROUTE {
                snapshot.routes.extend(rtnetlink::route(body, index));
            }
        })?;
        snapshot
            .routes
            .sort_by_key(|route| (route.prefix_len, route.metric));
        snapshot.routes.truncate(ROUTES_MAX);
        Ok(snapshot)
    }

    /// What the kernel knows of a neighbour now.
    ///
    /// # Errors
    /// The kernel did not answer.
    pub fn neighbour(&mut self, address: IpAddr) -> io::Result<Neighbour> {
        let index = self.index;
        let mut found = Neighbour::Unknown;
        let request = rtnetlink::neighbour(address, index);
        let asked = self.questions.ask(request, &mut |kind, body| {
            if let Some(Change::Neighbour(_, state)) = rtnetlink::change(kind, body, index) {
                found = state;
            }
        });
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Neighbour::Unknown),
            asked => asked.map(|()| found),
        }
    }

    /// Has the kernel use a neighbour as if it had sent it a packet: who is not known, or has not been
    /// heard of for long, is asked (`NTF_USE`). Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn use_neighbour(&mut self, address: IpAddr) -> io::Result<()> {
        let request = rtnetlink::use_neighbour(address, self.index);
        self.questions.ask(request, &mut |_, _| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_read_and_followed() {
        let mut monitor = Monitor::follow(1, core::convert::identity).unwrap();
        let snapshot = monitor.read().unwrap();
        assert!(snapshot.mtu >= 1_280);
        if snapshot.is_up {
            let own = snapshot.addresses.iter().map(|(address, _)| *address);
            assert!(own.into_iter().any(|address| address.is_loopback()));
        }
        let mut changes = 0;
        monitor.poll(&mut |_| changes += 1).unwrap();
        assert_eq!(
            monitor.neighbour(IpAddr::from([192, 0, 2, 77])).unwrap(),
            Neighbour::Unknown
        );
    }
}
