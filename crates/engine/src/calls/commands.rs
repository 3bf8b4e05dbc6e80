//! What programs ask through their rings; what they write is in `notes.rs`. Every value was decoded and is judged here once: a socket
//! that the session does not hold is `EBADF`, a position that cannot be ends the session.

use crate::core::EngineCore;
use crate::errno;
use crate::programs::session::Session;
use crate::sockets::rows::Kind;
use core::net::SocketAddr;
use hostif::{Command, Completion, Consumed, Flags, Op, ShutdownHow, SocketHeader, SocketId};
use nic::sharing::Transport;
use rustix::io::Errno;
use stack::{Listen, PackedAddress};
use tcp::Instant;

/// Descriptors taken from one ring of one session in one turn.
const RING_BUDGET: usize = 256;

impl EngineCore {
    /// Takes what the session in `slot` has put into its rings. Returns how much that was.
    pub(crate) fn drain_rings(&mut self, now: Instant, slot: usize) -> usize {
        let mut work = 0;
        for _ in 0..RING_BUDGET {
            let takes = |session: &Session| session.takes_commands();
            if !self.programs.get(slot).is_some_and(takes) {
                break;
            }
            let Some(rings) = self.programs.rings_of(slot) else {
                return work;
            };
            let Some(command) = rings.commands.pop().transpose() else {
                break;
            };
            work += 1;
            match command {
                Ok(command) => self.handle_command(now, slot, command),
                Err(_) => return self.fault(slot, work, "a command that makes no sense"),
            }
        }
        work += self.drain_written(now, slot);
        for _ in 0..RING_BUDGET {
            let Some(rings) = self.programs.rings_of(slot) else {
                return work;
            };
            let Some(consumed) = rings.consumed.pop().transpose() else {
                break;
            };
            work += 1;
            let is_well = consumed.is_ok_and(|consumed| self.handle_consumed(now, slot, &consumed));
            if !is_well {
                return self.fault(slot, work, "a receive position outside the window");
            }
        }
        work
    }

    /// The process is gone: what it had put into the rings still counts.
    pub(crate) fn drain_rings_finally(&mut self, now: Instant, slot: usize) {
        // One ringful each: a program that only closed its channel may go on filling them.
        let entries = self.config.limits.region.ring_entries;
        for _ in 0..entries.command {
            let Some(Ok(Some(command))) = self
                .programs
                .rings_of(slot)
                .map(|rings| rings.commands.pop_final())
            else {
                break;
            };
            self.handle_command(now, slot, command);
        }
        self.drain_written_finally(now, slot);
        for _ in 0..entries.receive {
            let Some(Ok(Some(consumed))) = self
                .programs
                .rings_of(slot)
                .map(|rings| rings.consumed.pop_final())
            else {
                break;
            };
            if !self.handle_consumed(now, slot, &consumed) {
                return;
            }
        }
    }

    fn is_datagram(&self, row: u32) -> bool {
        let kind = self.sockets.row(row).kind;
        matches!(kind, Kind::FreshDatagram | Kind::Datagram)
    }

    fn held(&self, slot: usize, id: SocketId) -> Option<u32> {
        self.sockets.held_by(id, slot)
    }

    /// `false`: the position cannot be. A stale socket or an old position says nothing.
    fn handle_consumed(&mut self, now: Instant, slot: usize, note: &Consumed) -> bool {
        let Some(row) = self.held(slot, note.socket) else {
            return true;
        };
        if let Some(id) = self.sockets.row(row).datagram() {
            return self.consume_datagrams(id, note.end);
        }
        let Some(connection) = self.sockets.row(row).connection() else {
            return true;
        };
        let is_right = self
            .advance_consumed(now, connection, note.end, note.in_place)
            .is_ok();
        self.place_window(row);
        is_right
    }

    /// How the connection of a socket uses its receive window may have changed.
    pub(crate) fn place_window(&mut self, row: u32) {
        let connection = self.sockets.row(row).connection();
        if let Some(Ok(used)) = connection.map(|id| self.stack.receive_use(id)) {
            self.sockets.place_window(row, &used);
        }
    }

    fn advance_consumed(
        &mut self,
        now: Instant,
        connection: stack::ConnectionId,
        end: u64,
        in_place: bool,
    ) -> Result<(), ()> {
        match self.stack.view(connection) {
            Ok(view) if view.consumed < end => {
                let sockets = &mut self.sockets;
                let accepted = self.stack.consumed(now, connection, end, sockets);
                if accepted.is_ok() {
                    self.sockets
                        .copies
                        .on_consumed(end - view.consumed, in_place);
                }
                accepted.map_err(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Takes in how far the holders have consumed by their own word: small steps come without a note.
    pub(crate) fn look_consumed(&mut self, now: Instant, row: u32) {
        if let Some(connection) = self.sockets.row(row).connection()
            && let Some((end, in_place)) = self.sockets.with_header(row, |header| {
                (header.consumed(), header.is_consumed_in_place())
            })
        {
            // A position that cannot be is a lie about the program's own connection.
            let _ = self.advance_consumed(now, connection, end, in_place);
        }
    }

    /// Carries a command out, or keeps it until the name that it needs is known.
    pub(crate) fn handle_command(&mut self, now: Instant, slot: usize, command: Command) {
        if self.must_wait_for_name(slot, &command) {
            return;
        }
        self.settle_before(now, slot, &command.op);
        let outcome = match command.op {
            Op::CloseBacking { handle } => {
                // What was to be sent from it is noted in another ring.
                self.settle_written(now, slot);
                self.programs.drop_handle(slot, handle);
                Ok(0)
            }
            op => match command.socket.and_then(|id| self.held(slot, id)) {
                None => Err(Errno::BADF),
                Some(row) => match op {
                    Op::Accept { handle } => return self.accept(slot, row, command.token, handle),
                    Op::Bind { local } if self.is_datagram(row) => self.bind_datagram(row, local),
                    Op::Bind { local } => self.bind(row, local),
                    Op::Listen { backlog } => self.listen(now, row, backlog),
                    Op::Connect { remote, local } if self.is_datagram(row) => {
                        self.send_before_change(now, slot, row);
                        self.connect_datagram(row, remote, local)
                    }
                    Op::Disconnect => {
                        self.send_before_change(now, slot, row);
                        self.disconnect_datagram(row)
                    }
                    Op::TooLong { destination } => self.note_too_long(now, row, destination),
                    Op::Membership {
                        change,
                        group,
                        source,
                        interface,
                    } => self.change_membership(row, change, (group, source), interface),
                    Op::SetDatagramOptions(options) => {
                        self.send_before_change(now, slot, row);
                        self.set_datagram_options(row, &options)
                    }
                    Op::Connect { .. }
                    | Op::ConnectHeard { .. }
                    | Op::ConnectFast { .. }
                    | Op::ConnectForCookie { .. } => self.begin_connect(now, row, op),
                    Op::Shutdown { how, written } => {
                        self.settle_written_to(now, slot, row, written);
                        self.shutdown(now, row, how, written)
                    }
                    Op::Close { written, consumed } => {
                        self.settle_written_to(now, slot, row, written);
                        self.release_hold(now, slot, row, Some((written, consumed)));
                        self.on_hold_released(now, row);
                        return self.programs.closed(slot, command.token);
                    }
                    Op::SetOptions(changes) => {
                        self.set_options(now, row, &changes);
                        Ok(0)
                    }
                    Op::SetOption { option, value } => self.set_option(now, row, option, value),
                    Op::SetFastOpenKeys(keys) => self.set_fast_open_keys(row, &keys),
                    Op::Query { what } => self.answer_query(now, slot, row, what),
                    Op::TellLane(news) => self.tell_byte_channel(now, row, news),
                    Op::CloseBacking { .. } => Ok(0),
                },
            },
        };
        self.programs.done(slot, command.token, outcome);
    }

    /// What was written before options were set leaves by the options of before.
    fn settle_before(&mut self, now: Instant, slot: usize, op: &Op) {
        if matches!(op, Op::SetOptions(_) | Op::SetOption { .. }) {
            self.settle_written(now, slot);
        }
    }

    fn bind(&mut self, row: u32, local: SocketAddr) -> Result<u64, Errno> {
        let address = local.ip().to_canonical();
        if self.sockets.row(row).kind != Kind::Fresh || self.sockets.row(row).local_port != 0 {
            return Err(Errno::INVAL);
        }
        if !address.is_unspecified() && !self.stack.owns_address(address) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        let held = self.held_for(row, address)?;
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
        self.expect_listener(row);
        Ok(u64::from(port))
    }

    fn listen(&mut self, now: Instant, row: u32, backlog: u32) -> Result<u64, Errno> {
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
        self.must_hold(row, record.local())?;
        self.must_listen(row)?;
        // One that was closed a moment ago may have the port still.
        self.look_for_orphans_now(now);
        let owner = self.sockets.id(row).ok_or(Errno::BADF)?.to_bits();
        // The kernel has let the program bind, so `SO_REUSEADDR` was judged there.
        let listen = Listen {
            owner,
            local: record.local(),
            v6_only: self.is_v6_only(row),
            backlog,
            reuse_address: true,
            reuse_port: self.reuse_port(row),
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
        self.name_tcp(record.local_port);
        self.apply_fast_open(row)?;
        self.sockets.publish(row, Flags::LISTENING);
        Ok(0)
    }

    fn accept(&mut self, slot: usize, row: u32, token: u32, handle: u32) {
        let outcome = self.try_accept(slot, row, handle);
        match outcome {
            Err(errno) => self.programs.done(slot, token, Err(errno)),
            Ok((new_row, peer)) => {
                let record = *self.sockets.row(new_row);
                let Some(socket) = self.sockets.id(new_row) else {
                    return;
                };
                let (region, header) = (record.region, record.header);
                self.programs.tell(slot, |session| {
                    session.complete(Completion::Accepted {
                        token,
                        socket,
                        region,
                        header,
                        peer,
                    });
                });
            }
        }
    }

    fn try_accept(
        &mut self,
        slot: usize,
        row: u32,
        handle: u32,
    ) -> Result<(u32, SocketAddr), Errno> {
        let listener = self.sockets.row(row).listener().ok_or(Errno::INVAL)?;
        let session = self.programs.get_mut(slot).ok_or(Errno::BADF)?;
        if !session.backings.contains_key(&handle) {
            return Err(Errno::BADF);
        }
        let accepted = self
            .stack
            .accept(listener)
            .map_err(errno::of_stack)?
            .ok_or(Errno::AGAIN)?;
        let ready = self.stack.accept_ready(listener).unwrap_or(0);
        self.sockets
            .with_header(row, |header| header.engine_set_accept_ready(ready));
        let id = SocketId::from_bits(accepted.owner).ok_or(Errno::BADF)?;
        let new_row = id.row();
        self.sockets.adopt(new_row, accepted.connection);
        self.sockets
            .set_addresses(new_row, accepted.local, accepted.remote);
        let companion = self.sockets.companion(new_row);
        companion.holders.push(slot);
        session.sockets.insert(new_row);
        if let Some(backing) = session.backings.remove(&handle) {
            self.sockets.set_backing(new_row, backing);
        }
        Ok((new_row, accepted.remote))
    }

    fn shutdown(
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
        self.sockets.change(row, |record| record.kind = Kind::Fresh);
        self.sockets
            .with_header(row, |header| header.engine_set_accept_ready(0));
        self.sockets.unpublish(row, Flags::LISTENING);
        self.sockets.count_rx(row);
        self.name_tcp(self.sockets.row(row).local_port);
    }

    /// Drops the session's hold. Whoever calls sees to a socket that nobody holds any more.
    pub(crate) fn release_hold(
        &mut self,
        now: Instant,
        slot: usize,
        row: u32,
        positions: Option<(u64, u64)>,
    ) {
        let Some(session) = self.programs.get_mut(slot) else {
            return;
        };
        session.sockets.remove(&row);
        if let Some(id) = self.sockets.id(row) {
            session.forget(id);
        }
        self.sockets
            .companion(row)
            .holders
            .retain(|holder| *holder != slot);
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
            self.end_kernels_part(row);
            let _ = self.stack.stop_listening(now, listener, &mut self.sockets);
            self.name_tcp(record.local_port);
            self.sockets.destroy(row);
        } else if let Some(connection) = record.connection() {
            // Unread bytes in a byte channel mean RST, as those in the window do (RFC 2525 §2.17).
            let is_unread = self.stop_reading_byte_channel(row);
            let resets = record.linger && record.linger_s == 0;
            let closed = if is_unread {
                self.stack.abort(now, connection, &mut self.sockets)
            } else if resets {
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
                self.name_tcp(record.local_port);
            }
        }
    }
}
