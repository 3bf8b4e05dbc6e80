//! What commands do to datagram sockets. Their positions, and where records that arrive are placed, are in
//! `sockets/datagrams.rs`; records that programs wrote are read in `senders.rs`.
//!
//! A socket gets its rings (`hostif::datagram`) with its first bind.

use super::SocketLayer;
use super::senders::{Noted, interface_named, scoped};
use crate::errno;
use crate::sockets::datagrams::receive_limit;
use crate::sockets::rows::Kind;
use core::net::{IpAddr, SocketAddr};
use hostif::{DatagramOptions, Flags, MembershipChange, Written};
use nic::sharing::Transport;
use rustix::io::Errno;
use stack::udp::MtuDiscovery;
use stack::{FamilyOptions, IpOptions, Membership, Stack, UdpBind, UdpId, UdpOptions};
use std::sync::Arc;
use tcp::Instant;

impl SocketLayer {
    /// Binds a datagram socket to an end whose port the backing socket holds.
    pub(super) fn bind_datagram(&mut self, row: u32, local: SocketAddr) -> Result<u64, Errno> {
        if self.sockets.row(row).kind != Kind::FreshDatagram {
            return Err(Errno::INVAL);
        }
        // It decided about privilege, conflicts and SO_REUSEADDR.
        let port = self.sockets.held_for(row, local.ip())?.port();
        if local.port() != 0 && local.port() != port {
            return Err(Errno::ACCESS);
        }
        let options = self.sockets.companion(row).datagram_options;
        let bind = UdpBind {
            owner: self.sockets.id(row).ok_or(Errno::BADF)?.to_bits(),
            local: SocketAddr::new(local.ip(), port),
            shares: true,
            options: options_of(&self.stack, &options),
        };
        self.claim_port(row, Transport::Udp, bind.local, bind.options.v6_only)?;
        let id = match self.stack.udp_bind(&bind) {
            Ok(id) => id,
            Err(error) => {
                self.leave_port(row);
                return Err(errno::of_stack(error));
            }
        };
        if self.sockets.give_rings(row, id, &options).is_none() {
            self.leave_port(row);
            let _ = self.stack.udp_close(id);
            return Err(Errno::NOBUFS);
        }
        self.sockets.with_header(row, |header| {
            header.engine_set_addresses(Some(bind.local), None)
        });
        self.sockets.publish(row, Flags::DATAGRAM);
        self.holders.name_udp(&self.stack, port);
        Ok(u64::from(port))
    }

    /// Gives a datagram socket a peer; binds it first where that has not been done.
    pub(super) fn connect_datagram(
        &mut self,
        row: u32,
        remote: SocketAddr,
        local: Option<SocketAddr>,
    ) -> Result<u64, Errno> {
        if let Some(local) = local
            && self.sockets.row(row).kind == Kind::FreshDatagram
        {
            self.bind_datagram(row, local)?;
        }
        let id = self.sockets.row(row).datagram().ok_or(Errno::INVAL)?;
        let remote = scoped(remote, self.scope_id);
        let connected = self.stack.udp_connect(id, remote);
        let local = connected.map_err(errno::of_stack)?;
        self.sockets.with_header(row, |header| {
            header.engine_set_addresses(Some(local), Some(remote));
        });
        self.sockets.publish(row, Flags::CONNECTED);
        self.holders.name_udp(&self.stack, local.port());
        Ok(0)
    }

    /// Takes the peer away.
    pub(super) fn disconnect_datagram(&mut self, row: u32) -> Result<u64, Errno> {
        let id = self.sockets.row(row).datagram().ok_or(Errno::INVAL)?;
        let local = self.stack.udp_disconnect(id).map_err(errno::of_stack)?;
        self.sockets.unpublish(row, Flags::CONNECTED);
        self.sockets
            .with_header(row, |header| header.engine_set_addresses(Some(local), None));
        self.holders.name_udp(&self.stack, local.port());
        Ok(0)
    }

    /// Changes a datagram socket's options. Rings are made with the first bind and stay as large as they are; what
    /// the receive ring may be charged follows, up to that.
    pub(super) fn set_datagram_options(
        &mut self,
        row: u32,
        options: &DatagramOptions,
    ) -> Result<u64, Errno> {
        let record = self.sockets.row(row);
        let (kind, id) = (record.kind, record.datagram());
        if !matches!(kind, Kind::FreshDatagram | Kind::Datagram) {
            return Err(Errno::OPNOTSUPP);
        }
        self.sockets.set_datagram_options(row, options);
        if let Some(id) = id {
            if let Some(rings) = self.sockets.companion(row).rings {
                let may_hold = receive_limit(options, &rings);
                self.sockets
                    .change_datagram(id, |row| row.receive_bytes = may_hold);
            }
            let options = options_of(&self.stack, options);
            self.stack
                .udp_set_options(id, &options)
                .map_err(errno::of_stack)?;
            if let Ok((local, _)) = self.stack.udp_addresses(id) {
                self.holders.name_udp(&self.stack, local.port());
            }
        }
        Ok(0)
    }

    /// Changes what a datagram socket hears of a group.
    pub(super) fn change_membership(
        &mut self,
        row: u32,
        change: MembershipChange,
        (group, source): (IpAddr, Option<IpAddr>),
        interface: u32,
    ) -> Result<u64, Errno> {
        let id = self.sockets.row(row).datagram().ok_or(Errno::INVAL)?;
        let membership = Membership {
            group,
            interface: interface_named(&self.stack, interface).map_err(|_| Errno::NODEV)?,
            source,
        };
        let interface = self.stack.interface_of(&membership);
        let changed = interface.and_then(|interface| {
            change_of(&mut self.stack, id, change, &membership).map(|()| interface)
        });
        match changed {
            Ok(interface) => {
                self.sockets
                    .note_membership(row, interface, change, &membership);
                Ok(0)
            }
            Err(stack::Error::NotFound) => Err(Errno::NODEV),
            Err(error) => Err(errno::of_stack(error)),
        }
    }

    /// Whether the engine before has changed a membership so already.
    pub(crate) fn has_changed_membership(
        &self,
        row: u32,
        change: MembershipChange,
        (group, source): (IpAddr, Option<IpAddr>),
        interface: u32,
    ) -> bool {
        let Ok(interface) = interface_named(&self.stack, interface) else {
            return false;
        };
        let membership = Membership {
            group,
            interface,
            source,
        };
        let interface = self.stack.interface_of(&membership);
        interface.is_ok_and(|interface| {
            self.sockets
                .has_changed_membership(row, interface, change, &membership)
        })
    }

    /// After a restart: the socket joins its groups again, and routers hear of it.
    pub(super) fn join_again(&mut self, row: u32, id: UdpId) {
        for (change, membership) in self.sockets.memberships_of(row) {
            if let Err(error) = change_of(&mut self.stack, id, change, &membership) {
                let group = membership.group;
                tracing::warn!("the group {group} is not joined again: {error}");
            }
        }
    }

    /// Sends the records from `start` to `end`, which are the next ones of a socket with one holder, while nobody else's wait. How many; `None`, with nothing
    /// done: it is not so.
    pub(super) fn write_records(
        &mut self,
        now: Instant,
        row: u32,
        start: u64,
        end: u64,
    ) -> Option<usize> {
        let id = self.sockets.row(row).datagram()?;
        let is_next = self.sockets.datagram(id).written == start && start < end;
        if !is_next || self.sockets.holders(row).len() != 1 || !self.senders.is_empty() {
            return None;
        }
        let note = Written::plain(self.sockets.id(row)?, start, end);
        if self.senders.note(&mut self.sockets, row, id, &note) != Noted::Done {
            return None;
        }
        let (stack, sockets, link) = (&mut self.stack, &mut self.sockets, &mut self.link);
        Some(self.senders.poll(now, stack, sockets, link))
    }

    /// Sends all that a program has written to a datagram socket, as far as the device takes it.
    pub(crate) fn send_all_datagrams(&mut self, now: Instant, row: u32) {
        let parts = (&mut self.stack, &mut self.sockets, &mut self.link);
        self.senders.send(now, parts, row, usize::MAX);
    }

    /// The last holder is gone: what was written leaves, as far as the device takes it.
    pub(super) fn close_datagram(&mut self, now: Instant, row: u32, id: UdpId) {
        self.send_all_datagrams(now, row);
        self.leave_port(row);
        let ends = self.stack.udp_addresses(id);
        let _ = self.stack.udp_close(id);
        let backing = self.sockets.companion(row).backing.as_ref();
        let user = backing.map(|backing| Arc::clone(backing.user()));
        self.sockets.destroy(row);
        if let (Ok((local, _)), Some(user)) = (ends, user) {
            self.holders.leave_name(local.port(), &user);
        }
    }
}

fn change_of(
    stack: &mut Stack<'_>,
    id: UdpId,
    change: MembershipChange,
    membership: &Membership,
) -> Result<(), stack::Error> {
    match change {
        MembershipChange::Join => stack.udp_join(id, membership),
        MembershipChange::Leave => stack.udp_leave(id, membership),
        MembershipChange::Block => stack.udp_block(id, membership),
        MembershipChange::Unblock => stack.udp_unblock(id, membership),
    }
}

/// What the stack has to know of a program's options.
fn options_of(stack: &Stack<'_>, options: &DatagramOptions) -> UdpOptions {
    let of_family = |options: &hostif::FamilyOptions| FamilyOptions {
        ip: IpOptions {
            ttl: options.ttl,
            tos: options.tos,
        },
        error_queue: options.error_queue,
        mtu_discovery: MtuDiscovery::from_number(options.mtu_discovery),
        multicast_ttl: options.multicast_ttl,
        multicast_loop: options.multicast_loop,
        multicast_all: options.multicast_all,
        multicast_interface: stack.interface_with_scope(options.multicast_interface),
    };
    UdpOptions {
        broadcast: options.broadcast,
        reuse_port: options.reuse_port,
        v6_only: options.v6_only,
        merged: options.merged,
        addressed_only: options.addressed_only,
        v4: of_family(&options.v4),
        v6: of_family(&options.v6),
    }
}
