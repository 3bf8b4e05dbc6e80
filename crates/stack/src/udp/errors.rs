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
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use tcp::Instant;
use wire::ipv4::Protocol;
use wire::ipv6::{self, extension};

struct Quote<'a> {
    source: SocketAddr,
    destination: SocketAddr,
    total_len: u16,
    payload: &'a [u8],
}

impl<'a> Quote<'a> {
    /// Reads the start of a UDP packet; its lengths say nothing about what is there.
    fn parse(quoted: &'a [u8]) -> Option<Self> {
        match quoted.first()? >> 4 {
            4 => Self::parse_v4(quoted),
            6 => Self::parse_v6(quoted),
            _ => None,
        }
    }

    fn parse_v4(quoted: &'a [u8]) -> Option<Self> {
        let ip = quoted.first_chunk::<20>()?;
        let header_len = usize::from(ip[0] & 0x0f) * 4;
        let offset = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff;
        if header_len < 20 || ip[9] != Protocol::UDP.0 || offset != 0 {
            return None;
        }
        let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
        let total_len = u16::from_be_bytes([ip[2], ip[3]]);
        let ends = (address(12).into(), address(16).into());
        Self::parse_udp(ends, total_len, quoted.get(header_len..)?)
    }

    fn parse_v6(quoted: &'a [u8]) -> Option<Self> {
        let fixed = quoted.first_chunk::<{ ipv6::Header::LEN }>()?;
        // The quote is cut, so its own length says nothing about what is there.
        let mut whole = *fixed;
        whole[4..6].fill(0);
        let (header, _) = ipv6::Header::parse(&whole).ok()?;
        let chain = extension::walk(quoted, extension::Start::behind(&header)).ok()?;
        if chain.protocol != Protocol::UDP
            || chain.fragment.is_some_and(|part| part.header.offset != 0)
        {
            return None;
        }
        let total_len = u16::from_be_bytes([fixed[4], fixed[5]]).saturating_add(40);
        let ends = (header.source.into(), header.destination.into());
        Self::parse_udp(ends, total_len, chain.payload)
    }

    fn parse_udp(
        (source, destination): (IpAddr, IpAddr),
        total_len: u16,
        rest: &'a [u8],
    ) -> Option<Self> {
        let (udp, payload) = rest.split_first_chunk::<8>()?;
        let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        let said = usize::from(port(4)).saturating_sub(8);
        Some(Self {
            source: SocketAddr::new(source, port(0)),
            destination: SocketAddr::new(destination, port(2)),
            total_len,
            payload: &payload[..payload.len().min(said)],
        })
    }
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
        let Some(quote) = Quote::parse(report.quoted) else {
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
                if mtu >= quote.total_len {
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
                payload: quote.payload,
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
        let quote = Quote::parse(&quoted).unwrap();
        assert_eq!(
            (quote.destination.port(), quote.payload),
            (53, &b"what"[..])
        );
        assert!(Quote::parse(&quoted[..30]).is_some_and(|quote| quote.payload == b"wh"));
        assert!(Quote::parse(&quoted[..27]).is_none());
        quoted[7] = 1;
        assert!(Quote::parse(&quoted).is_none(), "not the first fragment");
    }
}
