//! ICMP as a host must take it (RFC 1122 §3.2.2): echo is answered, errors are told to the connection
//! they quote, and only if they quote something it has in flight (RFC 5927 §4.1).
//!
//! Source quench (RFC 6633) and everything else is ignored.

use crate::containers::intrusive::at;
use crate::egress::Egress;
use crate::host::Host;
use crate::ip::arrival::Arrival;
use crate::ip::icmp_meaning::Report;
use crate::ip::icmp_meaning::connection_error;
use crate::ip::path::{PATH_MTU_LIFETIME, path_mtu_min};
use crate::link::interface::Resolution;
use crate::link::output::Envelope;
use crate::quote::Quote;
use crate::stack::Stack;
use core::net::{IpAddr, Ipv4Addr};
use tcp::{Events, Instant};
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
                if self.handle_udp_error(now, &report, host) {
                    return;
                }
                if code == unreachable::FRAGMENTATION_NEEDED {
                    self.handle_fragmentation_needed(now, next_hop_mtu, quoted);
                } else {
                    let quote = Quote::parse_v4(quoted);
                    self.handle_unreachable(now, &report, quote, host);
                }
            }
            Message::Redirect {
                gateway, quoted, ..
            } => {
                self.ip.link.counters.icmp_in_redirects += 1;
                self.handle_redirect(now, arrival, gateway, quoted);
            }
            Message::TimeExceeded { code, quoted } => {
                self.ip.link.counters.icmp_in_time_excds += 1;
                let report = report(arrival, (11, code), 0, quoted);
                if self.handle_udp_error(now, &report, host) {
                    return;
                }
                self.handle_unreachable(now, &report, Quote::parse_v4(quoted), host);
            }
            Message::ParameterProblem { code, quoted, .. } => {
                let report = report(arrival, (12, code), 0, quoted);
                if !self.handle_udp_error(now, &report, host) {
                    self.handle_unreachable(now, &report, Quote::parse_v4(quoted), host);
                }
            }
            _ => {}
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
        let Some(quote) = Quote::parse_v4(quoted) else {
            return;
        };
        let destination = quote.tuple.remote();
        if self.ip.is_better_hop(arrival, gateway, destination)
            && self.quoted_connection(Some(&quote)).is_some()
        {
            let gateway = Some(gateway.into());
            self.ip
                .redirect(now, arrival.interface, destination, gateway);
        }
    }

    /// The connection that sent what is quoted, if it is in flight.
    pub(crate) fn quoted_connection(&mut self, quote: Option<&Quote>) -> Option<u32> {
        let found = quote.and_then(|quote| {
            let index = self
                .demux
                .find(&quote.tuple)
                .filter(|index| at(*index) < self.tables.connections.len())?;
            self.record(index)
                .tcp
                .is_quote_plausible(quote.seq)
                .then_some(index)
        });
        if found.is_none() {
            self.ip.link.counters.icmp_in_unmatched += 1;
        }
        found
    }

    /// Never hard: RFC 5927 §5.2 has even "hard" errors only end a connection that is not established.
    pub(crate) fn handle_unreachable(
        &mut self,
        now: Instant,
        report: &Report<'_>,
        quote: Option<Quote>,
        host: &mut dyn Host,
    ) {
        if let (Some(index), Some(error)) = (
            self.quoted_connection(quote.as_ref()),
            connection_error(report),
        ) {
            self.run(now, index, host, |tcp| tcp.handle_unreachable(error, false));
        }
    }

    /// RFC 1191 §4: a router could not forward a packet of this size.
    fn handle_fragmentation_needed(&mut self, now: Instant, next_hop_mtu: u16, quoted: &[u8]) {
        let Some(quote) = Quote::parse_v4(quoted) else {
            self.ip.link.counters.icmp_in_unmatched += 1;
            return;
        };
        let named = if next_hop_mtu == 0 {
            plateau_below(quote.total_len)
        } else {
            next_hop_mtu
        };
        self.handle_too_big(now, named, &quote);
    }

    /// A router could not forward a packet of the quoted size; it names the MTU of the next hop.
    pub(crate) fn handle_too_big(&mut self, now: Instant, named: u16, quote: &Quote) {
        let Some(index) = self.quoted_connection(Some(quote)) else {
            return;
        };
        let least = path_mtu_min(quote.tuple.remote());
        let mtu = named.max(least);
        let record = self.record(index);
        // A router that could not forward a packet has a smaller MTU than the packet (RFC 5927 §7.2).
        let lowers = (record.path_mtu == 0 || mtu < record.path_mtu)
            && (mtu < quote.total_len || mtu == least);
        if !lowers {
            return;
        }
        let mss = mtu.saturating_sub(headers_len(quote.tuple.remote()));
        let events = self.fly(index, |record, blocks| {
            record.path_mtu = mtu;
            record.path_mtu_until = now + PATH_MTU_LIFETIME;
            record.tcp.handle_packet_too_big(now, mss, blocks)
        });
        self.ip.link.counters.pmtu_lowered += 1;
        if events.contains(Events::TRANSMIT) && !self.ip.flows.is_waiting(at(index)) {
            self.ip.flows.senders.push(index);
        }
    }
}

pub(crate) fn report<'a>(
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

/// Bytes of the headers of IP and TCP without options.
const fn headers_len(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => 40,
        IpAddr::V6(_) => 60,
    }
}

/// RFC 1191 §7: the next usual MTU below a packet that did not fit, for routers that name none.
fn plateau_below(total_len: u16) -> u16 {
    const PLATEAUS: [u16; 8] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508];
    PLATEAUS
        .into_iter()
        .find(|plateau| *plateau < total_len)
        .unwrap_or(68)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_shorter_than_rfc_792_says_is_no_quote() {
        let mut quoted = [0_u8; 28];
        quoted[0] = 0x45;
        quoted[9] = 6;
        assert!(Quote::parse_v4(&quoted).is_some());
        assert_eq!(Quote::parse_v4(&quoted[..27]), None);
        quoted[0] = 0x4f;
        assert_eq!(Quote::parse_v4(&quoted), None, "options that are not there");
        quoted[0] = 0x45;
        quoted[7] = 1;
        assert_eq!(Quote::parse_v4(&quoted), None, "not the first fragment");
    }

    #[test]
    fn plateaus_descend_to_the_minimum() {
        assert_eq!(plateau_below(1_500), 1_492);
        assert_eq!(plateau_below(1_492), 1_006);
        assert_eq!(plateau_below(100), 68);
    }
}
