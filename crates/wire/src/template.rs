//! Headers of a TCP connection's plain segments, written once: each differs from the one before it in a length, an
//! identification, what TCP says, and in sums that follow from those (Jacobson 1990).

use core::net::IpAddr;

use crate::checksum::Sum;
use crate::ipv4::{self, Protocol};
use crate::tcp::{self, Plain};
use crate::{ethernet, ipv6};

const IP_AT: usize = ethernet::Header::LEN;
const MAX_LEN: usize = IP_AT + ipv6::Header::LEN + Plain::MAX_LEN;

/// Ethernet and IP headers, and room for TCP's behind them.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    bytes: [u8; MAX_LEN],
    is_v6: bool,
    /// Of the IPv4 header without its length, identification and checksum.
    ip: Sum,
    /// Of the pseudo header without its length.
    pseudo: Sum,
}

impl Template {
    /// Of packets whose link and IP headers are those in front of `headers`, but for lengths, identification and
    /// checksum, between these addresses.
    ///
    /// # Panics
    /// When `headers` is shorter than both headers, or the addresses are not of one family.
    #[must_use]
    pub fn new(headers: &[u8], source: IpAddr, destination: IpAddr) -> Self {
        let is_v6 = destination.is_ipv6();
        let tcp_at = tcp_at(is_v6);
        let mut bytes = [0; MAX_LEN];
        bytes[..tcp_at].copy_from_slice(&headers[..tcp_at]);
        let mut ip = Sum::new();
        if !is_v6 {
            let header = &mut bytes[IP_AT..tcp_at];
            header[2..6].fill(0);
            header[10..12].fill(0);
            ip = ip.add(header);
        }
        let pseudo = Sum::new().pseudo_header(source, destination, Protocol::TCP, 0);
        Self {
            bytes,
            is_v6,
            ip,
            pseudo,
        }
    }

    /// Where the TCP header begins.
    #[must_use]
    #[inline]
    pub fn tcp_at(&self) -> usize {
        tcp_at(self.is_v6)
    }

    /// The headers of a segment with `payload_len` bytes of payload. Its checksum is that of the pseudo header alone:
    /// the rest is added where the payload is.
    ///
    /// # Panics
    /// When the packet is longer than 65535 bytes over IPv6; over IPv4 its length is then 0, as
    /// [`ipv4::Header::emit`] says.
    #[inline]
    pub fn emit(
        &mut self,
        identification: u16,
        ports: [u16; 2],
        plain: &Plain,
        payload_len: usize,
    ) -> &[u8] {
        let tcp_at = self.tcp_at();
        let header_len = plain.emit(ports, &mut self.bytes[tcp_at..]);
        let tcp_len = header_len + payload_len;
        let partial = self.pseudo.add_len(tcp_len).fold();
        let field = tcp_at + usize::from(tcp::CHECKSUM_OFFSET);
        self.bytes[field..field + 2].copy_from_slice(&partial.to_be_bytes());
        if self.is_v6 {
            let len = u16::try_from(tcp_len)
                .expect("invariant: an IPv6 payload is at most 65535 bytes long");
            self.bytes[IP_AT + 4..IP_AT + 6].copy_from_slice(&len.to_be_bytes());
        } else {
            let total_len = u16::try_from(ipv4::Header::LEN + tcp_len).unwrap_or(0);
            let checksum = self.ip.add_u16(total_len).add_u16(identification).finish();
            let ip = &mut self.bytes[IP_AT..IP_AT + ipv4::Header::LEN];
            ip[2..4].copy_from_slice(&total_len.to_be_bytes());
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        &self.bytes[..tcp_at + header_len]
    }
}

#[inline]
const fn tcp_at(is_v6: bool) -> usize {
    if is_v6 {
        IP_AT + ipv6::Header::LEN
    } else {
        IP_AT + ipv4::Header::LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::{Address, EtherType};
    use crate::tcp::Timestamps;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    /// The headers as each layer writes them.
    fn written(is_v6: bool, identification: u16, plain: &Plain, payload_len: usize) -> Vec<u8> {
        let (source, destination) = ends(is_v6);
        let mut bytes = vec![0; MAX_LEN];
        let tcp_at = tcp_at(is_v6);
        let header_len = plain.emit([7, 80], &mut bytes[tcp_at..]);
        let tcp_len = header_len + payload_len;
        let sum = Sum::new().pseudo_header(source, destination, Protocol::TCP, tcp_len);
        bytes[tcp_at + 16..tcp_at + 18].copy_from_slice(&sum.fold().to_be_bytes());
        bytes.truncate(tcp_at + header_len);
        let ethertype = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                ipv4::Header {
                    ttl: 3,
                    dscp_ecn: 8,
                    identification,
                    dont_fragment: true,
                    ..ipv4::Header::new(source, destination, Protocol::TCP)
                }
                .emit(tcp_len, &mut bytes[IP_AT..]);
                EtherType::IPV4
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                ipv6::Header {
                    source,
                    destination,
                    next_header: Protocol::TCP,
                    hop_limit: 3,
                    traffic_class: 8,
                    flow_label: 0xabcde,
                }
                .emit(tcp_len, &mut bytes[IP_AT..]);
                EtherType::IPV6
            }
            _ => unreachable!("both ends are of one family"),
        };
        ethernet::Header {
            destination: Address([2, 0, 0, 0, 0, 1]),
            source: Address([2, 0, 0, 0, 0, 2]),
            ethertype,
        }
        .emit(&mut bytes);
        bytes
    }

    fn ends(is_v6: bool) -> (IpAddr, IpAddr) {
        if is_v6 {
            (
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
            )
        } else {
            (
                Ipv4Addr::new(10, 0, 0, 1).into(),
                Ipv4Addr::new(10, 0, 0, 2).into(),
            )
        }
    }

    proptest! {
        #[test]
        fn what_it_writes_is_what_each_layer_writes(
            is_v6: bool,
            segments in prop::collection::vec((any::<u16>(), any::<[u32; 4]>(), any::<u16>(), any::<[bool; 2]>(), 0..70_000_usize), 1..5),
        ) {
            let (source, destination) = ends(is_v6);
            let first = written(is_v6, 9, &Plain { seq: 0, ack: 0, window: 0, is_pushed: false, timestamps: None }, 77);
            let mut template = Template::new(&first, source, destination);
            for (identification, [seq, ack, value, echo], window, [is_pushed, is_stamped], len) in segments {
                let timestamps = is_stamped.then_some(Timestamps { value, echo });
                let plain = Plain { seq, ack, window, is_pushed, timestamps };
                let len = if is_v6 { len.min(65_000) } else { len };
                let expected = written(is_v6, identification, &plain, len);
                prop_assert_eq!(template.emit(identification, [7, 80], &plain, len), &expected[..]);
            }
        }
    }
}
