//! What is said of neighbour discovery on a link (RFC 4861, RFC 4862 §5.4): answers, questions, searches for
//! duplicates and for routers. What is heard is `ip/ndp.rs`.

use super::Link;
use super::interface::InterfaceId;
use super::output::Envelope;
use crate::address::{group_hardware, needs_zone, solicited_node};
use crate::egress::{Busy, Egress};
use core::net::{IpAddr, Ipv6Addr};
use wire::ethernet::Address;
use wire::icmpv6::Message as Icmpv6;
use wire::icmpv6::ndp::{self, Message, Options};

/// RFC 4861 §3.1: no router has forwarded the packet.
pub(crate) const HOP_LIMIT: u8 = 255;
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

impl Link {
    /// Answers who asked for the own address `target`.
    pub(crate) fn advertise(
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
        let source = self.interfaces.source_on(id, target);
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
        let source = self.interfaces.source_on(id, ALL_ROUTERS);
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
