//! Headers of a TCP connection's plain segments, written once: each differs from the one before it in a length, an
//! identification, what TCP says, and in sums that follow from those (Jacobson 1990).

use core::net::IpAddr;

use crate::checksum::Sum;
use crate::ipv4::{self, Protocol};
use crate::tcp::{self, Plain};
use crate::{ethernet, ipv6};

/// The IP header begins here over IPv6. Over IPv4 both headers stand so much further behind that TCP's follows at the same place.
const IP_AT: usize = ethernet::Header::LEN;
const TCP_AT: usize = IP_AT + ipv6::Header::LEN;
const V4_AT: usize = TCP_AT - ipv4::Header::LEN;
const CHECKSUM_AT: usize = TCP_AT + tcp::CHECKSUM_OFFSET as usize;

/// Ethernet and IP headers, and TCP's behind them.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    bytes: [u8; TCP_AT + Plain::MAX_LEN],
    is_v6: bool,
    /// Of TCP's header.
    header_len: u8,
    /// Of the IPv4 header without its length, identification and checksum.
    ip: u16,
    /// Of the pseudo header without its length.
    pseudo: u16,
}

impl Template {
    /// Of packets whose link and IP headers are those in front of `headers`, but for lengths, identification and
    /// checksum, between these addresses and ports.
    ///
    /// # Panics
    /// When `headers` is shorter than both headers, or the addresses are not of one family.
    #[must_use]
    pub fn new(headers: &[u8], source: IpAddr, destination: IpAddr, ports: [u16; 2]) -> Self {
        let is_v6 = destination.is_ipv6();
        let from = first_byte(is_v6);
        let mut bytes = [0; TCP_AT + Plain::MAX_LEN];
        bytes[from..TCP_AT].copy_from_slice(&headers[..TCP_AT - from]);
        let mut ip = Sum::new();
        if !is_v6 {
            let header = &mut bytes[V4_AT..TCP_AT];
            header[2..6].fill(0);
            header[10..12].fill(0);
            ip = ip.add(header);
        }
        let pseudo = Sum::new().pseudo_header(source, destination, Protocol::TCP, 0);
        let mut template = Self {
            bytes,
            is_v6,
            header_len: 0,
            ip: ip.fold(),
            pseudo: pseudo.fold(),
        };
        Plain::prepare(ports, template.tcp());
        template
    }

    /// Where the TCP header begins in what leaves.
    #[must_use]
    #[inline]
    pub fn tcp_at(&self) -> u16 {
        if self.is_v6 { TCP_AT_V6 } else { TCP_AT_V4 }
    }

    #[inline]
    fn tcp(&mut self) -> &mut [u8; Plain::MAX_LEN] {
        self.bytes
            .last_chunk_mut()
            .expect("invariant: the bytes end with a TCP header")
    }

    /// The next headers say so, but for what [`Self::emit`] is told of each.
    #[inline(always)]
    pub fn begin(&mut self, plain: &Plain) {
        self.header_len = plain.fill(self.tcp());
    }

    /// The headers of a segment with this sequence number and `payload_len` bytes of payload. Its checksum is that of the
    /// pseudo header alone: the rest is added where the payload is.
    ///
    /// # Panics
    /// When the packet is longer than 65535 bytes over IPv6; over IPv4 its length is then 0, as
    /// [`ipv4::Header::emit`] says.
    #[inline(always)]
    pub fn emit(
        &mut self,
        identification: u16,
        (seq, is_pushed): (u32, bool),
        payload_len: u32,
    ) -> &[u8] {
        Plain::refill(seq, is_pushed, self.tcp());
        let header_len = self.header_len;
        let tcp_len = u32::from(header_len) + payload_len;
        let partial = folded(u32::from(self.pseudo) + (tcp_len & 0xffff) + (tcp_len >> 16));
        let bytes = &mut self.bytes;
        bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&partial.to_be_bytes());
        let end = TCP_AT + usize::from(header_len);
        if self.is_v6 {
            let len = u16::try_from(tcp_len)
                .expect("invariant: an IPv6 payload is at most 65535 bytes long");
            bytes[IP_AT + 4..IP_AT + 6].copy_from_slice(&len.to_be_bytes());
            return &bytes[..end];
        }
        let total_len = u16::try_from(V4_LEN + tcp_len).unwrap_or(0);
        let sum = u32::from(self.ip) + u32::from(total_len) + u32::from(identification);
        let checksum = !folded(sum);
        bytes[V4_AT + 2..V4_AT + 4].copy_from_slice(&total_len.to_be_bytes());
        bytes[V4_AT + 4..V4_AT + 6].copy_from_slice(&identification.to_be_bytes());
        bytes[V4_AT + 10..V4_AT + 12].copy_from_slice(&checksum.to_be_bytes());
        &bytes[first_byte(false)..end]
    }
}

/// Where a TCP header begins in a frame, and how long an IPv4 header is.
const TCP_AT_V4: u16 = 34;
const TCP_AT_V6: u16 = 54;
const V4_LEN: u32 = 20;
const _: () =
    assert!(TCP_AT_V6 as usize == TCP_AT && TCP_AT_V4 as usize == IP_AT + ipv4::Header::LEN);
const _: () = assert!(V4_LEN as usize == ipv4::Header::LEN);

/// Where a frame begins in the bytes of a template.
#[inline]
const fn first_byte(is_v6: bool) -> usize {
    if is_v6 { 0 } else { V4_AT - IP_AT }
}

/// A ones'-complement sum of a few words as one (RFC 1071 §1).
#[inline]
fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    // Sixteen bits and a carry are left.
    let [a, b, carry, _] = sum.to_le_bytes();
    u16::from_le_bytes([a, b]).wrapping_add(carry.into())
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
        let mut bytes = vec![0; TCP_AT + Plain::MAX_LEN];
        let tcp_at = TCP_AT - first_byte(is_v6);
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
            let mut template = Template::new(&first, source, destination, [7, 80]);
            for (identification, [seq, ack, value, echo], window, [is_pushed, is_stamped], len) in segments {
                let timestamps = is_stamped.then_some(Timestamps { value, echo });
                let plain = Plain { seq, ack, window, is_pushed, timestamps };
                let len = if is_v6 { len.min(65_000) } else { len };
                let expected = written(is_v6, identification, &plain, len);
                let len = u32::try_from(len).unwrap();
                template.begin(&plain);
                prop_assert_eq!(template.emit(identification, (seq, is_pushed), len), &expected[..]);
            }
        }
    }
}
