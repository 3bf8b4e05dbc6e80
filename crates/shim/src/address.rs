//! `sockaddr_in` to and from Rust's addresses (ip(7)). IPv6 is not served yet.

use core::net::{Ipv4Addr, SocketAddrV4};

use rustix::io::Errno;

/// Length of `sockaddr_in`.
pub const LEN: usize = 16;

/// What a C caller named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `AF_INET`.
    V4(SocketAddrV4),
    /// `AF_UNSPEC`: for connect, undo an earlier one; for bind, historically ANY.
    Unspecified,
    /// Anything else: the kernel knows what to say.
    Other,
}

/// Reads a `sockaddr`.
pub fn parse(bytes: &[u8]) -> Result<Name, Errno> {
    let Some((family, rest)) = bytes.split_first_chunk::<2>() else {
        return Err(Errno::INVAL);
    };
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_UNSPEC => Ok(Name::Unspecified),
        libc::AF_INET if bytes.len() < LEN => Err(Errno::INVAL),
        libc::AF_INET => Ok(Name::V4(SocketAddrV4::new(
            Ipv4Addr::new(rest[2], rest[3], rest[4], rest[5]),
            u16::from_be_bytes([rest[0], rest[1]]),
        ))),
        _ => Ok(Name::Other),
    }
}

/// Writes a `sockaddr_in`.
pub fn emit(address: SocketAddrV4) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let [family_low, family_high] = FAMILY.to_ne_bytes();
    bytes[0] = family_low;
    bytes[1] = family_high;
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&address.ip().octets());
    bytes
}

/// AF_INET as it stands in a `sockaddr_in`.
const FAMILY: u16 = 2;
const _: () = assert!(libc::AF_INET == 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_round_trip() {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 8080);
        assert_eq!(parse(&emit(address)), Ok(Name::V4(address)));
    }

    #[test]
    fn short_and_foreign_addresses_are_told_apart() {
        assert_eq!(parse(&[2]), Err(Errno::INVAL));
        assert_eq!(parse(&[2, 0, 1, 1]), Err(Errno::INVAL));
        assert_eq!(parse(&[0, 0]), Ok(Name::Unspecified));
        assert_eq!(parse(&[10, 0, 0, 0]), Ok(Name::Other));
    }
}
