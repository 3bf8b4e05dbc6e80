//! Initial sequence numbers (RFC 6528 §3): a 4 µs clock plus a keyed hash of the four-tuple.

use crate::{seq::SeqNumber, time::Instant};
use core::net::SocketAddr;
use siphasher::sip::SipHasher24;

/// A purpose, two addresses, two ports.
const HASHED_MAX: usize = 9 + 2 * (16 + 2);

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
    // RFC 6528 §3: ISN = M + F(localip, localport, remoteip, remoteport, secretkey), M ticks every 4 µs.
    let [a, b, c, d, ..] = (now.as_us() / 4).to_le_bytes();
    SeqNumber(
        u32::from_le_bytes([a, b, c, d]).wrapping_add(keyed_hash(secret, b"isn", local, remote)),
    )
}

/// The offset of a connection's timestamp clock, from the same kind of hash (RFC 7323 §5.4).
pub fn timestamp_offset(secret: &[u8; 16], local: SocketAddr, remote: SocketAddr) -> u32 {
    keyed_hash(secret, b"timestamp", local, remote)
}

fn keyed_hash(secret: &[u8; 16], purpose: &[u8], local: SocketAddr, remote: SocketAddr) -> u32 {
    let mut bytes = [0; HASHED_MAX];
    let mut len = 0;
    let mut add = |part: &[u8]| {
        bytes[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    };
    add(purpose);
    for address in [local, remote] {
        match address {
            SocketAddr::V4(v4) => add(&v4.ip().octets()),
            SocketAddr::V6(v6) => add(&v6.ip().octets()),
        }
        add(&address.port().to_ne_bytes());
    }
    let hash = SipHasher24::new_with_key(secret).hash(&bytes[..len]);
    let [a, b, c, d, ..] = hash.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
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
