//! The hash by which network cards choose a receive queue. Read first: "RSS hashing functions" of Microsoft's documentation of
//! receive-side scaling, which the drivers of Linux follow; its verification suite is in the tests.

use core::net::{IpAddr, SocketAddr};

/// Bytes of both addresses and ports of an IPv6 connection.
const INPUT_BYTES_MAX: usize = 36;

/// The hash of a TCP packet from `source` to `destination`: a key's bits from the place of each bit of the input that is set,
/// added without carry. A key that ends too soon counts as followed by zeros, as one that is too short has no more to say.
#[must_use]
pub fn hash(key: &[u8], source: SocketAddr, destination: SocketAddr) -> u32 {
    let mut input = [0; INPUT_BYTES_MAX];
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        input[len..len + bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
    };
    for end in [source, destination] {
        match end.ip() {
            IpAddr::V4(address) => put(&address.octets()),
            IpAddr::V6(address) => put(&address.octets()),
        }
    }
    for end in [source, destination] {
        put(&end.port().to_be_bytes());
    }
    let input = &input[..len];
    let key_byte = |at: usize| key.get(at).copied().unwrap_or(0);
    let mut window = u32::from_be_bytes([0, 1, 2, 3].map(key_byte));
    let mut hash = 0;
    for (at, byte) in input.iter().enumerate() {
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(key_byte(at + 4) >> bit & 1);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the verification suite.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn the_hash_is_that_of_the_published_verification_suite() {
        for (source, destination, expected) in [
            ("66.9.149.187:2794", "161.142.100.80:1766", 0x51cc_c178),
            ("199.92.111.2:14230", "65.69.140.83:4739", 0xc626_b0ea),
            ("24.19.198.95:12898", "12.22.207.184:38024", 0x5c2b_394a),
            ("38.27.205.30:48228", "209.142.163.6:2217", 0xafc7_327f),
            ("153.39.163.191:44251", "202.188.127.2:1303", 0x10e8_28a2),
            (
                "[3ffe:2501:200:1fff::7]:2794",
                "[3ffe:2501:200:3::1]:1766",
                0x4020_7d3d,
            ),
            (
                "[3ffe:501:8::260:97ff:fe40:efab]:14230",
                "[ff02::1]:4739",
                0xdde5_1bbf,
            ),
            (
                "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
                "[fe80::200:f8ff:fe21:67cf]:38024",
                0x02d1_feef,
            ),
        ] {
            let said = hash(&KEY, source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(said, expected, "{source} to {destination}");
        }
    }

    #[test]
    fn a_key_of_any_length_is_taken() {
        let end = SocketAddr::from(([0xff; 16], 0xffff));
        for len in 0..60 {
            let _ = hash(&[0xff; 60][..len], end, end);
        }
        assert_eq!(hash(&[], end, end), 0);
    }
}
