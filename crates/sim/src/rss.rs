//! Which receive queue a connection belongs to: the Toeplitz hash of Microsoft's receive-side
//! scaling, over the four-tuple, as NICs compute it.

/// The key that the specification of receive-side scaling verifies with.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// The hash of an IPv4 four-tuple: addresses, then ports, source first.
pub fn toeplitz(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> u32 {
    let mut input = [0; 12];
    input[..4].copy_from_slice(&source);
    input[4..8].copy_from_slice(&destination);
    input[8..10].copy_from_slice(&ports[0].to_be_bytes());
    input[10..].copy_from_slice(&ports[1].to_be_bytes());
    let mut window = u64::from_be_bytes([
        KEY[0], KEY[1], KEY[2], KEY[3], KEY[4], KEY[5], KEY[6], KEY[7],
    ]);
    let mut hash = 0_u64;
    for (index, byte) in input.into_iter().enumerate() {
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window >> 32;
            }
            window <<= 1;
        }
        window |= u64::from(KEY[index + 8]);
    }
    u32::try_from(hash).expect("invariant: 32 bits of the window at a time")
}

/// The queue of a client's connection: clients have an address and a port each.
pub fn queue_of(client: usize, queues: usize) -> usize {
    let bytes = (client as u64).to_be_bytes();
    let source = [10, bytes[5], bytes[6], bytes[7]];
    let port = u16::from_be_bytes([0x80 | bytes[6], bytes[7]]);
    let hash = toeplitz(source, [10, 255, 0, 1], [port, 80]);
    // As NICs do: the low seven bits choose an entry of a table that is filled round robin.
    (hash as usize & 127) % queues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_published_verification_suite() {
        let hash = toeplitz([66, 9, 149, 187], [161, 142, 100, 80], [2794, 1766]);
        assert_eq!(hash, 0x51cc_c178);
        let hash = toeplitz([199, 92, 111, 2], [65, 69, 140, 83], [14230, 4739]);
        assert_eq!(hash, 0xc626_b0ea);
    }

    #[test]
    fn ten_thousand_connections_spread_over_eight_queues() {
        let mut counts = [0_u32; 8];
        (0..10_000).for_each(|client| counts[queue_of(client, 8)] += 1);
        let most = counts.into_iter().max().unwrap();
        assert!(f64::from(most) / 1250.0 < 1.15, "{counts:?}");
    }
}
