//! What the kernel knows of one interface — addresses, routes, neighbours, MTU — and word of every change.
//! An engine that shares the interface's addresses with the kernel goes by it. Read first: rtnetlink(7).
//!
//! Two sockets: one hears the kernel's groups, the other asks. After news of addresses, routes or the link
//! everything is read again: that is rare, and nothing can be missed, not even when the kernel had to
//! drop news. Only the main table's routes are read; policy routing (`ip rule`) is not followed.

mod connections;
mod firewall;
mod messages;
mod network;
mod sys;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ::wire::ethernet;
use netlink_packet_route::RouteNetlinkMessage;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

pub use connections::{Connections, connections_on};
pub use firewall::rules_that_drop;
use messages::Part;
pub use network::is_of_own_network;

/// `RTMGRP_*` of linux/rtnetlink.h: links, neighbours, addresses and routes of both families.
const GROUPS: u32 = 1 | 4 | 0x10 | 0x40 | 0x100 | 0x400;
/// A dump comes in pieces of this size at most.
const PIECE_BYTES: usize = 64 * 1024;
/// News looked at in one call, so that a storm of them does not hold up packets.
const NEWS_MAX: usize = 64;
/// The kernel answers at once; whoever waits longer waits for nothing.
const PATIENCE: Duration = Duration::from_secs(1);
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

/// Something has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Addresses, routes or the link itself: read them again.
    Interface,
    /// What is known of a neighbour.
    Neighbour(IpAddr, Neighbour),
}

/// The kernel's view of one interface.
#[derive(Debug)]
pub struct Kernel {
    news: OwnedFd,
    questions: OwnedFd,
    index: u32,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Kernel {
    /// Follows interface number `index` of the calling thread's network namespace. `home` moves sockets to
    /// the numbers where they stay.
    ///
    /// # Errors
    /// No netlink sockets.
    pub fn follow(index: u32, home: fn(OwnedFd) -> OwnedFd) -> io::Result<Self> {
        let socket = |flags| {
            // NETLINK_ROUTE is protocol 0.
            let made = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None);
            made.map(home)
        };
        let news = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        bind(&news, &SocketAddrNetlink::new(0, GROUPS))?;
        let questions = socket(SocketFlags::CLOEXEC)?;
        set_socket_timeout(&questions, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self {
            news,
            questions,
            index,
            sequence: 0,
            buffer: vec![0; PIECE_BYTES],
        })
    }

    /// The interface was made anew and has this number. Read everything again.
    pub fn move_to(&mut self, index: u32) {
        self.index = index;
    }

    /// Becomes readable with news.
    #[must_use]
    pub fn news_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Takes the news that have come. Whether there were any, of other interfaces too.
    ///
    /// # Errors
    /// The socket failed.
    pub fn poll(&mut self, sink: &mut dyn FnMut(News)) -> io::Result<bool> {
        for turn in 0..NEWS_MAX {
            let received = recv(&self.news, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT);
            let len = match received {
                Ok((_, len)) => len.min(self.buffer.len()),
                Err(rustix::io::Errno::AGAIN) => return Ok(turn > 0),
                // Some were dropped for want of room: everything is read again.
                Err(rustix::io::Errno::NOBUFS) => {
                    sink(News::Interface);
                    continue;
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let bytes = self.buffer.get(..len).unwrap_or_default();
            for part in messages::parts(bytes) {
                if let Part::Message(message) = part
                    && let Some(news) = messages::news(&message, self.index)
                {
                    sink(news);
                }
            }
        }
        Ok(true)
    }

    /// Reads everything anew.
    ///
    /// # Errors
    /// The kernel did not answer.
    pub fn read(&mut self) -> io::Result<Snapshot> {
        let index = self.index;
        let mut snapshot = Snapshot::default();
        self.ask(messages::link(index), &mut |message| {
            if let RouteNetlinkMessage::NewLink(link) = message {
                (snapshot.mtu, snapshot.is_up) = messages::of_link(link);
            }
        })?;
        self.ask(messages::addresses(), &mut |message| {
            if let RouteNetlinkMessage::NewAddress(address) = message {
                snapshot.addresses.extend(messages::address(address, index));
            }
        })?;
        self.ask(messages::routes(), &mut |message| {
            if let RouteNetlinkMessage::NewRoute(route) = message {
                snapshot.routes.extend(messages::route(route, index));
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
        let asked = self.ask(messages::neighbour(address, index), &mut |message| {
            if let Some(News::Neighbour(_, state)) = messages::news(message, index) {
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
        let request = messages::use_neighbour(address, self.index);
        self.ask(request, &mut |_| {})
    }

    /// Asks, and hands every message of the answer to `sink`.
    fn ask(
        &mut self,
        request: messages::Request,
        sink: &mut dyn FnMut(&RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.serialize(self.sequence);
        send(&self.questions, &bytes, SendFlags::empty())?;
        loop {
            let (_, len) = recv(
                &self.questions,
                self.buffer.as_mut_slice(),
                RecvFlags::empty(),
            )?;
            let bytes = self.buffer.get(..len).unwrap_or_default();
            for part in messages::parts_of(bytes, self.sequence) {
                match part {
                    Part::Message(message) => {
                        sink(&message);
                        if request.has_single_answer {
                            return Ok(());
                        }
                    }
                    Part::End(None) => return Ok(()),
                    Part::End(Some(error)) => return Err(error),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_read_and_followed() {
        let mut kernel = Kernel::follow(1, core::convert::identity).unwrap();
        let snapshot = kernel.read().unwrap();
        assert!(snapshot.mtu >= 1_280);
        if snapshot.is_up {
            let own = snapshot.addresses.iter().map(|(address, _)| *address);
            assert!(own.into_iter().any(|address| address.is_loopback()));
        }
        let mut news = 0;
        kernel.poll(&mut |_| news += 1).unwrap();
        assert_eq!(
            kernel.neighbour(IpAddr::from([192, 0, 2, 77])).unwrap(),
            Neighbour::Unknown
        );
    }
}
