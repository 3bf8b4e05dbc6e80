//! Sharing the interface's addresses with the kernel (DESIGN §5): addresses, routes and neighbours are the
//! kernel's and followed, what is the engine's is claimed before the first packet of it can come, and let go
//! of after the last, TIME-WAIT included.
//!
//! A listener claims its port, a connection that was opened here its flow. Connections that a listener
//! accepted come by its port, until it closes: then they claim their flows. Connections that the kernel has
//! on a port when a listener starts (of a server that ran without Shunt, or in TIME-WAIT) stay the kernel's.
//! Each core follows for itself; claims are common to all.

use crate::device::Device;
use crate::device::link::LOOPBACK_INDEX;
use crate::programs::users::ProgramFd;
use crate::sockets::Sockets;
use crate::sockets::rows::Marks;
use core::net::{IpAddr, SocketAddr};
use engine_config::Sharing;
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

/// What one core follows of the kernel, and has claimed.
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
    /// What the stack calls it.
    interface: InterfaceId,
    /// Without claims: backing sockets of listeners that are gone, while connections are left on their ports.
    holders: Vec<(SocketAddr, ProgramFd)>,
}

impl Shared {
    /// Begins to follow interface number `index`.
    ///
    /// # Errors
    /// No netlink sockets.
    pub fn begin(sharing: &Sharing, index: u32, interface: InterfaceId) -> std::io::Result<Self> {
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
            interface,
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
    fn read(&mut self, now: Instant, stack: &mut Stack<'_>) {
        let interface = self.interface;
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
    fn resolve(&mut self, stack: &mut Stack<'_>, address: IpAddr) {
        let known = self.kernel.neighbour(address);
        let is_fresh = match known {
            Ok(Neighbour::At { hardware, is_fresh }) => {
                stack.hear_of_neighbour(self.interface, address, ExternalNeighbour::At(hardware));
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
    fn remind(&mut self, now: Instant, stack: &Stack<'_>) {
        let used = |neighbour: &stack::Neighbour| {
            neighbour.interface == self.interface
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

impl Shared {
    /// Acts on what the kernel has told.
    pub fn follow_kernel(&mut self, now: Instant, stack: &mut Stack<'_>, device: &mut Device) {
        let interface = self.interface;
        let mut is_stale = false;
        let polled = self.kernel.poll(&mut |news| match news {
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
        self.is_stale |= is_stale;
        match polled {
            // An interface that is made anew has another number, and the kernel answers the peers of ours until it is found.
            Ok(has_news) => device.is_doubted |= has_news && !device.is_up(),
            Err(error) => self.warn("the kernel's news cannot be heard", &error),
        }
        self.read_if_stale(now, stack);
    }

    /// Reads addresses and routes again if they have changed, and not too soon after the last time.
    pub fn read_if_stale(&mut self, now: Instant, stack: &mut Stack<'_>) {
        if self.is_stale && now >= self.next_read {
            self.read(now, stack);
        }
    }

    /// At the end of a poll: neighbours that are wanted, flows that are over.
    pub fn finish_poll(&mut self, stack: &mut Stack<'_>, unresolved: &mut Vec<IpAddr>) {
        while let Some(address) = unresolved.pop() {
            self.resolve(stack, address);
        }
        stack.take_ended_flows(&mut |local, remote| {
            self.leave(tcp_flow(local, remote));
        });
    }

    /// Once a second.
    pub fn keep(&mut self, now: Instant, stack: &mut Stack<'_>) {
        self.read_if_stale(now, stack);
        if now >= self.next_reminder {
            self.next_reminder = now + REMINDER_INTERVAL;
            self.remind(now, stack);
        }
        self.holders
            .retain(|(local, _)| stack.holds_port(local.port()));
        if self.kernels_flows.is_empty() {
            return;
        }
        let mut ports: Vec<u16> = self
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
            let over: Vec<_> = self.kernels_flows.extract_if(.., is_over).collect();
            for (local, remote) in over {
                self.leave(Claim::KernelsFlow { local, remote });
            }
        }
    }

    /// To be called before a socket begins to receive on `local`.
    pub fn claim_port(
        &mut self,
        sockets: &mut Sockets,
        row: u32,
        transport: Transport,
        local: SocketAddr,
        v6_only: bool,
    ) -> Result<(), Errno> {
        // Nobody speaks to an engine by `lo` itself: what passes there is the kernel's, between its own sockets.
        if self.index == LOOPBACK_INDEX {
            return Ok(());
        }
        if !self.is_steered() {
            return match transport {
                Transport::Tcp => self.silence_listener(sockets, row, local),
                // The program's side filters them: it knows the groups (`client/src/udp/duplicate_filter.rs`).
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
                if !self.kernels_flows.contains(&(local, remote)) {
                    self.take(Claim::KernelsFlow { local, remote })?;
                    self.kernels_flows.push((local, remote));
                }
            }
        }
        self.take(claim)?;
        sockets.companion(row).claim = Some(claim);
        Ok(())
    }

    /// Without claims: the kernel's listener says nothing to what comes by the interface. Connections that
    /// the kernel has there could not be told apart from orphans.
    fn silence_listener(
        &mut self,
        sockets: &mut Sockets,
        row: u32,
        local: SocketAddr,
    ) -> Result<(), Errno> {
        let port = local.port();
        let theirs = netlink::connections_on(port).unwrap_or_default();
        if !theirs.is_empty() {
            tracing::warn!("the kernel has connections on port {port}: it keeps the listener");
            return Err(Errno::ADDRINUSE);
        }
        self.silence_backing(sockets, row)?;
        // It holds the port from now on; beside it they would get connections of this host (`SO_REUSEPORT`).
        self.holders.retain(|(held, _)| *held != local);
        Ok(())
    }

    /// Without claims: the kernel's socket of the same port hears nothing from the interface.
    fn silence_backing(&self, sockets: &mut Sockets, row: u32) -> Result<(), Errno> {
        let backing = sockets.companion(row).backing.as_ref();
        let silenced =
            nic::sharing::drop_kernel_copy(backing.ok_or(Errno::BADF)?.as_fd(), self.index);
        silenced.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOBUFS))
    }

    /// Without claims: a connection's backing socket listens, as only then the kernel has no RST for its peer.
    fn silence_connection(&self, sockets: &mut Sockets, row: u32) -> Result<(), Errno> {
        self.silence_backing(sockets, row)?;
        let backing = sockets.companion(row).backing.as_ref();
        rustix::net::listen(&**backing.ok_or(Errno::BADF)?, 0)?;
        sockets.set_mark(row, Marks::BACKING_LISTENS, true);
        Ok(())
    }

    /// Without claims: keeps the backing socket of a listener that ends while connections are left; not beside another
    /// that listens there (`SO_REUSEPORT`), as the kernel would go on to give it connections of this host.
    fn hold_port(&mut self, stack: &Stack<'_>, sockets: &mut Sockets, row: u32) {
        let (local, own) = (sockets.row(row).local(), sockets.id(row));
        let is_other = |owner| own.is_none_or(|id| id.to_bits() != owner);
        let listens = |one: stack::ListenerRow| one.local == local && is_other(one.owner);
        if stack.listeners().any(listens) {
            return;
        }
        if self.is_steered() {
            return;
        }
        let backing = sockets.companion(row).backing.as_ref();
        let copy = backing.and_then(|fd| {
            let copy = rustix::io::fcntl_dupfd_cloexec(&**fd, 0).ok()?;
            Some(fd.user().keep(hostif::host_hooks::relocate_fd(copy)))
        });
        self.holders.extend(copy.map(|fd| (local, fd)));
    }

    /// The socket stops receiving; its connections go on.
    pub fn leave_port(&mut self, stack: &Stack<'_>, sockets: &mut Sockets, row: u32) {
        self.hold_port(stack, sockets, row);
        let Some(claim) = sockets.companion(row).claim.take() else {
            return;
        };
        if let Claim::Port {
            transport: Transport::Tcp,
            local,
            ..
        } = claim
        {
            let connections = stack.connections();
            let connections = connections.map(|row| (row.local, row.remote));
            let time_waits = stack.time_waits().map(|row| (row.local, row.remote));
            let of_port = |(own, _): &(SocketAddr, SocketAddr)| own.port() == local.port();
            let leaves = |(_, remote): &(SocketAddr, SocketAddr)| !remote.ip().is_loopback();
            let theirs = connections.chain(time_waits).filter(of_port);
            for (local, remote) in theirs.filter(leaves) {
                // Where the claims are full the kernel will reset it, which was logged.
                let _ = self.take(tcp_flow(local, remote));
            }
        }
        self.leave(claim);
    }

    /// Before the SYN of a connection leaves from an address that is shared: its local end is the backing socket's, and
    /// the kernel has no connection with these ends, whoever's. SO_REUSEADDR allows both the same port.
    pub fn must_be_free(
        &mut self,
        sockets: &mut Sockets,
        row: u32,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Errno> {
        if remote.ip().is_loopback() {
            return Ok(());
        }
        sockets.must_hold(row, local)?;
        if self.kernel_has(local, remote) {
            // connect(2): as the kernel says where both ends are in use.
            Err(Errno::ADDRNOTAVAIL)
        } else {
            Ok(())
        }
    }

    /// Before the SYN of a new connection leaves that the kernel would see.
    ///
    /// # Errors
    /// The claims are full, or the kernel's socket cannot be silenced.
    pub fn claim_flow(
        &self,
        sockets: &mut Sockets,
        row: u32,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Errno> {
        if self.is_steered() {
            self.take(tcp_flow(local, remote))
        } else {
            self.silence_connection(sockets, row)
        }
    }

    /// After a restart: the flows of connections that no listener's port stands for.
    pub fn claim_flows_again(&self, stack: &Stack<'_>) {
        let connections = stack.connections().map(|one| (one.local, one.remote));
        let time_waits = stack.time_waits().map(|one| (one.local, one.remote));
        let ports: Vec<u16> = stack.listening_ports().collect();
        let all = connections
            .chain(time_waits)
            .filter(|(local, remote)| !ports.contains(&local.port()) && !remote.ip().is_loopback());
        for (local, remote) in all.filter(|(_, remote)| !stack.owns_address(remote.ip())) {
            // Where the claims are full the kernel resets it, which is logged.
            let _ = self.take(tcp_flow(local, remote));
        }
    }

    /// How the addresses are shared, for programs.
    pub fn sharing(&self) -> hostif::control::Sharing {
        if self.is_steered() {
            hostif::control::Sharing::Steered
        } else {
            hostif::control::Sharing::Doubled
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
