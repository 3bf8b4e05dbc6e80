//! A socket's error queue, see IP_RECVERR of ip(7) and linux/errqueue.h.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::BorrowedFd,
};

use crate::sys::{self, ControlMessage};

/// A `sock_extended_err`.
#[derive(Debug, Clone, Copy)]
pub struct ExtendedError<'a> {
    /// The error's number.
    pub errno: u32,
    /// `SO_EE_ORIGIN_…`.
    pub origin: u8,
    /// Type and code of the ICMP message that brought it.
    pub kind: u8,
    pub code: u8,
    /// What else its origin tells.
    pub info: u32,
    /// The address behind it.
    address: &'a [u8],
}

const ERROR_BYTES: usize = 16;

impl<'a> ExtendedError<'a> {
    /// The error that a control message is; `None`: it is none.
    pub fn of(message: &ControlMessage<'a>) -> Option<Self> {
        let kinds = [
            (libc::SOL_IP, libc::IP_RECVERR),
            (libc::SOL_IPV6, libc::IPV6_RECVERR),
        ];
        let (error, address) = message.data.split_first_chunk::<ERROR_BYTES>()?;
        let [a, b, c, d, origin, kind, code, _, e, f, g, h, ..] = *error;
        kinds.contains(&message.of).then_some(Self {
            errno: u32::from_ne_bytes([a, b, c, d]),
            origin,
            kind,
            code,
            info: u32::from_ne_bytes([e, f, g, h]),
            address,
        })
    }

    /// Who sent the message that brought it (SO_EE_OFFENDER): a `sockaddr_in` or `sockaddr_in6`.
    pub fn offender(&self) -> Option<IpAddr> {
        let family = u16::from_ne_bytes(*self.address.first_chunk()?);
        match i32::from(family) {
            libc::AF_INET => {
                let v4: [u8; 4] = *self.address.get(4..)?.first_chunk()?;
                Some(Ipv4Addr::from(v4).into())
            }
            libc::AF_INET6 => {
                let v6: [u8; 16] = *self.address.get(8..)?.first_chunk()?;
                Some(Ipv6Addr::from(v6).into())
            }
            _ => None,
        }
    }
}

/// An entry of the queue.
#[derive(Debug, Clone, Copy)]
pub struct QueuedError {
    /// The error's number.
    pub errno: i32,
    /// `SO_EE_ORIGIN_…`.
    pub origin: u8,
    /// Type and code of the ICMP message that brought it.
    pub kind: u8,
    pub code: u8,
    /// Who sent that message.
    pub offender: Option<IpAddr>,
    /// How much of what was sent it quoted, at the start of the buffer.
    pub quoted: usize,
}

/// Takes the next error of a socket's queue; `None` where there is none.
pub fn receive_error(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<QueuedError>> {
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let mut found = None;
    let received = sys::receive_message(socket, buffer, flags, |message| {
        if let Some(error) = ExtendedError::of(&message) {
            found.get_or_insert(QueuedError {
                errno: i32::try_from(error.errno).unwrap_or(0),
                origin: error.origin,
                kind: error.kind,
                code: error.code,
                offender: error.offender(),
                quoted: 0,
            });
        }
    });
    match received {
        Ok(quoted) => Ok(found.map(|error| QueuedError { quoted, ..error })),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_as_far_as_its_message_goes() {
        let mut bytes = vec![0; ERROR_BYTES];
        bytes[..4].copy_from_slice(&111_u32.to_ne_bytes());
        bytes[4..7].copy_from_slice(&[2, 3, 1]);
        let of = (libc::SOL_IP, libc::IP_RECVERR);
        let read = |data: &[u8], of| {
            ExtendedError::of(&ControlMessage { of, data })
                .map(|error| (error.errno, error.kind, error.offender()))
        };
        assert_eq!(read(&bytes, of), Some((111, 3, None)));
        assert_eq!(read(&bytes[..15], of), None);
        assert_eq!(read(&bytes, (libc::SOL_SOCKET, libc::IP_RECVERR)), None);
        let family = u16::try_from(libc::AF_INET).unwrap().to_ne_bytes();
        bytes.extend([family[0], family[1], 0, 0, 192, 0, 2, 7]);
        let offender = IpAddr::from([192, 0, 2, 7]);
        assert_eq!(read(&bytes, of), Some((111, 3, Some(offender))));
    }
}
