//! What programs ask of TCP sockets but to connect: bind(2), listen(2), accept(2), shutdown(2), close(2).

use super::SocketLayer;
use crate::errno;
use crate::kernel::sharing::Shared;
use crate::sockets::rows::Kind;
use crate::sockets::shares::Table;
use core::net::SocketAddr;
use core::sync::atomic::{Ordering, compiler_fence};
use hostif::{Flags, ShutdownHow, SocketHeader, SocketId};
use nic::sharing::Transport;
use rustix::io::Errno;
use stack::{AcceptReady, Listen, PackedAddress};
use tcp::Instant;

impl SocketLayer {
    pub(super) fn bind(&mut self, row: u32, local: SocketAddr) -> Result<u64, Errno> {
        let address = local.ip().to_canonical();
        if self.sockets.row(row).kind != Kind::Fresh || self.sockets.row(row).local_port != 0 {
            return Err(Errno::INVAL);
        }
        if !address.is_unspecified() && !self.stack.owns_address(address) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        let held = self.sockets.held_for(row, address)?;
        let port = if local.port() == 0 {
            held.port()
        } else {
            local.port()
        };
        self.sockets.change(row, |record| {
            record.local_address = PackedAddress::new(address);
            record.local_port = port;
        });
        let local = SocketAddr::new(address, port);
        self.sockets
            .with_header(row, |header| header.engine_set_addresses(Some(local), None));
        self.holders
            .expect_listener(&self.stack, &self.sockets, row);
        Ok(u64::from(port))
    }

    pub(super) fn listen(&mut self, now: Instant, row: u32, backlog: u32) -> Result<u64, Errno> {
        let record = *self.sockets.row(row);
        if let Some(listener) = record.listener() {
            self.stack
                .set_backlog(listener, backlog)
                .map_err(errno::of_stack)?;
            return Ok(0);
        }
        if record.kind != Kind::Fresh || record.local_port == 0 {
            return Err(Errno::INVAL);
        }
        if !self
            .sockets
            .regions
            .has_capacity(record.region, Table::Listeners)
        {
            return Err(Errno::NOBUFS);
        }
        self.sockets.must_hold(row, record.local())?;
        if self.shared.is_some() {
            self.sockets.must_listen(row)?;
        }
        // One that was closed a moment ago may have the port still.
        self.orphans.hurry(now);
        self.close_orphans(now);
        let owner = self.sockets.id(row).ok_or(Errno::BADF)?.to_bits();
        // The kernel has let the program bind, so `SO_REUSEADDR` was judged there.
        let listen = Listen {
            owner,
            local: record.local(),
            v6_only: self.sockets.is_v6_only(row),
            backlog,
            reuse_address: true,
            reuse_port: self.sockets.reuse_port(row),
        };
        self.claim_port(row, Transport::Tcp, listen.local, listen.v6_only)?;
        let listener = match self.stack.listen(&listen) {
            Ok(listener) => listener,
            Err(error) => {
                self.leave_port(row);
                return Err(errno::of_stack(error));
            }
        };
        self.sockets.set_now(now);
        self.sockets.change(row, |record| {
            record.kind = Kind::Listener;
            record.object_index = listener.index;
            record.object_generation = listener.generation;
        });
        self.sockets.regions.take(record.region, Table::Listeners);
        self.holders
            .name_tcp(&self.stack, &self.sockets, record.local_port);
        self.apply_fast_open(row)?;
        self.sockets.publish(row, Flags::LISTENING);
        Ok(0)
    }

    /// Takes the next connection of a listener, which the program in `slot` holds from now on: its row and its peer. What
    /// `note` says goes before: nobody has told the program.
    pub(crate) fn accept(
        &mut self,
        row: u32,
        slot: usize,
        note: Option<&mut u32>,
    ) -> Result<(u32, SocketAddr), Errno> {
        let listener = self.sockets.row(row).listener().ok_or(Errno::INVAL)?;
        if let Some(note) = note {
            let first = self.stack.first_to_accept(listener).ok().flatten();
            *note = first
                .and_then(SocketId::from_bits)
                .map_or(0, |id| id.row() + 1);
            compiler_fence(Ordering::SeqCst);
        }
        let accepted = self
            .stack
            .accept(listener)
            .map_err(errno::of_stack)?
            .ok_or(Errno::AGAIN)?;
        let ready = self.stack.accept_ready(listener).unwrap_or_default();
        self.sockets.publish_accept_ready(row, ready);
        let id = SocketId::from_bits(accepted.owner).ok_or(Errno::BADF)?;
        let new_row = id.row();
        self.sockets.adopt(new_row, accepted.connection);
        self.sockets
            .set_addresses(new_row, accepted.local, accepted.remote);
        self.sockets.hold(new_row, slot);
        let now = self.sockets.now();
        self.stack
            .take_deferred(now, listener, &mut self.sockets, &mut self.link);
        Ok((new_row, accepted.remote))
    }

    pub(super) fn shutdown(
        &mut self,
        now: Instant,
        row: u32,
        how: ShutdownHow,
        written: u64,
    ) -> Result<u64, Errno> {
        if let Some(listener) = self.sockets.row(row).listener() {
            if how != ShutdownHow::Write {
                self.shut_listener(now, row, listener);
            }
            return Ok(0);
        }
        let connection = self.sockets.row(row).connection().ok_or(Errno::NOTCONN)?;
        if how != ShutdownHow::Write {
            self.stack
                .shutdown_read(connection)
                .map_err(errno::of_stack)?;
        }
        if how == ShutdownHow::Read {
            return Ok(0);
        }
        self.advance_written(now, connection, written)
            .map_err(|()| Errno::INVAL)?;
        self.stack
            .shutdown(now, connection, &mut self.sockets)
            .map_err(errno::of_stack)?;
        Ok(0)
    }

    /// A listener whose reading side is shut goes back to CLOSE, for all who hold it (Linux `inet_shutdown`).
    fn shut_listener(&mut self, now: Instant, row: u32, listener: stack::ListenerId) {
        self.sockets.set_now(now);
        self.leave_port(row);
        // It is there: its row says so.
        let _ = self.stack.stop_listening(now, listener, &mut self.sockets);
        self.sockets.leave_listening(row);
        self.sockets
            .publish_accept_ready(row, AcceptReady::default());
        self.sockets.unpublish(row, Flags::LISTENING);
        self.sockets.count_rx(row);
        self.holders
            .name_tcp(&self.stack, &self.sockets, self.sockets.row(row).local_port);
    }

    /// The program in `slot` holds the socket no more. The caller closes a socket that no session holds any more.
    pub(crate) fn release_hold(
        &mut self,
        now: Instant,
        slot: usize,
        row: u32,
        positions: Option<(u64, u64)>,
    ) {
        self.sockets.unhold(row, slot);
        let record = *self.sockets.row(row);
        if let (Some(connection), Some((written, consumed))) = (record.connection(), positions) {
            // Positions that cannot be are a lie about the session's own connection: it closes all the same.
            let _ = self.advance_written(now, connection, written);
            let in_place = |header: SocketHeader<'_>| header.is_consumed_in_place();
            let in_place = self.sockets.with_header(row, in_place).unwrap_or(false);
            let _ = self.advance_consumed(now, connection, consumed, in_place);
        } else {
            self.look_consumed(now, row);
        }
    }

    /// Closes a socket as the kernel would.
    pub(crate) fn close(&mut self, now: Instant, row: u32) {
        self.sockets.set_now(now);
        let record = *self.sockets.row(row);
        if let Some(listener) = record.listener() {
            self.leave_port(row);
            if self.shared.as_ref().is_none_or(Shared::is_steered) {
                self.holders.end_kernels_part(&mut self.sockets, row);
            }
            let _ = self.stack.stop_listening(now, listener, &mut self.sockets);
            self.holders
                .name_tcp(&self.stack, &self.sockets, record.local_port);
            self.sockets.destroy(row);
        } else if let Some(connection) = record.connection() {
            // Unread bytes in a byte channel mean RST, as those in the window do (RFC 2525 §2.17).
            let is_unread = self.byte_channels.stop_reading(&mut self.sockets, row);
            let resets = record.linger && record.linger_s == 0;
            let closed = if is_unread || resets {
                self.stack
                    .close_with_reset(now, connection, &mut self.sockets)
            } else {
                self.stack.close(now, connection, &mut self.sockets)
            };
            if closed.is_err() {
                self.sockets.destroy(row);
            }
        } else if let Some(id) = record.datagram() {
            self.close_datagram(now, row, id);
        } else if matches!(record.kind, Kind::Fresh | Kind::FreshDatagram) {
            self.sockets.destroy(row);
            if record.kind == Kind::Fresh && record.local_port != 0 {
                self.holders
                    .name_tcp(&self.stack, &self.sockets, record.local_port);
            }
        }
    }
}
