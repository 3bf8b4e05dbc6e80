//! What programs ask through their rings; what they write is in `notes.rs`. Every value was decoded and is judged here once: a socket
//! that the session does not hold is `EBADF`, a position that cannot be ends the session.

use crate::core::EngineCore;
use crate::errno;
use crate::rows::Kind;
use crate::session::Session;
use core::net::SocketAddr;
use hostif::{Command, Completion, Flags, Op, ShutdownHow, SocketId};
use nic::sharing::Transport;
use rustix::io::Errno;
use stack::{Connect, Listen, PackedAddress};
use tcp::Instant;

/// Descriptors taken from one ring of one session in one turn.
const RING_BUDGET: usize = 256;

impl EngineCore {
    /// Takes what the session in `slot` has put into its rings. Returns how much that was.
    pub(crate) fn drain_rings(&mut self, now: Instant, slot: usize) -> usize {
        let mut work = 0;
        for _ in 0..RING_BUDGET {
            let takes = |session: &Session| session.takes_commands();
            if !self.sessions[slot].as_ref().is_some_and(takes) {
                break;
            }
            let Some(rings) = self.rings_of(slot) else {
                return work;
            };
            let Some(command) = rings.commands.pop().transpose() else {
                break;
            };
            work += 1;
            match command {
                Ok(command) => self.handle_command(now, slot, &command),
                Err(_) => return self.fault(slot, work, "a command that makes no sense"),
            }
        }
        work += self.drain_written(now, slot);
        for _ in 0..RING_BUDGET {
            let Some(rings) = self.rings_of(slot) else {
                return work;
            };
            let Some(consumed) = rings.consumed.pop().transpose() else {
                break;
            };
            work += 1;
            let is_well = consumed.is_ok_and(|consumed| {
                self.handle_consumed(now, slot, consumed.socket, consumed.end)
            });
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
            let Some(Ok(Some(command))) =
                self.rings_of(slot).map(|rings| rings.commands.pop_final())
            else {
                break;
            };
            self.handle_command(now, slot, &command);
        }
        self.drain_written_finally(now, slot);
        for _ in 0..entries.receive {
            let Some(Ok(Some(consumed))) =
                self.rings_of(slot).map(|rings| rings.consumed.pop_final())
            else {
                break;
            };
            if !self.handle_consumed(now, slot, consumed.socket, consumed.end) {
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
    fn handle_consumed(&mut self, now: Instant, slot: usize, id: SocketId, end: u64) -> bool {
        let Some(row) = self.held(slot, id) else {
            return true;
        };
        if let Some(id) = self.sockets.row(row).datagram() {
            return self.consume_datagrams(id, end);
        }
        let Some(connection) = self.sockets.row(row).connection() else {
            return true;
        };
        let is_right = self.advance_consumed(now, connection, end).is_ok();
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
    ) -> Result<(), ()> {
        match self.stack.view(connection) {
            Ok(view) if view.consumed < end => {
                let sockets = &mut self.sockets;
                let accepted = self.stack.consumed(now, connection, end, sockets);
                if accepted.is_ok() {
                    self.sockets.copies.on_consumed(end - view.consumed);
                }
                accepted.map_err(|_| ())
            }
            _ => Ok(()),
        }
    }

    fn handle_command(&mut self, now: Instant, slot: usize, command: &Command) {
        let outcome = match command.op {
            Op::CloseBacking { handle } => {
                // What was to be sent from it is noted in another ring.
                self.settle_written(now, slot);
                if let Some(session) = &mut self.sessions[slot] {
                    session.backings.remove(&handle);
                    self.retired.extend(session.files.remove(&handle));
                }
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
                    Op::Connect { remote, local } => self.connect(now, row, remote, local, false),
                    Op::ConnectFast { remote, local } => {
                        self.connect(now, row, remote, local, true)
                    }
                    Op::Shutdown { how, written } => {
                        self.settle_written_to(now, slot, row, written);
                        self.shutdown(now, row, how, written)
                    }
                    Op::Close { written, consumed } => {
                        self.settle_written_to(now, slot, row, written);
                        self.release_hold(now, slot, row, Some((written, consumed)));
                        Ok(0)
                    }
                    Op::SetOptions(changes) => {
                        self.set_options(now, row, &changes);
                        Ok(0)
                    }
                    Op::SetOption { option, value } => {
                        self.set_option(now, slot, row, option, value)
                    }
                    Op::SetFastOpenKeys(keys) => self.set_fast_open_keys(row, &keys),
                    Op::Query { what } => self.answer_query(now, slot, row, what),
                    Op::CloseBacking { .. } => Ok(0),
                },
            },
        };
        self.done(slot, command.token, outcome);
    }

    fn done(&mut self, slot: usize, token: u32, outcome: Result<u64, Errno>) {
        if token == 0 {
            return;
        }
        let (errno, value) = match outcome {
            Ok(value) => (0, value),
            Err(errno) => (errno::code(errno), 0),
        };
        if let Some(session) = &mut self.sessions[slot] {
            session.complete(Completion::Done {
                token,
                errno,
                value,
            });
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
        let port = if local.port() == 0 {
            self.kernel_port(row)?
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
        Ok(u64::from(port))
    }

    /// The port that the kernel holds for the backing socket. It decided about privilege, conflicts
    /// and `SO_REUSEADDR`; a program that asks for another port here has not asked the kernel.
    pub(crate) fn kernel_port(&mut self, row: u32) -> Result<u16, Errno> {
        let backing = self
            .sockets
            .companion(row)
            .backing
            .as_ref()
            .ok_or(Errno::BADF)?;
        let name = rustix::net::getsockname(backing)?;
        match SocketAddr::try_from(name) {
            Ok(address) if address.port() != 0 => Ok(address.port()),
            _ => Err(Errno::ACCESS),
        }
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
        if self.kernel_port(row)? != record.local_port {
            return Err(Errno::ACCESS);
        }
        let owner = self.sockets.id(row).ok_or(Errno::BADF)?.to_bits();
        // The kernel has let the program bind, so `SO_REUSEADDR` was judged there.
        let listen = Listen {
            owner,
            local: record.local(),
            v6_only: self.is_v6_only(row),
            backlog,
            reuse_address: true,
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
        self.apply_fast_open(row)?;
        self.sockets.publish(row, Flags::LISTENING);
        Ok(0)
    }

    fn connect(
        &mut self,
        now: Instant,
        row: u32,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        is_fast: bool,
    ) -> Result<u64, Errno> {
        let record = *self.sockets.row(row);
        match record.kind {
            Kind::Fresh => {}
            Kind::Connection => self.leave_failed_connection(now, row)?,
            _ => return Err(Errno::ISCONN),
        }
        let local = local.unwrap_or_else(|| record.local());
        let remote = self.scoped(remote);
        if local.port() != 0 && self.kernel_port(row)? != local.port() {
            return Err(Errno::ACCESS);
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
        let opened = if is_fast {
            self.stack.connect_fast(now, &connect, &mut self.sockets)
        } else {
            let opened = self.stack.connect(now, &connect, &mut self.sockets);
            opened.map(|connection| (connection, 0))
        };
        let (connection, room) = opened.map_err(errno::of_stack)?;
        let (local, remote) = self.stack.addresses(connection).map_err(errno::of_stack)?;
        if !self.sockets.is_home(local, remote) {
            // Its answers would come to another core, which the program could have known.
            let _ = self.stack.abort(now, connection, &mut self.sockets);
            return Err(Errno::ADDRNOTAVAIL);
        }
        if let Err(errno) = self.claim_flow(row, local, remote) {
            let _ = self.stack.abort(now, connection, &mut self.sockets);
            return Err(errno);
        }
        self.sockets.adopt(row, connection);
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

    fn accept(&mut self, slot: usize, row: u32, token: u32, handle: u32) {
        let outcome = self.try_accept(slot, row, handle);
        match outcome {
            Err(errno) => self.done(slot, token, Err(errno)),
            Ok((new_row, peer)) => {
                let record = *self.sockets.row(new_row);
                let Some(socket) = self.sockets.id(new_row) else {
                    return;
                };
                if let Some(session) = &mut self.sessions[slot] {
                    let (region, header) = (record.region, record.header);
                    session.complete(Completion::Accepted {
                        token,
                        socket,
                        region,
                        header,
                        peer,
                    });
                }
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
        let session = self.sessions[slot].as_mut().ok_or(Errno::BADF)?;
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
        companion.backing = session.backings.remove(&handle);
        companion.holders.push(slot);
        session.sockets.insert(new_row);
        Ok((new_row, accepted.remote))
    }

    fn shutdown(
        &mut self,
        now: Instant,
        row: u32,
        how: ShutdownHow,
        written: u64,
    ) -> Result<u64, Errno> {
        let connection = self.sockets.row(row).connection().ok_or(Errno::NOTCONN)?;
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

    /// Drops the session's hold; the last one closes the socket as the kernel would.
    pub(crate) fn release_hold(
        &mut self,
        now: Instant,
        slot: usize,
        row: u32,
        positions: Option<(u64, u64)>,
    ) {
        let Some(session) = &mut self.sessions[slot] else {
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
            let _ = self.advance_consumed(now, connection, consumed);
        }
        if self.sockets.holders(row).is_empty() {
            self.close(now, row);
        }
    }

    fn close(&mut self, now: Instant, row: u32) {
        self.sockets.set_now(now);
        let record = *self.sockets.row(row);
        if let Some(listener) = record.listener() {
            self.leave_port(row);
            let _ = self.stack.stop_listening(now, listener, &mut self.sockets);
            self.sockets.destroy(row);
        } else if let Some(connection) = record.connection() {
            let resets = record.linger && record.linger_s == 0;
            let closed = if resets {
                self.stack.abort(now, connection, &mut self.sockets)
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
        }
    }
}
