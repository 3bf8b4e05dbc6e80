//! The tables, the stack with its interfaces, and the sockets over them, as an engine core starts with them.

use super::SocketLayer;
use super::bursts::Bursts;
use super::senders::Senders;
use crate::byte_channels::ByteChannels;
use crate::device::link::{LOOPBACK_ADDRESSES, Link, Loopback};
use crate::device::replies::Replies;
use crate::kernel::holders::PortHolders;
use crate::kernel::sharing::Shared;
use crate::orphans::Orphans;
use crate::programs::kept::ProgramTables;
use crate::programs::users::{FinishedSender, Users};
use crate::sockets::shares::Bounds;
use crate::sockets::{SocketTables, Sockets};
use crate::stamps::Stamps;
use crate::start_error::StartError;
use crate::state::{State, StateError, layout};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use engine_config::Config;
use nic::Driver;
use rustix::fd::OwnedFd;
use shards::owner::ShardOwner;
use shards::section::Section;
use stack::{InterfaceConfig, InterfaceId, Resolution, Route, Stack};
use std::sync::Arc;
use tcp::Instant;

impl SocketLayer {
    /// No sockets yet, or those of an engine with which this one goes on, over `driver`; `secret` is random (RFC 6528 §3, RFC 6056 §3.3).
    ///
    /// # Errors
    /// [`StartError`]: the limits or addresses cannot be.
    pub(crate) fn new(
        config: &Config,
        owner: ShardOwner,
        (users, answers): (Arc<Users>, FinishedSender),
        driver: Box<dyn Driver>,
        secret: [u8; 16],
        now: Instant,
    ) -> Result<(Self, ProgramTables), StartError> {
        let rows = config.limits.rows();
        let (state, goes_on) = open_state(config, rows, owner.section())?;
        let secret = if goes_on { state.engine.secret } else { secret };
        state.engine.secret = secret;
        let core = owner.core();
        let stack_config = config.of_stack(core, secret);
        if goes_on {
            state.undo_socket.roll_back(state.sockets);
            state.undo_datagram.roll_back(state.datagrams);
        }
        let mut stack = match &config.left {
            Some(left) => {
                let left = State::adopt(duplicate(left)?, &config.limits, rows, owner.section())?;
                Stack::rebuild(left.tables, stack_config)?.0
            }
            None if goes_on => Stack::rebuild(state.tables, stack_config)?.0,
            None => Stack::new(state.tables, stack_config)?,
        };
        let interface = stack.add_interface(interface_of(config, &*driver))?;
        let loopback = add_loopback(&mut stack, now, config.protocols)?;
        for own in &config.addresses {
            stack.add_address(now, interface, own.interface_address())?;
        }
        add_gateways(&mut stack, &config.gateways, interface)?;
        let scope_id = config.interface_index;
        let begin = |sharing| Shared::begin(sharing, scope_id, interface);
        let shared = config.sharing.as_ref().map(begin).transpose();
        let mut shared = shared.map_err(StartError::Kernel)?;
        if let Some(shared) = &mut shared {
            shared.read_if_stale(now, &mut stack);
        }
        let programs = ProgramTables {
            engine: state.engine,
            sessions: state.sessions,
            handles: state.handles,
        };
        let layer = Self {
            stack,
            interface,
            scope_id,
            sockets: Sockets::new(
                owner,
                answers.clone(),
                (config.socket_options, stack_config.receive_offer),
                Bounds::new(&users, &config.limits),
                SocketTables {
                    rows: state.sockets,
                    datagrams: state.datagrams,
                    datagram_options: state.datagram_options,
                    undo: state.undo_socket,
                    undo_datagram: state.undo_datagram,
                    regions: state.regions,
                    holds: state.holds,
                    memberships: state.memberships,
                },
            ),
            senders: Senders::new(rows, scope_id),
            stamps: Stamps::default(),
            replies: Replies::new(&*driver),
            link: Link::new(driver, rows, loopback, state.extents),
            bursts: Bursts::default(),
            byte_channels: ByteChannels::new(core, state.channels),
            shared,
            holders: PortHolders::new(answers),
            orphans: Orphans::new(users),
            state_file: state.file,
        };
        Ok((layer, programs))
    }
}

/// The state, and whether it is that of an engine with which this one goes on.
fn open_state(config: &Config, rows: usize, section: Section) -> Result<(State, bool), StartError> {
    let limits = &config.limits;
    let Some(kept) = &config.kept else {
        let mut state = State::create(limits, rows)?;
        // Nobody goes on with it.
        state.tables.undo = None;
        return Ok((state, false));
    };
    if kept.goes_on {
        let state = State::adopt(duplicate(&kept.state)?, limits, rows, section)?;
        if state.engine.layout != layout(limits, rows) {
            return Err(StateError::Foreign.into());
        }
        return Ok((state, true));
    }
    let state = State::create_in(duplicate(&kept.state)?, limits, rows, section)?;
    state.engine.layout = layout(limits, rows);
    Ok((state, false))
}

fn duplicate(file: &OwnedFd) -> Result<OwnedFd, StartError> {
    rustix::io::fcntl_dupfd_cloexec(file, 0)
        .map_err(|errno| StartError::System("duplicate a descriptor", errno))
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
