//! Neighbour discovery on the link: answering, asking, finding duplicates (RFC 4861, RFC 4862 §5.4).
//!
//! The cache is `neighbour.rs`, the same as for ARP; routers and prefixes are `autoconf.rs`, redirects
//! `redirect.rs`. Proxies are not done. What did not come from the link itself (hop limit 255) is not believed.

use super::Ip;
use super::arrival::Arrival;
use crate::address::{group_hardware, solicited_node};
use crate::egress::Egress;
use crate::link::interface::{AddressState, Resolution};
use crate::link::ndp::{ALL_NODES, HOP_LIMIT};
use core::net::{IpAddr, Ipv6Addr};
use tcp::Instant;
use wire::ethernet::Address;
use wire::icmpv6::ndp::{Message, Options};

/// A neighbour advertisement as received.
struct Advertisement {
    target: Ipv6Addr,
    router: bool,
    solicited: bool,
    overrides: bool,
    hardware: Option<Address>,
}

impl Ip {
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
            self.link.counters.ndp_in_errors += 1;
            return;
        }
        let is_well = match *message {
            Message::NeighbourSolicitation { target, options } => {
                self.link.counters.icmp6_in_neighbor_solicits += 1;
                self.handle_solicitation(now, arrival, target, options, egress)
            }
            Message::NeighbourAdvertisement {
                target,
                router,
                solicited,
                overrides,
                options,
            } => {
                self.link.counters.icmp6_in_neighbor_advertisements += 1;
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
                self.link.counters.icmp6_in_router_advertisements += 1;
                self.handle_router_advertisement(now, arrival, &advertisement)
            }
            Message::Redirect {
                target,
                destination,
                options,
            } => {
                self.link.counters.icmp6_in_redirects += 1;
                let hardware = options.target_link_layer();
                self.handle_redirect_v6(now, arrival, (target, destination), hardware)
            }
            Message::RouterSolicitation { .. } => true, // For routers.
        };
        if !is_well {
            self.link.counters.ndp_in_errors += 1;
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
        let Some(interface) = self.link.interfaces.find_mut(id) else {
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
        let _ = self
            .link
            .advertise(id, target, (destination, station), !from_nobody, egress);
        true
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
        let Some(interface) = self.link.interfaces.find_mut(id) else {
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
                self.link.counters.duplicate_addresses += 1;
            } else {
                self.handle_duplicate(now, id, target);
            }
            return true;
        }
        if let Some(n) = self.link.neighbours.find(id, target.into()) {
            let Advertisement {
                solicited,
                overrides,
                ..
            } = *advertisement;
            self.link
                .neighbours
                .advertised(now, n, hardware, solicited, overrides);
            self.link.arm_neighbour(n);
            self.wake_waiters(n);
            if !advertisement.router {
                self.forget_router(id, target);
            }
        }
        true
    }
}
