//! A datagram that several calls put together (MSG_MORE, UDP_CORK; udp(7), Linux `udp_push_pending_frames`). Only of what an engine
//! carries: the kernel does the same for what is its own.

use client::Outgoing;
use client::address::Family;
use client::datagram_messages::payload_max;
use rustix::io::Errno;

/// See the file's head.
pub struct Corked {
    /// As the first call wants it; the names and control messages of others say nothing.
    pub outgoing: Outgoing,
    /// What there is of it.
    pub payload: Vec<u8>,
    max: usize,
}

impl Corked {
    /// Begins with what a first call sends.
    pub fn new(outgoing: Outgoing, family: Family, payload: &[u8]) -> Result<Corked, Errno> {
        let mut corked = Corked {
            outgoing,
            payload: Vec::new(),
            max: payload_max(family),
        };
        corked.add(payload)?;
        Ok(corked)
    }

    /// Adds what a further call sends. EMSGSIZE: it would be too long.
    pub fn add(&mut self, payload: &[u8]) -> Result<(), Errno> {
        if self.payload.len() + payload.len() > self.max {
            return Err(Errno::MSGSIZE);
        }
        self.payload.extend_from_slice(payload);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_grows_until_it_would_be_too_long() {
        let mut corked = Corked::new(Outgoing::default(), Family::V4, b"ab").unwrap();
        corked.add(b"c").unwrap();
        assert_eq!(corked.payload, b"abc");
        assert_eq!(corked.add(&[0; 65_505]), Err(Errno::MSGSIZE));
        assert_eq!(corked.add(&[0; 65_504]), Ok(()));
        let whole = Corked::new(Outgoing::default(), Family::V6, &[0; 65_528]);
        assert_eq!(whole.map(|_| ()), Err(Errno::MSGSIZE));
    }
}
