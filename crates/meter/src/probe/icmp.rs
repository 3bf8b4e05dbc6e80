//! ICMP echo, RFC 792 and 4443 §4: by a socket for echoes alone where the kernel lets this user have one
//! (net.ipv4.ping_group_range of icmp(7)), else by a raw socket, which needs CAP_NET_RAW.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
};

use super::{
    Arrival, Probe, Wait,
    datagram::{Endpoint, HeaderOptions, Received, meaning},
    message::Message,
};
use crate::sys;

const HEADER_BYTES: usize = 8;
/// Echo request and reply of ICMP and of ICMPv6.
const TYPES_V4: (u8, u8) = (8, 0);
const TYPES_V6: (u8, u8) = (128, 129);
/// Errors of ICMPv6, RFC 4443 §2.1: a raw socket takes them into its error queue.
const ERRORS_V6: [u8; 4] = [1, 2, 3, 4];
/// Messages of others that a raw socket hears are passed over, so many at a time.
const OTHERS_MAX: usize = 64;

/// A socket that sends echo requests.
#[derive(Debug)]
pub struct Icmp {
    endpoint: Endpoint,
    message: Message,
    packet: Vec<u8>,
    types: (u8, u8),
    /// The kernel chooses another one for a socket of its own kind.
    identifier: u16,
    is_raw: bool,
    is_v6: bool,
    last_sent: u64,
}

impl Icmp {
    /// Opens a socket; `identifier` tells the echoes of this one from those of others on a raw socket.
    ///
    /// # Errors
    /// Neither kind of socket is allowed, or there is no route.
    pub fn open(
        to: SocketAddr,
        message: Message,
        identifier: u16,
        options: HeaderOptions,
    ) -> io::Result<Self> {
        let is_v6 = to.is_ipv6();
        let protocol = if is_v6 {
            libc::IPPROTO_ICMPV6
        } else {
            libc::IPPROTO_ICMP
        };
        let (socket, is_raw) = open_socket(to.ip(), protocol)?;
        if is_raw && is_v6 {
            let mut passed = ERRORS_V6.to_vec();
            passed.push(TYPES_V6.1);
            sys::filter_icmpv6(socket.as_fd(), &passed)?;
        }
        let mut peer = to;
        // ICMP has no ports; raw(7) wants none.
        peer.set_port(0);
        sys::connect(socket.as_fd(), peer)?;
        let endpoint = Endpoint::new(socket, to.ip(), options)?;
        Ok(Self {
            endpoint,
            packet: vec![0; HEADER_BYTES + message.len()],
            message,
            types: if is_v6 { TYPES_V6 } else { TYPES_V4 },
            identifier,
            is_raw,
            is_v6,
            last_sent: 0,
        })
    }

    fn arrival(&self, received: &Received) -> Option<Arrival> {
        match received {
            Received::Bytes(count) => self.reply(&self.endpoint.buffer[..*count]),
            Received::Error(error) => {
                let quoted = &self.endpoint.buffer[..error.quoted];
                let sequence = self.quoted_sequence(quoted)?;
                Some(match meaning(error) {
                    Ok(answer) => Arrival::Answer {
                        sequence,
                        answer,
                        from: error.offender,
                    },
                    Err(reason) => Arrival::Failed { sequence, reason },
                })
            }
            Received::Errno(error) => Some(Arrival::Failed {
                sequence: None,
                reason: error.to_string(),
            }),
        }
    }

    /// What an echo reply answers; `None` where it is not for this socket.
    fn reply(&self, came: &[u8]) -> Option<Arrival> {
        let icmp = if self.is_raw && !self.is_v6 {
            // A raw socket of IPv4 gets the IP header too, see raw(7).
            let words = usize::from(came.first()? & 0xf);
            came.get(words * 4..)?
        } else {
            came
        };
        let (header, data) = icmp.split_first_chunk::<HEADER_BYTES>()?;
        let is_own = !self.is_raw || header[4..6] == self.identifier.to_be_bytes();
        if header[0] != self.types.1 || !is_own {
            return None;
        }
        Some(self.message.check(data, false).into())
    }

    /// Whose request an ICMP error quotes: `None` where it is not this socket's. Routers may quote no more than the
    /// header, RFC 792: 16 bits of the sequence number are in it.
    fn quoted_sequence(&self, quoted: &[u8]) -> Option<Option<u64>> {
        let Some((header, data)) = quoted.split_first_chunk::<HEADER_BYTES>() else {
            return Some(None);
        };
        if self.is_raw && header[4..6] != self.identifier.to_be_bytes() {
            return None;
        }
        let low = u16::from_be_bytes([header[6], header[7]]);
        let distance = low_bits(self.last_sent).wrapping_sub(low);
        let by_header = self.last_sent.checked_sub(distance.into());
        Some(self.message.sequence(data).or(by_header))
    }
}

fn open_socket(to: IpAddr, protocol: libc::c_int) -> io::Result<(OwnedFd, bool)> {
    let family = sys::family(to);
    match sys::socket(family, libc::SOCK_DGRAM, protocol) {
        Ok(socket) => Ok((socket, false)),
        Err(refused) => match sys::socket(family, libc::SOCK_RAW, protocol) {
            Ok(socket) => Ok((socket, true)),
            Err(_) => Err(io::Error::new(
                refused.kind(),
                format!(
                    "no ICMP socket: {refused}. Let your group have one (as root: sysctl \
                     net.ipv4.ping_group_range='0 2147483647'), run this with CAP_NET_RAW, \
                     or ask by --udp or --connect, which need neither"
                ),
            )),
        },
    }
}

fn low_bits(sequence: u64) -> u16 {
    u16::try_from(sequence & 0xffff).unwrap_or(0)
}

/// The Internet checksum, RFC 1071; the kernel fills in that of ICMPv6 and of its own kind of socket.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !low_bits(sum)
}

impl Probe for Icmp {
    fn send(&mut self, sequence: u64) -> io::Result<()> {
        let (header, data) = self.packet.split_at_mut(HEADER_BYTES);
        data.copy_from_slice(self.message.of(sequence));
        header.fill(0);
        header[0] = self.types.0;
        header[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        header[6..8].copy_from_slice(&low_bits(sequence).to_be_bytes());
        let sum = checksum(&self.packet);
        self.packet[2..4].copy_from_slice(&sum.to_be_bytes());
        self.last_sent = sequence;
        self.endpoint.send(&self.packet)
    }

    fn receive(&mut self, wait: Wait) -> io::Result<Option<Arrival>> {
        let mut wait = wait;
        for _ in 0..OTHERS_MAX {
            let Some(received) = self.endpoint.receive(wait)? else {
                return Ok(None);
            };
            if let Some(arrival) = self.arrival(&received) {
                return Ok(Some(arrival));
            }
            wait = Wait::Not;
        }
        Ok(None)
    }

    fn set_hop_limit(&mut self, hops: u8) -> io::Result<()> {
        self.endpoint.set_hop_limit(hops)
    }

    fn is_datagram(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        // The example of RFC 1071 §3.
        assert_eq!(
            checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
        assert_eq!(checksum(&[1]), !0x0100);
    }
}
