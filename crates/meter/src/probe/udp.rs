//! UDP to an echo, RFC 862 or any other that sends back what it gets. Where nothing listens the ICMP port-unreachable is
//! the answer.

use std::{io, net::SocketAddr, os::fd::AsFd};

use super::{
    Answer, Arrival, Probe, Wait,
    datagram::{Endpoint, HeaderOptions, Received, meaning},
    message::Message,
};
use crate::sys;

/// A connected UDP socket.
#[derive(Debug)]
pub struct Udp {
    endpoint: Endpoint,
    message: Message,
}

impl Udp {
    /// Connects.
    ///
    /// # Errors
    /// No socket, no route, or an option that the stack refuses.
    pub fn open(to: SocketAddr, message: Message, options: HeaderOptions) -> io::Result<Self> {
        let socket = sys::socket(sys::family(to.ip()), libc::SOCK_DGRAM, 0)?;
        sys::connect(socket.as_fd(), to)?;
        let endpoint = Endpoint::new(socket, to.ip(), options)?;
        Ok(Self { endpoint, message })
    }
}

impl Probe for Udp {
    fn send(&mut self, sequence: u64) -> io::Result<()> {
        self.endpoint.send(self.message.of(sequence))
    }

    fn receive(&mut self, wait: Wait) -> io::Result<Option<Arrival>> {
        let Some(received) = self.endpoint.receive(wait)? else {
            return Ok(None);
        };
        Ok(Some(match received {
            Received::Bytes(count) => self
                .message
                .check(&self.endpoint.buffer[..count], false)
                .into(),
            Received::Error(error) => {
                let sequence = self.message.sequence(&self.endpoint.buffer[..error.quoted]);
                match meaning(&error) {
                    Ok(answer) => Arrival::Answer {
                        sequence,
                        answer,
                        from: error.offender,
                    },
                    Err(reason) => Arrival::Failed { sequence, reason },
                }
            }
            Received::Errno(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Arrival::Answer {
                    sequence: None,
                    answer: Answer::PortUnreachable,
                    from: None,
                }
            }
            Received::Errno(error) => Arrival::Failed {
                sequence: None,
                reason: error.to_string(),
            },
        }))
    }

    fn set_hop_limit(&mut self, hops: u8) -> io::Result<()> {
        self.endpoint.set_hop_limit(hops)
    }

    fn is_datagram(&self) -> bool {
        true
    }
}
