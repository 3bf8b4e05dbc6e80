//! ICMP errors that this host sends, of both families, at a limited rate (RFC 1122 §3.2.2, RFC 1812
//! §4.3.2, RFC 4443 §2.4).

use super::Ip;
use super::arrival::Arrival;
use crate::egress::Egress;
use crate::link::interface::Resolution;
use crate::link::output::Envelope;
use crate::protocols::Protocols;
use core::net::IpAddr;
use tcp::Instant;
use wire::ipv6::extension::Problem;
use wire::{icmpv4, icmpv6, ipv4, ipv6};

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// This host does not speak the protocol.
    Protocol,
    /// Nobody listens on the port.
    Port,
}

impl Ip {
    /// Answers that a packet cannot be delivered.
    pub(crate) fn refuse(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        refusal: Refusal,
        egress: &mut dyn Egress,
    ) {
        if arrival.source.is_ipv4() {
            let code = match refusal {
                Refusal::Protocol => icmpv4::unreachable::PROTOCOL,
                Refusal::Port => icmpv4::unreachable::PORT,
            };
            let message = |quoted| icmpv4::Message::DestinationUnreachable {
                code,
                next_hop_mtu: 0,
                quoted,
            };
            if self.send_error_v4(now, arrival, message, egress) {
                self.link.counters.icmp_out_dest_unreachs += 1;
            }
            return;
        }
        match refusal {
            Refusal::Port => {
                let message = |quoted| icmpv6::Message::DestinationUnreachable {
                    code: icmpv6::unreachable::PORT,
                    quoted,
                };
                self.send_error_v6(now, arrival, false, message, egress);
            }
            // RFC 8200 §4: an upper layer that is not known is a next header that is not known.
            Refusal::Protocol => {
                let problem = ipv6::extension::unrecognized_next_header(arrival.next_header_at);
                self.report_problem(now, arrival, problem, egress);
            }
        }
    }

    /// Tells the sender of an IPv6 packet what its headers ask in vain, where RFC 8200 says so.
    pub(crate) fn report_problem(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        problem: Problem,
        egress: &mut dyn Egress,
    ) {
        let Problem::Report {
            code,
            pointer,
            even_for_groups,
        } = problem
        else {
            return;
        };
        let pointer = u32::try_from(pointer).unwrap_or(u32::MAX);
        let message = |quoted| icmpv6::Message::ParameterProblem {
            code,
            pointer,
            quoted,
        };
        self.send_error_v6(now, arrival, even_for_groups, message, egress);
    }

    /// RFC 1812 §4.3.2.8, and as Linux without a limit for what never leaves this host.
    fn may_send_error(&mut self, now: Instant, arrival: &Arrival<'_>) -> bool {
        arrival.resolution == Resolution::Loopback || self.icmp_bucket.try_take(now)
    }

    /// Whether it was sent.
    pub(crate) fn send_error_v4<'a>(
        &mut self,
        now: Instant,
        arrival: &Arrival<'a>,
        message: impl FnOnce(&'a [u8]) -> icmpv4::Message<'a>,
        egress: &mut dyn Egress,
    ) -> bool {
        if arrival.resolution == Resolution::External || !self.speaks_icmp() {
            return false; // The kernel has the same packet and answers for itself.
        }
        // RFC 1122 §3.2.2: no error message answers a broadcast or multicast.
        if !self.link.interfaces.owns(arrival.destination) {
            return false;
        }
        if is_icmpv4_error(arrival.packet) {
            return false;
        }
        if !self.may_send_error(now, arrival) {
            self.link.counters.icmp_out_rate_limit += 1;
            return false;
        }
        // RFC 1812 §4.3.2.3: as much of the packet as fits into 576 bytes.
        const QUOTED_MAX: usize = 576 - ipv4::Header::LEN - icmpv4::HEADER_LEN;
        let quoted = &arrival.packet[..arrival.packet.len().min(QUOTED_MAX)];
        // RFC 1812 §4.3.2.5: internetwork control precedence.
        let envelope = Envelope {
            tos: 0xc0,
            ..arrival.reply()
        };
        self.link
            .send_icmp(&envelope, &message(quoted), egress)
            .is_ok()
    }

    pub(crate) fn send_error_v6<'a>(
        &mut self,
        now: Instant,
        arrival: &Arrival<'a>,
        even_for_groups: bool,
        message: impl FnOnce(&'a [u8]) -> icmpv6::Message<'a>,
        egress: &mut dyn Egress,
    ) {
        if arrival.resolution == Resolution::External || !self.speaks_icmp() {
            return;
        }
        if is_icmpv6_error(arrival.packet) {
            return;
        }
        // RFC 4443 §2.4 (e.3) to (e.6): not for groups, nor to who is nobody in particular.
        let is_answerable =
            !arrival.source.is_unspecified() && (even_for_groups || !arrival.is_to_group());
        let Some(envelope) = self.reply_v6(arrival).filter(|_| is_answerable) else {
            return;
        };
        // RFC 4443 §2.4 (f).
        if !self.may_send_error(now, arrival) {
            self.link.counters.icmp_out_rate_limit += 1;
            return;
        }
        // RFC 4443 §2.4 (c): as much of the packet as fits into the minimum MTU.
        const QUOTED_MAX: usize = 1_280 - ipv6::Header::LEN - icmpv6::HEADER_LEN;
        let quoted = &arrival.packet[..arrival.packet.len().min(QUOTED_MAX)];
        if self
            .link
            .send_icmpv6(&envelope, &message(quoted), egress)
            .is_ok()
        {
            self.link.counters.icmp6_out_errors += 1;
        }
    }

    fn speaks_icmp(&self) -> bool {
        self.link.config.protocols.contains(Protocols::ICMP)
    }

    /// The way back for an answer to an IPv6 packet that may have gone to a group (RFC 4443 §2.2).
    pub(crate) fn reply_v6(&self, arrival: &Arrival<'_>) -> Option<Envelope> {
        let envelope = arrival.reply();
        if !arrival.is_to_group() {
            return Some(envelope);
        }
        let interfaces = &self.link.interfaces;
        let source = interfaces.source_on(arrival.interface, arrival.source);
        source
            .filter(IpAddr::is_ipv6)
            .map(|source| Envelope { source, ..envelope })
    }
}

/// RFC 1122 §3.2.2: no error answers an error, nor its first fragment.
fn is_icmpv4_error(packet: &[u8]) -> bool {
    let &[first, .., protocol] = packet.first_chunk::<10>().unwrap_or(&[0; 10]);
    let header_len = usize::from(first & 0x0f) * 4;
    protocol == ipv4::Protocol::ICMP.0
        && packet
            .get(header_len)
            .is_none_or(|kind| icmpv4::is_error(*kind))
}

/// RFC 4443 §2.4 (e.1), (e.2): no error answers an error or a redirect, whatever headers stand in front of it.
fn is_icmpv6_error(packet: &[u8]) -> bool {
    ipv6::extension::upper_layer(packet).is_some_and(|(protocol, message)| {
        protocol == ipv4::Protocol::ICMPV6 && icmpv6::must_not_be_answered(message)
    })
}
