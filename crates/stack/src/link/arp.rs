//! ARP on the link: answering, asking, announcing, defending (RFC 826, RFC 5227).
//!
//! The cache is `neighbour.rs`. What is received is believed only as far as it must be: senders must
//! be on the link, entries are created only for those who ask for us, and nobody's claim displaces
//! what was confirmed within the last second. Proxy ARP and RARP are not done.

use super::Link;
use super::interface::{InterfaceId, Resolution};
use super::questions::Question;
use crate::egress::{Busy, Egress, Frame};
use core::net::{IpAddr, Ipv4Addr};
use tcp::{Duration, Instant};
use wire::arp::{Operation, Packet};
use wire::ethernet::{Address, EtherType, Header};

/// RFC 5227 §1.1, DEFEND_INTERVAL.
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

const FRAME_LEN: usize = Header::LEN + Packet::LEN;

impl Link {
    /// Takes in an ARP packet that came in a frame from `source`. Returns the neighbour that it told of.
    pub(crate) fn handle_arp(
        &mut self,
        now: Instant,
        id: InterfaceId,
        source: Address,
        bytes: &[u8],
        egress: &mut dyn Egress,
    ) -> Option<u32> {
        self.counters.arp_in += 1;
        let interface = self.interfaces.find(id);
        let interface = interface.filter(|i| i.config.resolution == Resolution::Arp)?;
        let Ok(packet) = Packet::parse(bytes) else {
            self.counters.arp_in_errors += 1;
            return None;
        };
        let sender = packet.sender_protocol;
        let is_probe = sender.is_unspecified();
        // A sender that speaks for another station's hardware address is a relay or an attacker.
        let plausible = packet.sender_hardware.is_unicast()
            && packet.sender_hardware == source
            && (is_probe
                || (self.interfaces.is_unicast(sender.into())
                    && interface.is_on_link(sender.into())));
        if !plausible {
            self.counters.arp_in_errors += 1;
            return None;
        }
        let hardware = interface.config.hardware;
        if packet.sender_hardware == hardware {
            return None; // Our own, looped back.
        }
        let asks_us =
            packet.operation == Operation::REQUEST && interface.owns(packet.target_protocol.into());
        if interface.owns(sender.into()) {
            self.defend(now, id, sender.into());
            return None;
        }
        let heard = if is_probe {
            None
        } else {
            let answers_us =
                packet.operation == Operation::REPLY && packet.target_hardware == hardware;
            self.merge(now, id, &packet, asks_us, answers_us)
        };
        if asks_us {
            let reply = Packet {
                operation: Operation::REPLY,
                sender_hardware: hardware,
                sender_protocol: packet.target_protocol,
                target_hardware: packet.sender_hardware,
                target_protocol: sender,
            };
            if send(id, packet.sender_hardware, &reply, egress).is_ok() {
                self.counters.arp_out_replies += 1;
            }
        }
        heard
    }

    /// RFC 826 "merge": an existing entry is refreshed by anything, a new one is made only for who asks us.
    fn merge(
        &mut self,
        now: Instant,
        id: InterfaceId,
        packet: &Packet,
        asks_us: bool,
        answers_us: bool,
    ) -> Option<u32> {
        let entry = match self.neighbours.find(id, packet.sender_protocol.into()) {
            None if asks_us => self
                .neighbours
                .learn(now, id, packet.sender_protocol.into()),
            found => found,
        };
        let n = entry?;
        self.neighbours
            .heard(now, n, packet.sender_hardware, answers_us);
        self.arm_neighbour(n);
        Some(n)
    }

    /// Somebody else uses one of our addresses: say once in a while that it is ours (RFC 5227 §2.4 (b)).
    fn defend(&mut self, now: Instant, id: InterfaceId, address: IpAddr) {
        self.counters.arp_conflicts += 1;
        let interface = self.interfaces.find_mut(id);
        let Some(owned) = interface.and_then(|interface| interface.owned_mut(address)) else {
            return;
        };
        if owned
            .defended_at
            .is_none_or(|at| now.since(at) >= DEFEND_INTERVAL)
        {
            owned.defended_at = Some(now);
            self.question(Question::Announce(id, address));
        }
    }

    /// Asks who has `target`, or announces that it is ours.
    pub(super) fn send_request(
        &mut self,
        id: InterfaceId,
        target: Ipv4Addr,
        unicast: Option<Address>,
        is_announcement: bool,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let Some(interface) = self.interfaces.find(id) else {
            return Ok(());
        };
        let sender = if is_announcement {
            Some(target.into())
        } else {
            interface.source_for(target.into(), target.into())
        };
        let Some(IpAddr::V4(sender_protocol)) = sender else {
            return Ok(());
        };
        let request = Packet {
            operation: Operation::REQUEST,
            sender_hardware: interface.config.hardware,
            sender_protocol,
            target_hardware: Address([0; 6]),
            target_protocol: target,
        };
        send(id, unicast.unwrap_or(Address::BROADCAST), &request, egress)?;
        self.counters.arp_out_requests += 1;
        Ok(())
    }
}

fn send(
    id: InterfaceId,
    destination: Address,
    packet: &Packet,
    egress: &mut dyn Egress,
) -> Result<(), Busy> {
    let mut headers = [0; FRAME_LEN];
    let source = packet.sender_hardware;
    Header {
        destination,
        source,
        ethertype: EtherType::ARP,
    }
    .emit(&mut headers);
    packet.emit(&mut headers[Header::LEN..]);
    egress.transmit(&Frame::whole(id, &headers))
}
