//! What a program asks of its listeners. Their queues are `tcp/listeners.rs`.

use crate::address::PackedAddress;
use crate::config::FAST_OPEN_KEYS_MAX;
use crate::containers::intrusive::at;
use crate::error::Error;
use crate::host::{AcceptReady, Host};
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
        self.ip.link.config.check_socket(Protocols::TCP, address)?;
        if port == 0 {
            return Err(Error::InvalidArgument);
        }
        if !address.is_unspecified() && !self.ip.link.interfaces.owns(address) {
            return Err(Error::AddressNotAvailable);
        }
        let is_v6_only = listen.v6_only;
        let is_free =
            self.tcp
                .listeners
                .listening
                .is_free(port, (address, is_v6_only), listen.reuse_port);
        if !is_free || (!listen.reuse_address && self.tcp.ports.users(port) > 0) {
            return Err(Error::AddressInUse);
        }
        self.tcp.listeners.add(|row| {
            row.owner = listen.owner;
            row.address = PackedAddress::new(address);
            row.v6_only = u8::from(listen.v6_only);
            row.port = port;
            row.reuse_port = u32::from(listen.reuse_port.is_some());
            row.sharer = listen.reuse_port.map_or(0, |sharer| sharer.user);
            row.backlog = listen.backlog.min(BACKLOG_MAX);
            (row.fast_open_max, row.fast_open_key_count) = (0, 0);
        })
    }

    /// Changes the backlog, as a second listen(2) does.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_backlog(&mut self, listener: ListenerId, backlog: u32) -> Result<(), Error> {
        self.tcp.listeners.check(listener)?;
        let row = self.tcp.listeners.row(listener.index);
        row.change(|row| row.backlog = backlog.min(BACKLOG_MAX));
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
        self.tcp.listeners.check(id)?;
        // Before the queues: a row that is free has no say about them any more.
        self.tcp.listeners.stop(id.index);
        for queue in [Flags::HALF_OPEN, Flags::READY] {
            let end = if queue == Flags::HALF_OPEN {
                tcp::Connection::forget
            } else {
                tcp::Connection::abort
            };
            while let Some(index) = self.tcp.listeners.first(id.index, queue) {
                self.tcp.leave_queue(index, queue);
                let flags = self.tcp.record(index).flags();
                if !flags.contains(Flags::DETACHED) {
                    self.tcp.orphans += 1;
                    self.tcp.run(&mut self.ip, now, index, host, end);
                } else if !flags.contains(Flags::DRAINING) {
                    self.tcp.release(&mut self.ip, index, host);
                }
            }
        }
        self.tcp.listeners.release(id.index);
        Ok(())
    }

    /// Takes the connection that has waited longest, if there is one. It may have ended meanwhile: then
    /// its view says why. What has waited for the space goes on by [`Stack::take_deferred`].
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn accept(&mut self, id: ListenerId) -> Result<Option<Accepted>, Error> {
        self.tcp.listeners.check(id)?;
        let Some(index) = self.tcp.listeners.first(id.index, Flags::READY) else {
            return Ok(None);
        };
        self.tcp.connections[at(index)].replace(Flags::READY, Flags::OWNED);
        self.tcp.leave_queue(index, Flags::READY);
        let record = self.tcp.record(index);
        Ok(Some(Accepted {
            connection: record.id(index),
            owner: record.owner,
            local: self.ip.local_end(&record.tuple),
            remote: self.ip.remote_end(&record.tuple),
        }))
    }

    /// The host's token of the connection that [`Stack::accept`] would take.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn first_to_accept(&self, id: ListenerId) -> Result<Option<u64>, Error> {
        self.tcp.listeners.check(id)?;
        let first = self.tcp.listeners.first(id.index, Flags::READY);
        Ok(first.map(|index| self.tcp.record(index).owner))
    }

    /// Undoes [`Stack::accept`], of which nobody has heard: the connection waits to be accepted, behind all others. Not where its
    /// listener is gone.
    pub fn put_back(&mut self, id: ConnectionId) {
        let Ok(record) = self.find(id) else {
            return;
        };
        let (is_owned, listener) = (record.has(Flags::OWNED), record.listener());
        if is_owned && self.tcp.listeners.check(listener).is_ok() {
            self.tcp.connections[at(id.index)].replace(Flags::OWNED, Flags::READY);
            self.tcp
                .listeners
                .push(listener.index, Flags::READY, id.index);
        }
    }

    /// Connections that [`Stack::accept`] would return.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn accept_ready(&self, id: ListenerId) -> Result<AcceptReady, Error> {
        self.tcp.listeners.check(id)?;
        Ok(self.tcp.accept_ready(id.index))
    }

    /// The backlog as it counts.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn backlog(&self, id: ListenerId) -> Result<u32, Error> {
        self.tcp.listeners.check(id)?;
        Ok(self.tcp.listeners.rows[at(id.index)].backlog)
    }

    /// The ports that somebody listens on.
    pub fn listening_ports(&self) -> impl Iterator<Item = u16> {
        self.tcp.listeners.listening.used_ports()
    }

    /// The addresses that somebody listens on with that port, one for both families as the unspecified one of each.
    pub fn listening_on(&self, port: u16) -> impl Iterator<Item = core::net::IpAddr> {
        self.tcp.listeners.listening.addresses_on(port)
    }

    /// Whether a listener would get a SYN to this local end.
    #[must_use]
    pub fn is_heard(&self, local: SocketAddr) -> bool {
        let address = local.ip().to_canonical();
        self.ip.link.interfaces.owns(address)
            && self.tcp.listeners.listening.hears(address, local.port())
    }

    /// `TCP_FASTOPEN`: requests of a listener at most whose handshake is not over; 0: none are served.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn set_fast_open(&mut self, listener: ListenerId, most: u32) -> Result<(), Error> {
        self.tcp.listeners.check(listener)?;
        let row = self.tcp.listeners.row(listener.index);
        row.change(|row| row.fast_open_max = most.min(BACKLOG_MAX));
        Ok(())
    }

    /// `TCP_FASTOPEN_KEY`: the newest key first; none: the stack's own.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InvalidArgument`]: too many.
    pub fn set_fast_open_keys(
        &mut self,
        listener: ListenerId,
        keys: &[[u8; 16]],
    ) -> Result<(), Error> {
        self.tcp.listeners.check(listener)?;
        if keys.len() > FAST_OPEN_KEYS_MAX {
            return Err(Error::InvalidArgument);
        }
        let row = self.tcp.listeners.row(listener.index);
        row.change(|row| {
            row.fast_open_keys = [[0; 16]; FAST_OPEN_KEYS_MAX];
            row.fast_open_keys[..keys.len()].copy_from_slice(keys);
            row.fast_open_key_count = u32::try_from(keys.len()).unwrap_or(0);
        });
        Ok(())
    }

    /// The keys of all listeners without keys of their own, from now on.
    pub fn set_common_fast_open_keys(&mut self, keys: [Option<[u8; 16]>; FAST_OPEN_KEYS_MAX]) {
        self.ip.link.config.fast_open_keys = keys;
    }

    /// Whether some listener or connection has the port.
    pub fn holds_port(&self, port: u16) -> bool {
        self.tcp.holds_port(port)
    }
}
