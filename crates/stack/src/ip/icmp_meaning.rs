//! What ICMP errors mean to whoever sent the packet: the tables `icmp_err_convert` and
//! `icmpv6_err_convert` of Linux, which programs know by their errno.
//!
//! Whether the error is believed is not decided here: see `udp/errors.rs`, `icmp.rs` and `icmpv6.rs`.

use crate::link::interface::InterfaceId;
use crate::udp::datagram::DatagramErrorKind as Kind;
use core::net::IpAddr;
use tcp::ConnectionError;
use wire::icmpv4::unreachable;

const DESTINATION_UNREACHABLE: u8 = 3;
const PARAMETER_PROBLEM: u8 = 12;

/// An ICMP error about something that this host is said to have sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'a> {
    /// Who says so.
    pub(crate) offender: IpAddr,
    /// By which link.
    pub(crate) interface: InterfaceId,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) next_hop_mtu: u16,
    pub(crate) quoted: &'a [u8],
}

/// What a message means, and whether it is fatal.
pub(crate) fn meaning(report: &Report<'_>) -> Option<(Kind, bool)> {
    match report.offender {
        IpAddr::V4(_) => meaning_v4(report),
        IpAddr::V6(_) => meaning_v6(report),
    }
}

/// As Linux's `icmp_err_convert`.
fn meaning_v4(report: &Report<'_>) -> Option<(Kind, bool)> {
    if report.kind == PARAMETER_PROBLEM {
        return Some((Kind::Protocol, true));
    }
    if report.kind != DESTINATION_UNREACHABLE {
        return Some((Kind::HostUnreachable, false)); // time exceeded
    }
    Some(match report.code {
        unreachable::NETWORK | 11 => (Kind::NetworkUnreachable, false),
        unreachable::HOST | 12 => (Kind::HostUnreachable, false),
        unreachable::PROTOCOL => (Kind::ProtocolUnreachable, true),
        unreachable::PORT => (Kind::PortUnreachable, true),
        unreachable::FRAGMENTATION_NEEDED => (Kind::TooBig, false),
        unreachable::SOURCE_ROUTE_FAILED => (Kind::SourceRouteFailed, false),
        6 | 9 => (Kind::NetworkUnreachable, true),
        7 => (Kind::HostUnknown, true),
        8 => (Kind::HostIsolated, true),
        10 | unreachable::ADMINISTRATIVELY_PROHIBITED..=15 => (Kind::HostUnreachable, true),
        _ => return None,
    })
}

/// As Linux's `icmpv6_err_convert`.
fn meaning_v6(report: &Report<'_>) -> Option<(Kind, bool)> {
    use wire::icmpv6::unreachable as code;
    Some(match (report.kind, report.code) {
        (1, code::NO_ROUTE) => (Kind::NetworkUnreachable, false),
        (1, code::PORT) => (Kind::PortUnreachable, true),
        // Administratively prohibited, source policy, reject route.
        (1, 1 | 5 | 6) => (Kind::Prohibited, true),
        (1, _) | (3, _) => (Kind::HostUnreachable, false),
        (2, _) => (Kind::TooBig, false),
        (4, _) => (Kind::Protocol, true),
        _ => return None,
    })
}

/// What ends a connection attempt; `None`: nothing of this does.
pub(crate) fn connection_error(report: &Report<'_>) -> Option<ConnectionError> {
    let (kind, _) = meaning(report)?;
    Some(match kind {
        Kind::PortUnreachable => ConnectionError::Refused,
        Kind::ProtocolUnreachable => ConnectionError::ProtocolUnreachable,
        Kind::NetworkUnreachable => ConnectionError::NetworkUnreachable,
        Kind::HostUnreachable => ConnectionError::HostUnreachable,
        Kind::HostUnknown => ConnectionError::HostUnknown,
        Kind::HostIsolated => ConnectionError::HostIsolated,
        Kind::Prohibited => ConnectionError::Prohibited,
        Kind::SourceRouteFailed => ConnectionError::SourceRouteFailed,
        Kind::Protocol => ConnectionError::Protocol,
        Kind::TooBig => return None,
    })
}
