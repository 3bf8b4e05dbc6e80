//! Going on where an engine before this one stopped: the stack's connections and the rows of sockets are joined again, and
//! what was stopped between two of them is given up.

use super::SocketLayer;
use crate::programs::resume::Taken;
use crate::sockets::rows::{Kind, Marks};
use hostif::Flags;
use nic::sharing::Transport;
use rustix::io::Errno;
use stack::{AcceptReady, ConnectionId};
use tcp::{Events, Instant, State};

impl SocketLayer {
    /// Joins both; the sockets have been taken up.
    pub(crate) fn resume(&mut self, now: Instant, taken: &mut Taken) {
        self.sockets.set_now(now);
        // Before any note of a file, which the first poll takes.
        self.take_windows();
        let without_file = self.take_up_files();
        self.orphans.resume(now, &mut self.sockets, taken);
        self.adopt_connections(now);
        self.drop_unknown(now);
        for row in 0..self.sockets.used() {
            match self.sockets.row(row).kind {
                Kind::Free => {}
                Kind::Arriving => self.sockets.destroy(row),
                Kind::Fresh | Kind::FreshDatagram => self.resume_fresh(row),
                Kind::Listener => self.resume_listener(now, row),
                Kind::Connection => self.resume_connection(now, row, without_file.contains(&row)),
                Kind::Datagram => self.resume_datagram(now, row),
            }
        }
        self.claim_again();
    }

    /// Connections whose sockets were not told their names yet.
    fn adopt_connections(&mut self, now: Instant) {
        let all: Vec<_> = self.stack.connection_names().collect();
        for (connection, owner) in all {
            let row = self.sockets.row_of(owner);
            match row.map(|row| (row, self.sockets.row(row).kind)) {
                Some((row, Kind::Arriving)) => self.sockets.adopt(row, connection),
                Some((row, Kind::Fresh)) => {
                    self.sockets.adopt(row, connection);
                    self.sockets.change(row, |record| record.active = true);
                }
                Some((row, _)) if self.sockets.row(row).connection() == Some(connection) => {}
                _ => drop(self.stack.abort(now, connection, &mut self.sockets)),
            }
        }
    }

    /// Listeners and UDP sockets that no socket knows.
    fn drop_unknown(&mut self, now: Instant) {
        let knows =
            |owner, is_it: &dyn Fn(u32) -> bool| self.sockets.row_of(owner).is_some_and(is_it);
        let listeners = self.stack.listeners().filter(|one| {
            !knows(one.owner, &|row| {
                self.sockets.row(row).listener() == Some(one.listener)
            })
        });
        let listeners: Vec<_> = listeners.map(|one| one.listener).collect();
        let datagrams = self.stack.udp_rows().filter(|one| {
            !knows(one.owner, &|row| {
                self.sockets.row(row).datagram() == Some(one.socket)
            })
        });
        let datagrams: Vec<_> = datagrams.map(|one| one.socket).collect();
        for listener in listeners {
            let _ = self.stack.stop_listening(now, listener, &mut self.sockets);
        }
        for socket in datagrams {
            let _ = self.stack.udp_close(socket);
        }
    }

    fn is_held(&self, row: u32) -> bool {
        !self.sockets.holders(row).is_empty() || self.sockets.has(row, Marks::ORPHAN)
    }

    fn resume_fresh(&mut self, row: u32) {
        if !self.is_held(row) {
            return self.sockets.destroy(row);
        }
        let record = *self.sockets.row(row);
        if record.kind == Kind::Fresh && record.local_port != 0 {
            self.sockets.with_header(row, |header| {
                header.engine_set_addresses(Some(record.local()), None);
            });
            self.holders
                .expect_listener(&self.stack, &self.sockets, row);
        }
        self.sockets.publish_again(row);
    }

    fn resume_listener(&mut self, now: Instant, row: u32) {
        if !self.is_held(row) {
            return self.close(now, row);
        }
        let listener = self.sockets.row(row).listener();
        let ready = listener.map(|listener| self.stack.accept_ready(listener));
        match ready {
            Some(Ok(ready)) => {
                self.sockets.publish_accept_ready(row, ready);
                self.sockets.publish(row, Flags::LISTENING);
            }
            _ => {
                // Its row in the stack was being changed.
                self.sockets.leave_listening(row);
                self.sockets
                    .publish_accept_ready(row, AcceptReady::default());
                self.sockets.fail(row, Errno::CONNRESET);
            }
        }
        self.sockets.publish_again(row);
    }

    fn resume_connection(&mut self, now: Instant, row: u32, is_without_file: bool) {
        let Some(connection) = self.sockets.row(row).connection() else {
            return;
        };
        let is_held = self.is_held(row);
        let Ok(tcp) = self.stack.connection(connection) else {
            if is_held {
                self.sockets.fail(row, Errno::CONNRESET);
            } else {
                self.sockets.destroy(row);
            }
            return;
        };
        // Its program has ended, and the engine before did not come to the end of that.
        if !is_held && self.stack.is_owned(connection) {
            return self.close(now, row);
        }
        if is_without_file && tcp.state() != State::Closed {
            if is_held {
                self.sockets.fail(row, Errno::CONNRESET);
            }
            let _ = self.stack.abort(now, connection, &mut self.sockets);
            return;
        }
        self.tell_again(row, connection);
    }

    /// What the program may not have been told of.
    fn tell_again(&mut self, row: u32, connection: ConnectionId) {
        let owner = self.sockets.id(row).map(|id| id.to_bits());
        let (Some(owner), Ok(tcp)) = (owner, self.stack.connection(connection)) else {
            return;
        };
        if let Ok((local, remote)) = self.stack.addresses(connection) {
            self.sockets.set_addresses(row, local, remote);
        }
        if tcp.state() == State::SynSent {
            self.sockets.publish(row, Flags::CONNECTING);
        }
        let published = Flags::from_bits_truncate(self.sockets.row(row).published);
        let stands = !matches!(
            tcp.state(),
            State::Closed | State::SynSent | State::SynReceived
        );
        let mut events = Events::READABLE | Events::WRITABLE;
        events.set(Events::FIN, tcp.fin_received());
        events.set(Events::ERROR, tcp.error().is_some());
        events.set(
            Events::ESTABLISHED,
            stands && !published.contains(Flags::CONNECTED),
        );
        events.set(Events::CLOSED, tcp.state() == State::Closed);
        events.set(Events::TIME_WAIT, tcp.state() == State::TimeWait);
        stack::Host::on_events(&mut self.sockets, connection, owner, events, tcp);
        if let Ok(used) = self.stack.receive_use(connection) {
            self.sockets.place_window(row, &used);
        }
        self.sockets.publish_capacity(row);
        self.sockets.publish_again(row);
    }

    fn resume_datagram(&mut self, now: Instant, row: u32) {
        let id = self.sockets.row(row).datagram();
        let is_there = id.filter(|id| self.stack.udp_addresses(*id).is_ok());
        let Some(id) = is_there.filter(|_| self.is_held(row)) else {
            if self.is_held(row) {
                self.sockets.fail(row, Errno::CONNRESET);
            } else {
                self.close(now, row);
            }
            return;
        };
        let positions = *self.sockets.datagram(id);
        self.sockets.with_header(row, |header| {
            header.engine_set_received_end(positions.received_end);
            header.engine_set_acknowledged(positions.sent);
            header.engine_set_failures_end(positions.failures_end);
        });
        self.join_again(row, id);
        if positions.sent < positions.written {
            self.senders.resume(row);
        }
        if let Ok((local, remote)) = self.stack.udp_addresses(id) {
            self.holders.name_udp(&self.stack, local.port());
            // What was bound or connected may not have been said yet.
            self.sockets.with_header(row, |header| {
                header.engine_set_addresses(Some(local), remote);
            });
            let connected = remote.map_or(Flags::empty(), |_| Flags::CONNECTED);
            self.sockets.publish(row, Flags::DATAGRAM | connected);
        }
        self.sockets.publish_again(row);
    }

    /// What of the kernel's is the engine's, told to a device that knows nothing of it.
    fn claim_again(&mut self) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        for row in 0..self.sockets.used() {
            let record = *self.sockets.row(row);
            let claimed = match (record.listener(), record.datagram()) {
                (Some(_), _) => {
                    let v6_only = self.sockets.is_v6_only(row);
                    let local = record.local();
                    shared.claim_port(&mut self.sockets, row, Transport::Tcp, local, v6_only)
                }
                (_, Some(id)) => {
                    let v6_only = self.sockets.companion(row).datagram_options.v6_only;
                    let bound = self.stack.udp_addresses(id).map(|(local, _)| local);
                    bound.map_or(Ok(()), |local| {
                        shared.claim_port(&mut self.sockets, row, Transport::Udp, local, v6_only)
                    })
                }
                _ => Ok(()),
            };
            if let Err(errno) = claimed {
                tracing::warn!("a port of the engine before is not claimed again: {errno}");
            }
        }
        shared.claim_flows_again(&self.stack);
    }
}
