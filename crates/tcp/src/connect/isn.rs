//! Initial sequence numbers (RFC 6528 §3): a 4 µs clock plus a keyed hash of the four-tuple.

use crate::{seq::SeqNumber, time::Instant};
use core::net::{IpAddr, SocketAddr};
use siphasher::sip::SipHasher24;

/// The initial sequence number of a connection from `local` to `remote` opened at `now`.
///
/// `secret` must be random and stay the same while the host runs, so that a new incarnation of a
/// connection starts above the old one.
pub fn initial_sequence(
    secret: &[u8; 16],
    local: SocketAddr,
    remote: SocketAddr,
    now: Instant,
) -> SeqNumber {
    between(secret, local, remote).initial_sequence(now)
}

/// The offset of a connection's timestamp clock, from the other half of the same hash (RFC 7323 §5.4).
pub fn timestamp_offset(secret: &[u8; 16], local: SocketAddr, remote: SocketAddr) -> u32 {
    between(secret, local, remote).timestamp_offset
}

fn between(secret: &[u8; 16], local: SocketAddr, remote: SocketAddr) -> SecretNumbers {
    let end = |end: SocketAddr| (end.ip(), end.port());
    SecretNumbers::new(secret, end(local), end(remote))
}

/// What nobody can guess of a connection between two ends. Both halves of one keyed hash: who learns one knows nothing of
/// the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretNumbers {
    /// F of RFC 6528 §3.
    sequence_offset: u32,
    /// By how much the timestamp clock is ahead (RFC 7323 §5.4).
    pub timestamp_offset: u32,
}

impl SecretNumbers {
    /// Those of a connection from `local` to `remote`, with [`initial_sequence`]'s secret.
    pub fn new(secret: &[u8; 16], local: (IpAddr, u16), remote: (IpAddr, u16)) -> Self {
        let ports = (local.1.to_ne_bytes(), remote.1.to_ne_bytes());
        let hasher = SipHasher24::new_with_key(secret);
        let hash = match (local.0, remote.0) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                hasher.hash(&hashed::<4, 15>(local.octets(), remote.octets(), ports))
            }
            (local, remote) => hasher.hash(&hashed::<16, 39>(wide(local), wide(remote), ports)),
        };
        let [a, b, c, d, e, f, g, h] = hash.to_le_bytes();
        Self {
            sequence_offset: u32::from_le_bytes([a, b, c, d]),
            timestamp_offset: u32::from_le_bytes([e, f, g, h]),
        }
    }

    /// [`initial_sequence`] at `now`.
    pub fn initial_sequence(&self, now: Instant) -> SeqNumber {
        // RFC 6528 §3: ISN = M + F(localip, localport, remoteip, remoteport, secretkey), M ticks every 4 µs.
        let [a, b, c, d, ..] = (now.as_us() / 4).to_le_bytes();
        SeqNumber(u32::from_le_bytes([a, b, c, d]).wrapping_add(self.sequence_offset))
    }
}

/// What is hashed, of `LEN` bytes: a purpose, and both ends with addresses of `N`.
#[inline]
fn hashed<const N: usize, const LEN: usize>(
    local: [u8; N],
    remote: [u8; N],
    ports: ([u8; 2], [u8; 2]),
) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..3].copy_from_slice(b"isn");
    bytes[3..3 + N].copy_from_slice(&local);
    bytes[3 + N..5 + N].copy_from_slice(&ports.0);
    bytes[5 + N..5 + 2 * N].copy_from_slice(&remote);
    bytes[5 + 2 * N..].copy_from_slice(&ports.1);
    bytes
}

fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = [7; 16];

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn the_clock_moves_every_four_microseconds() {
        let at = |us| initial_sequence(&KEY, address(1), address(2), Instant::from_us(us)).0;
        assert_eq!(at(4_000_000).wrapping_sub(at(0)), 1_000_000);
    }

    #[test]
    fn tuples_and_secrets_give_unrelated_numbers() {
        let now = Instant::ZERO;
        let one = initial_sequence(&KEY, address(1), address(2), now);
        assert_ne!(one, initial_sequence(&KEY, address(1), address(3), now));
        assert_ne!(one, initial_sequence(&[8; 16], address(1), address(2), now));
    }
}
