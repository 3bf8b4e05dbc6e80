//! This host's own addresses: added and removed, announced (RFC 5227), tested for duplicates and aged
//! (RFC 4862), and the identifiers that it makes up for them (RFC 7217).
//!
//! A configured IPv6 address is used at once, while the test for duplicates runs: like an IPv4 address,
//! an operator chose it, and an engine that starts for one program must not stand still for a second.
//! An address made up here is tentative until the test is over. A duplicate is not used any more.

use super::Ip;
use super::discovery::Discovery;
use super::route::Route;
use crate::address::{bits_of_family, needs_zone};
use crate::containers::timers::Timer;
use crate::error::Error;
use crate::link::interface::{
    ADDRESSES_MAX, AddressState, InterfaceAddress, InterfaceConfig, InterfaceId, Origin, Owned,
    Resolution,
};
use crate::link::questions::Question;
use crate::protocols::Protocols;
use core::net::{IpAddr, Ipv6Addr};
use tcp::{Duration, Instant};
use wire::ipv6::MINIMUM_MTU;

/// RFC 5227 §1.1, ANNOUNCE_NUM and ANNOUNCE_INTERVAL.
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
/// RFC 4862 §5.1, DupAddrDetectTransmits; RFC 4861 §10, RETRANS_TIMER.
const DUPLICATE_PROBES: u8 = 1;
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// RFC 7217 §7, IDGEN_RETRIES.
const IDENTIFIER_RETRIES: u8 = 3;

const LINK_LOCAL_PREFIX: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

impl Ip {
    /// Adds an interface; it has no address yet.
    pub(crate) fn add_interface(&mut self, config: InterfaceConfig) -> Result<InterfaceId, Error> {
        // RFC 791 §3.1.
        if config.mtu < 576 {
            return Err(Error::InvalidArgument);
        }
        self.routes.touch();
        let id = self.link.interfaces.add(config)?;
        self.discoveries
            .push(Discovery::new(config.router_discovery));
        if config.router_discovery && self.link.config.protocols.contains(Protocols::IPV6) {
            self.ensure_link_local(Instant::ZERO, id)?;
        }
        Ok(id)
    }

    /// Gives an interface an own address and a route to its prefix, and announces it (RFC 5227 §3) or
    /// looks for duplicates (RFC 4862 §5.4). With its first IPv6 address an interface gets a link-local
    /// one too (RFC 4291 §2.8).
    pub(crate) fn add_address(
        &mut self,
        now: Instant,
        id: InterfaceId,
        address: InterfaceAddress,
    ) -> Result<(), Error> {
        self.own(now, id, address, Origin::Configured)?;
        if address.address.is_ipv6() {
            self.ensure_link_local(now, id)?;
        }
        Ok(())
    }

    /// Adds an own address in place of the same one.
    pub(crate) fn own(
        &mut self,
        now: Instant,
        id: InterfaceId,
        address: InterfaceAddress,
        origin: Origin,
    ) -> Result<(), Error> {
        let interface = self.link.interfaces.find_mut(id).ok_or(Error::NotFound)?;
        let InterfaceConfig {
            mtu, resolution, ..
        } = interface.config;
        let is_v6 = address.address.is_ipv6();
        interface
            .addresses
            .retain(|owned| owned.address.address != address.address);
        if (is_v6 && !self.link.config.protocols.contains(Protocols::IPV6))
            || address.prefix_len > bits_of_family(address.address)
            || interface.addresses.len() >= ADDRESSES_MAX
            || (is_v6 && mtu < MINIMUM_MTU)
        {
            return Err(Error::InvalidArgument);
        }
        let speaks = resolution == Resolution::Arp && self.link.config.announces_addresses;
        let tested = speaks && is_v6 && origin != Origin::Configured;
        interface.addresses.push(Owned {
            address,
            origin,
            state: if tested {
                AddressState::Tentative
            } else {
                AddressState::Preferred
            },
            act_at: if speaks { now } else { Instant::NEVER },
            acts_left: if is_v6 {
                DUPLICATE_PROBES
            } else {
                ANNOUNCEMENTS
            },
            defended_at: None,
            preferred_until: Instant::NEVER,
            valid_until: Instant::NEVER,
        });
        self.schedule_interfaces();
        self.multicast
            .address_changed(&self.link, id, address.address);
        // Every link has the link-local prefix: `hop_to` goes by the interface there. A learned prefix
        // has a route of its own if its router says that it is on the link.
        if needs_zone(address.address) || matches!(origin, Origin::Autoconfigured { .. }) {
            self.routes.touch();
            return Ok(());
        }
        self.routes.add(connected_route(id, address))
    }

    /// Takes an own address away. Connections that use it stay until they fail, as in Linux.
    pub(crate) fn remove_address(&mut self, id: InterfaceId, address: IpAddr) -> Result<(), Error> {
        let interface = self.link.interfaces.find_mut(id).ok_or(Error::NotFound)?;
        let place = interface
            .addresses
            .iter()
            .position(|owned| owned.address.address == address);
        let owned = interface.addresses.remove(place.ok_or(Error::NotFound)?);
        self.routes.touch();
        self.multicast.address_changed(&self.link, id, address);
        // The host may have removed the route itself.
        let _ = self.routes.remove(&connected_route(id, owned.address));
        Ok(())
    }

    /// RFC 4291 §2.8: an interface that speaks IPv6 has a link-local address.
    pub(crate) fn ensure_link_local(&mut self, now: Instant, id: InterfaceId) -> Result<(), Error> {
        let interface = self.link.interfaces.find(id).ok_or(Error::NotFound)?;
        let has_one = interface
            .addresses
            .iter()
            .any(|owned| needs_zone(owned.address.address));
        if has_one || interface.config.resolution != Resolution::Arp {
            return Ok(());
        }
        self.make_address(now, id, LINK_LOCAL_PREFIX, 0)
    }

    /// Makes up an address in the /64 `prefix`; `tried`: how many before it were duplicates.
    pub(crate) fn make_address(
        &mut self,
        now: Instant,
        id: InterfaceId,
        prefix: Ipv6Addr,
        tried: u8,
    ) -> Result<(), Error> {
        let bits = prefix.to_bits() & !u128::from(u64::MAX);
        let identifier = self.identifier(id, prefix, tried);
        let address = InterfaceAddress {
            address: Ipv6Addr::from_bits(bits | u128::from(identifier)).into(),
            prefix_len: 64,
        };
        self.own(now, id, address, Origin::Autoconfigured { tried })
    }

    /// An interface identifier that stays the same for a prefix and says nothing about the hardware
    /// (RFC 7217 §5, with the stack's secret as key).
    fn identifier(&self, id: InterfaceId, prefix: Ipv6Addr, tried: u8) -> u64 {
        let hardware = self.link.hardware_of(id).0;
        let mut input = [0; 16];
        input[..8].copy_from_slice(&prefix.octets()[..8]);
        input[8..14].copy_from_slice(&hardware);
        input[14] = tried;
        (0_u8..)
            .map(|round| {
                input[15] = round;
                self.identifier_hasher.hash(&input)
            })
            .find(|identifier| !is_reserved(*identifier))
            .unwrap_or(1)
    }

    /// Sets the timer for what is due next on any interface.
    pub(crate) fn schedule_interfaces(&mut self) {
        let own = self.link.interfaces.iter();
        let own = own.map(|(_, interface)| interface.next_event());
        let first = own
            .chain(self.discoveries.iter().map(Discovery::next_event))
            .min();
        let first = first.and_then(Instant::if_set);
        self.link.timers.set(Timer::Interfaces, first);
    }

    /// Does what is due on the interfaces.
    pub(crate) fn handle_interface_timer(&mut self, now: Instant) {
        for id in self.link.interfaces.ids() {
            self.solicit_routers(now, id);
            self.forget_expired(now, id);
            let mut place = 0;
            while let Some(question) = self.next_act(now, id, &mut place) {
                self.link.question(question);
            }
        }
        self.schedule_interfaces();
    }

    /// Goes on through the addresses of an interface from `place`: the next thing to say.
    fn next_act(&mut self, now: Instant, id: InterfaceId, place: &mut usize) -> Option<Question> {
        let interface = self.link.interfaces.find_mut(id)?;
        while let Some(owned) = interface.addresses.get_mut(*place) {
            if owned.valid_until <= now {
                // RFC 4862 §5.5.4.
                let gone = interface.addresses.remove(*place).address.address;
                self.routes.touch();
                self.multicast.address_changed(&self.link, id, gone);
                return self.next_act(now, id, place);
            }
            *place += 1;
            if owned.preferred_until <= now && owned.state == AddressState::Preferred {
                owned.state = AddressState::Deprecated;
                owned.preferred_until = Instant::NEVER;
            }
            if owned.act_at > now {
                continue;
            }
            let address = owned.address.address;
            let Some(left) = owned.acts_left.checked_sub(1) else {
                // Nobody has answered the last probe (RFC 4862 §5.4).
                owned.act_at = Instant::NEVER;
                if owned.state == AddressState::Tentative {
                    owned.state = AddressState::Preferred;
                    let is_link_local = needs_zone(owned.address.address);
                    self.routes.touch();
                    if is_link_local {
                        self.multicast.repeat_reports(id);
                        return self.next_act(now, id, place);
                    }
                }
                continue;
            };
            owned.acts_left = left;
            return Some(match address {
                IpAddr::V4(_) => {
                    owned.act_at = if left > 0 {
                        now + ANNOUNCE_INTERVAL
                    } else {
                        Instant::NEVER
                    };
                    Question::Announce(id, address)
                }
                IpAddr::V6(v6) => {
                    owned.act_at = now + PROBE_INTERVAL;
                    Question::Duplicate(id, v6)
                }
            });
        }
        None
    }

    /// Somebody else has an own address too (RFC 4862 §5.4.5): it is not used any more.
    pub(crate) fn handle_duplicate(&mut self, now: Instant, id: InterfaceId, address: Ipv6Addr) {
        self.link.counters.duplicate_addresses += 1;
        let Some(interface) = self.link.interfaces.find_mut(id) else {
            return;
        };
        let Some(owned) = interface.owned_mut(address.into()) else {
            return;
        };
        owned.state = AddressState::Duplicate;
        owned.act_at = Instant::NEVER;
        let origin = owned.origin;
        self.routes.touch();
        if let Origin::Autoconfigured { tried } = origin
            && tried < IDENTIFIER_RETRIES
        {
            let _ = self.remove_address(id, address.into());
            let _ = self.make_address(now, id, address, tried + 1);
        }
        self.schedule_interfaces();
    }
}

/// RFC 5453: identifiers that mean something else.
const fn is_reserved(identifier: u64) -> bool {
    identifier == 0
        || matches!(identifier, 0x0200_5eff_fe00_0000..=0x0200_5eff_feff_ffff)
        || matches!(identifier, 0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff)
}

fn connected_route(interface: InterfaceId, address: InterfaceAddress) -> Route {
    let InterfaceAddress {
        address,
        prefix_len,
    } = address;
    Route {
        destination: address,
        prefix_len,
        gateway: None,
        interface,
        metric: 0,
        // IPv6 chooses among all addresses of the interface (RFC 6724).
        source: Some(address).filter(IpAddr::is_ipv4),
    }
}
