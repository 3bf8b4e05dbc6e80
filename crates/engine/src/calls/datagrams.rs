//! What commands do to datagram sockets. Their positions, and where records that arrive are placed, are in
//! `sockets/datagrams.rs`; records that programs wrote are read in `senders.rs`.
//!
//! A socket gets its rings (`hostif::datagram`) with its first bind.

use crate::core::EngineCore;
use crate::errno;
use crate::sockets::datagrams::receive_limit;
use crate::sockets::rows::Kind;
use core::net::{IpAddr, SocketAddr};
use hostif::{DatagramOptions, Flags, MembershipChange};
use nic::sharing::Transport;
use rustix::io::Errno;
use stack::udp::MtuDiscovery;
use stack::{FamilyOptions, InterfaceId, IpOptions, Membership, UdpBind, UdpId, UdpOptions};
use std::sync::Arc;
use tcp::Instant;

impl EngineCore {
    /// What the stack has to know of a program's options.
    fn options_of(&self, options: &DatagramOptions) -> UdpOptions {
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
            multicast_interface: self.stack.interface_with_scope(options.multicast_interface),
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

    /// The interface that a program names; 0: none in particular.
    pub(crate) fn interface_named(
        &self,
        scope_id: u32,
    ) -> Result<Option<InterfaceId>, stack::Error> {
        let found = self.stack.interface_with_scope(scope_id);
        if found.is_none() && scope_id != 0 {
            return Err(stack::Error::NotFound);
        }
        Ok(found)
    }

    /// Binds a datagram socket to an end whose port the backing socket holds.
    pub(crate) fn bind_datagram(&mut self, row: u32, local: SocketAddr) -> Result<u64, Errno> {
        if self.sockets.row(row).kind != Kind::FreshDatagram {
            return Err(Errno::INVAL);
        }
        // It decided about privilege, conflicts and SO_REUSEADDR.
        let port = self.held_for(row, local.ip())?.port();
        if local.port() != 0 && local.port() != port {
            return Err(Errno::ACCESS);
        }
        let options = self.sockets.companion(row).datagram_options;
        let bind = UdpBind {
            owner: self.sockets.id(row).ok_or(Errno::BADF)?.to_bits(),
            local: SocketAddr::new(local.ip(), port),
            shares: true,
            options: self.options_of(&options),
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
        self.name_udp(port);
        Ok(u64::from(port))
    }

    /// Gives a datagram socket a peer; binds it first where that has not been done.
    pub(crate) fn connect_datagram(
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
        let remote = self.scoped(remote);
        let connected = self.stack.udp_connect(id, remote);
        let local = connected.map_err(errno::of_stack)?;
        self.sockets.with_header(row, |header| {
            header.engine_set_addresses(Some(local), Some(remote));
        });
        self.sockets.publish(row, Flags::CONNECTED);
        self.name_udp(local.port());
        Ok(0)
    }

    /// Takes the peer away.
    pub(crate) fn disconnect_datagram(&mut self, row: u32) -> Result<u64, Errno> {
        let id = self.sockets.row(row).datagram().ok_or(Errno::INVAL)?;
        let local = self.stack.udp_disconnect(id).map_err(errno::of_stack)?;
        self.sockets.unpublish(row, Flags::CONNECTED);
        self.sockets
            .with_header(row, |header| header.engine_set_addresses(Some(local), None));
        self.name_udp(local.port());
        Ok(0)
    }

    /// Changes a datagram socket's options. Rings are made with the first bind and stay as large as they are; what
    /// the receive ring may be charged follows, up to that.
    pub(crate) fn set_datagram_options(
        &mut self,
        row: u32,
        options: &DatagramOptions,
    ) -> Result<u64, Errno> {
        let record = self.sockets.row(row);
        let (kind, id) = (record.kind, record.datagram());
        if !matches!(kind, Kind::FreshDatagram | Kind::Datagram) {
            return Err(Errno::OPNOTSUPP);
        }
        self.sockets.companion(row).datagram_options = *options;
        if let Some(id) = id {
            if let Some(rings) = self.sockets.companion(row).rings {
                let may_hold = receive_limit(options, &rings);
                self.sockets
                    .change_datagram(id, |row| row.receive_bytes = may_hold);
            }
            let options = self.options_of(options);
            self.stack
                .udp_set_options(id, &options)
                .map_err(errno::of_stack)?;
            if let Ok((local, _)) = self.stack.udp_addresses(id) {
                self.name_udp(local.port());
            }
        }
        Ok(0)
    }

    /// Changes what a datagram socket hears of a group.
    pub(crate) fn change_membership(
        &mut self,
        row: u32,
        change: MembershipChange,
        (group, source): (IpAddr, Option<IpAddr>),
        interface: u32,
    ) -> Result<u64, Errno> {
        let id = self.sockets.row(row).datagram().ok_or(Errno::INVAL)?;
        let membership = Membership {
            group,
            interface: self.interface_named(interface).map_err(|_| Errno::NODEV)?,
            source,
        };
        let changed = match change {
            MembershipChange::Join => self.stack.udp_join(id, &membership),
            MembershipChange::Leave => self.stack.udp_leave(id, &membership),
            MembershipChange::Block => self.stack.udp_block(id, &membership),
            MembershipChange::Unblock => self.stack.udp_unblock(id, &membership),
        };
        match changed {
            Ok(()) => Ok(0),
            Err(stack::Error::NotFound) => Err(Errno::NODEV),
            Err(error) => Err(errno::of_stack(error)),
        }
    }

    /// A program was refused a datagram: its error queue tells by how much it was too long.
    pub(crate) fn note_too_long(
        &mut self,
        now: Instant,
        row: u32,
        destination: SocketAddr,
    ) -> Result<u64, Errno> {
        let id = self.sockets.row(row).datagram().ok_or(Errno::INVAL)?;
        let options = self.sockets.companion(row).datagram_options;
        let of_family = if destination.is_ipv4() {
            options.v4
        } else {
            options.v6
        };
        if of_family.error_queue {
            let destination = self.scoped(destination);
            let mtu = self.stack.udp_mtu_towards(now, id, destination);
            let mtu = mtu.map_err(errno::of_stack)?;
            self.sockets.queue_too_long(row, id, destination, mtu);
        }
        Ok(0)
    }

    /// What a program wrote before it asked for a change is sent as it was before: the notes of it are in
    /// another ring than the command.
    pub(crate) fn send_before_change(&mut self, now: Instant, slot: usize, row: u32) {
        self.settle_written(now, slot);
        self.send_datagrams_of(now, row, usize::MAX);
    }

    /// The last holder is gone: what was written leaves, as far as the device takes it.
    pub(crate) fn close_datagram(&mut self, now: Instant, row: u32, id: UdpId) {
        self.send_datagrams_of(now, row, usize::MAX);
        self.leave_port(row);
        let ends = self.stack.udp_addresses(id);
        let _ = self.stack.udp_close(id);
        let backing = self.sockets.companion(row).backing.as_ref();
        let user = backing.map(|backing| Arc::clone(backing.user()));
        self.sockets.destroy(row);
        if let (Ok((local, _)), Some(user)) = (ends, user) {
            self.leave_name(local.port(), &user);
        }
    }

    /// `false`: no honest program consumes what has not arrived.
    pub(crate) fn consume_datagrams(&mut self, id: UdpId, end: u64) -> bool {
        let row = self.sockets.datagram(id);
        if end > row.received_end {
            return false;
        }
        // Several holders report positions, so an older one may come later.
        if end > row.consumed {
            self.sockets.change_datagram(id, |row| row.consumed = end);
        }
        true
    }
}
