//! Refusals as the errno that the program will see. The numbers are Linux's; the shim passes them on.

use rustix::io::Errno;
use stack::udp::DatagramErrorKind;
use tcp::ConnectionError;

/// An errno as it travels in completions.
pub fn code(errno: Errno) -> u16 {
    u16::try_from(errno.raw_os_error()).unwrap_or(u16::MAX)
}

/// Why the stack refused an operation.
pub fn of_stack(error: stack::Error) -> Errno {
    match error {
        stack::Error::AddressInUse => Errno::ADDRINUSE,
        stack::Error::AddressNotAvailable => Errno::ADDRNOTAVAIL,
        stack::Error::NetworkUnreachable => Errno::NETUNREACH,
        stack::Error::NoMemory => Errno::NOBUFS,
        stack::Error::NotFound => Errno::BADF,
        stack::Error::BrokenPipe => Errno::NOTCONN,
        stack::Error::AccessDenied => Errno::ACCESS,
        stack::Error::MessageTooLong => Errno::MSGSIZE,
        stack::Error::ProtocolNotSupported => Errno::PROTONOSUPPORT,
        stack::Error::FamilyNotSupported => Errno::AFNOSUPPORT,
        stack::Error::DestinationRequired => Errno::DESTADDRREQ,
        stack::Error::NotSupported => Errno::OPNOTSUPP,
        _ => Errno::INVAL,
    }
}

/// What became of a datagram, as Linux's `icmp_err_convert`.
pub fn of_datagram(kind: DatagramErrorKind) -> Errno {
    match kind {
        DatagramErrorKind::PortUnreachable => Errno::CONNREFUSED,
        DatagramErrorKind::ProtocolUnreachable => Errno::NOPROTOOPT,
        DatagramErrorKind::NetworkUnreachable => Errno::NETUNREACH,
        DatagramErrorKind::HostUnknown => Errno::HOSTDOWN,
        DatagramErrorKind::HostIsolated => Errno::NONET,
        DatagramErrorKind::Prohibited => Errno::ACCESS,
        DatagramErrorKind::SourceRouteFailed => Errno::OPNOTSUPP,
        DatagramErrorKind::TooBig => Errno::MSGSIZE,
        DatagramErrorKind::Protocol => Errno::PROTO,
        _ => Errno::HOSTUNREACH,
    }
}

/// Why a connection failed.
pub fn of_connection(error: ConnectionError) -> Errno {
    match error {
        ConnectionError::Refused => Errno::CONNREFUSED,
        ConnectionError::ProtocolUnreachable => Errno::NOPROTOOPT,
        ConnectionError::Prohibited => Errno::ACCESS,
        ConnectionError::Protocol => Errno::PROTO,
        ConnectionError::SourceRouteFailed => Errno::OPNOTSUPP,
        ConnectionError::HostUnknown => Errno::HOSTDOWN,
        ConnectionError::HostIsolated => Errno::NONET,
        ConnectionError::TimedOut => Errno::TIMEDOUT,
        ConnectionError::HostUnreachable => Errno::HOSTUNREACH,
        ConnectionError::NetworkUnreachable => Errno::NETUNREACH,
        ConnectionError::BrokenPipe => Errno::PIPE,
        _ => Errno::CONNRESET,
    }
}
