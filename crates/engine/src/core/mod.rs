//! An engine core: one driver queue, the stack above it, the sessions below it. `poll(now)` moves
//! everything forward once and never waits; nothing here knows which thread calls it.

pub mod control;
pub mod housekeeping;
pub mod report;

use crate::byte_channels::ByteChannels;
use crate::calls::senders::Senders;
use crate::config::Config;
use crate::device::link::{IsMapped, LOOPBACK_ADDRESSES, Link, Loopback, Replies};
use crate::kernel::sharing::Shared;
use crate::process::run::StartError;
use crate::programs::Programs;
use crate::programs::users::{Desk, Users};
use crate::shards::{Message, Packet, Shard};
use crate::sockets::copies::Copies;
use crate::sockets::user_buffer::{UserBuffer, WithUserBuffer};
use crate::sockets::{Sockets, hears_acks};
use crate::stamps::Stamps;
use crate::state::{State, StateSizes};
use crate::sysctl::Sysctls;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use hostif::SocketId;
use nic::{Driver, LocalPeerChange, RxChecksum};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use stack::{GroupChange, InterfaceConfig, InterfaceId, Resolution, Route, RxMeta, Stack};
use std::sync::Arc;
use tcp::Instant;

/// Frames taken from the driver in one turn.
pub(crate) const RX_BUDGET: usize = 64;
/// Segments sent in one turn.
const TX_BUDGET: usize = 64;

/// One engine core.
pub struct EngineCore {
    pub(crate) config: Config,
    pub(crate) shard: Shard,
    pub(crate) stack: Stack<'static>,
    pub(crate) sockets: Sockets,
    /// Datagram sockets with something to send.
    pub(crate) senders: Senders,
    /// Times of sending that programs wait for.
    pub(crate) stamps: Stamps,
    pub(crate) link: Link,
    /// Slots of connections to neighbours.
    pub(crate) byte_channels: ByteChannels,
    replies: Replies,
    pub(crate) interface: InterfaceId,
    /// Present where the addresses are the kernel's too.
    pub(crate) shared: Option<Shared>,
    pub(crate) programs: Programs,
    /// The name of a backing socket, while the command that waited for it is carried out.
    pub(crate) named: Option<(SocketId, Result<SocketAddr, Errno>)>,
    pub(crate) housekeeping: crate::core::housekeeping::Housekeeping,
    pub(crate) sysctls: Sysctls,
    pub(crate) holders: crate::kernel::holders::Named,
    /// Sockets that no session holds, whose descriptors are open somewhere.
    pub(crate) orphans: crate::orphans::Orphans,
    has_served: bool,
    /// For whoever takes over.
    _state_file: OwnedFd,
}

impl EngineCore {
    /// The only core of an engine, over `driver`; `secret` is random (RFC 6528 §3, RFC 6056 §3.3).
    ///
    /// # Errors
    /// [`StartError`]: the limits or addresses cannot be.
    pub fn new(
        config: Config,
        driver: Box<dyn Driver>,
        secret: [u8; 16],
        now: Instant,
    ) -> Result<Self, StartError> {
        Self::seated(
            config,
            Shard::single(),
            Users::direct(),
            driver,
            secret,
            now,
        )
    }

    /// As [`EngineCore::new`], in its place among several cores.
    pub(crate) fn seated(
        mut config: Config,
        mut shard: Shard,
        users: Arc<Users>,
        driver: Box<dyn Driver>,
        secret: [u8; 16],
        now: Instant,
    ) -> Result<Self, StartError> {
        let sysctls = Sysctls::begin(shard.core, &mut config);
        let limits = &config.limits;
        let rows = limits.connections + limits.listeners + limits.datagrams + limits.sessions;
        let sizes = StateSizes {
            connections: limits.connections,
            listeners: limits.listeners,
            time_waits: limits.time_waits,
            sockets: rows,
            datagrams: limits.datagrams,
        };
        let state = State::create(&sizes)?;
        let desk = Desk::new().map_err(|errno| StartError::System("make an eventfd", errno))?;
        let stack_config = config.of_stack(shard.core, secret);
        let mut stack = Stack::new(state.tables, stack_config)?;
        let interface = stack.add_interface(interface_of(&config, &*driver))?;
        let loopback = add_loopback(&mut stack, now, config.protocols)?;
        for own in &config.addresses {
            stack.add_address(now, interface, own.interface_address())?;
        }
        add_gateways(&mut stack, &config.gateways, interface)?;
        let begin = |sharing| Shared::begin(sharing, config.interface_index);
        let shared = config.sharing.as_ref().map(begin).transpose();
        let shared = shared.map_err(StartError::Kernel)?;
        let mut core = Self {
            stack,
            sockets: Sockets::new(
                shard.take_owner(),
                desk.answers(),
                config.socket_options,
                stack_config.receive_offer,
                state.sockets,
                state.datagrams,
            ),
            shard,
            senders: Senders::new(rows),
            stamps: Stamps::default(),
            replies: Replies::new(&*driver),
            link: Link::new(driver, rows, loopback),
            byte_channels: ByteChannels::default(),
            interface,
            shared,
            programs: Programs::new(users, desk, config.limits.sessions),
            named: None,
            housekeeping: crate::core::housekeeping::Housekeeping::default(),
            sysctls,
            holders: crate::kernel::holders::Named::default(),
            orphans: crate::orphans::Orphans::default(),
            has_served: false,
            _state_file: state.file,
            config,
        };
        core.read_kernel(now);
        Ok(core)
    }

    /// Moves everything forward once. Returns how much there was to do; 0: nothing.
    pub fn poll(&mut self, now: Instant) -> usize {
        self.poll_into(now, None)
    }

    /// As `poll`, for a thread that lends its buffer to what arrives on one socket.
    pub(crate) fn poll_into(
        &mut self,
        now: Instant,
        user_buffer: Option<&mut UserBuffer<'_, '_>>,
    ) -> usize {
        self.sockets.set_now(now);
        self.link.queues.set_now(now);
        let received = match user_buffer {
            Some(user_buffer) => self.receive_into(now, user_buffer),
            None => self.receive(now, RX_BUDGET, None),
        };
        let mut work = received + self.follow_neighbours(now) + self.receive_own(now);
        work += self.take_finished(now);
        let mut served = self.drain_awake(now);
        served += self.send_datagrams(now);
        for change in self.stack.take_group_changes() {
            let GroupChange {
                interface,
                hardware,
                listen,
            } = change;
            if interface == self.interface {
                // A device that does not take more groups gets none of those frames; the program's call
                // is over. On veth, TAP and bridges they arrive all the same.
                let _ = self.link.driver.listen_to(hardware.0, listen);
            }
        }
        work += self.follow_byte_channels(now);
        if self
            .stack
            .next_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.stack.handle_timeouts(now, &mut self.sockets);
            work += 1;
        }
        if self.orphans.next_look().is_some_and(|look| look <= now) {
            self.look_for_orphans(now);
            work += 1;
        }
        for (row, window) in self.sockets.new_windows.drain(..) {
            self.link.set_window(row, window);
        }
        self.release_files();
        served += self.transmit(now, TX_BUDGET);
        self.link.flush();
        self.tell_stamps();
        self.settle_with_kernel();
        self.has_served = served > 0 || !self.sockets.dirty.is_empty();
        self.flush(now);
        work + served
    }

    /// Whether the last `poll` did anything for a program or a connection: what the stack answers by itself, and
    /// frames that are nobody's, lead to nothing more.
    pub(crate) fn has_served(&self) -> bool {
        self.has_served
    }

    /// Takes so many frames, of which those of one socket's may go to a buffer that its thread has lent.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        budget: usize,
        mut user_buffer: Option<&mut UserBuffer<'_, '_>>,
    ) -> usize {
        let Self {
            link,
            stack,
            sockets,
            replies,
            interface,
            shard,
            config,
            ..
        } = self;
        let received = link.driver.rx_burst(budget, &mut |frame| {
            shard.pass_frame(frame.bytes, &config.addresses);
            let checksum = match frame.checksum {
                RxChecksum::Unknown => stack::RxChecksum::Unknown,
                RxChecksum::Verified => stack::RxChecksum::Verified,
                RxChecksum::Partial => stack::RxChecksum::Partial,
            };
            let meta = RxMeta {
                checksum,
                segment_bytes: frame.segment_size,
            };
            match user_buffer.as_deref_mut() {
                None => {
                    stack.handle_frame(now, *interface, frame.bytes, meta, sockets, replies);
                }
                Some(user_buffer) => {
                    let mut host = WithUserBuffer {
                        sockets,
                        user_buffer,
                    };
                    stack.handle_frame(now, *interface, frame.bytes, meta, &mut host, replies);
                }
            }
        });
        let frames = received.unwrap_or_else(|error| {
            link.device.on_failure(error);
            0
        });
        link.send_replies(replies);
        frames
    }

    /// Hears of stations that the driver reaches by itself.
    fn follow_neighbours(&mut self, now: Instant) -> usize {
        let mut changes = 0;
        while let Some(change) = self.link.driver.poll_local_peer() {
            changes += 1;
            match change {
                LocalPeerChange::Here(address) => {
                    let hardware = self.link.driver.caps().hardware_address;
                    // Where there is no room for it, it is asked for again.
                    let _ = self
                        .stack
                        .set_neighbour(now, self.interface, address, Some(hardware));
                }
                LocalPeerChange::Gone(address) => {
                    self.stack
                        .lose_station(now, self.interface, address, &mut self.sockets);
                    self.forget_channel_regions();
                }
            }
        }
        changes
    }

    /// Takes what this engine has sent to its own addresses.
    fn receive_own(&mut self, now: Instant) -> usize {
        let mut frames = 0;
        while frames < RX_BUDGET
            && let Some(bytes) = self.link.loopback.pop()
        {
            let interface = self.link.loopback.interface();
            let meta = RxMeta {
                checksum: stack::RxChecksum::Partial,
                ..RxMeta::default()
            };
            let Self {
                stack,
                sockets,
                replies,
                ..
            } = self;
            stack.handle_frame(now, interface, &bytes, meta, sockets, replies);
            self.link.loopback.give_back(bytes);
            frames += 1;
        }
        self.link.send_replies(&mut self.replies);
        frames
    }

    /// Acts on what another core has left for this one.
    pub(crate) fn take_messages(&mut self, now: Instant) {
        while let Some(message) = self.shard.take() {
            match message {
                Message::Session { control, pid, uid } => {
                    self.programs.add(control, pid, uid);
                }
                Message::Frame { bytes, len } => {
                    let meta = RxMeta {
                        checksum: stack::RxChecksum::Unknown,
                        ..RxMeta::default()
                    };
                    let (interface, frame) = (self.interface, &bytes[..len]);
                    let Self {
                        stack,
                        sockets,
                        replies,
                        ..
                    } = self;
                    stack.handle_frame(now, interface, frame, meta, sockets, replies);
                }
                Message::Packet(packet) => {
                    self.take_packet(now, &packet);
                    self.shard.give_back(packet);
                }
            }
        }
        self.link.send_replies(&mut self.replies);
    }

    /// Takes in a packet that another core has found to be this one's.
    fn take_packet(&mut self, now: Instant, packet: &Packet) {
        let meta = RxMeta {
            checksum: packet.checksum,
            ..RxMeta::default()
        };
        let Self {
            stack,
            sockets,
            replies,
            interface,
            ..
        } = self;
        stack.handle_frame(now, *interface, packet.frame(), meta, sockets, replies);
    }

    /// Lets go of the mapped files that peers have acknowledged, and stamps those bytes that are waited for.
    fn release_files(&mut self) {
        for at in 0..self.sockets.acknowledged.len() {
            let (row, acknowledged) = self.sockets.acknowledged[at];
            let hears = self.sockets.companion(row).hears_acks;
            if hears & hears_acks::FILES != 0
                && self.link.release_files(row, acknowledged) == IsMapped(false)
            {
                self.sockets.companion(row).hears_acks &= !hears_acks::FILES;
            }
            if hears & hears_acks::STAMPS != 0 {
                self.stamp_acknowledged(row, acknowledged);
            }
        }
        self.sockets.acknowledged.clear();
    }

    /// Takes what awake programs have left. Returns how much that was.
    fn drain_awake(&mut self, now: Instant) -> usize {
        let (mut work, mut at) = (0, 0);
        while let Some(slot) = self.programs.awake_slot(at) {
            let done = self.drain_rings(now, slot);
            if done > 0 {
                self.programs.on_worked(now, slot);
            }
            work += done;
            at += 1;
        }
        work
    }

    /// Tells the holders of every socket that has changed.
    fn flush(&mut self, now: Instant) {
        while let Some(row) = self.sockets.dirty.pop() {
            let Some(id) = self.sockets.id(row) else {
                continue;
            };
            for at in 0..self.sockets.holders(row).len() {
                let slot = self.sockets.holders(row)[at];
                self.programs.tell(slot, |session| session.notify(id));
            }
            if self.sockets.companion(row).signals.is_some() {
                self.sockets.signalled.push(row);
            }
        }
        self.programs.flush(now);
        // A handler finds everything in its place.
        for at in 0..self.sockets.signalled.len() {
            let row = self.sockets.signalled[at];
            self.sockets.signal(row);
        }
        self.sockets.signalled.clear();
    }

    /// The session broke the protocol. Returns `work`.
    pub(crate) fn fault(&mut self, slot: usize, work: usize, what: &str) -> usize {
        self.programs.fault(slot, what);
        work
    }

    /// How often bytes were copied.
    pub(crate) fn copies(&self) -> Copies {
        let mut copies = self.sockets.copies;
        copies.on_copied_out(self.link.copied_bytes());
        copies
    }

    /// Why the driver can serve no longer.
    pub fn failure(&mut self) -> Option<std::io::Error> {
        self.link.device.failure.take()
    }

    /// When `poll` has something to do by the clock.
    pub fn next_deadline(&self) -> Option<Instant> {
        let rings = self.programs.next_deadline().into_iter();
        rings
            .chain(self.stack.next_deadline())
            .chain(self.orphans.next_look())
            .min()
    }

    /// Whether segments wait for a busy device, or frames for this engine itself.
    pub fn has_backlog(&self) -> bool {
        self.stack.wants_transmit()
            || !self.senders.is_empty()
            || !self.link.loopback.is_empty()
            || self.byte_channels.has_backlog()
    }
}

/// The interface that leads back, with its addresses.
fn add_loopback(
    stack: &mut Stack<'_>,
    now: Instant,
    protocols: stack::Protocols,
) -> Result<InterfaceId, stack::Error> {
    let interface = stack.add_interface(Loopback::CONFIG)?;
    for own in LOOPBACK_ADDRESSES {
        if own.address.is_ipv4() || protocols.contains(stack::Protocols::IPV6) {
            stack.add_address(now, interface, own)?;
        }
    }
    Ok(interface)
}

/// Where packets for other networks go.
fn add_gateways(
    stack: &mut Stack<'_>,
    gateways: &[IpAddr],
    interface: InterfaceId,
) -> Result<(), stack::Error> {
    for &gateway in gateways {
        let any: IpAddr = match gateway {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        stack.add_route(Route {
            destination: any,
            prefix_len: 0,
            gateway: Some(gateway),
            interface,
            metric: 0,
            source: None,
        })?;
    }
    Ok(())
}

fn interface_of(config: &Config, driver: &dyn Driver) -> InterfaceConfig {
    let caps = driver.caps();
    InterfaceConfig {
        hardware: caps.hardware_address,
        mtu: u16::try_from(caps.mtu).unwrap_or(u16::MAX),
        resolution: if config.sharing.is_some() {
            Resolution::External
        } else {
            Resolution::Arp
        },
        scope_id: config.interface_index,
        router_discovery: config.router_discovery,
    }
}
