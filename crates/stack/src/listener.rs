//! Listeners: their rows and their two queues, of handshakes in progress and of connections that wait to
//! be accepted (listen(2)). What a SYN does is in `handshake.rs`, which listener it finds in `listening.rs`.
//!
//! Bounds: backlog + 1 entries in each queue.

use crate::address::{PackedAddress, socket_address};
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::{ListHead, at};
use crate::error::Error;
use crate::host::Host;
use crate::protocols::Protocols;
use crate::stack::Stack;
use crate::tables::{ConnectionId, Flags, ListenerId, ReusePort, Row as _};
use core::net::SocketAddr;
use tcp::Instant;

/// No backlog is longer (Linux `somaxconn`).
pub const BACKLOG_MAX: u32 = 4_096;

/// What to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The host's token for the listener.
    pub owner: u64,
    /// Own address, or unspecified for all of them; the port is not 0. The unspecified address of IPv6
    /// stands for those of IPv4 as well, unless `v6_only`.
    pub local: SocketAddr,
    /// `IPV6_V6ONLY`.
    pub v6_only: bool,
    /// One less than the number of connections that may wait to be accepted.
    pub backlog: u32,
    /// `SO_REUSEADDR`: connections that still use the port do not matter.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`: others that say the same may listen there too.
    pub reuse_port: Option<ReusePort>,
}

/// A connection taken from an accept queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The connection.
    pub connection: ConnectionId,
    /// The token that the host gave it in [`Host::on_incoming`].
    pub owner: u64,
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
}

impl Stack<'_> {
    /// Starts listening.
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::AddressNotAvailable`], [`Error::InvalidArgument`],
    /// [`Error::NoMemory`].
    pub fn listen(&mut self, listen: &Listen) -> Result<ListenerId, Error> {
        let (address, port) = (listen.local.ip().to_canonical(), listen.local.port());
        self.ip
            .link
            .config
            .protocols
            .check_socket(Protocols::TCP, address)?;
        if port == 0 {
            return Err(Error::InvalidArgument);
        }
        if !address.is_unspecified() && !self.ip.link.interfaces.owns(address) {
            return Err(Error::AddressNotAvailable);
        }
        let is_v6_only = listen.v6_only;
        let is_free = self
            .listening
            .is_free(port, (address, is_v6_only), listen.reuse_port);
        if !is_free || (!listen.reuse_address && self.ports.users(port) > 0) {
            return Err(Error::AddressInUse);
        }
        let used = &mut self.tables.header.listeners_used;
        let index = match self.free_listeners.pop() {
            Some(index) => index,
            None if at(*used) < self.tables.listeners.len() => {
                *used += 1;
                *used - 1
            }
            None => return Err(Error::NoMemory),
        };
        self.tables.listeners[at(index)].change(|row| {
            row.owner = listen.owner;
            row.address = PackedAddress::new(address);
            row.v6_only = u8::from(listen.v6_only);
            row.port = port;
            row.reuse_port = u32::from(listen.reuse_port.is_some());
            row.sharer = listen.reuse_port.map_or(0, |sharer| sharer.user);
            row.backlog = listen.backlog.min(BACKLOG_MAX);
            (row.fast_open_max, row.fast_open_key_count) = (0, 0);
            row.used = 1;
        });
        self.listener_queues[at(index)].fast_open = Default::default();
        self.listening
            .insert(index, &self.tables.listeners[at(index)]);
        Ok(ListenerId {
            index,
            generation: self.tables.listeners[at(index)].generation,
        })
    }

    /// Changes the backlog, as a second listen(2) does.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_backlog(&mut self, listener: ListenerId, backlog: u32) -> Result<(), Error> {
        self.check_listener(listener)?;
        self.tables.listeners[at(listener.index)]
            .change(|row| row.backlog = backlog.min(BACKLOG_MAX));
        Ok(())
    }

    /// Stops listening. Connections that nobody accepted are reset, handshakes that are not over are forgotten.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn stop_listening(
        &mut self,
        now: Instant,
        id: ListenerId,
        host: &mut dyn Host,
    ) -> Result<(), Error> {
        self.check_listener(id)?;
        self.listening
            .remove(id.index, &self.tables.listeners[at(id.index)]);
        // Before the queues: a row that is free has no say about them any more.
        self.tables.listeners[at(id.index)].change(|row| {
            row.used = 0;
            row.generation = row.generation.wrapping_add(1);
        });
        for queue in [Flags::HALF_OPEN, Flags::READY] {
            let end = if queue == Flags::HALF_OPEN {
                tcp::Connection::forget
            } else {
                tcp::Connection::abort
            };
            while let Some(index) = self.queue(id.index, queue).first() {
                self.remove_from_queue(index, queue);
                let flags = self.record(index).flags();
                if !flags.contains(Flags::DETACHED) {
                    self.orphans += 1;
                    self.run(now, index, host, end);
                } else if !flags.contains(Flags::DRAINING) {
                    self.release(index, host);
                }
            }
        }
        self.free_listeners.push(id.index);
        Ok(())
    }

    /// Takes the connection that has waited longest, if there is one. It may have ended meanwhile: then
    /// its view says why.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn accept(&mut self, id: ListenerId) -> Result<Option<Accepted>, Error> {
        self.check_listener(id)?;
        let Some(index) = self.queue(id.index, Flags::READY).first() else {
            return Ok(None);
        };
        self.remove_from_queue(index, Flags::READY);
        self.change(index, |record| record.set(Flags::OWNED, true));
        let record = self.record(index);
        Ok(Some(Accepted {
            connection: record.id(index),
            owner: record.owner,
            local: self.local_end(&record.tuple),
            remote: self.remote_end(&record.tuple),
        }))
    }

    /// Connections that [`Stack::accept`] would return.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn accept_ready(&self, id: ListenerId) -> Result<u32, Error> {
        self.check_listener(id)?;
        Ok(self.listener_queues[at(id.index)].ready.len())
    }

    /// The backlog as it counts.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn backlog(&self, id: ListenerId) -> Result<u32, Error> {
        self.check_listener(id)?;
        Ok(self.tables.listeners[at(id.index)].backlog)
    }

    /// The ports that somebody listens on.
    pub fn listening_ports(&self) -> impl Iterator<Item = u16> {
        self.listening.used_ports()
    }

    /// The addresses that somebody listens on with that port, one for both families as the unspecified one of each.
    pub fn listening_on(&self, port: u16) -> impl Iterator<Item = core::net::IpAddr> {
        self.listening.addresses_on(port)
    }

    /// Whether a listener would hear a SYN to this end of the host's own.
    #[must_use]
    pub fn is_heard(&self, local: SocketAddr) -> bool {
        let address = local.ip().to_canonical();
        self.ip.link.interfaces.owns(address) && self.listening.hears(address, local.port())
    }

    /// The listener for a packet of these ends.
    pub(crate) fn find_listener(&self, tuple: &FourTuple) -> Option<u32> {
        self.listening.find(tuple)
    }

    /// Linux `inet_csk_reqsk_queue_is_full`.
    pub(crate) fn is_half_open_full(&self, listener: u32) -> bool {
        self.listener_queues[at(listener)].half_open.len()
            > self.tables.listeners[at(listener)].backlog
    }

    pub(crate) fn is_accept_queue_full(&self, id: ListenerId) -> bool {
        // Linux `sk_acceptq_is_full`: more than the backlog, so that a backlog of 0 admits one.
        self.check_listener(id).is_ok()
            && self.listener_queues[at(id.index)].ready.len()
                > self.tables.listeners[at(id.index)].backlog
    }

    /// This host's end of a connection, as programs see it.
    pub(crate) fn local_end(&self, tuple: &FourTuple) -> SocketAddr {
        socket_address(tuple.local(), tuple.local_port(), self.scope_id(tuple))
    }

    /// The peer's end of a connection, as programs see it.
    pub(crate) fn remote_end(&self, tuple: &FourTuple) -> SocketAddr {
        socket_address(tuple.remote(), tuple.remote_port(), self.scope_id(tuple))
    }

    fn scope_id(&self, tuple: &FourTuple) -> u32 {
        let link = tuple
            .zone()
            .and_then(|zone| self.ip.link.interfaces.find(zone));
        link.map_or(0, |interface| interface.config.scope_id)
    }

    /// The handshake of a half-open connection is complete.
    pub(crate) fn enter_accept_queue(&mut self, now: Instant, index: u32, host: &mut dyn Host) {
        self.remove_from_queue(index, Flags::HALF_OPEN);
        self.change(index, |record| {
            record.set(Flags::READY, true);
            record.queued_at = now;
        });
        let listener = self.record(index).listener_index;
        let queues = &mut self.listener_queues[at(listener)];
        self.listener_links.push_back(&mut queues.ready, index);
        self.tell_ready(listener, host);
    }

    fn tell_ready(&self, listener: u32, host: &mut dyn Host) {
        let row = &self.tables.listeners[at(listener)];
        let id = ListenerId {
            index: listener,
            generation: row.generation,
        };
        host.on_accept_ready(
            id,
            row.owner,
            self.listener_queues[at(listener)].ready.len(),
        );
    }

    pub(crate) fn queue(&mut self, listener: u32, queue: Flags) -> &mut ListHead {
        let queues = &mut self.listener_queues[at(listener)];
        if queue == Flags::HALF_OPEN {
            &mut queues.half_open
        } else {
            &mut queues.ready
        }
    }

    pub(crate) fn remove_from_queue(&mut self, index: u32, queue: Flags) {
        self.change(index, |record| record.set(queue, false));
        let queues =
            &mut self.listener_queues[at(self.tables.connections[at(index)].listener_index)];
        let head = if queue == Flags::HALF_OPEN {
            &mut queues.half_open
        } else {
            &mut queues.ready
        };
        self.listener_links.remove(head, index);
    }

    pub(crate) fn check_listener(&self, id: ListenerId) -> Result<(), Error> {
        let row = self
            .tables
            .listeners
            .get(at(id.index))
            .ok_or(Error::NotFound)?;
        if row.used == 1 && row.generation == id.generation {
            Ok(())
        } else {
            Err(Error::NotFound)
        }
    }
}

pub(crate) fn ends(tuple: &FourTuple) -> (SocketAddr, SocketAddr) {
    (
        SocketAddr::from((tuple.local(), tuple.local_port())),
        SocketAddr::from((tuple.remote(), tuple.remote_port())),
    )
}

/// The two halves of a 32-bit number, the low one first.
pub(crate) fn halves(number: u32) -> [u16; 2] {
    let [a, b, c, d] = number.to_le_bytes();
    [u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])]
}
