//! Sharing the interface's addresses with the kernel (DESIGN §5): addresses, routes and neighbours are the
//! kernel's and followed, what is the engine's is claimed before the first packet of it can come, and let go
//! of after the last, TIME-WAIT included.
//!
//! A listener claims its port, a connection that was opened here its flow. Connections that a listener
//! accepted come by its port, until it closes: then they claim their flows. Connections that the kernel has
//! on a port when a listener starts (of a server that ran without Shunt, or in TIME-WAIT) stay the kernel's.
//! Each core follows for itself; claims are common to all.

use crate::core::EngineCore;
use crate::device::link::LOOPBACK_INDEX;
use core::net::{IpAddr, SocketAddr};
use netlink::{Change, Connections, Monitor, Neighbour, Snapshot};
use nic::sharing::{Claim, Claims, Transport};
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::io::Errno;
use stack::{ExternalNeighbour, InterfaceAddress, InterfaceId, Route, Stack};
use std::sync::Arc;
use tcp::{Duration, Instant};

/// Everything is read again at most this often: while routes flap the engine has other work.
const READ_INTERVAL: Duration = Duration::from_us(100_000);
/// How often the kernel is reminded of a neighbour that is in use: it then asks who has been silent.
const REMINDER_INTERVAL: Duration = Duration::from_secs(30);

/// How an engine shares the kernel's addresses.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Takes the engine's packets out of the kernel's way; without it the kernel gets them too, and the
    /// backing sockets have to keep it silent.
    pub claims: Option<Arc<dyn Claims>>,
}

/// One core's part in it.
pub struct Shared {
    claims: Option<Arc<dyn Claims>>,
    kernel: Monitor,
    connections: Connections,
    last: Snapshot,
    /// It has changed since.
    is_stale: bool,
    next_read: Instant,
    next_reminder: Instant,
    /// Connections of the kernel on ports that are claimed, to be forgotten when the kernel has.
    kernels_flows: Vec<(SocketAddr, SocketAddr)>,
    has_warned: bool,
    /// Number of the interface.
    index: u32,
    /// Without claims: backing sockets of listeners that are gone, while connections are left on their ports.
    holders: Vec<(SocketAddr, crate::programs::users::ProgramFd)>,
}

impl Shared {
    /// Begins to follow interface number `index`.
    ///
    /// # Errors
    /// No netlink sockets.
    pub fn begin(sharing: &Sharing, index: u32) -> std::io::Result<Self> {
        Ok(Self {
            claims: sharing.claims.clone(),
            kernel: Monitor::follow(index, hostif::host_hooks::relocate_fd)?,
            connections: Connections::open(index, hostif::host_hooks::relocate_fd)?,
            last: Snapshot::default(),
            is_stale: true,
            next_read: Instant::ZERO,
            next_reminder: Instant::ZERO,
            kernels_flows: Vec::new(),
            has_warned: false,
            index,
            holders: Vec::new(),
        })
    }

    /// Becomes readable when the kernel has news.
    pub fn news_fd(&self) -> BorrowedFd<'_> {
        self.kernel.changes_fd()
    }

    /// Whether the kernel does not get what is claimed.
    pub fn is_steered(&self) -> bool {
        self.claims.is_some()
    }

    /// The interface was made anew and has this number.
    pub fn move_to(&mut self, index: u32) {
        self.index = index;
        self.kernel.move_to(index);
        self.connections.move_to(index);
        self.is_stale = true;
    }

    /// Whether the kernel has a connection with these ends. One that it does not speak of counts as there: who is
    /// refused can try again, who loses a connection cannot.
    pub fn kernel_has(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.connections.has(local, remote).unwrap_or(true)
    }

    fn warn(&mut self, what: &str, error: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!("{what}: {error}");
        }
    }

    fn take(&self, claim: Claim) -> Result<(), Errno> {
        let Some(claims) = &self.claims else {
            return Ok(());
        };
        claims.take(claim).map_err(|error| {
            tracing::warn!("no room to claim {claim:?} from the kernel: {error}");
            Errno::NOBUFS
        })
    }

    fn leave(&self, claim: Claim) {
        if let Some(claims) = &self.claims {
            claims.leave(claim);
        }
    }

    /// Brings the stack up to what the kernel has now.
    fn read(&mut self, now: Instant, stack: &mut Stack<'_>, interface: InterfaceId) {
        self.is_stale = false;
        self.next_read = now + READ_INTERVAL;
        let found = match self.kernel.read() {
            Ok(found) => found,
            Err(error) => {
                self.is_stale = true;
                return self.warn(
                    "the kernel does not say what addresses and routes it has",
                    &error,
                );
            }
        };
        if found == self.last {
            return;
        }
        if found.routes.len() == netlink::ROUTES_MAX {
            self.warn("more routes than are followed", &netlink::ROUTES_MAX);
        }
        if let Ok(mtu) = u16::try_from(found.mtu.min(u32::from(u16::MAX))) {
            // Too small a link for IP: as it was.
            let _ = stack.set_mtu(interface, mtu);
        }
        for route in &self.last.routes {
            // It may have gone with its address.
            let _ = stack.remove_route(&of_stack(route, interface));
        }
        for (address, _) in difference(&self.last.addresses, &found.addresses) {
            let _ = stack.remove_address(interface, address);
            self.leave(Claim::Address(address));
        }
        for (address, prefix_len) in difference(&found.addresses, &self.last.addresses) {
            let own = InterfaceAddress {
                address,
                prefix_len,
            };
            let added = stack.add_address(now, interface, own);
            if let Err(error) = added {
                self.warn("an address of the kernel cannot be served", &error);
                continue;
            }
            let _ = self.take(Claim::Address(address));
            // The kernel says which networks are on the link, and may have none for this address.
            let of_address = Route {
                destination: address,
                prefix_len,
                gateway: None,
                interface,
                metric: 0,
                source: None,
            };
            let _ = stack.remove_route(&of_address);
        }
        for route in &found.routes {
            let added = stack.add_route(of_stack(route, interface));
            if let Err(error) = added {
                self.warn("a route of the kernel cannot be followed", &error);
            }
        }
        self.last = found;
    }

    /// Asks the kernel for a neighbour, and has it ask the link.
    fn resolve(&mut self, stack: &mut Stack<'_>, interface: InterfaceId, address: IpAddr) {
        let known = self.kernel.neighbour(address);
        let is_fresh = match known {
            Ok(Neighbour::At { hardware, is_fresh }) => {
                stack.hear_of_neighbour(interface, address, ExternalNeighbour::At(hardware));
                is_fresh
            }
            _ => false,
        };
        if !is_fresh && let Err(error) = self.kernel.use_neighbour(address) {
            self.warn("the kernel does not look for neighbours for us", &error);
        }
    }

    /// The kernel asks who has been silent for long only if it has something to send to them: to it the
    /// engine's neighbours look idle.
    fn remind(&mut self, now: Instant, stack: &Stack<'_>, interface: InterfaceId) {
        let used = |neighbour: &stack::Neighbour| {
            neighbour.interface == interface
                && neighbour.hardware.is_some()
                && now.since(neighbour.used_at) < REMINDER_INTERVAL
        };
        for neighbour in stack.neighbours(now).filter(used) {
            let _ = self.kernel.use_neighbour(neighbour.address);
        }
    }
}

fn of_stack(route: &netlink::Route, interface: InterfaceId) -> Route {
    Route {
        destination: route.destination,
        prefix_len: route.prefix_len,
        gateway: route.gateway,
        interface,
        metric: route.metric,
        source: route.source,
    }
}

/// What is in `of` and not in `without`.
fn difference(of: &[(IpAddr, u8)], without: &[(IpAddr, u8)]) -> Vec<(IpAddr, u8)> {
    let only = of.iter().filter(|one| !without.contains(one));
    only.copied().collect()
}

impl EngineCore {
    /// Acts on what the kernel has told.
    pub(crate) fn follow_kernel(&mut self, now: Instant) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let (stack, interface) = (&mut self.stack, self.interface);
        let mut is_stale = false;
        let polled = shared.kernel.poll(&mut |news| match news {
            Change::Interface => is_stale = true,
            Change::Neighbour(address, state) => {
                let heard = match state {
                    Neighbour::At { hardware, .. } => ExternalNeighbour::At(hardware),
                    Neighbour::Silent => ExternalNeighbour::Silent,
                    Neighbour::Unknown => ExternalNeighbour::Forgotten,
                    Neighbour::Asked => return,
                };
                stack.hear_of_neighbour(interface, address, heard);
            }
        });
        shared.is_stale |= is_stale;
        match polled {
            // An interface that is made anew has another number, and the kernel answers the peers of ours until it is found.
            Ok(has_news) => self.link.device.is_doubted |= has_news && !self.link.device.is_up(),
            Err(error) => shared.warn("the kernel's news cannot be heard", &error),
        }
        self.read_kernel(now);
    }

    /// Reads addresses and routes again if they have changed, and not too soon after the last time.
    pub(crate) fn read_kernel(&mut self, now: Instant) {
        if let Some(shared) = &mut self.shared
            && shared.is_stale
            && now >= shared.next_read
        {
            shared.read(now, &mut self.stack, self.interface);
        }
    }

    /// At the end of a turn: neighbours that are wanted, flows that are over.
    pub(crate) fn settle_with_kernel(&mut self) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        while let Some(address) = self.link.unresolved.pop() {
            shared.resolve(&mut self.stack, self.interface, address);
        }
        self.stack.take_ended_flows(&mut |local, remote| {
            shared.leave(tcp_flow(local, remote));
        });
    }

    /// Once a second.
    pub(crate) fn keep_shared(&mut self, now: Instant) {
        self.read_kernel(now);
        let Some(shared) = &mut self.shared else {
            return;
        };
        if now >= shared.next_reminder {
            shared.next_reminder = now + REMINDER_INTERVAL;
            shared.remind(now, &self.stack, self.interface);
        }
        let stack = &self.stack;
        shared
            .holders
            .retain(|(local, _)| stack.holds_port(local.port()));
        if shared.kernels_flows.is_empty() {
            return;
        }
        let mut ports: Vec<u16> = shared
            .kernels_flows
            .iter()
            .map(|(local, _)| local.port())
            .collect();
        ports.dedup();
        for port in ports {
            let Ok(alive) = netlink::connections_on(port) else {
                continue;
            };
            let is_over = |&mut (local, remote): &mut (SocketAddr, SocketAddr)| {
                local.port() == port && !alive.contains(&(local, remote))
            };
            let over: Vec<_> = shared.kernels_flows.extract_if(.., is_over).collect();
            for (local, remote) in over {
                shared.leave(Claim::KernelsFlow { local, remote });
            }
        }
    }

    /// Before a socket begins to hear on `local`.
    pub(crate) fn claim_port(
        &mut self,
        row: u32,
        transport: Transport,
        local: SocketAddr,
        v6_only: bool,
    ) -> Result<(), Errno> {
        // Nobody speaks to an engine by `lo` itself: what passes there is the kernel's, between its own sockets.
        let is_on_lo = self.config.interface_index == LOOPBACK_INDEX;
        let Some(shared) = self.shared.as_mut().filter(|_| !is_on_lo) else {
            return Ok(());
        };
        if !shared.is_steered() {
            return match transport {
                Transport::Tcp => self.silence_listener(row, local),
                // The program's side sees to it: groups need care there.
                Transport::Udp => Ok(()),
            };
        }
        let claim = Claim::Port {
            transport,
            local: SocketAddr::new(local.ip().to_canonical(), local.port()),
            is_dual: !v6_only,
        };
        if transport == Transport::Tcp {
            let theirs = netlink::connections_on(local.port()).unwrap_or_default();
            for (local, remote) in theirs {
                if !shared.kernels_flows.contains(&(local, remote)) {
                    shared.take(Claim::KernelsFlow { local, remote })?;
                    shared.kernels_flows.push((local, remote));
                }
            }
        }
        shared.take(claim)?;
        self.sockets.companion(row).claim = Some(claim);
        Ok(())
    }

    /// Without claims: the kernel's listener says nothing to what comes by the interface. Connections that
    /// the kernel has there could not be told apart from orphans.
    fn silence_listener(&mut self, row: u32, local: SocketAddr) -> Result<(), Errno> {
        let port = local.port();
        let theirs = netlink::connections_on(port).unwrap_or_default();
        if !theirs.is_empty() {
            tracing::warn!("the kernel has connections on port {port}: it keeps the listener");
            return Err(Errno::ADDRINUSE);
        }
        self.silence_backing(row)?;
        // It holds the port from now on; beside it they would get connections of this host (`SO_REUSEPORT`).
        if let Some(shared) = &mut self.shared {
            shared.holders.retain(|(held, _)| *held != local);
        }
        Ok(())
    }

    /// Without claims: the kernel's socket of the same port hears nothing from the interface.
    fn silence_backing(&mut self, row: u32) -> Result<(), Errno> {
        let index = self.shared.as_ref().map_or(0, |shared| shared.index);
        let backing = self.sockets.companion(row).backing.as_ref();
        let silenced = nic::sharing::drop_kernel_copy(backing.ok_or(Errno::BADF)?.as_fd(), index);
        silenced.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOBUFS))
    }

    /// Without claims: a connection's backing socket listens, as only then the kernel has no RST for its peer.
    fn silence_connection(&mut self, row: u32) -> Result<(), Errno> {
        self.silence_backing(row)?;
        let companion = self.sockets.companion(row);
        rustix::net::listen(&**companion.backing.as_ref().ok_or(Errno::BADF)?, 0)?;
        companion.backing_listens = true;
        Ok(())
    }

    /// Without claims: keeps the backing socket of a listener that ends while connections are left; not beside another
    /// that listens there (`SO_REUSEPORT`), as the kernel would go on to give it connections of this host.
    fn hold_port(&mut self, row: u32) {
        let (local, own) = (self.sockets.row(row).local(), self.sockets.id(row));
        let is_other = |owner| own.is_none_or(|id| id.to_bits() != owner);
        let listens = |one: stack::ListenerRow| one.local == local && is_other(one.owner);
        if self.stack.listeners().any(listens) {
            return;
        }
        let Some(shared) = self.shared.as_mut().filter(|shared| !shared.is_steered()) else {
            return;
        };
        let backing = self.sockets.companion(row).backing.as_ref();
        let copy = backing.and_then(|fd| {
            let copy = rustix::io::fcntl_dupfd_cloexec(&**fd, 0).ok()?;
            Some(fd.user().keep(hostif::host_hooks::relocate_fd(copy)))
        });
        shared.holders.extend(copy.map(|fd| (local, fd)));
    }

    /// The socket hears no more; its connections go on.
    pub(crate) fn leave_port(&mut self, row: u32) {
        self.hold_port(row);
        let Some(claim) = self.sockets.companion(row).claim.take() else {
            return;
        };
        let Some(shared) = &self.shared else {
            return;
        };
        if let Claim::Port {
            transport: Transport::Tcp,
            local,
            ..
        } = claim
        {
            let connections = self.stack.connections();
            let connections = connections.map(|row| (row.local, row.remote));
            let time_waits = self.stack.time_waits().map(|row| (row.local, row.remote));
            let of_port = |(own, _): &(SocketAddr, SocketAddr)| own.port() == local.port();
            let leaves = |(_, remote): &(SocketAddr, SocketAddr)| !remote.ip().is_loopback();
            let theirs = connections.chain(time_waits).filter(of_port);
            for (local, remote) in theirs.filter(leaves) {
                // Where there is no room the kernel will reset it, which was said.
                let _ = shared.take(tcp_flow(local, remote));
            }
        }
        shared.leave(claim);
    }

    /// Before the SYN of a new connection leaves.
    pub(crate) fn claim_flow(
        &mut self,
        row: u32,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Errno> {
        self.must_be_free(row, local, remote)?;
        match &self.shared {
            // The kernel never sees it.
            _ if self.stack.owns_address(remote.ip()) => Ok(()),
            Some(shared) if shared.is_steered() => shared.take(tcp_flow(local, remote)),
            Some(_) => self.silence_connection(row),
            None => Ok(()),
        }
    }

    /// How the addresses are shared, for programs.
    pub(crate) fn sharing(&self) -> hostif::control::Sharing {
        match &self.shared {
            None => hostif::control::Sharing::Owned,
            Some(shared) if shared.is_steered() => hostif::control::Sharing::Steered,
            Some(_) => hostif::control::Sharing::Doubled,
        }
    }
}

fn tcp_flow(local: SocketAddr, remote: SocketAddr) -> Claim {
    // A link-local address's scope is no part of a packet.
    let plain = |end: SocketAddr| SocketAddr::new(end.ip(), end.port());
    Claim::Flow {
        transport: Transport::Tcp,
        local: plain(local),
        remote: plain(remote),
    }
}
