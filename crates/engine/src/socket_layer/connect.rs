//! A program's connect(2): addresses and ports that it may have, windows, and the flow's claim.

use super::SocketLayer;
use super::senders::scoped;
use crate::errno;
use crate::sockets::rows::{Kind, Marks};
use core::net::SocketAddr;
use hostif::{Flags, Op};
use rustix::io::Errno;
use stack::Connect;
use tcp::Instant;

/// What a program wants of Fast Open (RFC 7413).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FastOpenWish {
    /// Nothing.
    None,
    /// It has bytes for the SYN.
    Data,
    /// It has none, and wants the cookie for the next time.
    Cookie,
}

impl SocketLayer {
    /// One of the operations that connect.
    pub(crate) fn begin_connect(&mut self, now: Instant, row: u32, op: Op) -> Result<u64, Errno> {
        let (ends, wish) = match op {
            Op::Connect { remote, local } => ((remote, local), FastOpenWish::None),
            Op::ConnectHeard { remote, .. } if !self.stack.is_heard(remote) => {
                return Err(match self.holders.is_expected(&self.sockets, remote) {
                    true => Errno::AGAIN,
                    false => Errno::CONNREFUSED,
                });
            }
            Op::ConnectHeard { remote, local } => ((remote, local), FastOpenWish::None),
            Op::ConnectFast { remote, local } => ((remote, local), FastOpenWish::Data),
            Op::ConnectForCookie { remote, local } => ((remote, local), FastOpenWish::Cookie),
            _ => return Err(Errno::INVAL),
        };
        self.connect(now, row, ends, wish)
    }

    fn connect(
        &mut self,
        now: Instant,
        row: u32,
        (remote, local): (SocketAddr, Option<SocketAddr>),
        wish: FastOpenWish,
    ) -> Result<u64, Errno> {
        let record = *self.sockets.row(row);
        match record.kind {
            Kind::Fresh => {}
            Kind::Connection => self.leave_failed_connection(now, row)?,
            _ => return Err(Errno::ISCONN),
        }
        let local = local.unwrap_or_else(|| record.local());
        let remote = scoped(remote, self.scope_id);
        if local.port() != 0 {
            self.sockets.must_hold(row, local)?;
        }
        let (receive_capacity, send_capacity) =
            self.sockets.give_windows(row).ok_or(Errno::NOBUFS)?;
        let owner = self.sockets.id(row).ok_or(Errno::BADF)?.to_bits();
        let connect = Connect {
            owner,
            local_address: Some(local.ip().to_canonical())
                .filter(|address| !address.is_unspecified()),
            local_port: Some(local.port()).filter(|port| *port != 0),
            remote,
            receive_capacity,
            send_capacity,
            options: record.options,
            ip: record.ip(),
        };
        let host = &mut self.sockets;
        let opened = match wish {
            FastOpenWish::None => {
                let opened = self.stack.connect(now, &connect, host);
                opened.map(|connection| (connection, 0))
            }
            wish => {
                let has_data = wish == FastOpenWish::Data;
                self.stack.connect_fast(now, &connect, has_data, host)
            }
        };
        let (connection, room) = opened.map_err(errno::of_stack)?;
        let (local, remote) = self.stack.addresses(connection).map_err(errno::of_stack)?;
        if !self.sockets.is_own(local, remote) {
            // Its answers would come to another core, which the program could have known.
            let _ = self.stack.abort(now, connection, &mut self.sockets);
            return Err(Errno::ADDRNOTAVAIL);
        }
        if let Err(errno) = self.claim_flow(row, local, remote) {
            let _ = self.stack.abort(now, connection, &mut self.sockets);
            return Err(errno);
        }
        self.sockets.adopt(row, connection);
        self.sockets
            .set_mark(row, Marks::PORT_CHOSEN, connect.local_port.is_none());
        self.sockets.change(row, |record| record.active = true);
        self.sockets.set_addresses(row, local, remote);
        self.sockets.publish(row, Flags::CONNECTING);
        Ok(u64::from(room))
    }

    /// A socket may connect again after a failure, as on Linux; never while a connection stands.
    fn leave_failed_connection(&mut self, now: Instant, row: u32) -> Result<(), Errno> {
        let Some(connection) = self.sockets.row(row).connection() else {
            return Ok(());
        };
        let info = self.stack.info(connection).map_err(errno::of_stack)?;
        match info.state {
            tcp::State::Closed => {}
            tcp::State::SynSent => return Err(Errno::ALREADY),
            _ => return Err(Errno::ISCONN),
        }
        // First the row, so that the release of the old connection leaves the socket alone.
        self.sockets.change(row, |record| record.kind = Kind::Fresh);
        let all = Flags::all();
        self.sockets.unpublish(row, all);
        let id = self.sockets.id(row).ok_or(Errno::BADF)?;
        self.sockets
            .with_header(row, |header| header.engine_reset(id));
        self.stack
            .close(now, connection, &mut self.sockets)
            .map_err(errno::of_stack)
    }
}
