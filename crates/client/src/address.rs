//! `sockaddr_in` and `sockaddr_in6` to and from Rust's addresses (ip(7), ipv6(7)).
//!
//! Inside a switch IPv4 is IPv4, also on a socket of AF_INET6, whose programs see it as v4-mapped.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rustix::io::Errno;

/// Length of `sockaddr_in`.
const LEN_V4: usize = 16;
/// Length of `sockaddr_in6`.
const LEN_V6: usize = 28;
/// Length of a `sockaddr_in6` without scope, which Linux still takes (`SIN6_LEN_RFC2133`).
const LEN_V6_MIN: usize = 24;

/// The family of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    #[default]
    V4,
    /// `AF_INET6`.
    V6,
}

/// What a C caller named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// An address of the socket's own family; v4-mapped ones are IPv4.
    Ip(SocketAddr),
    /// `AF_UNSPEC`: for connect, undo an earlier one; for bind, historically ANY.
    Unspecified,
    /// Anything else: the kernel knows what to say.
    Other,
}

/// A `sockaddr` for a C caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted {
    bytes: [u8; LEN_V6],
    len: usize,
}

impl Emitted {
    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Reads a `sockaddr` for a socket of `family`.
pub fn parse(bytes: &[u8], family: Family) -> Result<Name, Errno> {
    let Some((named, rest)) = bytes.split_first_chunk::<2>() else {
        return Err(Errno::INVAL);
    };
    match (i32::from(u16::from_ne_bytes(*named)), family) {
        (libc::AF_UNSPEC, _) => Ok(Name::Unspecified),
        (libc::AF_INET, Family::V4) if bytes.len() < LEN_V4 => Err(Errno::INVAL),
        (libc::AF_INET, Family::V4) => Ok(Name::Ip(SocketAddr::new(
            Ipv4Addr::new(rest[2], rest[3], rest[4], rest[5]).into(),
            u16::from_be_bytes([rest[0], rest[1]]),
        ))),
        (libc::AF_INET6, Family::V6) if bytes.len() < LEN_V6_MIN => Err(Errno::INVAL),
        (libc::AF_INET6, Family::V6) => Ok(Name::Ip(parse_v6(rest))),
        _ => Ok(Name::Other),
    }
}

/// Reads what follows the family of a `sockaddr_in6`: port, flow information, address, scope.
fn parse_v6(rest: &[u8]) -> SocketAddr {
    let word = |at: usize| {
        let bytes = rest.get(at..).and_then(|rest| rest.first_chunk());
        bytes.copied().unwrap_or_default()
    };
    let mut octets = [0; 16];
    octets.copy_from_slice(&rest[6..22]);
    let [a, b, ..] = *rest else {
        unreachable!("invariant: the length was checked")
    };
    let (port, scope_id) = (u16::from_be_bytes([a, b]), u32::from_ne_bytes(word(22)));
    let flow_information = u32::from_be_bytes(word(2));
    canonical(
        SocketAddrV6::new(
            Ipv6Addr::from_octets(octets),
            port,
            flow_information,
            scope_id,
        )
        .into(),
    )
}

/// The address with IPv4 as IPv4.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddrV4::new(v4, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// As [`emit`], with the scope that the address itself has.
#[must_use]
pub fn emit_scoped(address: SocketAddr, family: Family) -> Emitted {
    let scope_id = match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    emit(address, family, scope_id)
}

/// Writes an address as a socket of `family` shows it; a link-local one gets this scope.
#[must_use]
pub fn emit(address: SocketAddr, family: Family, scope_id: u32) -> Emitted {
    let mut bytes = [0; LEN_V6];
    let port = address.port().to_be_bytes();
    bytes[2..4].copy_from_slice(&port);
    let (number, len) = match (family, address.ip()) {
        (Family::V4, IpAddr::V4(v4)) => {
            bytes[4..8].copy_from_slice(&v4.octets());
            (INET, LEN_V4)
        }
        (Family::V4, IpAddr::V6(_)) => (INET, LEN_V4), // Cannot be: an AF_INET socket has no such address.
        (Family::V6, ip) => {
            let v6 = match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            bytes[8..24].copy_from_slice(&v6.octets());
            if v6.is_unicast_link_local() {
                bytes[24..28].copy_from_slice(&scope_id.to_ne_bytes());
            }
            (INET6, LEN_V6)
        }
    };
    bytes[..2].copy_from_slice(&number.to_ne_bytes());
    Emitted { bytes, len }
}

/// Length of an address as a socket of `family` shows it.
#[must_use]
pub fn len(family: Family) -> usize {
    match family {
        Family::V4 => LEN_V4,
        Family::V6 => LEN_V6,
    }
}

/// The family of an address.
#[must_use]
pub fn family(address: SocketAddr) -> Family {
    match address {
        SocketAddr::V4(_) => Family::V4,
        SocketAddr::V6(_) => Family::V6,
    }
}

/// The families as they stand in a `sockaddr`.
const INET: u16 = 2;
const INET6: u16 = 10;
const _: () = assert!(libc::AF_INET == 2 && libc::AF_INET6 == 10);

#[cfg(test)]
mod tests {
    use super::*;

    fn reads_back(text: &str, family: Family) -> String {
        let emitted = emit(text.parse().unwrap(), family, 3);
        match parse(emitted.as_bytes(), family) {
            Ok(Name::Ip(address)) => address.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_address_survives_the_round_trip() {
        assert_eq!(reads_back("10.0.0.2:8080", Family::V4), "10.0.0.2:8080");
        assert_eq!(
            reads_back("[2001:db8::5]:8080", Family::V6),
            "[2001:db8::5]:8080"
        );
    }

    #[test]
    fn an_ipv6_socket_shows_ipv4_as_mapped_and_takes_it_back() {
        let emitted = emit("10.0.0.2:80".parse().unwrap(), Family::V6, 0);
        assert_eq!(emitted.as_bytes().len(), 28);
        assert_eq!(emitted.as_bytes()[18..24], [0xff, 0xff, 10, 0, 0, 2]);
        assert_eq!(reads_back("10.0.0.2:80", Family::V6), "10.0.0.2:80");
    }

    #[test]
    fn only_a_link_local_address_has_a_scope() {
        assert_eq!(reads_back("[fe80::1]:80", Family::V6), "[fe80::1%3]:80");
        assert_eq!(
            reads_back("[2001:db8::1]:80", Family::V6),
            "[2001:db8::1]:80"
        );
    }

    #[test]
    fn short_and_foreign_addresses_are_told_apart() {
        assert_eq!(parse(&[2], Family::V4), Err(Errno::INVAL));
        assert_eq!(parse(&[2, 0, 1, 1], Family::V4), Err(Errno::INVAL));
        assert_eq!(parse(&[0, 0], Family::V4), Ok(Name::Unspecified));
        assert_eq!(parse(&[10, 0, 0, 0], Family::V4), Ok(Name::Other));
        assert_eq!(parse(&[10, 0, 0, 0], Family::V6), Err(Errno::INVAL));
        assert_eq!(parse(&[2, 0, 1, 1], Family::V6), Ok(Name::Other));
        let mut without_scope = [0; 24];
        without_scope[..4].copy_from_slice(&[10, 0, 0, 80]);
        without_scope[23] = 1;
        let expected = Name::Ip("[::1]:80".parse().unwrap());
        assert_eq!(parse(&without_scope, Family::V6), Ok(expected));
    }
}
