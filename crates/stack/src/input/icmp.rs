//! ICMP as a host must take it (RFC 1122 §3.2.2): echo is answered, errors are told to the connection
//! they quote, and only if they quote something it has in flight (RFC 5927 §4.1).
//!
//! Source quench (RFC 6633) and everything else is ignored.

use crate::egress::Egress;
use crate::host::Host;
use crate::ip::arrival::Arrival;
use crate::ip::icmp_meaning::Report;
use crate::link::interface::Resolution;
use crate::link::output::Envelope;
use crate::stack::Stack;
use crate::tcp::quote::Quote;
use core::net::{IpAddr, Ipv4Addr};
use tcp::Instant;
use wire::icmpv4::{Message, unreachable};

impl Stack<'_> {
    pub(crate) fn handle_icmp(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        self.ip.link.counters.icmp_in_msgs += 1;
        let Ok(message) = Message::parse(arrival.payload) else {
            self.ip.link.counters.icmp_in_errors += 1;
            return;
        };
        match message {
            Message::EchoRequest {
                identifier,
                sequence,
                data,
            } => {
                self.ip.link.counters.icmp_in_echos += 1;
                let reply = Message::EchoReply {
                    identifier,
                    sequence,
                    data,
                };
                // RFC 1122 §3.2.2.6: whole, with the same service; the kernel answers for its own.
                let envelope = Envelope {
                    tos: arrival.dscp_ecn & !3,
                    ..arrival.reply()
                };
                if arrival.resolution != Resolution::External
                    && self.ip.link.send_icmp(&envelope, &reply, egress).is_ok()
                {
                    self.ip.link.counters.icmp_out_echo_reps += 1;
                }
            }
            Message::DestinationUnreachable {
                code,
                next_hop_mtu,
                quoted,
            } => {
                self.ip.link.counters.icmp_in_dest_unreachs += 1;
                let report = report(arrival, (3, code), next_hop_mtu, quoted);
                self.handle_icmp_error(now, &report, host);
            }
            Message::Redirect {
                gateway, quoted, ..
            } => {
                self.ip.link.counters.icmp_in_redirects += 1;
                self.handle_redirect(now, arrival, gateway, quoted);
            }
            Message::TimeExceeded { code, quoted } => {
                self.ip.link.counters.icmp_in_time_excds += 1;
                self.handle_icmp_error(now, &report(arrival, (11, code), 0, quoted), host);
            }
            Message::ParameterProblem { code, quoted, .. } => {
                self.handle_icmp_error(now, &report(arrival, (12, code), 0, quoted), host);
            }
            _ => {}
        }
    }

    /// Tells an error to the socket or the connection that it quotes.
    pub(super) fn handle_icmp_error(
        &mut self,
        now: Instant,
        report: &Report<'_>,
        host: &mut dyn Host,
    ) {
        let ip = &mut self.ip;
        if self.udp.handle_error(ip, now, report, host) {
            return;
        }
        match (report.offender, report.kind, report.code) {
            (IpAddr::V4(_), 3, unreachable::FRAGMENTATION_NEEDED) | (IpAddr::V6(_), 2, _) => {
                self.tcp.handle_too_big(ip, now, report);
            }
            _ => self.tcp.handle_unreachable(ip, now, report, host),
        }
    }

    /// RFC 1122 §3.2.2.2. `quoted` is the packet that took the longer way.
    fn handle_redirect(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        gateway: Ipv4Addr,
        quoted: &[u8],
    ) {
        let Some(quote) = Quote::parse(quoted, arrival.source, arrival.interface) else {
            return;
        };
        let destination = quote.tuple.remote();
        if self.ip.is_better_hop(arrival, gateway, destination)
            && self
                .tcp
                .quoted_connection(&mut self.ip, Some(&quote))
                .is_some()
        {
            let gateway = Some(gateway.into());
            self.ip
                .redirect(now, arrival.interface, destination, gateway);
        }
    }
}

pub(super) fn report<'a>(
    arrival: &Arrival<'_>,
    (kind, code): (u8, u8),
    next_hop_mtu: u16,
    quoted: &'a [u8],
) -> Report<'a> {
    Report {
        offender: arrival.source,
        interface: arrival.interface,
        kind,
        code,
        next_hop_mtu,
        quoted,
    }
}
