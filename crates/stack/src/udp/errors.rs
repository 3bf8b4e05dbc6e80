//! What ICMP says of datagrams that were sent (RFC 1122 §4.1.3.3): told to the socket that sent them.
//!
//! A quote names both ends. It is believed if a socket here has that local end, and, if connected, that
//! peer (RFC 5927 §4 has nothing more for a protocol without sequence numbers). What it can do is make a
//! call fail, fill a bounded queue and lower the path MTU to no less than the minimum.

use super::Udp;
use super::{DatagramError, DatagramErrorKind as Kind, MtuDiscovery};
use crate::containers::intrusive::at;
use crate::host::Host;
use crate::ip::Ip;
use crate::ip::icmp_meaning::{Report, meaning};
use crate::ip::path::cannot_be_a_link;
use crate::ip::quote::QuotedPacket;
use tcp::Instant;
use wire::ipv4::Protocol;

/// The payload of a quoted datagram: what is there of it.
fn quoted_payload<'a>(quote: &QuotedPacket<'a>) -> &'a [u8] {
    let [.., a, b, _, _] = *quote.header;
    let said = usize::from(u16::from_be_bytes([a, b])).saturating_sub(8);
    &quote.rest[..quote.rest.len().min(said)]
}

impl Udp<'_> {
    /// Takes in an error about a datagram; `false`: it quotes none of ours.
    pub(crate) fn handle_error(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        report: &Report<'_>,
        host: &mut dyn Host,
    ) -> bool {
        let Some(quote) = QuotedPacket::parse(report.quoted, Protocol::UDP) else {
            return false;
        };
        // The socket that would get the answer is the one that sent the question.
        let Some(index) = self
            .table
            .find(quote.destination, quote.source, report.interface)
        else {
            return false;
        };
        let record = &self.rows[at(index)];
        let (owner, all) = (record.owner, record.options());
        let options = all.of(quote.destination.ip());
        let is_connected = record.ends.remote().is_some();
        let Some((kind, mut is_hard)) = meaning(report) else {
            return true;
        };
        let mut mtu = report.next_hop_mtu;
        if kind == Kind::TooBig {
            if options.mtu_discovery == MtuDiscovery::Dont {
                return true;
            }
            if options.mtu_discovery.believes_path() {
                // RFC 5927 §7.2: a router with a smaller MTU than the packet could not forward it.
                if mtu >= quote.total_len || cannot_be_a_link(quote.destination.ip(), mtu) {
                    return true;
                }
                let named = if mtu == 0 { quote.total_len / 2 } else { mtu };
                mtu = self.path_mtus.lower(now, quote.destination.ip(), named);
                ip.link.counters.pmtu_lowered += 1;
            }
            is_hard = true;
        }
        // RFC 1122 §4.1.3.3 and udp(7): an unconnected socket hears of it only if it asked to.
        if options.error_queue || (is_hard && is_connected) {
            let error = DatagramError {
                kind,
                is_hard: is_hard || options.error_queue,
                is_queued: options.error_queue,
                destination: quote.destination,
                offender: Some(report.offender),
                icmp: (report.kind, report.code),
                mtu,
                payload: quoted_payload(&quote),
            };
            host.on_datagram_error(owner, &error);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_may_be_cut_anywhere_behind_the_ports() {
        let mut quoted = vec![0_u8; 28];
        quoted[0] = 0x45;
        quoted[9] = 17;
        quoted[23] = 53;
        quoted[25] = 12;
        quoted.extend_from_slice(b"what and padding");
        fn parse(quoted: &[u8]) -> Option<QuotedPacket<'_>> {
            QuotedPacket::parse(quoted, Protocol::UDP)
        }
        let quote = parse(&quoted).unwrap();
        assert_eq!(
            (quote.destination.port(), quoted_payload(&quote)),
            (53, &b"what"[..])
        );
        assert!(parse(&quoted[..30]).is_some_and(|quote| quoted_payload(&quote) == b"wh"));
        assert!(parse(&quoted[..27]).is_none());
        quoted[7] = 1;
        assert!(parse(&quoted).is_none(), "not the first fragment");
    }
}
