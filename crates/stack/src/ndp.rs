//! Neighbour discovery on the link: answering, asking, finding duplicates (RFC 4861, RFC 4862 §5.4).
//!
//! The cache is `neighbour.rs`, the same as for ARP; routers and prefixes are `autoconf.rs`, redirects
//! `redirect.rs`. Proxies are not done. What did not come from the link itself (hop limit 255) is not believed.

use crate::address::{group_hardware, needs_zone, solicited_node};
use crate::egress::{Busy, Egress};
use crate::input::Arrival;
use crate::interface::{AddressState, InterfaceId, Resolution};
use crate::output::Envelope;
use crate::stack::Stack;
use core::net::{IpAddr, Ipv6Addr};
use tcp::Instant;
use wire::ethernet::Address;
use wire::icmpv6::Message as Icmpv6;
use wire::icmpv6::ndp::{self, Message, Options};

/// RFC 4861 §3.1: no router has forwarded the packet.
pub(crate) const HOP_LIMIT: u8 = 255;
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// A neighbour advertisement as received.
struct Advertisement {
    target: Ipv6Addr,
    router: bool,
    solicited: bool,
    overrides: bool,
    hardware: Option<Address>,
}

impl Stack<'_> {
    /// Takes in a message of neighbour discovery whose checksum and options are good.
    pub(crate) fn handle_ndp(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        message: &Message<'_>,
        egress: &mut dyn Egress,
    ) {
        if arrival.resolution != Resolution::Arp {
            return; // The kernel's business, or nobody's.
        }
        // RFC 4861 §6.1, §7.1; RFC 6980 §5.
        if arrival.hop_limit != HOP_LIMIT || arrival.is_marked_fragment {
            self.counters.ndp_in_errors += 1;
            return;
        }
        let is_well = match *message {
            Message::NeighbourSolicitation { target, options } => {
                self.counters.icmp6_in_neighbor_solicits += 1;
                self.handle_solicitation(now, arrival, target, options, egress)
            }
            Message::NeighbourAdvertisement {
                target,
                router,
                solicited,
                overrides,
                options,
            } => {
                self.counters.icmp6_in_neighbor_advertisements += 1;
                let advertisement = Advertisement {
                    target,
                    router,
                    solicited,
                    overrides,
                    hardware: options.target_link_layer(),
                };
                self.handle_advertisement(now, arrival, &advertisement)
            }
            Message::RouterAdvertisement(advertisement) => {
                self.counters.icmp6_in_router_advertisements += 1;
                self.handle_router_advertisement(now, arrival, &advertisement)
            }
            Message::Redirect {
                target,
                destination,
                options,
            } => {
                self.counters.icmp6_in_redirects += 1;
                let hardware = options.target_link_layer();
                self.handle_redirect_v6(now, arrival, (target, destination), hardware)
            }
            Message::RouterSolicitation { .. } => true, // For routers.
        };
        if !is_well {
            self.counters.ndp_in_errors += 1;
        }
    }

    /// RFC 4861 §7.2.3, §7.2.4; false: it must not be believed (§7.1.1).
    fn handle_solicitation(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        target: Ipv6Addr,
        options: Options<'_>,
        egress: &mut dyn Egress,
    ) -> bool {
        let hardware = options.source_link_layer();
        let from_nobody = arrival.source.is_unspecified();
        let asks_group = arrival.destination == IpAddr::V6(solicited_node(target));
        if target.is_multicast()
            || hardware.is_some_and(|hardware| !hardware.is_unicast())
            || (from_nobody && (!asks_group || hardware.is_some()))
        {
            return false;
        }
        let id = arrival.interface;
        let Some(interface) = self.interfaces.find_mut(id) else {
            return true;
        };
        let own_hardware = interface.config.hardware;
        let Some(owned) = interface.owned_mut(target.into()) else {
            return true;
        };
        let state = owned.state;
        // RFC 4862 §5.4.3: the same question from another station is a duplicate; ours comes back from
        // some links. Whoever only resolves a tentative address gets no answer.
        let is_under_test = state == AddressState::Tentative;
        if is_under_test || state == AddressState::Duplicate {
            if is_under_test && from_nobody && arrival.station != own_hardware {
                self.handle_duplicate(now, id, target);
            }
            return true;
        }
        if arrival.station == own_hardware {
            return true;
        }
        if let Some(hardware) = hardware {
            self.learn_neighbour(now, id, arrival.source, hardware);
        }
        let (destination, station) = if from_nobody {
            (ALL_NODES, group_hardware(ALL_NODES))
        } else {
            match arrival.source {
                IpAddr::V6(source) => (source, hardware.unwrap_or(arrival.station)),
                IpAddr::V4(_) => return false,
            }
        };
        let _ = self.advertise(id, target, (destination, station), !from_nobody, egress);
        true
    }

    /// Remembers who asked for us: it will get packets next (RFC 4861 §7.2.3).
    pub(crate) fn learn_neighbour(
        &mut self,
        now: Instant,
        id: InterfaceId,
        address: IpAddr,
        hardware: Address,
    ) {
        if !self.interfaces.is_unicast(address) {
            return;
        }
        let entry = match self.neighbours.find(id, address) {
            None => self.neighbours.learn(now, id, address),
            found => found,
        };
        if let Some(n) = entry {
            self.neighbours.heard(now, n, hardware, false);
            self.arm_neighbour(n);
            self.wake_waiters(n);
        }
    }

    /// RFC 4861 §7.2.5; false: it must not be believed (§7.1.2).
    fn handle_advertisement(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        advertisement: &Advertisement,
    ) -> bool {
        let Advertisement {
            target, hardware, ..
        } = *advertisement;
        if target.is_multicast()
            || hardware.is_some_and(|hardware| !hardware.is_unicast())
            || (arrival.is_to_group() && advertisement.solicited)
        {
            return false;
        }
        let id = arrival.interface;
        let Some(interface) = self.interfaces.find_mut(id) else {
            return true;
        };
        let own_hardware = interface.config.hardware;
        if let Some(owned) = interface.owned_mut(target.into()) {
            // RFC 4862 §5.4.4: somebody has it, unless the link returns our own words. An address that
            // has passed its test is kept, and the conflict counted.
            if arrival.station == own_hardware || owned.state == AddressState::Duplicate {
                return true;
            }
            if owned.act_at == Instant::NEVER {
                self.counters.duplicate_addresses += 1;
            } else {
                self.handle_duplicate(now, id, target);
            }
            return true;
        }
        if let Some(n) = self.neighbours.find(id, target.into()) {
            let Advertisement {
                solicited,
                overrides,
                ..
            } = *advertisement;
            self.neighbours
                .advertised(now, n, hardware, solicited, overrides);
            self.arm_neighbour(n);
            self.wake_waiters(n);
            if !advertisement.router {
                self.forget_router(id, target);
            }
        }
        true
    }

    fn advertise(
        &mut self,
        id: InterfaceId,
        target: Ipv6Addr,
        (destination, station): (Ipv6Addr, Address),
        solicited: bool,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let hardware = self.hardware_of(id);
        let option = ndp::target_link_layer(hardware);
        let message = Message::NeighbourAdvertisement {
            target,
            router: false,
            solicited,
            overrides: true,
            options: Options::parse(&option).unwrap_or_default(),
        };
        self.send_ndp(id, target, destination, station, message, egress)?;
        self.counters.icmp6_out_neighbor_advertisements += 1;
        Ok(())
    }

    /// Asks who has `target` (RFC 4861 §7.2.2), or confirms that `hardware` still has it (§7.3.3).
    pub(crate) fn solicit_neighbour(
        &mut self,
        id: InterfaceId,
        target: Ipv6Addr,
        hardware: Option<Address>,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let source = self
            .interfaces
            .find(id)
            .and_then(|interface| interface.source_for(target.into(), target.into()));
        let Some(IpAddr::V6(source)) = source else {
            return Ok(()); // Asked again by the timer, when there may be an address.
        };
        let group = solicited_node(target);
        let (destination, station) = match hardware {
            Some(hardware) => (target, hardware),
            None => (group, group_hardware(group)),
        };
        let option = ndp::source_link_layer(self.hardware_of(id));
        let message = Message::NeighbourSolicitation {
            target,
            options: Options::parse(&option).unwrap_or_default(),
        };
        self.send_ndp(id, source, destination, station, message, egress)?;
        self.counters.icmp6_out_neighbor_solicits += 1;
        Ok(())
    }

    /// Asks whether somebody has the own address `target` (RFC 4862 §5.4.2).
    pub(crate) fn probe_duplicate(
        &mut self,
        id: InterfaceId,
        target: Ipv6Addr,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let group = solicited_node(target);
        let message = Message::NeighbourSolicitation {
            target,
            options: Options::NONE,
        };
        let (nobody, station) = (Ipv6Addr::UNSPECIFIED, group_hardware(group));
        self.send_ndp(id, nobody, group, station, message, egress)?;
        self.counters.icmp6_out_neighbor_solicits += 1;
        Ok(())
    }

    /// Asks for routers (RFC 4861 §6.3.7).
    pub(crate) fn ask_routers(
        &mut self,
        id: InterfaceId,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let interface = self.interfaces.find(id);
        let source = interface
            .and_then(|interface| interface.source_for(ALL_ROUTERS.into(), ALL_ROUTERS.into()));
        let option = ndp::source_link_layer(self.hardware_of(id));
        // RFC 4861 §4.1: without a source address there is no option.
        let (source, options) = match source {
            Some(IpAddr::V6(source)) if needs_zone(source.into()) => {
                (source, Options::parse(&option).unwrap_or_default())
            }
            _ => (Ipv6Addr::UNSPECIFIED, Options::NONE),
        };
        let message = Message::RouterSolicitation { options };
        let station = group_hardware(ALL_ROUTERS);
        self.send_ndp(id, source, ALL_ROUTERS, station, message, egress)?;
        self.counters.icmp6_out_router_solicits += 1;
        Ok(())
    }

    fn send_ndp(
        &mut self,
        interface: InterfaceId,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hardware: Address,
        message: Message<'_>,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let envelope = Envelope {
            interface,
            hardware,
            source: source.into(),
            destination: destination.into(),
            ttl: HOP_LIMIT,
            tos: 0,
            identification: 0,
            flow_label: 0,
        };
        self.send_icmpv6(&envelope, &Icmpv6::Ndp(message), egress)
    }
}
