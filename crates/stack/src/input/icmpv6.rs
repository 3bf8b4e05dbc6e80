//! ICMPv6 as a host must take it (RFC 4443): echo is answered, errors are told to the connection they
//! quote, and only if they quote something it has in flight (RFC 5927 §4.1, RFC 8201 §4).
//!
//! An error is never answered with an error: what is not understood is dropped.

use super::icmp::report;
use crate::egress::Egress;
use crate::host::Host;
use crate::ip::arrival::Arrival;
use crate::link::interface::Resolution;
use crate::link::output::Envelope;
use crate::protocols::Protocols;
use crate::stack::Stack;
use core::net::IpAddr;
use tcp::Instant;
use wire::icmpv6::Message;

impl Stack<'_> {
    pub(crate) fn handle_icmpv6(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        self.ip.link.counters.icmp6_in_msgs += 1;
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (arrival.source, arrival.destination)
        else {
            return;
        };
        let Ok(message) = Message::parse(source, destination, arrival.payload) else {
            self.ip.link.counters.icmp6_in_errors += 1;
            return;
        };
        let is_spoken = self.ip.link.config.protocols.contains(Protocols::ICMP);
        match message {
            // Without these there is no IPv6.
            Message::Ndp(message) => self.ip.handle_ndp(now, arrival, &message, egress),
            Message::Other { kind, body, .. } => {
                self.ip
                    .multicast
                    .handle_mld(now, &mut self.ip.link, arrival, kind, body)
            }
            _ if !is_spoken => {}
            Message::EchoRequest {
                identifier,
                sequence,
                data,
            } => {
                self.ip.link.counters.icmp6_in_echos += 1;
                let reply = Message::EchoReply {
                    identifier,
                    sequence,
                    data,
                };
                self.answer_echo(arrival, &reply, egress);
            }
            Message::PacketTooBig { mtu, quoted } => {
                self.ip.link.counters.icmp6_in_pkt_too_bigs += 1;
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                self.handle_icmp_error(now, &report(arrival, (2, 0), mtu, quoted), host);
            }
            Message::DestinationUnreachable { code, quoted } => {
                self.ip.link.counters.icmp6_in_dest_unreachs += 1;
                self.handle_icmp_error(now, &report(arrival, (1, code), 0, quoted), host);
            }
            Message::TimeExceeded { code, quoted } => {
                self.ip.link.counters.icmp6_in_time_excds += 1;
                self.handle_icmp_error(now, &report(arrival, (3, code), 0, quoted), host);
            }
            Message::ParameterProblem { code, quoted, .. } => {
                self.handle_icmp_error(now, &report(arrival, (4, code), 0, quoted), host);
            }
            _ => {}
        }
    }

    /// RFC 4443 §4.2: an echo to a group is answered from an address of the interface.
    fn answer_echo(&mut self, arrival: &Arrival<'_>, reply: &Message<'_>, egress: &mut dyn Egress) {
        if arrival.resolution == Resolution::External || arrival.source.is_unspecified() {
            return;
        }
        let Some(envelope) = self.ip.reply_v6(arrival) else {
            return;
        };
        let envelope = Envelope {
            tos: arrival.dscp_ecn & !3,
            ..envelope
        };
        if self.ip.link.send_icmpv6(&envelope, reply, egress).is_ok() {
            self.ip.link.counters.icmp6_out_echo_replies += 1;
        }
    }
}
